"""Names of shards, keys and fields; which are legal, and why a member's bytes are believed. README.md §2 and §3."""

import re
from collections.abc import Sequence

import xxhash

from fastfeed.archive import tar
from fastfeed.errors import IndexDamaged, ShardDamaged

SUFFIX, COMPRESSED_SUFFIX = ".tar", ".tar.zst"
MAX_FIELD_BYTES = 32
MAX_PART_BYTES, MAX_PATH_BYTES = 255, 4095
_PART = r"(?!__)[A-Za-z0-9_+@=,~%^!#()-]+"
LEGAL_KEY = re.compile(rf"{_PART}(?:/{_PART})*")
"""Printable ASCII without blank, dot or semicolon; no part is empty or begins with a dot or two underscores."""
LEGAL_FIELD = re.compile(r"[a-z0-9_+-]+(?:\.[a-z0-9_+-]+)*")
SHARD_NAME = re.compile(r"([A-Za-z0-9_-]{1,60})-(\d{6,})\.tar(?:\.zst)?")
CLASS_FIELD = "cls"


_KEY_CHARACTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_+@=,~%^!#()-"


def all_legal_keys(keys: Sequence[str]) -> bool:
    """Whether LEGAL_KEY takes every key: the same rule for all of them at once, twenty times as fast."""
    if not keys:
        return True
    text = f"/{'/'.join(keys)}/"  # a key's end is a part's end
    if not text.isascii() or text.encode("ascii").translate(None, _KEY_CHARACTERS).strip(b"/"):
        return False
    return "//" not in text and "/__" not in text


def is_safe_source(raw: bytes) -> bool:
    """Whether an original path stays below the folder that it is written to: relative, no empty part, no dot or two."""
    parts = raw.split(b"/")
    legal = not any(part in {b"", b".", b".."} or b"\0" in part or len(part) > MAX_PART_BYTES for part in parts)
    return legal and len(raw) <= MAX_PATH_BYTES


def shard_file(name: str, number: int, *, compressed: bool = False) -> str:
    """("train", 3) -> "train-000003.tar", compressed "train-000003.tar.zst"."""
    return f"{name}-{number:06d}{COMPRESSED_SUFFIX if compressed else SUFFIX}"


def member_name(key: str, field: str) -> str:
    """("cat/001", "jpg") -> "cat/001.jpg"."""
    return f"{key}.{field}"


def digest(data: bytes | bytearray | memoryview) -> int:
    """The checksum of a member's payload: xxh3-64."""
    return xxhash.xxh3_64_intdigest(data)


def check_header(block: bytes, member: str, size_bytes: int, **where: object) -> None:
    """Prove that a member's header block is the one that its name and size give.

    Args:
        block: 512 bytes.
        member: Name, ascii.
        size_bytes: Of the payload.
        **where: Facts for the error: shard, sample, key, start (of the block).

    Raises:
        ShardDamaged: It is not.
        IndexDamaged: There is no header for such a name or size.
    """
    try:
        right = tar.header(member.encode(), size_bytes)
    except ValueError as error:
        msg = f"the index names a member that no tar header holds: {error}"
        raise IndexDamaged(msg, member=member, got=f"{size_bytes} bytes", hint=RESTORE, **where) from error  # type: ignore[arg-type]
    if block != right:
        first = next((at for at, (got, want) in enumerate(zip(block, right, strict=False)) if got != want), len(block))
        msg = f"the tar header of a member is damaged at its byte {first}"
        expected, got = right[first : first + 16].hex(), bytes(block[first : first + 16]).hex()
        raise ShardDamaged(msg, member=member, expected=expected, got=got, hint=RESTORE, **where)  # type: ignore[arg-type]


RESTORE = "Run fastfeed verify to see all damage; restore the shard from a copy, or pack it again."
