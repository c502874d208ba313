"""Rules that index and left-out list keep by themselves, whatever the shards hold: README.md §3, §4, §5.3."""

import json
import os
from collections.abc import Iterator
from itertools import chain

import xxhash

from fastfeed.archive.columns import BYTES, STARTS
from fastfeed.archive.dataset import Archive
from fastfeed.archive.index import MEMBER, SAMPLE, Texts
from fastfeed.archive.manifest import FOLDER
from fastfeed.archive.shard import LEGAL_KEY, is_safe_source
from fastfeed.archive.usercolumn import MAX_NAME_BYTES, is_user_name
from fastfeed.errors import FastfeedError, IndexDamaged

_CHUNK_BYTES = 4 << 20
_RESTORE = "Restore it from a copy, or pack again."


def damaged_columns(archive: Archive) -> Iterator[FastfeedError]:
    """Columns of the index whose bytes differ from their checksum, and gaps between them that are not zeros."""
    index = archive.index
    at = index.table.data_start
    with open(index.path, "rb") as file:
        for column in index.table.columns.values():
            digest = xxhash.xxh3_64()
            for start, stop in column.extents:
                file.seek(at)
                if file.read(start - at).strip(b"\0"):
                    msg = f"the bytes before column {column.name} of {column.table} in the index are not zeros"
                    yield IndexDamaged(msg, path=index.path, start=at, stop=start, hint=_RESTORE)
                for begin in range(start, stop, _CHUNK_BYTES):
                    digest.update(file.read(min(_CHUNK_BYTES, stop - begin)))
                at = stop
            if digest.hexdigest() != column.xxh3:
                msg = f"column {column.name} of {column.table} in the index is damaged"
                first, last = column.extents[0][0], column.extents[-1][1]
                facts = (column.xxh3, digest.hexdigest())
                yield IndexDamaged(
                    msg, path=index.path, start=first, stop=last, expected=facts[0], got=facts[1], hint=_RESTORE
                )  # fmt: skip
        file.seek(at)
        if file.read().strip(b"\0"):
            yield IndexDamaged("the end of the index is not zeros", path=index.path, start=at, hint=_RESTORE)


def index_rules(archive: Archive) -> Iterator[FastfeedError]:
    """Each broken rule of the index, and each of the list of left-out files."""
    falling = list(_starts(archive))
    yield from falling
    if not falling:
        yield from _members(archive)
        yield from _keys(archive)
        yield from _sources(archive)
        yield from _user_columns(archive)
    yield from _labels(archive)
    yield from _left_out(archive)


def _starts(archive: Archive) -> Iterator[FastfeedError]:
    """Ranges begin with 0, never fall, and end with what they cut."""
    index = archive.index
    for (table, name), column in index.table.columns.items():
        if column.type not in {STARTS, BYTES}:
            continue
        starts = index.array(table, name)
        end = archive.manifest.members if column.type == STARTS else column.extents[1][1] - column.extents[1][0]
        if int(starts[0]) != 0 or bool((starts[1:] < starts[:-1]).any()) or int(starts[-1]) != end:
            msg = f"the ranges of column {name} of {table} do not rise from 0 to {end}"
            start, stop = column.extents[0]
            yield IndexDamaged(msg, path=index.path, start=start, stop=stop, hint=_RESTORE)


def _sources(archive: Archive) -> Iterator[FastfeedError]:
    """Original paths stay below the folder that unpack is told."""
    if not archive.index.has(MEMBER, "source"):
        return
    for row, raw in enumerate(archive.index.strings(MEMBER, "source")):
        if raw and not is_safe_source(raw):
            msg = f"an original path is unsafe: {raw[:80]!r}"
            expected, got = "a path below the source", f"member row {row}"
            yield IndexDamaged(msg, path=archive.index.path, expected=expected, got=got, hint=_RESTORE)


def _user_columns(archive: Archive) -> Iterator[FastfeedError]:
    """Columns that the user gave: legal names, truth values 0 and 1, texts UTF-8."""
    index = archive.index
    for name in index.user:
        if not is_user_name(name):
            msg = f"a user column has a name that is none: {name[:80]!a}"
            expected = f"1 to {MAX_NAME_BYTES} bytes of UTF-8 without control characters"
            yield IndexDamaged(msg, path=index.path, expected=expected, hint=_RESTORE)
        try:
            values = index.user_column(name)
        except IndexDamaged as error:
            yield error
            continue
        if isinstance(values, Texts):
            yield from _texts(values)


def _texts(values: Texts) -> Iterator[FastfeedError]:
    for row in range(len(values)):
        try:
            values[row]
        except IndexDamaged as error:
            yield error


def _members(archive: Archive) -> Iterator[FastfeedError]:
    """A sample has members, each field at most once, in the order of the fields."""
    index = archive.index
    starts, fields = index.sample_starts(), index.field_numbers()
    for position in (starts[1:] == starts[:-1]).nonzero()[0].tolist():
        yield _at("a sample has no member", archive, position)
    falls = (fields[1:] <= fields[:-1]).nonzero()[0] + 1
    for row in falls[starts[starts.searchsorted(falls)] != falls].tolist():
        position = int(starts.searchsorted(row, side="right")) - 1
        yield _at("a sample has a field twice, or its members do not stand in the order of the fields", archive, position)


def _keys(archive: Archive) -> Iterator[FastfeedError]:
    """A key is legal, and unique also when case is folded."""
    seen: set[str] = set()
    for position in range(len(archive)):
        try:
            key = archive.key(position)
        except FastfeedError as error:
            yield error
            continue
        if not LEGAL_KEY.fullmatch(key) or key.lower() in seen:
            yield _at("a key is not legal or not unique", archive, position)
        seen.add(key.lower())


def _labels(archive: Archive) -> Iterator[FastfeedError]:
    """There are labels exactly if there are classes, and each names one."""
    index, classes = archive.index, archive.manifest.classes
    if index.has(SAMPLE, "label") != (classes is not None):
        msg = "the index has labels and the manifest no classes, or the other way round"
        yield IndexDamaged(msg, path=index.path, hint=_RESTORE)
    elif classes is not None:
        labels = index.array(SAMPLE, "label")
        for position in chain((labels < 0).nonzero()[0].tolist(), (labels >= len(classes)).nonzero()[0].tolist()):
            yield _at("a label names no class", archive, position, expected=f"below {len(classes)}", got=int(labels[position]))


def _left_out(archive: Archive) -> Iterator[FastfeedError]:
    """The list has as many lines as the manifest says, each an object of three strings."""
    path = os.path.join(archive.path, FOLDER, archive.manifest.left_out.file)
    count = 0
    with open(path, "rb") as file:
        for count, line in enumerate(file, 1):
            if not _is_entry(line):
                msg = f"line {count} of the list of left-out files is no object of source, kind and why"
                yield IndexDamaged(msg, path=path, got=line[:80], hint=_RESTORE)
    if count != archive.manifest.left_out_count:
        msg = "the list of left-out files has another number of lines than the manifest says"
        yield IndexDamaged(msg, path=path, expected=archive.manifest.left_out_count, got=count, hint=_RESTORE)


def _is_entry(line: bytes) -> bool:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return False
    is_object = isinstance(entry, dict) and set(entry) == {"source", "kind", "why"}
    return is_object and all(isinstance(value, str) for value in entry.values()) and line.endswith(b"\n")


def _at(msg: str, archive: Archive, position: int, expected: object = None, got: object = None) -> IndexDamaged:  # noqa: PLR0917
    error = IndexDamaged(msg, path=archive.index.path, sample=position, expected=expected, got=got, hint=_RESTORE)
    raw: bytes = archive.index.keys[position]
    error.key = raw.decode("ascii", "backslashreplace")
    return error
