"""One header block of a tar that somebody else wrote: USTAR, GNU, PAX, star, V7. Pure functions; nothing is believed.

Sources: POSIX.1-2017 pax (ustar and pax interchange formats), GNU tar manual "Basic Tar Format" and "Extensions",
CPython's Lib/tarfile.py, which webdataset reads with: where the dialects leave room, its reading is followed.
"""

import re
import struct
from typing import NamedTuple
from zlib import adler32

BLOCK_BYTES = 512
ZEROS = bytes(BLOCK_BYTES)
REGULAR = frozenset((b"0", b"\0", b"7"))
"""Type flags of files with content. Contiguous files (7) are files to everyone."""
LONG_NAME, LONG_LINK, SPARSE, PAX_OF_ALL, FOLDER = b"L", b"K", b"S", b"g", b"5"
LINKS = frozenset((b"1", b"2"))
ABOUT_OTHERS = frozenset((LONG_NAME, LONG_LINK, PAX_OF_ALL, b"x", b"X"))
"""Headers whose payload is about members behind them. X is Solaris' x."""
BODILESS = frozenset((*LINKS, b"3", b"4", FOLDER, b"6"))
"""Links, devices, folders, FIFOs: whatever size they state, the next header follows at once."""
MORE_IN_HEADER, MORE_IN_EXTENSION = 482, 504
"""Bytes of an old GNU sparse header, and of the blocks that extend it, that say whether the map goes on."""
KINDS = {
    b"1": "hard link", b"2": "symbolic link", b"3": "character device", b"4": "block device", b"5": "folder", b"6": "FIFO",
    b"D": "GNU folder listing", b"M": "continuation of another volume", b"N": "old GNU long name", b"V": "GNU volume label",
}  # fmt: skip
MAX_EXTENDED_BYTES = 1 << 20
"""Of a long name or of PAX records. Names end at 4 KiB on Linux; what is larger is no name."""

_PAX_RECORD = re.compile(rb"(\d{1,9}) ([^=\0]+)=")
_FIELDS = struct.Struct("100s24x12s12x8sc100x6s82xB166x").unpack
"""Name, size, checksum, type, magic, first byte of the prefix."""
_BASE256 = frozenset((0o200, 0o377))
_MAX_DIGITS = 20


class BadHeader(ValueError):
    """A block that is no header, and why. It never leaves the room."""


class Header(NamedTuple):
    """What one block says, before extended headers are applied."""

    name: bytes
    size: int
    """Of the payload behind it, as stated; not negative."""
    kind: bytes
    """The type flag; "5" also for the folders of V7, which are files with a slash at the end."""


def parse(block: bytes) -> Header:
    """Read a header.

    Args:
        block: 512 bytes, not all of them zero.

    Raises:
        BadHeader: Its checksum does not hold, or a number in it is none.
    """
    name, size_field, checksum, kind, magic, prefixed = _FIELDS(block)
    # adler32's lower half is 1 + the sum of the bytes, as long as that is below 65,521: of ASCII it is
    total = (adler32(block) & 0xFFFF) - sum(checksum) + 255 if block.isascii() else -1
    stated = _octal(checksum)
    if stated < 0 or (stated != total and not holds(block)):
        raise BadHeader(_why(block))
    digits = size_field[:11]
    size = int(digits, 8) if _is_octal(digits) and size_field[11] in b"\0 " else number(size_field, "size")
    name = name.rstrip(b"\0")
    if b"\0" in name:
        name = name.partition(b"\0")[0]
    if prefixed and magic == b"ustar\0":  # GNU's own dialect ("ustar  ") keeps times there
        name = block[345:500].partition(b"\0")[0] + b"/" + name
    if kind == b"\0" and name.endswith(b"/"):
        kind = FOLDER
    return Header(name, size, kind)


def holds(block: bytes) -> bool:
    """Whether a block's checksum is the sum of its bytes, these eight counted as blanks."""
    field = block[148:156]
    total = sum(block) - sum(field) + 256
    high = sum(byte > 127 for byte in block) - sum(byte > 127 for byte in field)  # noqa: PLR2004 - some sum signed bytes
    return _octal(field) in {total, total - 256 * high} - {-1}


def _octal(raw: bytes) -> int:
    """A number in octal digits between blanks, ended by a zero byte or not; -1 where it is none."""
    digits = raw.partition(b"\0")[0].strip(b" ")
    return int(digits, 8) if _is_octal(digits) else -1


def _is_octal(digits: bytes) -> bool:
    return digits.isdigit() and b"8" not in digits and b"9" not in digits


def _why(block: bytes) -> str:
    field = block[148:156]
    stated, total = _octal(field), sum(block) - sum(field) + 256
    if stated < 0:
        return f"where a header's checksum stands there is {field!r}"
    return f"the header states the checksum {stated:o}, its bytes have {total:o} (octal)"


def number(raw: bytes, what: str) -> int:
    """A numeric field: octal digits, or GNU's base 256 where they do not suffice.

    Raises:
        BadHeader: It is neither, or negative.
    """
    if raw[0] in _BASE256:
        value = int.from_bytes(raw[1:], "big") if raw[0] == 0o200 else -1  # noqa: PLR2004 - 0o377 begins a negative number
    else:
        value = _octal(raw) if raw.strip(b" \0") else 0
    if value < 0:
        msg = f"the header's {what} is no number from 0 ({raw!r})"
        raise BadHeader(msg)
    return value


def pax_records(raw: bytes) -> dict[bytes, bytes]:
    """The keywords of a PAX header: "LENGTH KEYWORD=VALUE", a line each.

    Raises:
        BadHeader: A record is not of that form.
    """
    found: dict[bytes, bytes] = {}
    at = 0
    while at < len(raw) and raw[at]:
        match = _PAX_RECORD.match(raw, at)
        stop = at + int(match[1]) if match else 0
        if match is None or not match.end() < stop <= len(raw) or raw[stop - 1] != 0x0A:  # noqa: PLR2004 - a line feed
            msg = f"the PAX record at byte {at} of its header is {raw[at : at + 24]!r}"
            raise BadHeader(msg)
        found[match[2]] = raw[match.end() : stop - 1]
        at = stop
    return found


def apply_pax(header: Header, records: dict[bytes, bytes]) -> Header:
    """A header with what PAX records replace: the path, and the size where octal digits do not hold it.

    Raises:
        BadHeader: A size that is no number.
    """
    if not records:
        return header
    name, size = header.name, header.size
    for keyword in (b"path", b"GNU.sparse.name"):
        name = records.get(keyword, b"").rstrip(b"/") or name
    stated = records.get(b"size", b"")
    if stated:
        if not stated.isdigit() or len(stated) > _MAX_DIGITS:
            msg = f"the PAX size is {stated[:40]!r}"
            raise BadHeader(msg)
        size = int(stated)
    return Header(name, size, header.kind)


def is_sparse(records: dict[bytes, bytes]) -> bool:
    """Whether PAX records say that the payload is a map with holes."""
    return any(keyword.startswith(b"GNU.sparse.") for keyword in records)
