"""Tars of others as a store: ranges of a tar by name, whatever it is stored as, and proven to be the one that was indexed."""

import os
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Protocol

from fastfeed.archive.tars import FRAME, GZIP, PLAIN, TarFile, TarSet
from fastfeed.errors import ShardDamaged
from fastfeed.store.base import Range
from fastfeed.store.blocks import StreamDamaged
from fastfeed.store.gzip_stream import GzipTar
from fastfeed.store.local import LocalStore
from fastfeed.store.zstd_stream import Frames, ZstdTar

MAX_STREAMS = 8
"""Compressed tars that a thread keeps open: each holds a decoder's window, or seek points."""


class _Stream(Protocol):
    def read(self, start: int, stop: int) -> bytes:
        """Bytes [start, stop) of a tar."""


class TarStore:
    """The tars of a set.

    Each thread has streams of its own, so that none waits for another and a fork takes no lock along.

    Args:
        tars: The set.
        seek_points: By name of a tar behind gzip: the file with its seek points.
    """

    def __init__(self, tars: TarSet, seek_points: Mapping[str, str]) -> None:
        self.tars, self.seek_points = tars, seek_points
        self._local = LocalStore(tars.base, tars.remedy)
        self._own = threading.local()

    def __reduce__(self) -> tuple[object, ...]:
        return _reopened, (self.tars.index.path, self.tars.base, dict(self.seek_points))

    def size(self, name: str) -> int:
        """Bytes of a tar; of a compressed one when decompressed.

        Raises:
            ShardDamaged: No such tar.
        """
        return self._entry(name).tar_bytes

    def read(self, name: str, start: int, stop: int) -> bytes:
        """Bytes [start, stop) of a tar.

        Raises:
            ShardDamaged: No such tar, it has changed since it was indexed, it ends before stop, or does not decompress.
        """
        entry = self._proven(name)
        return self._local.read(name, start, stop) if entry.form == PLAIN else self._decompressed(entry, start, stop)

    def read_many(self, ranges: Sequence[Range]) -> None:
        """Fill each range's buffer.

        Raises:
            ShardDamaged: As read().
        """
        forms = {name: self._proven(name).form for name in {wish.name for wish in ranges}}
        self._local.read_many([wish for wish in ranges if forms[wish.name] == PLAIN])
        for name, start, stop, into in ranges:
            if forms[name] != PLAIN:
                into[:] = self._decompressed(self._entry(name), start, stop)

    def _entry(self, name: str) -> TarFile:
        number = self.tars.numbers.get(name)
        if number is None:
            msg = "there is no such tar"
            raise ShardDamaged(msg, path=os.path.join(self.tars.base, name), shard=name)
        return self.tars.tars[number]

    def _proven(self, name: str) -> TarFile:
        """A tar, and that it is still what was indexed: what the system says of the open file costs a microsecond."""
        entry = self._entry(name)
        self.tars.prove_unchanged(entry, self._local.facts(name))
        return entry

    def _decompressed(self, entry: TarFile, start: int, stop: int) -> bytes:
        facts = {"path": os.path.join(self.tars.base, entry.file), "shard": entry.file, "start": start, "stop": stop}
        try:
            data = self._stream(entry).read(start, stop)
        except (StreamDamaged, OSError) as error:
            what = str(error) if isinstance(error, StreamDamaged) else error.strerror
            msg = f"a compressed tar cannot be read: {what}"
            raise ShardDamaged(msg, hint=self.tars.remedy, **facts) from error  # type: ignore[arg-type]
        if len(data) < stop - start:
            msg = "a compressed tar ends too early"
            raise ShardDamaged(msg, expected=stop - start, got=len(data), hint=self.tars.remedy, **facts)  # type: ignore[arg-type]
        return data

    def _stream(self, entry: TarFile) -> _Stream:
        """The stream of a tar in this thread; the least recently used one makes room."""
        if not hasattr(self._own, "streams"):
            self._own.streams = OrderedDict[str, _Stream]()
        streams: OrderedDict[str, _Stream] = self._own.streams
        stream = streams.get(entry.file)
        if stream is None:
            path = os.path.join(self.tars.base, entry.file)
            stream = GzipTar(path, self.seek_points[entry.file]) if entry.form == GZIP else ZstdTar(path, self._frames(entry))
            streams[entry.file] = stream
            if len(streams) > MAX_STREAMS:
                streams.popitem(last=False)
        streams.move_to_end(entry.file)
        return stream

    def _frames(self, entry: TarFile) -> Frames:
        return frames_of(self.tars, self.tars.numbers[entry.file])


def frames_of(tars: TarSet, number: int) -> Frames:
    """The Zstandard frames of one tar."""
    owners = tars.index.array(FRAME, "tar")
    first, stop = (int(owners.searchsorted(number, side=side)) for side in ("left", "right"))
    return Frames(*(tars.index.array(FRAME, name)[first:stop].tolist() for name in ("at", "start")))


def _reopened(path: str, base: str, seek_points: Mapping[str, str]) -> TarStore:
    return TarStore(TarSet(path, base), seek_points)
