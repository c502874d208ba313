"""From bytes to a text, or why not: where the first wrong byte is, and what the encoding may be."""

import codecs
from itertools import pairwise
from typing import NamedTuple

from fastfeed.auditor.finding import Finding
from fastfeed.auditor.looking import textcodes

TEXT_EXTENSIONS = frozenset({
    "txt", "text", "json", "jsonl", "ndjson", "csv", "tsv", "md", "rst", "html", "htm", "xml", "yaml", "yml", "cls", "srt",
    "vtt", "tex", "caption", "transcript", "lab", "py",
})  # fmt: skip
"""Names that say text whatever the bytes are."""
_WIDE_MARKS = (
    (codecs.BOM_UTF32_LE, "UTF-32, little-endian"), (codecs.BOM_UTF32_BE, "UTF-32, big-endian"),
    (codecs.BOM_UTF16_LE, "UTF-16, little-endian"), (codecs.BOM_UTF16_BE, "UTF-16, big-endian"),
)  # fmt: skip
_UNMARKED = ", without a byte order mark"
_HEAD_BYTES = 4096
_CHARACTERS = 16
"""Bytes: fewer say too little."""
_CONTROLS = frozenset(range(32)) - frozenset(b"\t\n\r\f\x1b")
_WIDE_SHARE = 0.3
"""Of zeros at every second byte: a Latin text in UTF-16 has nearly all of them, one of another script few."""
_FEW_WRONG = 10
"""Characters that are right for each that is wrong: then it is UTF-8 with damage."""


class TextRead(NamedTuple):
    """What came of it."""

    text: str | None
    """Without its byte order mark; None where it is no UTF-8."""
    findings: list[Finding]


def looks_like_text(data: bytes) -> bool:
    """Whether bytes without a telling name are text.

    Args:
        data: The whole file.
    """
    if wide_encoding(data):
        return True
    head = data[:_HEAD_BYTES]
    if any(byte in _CONTROLS for byte in head):
        return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True


def wide_encoding(data: bytes) -> str:
    """UTF-16 or UTF-32 by its mark or its zeros; empty where it is neither."""
    for mark, name in _WIDE_MARKS:
        if data.startswith(mark):
            return name
    head = data[:_HEAD_BYTES]
    for first, third, name in ((0, 2, "UTF-32, little-endian"), (3, 1, "UTF-32, big-endian")):
        if len(head) >= _CHARACTERS and not any(head[third::4]) and any(head[first::4]) and not any(head[3 - first :: 4]):
            return f"{name}{_UNMARKED}"
    for first, name in ((1, "UTF-16, little-endian"), (0, "UTF-16, big-endian")):
        zeros, others = head[first::2], head[1 - first :: 2]
        if zeros and zeros.count(0) >= _WIDE_SHARE * len(zeros) and 0 not in others:
            return f"{name}{_UNMARKED}"
    return ""


def read(data: bytes) -> TextRead:
    """Decode a text.

    Args:
        data: The whole file.
    """
    wide = wide_encoding(data)
    if wide:
        return TextRead(None, [Finding(textcodes.WIDE, f"it is {wide}")])
    found = list[Finding]()
    if data.startswith(codecs.BOM_UTF8):
        found.append(Finding(textcodes.BOM, "it begins with EF BB BF"))
    try:
        return TextRead(data.decode("utf-8").removeprefix("\ufeff"), found)
    except UnicodeDecodeError as error:
        return TextRead(None, [*found, _wrong(data, error)])


def _wrong(data: bytes, error: UnicodeDecodeError) -> Finding:
    start = error.start
    line = data.count(b"\n", 0, start) + 1
    if error.end == len(data) and error.reason == "unexpected end of data":
        return Finding(textcodes.CUT_CHARACTER, f"line {line}: the last character, at byte {start}, is not whole")
    text = f"line {line}: byte {start} is 0x{data[start]:02x}; {_guess(data, start)}"
    return Finding(textcodes.NOT_UTF8, text)


def _guess(data: bytes, start: int) -> str:
    """What it may be."""
    if data[start] == 0xED and start + 1 < len(data) and 0xA0 <= data[start + 1] <= 0xBF:  # noqa: PLR2004 - D800 to DFFF
        return "half a character (a surrogate) in the form of UTF-8, as CESU-8 has it"
    text = data.decode("utf-8", "replace")
    wrong = text.count("\ufffd")
    right = sum(character > "\x7f" for character in text) - wrong
    if right >= _FEW_WRONG * wrong:
        return f"the rest is UTF-8, with {wrong} damaged places"
    high = [byte > 0x7F for byte in data[: 1 << 16]]  # noqa: PLR2004 - ASCII ends there
    pairs = sum(one and other for one, other in pairwise(high))
    if 2 * pairs > sum(high):
        return "it may be a double-byte encoding of East Asia, or a single-byte one of a script that is not Latin"
    return "it may be Latin-1, Windows-1252 or another single-byte encoding"
