"""The bytes of a tar in order, whatever it is stored as: what a walk over its headers reads from."""

import os
from collections.abc import Iterator
from typing import Protocol

WINDOW_BYTES = 8 << 10
"""Read at once around a header: what follows a small member lies in it, and a network file system reads no less."""
KEPT_BYTES = 512
"""A stream keeps so much of what has passed: a block may be looked at twice."""


class StreamDamaged(Exception):
    """A compressed stream ends too early or does not decode, and where. It never leaves store/ and source/."""


class Blocks(Protocol):
    """Bytes of a tar by range."""

    seekable: bool
    """Whether ranges may come in any order. Of a stream each begins where the last one ended, or later, or at most
    KEPT_BYTES before that."""

    def read(self, start: int, count: int) -> bytes:
        """Bytes [start, start + count), fewer where the tar ends before.

        Raises:
            OSError: The file cannot be read.
            StreamDamaged: Its compression is broken there.
        """

    def reaches(self, stop: int) -> bool:
        """Whether the tar has that many bytes. A compressed one is read up to there.

        Raises:
            OSError: As read().
            StreamDamaged: As read().
        """

    def length(self) -> int:
        """Bytes of the tar; of a compressed one those that have been read so far."""


class PlainBlocks:
    """A tar that is stored as it is.

    Args:
        descriptor: Of the open file; it is not closed here.
    """

    seekable = True

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._size = descriptor, os.fstat(descriptor).st_size
        self._window, self._at = b"", 0

    def read(self, start: int, count: int) -> bytes:
        """Bytes [start, start + count), fewer where the file ends before.

        Raises:
            OSError: The file cannot be read.
        """
        low = start - self._at
        if low < 0 or low + count > len(self._window):
            self._window, self._at, low = self._pread(start, max(count, WINDOW_BYTES)), start, 0
        return self._window[low : low + count]

    def _pread(self, start: int, count: int) -> bytes:
        data = os.pread(self._descriptor, count, start)
        while len(data) < count and start + len(data) < self._size:  # a network file system may give less
            more = os.pread(self._descriptor, count - len(data), start + len(data))
            if not more:
                break
            data += more
        return data

    def reaches(self, stop: int) -> bool:
        """Whether the file has that many bytes."""
        return stop <= self._size

    def length(self) -> int:
        """Bytes of the file."""
        return self._size


class StreamedBlocks:
    """A tar that comes as chunks, each used once.

    Args:
        chunks: Its bytes in order, none of them empty.
        at: Place of the first chunk in the tar.
    """

    seekable = False

    def __init__(self, chunks: Iterator[bytes], at: int = 0) -> None:
        self._chunks, self._at, self._chunk = chunks, at, b""

    @property
    def at(self) -> int:
        """Where the earliest byte lies that can still be read."""
        return self._at

    def read(self, start: int, count: int) -> bytes:
        """Bytes [start, start + count), fewer where the tar ends before.

        Raises:
            OSError: The file cannot be read.
            StreamDamaged: Its compression is broken there.
            ValueError: They have passed.
        """
        if start < self._at:
            msg = f"byte {start} of a stream has passed, it stands at {self._at}"
            raise ValueError(msg)
        if not self._forward(start):
            return b""
        parts, wanted = [], count
        while wanted:
            part = self._chunk[start - self._at : start - self._at + wanted]
            parts.append(part)
            start, wanted = start + len(part), wanted - len(part)
            if wanted and not self._forward(start):
                break
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def reaches(self, stop: int) -> bool:
        """Whether the tar has that many bytes; read up to there.

        Raises:
            OSError: As read().
            StreamDamaged: As read().
        """
        return stop <= self._at + len(self._chunk) or self._forward(stop - 1)

    def _forward(self, start: int) -> bool:
        """Let chunks pass until one holds a byte; whether there is such a byte."""
        while start >= self._at + len(self._chunk):
            following = next(self._chunks, None)
            if following is None:
                return False
            kept = self._chunk[-KEPT_BYTES:]
            self._at, self._chunk = self._at + len(self._chunk) - len(kept), kept + following
        return True

    def length(self) -> int:
        """Bytes of the tar that have been read so far."""
        return self._at + len(self._chunk)
