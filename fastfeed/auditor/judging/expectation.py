"""For each sample and stage, the processor time that is usual for its size, and how far above it is."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastfeed.auditor.judging.groups import FEWEST, Group
from fastfeed.auditor.judging.ledger import Floats, Rows, Table
from fastfeed.auditor.judging.regression import Fit, level_line, robust_line
from fastfeed.auditor.judging.rules import Cuts

_SHORTEST_SECONDS = 1e-6
"""A clock may show 0."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """One stage; a value a sample, NaN for samples without it."""

    cpu: Floats
    """Usual seconds for a sample of this size and format."""
    z: Floats
    """Robust standard deviations above that."""


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """What is usual for one format in one stage."""

    stage: str
    group: Group
    rows: Rows
    """Samples of the format that have the stage."""
    fit: Fit
    """Of log of bytes and log of pixels to log of seconds."""
    usual_sizes: Floats
    """Shape (2,): what an unknown size is taken to be; NaN where nobody's is known, as a constant says nothing."""
    samples: int
    """That made the line: all but those that stand out."""

    def filled(self, sizes: Floats) -> Floats:
        """Sizes of shape (n, 2) without NaN."""
        return np.where(np.isnan(sizes), np.nan_to_num(self.usual_sizes), sizes)

    def as_json(self) -> dict[str, str | int | float]:
        """As a report holds it: twice the bytes take 2 ** bytes_slope times as long; typical is the median size."""
        return {
            "stage": self.stage, "format": self.group.name, "samples": self.samples,
            "bytes_slope": float(self.fit.slopes[0]), "pixels_slope": float(self.fit.slopes[1]),
            "typical_cpu_seconds": float(np.exp(self.fit.level)), "scale": self.fit.scale,
        }  # fmt: skip


def expectations(table: Table, groups: list[Group], cuts: Cuts) -> tuple[dict[str, Expectation], list[Line]]:
    """By stage; and the lines that they come from."""
    found: dict[str, Expectation] = {}
    lines: list[Line] = []
    for stage, clocks in table.stages.items():
        expected = found[stage] = Expectation(np.full(table.samples, np.nan), np.full(table.samples, np.nan))
        logs = np.log(np.maximum(clocks.cpu, _SHORTEST_SECONDS))  # NaN stays NaN
        for group in groups:
            line = _line(table, group, stage, logs=logs, cuts=cuts)
            if line is not None:
                rows = group.rows[~np.isnan(logs[group.rows])]
                sizes = line.filled(table.sizes[rows])
                expected.cpu[rows] = np.exp(line.fit.expected(sizes))
                expected.z[rows] = line.fit.z(sizes, logs[rows])
                lines.append(line)
    return found, lines


def _line(table: Table, group: Group, stage: str, *, logs: Floats, cuts: Cuts) -> Line | None:
    """Of a group in a stage; None where no sample of it has that stage."""
    base = group.base[~np.isnan(logs[group.base])]
    if not len(base):
        return None
    raw = table.sizes[base]
    usual = np.array([np.nan if np.isnan(column).all() else np.nanmedian(column) for column in raw.T])
    sizes = np.where(np.isnan(raw), np.nan_to_num(usual), raw)
    fit = _fit(sizes, logs[base], ~np.isnan(usual))
    # Once more without what stands out: it is not to be part of what is usual.
    kept = fit.z(sizes, logs[base]) <= cuts.z_with_ratio
    return Line(stage, group, base, _fit(sizes[kept], logs[base][kept], ~np.isnan(usual)), usual, int(kept.sum()))


def _fit(x: Floats, y: Floats, known: NDArray[np.bool_]) -> Fit:
    """Of few samples the slopes cannot be told: time is then taken to grow with the size, half by bytes and half by pixels."""
    if len(y) >= FEWEST:
        return robust_line(x, y)
    return level_line(x, y, known / max(1, int(known.sum())))
