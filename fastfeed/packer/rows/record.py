"""The record of a finished shard of rows: everything of its samples and members that the index needs, and its checksum."""

import json
import os
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any, BinaryIO

from fastfeed.archive import columns
from fastfeed.archive.bytestrings import ByteStrings
from fastfeed.archive.columns import BYTES, ColumnData, proven_columns
from fastfeed.errors import FastfeedError
from fastfeed.media import Probe
from fastfeed.packer.rows.scalars import ScalarColumn
from fastfeed.packer.rows.source import RowIndex, Scalar

_NO_LABEL = -(1 << 63)
_MEMBERS = {
    "field": ("uint16", "H"), "made": ("uint8", "B"), "offset": ("uint64", "Q"), "size": ("uint64", "Q"),
    "xxh3": ("uint64", "Q"), "width": ("uint32", "I"), "height": ("uint32", "I"), "codec": ("uint8", "B"),
    "orientation": ("uint8", "B"),
}  # fmt: skip
"""Columns of the members: type in the file, and of the array."""


def _member_columns() -> "dict[str, array[int]]":
    return {name: array(code) for name, (_, code) in _MEMBERS.items()}


@dataclass(slots=True)
class RowRecord:
    """A shard's samples and members, in storage order."""

    keys: list[str] = field(default_factory=list)
    members_per_sample: "array[int]" = field(default_factory=lambda: array("Q"))
    labels: "array[int]" = field(default_factory=lambda: array("q"))
    """_NO_LABEL where a sample has none."""
    scalars: dict[str, ScalarColumn] = field(default_factory=dict)
    """Typed columns."""
    fields: list[str] = field(default_factory=list)
    """The fields that there are; members name them by their number here."""
    sources: list[str] = field(default_factory=list)
    """Original path of each member, empty for none."""
    members: "dict[str, array[int]]" = field(default_factory=_member_columns)
    """A member a row: field, made (a class member, which pack made), offset, size, xxh3, and what its header says."""
    sha256: str = ""
    size_bytes: int = 0
    """Of the shard's file."""
    tar_bytes: int = 0
    order: str = ""
    """Digest of the order that it was written for."""
    jpeg_rows: ByteStrings = field(default_factory=ByteStrings)
    """A member a row, where rows of JPEGs are indexed; else without rows."""
    pixels: "array[int]" = field(default_factory=lambda: array("Q"))
    """The same: the digest of the decoded pixels."""
    outcomes: dict[str, int] = field(default_factory=dict)
    """What became of the images whose rows were to be indexed, and of how many."""
    _numbers: dict[str, int] = field(default_factory=dict)

    def label(self, at: int) -> int | None:
        """The class number of a sample."""
        return None if self.labels[at] == _NO_LABEL else self.labels[at]

    @property
    def is_labelled(self) -> bool | None:
        """Whether all samples have a class (True) or none has (False); None where only some have."""
        missing = self.labels.count(_NO_LABEL)
        return None if 0 < missing < len(self.labels) else missing == 0

    def add_sample(self, key: str, members: int, label: int | None, scalars: Mapping[str, Scalar] | None) -> None:
        """A sample; its members are added by add_member."""
        for name, value in scalars.items() if scalars else ():
            column = self.scalars.get(name)
            if column is None:
                column = self.scalars[name] = ScalarColumn()
            column.pad(len(self.keys))
            column.add(value)
        self.keys.append(key)
        self.members_per_sample.append(members)
        self.labels.append(_NO_LABEL if label is None else label)

    def add_member(  # noqa: PLR0913 - all that is known of one
        self, name: str, source: str, *, offset: int, size_bytes: int, xxh3: int, probe: Probe, made: bool = False
    ) -> None:
        """One member.

        Args:
            name: Its field.
            source: Its original path, empty for none.
            offset: First payload byte in the tar stream.
            size_bytes: Of the payload.
            xxh3: Of it.
            probe: What its header says.
            made: It is the class member, which pack made.
        """
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self.fields)
            self.fields.append(name)
        self.sources.append(source)
        columns = self.members
        columns["field"].append(number)
        columns["made"].append(made)
        columns["offset"].append(offset)
        columns["size"].append(size_bytes)
        columns["xxh3"].append(xxh3)
        columns["width"].append(probe.width)
        columns["height"].append(probe.height)
        columns["codec"].append(probe.codec)
        columns["orientation"].append(probe.orientation)

    def add_rows(self, index: RowIndex | None) -> None:
        """What became of the rows of the member that was added last; None for one that is no image."""
        starts, pixels = (b"", 0) if index is None else (index.starts, index.pixels)
        self.jpeg_rows.extend([starts])
        self.pixels.append(pixels)
        if index is not None:
            self.outcomes[index.outcome] = self.outcomes.get(index.outcome, 0) + 1

    def samples(self) -> Iterator[tuple[str, list[tuple[str, int]]]]:
        """Key, and field and checksum of each member, sample by sample."""
        first, fields, sums = 0, self.members["field"], self.members["xxh3"]
        for key, count in zip(self.keys, self.members_per_sample, strict=True):
            own = range(first, first + count)
            first += count
            yield key, [(self.fields[fields[at]], sums[at]) for at in own]

    # ------------------------------------------------------------------------------------------------ on the disk
    def save(self, file: BinaryIO) -> None:
        """Write it as a column file."""
        listed = [
            ColumnData("sample", "key", BYTES, _texts(self.keys)),
            ColumnData("sample", "members", "uint64", (self.members_per_sample,)),
            ColumnData("sample", "label", "int64", (self.labels,)),
            ColumnData("member", "source", BYTES, _texts(self.sources)),
            *(ColumnData("member", name, kind, (self.members[name],)) for name, (kind, _) in _MEMBERS.items()),
        ]
        tables = {"sample": len(self.keys), "member": len(self.sources), "shard": 1}
        for number, column in enumerate(self.scalars.values()):
            column.pad(len(self.keys))
            listed.append(ColumnData("sample", f"codes{number}", "uint8", (column.codes,)))
            parts: Sequence[tuple[str, str, tuple[object, ...]]] = (
                ("ints", "int64", (column.ints,)), ("floats", "float64", (column.floats,)),
                ("texts", BYTES, _texts(column.texts)),
            )  # fmt: skip
            for name, kind, content in parts:  # a table each: only samples that have such a value have a row
                table = f"{name}{number}"
                tables[table] = len(getattr(column, name))
                listed.append(ColumnData(table, "value", kind, content))
        facts = {
            "sha256": self.sha256, "order": self.order, "size_bytes": self.size_bytes, "tar_bytes": self.tar_bytes,
            "fields": self.fields, "columns": list(self.scalars), "outcomes": self.outcomes,
        }  # fmt: skip
        if self.pixels:
            listed.append(ColumnData("member", "jpeg_intervals", BYTES, (self.jpeg_rows.starts, self.jpeg_rows.data)))
            listed.append(ColumnData("member", "pixels", "uint64", (self.pixels,)))
        listed.append(ColumnData("shard", "facts", BYTES, _texts([json.dumps(facts)])))
        columns.write(file, tables, listed)

    @classmethod
    def load(cls, path: str) -> "RowRecord | None":
        """Read one; None where there is none or it is damaged: such a shard is written again."""
        try:
            with open(path, "rb") as file:
                raw = file.read()
            return _Raw(raw, path).record()
        except (FileNotFoundError, FastfeedError, KeyError, ValueError):
            return None


class _Raw:
    """A record's file, proven."""

    def __init__(self, raw: bytes, path: str) -> None:
        self._raw, self._columns = raw, proven_columns(raw, path)

    def record(self) -> RowRecord:
        """What is in it."""
        facts: dict[str, Any] = json.loads(self._texts("shard", "facts")[0])
        names, fields = facts.pop("columns"), facts.pop("fields")
        return RowRecord(
            keys=self._texts("sample", "key"), members_per_sample=self._numbers("sample", "members", "Q"),
            labels=self._numbers("sample", "label", "q"), sources=self._texts("member", "source"), fields=fields,
            members={name: self._numbers("member", name, code) for name, (_, code) in _MEMBERS.items()},
            scalars={name: self._scalars(number) for number, name in enumerate(names)},
            jpeg_rows=self._jpeg_rows(), pixels=self._numbers("member", "pixels", "Q") if self._has_rows else array("Q"),
            _numbers={name: number for number, name in enumerate(fields)}, **facts,
        )  # fmt: skip

    @property
    def _has_rows(self) -> bool:
        return ("member", "jpeg_intervals") in self._columns

    def _jpeg_rows(self) -> ByteStrings:
        found = ByteStrings()
        if self._has_rows:
            found.starts = self._numbers("member", "jpeg_intervals", "Q")
            found.data = bytearray(self._part("member", "jpeg_intervals", 1))
        return found

    def _scalars(self, number: int) -> ScalarColumn:
        return ScalarColumn(
            self._numbers("sample", f"codes{number}", "B").tobytes(), self._numbers(f"ints{number}", "value", "q"),
            self._floats(f"floats{number}"), self._texts(f"texts{number}", "value"),
        )  # fmt: skip

    def _part(self, table: str, name: str, part: int = 0) -> memoryview:
        start, stop = self._columns[table, name].extents[part]
        return memoryview(self._raw)[start:stop]

    def _numbers(self, table: str, name: str, code: str) -> "array[int]":
        return array(code, self._part(table, name).tobytes())

    def _floats(self, table: str) -> "array[float]":
        return array("d", self._part(table, "value").tobytes())

    def _texts(self, table: str, name: str) -> list[str]:
        starts, data = array("Q", self._part(table, name).tobytes()), self._part(table, name, 1).tobytes()
        return [os.fsdecode(data[begin:end]) for begin, end in pairwise(starts)]


def _texts(values: Sequence[str]) -> tuple[object, object]:
    text = "".join(values)
    if text.isascii():
        return array("Q", accumulate(map(len, values), initial=0)), text.encode("ascii")
    raw = [os.fsencode(value) for value in values]
    return array("Q", accumulate(map(len, raw), initial=0)), b"".join(raw)
