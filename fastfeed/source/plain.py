"""Plain files as samples: what a listing and a draft say, in columns that all processes of a job map.

The columns lie in a file without a name: it is unlinked as soon as it is open, and other processes of the job find it as
/proc/PID/fd/N. So a million files are no Python objects in any worker, nothing is left behind by a process that is
killed, and a folder that cannot be written is no obstacle. Whoever cannot find it any more lists the folder again.
"""

import hashlib
import json
import os
import tempfile
import weakref
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import accumulate
from typing import TypeVar

from fastfeed.archive import columns
from fastfeed.archive.catalog import UNREAD, Place, WithoutRows, source_of_sample
from fastfeed.archive.columns import BYTES, STARTS, ColumnData
from fastfeed.archive.index import MEMBER, SAMPLE, DatasetIndex
from fastfeed.archive.shard import CLASS_FIELD
from fastfeed.archive.usercolumn import USER, UserColumn
from fastfeed.disk import disk_error
from fastfeed.errors import FastfeedError, SourceUnreadable
from fastfeed.sample import printable
from fastfeed.source.layout import Draft
from fastfeed.source.names import KeyMaker
from fastfeed.source.scan import LeftOut, Listing
from fastfeed.store.files import Listed
from fastfeed.units import format_count

SET, FIELD, CLASS, UNREADABLE = "set", "field", "class", "unreadable"
_SHOWN = 5
_Error = TypeVar("_Error", bound=FastfeedError)


class PlainIndex(DatasetIndex):
    """The columns of plain files.

    Args:
        path: The file that holds them.

    Raises:
        IndexDamaged: It is not there any more, or something else is.
    """

    required: Mapping[tuple[str, str], str] = {
        (SET, "facts"): BYTES, (FIELD, "name"): BYTES, (CLASS, "name"): BYTES, (UNREADABLE, "source"): BYTES,
        (UNREADABLE, "why"): BYTES, (SAMPLE, "members"): STARTS, (SAMPLE, "key"): BYTES, (MEMBER, "field"): "uint16",
        (MEMBER, "size"): "uint64", (MEMBER, "mtime_ns"): "int64", (MEMBER, "source"): BYTES,
    }  # fmt: skip
    optional: Mapping[tuple[str, str], str] = {(SAMPLE, "label"): "int64", (MEMBER, "path"): BYTES}
    hint = gone = "Open the folder again."

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.digest = hashlib.sha256(self._map[: self.table.data_start]).hexdigest()


def write_index(
    root: str, listing: Listing, draft: Draft, *, user: Sequence[UserColumn] = (), sources: Sequence[str] | None = None
) -> "PlainFiles":
    """Put the samples of a draft into columns.

    Args:
        root: The folder below which the listing's paths lie.
        listing: The files.
        draft: How they are read as samples.
        user: Columns that the user gave, a sample a row.
        sources: What each file is called in skip lists and errors, where that is not its path (which may be absolute).

    Raises:
        SourceUnreadable: There is no sample.
        DestinationError: There is no room for temporary files.
    """
    if not len(draft):
        msg = "there is no sample in this folder"
        raise SourceUnreadable(msg, path=root)
    descriptor, name = _temporary()
    try:
        with open(descriptor, "wb", closefd=False) as file:
            columns.write(file, *_columns(listing, draft, user, listing.paths if sources is None else sources))
    except OSError as error:
        os.close(descriptor)
        raise disk_error(f"{name}: {error.strerror}", error.errno, os.path.dirname(name), continues=False) from error
    files = PlainFiles(root, f"/proc/{os.getpid()}/fd/{descriptor}")
    weakref.finalize(files, os.close, descriptor).atexit = False
    return files


def _temporary() -> tuple[int, str]:
    """A file without a name, and the name that it had."""
    try:
        descriptor, name = tempfile.mkstemp(prefix="fastfeed-")
    except OSError as error:
        where = "/tmp"  # noqa: S108 - where it looks first
        raise disk_error(f"temporary files: {error.strerror}", error.errno, where, continues=False) from error
    os.unlink(name)
    return descriptor, name


def _columns(
    listing: Listing, draft: Draft, user: Sequence[UserColumn], sources: Sequence[str]
) -> tuple[dict[str, int], list[ColumnData]]:
    """Rows of each table, and all columns."""
    fields = sorted(set(draft.fields))
    numbers = {name: number for number, name in enumerate(fields)}
    paths = listing.paths
    maker = KeyMaker(draft.stems)
    room = 1 + max(map(len, {CLASS_FIELD, *fields}))
    keys = maker.keys(draft.stems, lambda at: paths[draft.files[draft.starts[at]]], room)
    why = [*draft.why, *_left_out(listing, draft)]
    facts = {"imagefolder": draft.as_imagefolder, "classes": draft.classes is not None, "why": why}
    listed = [
        ColumnData(SET, "facts", BYTES, _strings([json.dumps(facts).encode("ascii")])),
        ColumnData(FIELD, "name", BYTES, _strings([os.fsencode(name) for name in fields])),
        ColumnData(CLASS, "name", BYTES, _strings([os.fsencode(name) for name in draft.classes or ()])),
        ColumnData(UNREADABLE, "source", BYTES, _strings([os.fsencode(item.source) for item in listing.unreadable])),
        ColumnData(UNREADABLE, "why", BYTES, _strings([os.fsencode(item.why) for item in listing.unreadable])),
        ColumnData(SAMPLE, "members", STARTS, (draft.starts,)),
        ColumnData(MEMBER, "field", "uint16", (array("H", [numbers[name] for name in draft.fields]),)),
        ColumnData(MEMBER, "size", "uint64", (array("Q", [listing.sizes[file] for file in draft.files]),)),
        ColumnData(MEMBER, "mtime_ns", "int64", (array("q", [listing.mtimes_ns[file] for file in draft.files]),)),
        ColumnData(SAMPLE, "key", BYTES, _strings([key.encode("ascii") for key in keys])),
        ColumnData(MEMBER, "source", BYTES, _strings([os.fsencode(sources[file]) for file in draft.files])),
    ]
    if sources is not paths and sources != paths:
        listed.append(ColumnData(MEMBER, "path", BYTES, _strings([os.fsencode(paths[file]) for file in draft.files])))
    if draft.classes is not None:
        listed.append(ColumnData(SAMPLE, "label", "int64", (draft.labels,), required=False))
    for column in user:
        kind, parts = column.stored(len(draft))
        listed.append(ColumnData(SAMPLE, USER + column.name, kind, parts, required=False))
    rows = {SET: 1, FIELD: len(fields), CLASS: len(draft.classes or ()), UNREADABLE: len(listing.unreadable),
            SAMPLE: len(draft), MEMBER: len(draft.files)}  # fmt: skip
    return rows, listed


def _left_out(listing: Listing, draft: Draft) -> list[str]:
    """What is in the folder and is no part of a sample, in one line."""
    counts = Counter(item.kind for item in (*listing.left_out, *draft.left_out))
    return [f"left out: {', '.join(f'{count:,} {kind}' for kind, count in sorted(counts.items()))}"] if counts else []


def _strings(values: Sequence[bytes]) -> tuple[object, object]:
    return array("Q", accumulate(map(len, values), initial=0)), b"".join(values)


class PlainFiles(WithoutRows):
    """Samples made of plain files: a Catalog.

    Args:
        root: The folder below which they lie.
        index_path: The columns.

    Raises:
        IndexDamaged: They are not there any more.
    """

    remedy = "Open the folder again, so that it is listed anew; or pack it, so that nothing in it changes unseen."
    undecodable = "Leave its sample out with skip=, or replace the file."

    def __init__(self, root: str, index_path: str) -> None:
        self.path = self.root = root
        self.index = PlainIndex(index_path)
        facts = json.loads(self.index.strings(SET, "facts")[0])
        self.fields = tuple(os.fsdecode(name) for name in self.index.strings(FIELD, "name"))
        names = tuple(os.fsdecode(name) for name in self.index.strings(CLASS, "name"))
        self.classes: tuple[str, ...] | None = names if facts["classes"] else None
        self.why: tuple[str, ...] = tuple(facts["why"])
        """How the folder was read, and why."""
        self.as_imagefolder = bool(facts["imagefolder"])
        """Whether position i is ImageFolder's i."""
        self.digest = self.index.digest
        self._mtimes = self.index.array(MEMBER, "mtime_ns")
        self._sources = self.index.strings(MEMBER, "source")
        self._paths = self.index.strings(MEMBER, "path") if self.index.has(MEMBER, "path") else self._sources

    def __len__(self) -> int:
        return self.index.samples

    def key(self, position: int) -> str:
        """The key that the sample would have in a packed dataset."""
        raw: bytes = self.index.keys[position]
        return raw.decode("ascii")

    def places(self, position: int) -> Iterator[Place]:
        """Each file of a sample, in the order of the fields.

        Raises:
            IndexDamaged: The columns make no sense.
        """
        for row in self.index.member_rows(position):
            member = self.index.member(row)
            yield Place(os.fsdecode(self._paths[row]), self.fields[member.field], 0, member.size, UNREAD, row)

    def facts(self, place: Place) -> Listed:
        """What a file was when it was listed."""
        return Listed(place.stop, int(self._mtimes[place.row]))

    def source(self, position: int) -> bytes | None:
        """Path below the folder of a sample's image, else of its first file."""
        return source_of_sample(self, position)

    def source_of(self, position: int, place: Place) -> bytes:  # noqa: ARG002 - Catalog's signature
        """Path below the folder of a file."""
        source: bytes = self._sources[place.row]
        return source

    def members_with(self, sources: AbstractSet[bytes]) -> Iterator[tuple[int, bytes]]:
        """(position, path) of each file that has one of these paths."""
        for row, source in self.index.rows_with(MEMBER, "source", sources):
            yield self.index.sample_of(row), source

    def label(self, position: int) -> int:
        """A sample's class number."""
        return int(self.index.array(SAMPLE, "label")[position])

    def at(self, error: _Error, position: int, place: Place) -> _Error:
        """The same error, with file, sample, key, source and byte range filled in."""
        error.path, error.sample, error.key = os.path.join(self.root, place.shard), position, self.key(position)
        error.source = os.fsdecode(self.source_of(position, place))
        error.start, error.stop = place.start, place.stop
        return error

    def prove(self) -> None:
        """Nothing: the files have just been listed, and each is proven when it is read."""

    def parts(self) -> str:
        """How many files."""
        return format_count(self.index.members, "file")

    def unreadable(self) -> list[LeftOut]:
        """Files and folders that cannot be read, with why."""
        pairs = zip(*(self.index.strings(UNREADABLE, name) for name in ("source", "why")), strict=True)
        return [LeftOut(os.fsdecode(source), "unreadable", os.fsdecode(why)) for source, why in pairs]

    def refuse_unreadable(self, kept: AbstractSet[int]) -> None:
        """Whether no file that cannot be read belongs to a sample that is kept.

        Args:
            kept: Positions.

        Raises:
            SourceUnreadable: One does, or it is a folder, of which nobody knows what is in it.
        """
        items = self.unreadable()
        if not items:
            return
        found = {
            source
            for position, source in self.members_with({os.fsencode(item.source) for item in items})
            if position not in kept
        }
        rest = [item for item in items if os.fsencode(item.source) not in found]
        if rest:
            shown = "; ".join(f"{printable(item.source)}: {item.why}" for item in rest[:_SHOWN])
            more = f"; and {len(rest) - _SHOWN} more" if len(rest) > _SHOWN else ""
            msg = f"{format_count(len(rest), 'file')} cannot be read ({shown}{more})"
            raise SourceUnreadable(msg, path=self.root, hint="Mend or remove them, or leave their samples out with skip=.")
