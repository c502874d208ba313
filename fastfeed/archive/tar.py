"""USTAR, written so that every reader of the field opens it, and read back without mercy.

A shard holds regular files only: for each member a header block, the payload, zeros up to the next block; then two zero
blocks and zeros up to a multiple of 10,240. Given name and size, a header has exactly one form, so checking one is
comparing 512 bytes. Source: POSIX.1-1988 ustar interchange format; the choices within it are README.md §2.
"""

from zlib import adler32

BLOCK_BYTES = 512
RECORD_BYTES = 10240
MAX_NAME_BYTES = 100
MAX_MEMBER_BYTES = 8**11 - 1
"""Eleven octal digits: 8 GiB - 1. Beyond it other readers misread the size."""

_ZEROS = bytes(RECORD_BYTES)
_OWNERS = b"0000444\0" + b"0000000\0" * 2  # mode, uid, gid
_MTIME = b"\0" + b"00000000000\0"  # with the end of the size before it
_TAIL = b"\0 0" + bytes(100) + b"ustar\0" + b"00" + bytes(64) + b"0000000\0" * 2 + bytes(155 + 12)
_HEADS = [b"%b" + bytes(100 - length) + _OWNERS + b"%011o" + _MTIME for length in range(MAX_NAME_BYTES + 1)]
_REST_SUM = sum(_TAIL[2:]) + sum(b" " * 8) - 1
"""Of all but the head; the checksum counts its own field as blanks. adler32's lower half is 1 + the sum of the bytes, as long
as that is below 65,521: the head's is at most 148 * 255."""


def header(name: bytes, size_bytes: int) -> bytes:
    """The 512 bytes before a member's payload.

    Args:
        name: At most 100 bytes.
        size_bytes: At most MAX_MEMBER_BYTES.

    Raises:
        ValueError: Name or size does not fit its field.
    """
    if not 0 < len(name) <= MAX_NAME_BYTES or not 0 <= size_bytes <= MAX_MEMBER_BYTES:
        msg = f"no USTAR header for a name of {len(name)} bytes and a size of {size_bytes}"
        raise ValueError(msg)
    head = _HEADS[len(name)] % (name, size_bytes)
    return b"%b%06o%b" % (head, _REST_SUM + (adler32(head) & 0xFFFF), _TAIL)


def padding_bytes(size_bytes: int) -> int:
    """Zeros between a payload's end and the next block."""
    return -size_bytes % BLOCK_BYTES


def padding(size_bytes: int) -> bytes:
    """Those zeros."""
    return _ZEROS[: -size_bytes % BLOCK_BYTES]


def span_bytes(size_bytes: int) -> int:
    """What a member takes in the archive: header, payload, padding."""
    return BLOCK_BYTES + size_bytes + (-size_bytes % BLOCK_BYTES)


def trailer_bytes(members_bytes: int) -> int:
    """What ends an archive whose members take members_bytes: two zero blocks, then zeros up to a whole record."""
    return 2 * BLOCK_BYTES + -(members_bytes + 2 * BLOCK_BYTES) % RECORD_BYTES


def trailer(members_bytes: int) -> bytes:
    """Those zeros; at most 11,264."""
    return bytes(trailer_bytes(members_bytes))
