"""Work on whole columns of whole numbers (array.array) at once, by numpy: a source of a million files has a million rows.

Numbers are below 2**63; a column that comes out has the item type that its function names.
"""

from array import array
from collections.abc import Sequence

import numpy as np


def counting(typecode: str, start: int, stop: int, step: int = 1) -> "array[int]":
    """array(typecode, range(start, stop, step))."""
    return array(typecode, np.arange(start, stop, step, dtype=typecode).tobytes())


def taken(column: "array[int]", rows: Sequence[int]) -> "array[int]":
    """The values of some rows, one for each number in rows, of the column's type; a negative number counts from the end."""
    return array(column.typecode, np.asarray(column)[np.asarray(rows, dtype=np.int64)].tobytes())


def filled(column: "array[int]", marks: "array[int]", values: Sequence[int]) -> "array[int]":
    """The column with values in turn where marks, as long as it, are negative."""
    found = np.array(column)
    found[np.asarray(marks) < 0] = values
    return array(column.typecode, found.tobytes())


def total(column: "array[int]") -> int:
    """The sum, 0 of an empty column."""
    return int(np.asarray(column).sum())


def largest(column: "array[int]") -> int:
    """The largest value of a column that is not empty."""
    return int(np.asarray(column).max())


def is_run(column: "array[int]") -> bool:
    """Whether each value is one more than the one before."""
    values = np.asarray(column)
    return bool((values[1:] == values[:-1] + 1).all())


def differences(column: "array[int]") -> "array[int]":
    """How much each value is above the one before, for values that do not fall: one fewer, of the column's type."""
    return array(column.typecode, np.diff(np.asarray(column)).tobytes())


def rounded_up(column: "array[int]", more: int, unit: int) -> "array[int]":
    """Each value and as much more, rounded up to a multiple of unit, a power of two; "Q"."""
    return array("Q", ((np.asarray(column).astype(np.int64) + (more + unit - 1)) & -unit).tobytes())


def running(column: "array[int]", first: int) -> "array[int]":
    """first, and with each value the sum so far: one more than there are values; "Q"."""
    found = np.empty(len(column) + 1, dtype=np.uint64)
    found[0] = first
    found[1:] = column
    return array("Q", np.cumsum(found).tobytes())
