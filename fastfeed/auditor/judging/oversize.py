"""Samples that are far larger than the rest. They are not slow for their size, but cost as much as many others."""

import numpy as np

from fastfeed.auditor.finding import Finding
from fastfeed.auditor.judging.codes import OVERSIZE
from fastfeed.auditor.judging.ledger import Floats, Table
from fastfeed.units import format_count, format_size

_TIMES_P99 = 4.0
_MANY = 100
"""With fewer samples the 99th of a hundred is nearly the largest."""
FEWEST = 10
"""With fewer samples nobody can tell which of them is usual."""
_TIMES_P90 = 10.0
_TIMES_MEDIAN_COST = 10.0
_LEAST_COST_SECONDS = 10e-3
_SIZES = ("bytes", "pixels")
"""As a table has them."""
_PART_OF_TIME = 1e-3
_TIMES_MEDIAN_SIZE = 5.0
_TIMES_MEAN_COST = 10.0


def oversized(table: Table, slow: set[int]) -> dict[int, Finding]:
    """By row.

    Args:
        table: All samples.
        slow: Rows that are slow for their size: what they cost is no matter of their size.
    """
    said: dict[int, list[str]] = {}
    if table.samples >= _MANY:
        _among_many(table, slow, said)
    elif table.samples >= FEWEST:
        _among_few(table, slow, said)
    return {row: Finding(OVERSIZE, "; ".join(parts)) for row, parts in sorted(said.items())}


def _among_many(table: Table, slow: set[int], said: dict[int, list[str]]) -> None:
    for column, name in enumerate(_SIZES):
        sizes = np.exp(table.sizes[:, column])
        if not np.isnan(sizes).all():
            bulk = float(np.nanpercentile(sizes, 99))
            rows = np.flatnonzero(sizes > _TIMES_P99 * bulk).tolist()
            _say(rows, sizes, bulk, name=name, part="99 %", said=said)
    _by_time(table, slow, said)


def _among_few(table: Table, slow: set[int], said: dict[int, list[str]]) -> None:
    """A percentile of few samples says less, so there has to be more: far larger than nine of ten, and the time is felt."""
    cost = table.cost
    felt = cost > max(_TIMES_MEDIAN_COST * float(np.median(cost)), _LEAST_COST_SECONDS)
    for column, name in enumerate(_SIZES):
        sizes = np.exp(table.sizes[:, column])
        if not np.isnan(sizes).all():
            bulk = float(np.nanpercentile(sizes, 90, method="lower"))  # between two of ten the largest would have a part in it
            rows = [row for row in np.flatnonzero(felt & (sizes > _TIMES_P90 * bulk)).tolist() if row not in slow]
            _say(rows, sizes, bulk, name=name, part="nine of ten", said=said)


def _say(rows: list[int], sizes: Floats, bulk: float, *, name: str, part: str, said: dict[int, list[str]]) -> None:
    """How far these are above the bulk."""
    for row in rows:
        size = float(sizes[row])
        text = f"{_size(size, name)}, {size / bulk:.0f} times what {part} of the samples stay below ({_size(bulk, name)})"
        said.setdefault(row, []).append(text)


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
