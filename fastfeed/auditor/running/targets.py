"""What is audited: told apart by its path, listed once here, and described so that children open the same."""

import hashlib
import json
import os
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from glob import glob
from typing import Any

from fastfeed.archive.dataset import Archive, datasets_in
from fastfeed.archive.manifest import FOLDER as INDEX_FOLDER
from fastfeed.auditor.finding import Finding
from fastfeed.auditor.looking.setcodes import JUNK_CLASS
from fastfeed.auditor.record import SampleRecord
from fastfeed.auditor.running.codes import KERNEL_FOLDER, LEFT_OUT, LOOP, SPECIAL, UNREADABLE
from fastfeed.auditor.running.parts import FILES, PACKED, TARS, PartSpec
from fastfeed.auditor.running.rowed import describe
from fastfeed.auditor.running.scratch import Scratch
from fastfeed.config import PackConfig, RowConfig
from fastfeed.errors import NotADataset, NothingGained, SourceAmbiguous, UsageError
from fastfeed.media import IMAGE_EXTENSIONS
from fastfeed.packer.rows.byname import is_named, type_name
from fastfeed.packer.rows.choose import choose
from fastfeed.packer.rows.files import FileRows
from fastfeed.packer.rows.parquet import EXTENSIONS as TABLES
from fastfeed.sample import printable
from fastfeed.source import tarindex
from fastfeed.source.layout import Draft, read_layout
from fastfeed.source.listed import Listed, source_path
from fastfeed.source.plain import write_index
from fastfeed.source.scan import LeftOut, Listing, scan
from fastfeed.source.tables import table_format
from fastfeed.source.tarfiles import TarPaths, find_tars, is_tar_name
from fastfeed.trace import QUIET, Progress
from fastfeed.units import format_count

FOLDER, LIST, TABLE, PYTHON = "folder", "list", "table", "python"
"""Kinds of targets, beside PACKED and TARS."""
_ROWS = RowConfig()


@dataclass(slots=True, kw_only=True, weakref_slot=True)
class Target:
    """What is audited."""

    name: str
    """As the user gave it."""
    kind: str
    """FOLDER, LIST, TABLE, PACKED, TARS or PYTHON."""
    what: str
    """In words: "a folder of 1,000 files"."""
    spec: dict[str, Any]
    """What children are told to open."""
    digest: str | None
    """Changes with whatever is audited, as far as that can be told; None for Python datasets."""
    why: tuple[str, ...] = ()
    """How it was read, and what is left out."""
    before: list[SampleRecord] = field(default_factory=list)
    """What is no sample, and must be spoken of all the same."""
    class_folders: frozenset[tuple[str | None, str]] = frozenset()
    """(split, class) of the folders that are classes, also those without a file."""
    splits: tuple[str, ...] = ()
    """Folders directly below it that are splits."""
    tars: TarPaths | None = None
    """Of tars in place: which."""
    live: Any = None
    """A dataset that is an object of this process."""
    _held: list[object] = field(default_factory=list)
    """Files without names, or in a temporary folder, that children map, for as long as this lives."""


def find_target(
    given: Any,  # noqa: ANN401 - a path or a dataset
    progress: Progress = QUIET,
    *,
    hidden: bool = False,
    root: str | os.PathLike[str] | None = None,
    rows: RowConfig = _ROWS,
) -> Target:
    """What a path, the name of a Python object, or a dataset is.

    Args:
        given: A folder, a packed dataset, tars, a list of files, a table or JSON lines that are the samples, "module:name",
            "file.py:name", or an object.
        progress: Hears of folders that are listed, and of tars that are indexed.
        hidden: Of a folder: take what begins with a dot as well.
        root: Of a list: the folder that paths are relative to; else its own.
        rows: Of a list or table: where files, class and names are, as for pack.

    Raises:
        NotADataset: Nothing that can be audited is there.
        SourceError: It cannot be listed.
        UsageError: It is nothing of the kind, or options do not fit.
    """
    place = os.fsdecode(given) if isinstance(given, str | bytes | os.PathLike) else None
    if place is not None and _is_table(place):
        return _rows(place, rows, None if root is None else os.fsdecode(root))
    if rows != _ROWS or root is not None:
        msg = "field, label, key, classes and root are for lists and tables"
        raise UsageError(msg, path=place or type_name(given))
    if place is None:
        return _live(given)
    if os.path.isdir(place):
        return _folder(place, progress, hidden=hidden)
    if is_tar_name(place):
        return _tars(place, find_tars(place), progress)
    program = place.rpartition(":")[0]
    if is_named(place) and (not program.endswith(".py") or os.path.exists(program)):
        return Target(name=place, what=f"the Python dataset {place}", kind=PYTHON, spec={"object": place}, digest=None)
    msg = f"{place} is nothing that can be audited" if os.path.exists(place) else f"{place} does not exist"
    hint = "Give a folder, a packed dataset, tars (laion/*.tar), a .csv, .tsv, .jsonl, .parquet or .arrow, or file.py:dataset."
    raise NotADataset(msg, hint=hint)


def _live(dataset: object) -> Target:
    if isinstance(dataset, list | tuple | dict | int | float):
        msg = "audit takes a path or a dataset"
        raise UsageError(msg, got=type_name(dataset))
    what = f"a Python dataset ({type_name(dataset)})"
    return Target(name=what, what=what, kind=PYTHON, spec={"live": True}, digest=None, live=dataset)


def _folder(place: str, progress: Progress, *, hidden: bool) -> Target:
    tars, no_files = list[str](), list[str]()
    with os.scandir(place) as entries:
        for entry in entries:
            if entry.name == INDEX_FOLDER or (entry.is_dir() and os.path.isdir(os.path.join(entry.path, INDEX_FOLDER))):
                return _packed(place)
            if is_tar_name(entry.name) and not entry.is_dir():
                (tars if entry.is_file() else no_files).append(entry.path)
    if tars:
        target = _tars(place, find_tars(tars), progress)
        target.before += [_no_tar(path) for path in sorted(no_files)]
        return target
    return _files(place, scan(place, progress, hidden=hidden))


# ------------------------------------------------------------------------------------------------ packed, tars
def _packed(place: str) -> Target:
    specs, digests, samples = [], [], 0
    for folder in datasets_in(place):
        archive = Archive(folder)
        split = None if folder == place else os.path.basename(folder)
        specs.append(PartSpec(PACKED, os.path.abspath(folder), split=split))
        digests.append(archive.digest)
        samples += len(archive)
    digest = digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()
    what = f"a packed dataset of {format_count(samples, 'sample')}"
    splits = tuple(spec.split for spec in specs if spec.split is not None)
    return Target(name=place, what=what, kind=PACKED, spec=_parts(specs), digest=digest, splits=splits)


def _tars(name: str, tars: TarPaths, progress: Progress) -> Target:
    """Tars in place. Where they have no index, one is made in a temporary folder: nothing is written beside them."""
    known, _ = tarindex.look_up(tars, None)
    scratch = None
    why = ["read with the index beside them"]
    if known is None:
        scratch = Scratch()
        known, _ = tarindex.make(tars, scratch.path, progress=progress)
        why = ["their headers were read: they have no index (fastfeed index keeps one)"]
    if known.dropped:
        why.append(f"{format_count(known.dropped, 'sample')} of the tars cannot be reached, because the tars are damaged")
    spec = PartSpec(TARS, known.base, known.index.path)
    what = f"{format_count(len(known.tars), 'tar')} of {format_count(len(known), 'sample')}"
    return Target(
        name=name, what=what, kind=TARS, spec=_parts([spec]), digest=known.digest, why=tuple(why), tars=tars, _held=[scratch],
    )  # fmt: skip


def _no_tar(path: str) -> SampleRecord:
    """What is called a tar and is no file."""
    link = os.path.islink(path)
    finding = (
        Finding(UNREADABLE, "a link that leads nowhere, or to no file") if link else Finding(SPECIAL, "it is called a tar")
    )
    return SampleRecord(-1, path=os.path.basename(path), findings=[finding])


def _parts(specs: Sequence[PartSpec]) -> dict[str, object]:
    return {"parts": [spec.to_json() for spec in specs]}


# ------------------------------------------------------------------------------------------------ plain files
def _files(place: str, listing: Listing) -> Target:
    """Each file is a sample; classes and splits are those that pack would see."""
    root = os.path.abspath(place)
    draft, splits, why = _draft(listing)
    told = [(item, _told_of(item, root, splits, classes=draft.classes is not None)) for item in listing.left_out]
    before = [SampleRecord(-1, path=item.source, findings=[found]) for item, found in told if found is not None]
    before += _closed_folders(listing)
    others = Counter(item.kind for item, found in told if found is None)
    if others:
        why.append("not looked at: " + ", ".join(f"{count:,} {kind}" for kind, count in sorted(others.items())))
    tars = sum(map(is_tar_name, listing.names))
    if tars:
        such = os.path.join(place, "**", "*.tar")
        why.append(f"{format_count(tars, 'tar')} taken as any other file: audit {such!r} to look into them")
    if not len(listing):
        msg = "there is no file in this folder" + (", only what is left out" if listing.left_out else "")
        raise NotADataset(msg, path=place, hint="Give a folder with files in it, or in folders below it.")
    files = write_index(root, listing, draft)
    spec = PartSpec(FILES, files.root, files.index.path, splits=splits)
    return Target(
        name=place, what=f"a folder of {format_count(len(listing), 'file')}", kind=FOLDER, spec=_parts([spec]),
        digest=files.digest, why=tuple(why), before=before, splits=splits, class_folders=_class_folders(listing, draft, splits),
        _held=[files],
    )  # fmt: skip


def _draft(listing: Listing) -> tuple[Draft, tuple[str, ...], list[str]]:
    """A sample a file, in the order of the listing."""
    count = len(listing)
    draft = Draft("", "files", None, as_imagefolder=False)
    draft.stems, draft.fields = list(listing.paths), list(listing.fields)
    draft.starts, draft.files = array("Q", range(count + 1)), array("q", range(count))
    try:
        found = read_layout(listing, PackConfig(group="none", class_map="union")) if count else []
    except SourceAmbiguous as error:
        return draft, (), [f"classes are not known: {error.message}"]
    labels, classes = array("q", [-1]) * count, next((one.classes for one in found if one.classes is not None), None)
    for one in found if classes is not None else ():
        for sample, label in enumerate(one.labels):
            for number in one.files_of(sample):
                labels[number] = label
    if classes is not None:
        draft.classes, draft.labels = classes, labels
    why = [f"{format_count(len(classes), 'class', 'classes')}, a folder each"] if classes is not None else []
    return draft, tuple(one.split for one in found if one.split), why


def _class_folders(listing: Listing, draft: Draft, splits: tuple[str, ...]) -> frozenset[tuple[str | None, str]]:
    """The folders directly below the root, or below each split."""
    if draft.classes is None:
        return frozenset()
    found: set[tuple[str | None, str]] = set()
    for folder in filter(None, listing.folders):
        top, _, rest = folder.partition("/")
        if not splits and not rest:
            found.add((None, top))
        elif top in splits and rest and "/" not in rest:
            found.add((top, rest))
    return frozenset(found)


def _told_of(item: LeftOut, root: str, splits: tuple[str, ...], *, classes: bool) -> Finding | None:
    """What there is to say of what pack leaves out, because others do not: FIFOs, loops, /proc, leftovers; None of all else.

    Args:
        item: It.
        root: Of the scan.
        splits: Folders directly below it that are splits.
        classes: Whether folders are classes.
    """
    codes = {"special": SPECIAL, "loop": LOOP, "kernel": KERNEL_FOLDER}
    if item.kind in codes:
        return Finding(codes[item.kind], item.why)
    if item.kind not in {"hidden", "system"}:
        return None
    if item.source.rpartition(".")[2].lower() in IMAGE_EXTENSIONS:
        return Finding(LEFT_OUT, item.why)
    home, _, _ = item.source.rpartition("/")
    is_class = classes and home in (splits or ("",)) and os.path.isdir(os.path.join(root, item.source))
    return Finding(JUNK_CLASS, f"{item.why}; fastfeed leaves it out") if is_class else None


def _closed_folders(listing: Listing) -> list[SampleRecord]:
    """Folders that cannot be listed: nobody knows what is in them. Files that cannot be read are samples, and say so."""
    if not listing.unreadable:
        return []
    folders = set(listing.folders)
    return [
        SampleRecord(-1, path=item.source, findings=[Finding(UNREADABLE, f"this folder cannot be listed: {item.why}")])
        for item in listing.unreadable
        if item.source in folders
    ]


# ------------------------------------------------------------------------------------------------ lists, tables, JSON lines
def _is_table(place: str) -> bool:
    """Whether a path, or all that a pattern matches, are lists, tables or JSON lines, by their names."""
    found = [place] if os.path.isfile(place) else [] if os.path.exists(place) else glob(place, recursive=True)
    return bool(found) and all(table_format(path) is not None or path.lower().endswith(TABLES) for path in found)


def _rows(place: str, rows: RowConfig, root: str | None) -> Target:
    """A list of files, or rows that are the samples, as pack tells them apart."""
    try:
        chosen = choose(place, rows, root=root)
    except NothingGained:  # a table of numbers and texts is worth no packing; it may be worth an audit
        chosen = choose(place, rows, root=root, anyway=True)
    assert chosen is not None
    if isinstance(chosen.rows, FileRows):
        return _list(place, chosen.rows.listed)
    assert chosen.rows is not None
    facts = chosen.rows.facts()
    return Target(
        name=place, what=f"{format_count(facts.count, 'row')} of {os.path.basename(place)}", kind=TABLE,
        spec=describe(chosen.rows, facts), digest=_digest_of(facts.identity), why=(*facts.why, *facts.notes),
    )  # fmt: skip


def _digest_of(identity: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()


def _list(place: str, listed: Listed) -> Target:
    """The files that a table names: a row is a sample."""
    sources = [source_path(path, listed.root) for path in listed.listing.paths]
    files = write_index(listed.root, listed.listing, listed.draft, user=listed.columns, sources=sources)
    why = list(listed.draft.why)
    if listed.missing:
        first = printable(listed.missing[0].source)
        why.append(f"{format_count(len(listed.missing), 'row')} of the list name no file that is there ({first})")
    return Target(
        name=place, what=f"a list of {format_count(len(files), 'sample')}", kind=LIST,
        spec=_parts([PartSpec(FILES, files.root, files.index.path)]), digest=files.digest, why=tuple(why), _held=[files],
    )  # fmt: skip
