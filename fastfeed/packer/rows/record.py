"""The record of a finished shard of rows: everything of its samples and members that the index needs, and its checksum."""

import json
import os
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import BinaryIO

from fastfeed.archive import columns
from fastfeed.archive.columns import BYTES, ColumnData, proven_columns
from fastfeed.errors import FastfeedError
from fastfeed.media import Probe
from fastfeed.packer.rows.source import Scalar

_NO_LABEL = -(1 << 63)


@dataclass(slots=True)
class RowRecord:
    """A shard's samples and members, in storage order."""

    keys: list[str] = field(default_factory=list)
    members_per_sample: "array[int]" = field(default_factory=lambda: array("Q"))
    labels: "array[int]" = field(default_factory=lambda: array("q"))
    """_NO_LABEL where a sample has none."""
    scalars: list[str] = field(default_factory=list)
    """JSON object a sample; empty for none."""
    fields: list[str] = field(default_factory=list)
    """A member each, as are all that follow."""
    offsets: "array[int]" = field(default_factory=lambda: array("Q"))
    sizes: "array[int]" = field(default_factory=lambda: array("Q"))
    xxh3: "array[int]" = field(default_factory=lambda: array("Q"))
    sources: list[str] = field(default_factory=list)
    probes: list[Probe] = field(default_factory=list)
    sha256: str = ""
    size_bytes: int = 0
    """Of the shard's file."""
    tar_bytes: int = 0
    order: str = ""
    """Digest of the order that it was written for."""

    def label(self, at: int) -> int | None:
        """The class number of a sample."""
        return None if self.labels[at] == _NO_LABEL else self.labels[at]

    def add_sample(self, key: str, members: int, label: int | None, scalars: Mapping[str, Scalar] | None) -> None:
        """A sample; its members are added by add_member."""
        self.keys.append(key)
        self.members_per_sample.append(members)
        self.labels.append(_NO_LABEL if label is None else label)
        self.scalars.append(json.dumps(scalars, sort_keys=True) if scalars else "")

    def add_member(self, name: str, source: str, offset: int, size_bytes: int, *, xxh3: int, probe: Probe) -> None:
        """One member."""
        self.fields.append(name)
        self.sources.append(source)
        self.offsets.append(offset)
        self.sizes.append(size_bytes)
        self.xxh3.append(xxh3)
        self.probes.append(probe)

    def save(self, file: BinaryIO) -> None:
        """Write it as a column file."""
        codecs, widths, heights, orientations = zip(*self.probes, strict=True)
        listed = [
            ColumnData("sample", "key", BYTES, _texts(self.keys)),
            ColumnData("sample", "members", "uint64", (self.members_per_sample,)),
            ColumnData("sample", "label", "int64", (self.labels,)),
            ColumnData("sample", "scalars", BYTES, _texts(self.scalars)),
            ColumnData("member", "field", BYTES, _texts(self.fields)),
            ColumnData("member", "source", BYTES, _texts(self.sources)),
            ColumnData("member", "offset", "uint64", (self.offsets,)),
            ColumnData("member", "size", "uint64", (self.sizes,)),
            ColumnData("member", "xxh3", "uint64", (self.xxh3,)),
            ColumnData("member", "width", "uint32", (array("I", widths),)),
            ColumnData("member", "height", "uint32", (array("I", heights),)),
            ColumnData("member", "codec", "uint8", (bytes(codecs),)),
            ColumnData("member", "orientation", "uint8", (bytes(orientations),)),
        ]
        facts = {"sha256": self.sha256, "order": self.order, "size_bytes": self.size_bytes, "tar_bytes": self.tar_bytes}
        listed.append(ColumnData("shard", "facts", BYTES, _texts([json.dumps(facts)])))
        columns.write(file, {"sample": len(self.keys), "member": len(self.fields), "shard": 1}, listed)

    @classmethod
    def load(cls, path: str) -> "RowRecord | None":
        """Read one; None where there is none or it is damaged: such a shard is written again."""
        try:
            with open(path, "rb") as file:
                raw = file.read()
            return cls._read(raw, path)
        except (FileNotFoundError, FastfeedError, KeyError, ValueError):
            return None

    @classmethod
    def _read(cls, raw: bytes, path: str) -> "RowRecord":
        found = proven_columns(raw, path)
        view = memoryview(raw)

        def numbers(table: str, name: str, code: str) -> "array[int]":
            start, stop = found[table, name].extents[0]
            return array(code, view[start:stop].tobytes())

        def texts(table: str, name: str) -> list[str]:
            (start, stop), (first, last) = found[table, name].extents
            starts = array("Q", view[start:stop].tobytes())
            data = raw[first:last]
            return [os.fsdecode(data[begin:end]) for begin, end in pairwise(starts)]

        (facts,) = texts("shard", "facts")
        probes = zip(
            numbers("member", "codec", "B"), numbers("member", "width", "I"), numbers("member", "height", "I"),
            numbers("member", "orientation", "B"), strict=True,
        )  # fmt: skip
        return cls(
            keys=texts("sample", "key"), members_per_sample=numbers("sample", "members", "Q"),
            labels=numbers("sample", "label", "q"), scalars=texts("sample", "scalars"), fields=texts("member", "field"),
            offsets=numbers("member", "offset", "Q"), sizes=numbers("member", "size", "Q"),
            xxh3=numbers("member", "xxh3", "Q"), sources=texts("member", "source"),
            probes=[Probe(*probe) for probe in probes],  # type: ignore[arg-type]
            **json.loads(facts),
        )  # fmt: skip


def _texts(values: list[str]) -> tuple[object, object]:
    raw = [os.fsencode(value) for value in values]
    return array("Q", accumulate(map(len, raw), initial=0)), b"".join(raw)
