"""The index of a dataset: what the columns of a column file mean, and numpy views of them. README.md §4.2.

There is no Python object per sample: a row is looked up when it is used, and its bounds are proven then.
"""

import mmap
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastfeed.archive import columns
from fastfeed.archive.columns import BYTES, STARTS, ColumnData
from fastfeed.archive.regular import open_regular
from fastfeed.archive.usercolumn import KIND_OF, USER, UserKind
from fastfeed.archive.usercolumn import UserColumn as UserColumn  # noqa: PLC0414 - this module is the writer's door to the index
from fastfeed.errors import IndexDamaged, VersionUnsupported

SAMPLE, MEMBER = "sample", "member"
_REQUIRED = {
    (SAMPLE, "members"): STARTS,
    (SAMPLE, "key"): BYTES,
    (MEMBER, "field"): "uint16",
    (MEMBER, "offset"): "uint64",
    (MEMBER, "size"): "uint64",
    (MEMBER, "xxh3"): "uint64",
}
_OPTIONAL = {
    (SAMPLE, "label"): "int64",
    (MEMBER, "source"): BYTES,
    (MEMBER, "codec"): "uint8",
    (MEMBER, "width"): "uint32",
    (MEMBER, "height"): "uint32",
    (MEMBER, "orientation"): "uint8",
    (MEMBER, "jpeg_rows"): BYTES,
}


class Member(NamedTuple):
    """One member's place in its shard and its checksum."""

    field: int
    """Number into the manifest's fields."""
    offset: int
    """First payload byte in the shard."""
    size: int
    xxh3: int


@dataclass(frozen=True, slots=True)
class IndexData:
    """All columns of an index to be written, row by row in storage order. Arrays are anything with a buffer."""

    keys: Sequence[str]
    labels: object | None
    """int64 a sample, None without classes."""
    members_per_sample: Iterable[int]
    sources: Sequence[str]
    """Source path a member, undecodable bytes as surrogate escapes; empty for a member that pack made itself."""
    fields: object
    """uint16 a member."""
    offsets: object
    sizes: object
    records: dict[str, object]
    """xxh3, codec, width, height, orientation by name, a member a row."""
    user: Sequence[UserColumn] = ()
    """Columns that the user gave, a sample a row, in the order in which they shall lie in the file."""

    def columns(self) -> list[ColumnData]:
        """The columns in the order in which they lie in the file."""
        listed = [
            ColumnData(SAMPLE, "members", STARTS, (_starts(self.members_per_sample),)),
            ColumnData(MEMBER, "field", "uint16", (self.fields,)),
            ColumnData(MEMBER, "offset", "uint64", (self.offsets,)),
            ColumnData(MEMBER, "size", "uint64", (self.sizes,)),
            ColumnData(MEMBER, "xxh3", "uint64", (self.records["xxh3"],)),
        ]
        if self.labels is not None:
            listed.append(ColumnData(SAMPLE, "label", "int64", (self.labels,), required=False))
        for name in ("codec", "width", "height", "orientation"):
            kind = _OPTIONAL[MEMBER, name]
            listed.append(ColumnData(MEMBER, name, kind, (self.records[name],), required=False))
        listed.append(ColumnData(SAMPLE, "key", BYTES, _strings(self.keys)))
        listed.append(ColumnData(MEMBER, "source", BYTES, _strings(self.sources), required=False))
        for column in self.user:
            kind, parts = column.stored(len(self.keys))
            listed.append(ColumnData(SAMPLE, USER + column.name, kind, parts, required=False))
        return listed


def _starts(lengths: Iterable[int]) -> NDArray[np.uint64]:
    return np.fromiter(accumulate(lengths, initial=0), dtype=np.uint64)


def _strings(values: Sequence[str]) -> tuple[object, object]:
    text = "".join(values)
    if text.isascii():
        return _starts(map(len, values)), text.encode("ascii")
    raw = [os.fsencode(value) for value in values]
    return _starts(map(len, raw)), b"".join(raw)


class Strings(Sequence[bytes]):
    """A column of byte strings, read row by row from the mapped file."""

    __slots__ = ("_column", "_data", "_path", "_starts")

    def __init__(self, starts: NDArray[Any], data: memoryview, column: columns.Column, path: str) -> None:
        self._starts, self._data, self._column, self._path = starts, data, column, path

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, row: Any) -> Any:  # noqa: ANN401 - int or slice, as every sequence
        if isinstance(row, slice):
            return [self[at] for at in range(*row.indices(len(self)))]
        row = range(len(self))[row]
        start, stop = int(self._starts[row]), int(self._starts[row + 1])
        if not start <= stop <= len(self._data):
            msg = f"row {row} of column {self._column.name} lies outside its column"
            raise IndexDamaged(
                msg, path=self._path, expected=f"at most {len(self._data)}", got=f"[{start}, {stop})", hint=_HINT
            )
        return bytes(self._data[start:stop])

    def ranges(self) -> tuple[NDArray[np.int64], memoryview]:
        """Where each row lies, for work on whole columns: the starts, int64 of shape (rows + 1,), and the bytes that they cut.

        Raises:
            IndexDamaged: The ranges fall or leave their column.
        """
        starts: NDArray[np.int64] = self._starts.view("<i8")
        if int(starts[0]) < 0 or int(starts[-1]) > len(self._data) or bool((starts[1:] < starts[:-1]).any()):
            msg = f"the ranges of column {self._column.name} fall or leave their column"
            raise IndexDamaged(msg, path=self._path, expected=f"0 to {len(self._data)}", hint=_HINT)
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
            raise IndexDamaged(msg, path=self.path, sample=row, got=data[:80], hint=_HINT) from error


_HINT = "Run fastfeed verify; restore .fastfeed from a copy, or pack again."


def _map(path: str) -> tuple[columns.ColumnTable, memoryview]:
    """The proven head of a column file, and all of the file mapped."""
    descriptor = open_regular(path)
    try:
        size = os.fstat(descriptor).st_size
        head = os.pread(descriptor, columns.table_bytes(os.pread(descriptor, columns.HEAD.size, 0)), 0)
        table = columns.read_table(head, size, path)
        return table, memoryview(mmap.mmap(descriptor, size, access=mmap.ACCESS_READ))
    finally:
        os.close(descriptor)


class MappedColumns:
    """A column file, its head proven, its columns mapped.

    Args:
        path: The file.

    Raises:
        IndexDamaged: The head breaks a rule, or the file cannot be opened.
        VersionUnsupported: A later version of the format.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self.table, self._map = _map(path)
        except OSError as error:
            msg = f"the index cannot be opened: {error.strerror}"
            raise IndexDamaged(msg, path=path, hint="Restore the .fastfeed folder from a copy, or pack again.") from error
        self.user: dict[str, UserKind] = {
            name.removeprefix(USER): KIND_OF[column.type]
            for (table, name), column in self.table.columns.items()
            if table == SAMPLE and name.startswith(USER) and column.type in KIND_OF
        }
        """Columns that the user gave: name -> kind, in file order."""

    def array(self, table: str, name: str) -> NDArray[Any]:
        """A read-only view of a column of numbers (the starts of a column of variable length).

        Raises:
            KeyError: No such column.
        """
        column = self.table.columns[table, name]
        start, stop = column.extents[0]
        kind = "uint64" if column.type in {STARTS, BYTES} else column.type
        return np.frombuffer(self._map[start:stop], dtype=np.dtype(kind).newbyteorder("<"))

    def strings(self, table: str, name: str) -> Strings:
        """A column of byte strings.

        Raises:
            KeyError: No such column.
        """
        column = self.table.columns[table, name]
        start, stop = column.extents[1]
        return Strings(self.array(table, name), self._map[start:stop], column, self.path)

    def user_column(self, name: str) -> "NDArray[Any] | Texts":
        """A column that the user gave: a read-only view of int64, float64 or bool, or a sequence of str.

        Raises:
            KeyError: No such column.
            IndexDamaged: A truth value is neither 0 nor 1. (Texts are proven row by row, when they are used.)
        """
        kind, stored = self.user[name], USER + name
        if kind == "text":
            return Texts(self.strings(SAMPLE, stored), name, self.path)
        values = self.array(SAMPLE, stored)
        if kind != "bool":
            return values
        if len(values) and int(values.max()) > 1:
            row = int((values > 1).argmax())
            msg = f"row {row} of column {name!r} is no truth value"
            raise IndexDamaged(msg, path=self.path, sample=row, expected="0 or 1", got=int(values[row]), hint=_HINT)
        return values.view(np.bool_)

    def prove(self) -> None:
        """Check each column's bytes against its checksum.

        Raises:
            IndexDamaged: They differ.
        """
        columns.proven_columns(self._map, self.path)

    def has(self, table: str, name: str) -> bool:
        """Whether there is such a column."""
        return (table, name) in self.table.columns


class DatasetIndex(MappedColumns):
    """An index file, its head proven, its columns mapped.

    Args:
        path: The index file.
        samples: Rows that the manifest promises.
        members: The same of members.

    Raises:
        IndexDamaged: The head breaks a rule, a needed column is missing, or row counts differ from the manifest's.
        VersionUnsupported: A later format, or a required column that this release does not know.
    """

    def __init__(self, path: str, samples: int, members: int) -> None:
        super().__init__(path)
        self._prove(samples, members)
        self.samples, self.members = samples, members
        self._starts = self.array(SAMPLE, "members")
        self._fields, self._offsets = self.array(MEMBER, "field"), self.array(MEMBER, "offset")
        self._sizes, self._digests = self.array(MEMBER, "size"), self.array(MEMBER, "xxh3")
        self.keys = self.strings(SAMPLE, "key")

    def _prove(self, samples: int, members: int) -> None:
        rows = {SAMPLE: samples, MEMBER: members}
        if dict(self.table.tables) != rows:
            msg = "the index has not the rows that the manifest promises"
            raise IndexDamaged(msg, path=self.path, expected=rows, got=dict(self.table.tables), hint=_HINT)
        for (table, name), kind in {**_REQUIRED, **_OPTIONAL}.items():
            column = self.table.columns.get((table, name))
            if column is not None and column.type != kind:
                msg = f"column {name} of {table} has the wrong type"
                raise IndexDamaged(msg, path=self.path, expected=kind, got=column.type, hint=_HINT)
            if column is None and (table, name) in _REQUIRED:
                msg = f"the index has no column {name} of {table}"
                raise IndexDamaged(msg, path=self.path, hint=_HINT)
        for (table, name), column in self.table.columns.items():
            known = (table, name) in _REQUIRED or (table, name) in _OPTIONAL
            if column.required and not known:
                msg = f"the index needs a reader that knows column {name} of {table}"
                raise VersionUnsupported(msg, path=self.path, hint="Install a newer fastfeed.")

    def member_rows(self, sample: int) -> range:
        """Rows of the member table that belong to a sample.

        Raises:
            IndexDamaged: The range lies outside the member table.
        """
        start, stop = int(self._starts[sample]), int(self._starts[sample + 1])
        if not start <= stop <= self.members:
            msg = "a sample's members lie outside the index"
            got = f"[{start}, {stop})"
            raise IndexDamaged(msg, path=self.path, sample=sample, expected=f"at most {self.members}", got=got, hint=_HINT)
        return range(start, stop)

    def member(self, row: int) -> Member:
        """One row of the member table; its bounds are the archive's business (archive/dataset.py)."""
        return Member(int(self._fields[row]), int(self._offsets[row]), int(self._sizes[row]), int(self._digests[row]))

    def field_numbers(self) -> NDArray[np.uint16]:
        """The field of each member, as numbers into the manifest's fields; shape (members,)."""
        return self._fields

    def sample_starts(self) -> NDArray[np.uint64]:
        """First member of each sample, and one more entry; shape (samples + 1,)."""
        return self._starts


def column_names(index: DatasetIndex) -> list[str]:
    """Columns of the format that have a value a sample, or a value a member of it: what a user may ask for.

    A column that this release does not know is not among them, nor are those that the user gave (DatasetIndex.user).
    """
    known = {name for table, name in (*_REQUIRED, *_OPTIONAL) if index.has(table, name)}
    return sorted(known - {"members", "field", "jpeg_rows"})
