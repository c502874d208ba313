"""Which files beside the shards other readers need, and the record of those that were written. README.md §9.

Everything is derived from manifest and index: no shard is read.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from fastfeed.archive import energon, readers
from fastfeed.archive.beside import Rows, Sidecar, compressed, prove_plain
from fastfeed.archive.dataset import Archive, read_record
from fastfeed.archive.manifest import FOLDER, VERSION, Group, canonical
from fastfeed.archive.regular import open_regular
from fastfeed.errors import SidecarDamaged, UsageError, VersionUnsupported

READERS = (readers.DALI, energon.READER, readers.HF, readers.WIDS)
RECORD = "sidecars.json"
_MISLEAD = (energon.READER, readers.WIDS)
"""Whose files Hugging Face datasets takes for data (.tar.idx always, a .json beside one shard) unless a card names the data."""
_FILE = re.compile(r"README\.md|[A-Za-z0-9_-]{1,60}(?:\.index\.json|-\d{6,}(?:\.tar)?\.idx)|\.nv-meta/[a-z.]{1,20}")
"""What a record can name: it says what may be removed."""
_AGAIN = "Run fastfeed index with the same --for again: it writes them anew."


@dataclass(frozen=True, slots=True)
class Written:
    """One sidecar as it was written."""

    file: str
    reader: str
    editable: bool
    size_bytes: int
    sha256: str | None
    """None from the moment on that it is ours to write, until it is written."""


@dataclass(frozen=True, slots=True)
class Place:
    """A folder that has sidecars: a dataset's, or that of a group of splits."""

    path: str
    digest: str
    """Of the manifest or of pack.json."""
    parts: Mapping[str, Rows]
    """Folder of each split -> its rows; an empty name for the dataset of this very folder."""
    in_group: bool = False
    """Reached by way of its group, which has the files that are there once."""

    def sidecars(self) -> list[Sidecar]:
        """All files that can be here.

        Raises:
            UsageError: Energon cannot name a split.
        """
        archives = {split: rows.archive for split, rows in self.parts.items()}
        own = self.parts.get("")
        found = [readers.card(archives), *energon.metadata(self.parts, self.digest)]
        if own is not None:
            found.append(readers.wids_index(own.archive))
            for pair in zip(readers.dali_indexes(own), energon.tar_indexes(own), strict=True):
                found.extend(pair)  # shard by shard, so that its rows are looked up once
        return found

    def wanted(self, names: Iterable[str]) -> list[Sidecar]:
        """Those of some readers; .nv-meta is there once, in the group's folder, where the group was named.

        Raises:
            UsageError: Energon cannot name a split.
        """
        there_once = f"{energon.META}/"
        return [
            one for one in self.sidecars() if one.reader in names and not (self.in_group and one.file.startswith(there_once))
        ]  # fmt: skip


def prove_readers(names: Sequence[str], *, compression: object = None) -> list[str]:
    """Names of readers, in order, each once; datasets' card comes with those whose files would mislead it.

    Args:
        names: Of READERS.
        compression: Of the shards to come: other readers take none.

    Raises:
        UsageError: There is no such reader, or none for such shards.
    """
    if names and compression:
        raise compressed()
    unknown = sorted(set(names) - set(READERS))
    if unknown or isinstance(names, str):
        msg = f"sidecars are known for {', '.join(READERS)}"
        raise UsageError(msg, got=names if isinstance(names, str) else ", ".join(unknown))
    return [name for name in READERS if name in names or (name == readers.HF and not set(names).isdisjoint(_MISLEAD))]


def why_card(names: Sequence[str]) -> list[str]:
    """Why a card is written that was not asked for."""
    for_whom = " and ".join(name for name in _MISLEAD if name in names)
    why = f"README.md comes along: without it Hugging Face datasets would take the index files for {for_whom} for data"
    return [why] if for_whom and readers.HF not in names else []


def places(path: str) -> list[Place]:
    """The folders at a path that have sidecars: a group's and those of its splits, or a dataset's.

    Raises:
        NotADataset: Nothing packed is there.
        ManifestDamaged: A manifest is damaged.
        IndexDamaged: An index is damaged.
        UsageError: The shards are compressed.
    """
    record = read_record(path)
    if not isinstance(record, Group):
        return [_dataset(path)]
    splits = {split: _dataset(os.path.join(path, split), in_group=True) for split in sorted(record.splits)}
    return [Place(path, record.digest, {split: place.parts[""] for split, place in splits.items()}), *splits.values()]


def _dataset(path: str, *, in_group: bool = False) -> Place:
    archive = Archive(path)
    prove_plain(archive)
    return Place(path, archive.manifest.digest, {"": Rows(archive)}, in_group)


# ------------------------------------------------------------------------------------------------ the record
def encode(digest: str, files: Iterable[Written]) -> bytes:
    """The record's bytes: canonical JSON with a digest, as a manifest's."""
    listed = [asdict(file) for file in sorted(files, key=lambda file: file.file)]
    body = {"version": VERSION, "kind": "sidecars", "dataset": digest, "files": listed}
    return canonical({**body, "digest": hashlib.sha256(canonical(body)).hexdigest()})


def recorded(folder: str) -> tuple[str, list[Written]] | None:
    """Digest of the dataset (or group) that the sidecars of a folder were made for, and their list; None without a record.

    Raises:
        SidecarDamaged: The record is damaged.
        VersionUnsupported: It is of a later version.
    """
    path = os.path.join(folder, FOLDER, RECORD)
    try:
        with open(path, "rb", opener=open_regular) as file:
            raw = file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        msg = f"the record of the sidecars cannot be read: {error.strerror}"
        raise SidecarDamaged(msg, path=path, hint=_AGAIN) from error
    try:
        body = json.loads(raw)
        if body["version"] != VERSION:
            msg = f"the record of the sidecars has version {body['version']!r}"
            raise VersionUnsupported(msg, path=path, expected=VERSION, hint="Install a newer fastfeed.")
        files = [Written(**entry) for entry in body["files"]]
        if encode(body["dataset"], files) != raw or not all(_FILE.fullmatch(one.file) for one in files):
            msg = "its own digest does not fit, or it names other files"
            raise ValueError(msg)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        msg = f"the record of the sidecars is damaged: {error}"
        raise SidecarDamaged(msg, path=path, hint=_AGAIN) from error
    return body["dataset"], files
