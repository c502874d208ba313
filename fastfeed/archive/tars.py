"""The index of tars that stay where they are, as somebody else wrote them. README.md §11 specifies it."""

import hashlib
import json
import os
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import BinaryIO, NamedTuple, TypeVar

from fastfeed.archive import columns, tar
from fastfeed.archive.bytestrings import ByteStrings
from fastfeed.archive.catalog import Place, WithoutRows, source_of_sample
from fastfeed.archive.columns import BYTES, STARTS, ColumnData, prove_column
from fastfeed.archive.index import MEMBER, SAMPLE, DatasetIndex, Member
from fastfeed.errors import FastfeedError, IndexDamaged, ShardDamaged, VersionUnsupported
from fastfeed.sample import printable
from fastfeed.units import format_count

FOLDER = ".fastfeed-index"
KIND, VERSION = "tars", 1
SET, TAR, FIELD, EXTENSION, FRAME, FINDING = "set", "tar", "field", "extension", "frame", "finding"
PLAIN, GZIP, ZSTD = 0, 1, 2
"""What a tar is stored as."""
LOST = frozenset({"cut", "damaged", "dropped", "sparse", "stream", "unreadable"})
"""Kinds of findings that cost data; the others say what is no sample, or what readers differ about."""
NOTED = frozenset({
    "end-mark", "hidden", "joined", "large-frame", "link", "meta", "no-field", "open-end", "repeated-key", "shared-key",
    "special",
})  # fmt: skip
MAX_FINDINGS = 10_000
"""Of a kind that are told one by one; all are counted."""
MAX_FIELDS = 1 << 16
NO_LABEL = -(1 << 63)
PROVEN_BYTES = 64 << 20
"""An index up to this size is proven whole when it is opened: that takes milliseconds."""
REBUILD = "Index the tars again: fastfeed index."
_Error = TypeVar("_Error", bound=FastfeedError)


class TarFile(NamedTuple):
    """One tar of a set."""

    file: str
    """Path below the set's folder, undecodable bytes as surrogate escapes."""
    size_bytes: int
    mtime_ns: int
    form: int
    """PLAIN, GZIP or ZSTD."""
    tar_bytes: int
    """Of the tar; of a compressed one when decompressed."""
    samples: int
    dropped: int
    """Samples that are known to be lost or broken, and are left out."""


class TarFinding(NamedTuple):
    """Something in a tar that is no sample, or that readers differ about."""

    kind: str
    """One of LOST or of NOTED."""
    tar: int
    """Number of the tar."""
    start: int
    """First byte in the tar that it is about."""
    stop: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TarsData:
    """An index of tars to be written, in the order of its rows."""

    tars: Sequence[TarFile]
    fields: Sequence[str]
    """Sorted."""
    keys: ByteStrings
    labels: "array[int]"
    """Class number a sample, NO_LABEL where it has none."""
    counts: "array[int]"
    """Members a sample."""
    member_fields: "array[int]"
    """uint16: number into fields, a member each."""
    offsets: "array[int]"
    sizes: "array[int]"
    digests: "array[int] | None"
    """xxh3 a member; None where payloads were not read."""
    extensions: Sequence[bytes]
    """As written, sorted; none where all are fields, letter for letter."""
    written: "array[int]"
    """uint16: number into extensions, a member each; empty where there are none."""
    frames: Sequence[tuple[int, int, int]]
    """(tar, first byte in the file, first byte in the tar) of each frame of the Zstandard ones."""
    findings: Sequence[TarFinding]
    found: Mapping[str, int]
    """Kind -> how many findings, also those beyond MAX_FINDINGS."""

    def write(self, file: BinaryIO) -> None:
        """Write the index."""
        rows = {SET: 1, TAR: len(self.tars), FIELD: len(self.fields), EXTENSION: len(self.extensions), SAMPLE: len(self.keys),
                MEMBER: len(self.offsets), FRAME: len(self.frames), FINDING: len(self.findings)}  # fmt: skip
        columns.write(file, rows, [*self._small(), *self._large()])

    def _small(self) -> Iterator[ColumnData]:
        facts = {"findings": dict(self.found), "kind": KIND, "version": VERSION}
        yield ColumnData(SET, "facts", BYTES, _strings([json.dumps(facts, sort_keys=True).encode("ascii")]))
        yield ColumnData(TAR, "file", BYTES, _strings([os.fsencode(entry.file) for entry in self.tars]))
        yield ColumnData(TAR, "size", "uint64", (array("Q", [entry.size_bytes for entry in self.tars]),))
        yield ColumnData(TAR, "mtime_ns", "int64", (array("q", [entry.mtime_ns for entry in self.tars]),))
        yield ColumnData(TAR, "form", "uint8", (array("B", [entry.form for entry in self.tars]),))
        yield ColumnData(TAR, "bytes", "uint64", (array("Q", [entry.tar_bytes for entry in self.tars]),))
        yield ColumnData(TAR, "dropped", "uint64", (array("Q", [entry.dropped for entry in self.tars]),))
        yield ColumnData(TAR, "samples", STARTS, (_starts(entry.samples for entry in self.tars),))
        yield ColumnData(FIELD, "name", BYTES, _strings([os.fsencode(name) for name in self.fields]))
        yield ColumnData(EXTENSION, "name", BYTES, _strings(self.extensions))
        found = self.findings
        yield ColumnData(FINDING, "kind", BYTES, _strings([item.kind.encode("ascii") for item in found]))
        yield ColumnData(FINDING, "tar", "uint32", (array("I", [item.tar for item in found]),))
        yield ColumnData(FINDING, "start", "uint64", (array("Q", [item.start for item in found]),))
        yield ColumnData(FINDING, "stop", "uint64", (array("Q", [item.stop for item in found]),))
        yield ColumnData(FINDING, "text", BYTES, _strings([os.fsencode(item.text) for item in found]))

    def _large(self) -> Iterator[ColumnData]:
        yield ColumnData(FRAME, "tar", "uint32", (array("I", [frame[0] for frame in self.frames]),))
        yield ColumnData(FRAME, "at", "uint64", (array("Q", [frame[1] for frame in self.frames]),))
        yield ColumnData(FRAME, "start", "uint64", (array("Q", [frame[2] for frame in self.frames]),))
        yield ColumnData(SAMPLE, "members", STARTS, (_starts(self.counts),))
        yield ColumnData(MEMBER, "field", "uint16", (self.member_fields,))
        yield ColumnData(MEMBER, "offset", "uint64", (self.offsets,))
        yield ColumnData(MEMBER, "size", "uint64", (self.sizes,))
        if self.digests is not None:
            yield ColumnData(MEMBER, "xxh3", "uint64", (self.digests,), required=False)
        missing = self.labels.count(NO_LABEL)
        if missing < len(self.labels):
            yield ColumnData(SAMPLE, "some_label" if missing else "label", "int64", (self.labels,), required=False)
        yield ColumnData(SAMPLE, "key", BYTES, (self.keys.starts, self.keys.data))
        if self.extensions:
            yield ColumnData(MEMBER, "written", "uint16", (self.written,))


def _starts(lengths: Iterable[int]) -> "array[int]":
    return array("Q", accumulate(lengths, initial=0))


def _strings(values: Sequence[bytes]) -> tuple[object, object]:
    return _starts(map(len, values)), b"".join(values)


class TarsIndex(DatasetIndex):
    """The index file of a set of tars, its head proven, and all columns that are O(tars); all columns of a small one.

    Args:
        path: The file.

    Raises:
        IndexDamaged: It is missing or damaged.
        VersionUnsupported: Of a later format.
    """

    required: Mapping[tuple[str, str], str] = {
        (SET, "facts"): BYTES, (TAR, "file"): BYTES, (TAR, "size"): "uint64", (TAR, "mtime_ns"): "int64",
        (TAR, "form"): "uint8", (TAR, "bytes"): "uint64", (TAR, "dropped"): "uint64", (TAR, "samples"): STARTS,
        (FIELD, "name"): BYTES, (EXTENSION, "name"): BYTES,
        (FINDING, "kind"): BYTES, (FINDING, "tar"): "uint32", (FINDING, "start"): "uint64",
        (FINDING, "stop"): "uint64", (FINDING, "text"): BYTES, (FRAME, "tar"): "uint32", (FRAME, "at"): "uint64",
        (FRAME, "start"): "uint64", (SAMPLE, "members"): STARTS, (SAMPLE, "key"): BYTES, (MEMBER, "field"): "uint16",
        (MEMBER, "offset"): "uint64", (MEMBER, "size"): "uint64",
    }  # fmt: skip
    optional: Mapping[tuple[str, str], str] = {
        (SAMPLE, "label"): "int64",
        (SAMPLE, "some_label"): "int64",
        (MEMBER, "xxh3"): "uint64",
        (MEMBER, "written"): "uint16",
    }
    hint = gone = REBUILD

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.digest = hashlib.sha256(self._map[: self.table.data_start]).hexdigest()
        """Over the head, which holds a checksum of each column: changes with any byte of the index."""
        self._proven = self.table.file_bytes <= PROVEN_BYTES
        for column in self.table.columns.values():
            if self._proven or column.table in {SET, TAR, FIELD, EXTENSION}:
                prove_column(self._map, column, path, self.hint)

    def prove(self) -> None:
        """Check the bytes of all columns, unless opening has: whoever copies from the index must, for others to rely on.

        Raises:
            IndexDamaged: They differ from their checksum.
        """
        for column in () if self._proven else self.table.columns.values():
            prove_column(self._map, column, self.path, self.hint)
        self._proven = True

    def counts(self) -> dict[str, int]:
        """Kind of finding -> how many there are.

        Raises:
            IndexDamaged: The facts make no sense.
            VersionUnsupported: Of a later format.
        """
        try:
            facts = json.loads(self.strings(SET, "facts")[0])
            kind, version, found = facts["kind"], facts["version"], facts["findings"]
            counts = {str(name): int(count) for name, count in found.items()}
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
            msg = f"the facts of the index are not the JSON that they should be: {error}"
            raise IndexDamaged(msg, path=self.path, hint=self.hint) from error
        if kind != KIND:
            msg = "this is no index of tars"
            raise IndexDamaged(msg, path=self.path, expected=KIND, got=kind, hint=self.hint)
        if version != VERSION:
            msg = f"the index has version {version!r}, this release reads {VERSION}"
            raise VersionUnsupported(msg, path=self.path, expected=VERSION, got=version, hint="Install a newer fastfeed.")
        return counts

    def tars(self) -> list[TarFile]:
        """The tars, in order.

        Raises:
            IndexDamaged: Their samples are not those of the index.
        """
        starts = [int(start) for start in self.array(TAR, "samples")]
        if starts[:1] != [0] or sorted(starts) != starts or starts[-1] != self.samples:
            msg = f"the tars' samples do not rise from 0 to {self.samples}"
            raise IndexDamaged(msg, path=self.path, hint=self.hint)
        names = [os.fsdecode(raw) for raw in self.strings(TAR, "file")]
        numbers = [self.array(TAR, name).tolist() for name in ("size", "mtime_ns", "form", "bytes")]
        counts = [stop - start for start, stop in pairwise(starts)]
        rows = zip(names, *numbers, counts, self.array(TAR, "dropped").tolist(), strict=True)
        return [TarFile(*entry) for entry in rows]

    def findings(self) -> list[TarFinding]:
        """What was found in the tars, those that are told one by one."""
        kinds, texts = (self.strings(FINDING, name) for name in ("kind", "text"))
        owners, starts, stops = (self.array(FINDING, name).tolist() for name in ("tar", "start", "stop"))
        rows = zip(kinds, owners, starts, stops, texts, strict=True)
        return [
            TarFinding(kind.decode("ascii", "replace"), owner, start, stop, os.fsdecode(text))
            for kind, owner, start, stop, text in rows
        ]


class TarSet(WithoutRows):
    """Samples in tars that somebody else wrote: a Catalog.

    Args:
        path: The index file.
        base: The folder below which the tars lie.

    Raises:
        IndexDamaged: The index is missing or damaged.
        VersionUnsupported: Of a later format.
    """

    remedy = "Restore the tar from a copy; where it was changed on purpose, index it again: fastfeed index."
    undecodable = "Leave its sample out with skip=, or mend the tar."
    classes: tuple[str, ...] | None = None

    def __init__(self, path: str, base: str) -> None:
        self.index = TarsIndex(path)
        self.path, self.base = base, base
        self.found = self.index.counts()
        """Kind of finding -> how many."""
        self.tars = self.index.tars()
        self.dropped = sum(entry.dropped for entry in self.tars)
        """Samples that are known to be lost or broken."""
        self.fields = tuple(os.fsdecode(raw) for raw in self.index.strings(FIELD, "name"))
        self.extensions: list[bytes] = list(self.index.strings(EXTENSION, "name"))
        """As written in the tars; none where all are fields, letter for letter."""
        self.digest = self.index.digest
        self.firsts = [0, *accumulate(entry.samples for entry in self.tars)]
        self.numbers = {entry.file: number for number, entry in enumerate(self.tars)}

    def __len__(self) -> int:
        return self.index.samples

    @property
    def lost(self) -> int:
        """How many findings cost data."""
        return sum(count for kind, count in self.found.items() if kind in LOST)

    def tar_of(self, position: int) -> TarFile:
        """The tar that holds the sample at a position."""
        return self.tars[bisect_right(self.firsts, position) - 1]

    def key(self, position: int) -> str:
        """The key of the sample at a position; undecodable bytes as surrogate escapes."""
        return os.fsdecode(self.index.keys[position])

    def places(self, position: int) -> Iterator[Place]:
        """Each member of a sample, in the order in which they lie in the tar.

        Raises:
            IndexDamaged: A member lies outside its tar or names no field.
        """
        entry = self.tar_of(position)
        for row in self.index.member_rows(position):
            yield self._place(entry, position, row, self.index.member(row))

    def _place(self, entry: TarFile, position: int, row: int, member: Member) -> Place:
        start, stop = member.offset, member.offset + member.size
        outside = start < tar.BLOCK_BYTES or start % tar.BLOCK_BYTES or stop > entry.tar_bytes
        if member.field >= len(self.fields) or outside:
            msg = "the index places a member outside its tar"
            expected = f"field below {len(self.fields)}, bytes within [512, {entry.tar_bytes})"
            raise IndexDamaged(
                msg, path=self.index.path, shard=entry.file, sample=position, start=start, stop=stop, expected=expected,
                got=f"field {member.field}", hint=REBUILD,
            )  # fmt: skip
        return Place(entry.file, self.fields[member.field], start, stop, member.xxh3, row)

    def name_of(self, position: int, place: Place) -> bytes:
        """A member's name, byte for byte as in the tar."""
        key: bytes = self.index.keys[position]
        if not self.index.has(MEMBER, "written"):
            return key + b"." + os.fsencode(place.field)
        number = int(self.index.array(MEMBER, "written")[place.row])
        if number >= len(self.extensions):
            msg = "the index names an extension that there is not"
            expected = f"below {len(self.extensions)}"
            raise IndexDamaged(msg, path=self.index.path, sample=position, expected=expected, got=number, hint=REBUILD)
        return key + b"." + self.extensions[number]

    def source(self, position: int) -> bytes | None:
        """TAR/NAME of a sample's image, else of its first member: two tars may have members of one name."""
        return source_of_sample(self, position)

    def source_of(self, position: int, place: Place) -> bytes:
        """TAR/NAME of a member."""
        return os.fsencode(place.shard) + b"/" + self.name_of(position, place)

    def members_with(self, sources: AbstractSet[bytes]) -> Iterator[tuple[int, bytes]]:
        """(position, TAR/NAME) of each member that is called so."""
        keys: dict[int, set[bytes]] = {}
        for source in sources:
            for at in (at for at, byte in enumerate(source) if byte == ord("/")):
                number = self.numbers.get(os.fsdecode(source[:at]))
                if number is not None:
                    folder, slash, base = source[at + 1 :].rpartition(b"/")
                    keys.setdefault(number, set()).add(folder + slash + base.partition(b".")[0])
        for number, own in keys.items():
            rows = range(self.firsts[number], self.firsts[number + 1])
            for position, _ in self.index.rows_with(SAMPLE, "key", own, rows):
                for place in self.places(position):
                    source = self.source_of(position, place)
                    if source in sources:
                        yield position, source

    def label(self, position: int) -> int:
        """A sample's class number."""
        return int(self.index.array(SAMPLE, "label")[position])

    def at(self, error: _Error, position: int, place: Place) -> _Error:
        """The same error, with tar, sample, key, source, member and byte range filled in."""
        name = os.fsdecode(self.name_of(position, place))
        error.shard, error.sample, error.key = place.shard, position, self.key(position)
        error.source, error.member, error.start, error.stop = f"{place.shard}/{name}", name, place.start, place.stop
        return error

    def prove(self) -> None:
        """Stat every tar.

        Raises:
            ShardDamaged: One is missing, or has changed since it was indexed.
        """
        for entry in self.tars:
            path = os.path.join(self.base, entry.file)
            try:
                facts = os.stat(path)
            except OSError as error:
                msg = f"a tar cannot be found: {error.strerror}"
                raise ShardDamaged(msg, path=path, shard=entry.file, hint=self.remedy) from error
            self.prove_unchanged(entry, facts)

    def prove_unchanged(self, entry: TarFile, facts: os.stat_result) -> None:
        """Whether a tar is the one that was indexed.

        Raises:
            ShardDamaged: It has another size or modification time.
        """
        if (facts.st_size, facts.st_mtime_ns) != (entry.size_bytes, entry.mtime_ns):
            msg = "a tar has changed since it was indexed"
            expected = f"{entry.size_bytes} bytes, modified at {entry.mtime_ns} ns"
            got = f"{facts.st_size} bytes, modified at {facts.st_mtime_ns} ns"
            path = os.path.join(self.base, entry.file)
            raise ShardDamaged(msg, path=path, shard=entry.file, expected=expected, got=got, hint=self.remedy)

    def parts(self) -> str:
        """How many tars."""
        return format_count(len(self.tars), "tar")

    def told(self, finding: TarFinding) -> str:
        """A finding in one line, with its tar and bytes."""
        return f"{printable(self.tars[finding.tar].file)}, bytes [{finding.start}, {finding.stop}): {finding.text}"
