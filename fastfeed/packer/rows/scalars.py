"""Typed columns on their way from rows to the index: values close together, and the one type that all of them have."""

from array import array
from collections.abc import Iterator, Sequence

from fastfeed.archive.usercolumn import UserColumn
from fastfeed.packer.rows.source import Scalar
from fastfeed.source.cells import CHUNK_ROWS, Cells

MISSING, BOOL, INT, FLOAT, TEXT, LARGE = range(6)
"""Codes of what a sample has: LARGE is a whole number beyond int64, kept as text."""
_INT64 = 1 << 63
_EXACT = 1 << 53
"""Up to here each whole number is a float64."""


class ScalarColumn:
    """A column, a sample a row.

    Args:
        codes: One a sample.
        ints: Of the samples that have BOOL or INT, in order.
        floats: Of those that have FLOAT.
        texts: Of those that have TEXT or LARGE.
    """

    __slots__ = ("codes", "floats", "ints", "texts")

    def __init__(
        self, codes: bytes = b"", ints: Sequence[int] = (), floats: Sequence[float] = (), texts: Sequence[str] = ()
    ) -> None:
        self.codes, self.ints, self.floats, self.texts = bytearray(codes), array("q", ints), array("d", floats), list(texts)

    def pad(self, rows: int) -> None:
        """Missing values up to a row."""
        if rows > len(self.codes):
            self.codes.extend(bytes(rows - len(self.codes)))

    def add(self, value: Scalar) -> None:
        """The next sample's value."""
        if isinstance(value, bool):
            self.codes.append(BOOL)
            self.ints.append(value)
        elif isinstance(value, int):
            large = not -_INT64 <= value < _INT64
            self.codes.append(LARGE if large else INT)
            if large:
                self.texts.append(_decimal(value))
            else:
                self.ints.append(value)
        elif isinstance(value, float):
            self.codes.append(FLOAT)
            self.floats.append(value)
        else:
            self.codes.append(TEXT)
            self.texts.append(value if value.isascii() else value.encode("utf-8", "backslashreplace").decode())

    def values(self) -> Iterator[Scalar | None]:
        """One a sample, None for missing; a LARGE number as its text."""
        ints, floats, texts = iter(self.ints), iter(self.floats), iter(self.texts)
        for code in self.codes:
            if code == MISSING:
                yield None
            elif code == BOOL:
                yield bool(next(ints))
            else:
                yield next(ints) if code == INT else next(floats) if code == FLOAT else next(texts)


def _decimal(value: int) -> str:
    """A whole number's digits; in hex where Python refuses so many."""
    try:
        return str(value)
    except ValueError:
        return hex(value)


def typed(name: str, parts: Sequence[ScalarColumn]) -> UserColumn:
    """A column of the index from its parts, a shard each.

    Whole numbers are int64; with missing values or fractions among them float64 (a missing one is NaN), if none loses a
    digit; true and false are bool; anything else is text as JSON writes it, a missing one empty.
    """
    codes = set[int]().union(*(set(part.codes) for part in parts))
    if codes == {BOOL}:
        return UserColumn(name, "bool", bytes(value for part in parts for value in part.ints))
    if codes == {INT}:
        return UserColumn(name, "int64", _joined("q", [part.ints for part in parts]))
    exact = INT not in codes or all(-_EXACT <= value <= _EXACT for part in parts for value in part.ints)
    if codes <= {MISSING, INT, FLOAT} and codes != {MISSING} and exact:
        return UserColumn(name, "float64", _joined("d", [_floats(part) for part in parts]))
    texts = Cells()
    for part in parts:
        values = [_text(value) for value in part.values()]
        for first in range(0, len(values), CHUNK_ROWS):
            texts.extend(values[first : first + CHUNK_ROWS])
    return UserColumn(name, "text", texts)


def _joined(kind: str, parts: Sequence["array[float] | array[int]"]) -> "array[float]":
    found = array(kind)
    for part in parts:
        found.extend(part)  # type: ignore[arg-type] # of the kind that the caller names
    return found  # type: ignore[return-value]


def _floats(part: ScalarColumn) -> "array[float]":
    if len(part.floats) == len(part.codes):
        return part.floats
    nan = float("nan")
    return array("d", [nan if value is None else value for value in part.values()])  # type: ignore[misc] # no text is among them


def _text(value: Scalar | None) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)
