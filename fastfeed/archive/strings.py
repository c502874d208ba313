"""Columns of variable length as a reader sees them: byte strings, texts, and where the rows of JPEGs begin. README.md §4.2.

A row is looked up when it is used, and its bounds are proven then.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfeed.archive.columns import Column
from fastfeed.errors import IndexDamaged
from fastfeed.jpegrows import Edges, from_column

HINT = "Run fastfeed verify; restore .fastfeed from a copy, or pack again."
_MARKER_BYTES = 2


class Strings(Sequence[bytes]):
    """A column of byte strings, read row by row from the mapped file."""

    __slots__ = ("_column", "_data", "hint", "path", "starts")

    def __init__(self, starts: NDArray[Any], data: memoryview, column: Column, path: str, hint: str) -> None:  # noqa: PLR0917
        self.starts, self._data, self._column, self.path, self.hint = starts, data, column, path, hint

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, row: Any) -> Any:  # noqa: ANN401 - int or slice, as every sequence
        if isinstance(row, slice):
            return [self[at] for at in range(*row.indices(len(self)))]
        row = range(len(self))[row]
        start, stop = int(self.starts[row]), int(self.starts[row + 1])
        if not start <= stop <= len(self._data):
            msg = f"row {row} of column {self._column.name} lies outside its column"
            raise IndexDamaged(
                msg, path=self.path, expected=f"at most {len(self._data)}", got=f"[{start}, {stop})", hint=self.hint
            )
        return bytes(self._data[start:stop])

    def ranges(self) -> tuple[NDArray[np.int64], memoryview]:
        """Where each row lies, for work on whole columns: the starts, int64 of shape (rows + 1,), and the bytes that they cut.

        Raises:
            IndexDamaged: The ranges fall or leave their column.
        """
        starts: NDArray[np.int64] = self.starts.view("<i8")
        if int(starts[0]) < 0 or int(starts[-1]) > len(self._data) or bool((starts[1:] < starts[:-1]).any()):
            msg = f"the ranges of column {self._column.name} fall or leave their column"
            raise IndexDamaged(msg, path=self.path, expected=f"0 to {len(self._data)}", hint=self.hint)
        return starts, self._data


class Texts(Sequence[str]):
    """A column of UTF-8 text, read row by row from the mapped file."""

    __slots__ = ("name", "path", "raw")

    def __init__(self, raw: Strings, name: str, path: str) -> None:
        self.raw = raw
        """The same rows as bytes."""
        self.name, self.path = name, path

    def __len__(self) -> int:
        return len(self.raw)

    def __getitem__(self, row: Any) -> Any:  # noqa: ANN401 - int or slice, as every sequence
        if isinstance(row, slice):
            return [self[at] for at in range(*row.indices(len(self)))]
        data: bytes = self.raw[row]
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            row = range(len(self))[row]
            msg = f"row {row} of column {self.name!r} is no UTF-8 text"
            raise IndexDamaged(msg, path=self.path, sample=row, got=data[:80], hint=HINT) from error


class JpegRows:
    """The column jpeg_intervals: for each member whose rows are indexed, where in it their restart intervals begin.

    Args:
        raw: The column.
    """

    __slots__ = ("raw",)

    def __init__(self, raw: Strings) -> None:
        self.raw = raw

    def of(self, row: int, size_bytes: int) -> Edges | None:
        """The rows of one member.

        Args:
            row: Of the member table.
            size_bytes: Of the member, which all of them must lie in.

        Returns:
            Where they begin within the member. None where it is not indexed.

        Raises:
            IndexDamaged: They are none, or leave the member.
        """
        found: bytes = self.raw[row]
        if not found:
            return None
        edges = from_column(found)
        if edges is not None and edges[0] >= _MARKER_BYTES and edges[-1] <= size_bytes:
            return edges
        msg = f"row {row} of column jpeg_intervals says no rows of a member of {size_bytes} bytes"
        expected = f"an offset of 4 bytes from 2 on, and at least 2 sizes of 2 bytes above 2, up to byte {size_bytes}"
        raise IndexDamaged(msg, path=self.raw.path, expected=expected, got=found[:80].hex(), hint=self.raw.hint)

    def has(self, row: int) -> bool:
        """Whether a row of the member table says anything, right or wrong."""
        return bool(self.raw.starts[row + 1] != self.raw.starts[row])

    def lengths(self) -> NDArray[np.int64]:
        """How many bytes say where a member's rows begin, int64 of shape (members,): 0 of those that are not indexed.

        Raises:
            IndexDamaged: The ranges fall or leave their column.
        """
        return np.diff(self.raw.ranges()[0])

    def count(self) -> int:
        """How many members are indexed.

        Raises:
            IndexDamaged: As lengths().
        """
        return int(np.count_nonzero(self.lengths()))
