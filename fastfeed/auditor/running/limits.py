"""How long a sample may take before it is spoken of, before it is ended, and how much memory it may take."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

_TIMES_SLOWEST = 100
"""A sample that takes so many times what 99 of 100 take is spoken of."""
_LEAST_END_SECONDS = 600.0
_LEAST_OPEN_SECONDS = 60.0
"""A dataset may always take so long to open: where a sample takes a second, the import of torch takes more."""
_TIMES_END = 1000
_STEPS = 4
"""Bins a doubling: a percentile is known to 19 %."""
_FLOOR_SECONDS = 1e-6
_ENOUGH = 20
_SLOWEST = 2
"""Are left out: among fewer than 200 they would be what 99 of 100 take, and after a minute a hang had 17 hours."""


class Spread:
    """The percentiles of times, in constant memory."""

    def __init__(self) -> None:
        self._bins: Counter[int] = Counter()
        self._count = 0

    def add(self, seconds: float) -> None:
        """One more."""
        self._bins[math.ceil(math.log2(max(seconds, _FLOOR_SECONDS)) * _STEPS)] += 1
        self._count += 1

    def percentile(self, share: float) -> float | None:
        """The time below which a share of them lies, but for the slowest two; None while there are few."""
        if self._count < _ENOUGH:
            return None
        rest = min(share * self._count, self._count - _SLOWEST)
        for place in sorted(self._bins):
            rest -= self._bins[place]
            if rest <= 0:
                break
        return float(2 ** (place / _STEPS))


@dataclass(slots=True)
class Limits:
    """What one sample may take. Times that are not given follow from the samples before it."""

    kill_seconds: float | None = None
    """After this time its process is killed; None: the longer of ten minutes and 1,000 times what 99 of 100 take."""
    memory_bytes: int | None = None
    """More than this, beyond what the process has at its start, cannot be allocated."""
    least_seconds: float = 10.0
    """A sample that takes less is never spoken of, nor is a dataset that opens sooner."""
    open_seconds: float | None = None
    """After this time a dataset that is not open is given up; None: never."""
    open_deadline: float | None = None
    """Of time.monotonic(): where no child has opened it by then it is given up, as no sample may be begun later."""

    def as_json(self) -> dict[str, float | int | None]:
        """Those that are given, as a journal holds them."""
        return {"kill_seconds": self.kill_seconds, "memory_bytes": self.memory_bytes}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """Back from a journal."""
        return cls(found["kill_seconds"], found["memory_bytes"])

    def gives_more_time(self, than: "Limits") -> bool:
        """Whether a sample that was ended under other limits may get further under these."""
        return (self.kill_seconds or _LEAST_END_SECONDS) > (than.kill_seconds or _LEAST_END_SECONDS)

    def gives_more_memory(self, than: "Limits") -> bool:
        """The same of memory."""
        return (self.memory_bytes or math.inf) > (than.memory_bytes or math.inf)

    def speak_after(self, spread: Spread) -> float:
        """Seconds after which a sample is named, with the stack at which it stands; it is left to go on."""
        usual = spread.percentile(0.99)
        return max(self.least_seconds, _TIMES_SLOWEST * (usual or 0.0))

    def end_after(self, spread: Spread) -> float:
        """Seconds after which it is ended."""
        if self.kill_seconds is not None:
            return self.kill_seconds
        return max(_LEAST_END_SECONDS, _TIMES_END * (spread.percentile(0.99) or 0.0))


def opening_seconds(kill_after: float | None) -> float | None:
    """What opening may take where a sample may take so many seconds; None without a limit: minutes may be normal."""
    return None if kill_after is None else max(kill_after, _LEAST_OPEN_SECONDS)
