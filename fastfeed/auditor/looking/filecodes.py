"""What can be said about a file before any decoder: it is empty, or something else than its name says."""

from fastfeed.auditor.finding import Code, Severity

_ERROR, _WARNING, _INFO = Severity.ERROR, Severity.WARNING, Severity.INFO

EMPTY = Code(
    "empty-file", _ERROR, "The file is empty",
    "It was not written to its end, or never fetched: fetch it again, or leave it out.",
)  # fmt: skip
ONLY_ZEROS = Code(
    "only-zeros", _ERROR, "All bytes are zero",
    "A crash or a full disk left room that was never written: fetch it again.",
)  # fmt: skip
HTML = Code(
    "html-page", _ERROR, "A web page in place of the file",
    "The server answered with a page (often a 404 or a login) and it was saved under the file's name: fetch it again.",
)  # fmt: skip
JSON_ANSWER = Code(
    "json-answer", _ERROR, "A JSON answer in place of an image",
    "An API answered with an error and it was saved under the file's name: read it, and fetch the file again.",
)  # fmt: skip
SVG = Code(
    "svg-drawing", _ERROR, "An SVG drawing, which image decoders do not read",
    "Render it to PNG once, at the size that training uses, or leave it out.",
)  # fmt: skip
COMPRESSED = Code(
    "compressed-file", _ERROR, "A compressed file or an archive in place of the file",
    "Decompress it: it may hold the image, or be a server's compressed answer.",
)  # fmt: skip
LFS_POINTER = Code(
    "lfs-pointer", _ERROR, "A Git LFS pointer: the content was never fetched",
    "Run `git lfs pull` in the repository that it came from.",
)  # fmt: skip
APPLEDOUBLE = Code(
    "appledouble", _ERROR, "Metadata that macOS left beside a file (AppleDouble, ._name)",
    "It is no sample: delete all files whose names begin with ._, or leave them out.",
)  # fmt: skip
SYSTEM_FILE = Code(
    "system-file", _ERROR, "A file of the desktop's own (.DS_Store, Thumbs.db)",
    "It is no sample: delete it or leave it out.",
)  # fmt: skip
NOT_AN_IMAGE = Code(
    "not-an-image", _ERROR, "The name says image, the content is none that is known",
    "Look at its first bytes; fetch it again or leave it out.",
)  # fmt: skip
WRONG_EXTENSION = Code(
    "wrong-extension", _WARNING, "The name names another format than the content has",
    "Pillow goes by the content; DALI, nvJPEG, simplejpeg and tf.io.decode_jpeg go by the name and fail. Rename it.",
)  # fmt: skip
LEADING_BYTES = Code(
    "leading-bytes", _ERROR, "A JPEG that begins behind other bytes",
    "Cut the file's beginning off up to the stated byte: the picture itself may be whole.",
)  # fmt: skip
