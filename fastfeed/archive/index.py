"""The index of a dataset: what the columns of a column file mean, and numpy views of them. README.md §4.2.

There is no Python object per sample: a row is looked up when it is used, and its bounds are proven then.
"""

import mmap
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from fastfeed.archive import columns
from fastfeed.archive.bytestrings import ByteStrings
from fastfeed.archive.columns import BYTES, STARTS, ColumnData
from fastfeed.archive.regular import open_regular
from fastfeed.archive.strings import HINT, JpegRows
from fastfeed.archive.strings import Strings as Strings  # noqa: PLC0414 - what a column of the index may be
from fastfeed.archive.strings import Texts as Texts  # noqa: PLC0414
from fastfeed.archive.usercolumn import KIND_OF, USER, UserKind
from fastfeed.archive.usercolumn import UserColumn as UserColumn  # noqa: PLC0414 - this module is the writer's door to the index
from fastfeed.errors import IndexDamaged, VersionUnsupported

SAMPLE, MEMBER = "sample", "member"
_CHUNK_ROWS = 1 << 16
UNREAD = -1
"""In place of a checksum: nobody has read the payload before."""
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
    (MEMBER, "jpeg_intervals"): BYTES,
    (MEMBER, "pixels_xxh3"): "uint64",
}


class Member(NamedTuple):
    """One member's place in its shard and its checksum; 0 and UNREAD where the index has no such columns."""

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
    """xxh3, codec, width, height, orientation by name, a member a row; where rows of JPEGs were indexed also jpeg_rows
    (ByteStrings) and pixels_xxh3."""
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
        for name in ("codec", "width", "height", "orientation", "pixels_xxh3", "jpeg_intervals"):
            content = self.records.get(name)
            parts: tuple[object, ...] = (content,)
            if isinstance(content, ByteStrings):
                parts = (content.starts, content.data)
            if content is not None:
                listed.append(ColumnData(MEMBER, name, _OPTIONAL[MEMBER, name], parts, required=False))
        listed.append(ColumnData(SAMPLE, "key", BYTES, _strings(self.keys)))
        listed.append(ColumnData(MEMBER, "source", BYTES, _strings(self.sources), required=False))
        for column in self.user:
            kind, parts = column.stored(len(self.keys))
            listed.append(ColumnData(SAMPLE, USER + column.name, kind, parts, required=False))
        return listed


def _starts(lengths: Iterable[int]) -> NDArray[np.uint64]:
    found = np.fromiter(chain((0,), lengths), dtype=np.uint64)
    return np.cumsum(found, out=found)


def _strings(values: Sequence[str]) -> tuple[object, object]:
    text = "".join(values)
    if text.isascii():
        return _starts(map(len, values)), text.encode("ascii")
    raw = [os.fsencode(value) for value in values]
    return _starts(map(len, raw)), b"".join(raw)


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

    hint = HINT
    """What to do where the file is damaged."""
    gone = "Restore the .fastfeed folder from a copy, or pack again."
    """What to do where the file cannot be opened."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self.table, self._map = _map(path)
        except OSError as error:
            msg = f"the index cannot be opened: {error.strerror}"
            raise IndexDamaged(msg, path=path, hint=self.gone) from error
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
        return Strings(self.array(table, name), self._map[start:stop], column, self.path, self.hint)

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
            raise IndexDamaged(msg, path=self.path, sample=row, expected="0 or 1", got=int(values[row]), hint=HINT)
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

    A subclass names other columns: the index of tars read in place (archive/tars.py), the one of plain files
    (source/plain.py).

    Args:
        path: The index file.
        samples: Rows that the manifest promises; None where there is no manifest beside the index.
        members: The same of members.

    Raises:
        IndexDamaged: The head breaks a rule, a needed column is missing, or row counts differ from the manifest's.
        VersionUnsupported: A later format, or a required column that this release does not know.
    """

    required: Mapping[tuple[str, str], str] = _REQUIRED
    """(table, column) -> type: what must be there."""
    optional: Mapping[tuple[str, str], str] = _OPTIONAL

    def __init__(self, path: str, samples: int | None = None, members: int | None = None) -> None:
        super().__init__(path)
        self._prove(samples, members)
        self.samples, self.members = self.table.tables[SAMPLE], self.table.tables[MEMBER]
        self._starts = self.array(SAMPLE, "members")
        self._fields, self._sizes = self.array(MEMBER, "field"), self.array(MEMBER, "size")
        self._offsets = self.array(MEMBER, "offset") if self.has(MEMBER, "offset") else None
        self._digests = self.array(MEMBER, "xxh3") if self.has(MEMBER, "xxh3") else None
        self.keys = self.strings(SAMPLE, "key")
        indexed = (MEMBER, "jpeg_intervals") in self.optional and self.has(MEMBER, "jpeg_intervals")
        self.jpeg_rows = JpegRows(self.strings(MEMBER, "jpeg_intervals")) if indexed else None
        """Where the rows of each JPEG begin; None where none is indexed."""

    def _prove(self, samples: int | None, members: int | None) -> None:
        rows = {SAMPLE: samples, MEMBER: members}
        if samples is not None and dict(self.table.tables) != rows:
            msg = "the index has not the rows that the manifest promises"
            raise IndexDamaged(msg, path=self.path, expected=rows, got=dict(self.table.tables), hint=self.hint)
        for (table, name), kind in {**self.required, **self.optional}.items():
            column = self.table.columns.get((table, name))
            if column is not None and column.type != kind:
                msg = f"column {name} of {table} has the wrong type"
                raise IndexDamaged(msg, path=self.path, expected=kind, got=column.type, hint=self.hint)
            if column is None and (table, name) in self.required:
                msg = f"the index has no column {name} of {table}"
                raise IndexDamaged(msg, path=self.path, hint=self.hint)
        for (table, name), column in self.table.columns.items():
            known = (table, name) in self.required or (table, name) in self.optional
            if column.required and not known:
                msg = f"the index needs a reader that knows column {name} of {table}"
                raise VersionUnsupported(msg, path=self.path, hint="Install a newer fastfeed.")

    def rows_with(
        self, table: str, name: str, wanted: AbstractSet[bytes], rows: range | None = None
    ) -> Iterator[tuple[int, bytes]]:
        """Rows of a column of byte strings that have one of the wanted values, and which.

        Args:
            table: Of the column.
            name: Of the column.
            wanted: Values.
            rows: Where to look, a range without steps; everywhere by default.

        Raises:
            IndexDamaged: The column's ranges fall or leave it.
        """
        if not wanted:
            return
        starts, data = self.strings(table, name).ranges()
        rows = range(len(starts) - 1) if rows is None else rows
        for first in range(rows.start, rows.stop, _CHUNK_ROWS):  # no list as long as the column
            ends = starts[first : min(first + _CHUNK_ROWS, rows.stop) + 1].tolist()
            for at, (start, stop) in enumerate(pairwise(ends)):
                value = bytes(data[start:stop])
                if value in wanted:
                    yield first + at, value

    def sample_of(self, member: int) -> int:
        """The sample that a row of the member table belongs to."""
        return int(self._starts.searchsorted(member, side="right")) - 1

    def member_rows(self, sample: int) -> range:
        """Rows of the member table that belong to a sample.

        Raises:
            IndexDamaged: The range lies outside the member table.
        """
        start, stop = int(self._starts[sample]), int(self._starts[sample + 1])
        if not start <= stop <= self.members:
            msg = "a sample's members lie outside the index"
            got = f"[{start}, {stop})"
            raise IndexDamaged(msg, path=self.path, sample=sample, expected=f"at most {self.members}", got=got, hint=self.hint)
        return range(start, stop)

    def member(self, row: int) -> Member:
        """One row of the member table; its bounds are the archive's business (archive/dataset.py)."""
        offset = 0 if self._offsets is None else int(self._offsets[row])
        digest = UNREAD if self._digests is None else int(self._digests[row])
        return Member(int(self._fields[row]), offset, int(self._sizes[row]), digest)

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
    known = {name for table, name in (*index.required, *index.optional) if table in {SAMPLE, MEMBER} and index.has(table, name)}
    return sorted(known - {"members", "field", "jpeg_intervals", "mtime_ns", "path", "pixels_xxh3", "some_label", "written"})


def repeated(keys: Sequence[bytes]) -> list[tuple[int, int]]:
    """Pairs (first row, later row) of equal keys, by the later row."""
    hashes = np.fromiter(map(xxhash.xxh3_64_intdigest, keys), dtype=np.uint64, count=len(keys))
    order = np.argsort(hashes, kind="stable")
    same = np.flatnonzero(hashes[order[1:]] == hashes[order[:-1]])
    pairs: list[tuple[int, int]] = []
    first = -1
    for at in same.tolist():
        one, other = int(order[at]), int(order[at + 1])
        first = first if pairs and pairs[-1][1] == one else one
        if keys[first] == keys[other]:
            pairs.append((first, other))
    return sorted(pairs, key=lambda pair: pair[1])
