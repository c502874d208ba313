"""For each sample and stage, the processor time that is usual for its size, and how far above it is."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastfeed.auditor.judging.groups import FEWEST, Group
from fastfeed.auditor.judging.ledger import Clocks, Floats, Rows, Table
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


@dataclass(frozen=True, slots=True)
class Line:
    """What is usual for one format in one stage, for the report."""

    stage: str
    format: str
    samples: int
    """That made the line."""
    bytes_slope: float
    """Twice the bytes take 2 ** slope times as long."""
    pixels_slope: float
    typical_seconds: float
    """For the median size."""
    scale: float
    """Robust standard deviation of the logarithm."""


def expectations(table: Table, groups: list[Group], cuts: Cuts) -> tuple[dict[str, Expectation], list[Line]]:
    """By stage; and the lines that they come from."""
    found: dict[str, Expectation] = {}
    lines: list[Line] = []
    for stage, clocks in table.stages.items():
        expected = Expectation(np.full(table.samples, np.nan), np.full(table.samples, np.nan))
        for group in groups:
            line = _judged(table, group, clocks, into=expected, cuts=cuts)
            if line is not None:
                fit, samples = line
                typical = float(np.exp(fit.level))
                lines.append(Line(stage, group.name, samples, float(fit.slopes[0]), float(fit.slopes[1]), typical, fit.scale))
        found[stage] = expected
    return found, lines


def _judged(table: Table, group: Group, clocks: Clocks, *, into: Expectation, cuts: Cuts) -> tuple[Fit, int] | None:
    """Fills in the rows of a group; its line and how many samples made it, None where no sample has that stage."""
    base = group.base[~np.isnan(clocks.cpu[group.base])]
    rows = group.rows[~np.isnan(clocks.cpu[group.rows])]
    if not len(base):
        return None
    sizes, logs = _filled(table.sizes, base), np.log(np.maximum(clocks.cpu, _SHORTEST_SECONDS))
    known = np.array([not np.isnan(column).all() for column in table.sizes[base].T])
    fit = _line(sizes[base], logs[base], known)
    # Once more without what stands out: it is not to be part of what is usual.
    usual = base[fit.z(sizes[base], logs[base]) <= cuts.z_with_ratio]
    fit = _line(sizes[usual], logs[usual], known)
    into.cpu[rows] = np.exp(fit.expected(sizes[rows]))
    into.z[rows] = fit.z(sizes[rows], logs[rows])
    return fit, len(usual)


def _line(x: Floats, y: Floats, known: NDArray[np.bool_]) -> Fit:
    """Of few samples the slopes cannot be told: time is then taken to grow with the size, half by bytes and half by pixels."""
    if len(y) >= FEWEST:
        return robust_line(x, y)
    return level_line(x, y, known / max(1, int(known.sum())))


def _filled(sizes: Floats, base: Rows) -> Floats:
    """An unknown size is taken to be the usual one of the base; 0 where all are unknown, as a constant says nothing."""
    usual = [0.0 if np.isnan(column).all() else float(np.nanmedian(column)) for column in sizes[base].T]
    return np.where(np.isnan(sizes), usual, sizes)
