"""A shard read from its start to its end as the tar that it is or holds, hashing what passes."""

import hashlib
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import takewhile

from fastfeed.archive import seektable, tar
from fastfeed.archive.dataset import Archive, Place
from fastfeed.archive.manifest import ShardEntry
from fastfeed.archive.seektable import Frame, Framed
from fastfeed.archive.shard import RESTORE
from fastfeed.errors import ShardDamaged

CHUNK_BYTES = 4 << 20


@dataclass(slots=True)
class Lost:
    """A frame that cannot be decoded, and what was in it."""

    frame: Frame
    error: ShardDamaged
    members: list[tuple[int, Place]] = field(default_factory=list)
    """Position and place of each member with a byte in it, in order."""

    def told(self, archive: Archive) -> ShardDamaged:
        """What is lost, by the first member of it; by the first that came from a file if that sample has one."""
        if not self.members:
            return self.error
        first, last = self.members[0][0], self.members[-1][0]
        samples = f"sample {first}" if first == last else f"samples {first} to {last}"
        msg = f"{self.error.message}, and what it holds of {samples} is lost"
        error = ShardDamaged(msg, got=self.error.got, hint=RESTORE)
        for position, place in self.members:
            if position == first and archive.at(error, position, place).source is not None:
                return error
        return archive.at(error, *self.members[0])


def members_in(archive: Archive, entry: ShardEntry, frame: Frame) -> list[tuple[int, Place]]:
    """Position and place of each member of a shard that has a byte in a frame."""
    number, found = archive.manifest.shards.index(entry), list[tuple[int, Place]]()
    for position in range(archive.firsts[number], archive.firsts[number + 1]):
        for place in archive.places(position):
            if place.start - tar.BLOCK_BYTES >= frame.tar_stop:
                return found
            if place.stop + tar.padding_bytes(place.stop) > frame.tar_start:
                found.append((position, place))
    return found


class Tape:
    """A plain tar.

    Args:
        descriptor: Of the shard.
        stop: Set where nobody wants the rest.
    """

    def __init__(self, descriptor: int, stop: threading.Event) -> None:
        self.payload: bytes | None = None
        """Of the last member, where it is small and not lost."""
        self.lost: list[Lost] = []
        self.problem: ShardDamaged | None = None
        """What is wrong with the seek table of a compressed shard."""
        self._descriptor, self._stop = descriptor, stop
        self._sha256 = hashlib.sha256()
        self._buffer, self._start, self._at, self._told = b"", 0, 0, 0
        self._file_at = 0

    @property
    def at(self) -> int:
        """Next byte of the tar to be taken."""
        return self._at + self._start

    def take(self, size: int) -> bytes:
        """The next bytes; fewer at the end of the tar."""
        stop = self._start + max(0, size)
        if stop <= len(self._buffer):
            taken = self._buffer[self._start : stop]
            self._start = stop
            return taken
        pieces, left = [], size
        while left > 0 and (self._start < len(self._buffer) or self._turn()):
            pieces.append(self._buffer[self._start : self._start + left])
            self._start += len(pieces[-1])
            left -= len(pieces[-1])
        return b"".join(pieces)

    def skip(self, size: int) -> None:
        """Pass over bytes, in pieces."""
        while size > 0 and (piece := self.take(min(size, CHUNK_BYTES))):
            size -= len(piece)

    def pieces(self) -> Iterator[bytes]:
        """The rest of the tar, as it comes."""
        while self._start < len(self._buffer) or self._turn():
            yield self.take(len(self._buffer) - self._start)

    def lost_in(self, start: int, stop: int) -> list[Lost]:
        """Frames that hold any of these bytes of the tar and cannot be decoded: those bytes were taken as zeros."""
        ahead = takewhile(lambda lost: lost.frame.tar_stop > start, reversed(self.lost))
        return [lost for lost in ahead if lost.frame.tar_start < stop]

    def passed(self) -> int:
        """Bytes taken since the last call."""
        passed, self._told = self.at - self._told, self.at
        return passed

    def finish(self) -> str:
        """Read what is left of the file; the sha256 of all of it."""
        while not self._stop.is_set() and self._read(self._file_at + CHUNK_BYTES):
            continue
        return self._sha256.hexdigest()

    def _turn(self) -> bool:
        """The next piece of the tar takes the place of the one that is used up; False at the end."""
        self._at, self._start = self._at + len(self._buffer), 0
        self._buffer = self._next()
        return bool(self._buffer)

    def _next(self) -> bytes:
        return self._read(self._file_at + CHUNK_BYTES)

    def _read(self, stop: int) -> bytes:
        """Bytes of the file up to a place; fewer at its end."""
        found = []
        while self._file_at < stop and (data := os.pread(self._descriptor, stop - self._file_at, self._file_at)):
            self._sha256.update(data)
            self._file_at += len(data)
            found.append(data)
        return found[0] if len(found) == 1 else b"".join(found)


class FrameTape(Tape):
    """The tar in a compressed shard. Where the seek table is lost, the frames are found one after another without it.

    Args:
        descriptor: Of the shard.
        stop: Set where nobody wants the rest.
        facts: What the manifest says, but for size_bytes: the file's real size.
    """

    def __init__(self, descriptor: int, stop: threading.Event, facts: Framed) -> None:
        super().__init__(descriptor, stop)
        from fastfeed.archive import frame as codec  # noqa: PLC0415 - plain tars need no zstandard

        self._facts, self._decode = facts, codec.decode
        try:
            self._frames = iter(seektable.read(self._pread, facts))
        except ShardDamaged as error:
            self.problem = error
            self._frames = codec.scan(self._pread, facts)

    def _pread(self, start: int, stop: int) -> bytes:
        """Unhashed: what passes is hashed in its order."""
        found = []
        while start < stop:
            data = os.pread(self._descriptor, stop - start, start)
            if not data:
                msg = "a shard was cut while it was read"
                raise ShardDamaged(msg, shard=self._facts.shard, start=start, stop=stop, hint=RESTORE)
            found.append(data)
            start += len(data)
        return b"".join(found)

    def _next(self) -> bytes:
        frame = next(self._frames, None)
        if frame is None:
            return b""
        raw = self._read(frame.stop)
        try:
            return self._decode(raw, frame, self._facts.shard)
        except ShardDamaged as error:
            self.lost.append(Lost(frame, error))
            return bytes(frame.tar_stop - frame.tar_start)


def open_tape(descriptor: int, stop: threading.Event, facts: Framed | None) -> Tape:
    """A tape over a shard; facts are those of a compressed one."""
    return Tape(descriptor, stop) if facts is None else FrameTape(descriptor, stop, facts)
