"""The cells of a table's column as text, kept close, and the type that all of them together have."""

import math
import re
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

from fastfeed.archive.usercolumn import UserColumn

CHUNK_ROWS = 1 << 14
_EXACT = 1 << 53
"""Up to here each whole number is a float64."""
_INT = r"-?(?:0|[1-9][0-9]{0,18})"
_FLOAT = (
    r"[+-]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
    r"|[+-]?(?:nan|NaN|NAN|inf|Inf|INF|infinity|Infinity)"
)
_BOOL = r"[Tt]rue|TRUE|[Ff]alse|FALSE"
# A chunk's cells are matched in one go, a line each; possessive, so that the engine remembers no line.
_INTS, _FLOATS, _BOOLS = (re.compile(rf"(?:(?:{kind})?\n)*+") for kind in (_INT, _FLOAT, _BOOL))
_WHOLE, _NUMBER = re.compile(r"[+-]?[0-9]+"), re.compile(_FLOAT)


class Cells(Sequence[str]):
    """Texts in order, two objects a chunk instead of one a text.

    Args:
        values: The first ones.
    """

    __slots__ = ("_blobs", "_firsts", "_starts")

    def __init__(self, values: Sequence[str] = ()) -> None:
        self._blobs: list[str] = []
        self._starts: list[array[int]] = []
        self._firsts = [0]
        self.extend(values)

    def extend(self, values: Sequence[str]) -> None:
        """Add a chunk of texts."""
        if len(values):
            self._blobs.append("".join(values))
            self._starts.append(array("Q", accumulate(map(len, values), initial=0)))
            self._firsts.append(self._firsts[-1] + len(values))

    def chunks(self) -> Iterator[list[str]]:
        """The texts, chunk by chunk."""
        for blob, starts in zip(self._blobs, self._starts, strict=True):
            yield [blob[start:stop] for start, stop in pairwise(starts)]

    def __len__(self) -> int:
        return self._firsts[-1]

    def __iter__(self) -> Iterator[str]:
        return (value for chunk in self.chunks() for value in chunk)

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 - int or slice, as every sequence
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        row = range(len(self))[index]
        chunk = bisect_right(self._firsts, row) - 1
        at = row - self._firsts[chunk]
        return self._blobs[chunk][self._starts[chunk][at] : self._starts[chunk][at + 1]]


@dataclass(slots=True)
class Parsed:
    """A text file of rows, taken apart."""

    names: tuple[str, ...] = ()
    cells: dict[str, Cells] = field(default_factory=dict)
    rows: int = 0
    lines: "array[int]" = field(default_factory=lambda: array("Q"))
    """Line on which each row begins, from 1; empty where row i is on line i + first_line."""
    first_line: int = 1
    texts: dict[str, str] = field(default_factory=dict)
    """Columns that are text whatever they look like: name -> why."""
    notes: list[str] = field(default_factory=list)

    def line(self, row: int) -> int:
        """Line on which a row begins."""
        return self.lines[row] if self.lines else row + self.first_line


@dataclass(slots=True)
class _Seen:
    """What a pass over all cells found."""

    ints: bool = True
    floats: bool = True
    bools: bool = True
    missing: int = 0
    odd: tuple[int, str] | None = None
    """The first cell that is no number, or that is text among numbers."""


def infer(name: str, cells: Cells, place: Callable[[int], str]) -> UserColumn:
    """The column with the one type that all its cells have.

    int64: whole numbers as Python writes them, without leading zeros or plus sign. bool: true and false (True, TRUE).
    float64: numbers; also whole numbers or truth values (1 and 0) of which some are missing. Anything else is text, as
    written; so are numbers that would lose digits. Only the empty cell is missing.

    Args:
        name: Of the column.
        cells: All of them.
        place: Says where a row is: "line 7".

    Raises:
        UsageError: A name that a column cannot have.
    """
    seen = _look(cells)
    if seen.missing == len(cells):
        return UserColumn(name, "text", cells, "text: all cells are empty" if len(cells) else "text: there are no rows")
    if seen.bools:
        return _truths(name, cells, seen)
    if seen.ints and not seen.missing:
        return _ints(name, cells, place)
    if seen.floats:
        return _floats(name, cells, seen, place)
    assert seen.odd is not None
    return UserColumn(name, "text", cells, f"text: {place(seen.odd[0])} is {_short(seen.odd[1])}")


def _look(cells: Cells) -> _Seen:
    seen, first = _Seen(), 0
    for chunk in cells.chunks():
        text = "\n".join(chunk) + "\n"
        alike = text.count("\n") == len(chunk)
        seen.ints = seen.ints and alike and bool(_INTS.fullmatch(text))
        seen.floats = seen.floats and alike and (seen.ints or bool(_FLOATS.fullmatch(text)))
        seen.bools = seen.bools and alike and bool(_BOOLS.fullmatch(text))
        if not seen.floats and seen.odd is None:
            at = next(at for at, value in enumerate(chunk) if value and not _NUMBER.fullmatch(value))
            seen.odd = first + at, chunk[at]
        if not (seen.floats or seen.bools):
            seen.missing = -1  # text either way: nobody asks
            break
        seen.missing += chunk.count("")
        first += len(chunk)
    return seen


def _truths(name: str, cells: Cells, seen: _Seen) -> UserColumn:
    if not seen.missing:
        truths = b"".join(bytes(value[0] in "tT" for value in chunk) for chunk in cells.chunks())
        return UserColumn(name, "bool", truths, "bool: all cells are true or false")
    values = array("d", (float(value[0] in "tT") if value else math.nan for value in cells))
    return UserColumn(name, "float64", values, f"float64: true (1) and false (0), {seen.missing} missing (NaN)")


def _ints(name: str, cells: Cells, place: Callable[[int], str]) -> UserColumn:
    values: array[int] = array("q")
    for chunk in cells.chunks():
        try:
            values.extend(array("q", map(int, chunk)))
        except OverflowError:
            at = next(at for at, value in enumerate(chunk) if not -1 << 63 <= int(value) < 1 << 63)
            why = f"text: {place(len(values) + at)} is {chunk[at]}, too large for int64"
            return UserColumn(name, "text", cells, why)
    return UserColumn(name, "int64", values, "int64: all cells are whole numbers")


def _floats(name: str, cells: Cells, seen: _Seen, place: Callable[[int], str]) -> UserColumn:
    values: array[float] = array("d")
    for chunk in cells.chunks():
        numbers = [float(value) if value else math.nan for value in chunk]
        for at, number in enumerate(numbers):
            if abs(number) >= _EXACT and _WHOLE.fullmatch(chunk[at]) and (math.isinf(number) or int(number) != int(chunk[at])):
                why = f"text: {place(len(values) + at)} is {_short(chunk[at])}, which float64 would round"
                return UserColumn(name, "text", cells, why)
        values.extend(numbers)
    what = "whole numbers" if seen.ints else "numbers"
    missing = f", {seen.missing} missing (NaN)" if seen.missing else ""
    return UserColumn(name, "float64", values, f"float64: {what}{missing}")


def _short(value: str) -> str:
    shown = 40
    return repr(value if len(value) <= shown else value[:shown] + "...")
