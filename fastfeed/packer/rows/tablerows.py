"""Rows of Parquet and Arrow files by number: what a worker needs of a table, once names and classes are settled.

Rows are decoded a few at a time, so memory stays flat as long as they are asked for in order. In random order they are
gathered: the table is passed once for each part of a shard that memory takes.
"""

import os
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from fastfeed.errors import FastfeedError, SourceChanged
from fastfeed.packer.rows.labels import LabelReader, to_row
from fastfeed.packer.rows.source import GATHER_BYTES, Row, RowFailed
from fastfeed.packer.rows.tablefile import BATCH_BYTES, BATCH_ROWS, Cursor, TableFile
from fastfeed.packer.rows.values import Names

_OPEN_FILES = 4


class Facts(NamedTuple):
    """What is known of a file."""

    path: str
    counts: Sequence[int]
    """Rows of each group."""
    size_bytes: int
    """Of all of them, uncompressed."""
    stamp: Sequence[int]
    """Size and mtime: if they are what they were, so is what the file holds."""


def stamp(path: str) -> tuple[int, int]:
    """Size of a file, and the time of its last change in ns."""
    facts = os.stat(path)
    return facts.st_size, facts.st_mtime_ns


def _prove(file: Facts) -> None:
    try:
        now = stamp(file.path)
    except OSError as error:
        msg = f"the file has gone: {error.strerror}"
        raise SourceChanged(msg, path=file.path) from error
    if now != tuple(file.stamp):
        msg = "the file was written to after its rows were counted"
        raise SourceChanged(msg, path=file.path, expected=tuple(file.stamp), got=now)


class RowNames(Sequence[str]):
    """How messages and skip lists call the rows: file and row in it, from 0."""

    def __init__(self, paths: Sequence[str], starts: Sequence[int]) -> None:
        self._files, self._starts = [os.path.basename(path) for path in paths], starts

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, number: Any) -> Any:  # noqa: ANN401 - int or slice, as every sequence
        if isinstance(number, slice):
            return [self[at] for at in range(*number.indices(len(self)))]
        number = range(len(self))[number]
        file = bisect_right(self._starts, number) - 1
        return f"{self._files[file]} row {number - self._starts[file]}"


class TableRows:
    """Rows of files with one schema.

    Args:
        files: In order.
        names: How columns become fields.
        labels: How labels become numbers.
    """

    def __init__(self, files: Sequence[Facts], names: Names, labels: LabelReader) -> None:
        self.files, self.names, self.labels = files, names, labels
        starts = [0, *accumulate(sum(file.counts) for file in files)]
        self.row_names = RowNames([file.path for file in files], starts)
        self._means = [max(1, file.size_bytes // max(1, sum(file.counts))) for file in files]
        self._groups = [(file, group) for file in range(len(files)) for group in range(len(files[file].counts))]
        self._group_starts = [0, *accumulate(files[file].counts[group] for file, group in self._groups)]
        self._open: OrderedDict[int, TableFile] = OrderedDict()
        self._cursor: tuple[int, Cursor] | None = None

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> "TableRows":
        """In a worker."""
        labels = LabelReader(spec["classes"], labelled=spec["labelled"])
        return cls([Facts(*file) for file in spec["files"]], Names(**spec["names"]), labels)

    def to_spec(self, classes: Sequence[str] | None) -> Mapping[str, object]:
        """What from_spec takes."""
        return {
            "kind": "parquet", "files": self.files, "names": self.names.to_json(), "classes": classes,
            "labelled": self.labels.labelled,
        }  # fmt: skip

    def spread(self, places: int, each: int) -> list[int]:
        """Numbers of a few rows: some at the start of each of so many groups that are spread evenly."""
        filled = [at for at in range(len(self._groups)) if self._group_starts[at + 1] > self._group_starts[at]]
        chosen = sorted({filled[at * (len(filled) - 1) // max(1, places - 1)] for at in range(places)})
        each = max(each, -(-places * each // len(chosen)))
        return [
            number
            for at in chosen
            for number in range(self._group_starts[at], min(self._group_starts[at + 1], self._group_starts[at] + each))
        ]

    def mean_bytes(self, number: int) -> int:
        """About how much a row holds."""
        return self._means[self._groups[self._group_of(number)][0]]

    def _group_of(self, number: int) -> int:
        return bisect_right(self._group_starts, number) - 1

    def values(self, number: int, *, alone: bool = False) -> dict[str, Any]:
        """A row as Python's values.

        Args:
            number: Of the row.
            alone: Decode no more than this one: the next that is asked for may be far.

        Raises:
            SourceUnreadable: Its group is damaged.
            ValueError: A value that Python has not (a date beyond its range).
        """
        group = self._group_of(number)
        at = number - self._group_starts[group]
        if self._cursor is None or self._cursor[0] != group or not self._cursor[1].can_reach(at):
            file, own = self._groups[group]
            _prove(self.files[file])
            rows = max(1, min(BATCH_ROWS, BATCH_BYTES // self._means[file]))
            self._cursor = group, Cursor(self._file(file), own, rows)
        return self._cursor[1].row(at, alone=alone)

    def _file(self, file: int) -> TableFile:
        """Open; the last few are kept so."""
        found = self._open.get(file)
        if found is None:
            found = self._open[file] = TableFile(self.files[file].path)
            if len(self._open) > _OPEN_FILES:
                self._open.popitem(last=False)[1].close()
        self._open.move_to_end(file)
        return found

    def rows(self, numbers: Sequence[int]) -> Iterator[Row | RowFailed]:
        """Rows in the order asked for; quick where that is the files' own."""
        if all(before < after for before, after in pairwise(numbers)):
            yield from (self._row(number, alone=False, prove=number == numbers[-1]) for number in numbers)
            return
        for part in self._parts(numbers):
            last = max(part, default=0)
            held = {number: self._row(number, alone=True, prove=number == last) for number in sorted(part)}
            yield from (held.pop(number) for number in part)

    def _parts(self, numbers: Sequence[int]) -> Iterator[Sequence[int]]:
        """Cut so that the rows of a part fit into memory."""
        first = size = 0
        for at, number in enumerate(numbers):
            size += self.mean_bytes(number)
            if size > GATHER_BYTES:
                yield numbers[first : at + 1]
                first, size = at + 1, 0
        yield numbers[first:]

    def _row(self, number: int, *, alone: bool, prove: bool) -> Row | RowFailed:
        try:
            values = self.values(number, alone=alone)
            if prove:  # again: what was written into the file meanwhile must not pass
                _prove(self.files[self._groups[self._group_of(number)][0]])
            return to_row(self.names.encode_row(values), self.labels)
        except FastfeedError as error:
            kind = "changed" if isinstance(error, SourceChanged) else "unreadable"
            return RowFailed(number, self.row_names[number], kind, str(error))
        except (ValueError, OverflowError) as error:
            return RowFailed(number, self.row_names[number], "unreadable", f"a value that Python has not ({error})")
