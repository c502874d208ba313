"""A tar behind Zstandard: its frames found on the way through, and read from the frame that holds a byte.

Sources: RFC 8878 §3.1.1 (frames), §3.1.2 (skippable frames). A frame is where decompression can begin, so a file of many
frames can be read at random, and a file of one frame only from its start.
"""

import os
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from fastfeed.archive.regular import open_regular
from fastfeed.store.blocks import StreamDamaged, StreamedBlocks

MAGIC = b"\x28\xb5\x2f\xfd"
_SKIPPABLE = range(0x184D2A50, 0x184D2A60)
_STEP_BYTES = 8 << 10
"""Compressed bytes at a time: 8 KiB of the tightest blocks, which repeat one byte, are at most 256 MiB."""


class Frames:
    """Where each frame with content begins, in the file and in the tar."""

    def __init__(self, ats: Sequence[int] = (), starts: Sequence[int] = ()) -> None:
        self.ats: array[int] = array("Q", ats)
        """First byte of each frame in the file."""
        self.starts: array[int] = array("Q", starts)
        """The byte of the tar that it begins with."""

    def __len__(self) -> int:
        return len(self.ats)

    def largest_bytes(self, tar_bytes: int) -> int:
        """Bytes of the tar in the largest frame: what a read at random decompresses at most."""
        return max((stop - start for start, stop in pairwise([*self.starts, tar_bytes])), default=0)


def is_skippable(head: bytes) -> bool:
    """Whether these first bytes begin a frame without content, as some writers put before the others."""
    return len(head) >= 8 and int.from_bytes(head[:4], "little") in _SKIPPABLE  # noqa: PLR2004 - magic and size


def chunks(descriptor: int, at: int = 0, on_frame: Callable[[int], None] | None = None) -> Iterator[bytes]:
    """Decompress from a frame's start to the end of the file.

    Args:
        descriptor: Of the open file; it is not closed here.
        at: Where a frame begins.
        on_frame: Hears where each frame with content begins, before its first chunk.

    Raises:
        OSError: The file cannot be read.
        StreamDamaged: It ends within a frame, a frame is damaged, or what follows is none.
    """
    while head := os.pread(descriptor, 8, at):
        if is_skippable(head):
            at += 8 + int.from_bytes(head[4:], "little")
            continue
        if head[:4] != MAGIC:
            msg = f"at byte {at} of the compressed file there is no Zstandard frame ({head[:4].hex()})"
            raise StreamDamaged(msg)
        if on_frame is not None:
            on_frame(at)
        frame = _Frame(descriptor, at)
        yield from frame.chunks()
        at = frame.at


class _Frame:
    """One frame on its way through the decoder."""

    def __init__(self, descriptor: int, at: int) -> None:
        self._descriptor, self._began = descriptor, at
        self.at = at
        """How far the file has been used: behind the frame, once it is through."""

    def chunks(self) -> Iterator[bytes]:
        """Its content."""
        import zstandard  # noqa: PLC0415 - tars that are not compressed so do not load it

        decoder = zstandard.ZstdDecompressor().decompressobj()
        while not decoder.eof:
            data = os.pread(self._descriptor, _STEP_BYTES, self.at)
            if not data:
                msg = (
                    f"the compressed file ends at byte {self.at}, within the Zstandard frame that begins at byte {self._began}"
                )
                raise StreamDamaged(msg)
            try:
                out = decoder.decompress(data)
            except zstandard.ZstdError as error:
                msg = (
                    f"the Zstandard frame at byte {self._began} of the compressed file is damaged near byte {self.at} ({error})"
                )
                raise StreamDamaged(msg) from error
            self.at += len(data) - len(decoder.unused_data)
            if out:
                yield out


class ZstdTar:
    """Reads ranges of a tar from the nearest frame before them, or onwards from where it stands. For one thread.

    Args:
        path: The compressed file.
        frames: Its frames.

    Raises:
        OSError: It cannot be opened.
    """

    def __init__(self, path: str, frames: Frames) -> None:
        self._descriptor = -1
        self._descriptor = open_regular(path)
        self._frames, self._blocks = frames, StreamedBlocks(iter(()))
        self._stands = -1
        """How far it has read in the tar; -1 before the first read."""
        self.restarts = 0
        """How often it had to begin anew at a frame."""

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def read(self, start: int, stop: int) -> bytes:
        """Bytes [start, stop) of the tar, fewer where it ends before.

        Raises:
            OSError: The file cannot be read.
            StreamDamaged: It does not decompress.
        """
        frame = max(0, bisect_right(self._frames.starts, start) - 1)
        begins = self._frames.starts[frame] if len(self._frames) else 0
        if self._stands < 0 or start < self._blocks.at or begins > self._stands:
            at = self._frames.ats[frame] if len(self._frames) else 0
            self._blocks = StreamedBlocks(chunks(self._descriptor, at), begins)
            self.restarts += 1
        self._stands = stop
        return self._blocks.read(start, stop - start)
