"""What can be said about a text: its encoding, characters that other tools trip over, its shape, what does not parse."""

from fastfeed.auditor.finding import Code, Severity

_ERROR, _WARNING, _INFO = Severity.ERROR, Severity.WARNING, Severity.INFO

# ------------------------------------------------------------------------------------------------ encoding
BOM = Code(
    "text-bom", _WARNING, "A byte order mark at the start of UTF-8",
    "Most readers keep it as the first character, and json.loads refuses it: remove the first three bytes.",
)  # fmt: skip
WIDE = Code(
    "text-utf16", _ERROR, "UTF-16 or UTF-32 in place of UTF-8",
    "Convert it: iconv -f UTF-16 -t UTF-8.",
)  # fmt: skip
NOT_UTF8 = Code(
    "text-not-utf8", _ERROR, "Bytes that are not UTF-8",
    "Convert it from the encoding that it has. One such file ends the loading of the whole set in Hugging Face datasets.",
)  # fmt: skip
CUT_CHARACTER = Code(
    "text-cut", _ERROR, "The text ends within a character",
    "The end is missing: fetch it again.",
)  # fmt: skip

# ------------------------------------------------------------------------------------------------ characters
NUL = Code(
    "text-nul", _WARNING, "NUL characters",
    "Readers pass them on without a word; C libraries end the text there. Look at how the file was made.",
)  # fmt: skip
CONTROL = Code(
    "text-control", _WARNING, "Control characters other than tabs and line ends",
    "An escape-coded encoding (ISO-2022), a terminal's log, or damage: look at it.",
)  # fmt: skip
REPLACEMENT = Code(
    "text-replacement", _WARNING, "Replacement characters (U+FFFD): it was decoded wrongly before",
    "The characters are lost: fetch the original and decode it right.",
)  # fmt: skip
HALF = Code(
    "text-lone-surrogate", _ERROR, "Half a character (a lone surrogate)",
    "The text cannot be encoded, and fails in whatever writes or tokenizes it: replace the half.",
)  # fmt: skip
LINE_ENDS = Code(
    "text-line-ends", _INFO, "Tools count its lines differently",
    "Take the line feed alone as the end of a line: split('\\n'), not splitlines().",
)  # fmt: skip

# ------------------------------------------------------------------------------------------------ shape
BLANK = Code(
    "text-blank", _WARNING, "Nothing but white space",
    "It gives no token: leave it out.",
)  # fmt: skip
LONG_LINE = Code(
    "text-long-line", _WARNING, "A line of extreme length",
    "What works line by line (regular expressions, sentence splitters) may take hours: cut it.",
)  # fmt: skip
LONG_RUN = Code(
    "text-long-run", _WARNING, "A word of extreme length",
    "Tokenizers and sentence splitters may take time by the square of it. Often it is base64: cut it or leave it out.",
)  # fmt: skip
LONG_BLANK = Code(
    "text-long-blank", _WARNING, "White space of extreme length",
    "A pattern such as \\s+$ takes time by the square of it: shorten it.",
)  # fmt: skip
REPETITIVE = Code(
    "text-repetitive", _WARNING, "The same again and again",
    "It teaches little and may be an artefact: look at it.",
)  # fmt: skip
TOKENIZER_FAILS = Code(
    "tokenizer-fails", _ERROR, "The tokenizer raises an error",
    "Look at the text, and at the tokenizer's own limits.",
)  # fmt: skip

# ------------------------------------------------------------------------------------------------ formats of text
NOT_PARSED = Code(
    "text-not-parsed", _INFO, "Too large for the audit to parse",
    "Nothing.",
)  # fmt: skip
JSON_BAD = Code(
    "json-unparsable", _ERROR, "JSON that does not parse",
    "Look at the stated place; it may be cut, or several documents in one file (JSON lines).",
)  # fmt: skip
JSONL_BAD = Code(
    "jsonl-unparsable", _ERROR, "Lines that are no JSON",
    "Look at the stated line.",
)  # fmt: skip
JSON_LOOSE = Code(
    "json-nonstandard", _WARNING, "NaN or Infinity in JSON",
    "Python reads it, other parsers refuse the file: write null or a string.",
)  # fmt: skip
SURROGATE = Code(
    "json-lone-surrogate", _ERROR, "Half a character (a lone surrogate) in JSON",
    "json.loads takes it, and the text cannot be encoded afterwards: replace it.",
)  # fmt: skip
CSV_BAD = Code(
    "csv-unparsable", _ERROR, "A table that does not parse",
    "Look at the stated line: often a quote that is not closed.",
)  # fmt: skip
CSV_RAGGED = Code(
    "csv-ragged", _WARNING, "Rows that have more or fewer cells than the first",
    "Look at the stated lines: often a separator that is not quoted.",
)  # fmt: skip
