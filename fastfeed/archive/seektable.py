"""The seek table at the end of a compressed shard: which bytes of the file hold which bytes of its tar. README.md §10.

This module knows sizes and places and no codec; archive/frame.py makes and reads what lies there. Reading proves that the
frames fill the file and the tar without a gap and that no number can lead anywhere else, before one is handed out.
Source: zstd's contrib/seekable_format/zstd_seekable_compression_format.md, version 0.1.0.
"""

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from itertools import accumulate
from operator import le
from typing import NamedTuple

from fastfeed.archive.shard import RESTORE
from fastfeed.errors import ShardDamaged

HEAD = struct.Struct("<II")  # magic of a skippable frame, bytes that follow
FOOTER = struct.Struct("<IBI")  # frames, descriptor, magic of the table
MAGIC, END_MAGIC = 0x184D2A5E, 0x8F92EAB1
WITH_CHECKSUMS = 0x80
"""The only descriptor that we write: bit 7 says that entries have checksums, all others are 0."""
ENTRY_BYTES = 12
"""Three uint32: compressed size, content's size, low 32 bits of the content's XXH64."""
MAX_FRAMES = 0x8000000
"""The seekable format's limit."""


class Framed(NamedTuple):
    """What the manifest says of a compressed shard."""

    shard: str
    size_bytes: int
    """Of the file."""
    tar_bytes: int
    """Of the tar in it."""
    frame_bytes: int
    """The most that a frame holds."""


class Frame(NamedTuple):
    """One frame: bytes [start, stop) of the file hold bytes [tar_start, tar_stop) of the tar."""

    number: int
    start: int
    stop: int
    tar_start: int
    tar_stop: int
    checksum: int | None
    """Low 32 bits of the content's XXH64; None where the table is lost and the frame was found without it."""

    def __str__(self) -> str:
        file, inside = f"[{self.start}, {self.stop}) of the file", f"[{self.tar_start}, {self.tar_stop}) of the tar in it"
        return f"frame {self.number} (bytes {file}, {inside})"


def frames_at_most(tar_bytes: int, frame_bytes: int) -> int:
    """How many frames a shard can have: two that follow each other hold more than frame_bytes together."""
    return 2 * (tar_bytes // frame_bytes) + 1


def compressed_at_most(content_bytes: int) -> int:
    """No frame takes more: zstd stores what does not compress, with a few bytes for each 128 KiB."""
    return content_bytes + (content_bytes >> 8) + 64


def encode(entries: "array[int]") -> bytes:
    """The table of (compressed size, content's size, checksum) of each frame in turn, as three numbers each."""
    if sys.byteorder == "big":
        entries = entries[:]
        entries.byteswap()
    raw = entries.tobytes()
    count = len(raw) // ENTRY_BYTES
    return HEAD.pack(MAGIC, len(raw) + FOOTER.size) + raw + FOOTER.pack(count, WITH_CHECKSUMS, END_MAGIC)


class SeekTable:
    """The frames of one shard, proven to fill its file and its tar. Twenty bytes a frame.

    Args:
        entries: As encode() takes them.
    """

    __slots__ = ("checksums", "starts", "tar_starts")

    def __init__(self, entries: "array[int]") -> None:
        self.starts = array("Q", accumulate(entries[0::3], initial=0))
        """Of each frame in the file, and where the last one ends."""
        self.tar_starts = array("Q", accumulate(entries[1::3], initial=0))
        self.checksums = entries[2::3]

    def __len__(self) -> int:
        return len(self.checksums)

    def __getitem__(self, number: int) -> Frame:
        starts, tar_starts = self.starts, self.tar_starts
        return Frame(
            number, starts[number], starts[number + 1], tar_starts[number], tar_starts[number + 1], self.checksums[number]
        )

    def __iter__(self) -> Iterator[Frame]:
        return map(self.__getitem__, range(len(self)))

    @property
    def memory_bytes(self) -> int:
        """What it takes."""
        return 20 * len(self) + 400

    def frames_of(self, start: int, stop: int) -> range:
        """Numbers of the frames that hold bytes [start, stop) of the tar."""
        if start >= stop:
            return range(0)
        return range(bisect_right(self.tar_starts, start) - 1, bisect_left(self.tar_starts, stop))


def read(pread: Callable[[int, int], bytes], facts: Framed) -> SeekTable:
    """Find and prove the table of a shard.

    Args:
        pread: Gives bytes [start, stop) of the file.
        facts: What the manifest says.

    Raises:
        ShardDamaged: Any rule of README.md §10 is broken.
    """
    end = facts.size_bytes
    least = HEAD.size + FOOTER.size
    if end < least:
        raise _damaged("is missing: the file is too short", facts, 0, end, f"at least {least} bytes", end)
    count, descriptor, magic = FOOTER.unpack(pread(end - FOOTER.size, end))
    if (descriptor, magic) != (WITH_CHECKSUMS, END_MAGIC):
        expected, got = f"{WITH_CHECKSUMS:#04x} {END_MAGIC:#010x}", f"{descriptor:#04x} {magic:#010x}"
        raise _damaged("is not at the end: the shard was cut or changed", facts, end - FOOTER.size, end, expected, got)
    most = min(MAX_FRAMES, frames_at_most(facts.tar_bytes, facts.frame_bytes), (end - least) // ENTRY_BYTES)
    if not 1 <= count <= most:
        raise _damaged("has an impossible number of frames", facts, end - FOOTER.size, end, f"1 to {most}", count)
    start = end - least - count * ENTRY_BYTES
    raw = pread(start, end - FOOTER.size)
    if HEAD.unpack_from(raw) != (MAGIC, count * ENTRY_BYTES + FOOTER.size):
        expected, got = HEAD.pack(MAGIC, count * ENTRY_BYTES + FOOTER.size).hex(), raw[: HEAD.size].hex()
        raise _damaged("does not begin where its size says", facts, start, start + HEAD.size, expected, got)
    entries = array("I", raw[HEAD.size :])
    if sys.byteorder == "big":
        entries.byteswap()
    table = SeekTable(entries)
    _prove_sums(table, facts, start)
    if not _is_possible(entries, facts):
        raise _impossible(table, facts, start)
    return table


def _prove_sums(table: SeekTable, facts: Framed, start: int) -> None:
    if (table.starts[-1], table.tar_starts[-1]) != (start, facts.tar_bytes):
        expected, got = f"{start} and {facts.tar_bytes}", f"{table.starts[-1]} and {table.tar_starts[-1]}"
        what = "does not add up to the sizes of the file and of the tar in it"
        raise _damaged(what, facts, start, facts.size_bytes, expected, got)


def _is_possible(entries: "array[int]", facts: Framed) -> bool:
    """Whether each entry can be one of a frame. Whole columns: a shard may have many thousands."""
    sizes, contents = entries[0::3], entries[1::3]
    if min(sizes) < 1 or min(contents) < 1 or max(contents) > facts.frame_bytes:
        return False
    return all(map(le, sizes, map(compressed_at_most, contents)))


def _impossible(table: SeekTable, facts: Framed, start: int) -> ShardDamaged:
    """The first entry that cannot be one of a frame."""

    def is_wrong(frame: Frame) -> bool:
        content = frame.tar_stop - frame.tar_start
        return not 1 <= content <= facts.frame_bytes or not 1 <= frame.stop - frame.start <= compressed_at_most(content)

    frame = next(filter(is_wrong, table))
    at = start + HEAD.size + frame.number * ENTRY_BYTES
    got = f"{frame.tar_stop - frame.tar_start} bytes in {frame.stop - frame.start}"
    expected = f"at most {facts.frame_bytes} bytes of content"
    return _damaged(f"says what no frame can be of frame {frame.number}", facts, at, at + ENTRY_BYTES, expected, got)


def _damaged(what: str, facts: Framed, start: int, stop: int, expected: object, got: object) -> ShardDamaged:  # noqa: PLR0917 - the facts of one error
    msg = f"the seek table of a compressed shard {what} (bytes [{start}, {stop}) of the file)"
    return ShardDamaged(msg, shard=facts.shard, start=start, stop=stop, expected=expected, got=got, hint=RESTORE)
