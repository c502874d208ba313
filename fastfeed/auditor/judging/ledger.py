"""Times and sizes of all samples as columns: a million samples take 20 bytes each, and 12 a stage."""

from array import array
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastfeed.auditor.finding import Severity
from fastfeed.auditor.record import STAGES, SampleRecord, StageTime

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]
UNKNOWN = float("nan")
_NO_TIME = StageTime(UNKNOWN, UNKNOWN, None)


@dataclass(frozen=True, slots=True)
class Clocks:
    """One stage: seconds, a value a sample; NaN for samples without that stage."""

    wall: Floats
    cpu: Floats
    blocked: Floats
    """Waiting for something else than a processor. Where nothing tells how long a processor was waited for, that is in it."""
    sure: bool
    """Whether waiting for a processor is known, and so not in blocked."""

    @property
    def cost(self) -> Floats:
        """What the sample takes of a worker, whatever else the machine does: computing, being blocked. 0 without the stage."""
        return np.nan_to_num(self.cpu + self.blocked)


@dataclass(frozen=True, slots=True)
class Table:
    """Samples with times; row i is the same sample in each column."""

    index: Rows
    """Positions in what is audited."""
    sizes: Floats
    """Shape (samples, 2): log of bytes, log of pixels; NaN where unknown."""
    kinds: NDArray[np.uint16]
    """Positions in formats."""
    formats: tuple[str | None, ...]
    stages: dict[str, Clocks]
    """In the order of STAGES."""

    @property
    def samples(self) -> int:
        """How many."""
        return len(self.index)

    @property
    def cost(self) -> Floats:
        """Of all stages."""
        return sum((clocks.cost for clocks in self.stages.values()), np.zeros(self.samples))

    @property
    def sure(self) -> bool:
        """Whether all of them tell how long a processor was waited for."""
        return all(clocks.sure for clocks in self.stages.values())


class Ledger:
    """Takes records one by one, and keeps of them what a judge needs."""

    __slots__ = ("_formats", "_index", "_kinds", "_pixels", "_sizes", "_stages", "records")

    def __init__(self) -> None:
        self.records = 0
        """How many were given, be their times kept or not."""
        self._index, self._kinds = array("q"), array("H")
        self._sizes, self._pixels = array("f"), array("f")
        self._formats: dict[str | None, int] = {}
        self._stages: dict[str, tuple[array[float], array[float], array[float]]] = {}

    def add(self, record: SampleRecord) -> None:
        """One sample more; one that could not be loaded, or is an error, is counted only: its times tell of the error."""
        self.records += 1
        if not record.times or record.severity is Severity.ERROR:
            return
        for stage in record.times.keys() - self._stages.keys():
            before = [UNKNOWN] * len(self._index)
            self._stages[stage] = (array("f", before), array("f", before), array("f", before))
        for stage, (wall, cpu, delay) in self._stages.items():
            time = record.times.get(stage, _NO_TIME)
            wall.append(time.wall)
            cpu.append(time.cpu)
            delay.append(UNKNOWN if time.delay is None else time.delay)
        self._index.append(record.index)
        self._kinds.append(self._formats.setdefault(record.format, len(self._formats)))
        self._sizes.append(UNKNOWN if record.size_bytes is None else record.size_bytes)
        pixels = None if record.width is None or record.height is None else record.width * record.height
        self._pixels.append(UNKNOWN if pixels is None else pixels)

    def table(self) -> Table:
        """All of them so far."""
        sizes = np.column_stack([np.asarray(self._sizes, np.float64), np.asarray(self._pixels, np.float64)])
        ordered = sorted(self._stages, key=lambda stage: STAGES.index(stage) if stage in STAGES else len(STAGES))
        return Table(
            np.array(self._index, np.int64),
            np.log(np.maximum(sizes, 1)),  # NaN stays NaN
            np.array(self._kinds, np.uint16),
            tuple(self._formats),
            {stage: _stage(*self._stages[stage]) for stage in ordered},
        )


def _stage(wall: "array[float]", cpu: "array[float]", delay: "array[float]") -> Clocks:
    walls, cpus, delays = (np.asarray(column, np.float64) for column in (wall, cpu, delay))
    told = ~np.isnan(delays) | np.isnan(walls)
    return Clocks(walls, cpus, np.maximum(walls - cpus - np.nan_to_num(delays), 0), bool(told.all()))
