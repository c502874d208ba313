"""Compressed shards as the tars that they hold: a store over a store. Ranges are those of the tar; frames are found for them.

What a process has just decoded is kept, least recently used last, KEPT_BYTES of it at most and the last frame always: a
file that is read piece by piece, or samples that are read in their order, decode each frame once. Reads at random gain
nothing from more. Seek tables are kept apart from that, TABLE_BYTES of them: 20 bytes a frame, 40 KB for a shard of 512 MiB
with frames of 256 KiB.
"""

import itertools
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from fastfeed.archive import frame as codec
from fastfeed.archive import seektable
from fastfeed.archive.seektable import Frame, Framed, SeekTable
from fastfeed.archive.shard import RESTORE
from fastfeed.errors import FastfeedError, ShardDamaged
from fastfeed.store.base import Range, Store

KEPT_BYTES = 16 << 20
TABLE_BYTES = 16 << 20
READ_BYTES = 4 << 20
"""Frames of a batch are read this much at a time, so that a store below may join neighbours, and memory stays flat."""

_Value = TypeVar("_Value")
_Key = tuple[Any, ...]


class Kept(Generic[_Value]):
    """Values of this process by key, least recently used first, up to a budget; the last one is always kept.

    Args:
        budget_bytes: What all of them may take together.
    """

    def __init__(self, budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes
        self.size_bytes = 0
        self._values: OrderedDict[_Key, tuple[_Value, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: _Key) -> _Value | None:
        """A value that is still there."""
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key][0]

    def put(self, key: _Key, value: _Value, size_bytes: int) -> None:
        """Keep a value; the oldest go."""
        with self._lock:
            if key in self._values:  # another thread was as fast
                return
            self._values[key] = value, size_bytes
            self.size_bytes += size_bytes
            while self.size_bytes > self.budget_bytes and len(self._values) > 1:
                self.size_bytes -= self._values.popitem(last=False)[1][1]

    def renew(self) -> None:
        """Begin anew in a process just forked: a thread of the parent may have held the lock and been in the midst of it."""
        self.size_bytes = 0
        self._values = OrderedDict()
        self._lock = threading.Lock()


FRAMES: Kept[bytes] = Kept(KEPT_BYTES)
TABLES: Kept[SeekTable] = Kept(TABLE_BYTES)
_NUMBERS = itertools.count()


os.register_at_fork(after_in_child=FRAMES.renew)
os.register_at_fork(after_in_child=TABLES.renew)


class FrameStore:
    """The tars in compressed shards.

    Args:
        inner: Where the shards are.
        shards: What the manifest says of each, by name.
    """

    def __init__(self, inner: Store, shards: Mapping[str, Framed]) -> None:
        self.inner, self.shards = inner, shards
        self._number = next(_NUMBERS)  # what a store that is gone has left there is met by nobody, and gives way to others

    def __getstate__(self) -> dict[str, Any]:
        return {"inner": self.inner, "shards": self.shards}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["inner"], state["shards"])  # type: ignore[misc]

    def size(self, name: str) -> int:
        """Bytes of the tar in a shard.

        Raises:
            ShardDamaged: No such shard, or its seek table is damaged.
        """
        return self._table(name).tar_starts[-1]

    def read(self, name: str, start: int, stop: int) -> bytes:
        """Bytes [start, stop) of the tar in a shard.

        Raises:
            ShardDamaged: No such shard, its seek table or a frame is damaged, or its tar ends before stop.
        """
        wish = Range(name, start, stop, memoryview(b""))
        table = self._covering(wish)
        frames = [(name, table[number]) for number in table.frames_of(start, stop)]
        wanted = {(name, frame.number): [wish] for _, frame in frames}
        pieces = [
            content[max(start, frame.tar_start) - frame.tar_start : stop - frame.tar_start]
            for _, frame, content in self._contents(frames, wanted)
        ]  # nothing is allocated for what no frame holds, whatever an index claims
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def read_many(self, ranges: Sequence[Range]) -> None:
        """Fill each range's buffer; each frame is decoded once, whatever the order and the number of those who need it.

        Raises:
            ShardDamaged: As read(); its range is the wanted one that is first hit.
        """
        wanted: dict[tuple[str, int], list[Range]] = {}
        tables: dict[str, SeekTable] = {}
        for wish in sorted(ranges, key=lambda wish: (wish.name, wish.start)):
            table = tables[wish.name] = self._covering(wish)
            for number in table.frames_of(wish.start, wish.stop):
                wanted.setdefault((wish.name, number), []).append(wish)
        frames = [(name, tables[name][number]) for name, number in sorted(wanted)]
        for name, frame, content in self._contents(frames, wanted):
            view = memoryview(content)
            for wish in wanted[name, frame.number]:
                start, stop = max(wish.start, frame.tar_start), min(wish.stop, frame.tar_stop)
                wish.into[start - wish.start : stop - wish.start] = view[start - frame.tar_start : stop - frame.tar_start]

    def _contents(
        self, frames: Sequence[tuple[str, Frame]], wanted: Mapping[tuple[str, int], Sequence[Range]]
    ) -> Iterator[tuple[str, Frame, bytes]]:
        """The content of each frame in this order; neighbours that are not kept are read READ_BYTES at a time."""
        group: list[tuple[str, Frame]] = []
        group_bytes = 0
        for name, frame in frames:
            kept = FRAMES.get((self._number, name, frame.number))
            if group and (kept is not None or group_bytes >= READ_BYTES):
                yield from self._decoded(group, wanted)
                group, group_bytes = [], 0
            if kept is not None:
                yield name, frame, kept
            else:
                group.append((name, frame))
                group_bytes += frame.stop - frame.start
        if group:
            yield from self._decoded(group, wanted)

    def _decoded(
        self, group: Sequence[tuple[str, Frame]], wanted: Mapping[tuple[str, int], Sequence[Range]]
    ) -> Iterator[tuple[str, Frame, bytes]]:
        """Read frames and decode them."""
        raw = [bytearray(frame.stop - frame.start) for _, frame in group]
        try:
            self.inner.read_many(
                [Range(name, frame.start, frame.stop, memoryview(data)) for (name, frame), data in zip(group, raw, strict=True)]
            )
        except FastfeedError as error:
            hit = next((item for item in group if (item[0], item[1].start) == (error.shard, error.start)), group[0])
            error.message += f", in {hit[1]}"
            _move(error, wanted[hit[0], hit[1].number][0])
            raise
        for (name, frame), data in zip(group, raw, strict=True):
            try:
                content = codec.decode(data, frame, name)
            except FastfeedError as error:
                _move(error, wanted[name, frame.number][0])
                raise
            FRAMES.put((self._number, name, frame.number), content, len(content))
            yield name, frame, content

    def _covering(self, wish: Range) -> SeekTable:
        """The seek table of a wish's shard, whose tar reaches so far."""
        try:
            table = self._table(wish.name)
        except FastfeedError as error:
            _move(error, wish)
            raise
        if wish.stop > table.tar_starts[-1]:
            msg = "the tar in a compressed shard ends too early"
            expected, got = wish.stop - wish.start, max(0, table.tar_starts[-1] - wish.start)
            early = ShardDamaged(msg, expected=expected, got=got, hint=RESTORE)
            _move(early, wish)
            raise early
        return table

    def _table(self, name: str) -> SeekTable:
        """A shard's seek table."""
        table = TABLES.get((self._number, name))
        if table is None:
            if name not in self.shards:
                msg = "the dataset has no such shard"
                raise ShardDamaged(msg, shard=name)
            table = seektable.read(lambda start, stop: self.inner.read(name, start, stop), self.shards[name])
            TABLES.put((self._number, name), table, table.memory_bytes)
        return table


def _move(error: FastfeedError, wish: Range) -> None:
    """Give an error the range that was wanted; its message says which frame it is and where that lies in the file."""
    error.shard, error.start, error.stop = wish.name, wish.start, wish.stop
