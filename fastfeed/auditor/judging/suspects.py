"""Samples that stand out in the first measurement. A suspicion is no proof: see confirming."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from fastfeed.auditor.judging.expectation import Expectation
from fastfeed.auditor.judging.groups import Group
from fastfeed.auditor.judging.ledger import Clocks, Floats, Table
from fastfeed.auditor.judging.rules import Cuts

ClockName = Literal["cpu", "blocked"]


@dataclass(frozen=True, slots=True)
class Suspect:
    """One clock of one stage of one sample."""

    row: int
    group: Group
    stage: str
    clock: ClockName
    seconds: float
    """As measured first."""
    usual_seconds: float
    """Computing: for its size. Being blocked: the median, or what its bytes take at the usual rate."""
    floor_seconds: float
    """What it has to exceed to be slow, whatever its like take."""
    sure: bool = True
    """Whether the clock is what it says: False for blocked where waiting for a processor is unknown, and so in it."""

    @property
    def excess_seconds(self) -> float:
        """Above the usual."""
        return self.seconds - self.usual_seconds


def suspects(table: Table, groups: list[Group], expected: dict[str, Expectation], cuts: Cuts) -> list[Suspect]:
    """All of them, those that cost the most first; behind them those by a clock that is not sure."""
    found = [
        suspect
        for stage, clocks in table.stages.items()
        for group in groups
        for suspect in [
            *_computing(clocks, group, expected[stage], stage=stage, cuts=cuts),
            *_blocked(clocks, group, table.sizes[:, 0], stage=stage, cuts=cuts),
        ]
    ]
    return sorted(found, key=lambda one: (not one.sure, -one.excess_seconds, one.row))


def _computing(clocks: Clocks, group: Group, expected: Expectation, *, stage: str, cuts: Cuts) -> list[Suspect]:
    rows = group.rows
    cpu, usual, z = clocks.cpu[rows], expected.cpu[rows], expected.z[rows]
    excess = cpu - usual
    alone = (z > cuts.z_alone) & (excess > cuts.least_excess_seconds)
    by_ratio = (z > cuts.z_with_ratio) & (cpu > cuts.ratio * usual) & (excess > cuts.ratio_excess_seconds)
    return [
        Suspect(int(rows[at]), group, stage, "cpu", float(cpu[at]), float(usual[at]), cuts.least_excess_seconds)
        for at in np.flatnonzero(alone | by_ratio)
    ]


def _blocked(clocks: Clocks, group: Group, log_bytes: Floats, *, stage: str, cuts: Cuts) -> list[Suspect]:
    rows = group.rows[~np.isnan(clocks.blocked[group.rows])]
    if not len(rows):
        return []
    blocked = clocks.blocked[rows]
    median = float(np.median(blocked))
    # Where storage is waited for at all, a large file waits longer: at the usual seconds a byte.
    by_size = np.nan_to_num(np.exp(log_bytes[rows]))
    known = by_size > 0
    rate = float(np.median(blocked[known] / by_size[known])) if known.any() else 0.0
    floor = np.maximum(max(cuts.blocked_seconds, cuts.blocked_factor * median), cuts.ratio * rate * by_size)
    usual = np.maximum(median, rate * by_size)
    return [
        Suspect(int(rows[at]), group, stage, "blocked", float(blocked[at]), float(usual[at]), float(floor[at]), clocks.sure)
        for at in np.flatnonzero(blocked > floor)
    ]
