"""Axes of a chart: where a value lies between its ends, and which values have a tick."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

_MOST_TICKS = 7
_MARGIN = 0.04
"""Of the axis, free at each end."""
_LEAST_FACTOR = 4.0
"""A logarithmic axis spans at least so much: what lies closer together is drawn closer together."""


@dataclass(frozen=True, slots=True)
class Scale:
    """One axis."""

    low: float
    high: float
    ticks: tuple[float, ...]
    told: Callable[[float], str]
    """A tick's words."""
    is_log: bool

    def part(self, value: float) -> float:
        """Where it lies: 0 at the low end, 1 at the high one."""
        if self.is_log:
            return (math.log(value) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))
        return (value - self.low) / (self.high - self.low)


def log_scale(values: Iterable[float], told: Callable[[float], str], base: int = 10) -> Scale:
    """A logarithmic axis over values above 0, of which there is at least one; ticks at powers of the base.

    Args:
        values: All that must lie on it.
        told: Says a tick.
        base: Of the ticks.
    """
    known = list(values)
    low, high = min(known), max(known)
    spread = max(1.0, math.sqrt(_LEAST_FACTOR * low / high))
    low, high = low / spread, high * spread
    margin = (high / low) ** _MARGIN
    low, high = low / margin, high * margin
    return Scale(low, high, tuple(_powers(low, high, base)), told, is_log=True)


def _powers(low: float, high: float, base: int) -> Sequence[float]:
    """Powers of the base within; where there are fewer than two, those of 2, or for 10 their doubles and fives too."""
    first, last = math.ceil(math.log(low, base)), math.floor(math.log(high, base))
    if last > first or base == 2:  # noqa: PLR2004 - there is nothing finer
        step = max(1, math.ceil((last - first + 1) / _MOST_TICKS))
        return [float(base) ** power for power in range(first, last + 1, step)]
    if base != 10:  # noqa: PLR2004
        return _powers(low, high, 2)
    known = (factor * 10.0**power for power in (first - 1, last, last + 1) for factor in (1, 2, 5))
    return sorted({tick for tick in known if low <= tick <= high})


def linear_scale(high: float, told: Callable[[float], str]) -> Scale:
    """An axis from 0 on; ticks at round values.

    Args:
        high: The highest value, above 0.
        told: Says a tick.
    """
    rough = high / (_MOST_TICKS - 2)
    power = 10 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    ticks = tuple(number * step for number in range(math.floor(high / step) + 1))
    return Scale(-high * _MARGIN, high * (1 + _MARGIN), ticks, told, is_log=False)
