"""For each suspect, samples like it: what they take in the same minutes is what the suspect is compared with."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastfeed.auditor.judging.expectation import Expectation
from fastfeed.auditor.judging.groups import Group
from fastfeed.auditor.judging.ledger import Floats, Rows, Table
from fastfeed.auditor.judging.suspects import ClockName, Suspect

_MOST_LIKES = 20_000
"""Of a larger group some are drawn: the nearest of so many are near enough."""


@dataclass(frozen=True, slots=True)
class Control:
    """A sample to be measured beside a suspect."""

    row: int
    factor: float
    """How many times its seconds the suspect may take, because it is larger."""
    usual_seconds: float
    """Computing, by the line for its own size."""


def matched(
    table: Table, chosen: list[Suspect], expected: dict[str, Expectation], *, found: list[Suspect], count: int
) -> list[tuple[Control, ...]]:
    """For each of the chosen up to so many controls: of its group, no suspects, the nearest in bytes and pixels.

    Args:
        table: All samples.
        chosen: The suspects that are measured again.
        expected: What is usual, by stage.
        found: All suspects: none of them is a control.
        count: How many controls each has at most.
    """
    free = np.ones(table.samples, bool)
    free[[one.row for one in found]] = False
    pools: dict[tuple[Group, str], Rows] = {}
    matches = []
    for one in chosen:
        key = (one.group, one.stage)
        if key not in pools:
            pools[key] = _pool(one.group, free & ~np.isnan(expected[one.stage].cpu))
        rows = _nearest(table.sizes, one.row, pools[key], count)
        usual = expected[one.stage].cpu
        by_line = usual[one.row] / usual[rows] if one.clock == "cpu" else np.zeros(len(rows))
        factors = _factors(table.sizes[one.row] - table.sizes[rows], by_line, one.clock)
        matches.append(tuple(map(Control, rows.tolist(), factors.tolist(), usual[rows].tolist())))
    return matches


def _pool(group: Group, free: NDArray[np.bool_]) -> Rows:
    """Those of the group's base that may serve, else of the whole group."""
    rows = group.base[free[group.base]]
    rows = rows if len(rows) else group.rows[free[group.rows]]
    if len(rows) > _MOST_LIKES:
        rows = np.random.default_rng(len(rows)).choice(rows, _MOST_LIKES, replace=False)
    return rows


def _nearest(sizes: Floats, row: int, pool: Rows, count: int) -> Rows:
    distance = np.nansum(np.abs(sizes[pool] - sizes[row]), axis=1)
    return pool[np.argsort(distance, kind="stable")[:count]]


def _factors(larger: Floats, by_line: Floats, clock: ClockName) -> Floats:
    """By the line of what is usual; but a sample with so many times the bytes or pixels may always take so many times as long.

    Far from the samples that made it a line is not to be trusted, and the largest samples have no neighbours. Being blocked has
    no line, and only bytes count.

    Args:
        larger: Shape (controls, 2): log of how many times the bytes and pixels of each control the suspect has.
        by_line: How many times as long the line allows for each.
        clock: Of the suspect.
    """
    times = np.exp(np.nan_to_num(larger))
    if clock == "blocked":
        return np.maximum(times[:, 0], 1.0)
    largest = times.max(axis=1)
    return np.where(largest > 1, np.maximum(by_line, largest), by_line)
