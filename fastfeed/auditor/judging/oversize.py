"""Samples that are far larger than the rest. They are not slow for their size, but cost as much as many others."""

import numpy as np

from fastfeed.auditor.finding import Finding
from fastfeed.auditor.judging.codes import OVERSIZE
from fastfeed.auditor.judging.ledger import Table
from fastfeed.units import format_count, format_size

_TIMES_P99 = 4.0
_FEWEST = 100
"""With fewer samples the 99th of a hundred is nearly the largest."""
_PART_OF_TIME = 1e-3
_TIMES_MEDIAN_SIZE = 5.0
_TIMES_MEAN_COST = 10.0


def oversized(table: Table, slow: set[int]) -> dict[int, Finding]:
    """By row.

    Args:
        table: All samples.
        slow: Rows that are slow for their size: what they cost is no matter of their size.
    """
    if table.samples < _FEWEST:
        return {}
    said: dict[int, list[str]] = {}
    for column, name in enumerate(("bytes", "pixels")):
        _by_size(table, column, name, said)
    _by_time(table, slow, said)
    return {row: Finding(OVERSIZE, "; ".join(parts)) for row, parts in sorted(said.items())}


def _by_size(table: Table, column: int, name: str, said: dict[int, list[str]]) -> None:
    sizes = np.exp(table.sizes[:, column])
    if np.isnan(sizes).all():
        return
    p99 = float(np.nanpercentile(sizes, 99))
    for row in np.flatnonzero(sizes > _TIMES_P99 * p99).tolist():
        size = float(sizes[row])
        said.setdefault(row, []).append(
            f"{_size(size, name)}, {size / p99:.0f} times what 99 % of the samples stay below ({_size(p99, name)})"
        )


def _by_time(table: Table, slow: set[int], said: dict[int, list[str]]) -> None:
    """Those that take a visible part of all time alone, because they are large."""
    cost = table.cost
    total = float(cost.sum())
    known = table.sizes[:, ~np.isnan(table.sizes).all(axis=0)]
    if not total or not known.shape[1]:
        return
    large = np.nan_to_num(known - np.nanmedian(known, axis=0)).max(axis=1) > np.log(_TIMES_MEDIAN_SIZE)
    costly = cost > max(_PART_OF_TIME * total, _TIMES_MEAN_COST * total / table.samples)
    for row in np.flatnonzero(large & costly).tolist():
        if row not in slow:
            times = cost[row] * table.samples / total
            said.setdefault(row, []).append(
                f"it takes {cost[row] / total:.2%} of all time, as much as {times:.0f} mean samples"
            )


def _size(value: float, name: str) -> str:
    return format_size(value) if name == "bytes" else format_count(round(value), "pixel")
