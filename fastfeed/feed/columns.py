"""Columns of a dataset by name, a sample a row: what the format knows, what the user packed, what was joined at opening.

One name may be in use three times, so there is an order and a way around it:

1. a name of the format (``key label source size bytes offset xxh3 codec width height orientation``) always means that, also
   in a dataset that does not have it: what ``width`` means does not depend on the dataset. ``bytes`` is ``size``.
2. any other name is the joined column, if there is one: who joins captions anew wants them;
3. else the column that was packed.

``extra.NAME`` is always the joined column and ``x.NAME`` always the packed one.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfeed.archive.catalog import Catalog
from fastfeed.archive.index import MEMBER, SAMPLE, MappedColumns, Strings, Texts, column_names
from fastfeed.archive.shard import CLASS_FIELD
from fastfeed.archive.usercolumn import USER
from fastfeed.errors import UsageError
from fastfeed.feed.textrows import TextRows
from fastfeed.feed.views import Picked
from fastfeed.media import is_image_field
from fastfeed.sample import escape

EXTRA = "extra."
KNOWN = frozenset({
    "key", "label", "source", "size", "bytes", "offset", "xxh3", "codec", "width", "height", "orientation",
})  # fmt: skip
"""Names that mean the format's own columns, whether a dataset has them or not."""

Column = NDArray[Any] | Sequence[Any]


class Columns:
    """The columns of one dataset.

    Args:
        archive: The dataset.
        joined: Column files of side tables, a sample a row.

    Raises:
        UsageError: Two side tables have a column of one name.
    """

    def __init__(self, archive: Catalog, joined: Sequence[MappedColumns] = ()) -> None:
        self._archive = archive
        self._joined: dict[str, MappedColumns] = {}
        for table in joined:
            for name in table.user:
                if name in self._joined:
                    msg = f"two of the tables in extra= have a column {name!r}"
                    raise UsageError(msg, path=archive.path, hint="Rename it in one of them.")
                self._joined[name] = table

    def names(self) -> list[str]:
        """Names that column() takes, each column once, by its shortest name; sorted."""
        packed = self._archive.index
        joined = [name if self._resolved(name) == (name, file) else EXTRA + name for name, file in self._joined.items()]
        own = [name if self._resolved(name) == (name, packed) else USER + name for name in packed.user]
        return sorted([*column_names(packed), *joined, *own])

    def has(self, name: str) -> bool:
        """Whether get() knows a name."""
        return self._resolved(name)[1] is not None or ("size" if name == "bytes" else name) in column_names(self._archive.index)

    def _resolved(self, name: str) -> tuple[str, MappedColumns | None]:
        """The user's name of a column and the file that it is in; None for a column of the format, or no column."""
        packed = self._archive.index
        for prefix, there in ((USER, dict.fromkeys(packed.user, packed)), (EXTRA, self._joined)):
            bare = name.removeprefix(prefix)
            if bare != name and bare in there:
                return bare, there[bare]
        if name in KNOWN:
            return name, None
        return name, self._joined.get(name, packed if name in packed.user else None)

    def get(self, name: str, field: str | None = None) -> Column:
        """A column over all samples of the dataset.

        Args:
            name: As names() has it, or with its prefix, or "bytes".
            field: Of a column that is a member's: whose; by default the only image field, else the only one beside cls.

        Returns:
            A read-only view of the mapped file: an array, or a sequence of str (of bytes for key and source).

        Raises:
            UsageError: No such column, or the field must be named, or there is none to name.
            IndexDamaged: A truth value that is none.
        """
        bare, file = self._resolved(name)
        if file is not None:
            if field is not None:
                msg = f"column {name!r} belongs to samples, not to a field of them"
                raise UsageError(msg, path=self._archive.path, got=f"field={field!r}")
            return file.user_column(bare)
        return self._known("size" if name == "bytes" else name, field)

    def _known(self, name: str, field: str | None) -> Column:
        index = self._archive.index
        if name not in column_names(index):
            msg = f"there is no column {name!r}"
            error = UsageError(msg, path=self._archive.path, expected=f"one of {', '.join(self.names())}", got=repr(name))
            own = [prefix + name for prefix, there in ((EXTRA, self._joined), (USER, index.user)) if name in there]
            error.hint = f"The user's own is {own[0]}." if own else None
            raise error
        if index.has(SAMPLE, name):
            return index.strings(SAMPLE, name) if name == "key" else index.array(SAMPLE, name)
        rows = self._rows_of(self._field(field))
        if name == "source":
            return Picked(index.strings(MEMBER, name), rows)
        values = index.array(MEMBER, name)
        if isinstance(rows, slice):
            return values[rows]
        picked = values[np.maximum(rows, 0)]
        picked[rows < 0] = 0
        picked.flags.writeable = False
        return picked

    def _field(self, field: str | None) -> int:
        names = self._archive.fields
        if field is None:
            images = [name for name in names if is_image_field(name)]
            others = [name for name in names if name != CLASS_FIELD]
            found = images if len(images) == 1 else others
            if len(found) != 1:
                msg = "samples have several fields: say of which"
                raise UsageError(msg, path=self._archive.path, expected=f"field= one of {', '.join(names)}")
            field = found[0]
        if field not in names:
            msg = f"there is no field {field!r}"
            raise UsageError(msg, path=self._archive.path, expected=f"one of {', '.join(names)}", got=repr(field))
        return names.index(field)

    def _rows_of(self, number: int) -> "slice | NDArray[np.int64]":
        """Member row of a field in each sample: a slice where all samples are alike, else an array with -1 for none."""
        index, samples = self._archive.index, len(self._archive)
        numbers, starts = index.field_numbers(), index.sample_starts()
        each = len(numbers) // max(1, samples)
        if each and len(numbers) == each * samples:
            slot = int(np.argmax(numbers[:each] == number))
            if bool((numbers[slot::each] == number).all()):
                return slice(slot, None, each)
        rows = np.full(samples, -1, dtype=np.int64)
        hits = np.flatnonzero(numbers == number)
        rows[np.searchsorted(starts, hits, side="right") - 1] = hits
        return rows

    def cells(self, names: Sequence[str]) -> dict[str, Callable[[int], Any]]:
        """For each column a function that gives the value at a position as a sample holds it: int, float, bool or str."""
        return {name: _cell(self.get(name)) for name in names}


def _cell(column: Column) -> Callable[[int], Any]:
    if isinstance(column, np.ndarray):
        return lambda position: column[position].item()
    if isinstance(column, Texts):
        return lambda position: column[position]
    return lambda position: escape(column[position])


def picked(column: Column, positions: NDArray[np.int64] | None) -> Column:
    """The rows of a column that a view shows, in its order; a copy of numbers, read-only, and a sequence of strings."""
    if positions is None:
        return column
    if isinstance(column, np.ndarray):
        rows = column[positions]
        rows.flags.writeable = False
        return rows
    return Picked(column, positions, "" if isinstance(column, Texts) else b"")


def workable(column: Column) -> "NDArray[Any] | TextRows":
    """A column as where() and split() work on it."""
    return column if isinstance(column, np.ndarray) else TextRows.of(column)


def codes(given: Any, rows: int) -> NDArray[np.int64]:  # noqa: ANN401 - a column, or what a user gave in its place
    """A number for each row; equal rows (all NaN among them) have equal numbers.

    Raises:
        UsageError: Not one value a row.
    """
    column = given if isinstance(given, Strings | Texts | Picked) else np.asarray(given)
    shape = column.shape if isinstance(column, np.ndarray) else (len(column),)
    if shape != (rows,):
        msg = "what a split goes by has one value for each sample"
        raise UsageError(msg, expected=f"shape ({rows},)", got=f"shape {shape}")
    if isinstance(column, np.ndarray):
        return np.unique(column, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return TextRows.of(column).codes()
