"""A store in front of which blocks of its files are kept, by all processes of this user on this machine together.

What is kept stays: nothing is put out to make room. Each block is read once an epoch, in an order that is new each time, so
what is a hit in an epoch was there when it began, and that is at most what fits: no policy has more hits than keeping what came
first (benchmarks/bench_cache.py compares). What is not kept is read as if there were no cache, only the bytes that are wanted.
A cache that fails in any way is not used any more, which is said once: it never fails a read.
"""

import logging
import time
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from fastfeed.errors import FastfeedError
from fastfeed.store.base import Range, Store
from fastfeed.store.cachefolder import CacheUnusable
from fastfeed.store.shelf import Entry, Room, Shelf
from fastfeed.trace import count

LOG = logging.getLogger("fastfeed.cache")
BLOCK_BYTES = 1 << 20
"""What is fetched and kept as a piece: as much as network file systems read at once, 10 photos or 4 frames."""
WAIT_SECONDS = 5.0
"""For another process that fetches the same block; then it is read by both."""
FULL_SECONDS = 1.0
"""When there was no room, it is not looked for again for so long."""
HITS, HIT_BYTES, HIT_NS = "cache hits", "cache hit bytes", "cache hit ns"
MISSES, MISS_BYTES = "cache misses", "cache miss bytes"
FETCHED_BYTES, FETCH_NS = "cache fetched bytes", "cache fetch ns"
DAMAGED = "cache damaged"
RECHECKS, PURGES = "cache rechecks", "cache purges"
COUNTERS = HITS, HIT_BYTES, HIT_NS, MISSES, MISS_BYTES, FETCHED_BYTES, FETCH_NS, DAMAGED, RECHECKS, PURGES
"""Counted by fastfeed.trace.count: reads, their bytes and time; what came from the store behind; blocks that were damaged;
samples that were made again to compare them (feed/keeping.py), and how often one differed."""


class _Part(NamedTuple):
    """What of a block is wanted."""

    number: int
    start: int
    """Within the block."""
    into: memoryview


def block_count(sizes: Mapping[str, int]) -> int:
    """How many blocks files of these sizes have."""
    return sum(-(-size // BLOCK_BYTES) for size in sizes.values())


class CachedStore:
    """Files of a store, in blocks.

    Args:
        inner: The store.
        shelf: Where blocks are kept.
        sizes: Bytes of each file, by name; the order tells the numbers of blocks.
        room: How much may be kept.
        proves: Whoever reads knows no checksums, so that each block is proven when it is first read in a process: 0.2 ms.
    """

    def __init__(self, inner: Store, shelf: Shelf, sizes: Mapping[str, int], room: Room, *, proves: bool = False) -> None:
        self.inner, self.room = inner, room
        self.shelf: Shelf | None = shelf
        self._sizes = dict(sizes)
        self._names = [name for name, size in sizes.items() if size]
        *self._starts, self._blocks = accumulate((-(-sizes[name] // BLOCK_BYTES) for name in self._names), initial=0)
        self._firsts = dict(zip(self._names, self._starts, strict=True))
        self._full_until = 0.0
        self._proven = bytearray(self._blocks) if proves else None
        """Blocks that were; None where others prove what they read."""
        self.entries = self._blocks
        self.filling: object | None = None
        """What fills it in the background (filling.py), and ends with it."""

    def __reduce__(self) -> Any:  # noqa: ANN401
        return self.inner.__reduce_ex__(2)  # a cache does not travel: whoever opens the data says what it has there

    def size(self, name: str) -> int:
        """As the store's."""
        return self.inner.size(name)

    def read(self, name: str, start: int, stop: int) -> bytes:
        """As the store's."""
        if self.shelf is None or not self._is_inside(name, start, stop):
            return self.inner.read(name, start, stop)
        data = bytearray(stop - start)
        self.read_many([Range(name, start, stop, memoryview(data))])
        return bytes(data)

    def read_many(self, ranges: Sequence[Range]) -> None:
        """As the store's."""
        began = time.perf_counter_ns()
        missed = [wish for wish in ranges if not self._is_kept(wish)]
        if len(missed) < len(ranges):
            hit_bytes = _bytes(ranges) - _bytes(missed)
            count(HITS, len(ranges) - len(missed))
            count(HIT_BYTES, hit_bytes)
            count(HIT_NS, time.perf_counter_ns() - began)
        if missed:
            count(MISSES, len(missed))
            count(MISS_BYTES, _bytes(missed))
            self._fill(missed)

    def _is_inside(self, name: str, start: int, stop: int) -> bool:
        """Whether a range lies in its file; of others the store says what is wrong."""
        return 0 <= start <= stop <= self._sizes.get(name, -1)

    def _parts(self, wish: Range) -> Iterator[_Part]:
        name, start, stop, into = wish
        first, at = self._firsts.get(name, 0), start  # a file of no bytes has no blocks, and no parts
        while at < stop:
            block = at // BLOCK_BYTES
            until = min(stop, (block + 1) * BLOCK_BYTES)
            yield _Part(first + block, at - block * BLOCK_BYTES, into[at - start : until - start])
            at = until

    def _is_kept(self, wish: Range) -> bool:
        """Fill a range from what is kept; whether all of it was."""
        shelf = self.shelf
        if shelf is None or not self._is_inside(*wish[:3]):
            return False
        try:
            return all(self._taken(shelf, part) for part in self._parts(wish))
        except OSError as error:
            self._give_up(error)
            return False

    def _taken(self, shelf: Shelf, part: _Part) -> bool:
        entry = shelf.find(part.number)
        return entry is not None and self._is_proven(shelf, part.number, entry) and shelf.read(entry, part.start, part.into)

    def _is_proven(self, shelf: Shelf, number: int, entry: Entry) -> bool:
        """Whether a block is what was put in, or others find that out; one that is not is forgotten."""
        if self._proven is None or self._proven[number]:
            return True
        self._proven[number] = shelf.is_whole(entry)
        if not self._proven[number]:
            self._drop(shelf, number)
        return bool(self._proven[number])

    def _drop(self, shelf: Shelf, number: int) -> None:
        shelf.drop(number)
        count(DAMAGED)
        name = self._block(number)
        block = number - self._firsts.get(name or "", 0)
        LOG.warning("block %d of %s in the cache may be damaged: it is forgotten, and read again", block, name)

    def _fill(self, missed: Sequence[Range]) -> None:
        """Fill ranges of which something is not kept: by fetching whole blocks while there is room, else as the store does.

        What others are fetching is come back to when the rest is done, so that no two wait for each other.
        """
        later = [wish for wish in missed if not self._is_fetched(wish, 0.0)]
        rest = [wish for wish in later if not self._is_fetched(wish, WAIT_SECONDS)]
        if rest:
            began = time.perf_counter_ns()
            self.inner.read_many(rest)
            _count_fetched(_bytes(rest), began)

    def _is_fetched(self, wish: Range, seconds: float) -> bool:
        """Whether a range could be filled from blocks, those that were not kept being fetched."""
        if not self._is_inside(*wish[:3]):
            return False
        return all(self._fetch(wish.name, part, seconds) for part in self._parts(wish))

    def _fetch(self, name: str, part: _Part, seconds: float) -> bool:
        """Fill a part of a block that is fetched, kept, or just being fetched by another process."""
        shelf = self.shelf
        if shelf is None or time.monotonic() < self._full_until:
            return False
        try:
            if self._taken(shelf, part):
                return True
            with shelf.fetching(part.number, seconds) as alone:
                if not alone:
                    return False
                return self._taken(shelf, part) or self._read_and_keep(shelf, name, part)
        except (OSError, CacheUnusable) as error:
            self._give_up(error)
            return False

    def _read_and_keep(self, shelf: Shelf, name: str, part: _Part) -> bool:
        start = (part.number - self._firsts[name]) * BLOCK_BYTES
        size = min(BLOCK_BYTES, self._sizes[name] - start)
        if not shelf.has_room(size, self.room):
            self._full_until = time.monotonic() + FULL_SECONDS
            return False
        block, began = memoryview(bytearray(size)), time.perf_counter_ns()
        try:
            self.inner.read_many([Range(name, start, start + size, block)])
        except FastfeedError:
            return False  # the bytes that are wanted may be whole; if not, reading them alone says what is wrong with them
        _count_fetched(size, began)
        part.into[:] = block[part.start : part.start + len(part.into)]
        if not shelf.put(part.number, block, self.room):
            self._full_until = time.monotonic() + FULL_SECONDS
        return True

    def renewed(self, name: str, start: int, stop: int) -> bytes:
        """The same bytes from the store itself; blocks of them that are kept are forgotten.

        For bytes that are not what they should be: either the cache is damaged, or the store was read wrongly once.

        Raises:
            ShardDamaged: As read().
        """
        shelf = self.shelf
        if shelf is not None and self._is_inside(name, start, stop):
            try:
                self._forget(shelf, name, start, stop)
            except OSError as error:
                self._give_up(error)
        return self.inner.read(name, start, stop)

    def _forget(self, shelf: Shelf, name: str, start: int, stop: int) -> None:
        first = self._firsts.get(name, 0)
        for block in range(start // BLOCK_BYTES, -(-stop // BLOCK_BYTES)):
            if shelf.find(first + block) is not None:
                self._drop(shelf, first + block)

    def fill_from(self, number: int) -> int | None:
        """As Fillable's: a block. They count through the files."""
        found = self._block(number)
        if found is None or self.shelf is None:
            return None
        part = _Part(number, 0, memoryview(bytearray()))  # nothing of it is wanted now
        if not self._fetch(found, part, WAIT_SECONDS) and time.monotonic() < self._full_until:
            return None
        return number + 1

    def _block(self, number: int) -> str | None:
        """The file of a block."""
        at = bisect_right(self._starts, number) - 1
        return None if number >= self._blocks else self._names[at]

    def _give_up(self, error: Exception) -> None:
        """Read on without a cache."""
        shelf, self.shelf = self.shelf, None
        if shelf is not None:
            text = error.strerror if isinstance(error, OSError) else str(error)
            LOG.warning("the cache cannot be used any more (%s): data is read without it, with the same results", text)


def _bytes(ranges: Sequence[Range]) -> int:
    return sum(wish.stop - wish.start for wish in ranges)


def _count_fetched(size: int, began_ns: int) -> None:
    count(FETCHED_BYTES, size)
    count(FETCH_NS, time.perf_counter_ns() - began_ns)
