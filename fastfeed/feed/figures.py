"""Many times as one figure of constant size: sum, longest, and a histogram from which quantiles are read.

A bucket of the histogram is what times have in common in the upper 16 bits of their float64: sign, exponent and four bits
of the fraction. So there are 16 buckets for each factor of 2, a quantile is wrong by at most 1/32 of itself, and sorting a
time into its bucket is a shift. Pure: no clock.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfeed.feed.naming import plain_index

ERROR = 1 / 32
"""A quantile is at most this part of itself away from the exact one."""
_SHIFT, _HALF = 48, 1 << 47


def buckets_of(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """The bucket of each value; int64, of the same shape.

    Args:
        values: Not negative; float64, contiguous.
    """
    return values.view(np.int64) >> _SHIFT


def middle_of(bucket: int) -> float:
    """The value that stands for a bucket; 0 stands for itself."""
    return float(np.int64((bucket << _SHIFT) | _HALF).view(np.float64)) if bucket else 0.0


class Sketch:
    """Values that are not negative, in constant memory; they may come one by one, many at a time, or as another sketch."""

    __slots__ = ("buckets", "count", "most", "total")

    def __init__(self) -> None:
        self.count, self.total, self.most = 0, 0.0, 0.0
        self.buckets: dict[int, int] = {}
        """How many values there are in each bucket that has some."""

    def add(self, values: ArrayLike) -> None:
        """Values come; any shape."""
        given = np.ascontiguousarray(values, dtype=np.float64).ravel()
        if given.size:
            self.merge(float(given.sum()), float(given.max()), Counter(buckets_of(given).tolist()))

    def merge(self, total: float, most: float, buckets: Mapping[int, int]) -> None:
        """The values of another sketch come."""
        mine = self.buckets
        for bucket, count in buckets.items():
            mine[bucket] = mine.get(bucket, 0) + count
            self.count += count
        self.total += total
        self.most = max(self.most, most)

    @property
    def mean(self) -> float:
        """Exact; 0 without values."""
        return self.total / self.count if self.count else 0.0

    def quantile(self, part: float) -> float:
        """The smallest value that at least this part of all values do not exceed, to within ERROR of itself; 0 without values.

        Args:
            part: 0 to 1.
        """
        wanted, seen = part * self.count, 0
        for bucket in sorted(self.buckets):
            seen += self.buckets[bucket]
            if seen >= wanted:
                return min(middle_of(bucket), self.most)
        return self.most


class BatchRecord(NamedTuple):
    """What was recorded of one batch. Plain values of constant size: they travel with the batch."""

    stages: tuple[str, ...]
    """The first is all of a sample ("fetch"), the others its parts."""
    samples: int
    totals: list[float]
    """Nanoseconds of all samples, by stage."""
    most: list[float]
    """Nanoseconds of the slowest sample, by stage."""
    keys: bytes
    """The buckets that have samples, as ``stage << 16 | bucket``, ascending: int32. Samples without a stage are in bucket 0."""
    ends: bytes
    """How many samples there are in each of them and all before it: int32."""
    slowest: list[tuple[Any, list[float]]]
    """Index and nanoseconds by stage of a few samples, the slowest first; none where samples were not told apart."""
    divided: tuple[str, ...]
    """Stages that were timed for the batch as a whole: each of its samples counts with the mean."""
    collate_ns: int | None
    """None where nothing was collated."""
    usual: tuple[Any, list[float]] | None
    """Index and nanoseconds by stage of the sample in the middle of the batch, which is as slow or quick as any: with those of
    other batches it tells what is usual. None where samples were not told apart."""

    def sketches(self) -> list[tuple[str, float, float, dict[int, int]]]:
        """Name, total, longest (nanoseconds) and buckets of each stage that at least one sample had."""
        parts: list[dict[int, int]] = [{} for _ in self.stages]
        before = 0
        for key, end in zip(
            np.frombuffer(self.keys, np.int32).tolist(), np.frombuffer(self.ends, np.int32).tolist(), strict=True
        ):
            if key & 0xFFFF:
                parts[key >> 16][key & 0xFFFF] = end - before
            before = end
        return [part for part in zip(self.stages, self.totals, self.most, parts, strict=True) if part[3]]


class Timed(NamedTuple):
    """The samples of one batch, before they become a record."""

    stages: tuple[str, ...]
    indices: list[Any]
    """Of the samples; none where samples were not told apart."""
    table: NDArray[np.float64]
    """Nanoseconds; shape (samples, stages), contiguous."""
    divided: tuple[str, ...]
    collate_ns: int | None

    def record(self) -> BatchRecord:
        """Their record."""
        table = self.table  # ufuncs' own reductions take half the time of the array's methods
        keys = (buckets_of(table) + _STAGE_KEYS[: len(self.stages)]).ravel()
        keys.sort()
        changes = (keys[1:] != keys[:-1]).nonzero()[0]
        ends = np.empty(len(changes) + 1, np.int32)
        ends[:-1], ends[-1] = changes, len(keys) - 1
        slowest = table[:, 0].argsort()[: -SLOWEST - 1 : -1].tolist() if self.indices else []
        return BatchRecord(
            self.stages, len(table), np.add.reduce(table, 0).tolist(), np.maximum.reduce(table, 0).tolist(),
            keys[ends].astype(np.int32).tobytes(), (ends + 1).tobytes(),
            list(map(self._told, slowest)), self.divided, self.collate_ns,
            self._told(len(table) // 2) if self.indices else None,
        )  # fmt: skip

    def _told(self, number: int) -> tuple[Any, list[float]]:
        """Index and times of a sample."""
        return _short(self.indices[number]), self.table[number].tolist()


def _short(index: Any) -> Any:  # noqa: ANN401 - any index
    found = plain_index(index)
    return found if isinstance(found, int) else found[:_LONGEST_INDEX]


SLOWEST = 3
"""So many samples of a batch travel by name."""
MOST_STAGES, MOST_COUNTERS = 16, 64
"""Of one process; others are summed up as one more."""
OTHER_STAGES, OTHER_COUNTERS = "other stages", "other counters"
_STAGE_KEYS = np.arange(MOST_STAGES + 2) << 16
_LONGEST_INDEX = 200
