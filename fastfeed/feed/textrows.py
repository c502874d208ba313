"""A column of text as numpy sees it: where each row lies in one run of bytes, and work on all rows at once.

Text is compared as its UTF-8 bytes, which order as its code points do; so the same work serves keys and source paths.
"""

import operator
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfeed.archive.index import Strings, Texts
from fastfeed.feed.views import Picked

_GATHER_BYTES = 4 << 20
_CHUNK_ROWS = 1 << 16

Mask = NDArray[np.bool_]


class TextRows:
    """Rows of text in one run of bytes.

    Args:
        data: The bytes.
        starts: First byte of each row; int64.
        stops: One past its last byte; int64.
    """

    __slots__ = ("data", "starts", "stops")

    def __init__(self, data: memoryview, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> None:
        self.data, self.starts, self.stops = data, starts, stops

    @classmethod
    def of(cls, column: Sequence[Any]) -> "TextRows":
        """From a column of strings as PackedDataset.column() gives it, without copying its bytes.

        Raises:
            IndexDamaged: Its ranges leave the column.
        """
        if isinstance(column, Texts):
            return cls.of(column.raw)
        if isinstance(column, Strings):
            starts, data = column.ranges()
            return cls(data, starts[:-1], starts[1:])
        assert isinstance(column, Picked)
        base, rows = cls.of(column.values), np.asarray(column.rows)
        there = rows >= 0
        starts, stops = base.starts[np.maximum(rows, 0)], base.stops[np.maximum(rows, 0)]
        return cls(base.data, np.where(there, starts, 0), np.where(there, stops, 0))

    @classmethod
    def made(cls, rows: Sequence[bytes]) -> "TextRows":
        """From byte strings."""
        ends = np.cumsum(np.fromiter(map(len, rows), dtype=np.int64, count=len(rows)))
        starts = np.concatenate([np.zeros(1, dtype=np.int64), ends])
        return cls(memoryview(b"".join(rows)), starts[:-1], starts[1:])

    def __len__(self) -> int:
        return len(self.starts)

    def __iter__(self) -> Iterator[bytes]:
        data = self.data
        for first in range(0, len(self), _CHUNK_ROWS):
            part = slice(first, first + _CHUNK_ROWS)
            yield from (bytes(data[a:b]) for a, b in zip(self.starts[part].tolist(), self.stops[part].tolist(), strict=True))

    def equal(self, text: bytes) -> Mask:
        """Rows that are this text."""
        return self._at(self.stops - self.starts == len(text), self.starts, text)

    def starts_with(self, text: bytes) -> Mask:
        """Rows that begin with this text."""
        return self._at(self.stops - self.starts >= len(text), self.starts, text)

    def ends_with(self, text: bytes) -> Mask:
        """Rows that end with this text."""
        return self._at(self.stops - self.starts >= len(text), self.stops - len(text), text)

    def _at(self, among: Mask, places: NDArray[np.int64], text: bytes) -> Mask:
        """Of some rows, those that hold a text at a place: compared many at a time."""
        found, rows = among.copy(), np.flatnonzero(among)
        if not text or not len(rows):
            return found
        raw, wanted = np.frombuffer(self.data, dtype=np.uint8), np.frombuffer(text, dtype=np.uint8)
        step = max(1, _GATHER_BYTES // len(text))
        for first in range(0, len(rows), step):
            some = rows[first : first + step]
            # byte by byte, since most rows differ in an early one
            at = places[some]
            for offset, byte in enumerate(wanted.tolist()):
                same = raw[at + offset] == byte
                found[some[~same]] = False
                some, at = some[same], at[same]
                if not len(some):
                    break
        return found

    def contains(self, text: bytes) -> Mask:
        """Rows that hold this text anywhere."""
        if not text:
            return np.ones(len(self), dtype=np.bool_)
        if not bool((self.starts[1:] == self.stops[:-1]).all()):
            return np.fromiter((text in row for row in self), dtype=np.bool_, count=len(self))
        found = np.zeros(len(self), dtype=np.bool_)
        for first in range(0, len(self), _CHUNK_ROWS):
            rows = self._hits(first, min(first + _CHUNK_ROWS, len(self)), text)
            found[rows] = True
        return found

    def _hits(self, first: int, stop: int, text: bytes) -> list[int]:
        """Rows of a chunk that lies in one piece: the search runs over all of it and skips to the next row at a hit."""
        base = int(self.starts[first])
        blob = bytes(self.data[base : int(self.stops[stop - 1])])
        ends = (self.stops[first:stop] - base).tolist()
        rows, at = [], blob.find(text)
        while at >= 0:
            row = bisect_right(ends, at)
            if at + len(text) <= ends[row]:
                rows.append(first + row)
            at = blob.find(text, ends[row])  # a hit that leaves its row hides none: what begins behind it leaves it, too
        return rows

    def compared(self, relation: Callable[[Any, Any], bool], other: "bytes | TextRows") -> Mask:
        """Each row compared with a text, or with the same row of another column, by operator.lt and its kin."""
        if isinstance(other, bytes) and relation in {operator.eq, operator.ne}:
            return self.equal(other) if relation is operator.eq else ~self.equal(other)
        if isinstance(other, bytes):
            return np.fromiter((relation(row, other) for row in self), dtype=np.bool_, count=len(self))
        return np.fromiter(map(relation, self, other), dtype=np.bool_, count=len(self))

    def lengths(self) -> NDArray[np.int64]:
        """Characters (code points) of each row."""
        counts = np.empty(len(self), dtype=np.int64)
        raw = np.frombuffer(self.data, dtype=np.uint8)
        for first in range(0, len(self), _CHUNK_ROWS):
            starts, stops = self.starts[first : first + _CHUNK_ROWS], self.stops[first : first + _CHUNK_ROWS]
            low, high = int(starts.min()), int(stops.max())
            if high - low > 2 * int((stops - starts).sum()) + _CHUNK_ROWS:  # picked rows, far apart
                counts[first : first + len(starts)] = [
                    len(bytes(self.data[a:b]).decode("utf-8", "surrogateescape"))
                    for a, b in zip(starts.tolist(), stops.tolist(), strict=True)
                ]
                continue
            firsts = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(raw[low:high] & 0xC0 != 0x80)])  # noqa: PLR2004 - UTF-8
            counts[first : first + len(starts)] = firsts[stops - low] - firsts[starts - low]
        return counts

    def lowered(self) -> "TextRows":
        """The rows in lower case, as str.lower() has it."""
        return TextRows.made([os.fsencode(os.fsdecode(row).lower()) for row in self])

    def codes(self) -> NDArray[np.int64]:
        """Equal rows have equal numbers, from 0, in the order of the texts."""
        numbers: dict[bytes, int] = {}
        found = np.fromiter((numbers.setdefault(row, len(numbers)) for row in self), dtype=np.int64, count=len(self))
        ranks = np.empty(len(numbers), dtype=np.int64)
        ranks[[numbers[row] for row in sorted(numbers)]] = np.arange(len(numbers))
        return ranks[found]
