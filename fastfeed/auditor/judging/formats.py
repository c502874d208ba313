"""Formats that are slow as a whole: none of their samples stands out, and yet each costs more than it would in another."""

import numpy as np

from fastfeed.auditor.finding import Finding
from fastfeed.auditor.judging.codes import SLOW_FORMAT
from fastfeed.auditor.judging.expectation import Line
from fastfeed.auditor.judging.ledger import Table
from fastfeed.auditor.judging.rules import Cuts
from fastfeed.units import format_count


def slow_formats(table: Table, lines: list[Line], cuts: Cuts) -> dict[int, Finding]:
    """By row: each format is compared with that which most samples have, a stage after the other.

    A rare format, which has no line, is not: its samples are compared with others one by one (see groups).
    """
    found: dict[int, Finding] = {}
    for stage in table.stages:
        own = [line for line in lines if line.stage == stage]
        for line in own:
            usual = max(own, key=lambda one: len(one.rows))
            finding = _compared(table, line, usual, cuts) if line is not usual else None
            if finding is not None:
                for row in line.rows.tolist():
                    found.setdefault(row, finding)
    return found


def _compared(table: Table, line: Line, usual: Line, cuts: Cuts) -> Finding | None:
    """None where it is not slow, or where the two have no size in common by which they could be compared."""
    if (np.isnan(line.usual_sizes) != np.isnan(usual.usual_sizes)).any():
        return None
    sizes = line.filled(table.sizes[line.rows])
    seconds, others = (np.exp(one.fit.expected(sizes)) for one in (line, usual))
    times = float(np.median(seconds / others))
    part_of_samples = len(line.rows) / table.samples
    if times <= cuts.ratio or float(np.median(seconds - others)) <= cuts.least_excess_seconds:
        return None
    cost = table.stages[line.stage].cost
    part = float(cost[line.rows].sum() / cost.sum())
    return Finding(
        SLOW_FORMAT,
        f"{line.stage} takes {times:.0f} times as long as {usual.group.name} of its size: the "
        f"{format_count(len(line.rows), 'sample')} of {line.group.name} ({part_of_samples:.2%}) take {part:.0%} of that time",
    )
