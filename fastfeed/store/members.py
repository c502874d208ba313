"""Members of a packed dataset as bytes that are proven: every read is checked against the index, every error says where."""

import threading
from collections.abc import Sequence
from itertools import islice
from operator import attrgetter
from typing import Protocol, TypeVar

from fastfeed.archive.catalog import UNREAD, Catalog, Place
from fastfeed.archive.dataset import Archive
from fastfeed.archive.shard import digest
from fastfeed.errors import FastfeedError, ShardDamaged
from fastfeed.store.base import Range, Store
from fastfeed.store.cached import CachedStore
from fastfeed.store.local import LocalStore

MERGE_BYTES = 16 << 10
"""Two members of a sample are read at once if no more lies between them: a header and a small member cost less than a read."""

KEPT_BYTES = 64 << 20
"""Memory for fleeting payloads that a thread keeps; what a larger batch took is given back."""

_Data = TypeVar("_Data", bytes, memoryview)


class Reader(Protocol):
    """Members as bytes, every error with its place; store/files.py has the one for plain files."""

    def read(self, position: int, place: Place) -> bytes:
        """One member's payload, proven as far as the catalog knows it."""

    def read_batch(
        self, wanted: Sequence[tuple[int, Sequence[Place]]], *, fleeting: bool = False
    ) -> Sequence[Sequence[bytes | memoryview]]:
        """The payloads of many samples: a sequence a sample, in the order of wanted.

        If they are fleeting, this thread's next fleeting ones may lie in the same memory, once nobody looks at these any more.
        """

    def read_part(self, position: int, place: Place, start: int, stop: int) -> bytes:
        """Bytes [start, stop) of a member's shard, which lie in the member."""

    def located(self, error: FastfeedError, position: int, place: Place) -> FastfeedError:
        """The same error, with its place filled in."""


def store_of(archive: Archive) -> Store:
    """The tars of a dataset that lies in a folder, whether its shards are those tars or hold them compressed."""
    local = LocalStore(archive.path)
    if archive.manifest.compression is None:
        return local
    from fastfeed.store.frames import FrameStore  # noqa: PLC0415 - plain tars need no zstandard

    framed = map(archive.manifest.framed, archive.manifest.shards)
    return FrameStore(local, {facts.shard: facts for facts in framed if facts is not None})


class _Kept(threading.local):
    """This thread's memory for payloads that are fleeting."""

    def __init__(self) -> None:
        self._memory = bytearray()

    def of(self, size_bytes: int) -> memoryview:
        """Memory of this size: that which was given before, if there is no view of it any more."""
        if size_bytes > KEPT_BYTES:
            return memoryview(bytearray(size_bytes))
        if len(self._memory) < size_bytes or self._is_seen():
            self._memory = bytearray(min(KEPT_BYTES, size_bytes + size_bytes // 4))
        return memoryview(self._memory)[:size_bytes]

    def _is_seen(self) -> bool:
        """Whether there are views: a batch is being made, and what makes one of its samples reads another batch."""
        try:
            self._memory.append(0)  # Python lets no bytearray grow of which there are views
        except BufferError:
            return True
        self._memory.pop()
        return False


_KEPT = _Kept()


class MemberReader:
    """Reads members of one dataset.

    Args:
        archive: The dataset.
        store: Where its shards are.
    """

    def __init__(self, archive: Catalog, store: Store) -> None:
        self.archive, self.store = archive, store

    def read(self, position: int, place: Place) -> bytes:
        """One member's payload.

        Args:
            position: Of its sample.
            place: As the archive gives it.

        Raises:
            ShardDamaged: The shard is missing or cut, or the bytes differ from their checksum.
        """
        data = self.read_part(position, place, place.start, place.stop)
        return self._proven(position, place, data)

    def read_part(self, position: int, place: Place, start: int, stop: int) -> bytes:
        """Bytes [start, stop) of a member's shard, which lie in the member; nothing proves them.

        Raises:
            ShardDamaged: The shard is missing or cut.
        """
        try:
            return self.store.read(place.shard, start, stop)
        except FastfeedError as error:
            raise self.located(error, position, place) from error

    def read_batch(self, wanted: Sequence[tuple[int, Sequence[Place]]], *, fleeting: bool = False) -> list[list[memoryview]]:
        """The payloads of many samples, read in storage order, neighbouring members of a sample in one read.

        Args:
            wanted: (position, places) of each sample; the places of one sample lie in one shard.
            fleeting: They are let go of soon, so that this thread's memory for them can be used again: a third of the time of
                reading photos is for memory that is new.

        Returns:
            A list a sample, in the order of wanted; a view a member. All views share one buffer that nobody else has.

        Raises:
            ShardDamaged: As read().
        """
        runs = [(position, run) for position, places in wanted for run in _runs(places)]
        size_bytes = sum(run[-1].stop - run[0].start for _, run in runs)
        buffer = _KEPT.of(size_bytes) if fleeting else memoryview(bytearray(size_bytes))
        ranges: list[Range] = []
        views: list[memoryview] = []
        at = 0
        for _, run in runs:
            start, stop = run[0].start, run[-1].stop
            window = buffer[at : at + stop - start]
            at += stop - start
            ranges.append(Range(run[0].shard, start, stop, window))
            views.extend(window[place.start - start : place.stop - start] for place in run)
        try:
            self.store.read_many(sorted(ranges, key=attrgetter("name", "start")))
        except FastfeedError as error:
            for position, run in runs:
                if (run[0].shard, run[0].start) == (error.shard, error.start):
                    raise self.located(error, position, run[0]) from error
            raise
        ready = iter(views)
        found = [list(islice(ready, len(places))) for _, places in wanted]
        for (position, places), own in zip(wanted, found, strict=True):
            for place, data in zip(places, own, strict=True):
                if place.xxh3 != UNREAD and digest(data) != place.xxh3:  # as check(), without a call for each sound member
                    data[:] = self._proven(position, place, data)
        return found

    def _proven(self, position: int, place: Place, data: _Data) -> "_Data | bytes":
        """A payload that is what the index says; where a cache gave another one, it is read past the cache.

        Raises:
            ShardDamaged: As check().
        """
        try:
            self.check(position, place, data)
        except ShardDamaged:
            if not isinstance(self.store, CachedStore):
                raise
            fresh = self.store.renewed(place.shard, place.start, place.stop)
            self.check(position, place, fresh)
            return fresh
        return data

    def check(self, position: int, place: Place, data: bytes | memoryview) -> None:
        """Prove a payload by its checksum, where the index has one.

        Raises:
            ShardDamaged: It differs.
        """
        if place.xxh3 != UNREAD:
            self.check_digest(position, place, digest(data))

    def check_digest(self, position: int, place: Place, got: int) -> None:
        """Prove a payload by the checksum that its bytes gave.

        Raises:
            ShardDamaged: It differs.
        """
        if got != place.xxh3:
            msg = "the bytes of a member differ from their checksum: the shard is damaged"
            error = ShardDamaged(msg, expected=f"xxh3 {place.xxh3:016x}", got=f"{got:016x}", hint=self.archive.remedy)
            raise self.located(error, position, place)

    def located(self, error: FastfeedError, position: int, place: Place) -> FastfeedError:
        """The same error, with its place filled in."""
        return self.archive.at(error, position, place)


def _runs(places: Sequence[Place]) -> list[list[Place]]:
    """Places cut where the next is not close behind the last: an unwanted member in between is skipped if it is large.

    A damaged index may place members in any order; then each is a run of its own, and no run is ever negative.
    """
    runs: list[list[Place]] = []
    for place in places:
        if runs and 0 <= place.start - runs[-1][-1].stop <= MERGE_BYTES:
            runs[-1].append(place)
        else:
            runs.append([place])
    return runs
