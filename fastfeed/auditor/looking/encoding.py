"""From bytes to a text, or why not: where the first wrong byte is, and what the encoding may be."""

import codecs
from itertools import pairwise
from typing import NamedTuple

from fastfeed.auditor.finding import Finding
from fastfeed.auditor.looking import textcodes
from fastfeed.auditor.looking.kinds import has_controls

TEXT_EXTENSIONS = frozenset({
    "txt", "text", "json", "jsonl", "ndjson", "csv", "tsv", "md", "rst", "html", "htm", "xml", "yaml", "yml", "cls", "srt",
    "vtt", "tex", "caption", "transcript", "lab", "py",
})  # fmt: skip
"""Names that say text whatever the bytes are."""
_WIDE_MARKS = (
    (codecs.BOM_UTF32_LE, "UTF-32, little-endian"), (codecs.BOM_UTF32_BE, "UTF-32, big-endian"),
    (codecs.BOM_UTF16_LE, "UTF-16, little-endian"), (codecs.BOM_UTF16_BE, "UTF-16, big-endian"),
)  # fmt: skip
_HEAD_BYTES = 4096
_LEAST_BYTES = 8
"""Fewer say too little about zeros."""
_BLANKS = "\t\n\r\f\ufeff\u3000\xa0"
_WIDE_SHARE = 0.3
"""Of zeros at every second byte: a Latin text in UTF-16 has nearly all of them, one of another script few."""
_GUESSED_BYTES = 1 << 15
"""On each side of the first wrong byte."""
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
    head = data[:_HEAD_BYTES]
    wide = wide_encoding(head)
    if wide:
        return _is_printable(head, wide)
    if has_controls(head):
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
    if len(head) < _LEAST_BYTES:
        return ""
    name = ""
    if not any(head[2::4]) and not any(head[3::4]):
        name = "UTF-32, little-endian"
    elif not any(head[0::4]) and not any(head[1::4]):
        name = "UTF-32, big-endian"
    elif _is_half_zero(head[1::2], head[0::2]):
        name = "UTF-16, little-endian"
    elif _is_half_zero(head[0::2], head[1::2]):
        name = "UTF-16, big-endian"
    return f"{name}, without a byte order mark" if name and _is_printable(head, name) else ""


def _is_half_zero(high: bytes, low: bytes) -> bool:
    return high.count(0) >= _WIDE_SHARE * len(high) and 0 not in low


def _is_printable(head: bytes, name: str) -> bool:
    """Whether bytes decoded so are characters that people write: small numbers of two bytes each are none."""
    size, codec = (4, f"utf-32-{name[8]}e") if name.startswith("UTF-32") else (2, f"utf-16-{name[8]}e")
    try:
        text = codecs.getincrementaldecoder(codec)().decode(head[: len(head) // size * size])
    except UnicodeDecodeError:
        return False
    return all(character.isprintable() or character in _BLANKS for character in text)


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
    around = data[max(0, start - _GUESSED_BYTES) : start + _GUESSED_BYTES]
    text = around.decode("utf-8", "replace")
    wrong = text.count("\ufffd")
    right = sum(character > "\x7f" for character in text) - wrong
    if right >= _FEW_WRONG * wrong:
        return "what is around it is UTF-8: damage, or another text put into this one"
    high = [byte > 0x7F for byte in around]  # noqa: PLR2004 - ASCII ends there
    pairs = sum(one and other for one, other in pairwise(high))
    if 2 * pairs > sum(high):
        return "it may be a double-byte encoding of East Asia, or a single-byte one of a script that is not Latin"
    return "it may be Latin-1, Windows-1252 or another single-byte encoding"
