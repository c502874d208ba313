"""A packed dataset on disk: manifest and index together, opened in O(shards) and proven; where each sample lies."""

import os
from bisect import bisect_right
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from itertools import accumulate
from typing import TypeVar

from fastfeed.archive import manifest, tar
from fastfeed.archive.catalog import Place as Place  # noqa: PLC0414 - part of what Archive gives
from fastfeed.archive.catalog import source_of_sample
from fastfeed.archive.index import MEMBER, SAMPLE, DatasetIndex, Member
from fastfeed.archive.manifest import FOLDER, GROUP, INDEX, MANIFEST, Group, Manifest, ShardEntry
from fastfeed.archive.regular import open_regular
from fastfeed.archive.shard import RESTORE, SHARD_NAME, member_name
from fastfeed.errors import FastfeedError, IndexDamaged, ManifestDamaged, NotADataset, ShardDamaged
from fastfeed.jpegrows import Edges
from fastfeed.units import format_count

_MAX_MANIFEST_BYTES = 1 << 30
_Error = TypeVar("_Error", bound=FastfeedError)


class Archive:
    """One dataset, its manifest and the head of its index proven.

    Args:
        path: The folder that holds the shards and .fastfeed.

    Raises:
        NotADataset: Nothing packed is there, or .fastfeed is lost.
        ManifestDamaged: The manifest.
        IndexDamaged: The index's head.
        VersionUnsupported: Written by a later format.
    """

    remedy = RESTORE
    undecodable = (
        "The bytes are as packed, so the source file has the same fault: leave it out with skip= or pack --exclude, or "
        "replace it."
    )

    def __init__(self, path: str) -> None:
        record = read_record(path)
        if isinstance(record, Group):
            names = ", ".join(sorted(record.splits))
            msg = f"this folder holds the splits {names}, not one dataset"
            first = os.path.join(path, next(iter(sorted(record.splits)), ""))
            raise NotADataset(msg, path=path, hint=f"Open one of them, for instance {first}.")
        self.path = path
        self.manifest: Manifest = record
        self.index = DatasetIndex(os.path.join(path, FOLDER, INDEX), record.samples, record.members)
        self.firsts = [0, *accumulate(entry.samples for entry in record.shards)]
        self.digest, self.fields, self.classes = record.digest, record.fields, record.classes

    def __len__(self) -> int:
        return self.manifest.samples

    def shard_of(self, position: int) -> ShardEntry:
        """The shard that holds the sample at a position."""
        return self.manifest.shards[bisect_right(self.firsts, position) - 1]

    def key(self, position: int) -> str:
        """The key of the sample at a position.

        Raises:
            IndexDamaged: The index says no ASCII name.
        """
        raw: bytes = self.index.keys[position]
        if not raw.isascii():
            msg = "a key in the index is not ASCII"
            raise IndexDamaged(msg, path=self.index.path, sample=position, got=raw, hint=RESTORE)
        return raw.decode("ascii")

    def places(self, position: int) -> Iterator[Place]:
        """Each member of a sample, in the order in which they lie in the shard.

        Raises:
            IndexDamaged: A member lies outside its shard or names no field.
        """
        entry = self.shard_of(position)
        for row in self.index.member_rows(position):
            yield self.place(entry, position, row, self.index.member(row))

    def place(self, entry: ShardEntry, position: int, row: int, member: Member) -> Place:
        """One member's place.

        Raises:
            IndexDamaged: It lies outside its shard or names no field.
        """
        fields = self.manifest.fields
        start, stop = member.offset, member.offset + member.size
        if member.field >= len(fields) or start < tar.BLOCK_BYTES or start % tar.BLOCK_BYTES or stop > entry.stream_bytes:
            msg = "the index places a member outside its shard"
            expected = f"field below {len(fields)}, bytes within [512, {entry.stream_bytes})"
            raise IndexDamaged(
                msg, path=self.index.path, shard=entry.file, sample=position, start=start, stop=stop, expected=expected,
                got=f"field {member.field}", hint="Run fastfeed verify; restore .fastfeed from a copy, or pack again.",
            )  # fmt: skip
        return Place(entry.file, fields[member.field], start, stop, member.xxh3, row)

    def jpeg_rows(self, position: int, place: Place) -> Edges | None:
        """Where the restart intervals of a JPEG begin, within the member; None where they are not indexed.

        Raises:
            IndexDamaged: The index says places outside of the member.
        """
        column = self.index.jpeg_rows
        try:
            return None if column is None else column.of(place.row, place.stop - place.start)
        except IndexDamaged as error:
            raise self.at(error, position, place) from None

    def source(self, position: int) -> bytes | None:
        """Path below the packed source of a sample's image, else of its first member that came from a file."""
        return source_of_sample(self, position) if self.index.has(MEMBER, "source") else None

    def source_of(self, position: int, place: Place) -> bytes:  # noqa: ARG002 - Catalog's signature
        """Path below the packed source of one member, empty where pack made it."""
        source: bytes = self.index.strings(MEMBER, "source")[place.row] if self.index.has(MEMBER, "source") else b""
        return source

    def members_with(self, sources: AbstractSet[bytes]) -> Iterator[tuple[int, bytes]]:
        """(position, source) of each member that was packed from one of these paths."""
        if self.index.has(MEMBER, "source"):
            for row, source in self.index.rows_with(MEMBER, "source", sources):
                yield self.index.sample_of(row), source

    def label(self, position: int) -> int:
        """A sample's class number."""
        return int(self.index.array(SAMPLE, "label")[position])

    def at(self, error: _Error, position: int, place: Place) -> _Error:
        """The same error, with shard, sample, key, source, member and byte range filled in."""
        error.shard, error.sample, error.key = place.shard, position, self.key(position)
        raw = self.source_of(position, place)
        error.source = os.fsdecode(raw) if raw else None
        error.member, error.start, error.stop = self.member_name(position, place.field), place.start, place.stop
        return error

    def member_name(self, position: int, field: str) -> str:
        """The member's name in the tar, for messages."""
        return member_name(self.key(position), field)

    def parts(self) -> str:
        """How many shards."""
        return format_count(len(self.manifest.shards), "shard")

    def prove(self) -> None:
        """Look for every shard.

        Raises:
            ShardDamaged: As prove_shard_sizes().
        """
        self.prove_shard_sizes()

    def prove_shard_sizes(self) -> None:
        """Stat every shard: O(shards), so that a missing or cut one is known before the first epoch, not in its midst.

        Raises:
            ShardDamaged: A shard is missing or has another size than the manifest says.
        """
        for entry in self.manifest.shards:
            path = os.path.join(self.path, entry.file)
            try:
                size = os.stat(path).st_size
            except OSError as error:
                msg = f"a shard cannot be found: {error.strerror}"
                raise ShardDamaged(msg, path=path, shard=entry.file, hint="Copy it again, or pack again.") from error
            if size != entry.size_bytes:
                msg = "a shard has the wrong size"
                hint = "It was cut or changed: copy it again, or pack again."
                raise ShardDamaged(
                    msg,
                    path=path,
                    shard=entry.file,
                    expected=f"{entry.size_bytes} bytes",
                    got=f"{size} bytes",
                    hint=hint,
                )


def read_record(path: str) -> Manifest | Group:
    """The manifest of the dataset or of the group in a folder.

    Raises:
        NotADataset: There is none.
        ManifestDamaged: It is damaged.
    """
    for name in (MANIFEST, GROUP):
        file = os.path.join(path, FOLDER, name)
        try:
            with open(file, "rb", opener=open_regular) as stream:
                raw = stream.read(_MAX_MANIFEST_BYTES)
        except FileNotFoundError:
            continue
        except NotADirectoryError:
            break
        except OSError as error:
            msg = f"the manifest cannot be read: {error.strerror}"
            raise ManifestDamaged(msg, path=file, hint="Make it readable, or restore it from a copy.") from error
        record = manifest.decode(raw, file)
        if isinstance(record, Group) != (name == GROUP):
            msg = "a manifest of the wrong kind lies here"
            expected = "group" if name == GROUP else "dataset"
            raise ManifestDamaged(msg, path=file, expected=expected, got=record.kind, hint=RESTORE)
        return record
    raise _nothing_there(path)


def _nothing_there(path: str) -> NotADataset:
    if path.lower().endswith((".tar", ".tar.gz", ".tgz", ".tar.zst")) and (os.path.lexists(path) or _names_many(path)):
        return _only_tars(path)
    if not os.path.isdir(path):
        what = "is not a folder" if os.path.exists(path) else "does not exist"
        return NotADataset(f"{path} {what}", hint="Give the folder that fastfeed pack wrote.")
    if os.path.isdir(os.path.join(path, FOLDER, "job")):
        msg = "packing into this folder has not finished"
        return NotADataset(msg, path=path, hint="Run the same fastfeed command again: it continues.")
    names = sorted(os.listdir(path))
    if os.path.isdir(os.path.join(path, FOLDER)):
        msg = f"the {FOLDER} folder here has lost its manifest"
        return NotADataset(msg, path=path, hint=f"Restore {FOLDER} from a copy, or pack again.")
    shards = [name for name in names if SHARD_NAME.fullmatch(name)]
    if shards:
        msg = f"here are shards ({shards[0]} ...) but no {FOLDER} folder with their index: it was not copied along"
        hint = f"Copy {FOLDER} from where they came from (hidden: cp -r and rsync -a take it, * does not). Or read them as "
        hint += f"tars, without its checksums and class names: fastfeed.open({os.path.join(path, '*.tar')!r})."
        return NotADataset(msg, path=path, hint=hint)
    below = [os.path.join(path, name) for name in names if os.path.isdir(os.path.join(path, name, FOLDER))]
    few = ", ".join(below[:3]) + (f" (and {len(below) - 3} more)" if len(below) > 3 else "")  # noqa: PLR2004 - those shown
    hint = f"Below it are {few}." if below else "Make one with: fastfeed pack SRC DST."
    return NotADataset("no packed dataset is in this folder", path=path, hint=hint)


def _names_many(path: str) -> bool:
    return any(mark in path for mark in "*?[{")


def _only_tars(path: str) -> NotADataset:
    """Tars instead of a folder: shards of a dataset that is there, one that was taken out of its dataset, or tars of others."""
    folder, name = os.path.split(os.path.abspath(path))
    if os.path.isdir(os.path.join(folder, FOLDER)):
        msg = f"{path} is a part of a packed dataset, whose index and checksums are for all of it"
        return NotADataset(msg, hint=f"Give the folder: {folder!r}.")
    msg = f"{path} names tars, not a packed dataset"
    hint = f"fastfeed index {path!r} says what is in them and what is damaged (--checksums reads every byte), fastfeed audit "
    hint += f"{path!r} looks at each sample, and fastfeed.open({path!r}) reads them."
    if SHARD_NAME.fullmatch(name):
        hint = f"If fastfeed pack wrote it, its checksums are in {FOLDER} where it came from: copy that along. Or: {hint}"
    return NotADataset(msg, hint=hint)


def datasets_in(path: str) -> list[str]:
    """Folders of the datasets at a path: itself, or the splits of a group, sorted.

    Raises:
        NotADataset: Nothing packed is there.
        ManifestDamaged: A manifest is damaged.
    """
    record = read_record(path)
    return [os.path.join(path, name) for name in sorted(record.splits)] if isinstance(record, Group) else [path]
