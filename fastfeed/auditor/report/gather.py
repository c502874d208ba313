"""What a page shows of records, gathered one by one in bounded memory: rows, points and shares of a million are no more."""

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from fastfeed.auditor.finding import Finding, Severity
from fastfeed.auditor.judging.codes import OVERSIZE, PROVEN_SLOW
from fastfeed.auditor.record import SampleRecord

MOST_ROWS = 2000
"""Flagged samples that a page lists."""
MOST_OF_A_CODE = 500
"""Of these, that have the same finding for their worst."""
MOST_POINTS = 1500
"""Points of a chart without a finding, and as many with one."""
_SLOW = frozenset({*(code.name for code in (*PROVEN_SLOW, OVERSIZE)), "takes-long", "hang"})
"""Codes that are about time."""
SLOW, FLAGGED, FINE = "slow or oversize", "flagged, but not for time", "not flagged"
"""Groups of samples."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Point:
    """One sample in the chart."""

    index: int
    size_bytes: int
    """0 where it is unknown."""
    seconds: float
    group: str
    """SLOW, FLAGGED or FINE."""
    told: str
    """Its name, and of a flagged one its codes."""


class Drawn(Generic[T]):
    """So many of a stream of things, each as likely as any other; the same ones for the same stream.

    Args:
        most: How many are kept.
    """

    def __init__(self, most: int) -> None:
        self.seen = 0
        """How many there were."""
        self.kept: list[T] = []
        self._most, self._random = most, random.Random(0)

    def wants(self) -> int | None:
        """One more came: the place that it takes, or None."""
        self.seen += 1
        place = self.seen - 1 if self.seen <= self._most else self._random.randrange(self.seen)
        return place if place < self._most else None

    def put(self, place: int, thing: T) -> None:
        """Keep it where wants() said."""
        self.kept[place : place + 1] = [thing]


@dataclass(slots=True)
class Share:
    """Samples of one kind: how many, how much, how long."""

    samples: int = 0
    size_bytes: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class Gathered:
    """Takes records one by one."""

    flagged: int = 0
    """Samples that would be rows of the table."""
    groups: dict[str, Share] = field(default_factory=lambda: {name: Share() for name in (SLOW, FLAGGED, FINE)})
    formats: dict[str, Share] = field(default_factory=dict)
    points: dict[str, Drawn[Point]] = field(
        default_factory=lambda: {name: Drawn(MOST_POINTS) for name in (FINE, FLAGGED, SLOW)}
    )
    _rows: dict[Severity, list[SampleRecord]] = field(default_factory=lambda: {Severity.ERROR: [], Severity.WARNING: []})
    _of_code: Counter[str] = field(default_factory=Counter)

    def add(self, record: SampleRecord) -> None:
        """One more."""
        group = group_of(record)
        seconds = cost_seconds(record)
        for share in (self.groups[group], self.formats.setdefault(record.format or "unknown", Share())):
            share.samples += 1
            share.size_bytes += record.size_bytes or 0
            share.seconds += seconds
        if seconds:
            self._draw(record, group, seconds)
        if group != FINE:
            self.flagged += 1
            self._keep(record)

    def _draw(self, record: SampleRecord, group: str, seconds: float) -> None:
        drawn = self.points[group]
        place = drawn.wants()
        if place is not None:
            codes = "" if group == FINE else ": " + ", ".join(dict.fromkeys(one.code.name for one in telling(record)))
            drawn.put(place, Point(record.index, record.size_bytes or 0, seconds, group, record.name + codes))

    def _keep(self, record: SampleRecord) -> None:
        worst = telling(record)[0].code
        rows = self._rows[worst.severity]
        if len(rows) < MOST_ROWS and self._of_code[worst.name] < MOST_OF_A_CODE:
            self._of_code[worst.name] += 1
            rows.append(record)

    def rows(self) -> list[SampleRecord]:
        """Flagged samples, those with errors first; at most MOST_ROWS, and MOST_OF_A_CODE of a code."""
        return [*self._rows[Severity.ERROR], *self._rows[Severity.WARNING]][:MOST_ROWS]


def telling(record: SampleRecord) -> list[Finding]:
    """What flags a sample, the worst first."""
    return sorted((one for one in record.findings if one.code.severity >= Severity.WARNING), key=lambda one: -one.code.severity)


def group_of(record: SampleRecord) -> str:
    """SLOW, FLAGGED or FINE."""
    if record.status != "flagged":
        return FINE
    return SLOW if any(one.code.name in _SLOW for one in record.findings) else FLAGGED


def cost_seconds(record: SampleRecord) -> float:
    """What a sample takes of a worker: computing and being blocked; where the kernel does not tell, all that passed."""
    return sum(time.wall if time.blocked is None else time.cpu + time.blocked for time in record.times.values())
