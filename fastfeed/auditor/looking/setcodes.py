"""What can be said about samples together: equal bytes, classes, names, lengths, archives."""

from fastfeed.auditor.finding import Code, Severity

_ERROR, _WARNING, _INFO = Severity.ERROR, Severity.WARNING, Severity.INFO

# ------------------------------------------------------------------------------------------------ duplicates
COPY_IN_SPLITS = Code(
    "duplicate-across-splits", _WARNING, "The same bytes in more than one split",
    "What is tested was trained on: keep it in the test split alone.",
)  # fmt: skip
COPY_IN_CLASSES = Code(
    "duplicate-across-classes", _WARNING, "The same bytes in more than one class",
    "At least one of the labels is wrong, or the classes are not exclusive: look at it.",
)  # fmt: skip
COPY = Code(
    "duplicate", _WARNING, "The same bytes once more in the same class and split",
    "Leave all but one out, unless the weight is meant.",
)  # fmt: skip

# ------------------------------------------------------------------------------------------------ classes
EMPTY_CLASS = Code(
    "class-empty", _WARNING, "A class without a sample",
    "ImageFolder raises an error for it; others count it as a class that never comes.",
)  # fmt: skip
TINY_CLASS = Code(
    "class-tiny", _WARNING, "A class of very few samples",
    "Look whether an upload or a download stopped early.",
)  # fmt: skip
CLASS_IN_ONE_SPLIT = Code(
    "class-missing-in-split", _WARNING, "A class that a split has not",
    "Class numbers by sorted names differ between such splits: give the class list explicitly.",
)  # fmt: skip
CLASSES_ALIKE = Code(
    "class-names-alike", _WARNING, "Classes whose names differ by case, blanks or hyphens alone",
    "They are probably one class, written in two ways: merge them.",
)  # fmt: skip
JUNK_CLASS = Code(
    "class-junk", _WARNING, "A folder of a program's own that counts as a class",
    "ImageFolder takes it for a class, and all class numbers behind it move: delete the folder.",
)  # fmt: skip

# ------------------------------------------------------------------------------------------------ names
CASE_CLASH = Code(
    "name-case-clash", _WARNING, "Names that differ by case alone",
    "They overwrite each other on macOS and Windows, and webdataset takes their suffixes for one: rename one.",
)  # fmt: skip
UNICODE_CLASH = Code(
    "name-unicode-clash", _WARNING, "Names that look the same and are written in different code points",
    "They overwrite each other on macOS: rename one (NFC is usual).",
)  # fmt: skip
NAME_ODD = Code(
    "name-odd", _INFO, "A name that tools handle differently",
    "pack keeps the original name as the sample's source; other tools may fail: rename it.",
)  # fmt: skip
LEFT_OUT = Code(
    "left-out-by-imagefolder", _WARNING, "An image that ImageFolder leaves out without a word, by its name",
    "Give it one of .jpg, .jpeg, .png, .ppm, .bmp, .pgm, .tif, .tiff, .webp.",
)  # fmt: skip

# ------------------------------------------------------------------------------------------------ lengths
LENGTH_OUTLIER = Code(
    "text-length-outlier", _WARNING, "Far longer or shorter than the other texts",
    "A long one decides the padding of its batch and is cut at the model's limit: split it. A short one may be a remnant: "
    "look at it.",
)  # fmt: skip
TOKENS_OUTLIER = Code(
    "text-tokens-outlier", _WARNING, "Far more or fewer tokens than the other texts",
    "Split a long one. One of usual length with many tokens is of a script or a coding (base64) that the tokenizer spells "
    "letter by letter: look at it.",
)  # fmt: skip

# ------------------------------------------------------------------------------------------------ archives
TAR_DAMAGED = Code(
    "tar-damaged", _ERROR, "Bytes in a tar that are no header where one should be",
    "tarfile, webdataset and Hugging Face datasets stop there without a word: fetch the tar again.",
)  # fmt: skip
TAR_CUT = Code(
    "tar-cut", _ERROR, "A tar that ends within a member or a header",
    "Fetch it again.",
)  # fmt: skip
TAR_STREAM = Code(
    "tar-stream-damaged", _ERROR, "A compressed tar whose compression is broken",
    "What is behind the stated byte cannot be read: fetch it again.",
)  # fmt: skip
TAR_UNREADABLE = Code(
    "tar-unreadable", _ERROR, "The disk gives an error within the tar",
    "Copy it from where it came from, and look at the disk.",
)  # fmt: skip
TAR_OPEN_END = Code(
    "tar-open-end", _WARNING, "A tar without the zeros that mark its end: it may have been cut between two members",
    "No reader notices that. Compare the number of members with the source.",
)  # fmt: skip
TAR_END_MARK = Code(
    "tar-members-behind-end", _WARNING, "Members behind the mark of a tar's end, as joined tars have",
    "tar and webdataset do not read them: join tars with tar --concatenate.",
)  # fmt: skip
TAR_ORDER = Code(
    "tar-scattered-sample", _WARNING, "Members of one sample that do not stand together",
    "webdataset hands out half samples without an error: write the tar sorted by name.",
)  # fmt: skip
TAR_REPEATED = Code(
    "tar-repeated-name", _WARNING, "A member name that comes twice in one tar",
    "webdataset raises 'duplicate file name in tar file', other readers take the last: rename one.",
)  # fmt: skip
TAR_NOT_A_SAMPLE = Code(
    "tar-no-sample", _INFO, "A member that belongs to no sample",
    "Hidden files, folders' metadata, links, names without extension: readers pass over them, each by its own rules.",
)  # fmt: skip
TAR_SPARSE = Code(
    "tar-sparse", _WARNING, "A member stored as a sparse file",
    "Readers of ranges do not read it: make the tar without --sparse.",
)  # fmt: skip
TAR_DROPPED = Code(
    "tar-broken-sample", _ERROR, "A sample of which damage took members",
    "Fetch the tar again.",
)  # fmt: skip
TAR_UNEVEN = Code(
    "tar-uneven-sample", _WARNING, "Samples that have other members than most",
    "Readers that want each field raise an error at them, others pass over them: complete them or leave them out.",
)  # fmt: skip
TAR_DOTTED_KEY = Code(
    "tar-dotted-key", _WARNING, "A dot in the middle of a name, where webdataset ends the key",
    "The key is cut and the suffix is no known one: replace the dots before the extension.",
)  # fmt: skip
INDEX_DISAGREES = Code(
    "index-disagrees", _ERROR, "An index beside the tar that does not fit it",
    "Make it again; readers that believe it get wrong bytes.",
)  # fmt: skip
