"""What can be said about an image: what cannot be decoded, what decoders forgive, what they differ about, what it costs."""

from fastfeed.auditor.finding import Code, Severity

_ERROR, _WARNING, _INFO = Severity.ERROR, Severity.WARNING, Severity.INFO

# ------------------------------------------------------------------------------------------------ cannot be loaded
UNDECODABLE = Code(
    "undecodable", _ERROR, "The decoder refuses it",
    "Fetch it again; if it stays so, leave it out.",
)  # fmt: skip
UNSUPPORTED = Code(
    "unsupported-format", _ERROR, "A known format, of a kind that Pillow does not read here",
    "Convert it with a program that reads it, install Pillow with that codec, or leave it out.",
)  # fmt: skip
TRUNCATED = Code(
    "truncated", _ERROR, "The end of the picture is missing",
    "Fetch it again, or leave it out. Decoded leniently, what is missing becomes grey, or another picture's pixels.",
)  # fmt: skip
HEADER_DAMAGED = Code(
    "header-damaged", _ERROR, "The header is missing something that decoding needs",
    "Fetch it again, or leave it out.",
)  # fmt: skip

# ------------------------------------------------------------------------------------------------ loads, but is damaged
CORRUPT_DATA = Code(
    "corrupt-data", _ERROR, "The decoder met damaged data and went on: pixels are wrong",
    "Fetch it again, or leave it out: Pillow hands it out without a word.",
)  # fmt: skip
MISSING_EOI = Code(
    "missing-eoi", _ERROR, "Only the end marker is missing: all pixels are there",
    "Pillow refuses it, others do not. Append the two bytes FF D9 to the file.",
)  # fmt: skip
STRAY_BYTES = Code(
    "stray-bytes", _WARNING, "Bytes between two markers that belong to neither",
    "The pixels are right, but a strict decoder (simplejpeg, djpeg -strict) refuses it. Rewrite it with jpegtran.",
)  # fmt: skip
GREY_BAND = Code(
    "grey-band", _WARNING, "The bottom of the picture is one flat grey, as libjpeg fills in what is missing",
    "It was probably cut once, decoded leniently and stored again. Look at it; fetch the original, or leave it out.",
)  # fmt: skip
CHUNK_DAMAGED = Code(
    "chunk-damaged", _ERROR, "A PNG chunk's checksum does not hold, or a chunk is cut",
    "Some decoders load it all the same, perhaps with wrong pixels. Fetch it again.",
)  # fmt: skip
CHUNK_ODD = Code(
    "chunk-odd", _WARNING, "A PNG chunk beside the pixels breaks the format's rules",
    "The pixels are right; stricter decoders refuse the file. Rewrite it, for example with oxipng or Pillow.",
)  # fmt: skip
NO_IEND = Code(
    "missing-iend", _WARNING, "The PNG does not end with its end chunk",
    "load() forgives it, verify() and stricter decoders do not. The file was probably cut: fetch it again.",
)  # fmt: skip
ENDS_EARLY = Code(
    "ends-early", _WARNING, "It loads, but its end is missing",
    "All pixels of the first frame are there; later ones or metadata were probably cut. Fetch it again.",
)  # fmt: skip
VERIFY_FAILS = Code(
    "verify-fails", _WARNING, "It loads, but Pillow's verify() refuses it",
    "Something in the file breaks a rule: rewrite it, or fetch it again.",
)  # fmt: skip
DECODER_WARNING = Code(
    "decoder-warning", _WARNING, "Pillow warns while it decodes",
    "Warnings of worker processes are seldom seen: read this one.",
)  # fmt: skip

# ------------------------------------------------------------------------------------------------ bombs
NOT_DECODED = Code(
    "not-decoded", _WARNING, "The audit did not decode it, so it may be damaged",
    "Shrink it or convert it, or raise the audit's limit.",
)  # fmt: skip
PIXELS_REFUSED = Code(
    "pixels-refused", _ERROR, "More pixels than Pillow agrees to decode",
    "A damaged or hostile header, or a scan or map: tile or shrink it. Twice Image.MAX_IMAGE_PIXELS is the limit.",
)  # fmt: skip
PIXELS_MANY = Code(
    "pixels-many", _WARNING, "So many pixels that Pillow warns of a decompression bomb",
    "Decoding takes hundreds of megabytes in each worker: shrink it to the size that training uses.",
)  # fmt: skip
PIXEL_BOMB = Code(
    "pixel-bomb", _WARNING, "A few bytes that become very many pixels",
    "Pillow does not warn at this size, and each worker pays for it in memory and time: shrink it or leave it out.",
)  # fmt: skip
SCAN_BOMB = Code(
    "scan-bomb", _WARNING, "A progressive JPEG of very many scans, each of which costs a pass over all pixels",
    "Re-encode it as a baseline JPEG (jpegtran without -progressive), or leave it out.",
)  # fmt: skip
TEXT_BOMB = Code(
    "text-bomb", _ERROR, "A compressed text or profile in the file that decompresses to very much",
    "Pillow raises a ValueError, which `except OSError` does not catch. Remove the metadata (oxipng --strip all).",
)  # fmt: skip

# ------------------------------------------------------------------------------------------------ modes and depths
CMYK = Code(
    "cmyk", _WARNING, "CMYK colours",
    "convert('RGB') ignores its colour profile, and without it a tensor has four channels: convert it once, with ImageCms.",
)  # fmt: skip
DEEP_GREY = Code(
    "deep-grey", _WARNING, "A grey image of more than 8 bits",
    "convert('RGB') and convert('L') clip it at 255 instead of scaling, so nearly all becomes white: divide it yourself.",
)  # fmt: skip
DEEP_COLOUR = Code(
    "deep-colour", _INFO, "A colour image of 16 bits a channel, of which Pillow keeps 8",
    "Nothing, if 8 bits suffice.",
)  # fmt: skip
FLOAT_PIXELS = Code(
    "float-pixels", _WARNING, "Pixels in floating point",
    "convert('RGB') clips them at 0 and 255: scale them yourself.",
)  # fmt: skip
PALETTE = Code(
    "palette", _INFO, "Colours by palette",
    "Without convert('RGB') a tensor holds numbers of the palette. As a mask of classes that is what is meant.",
)  # fmt: skip
PALETTE_ALPHA = Code(
    "palette-transparency", _WARNING, "A palette with transparency given in bytes",
    "Pillow warns at convert('RGB'), and hidden colours appear: convert it through RGBA, onto a background that you choose.",
)  # fmt: skip
ALPHA = Code(
    "alpha", _INFO, "An alpha channel that hides nothing",
    "Without convert('RGB') a tensor has a channel more.",
)  # fmt: skip
ALPHA_HIDES = Code(
    "alpha-hides", _WARNING, "Transparent parts, whose hidden colours appear at convert('RGB')",
    "Paste it onto a background that you choose.",
)  # fmt: skip
ONE_BIT = Code(
    "one-bit", _INFO, "Black and white, one bit a pixel",
    "Without convert() a tensor holds 0 and 1, or 0 and 255, by reader.",
)  # fmt: skip
ONE_CHANNEL = Code(
    "one-channel", _INFO, "Grey: one channel",
    "Without convert('RGB') its tensor has one channel, and a batch with colour images cannot be stacked.",
)  # fmt: skip
OTHER_COLOURS = Code(
    "other-colours", _WARNING, "Colours that are neither RGB nor grey",
    "convert('RGB') takes them as they are, without a profile: convert it once.",
)  # fmt: skip

# ------------------------------------------------------------------------------------------------ metadata
ORIENTATION = Code(
    "exif-orientation", _WARNING, "An EXIF orientation: decoders disagree about which side is up",
    "Boxes and masks fit one of the readings only. Turn the pixels once (ImageOps.exif_transpose), or use one reader only.",
)  # fmt: skip
ORIENTATION_INVALID = Code(
    "exif-orientation-invalid", _INFO, "An EXIF orientation that there is not",
    "Decoders ignore it.",
)  # fmt: skip
EXIF_BAD = Code(
    "exif-bad", _INFO, "EXIF or XMP metadata that cannot be read",
    "The pixels are right. Older readers raise an error at getexif(): strip it with exiftool -all=.",
)  # fmt: skip
ICC_BAD = Code(
    "icc-bad", _INFO, "A colour profile that cannot be read",
    "Decoders ignore it; a strict one refuses the file.",
)  # fmt: skip
ICC_OTHER = Code(
    "icc-not-srgb", _INFO, "Colours of another space than sRGB, by a profile that loaders ignore",
    "They come out paler or darker than they are: convert once, with ImageCms.profileToProfile.",
)  # fmt: skip
METADATA_LARGE = Code(
    "metadata-large", _WARNING, "Metadata that outweighs the pixels",
    "It is read with each epoch and used by nobody: strip it (exiftool -all=, jpegtran -copy none, oxipng --strip safe).",
)  # fmt: skip

# ------------------------------------------------------------------------------------------------ waste and cost
TRAILING_BYTES = Code(
    "trailing-bytes", _INFO, "Bytes behind the picture's end",
    "Nothing; a few bytes are common.",
)  # fmt: skip
DEAD_BYTES = Code(
    "dead-bytes", _WARNING, "Many bytes behind the picture's end, read with each epoch and never used",
    "Cut the file behind the stated byte.",
)  # fmt: skip
FRAMES = Code(
    "many-frames", _WARNING, "Several frames or pages, of which loaders hand out the first",
    "Keep the frame that is meant in a file of its own: the others are read and thrown away.",
)  # fmt: skip
FRAME_DAMAGED = Code(
    "frame-damaged", _WARNING, "The first frame loads, a later one does not",
    "Fetch it again if later frames are used.",
)  # fmt: skip
PROGRESSIVE = Code(
    "progressive", _INFO, "A progressive JPEG: about 2.4 times the time of a baseline one",
    "Re-encode (jpegtran, without loss) if decoding is what training waits for.",
)  # fmt: skip
ARITHMETIC = Code(
    "arithmetic-jpeg", _WARNING, "A JPEG in arithmetic coding",
    "Pillow reads it; browsers and decoders on GPUs do not. jpegtran makes it an ordinary one without loss.",
)  # fmt: skip
NO_TABLES = Code(
    "no-huffman-table", _WARNING, "A JPEG without Huffman tables, as frames of MJPEG videos are",
    "libjpeg-turbo puts the standard tables in their place, other decoders refuse it. jpegtran writes them into the file.",
)  # fmt: skip
INTERLACED = Code(
    "interlaced", _INFO, "An interlaced PNG: a little slower in Pillow, 2.7 times in OpenCV",
    "Rewrite it without interlacing if decoding is what training waits for.",
)  # fmt: skip
HEAVY_FORMAT = Code(
    "heavy-format", _WARNING, "JPEG 2000: 30 to 40 times the time of a JPEG",
    "Re-encode it if decoding is what training waits for.",
)  # fmt: skip
COSTLY_FORMAT = Code(
    "costly-format", _INFO, "A format that takes two to four times the time of a JPEG of its size",
    "Re-encode it if decoding is what training waits for.",
)  # fmt: skip
