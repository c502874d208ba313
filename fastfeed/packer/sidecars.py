"""Files for other readers, written beside the shards of a packed dataset, told whole, and known as ours for --overwrite."""

import fcntl
import hashlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

from fastfeed.archive.beside import Sidecar
from fastfeed.archive.dataset import read_record
from fastfeed.archive.manifest import FOLDER, Group
from fastfeed.archive.readers import CARD
from fastfeed.archive.regular import open_regular
from fastfeed.archive.sidecars import RECORD, Place, Written, encode, places, prove_readers, recorded, why_card
from fastfeed.disk import disk_error, publish, remove, settle
from fastfeed.errors import (
    DatasetError,
    DestinationBusy,
    DestinationOccupied,
    FastfeedError,
    SidecarDamaged,
    UsageError,
    VersionUnsupported,
)
from fastfeed.trace import QUIET, Progress
from fastfeed.units import format_count

PART = f"{RECORD}.part"
"""One name for all: what a killed run leaves is overwritten by the next."""
_MAX_FINDINGS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarsResult:
    """What write_sidecars did."""

    path: str
    readers: tuple[str, ...]
    """Those that were asked for, and those that come along."""
    written: tuple[str, ...]
    """Paths."""
    kept: tuple[str, ...]
    """Paths of files that were there: they say the same, or are a beginning that their owner may edit."""
    notes: tuple[str, ...]
    seconds: float


def write_sidecars(
    path: str | os.PathLike[str], readers: Sequence[str], *, overwrite: bool = False, progress: Progress = QUIET
) -> SidecarsResult:
    """Write the index files that other readers need beside the shards of a packed dataset, or of all splits of a pack.

    Nothing is read but manifest and index. The same call again repairs what is missing or damaged, and changes nothing else.

    Args:
        path: The packed folder.
        readers: Some of dali, energon, hf, wids. With energon and wids comes the README.md of hf, since Hugging Face
            datasets would take their files for data.
        overwrite: Replace files of those names that are not fastfeed's, and a README.md, split.yaml or dataset.yaml that
            was edited.
        progress: Hears how many files are written.

    Raises:
        UsageError: There is no such reader, the shards are compressed, or a split has a name that Energon cannot read.
        NotADataset: Nothing packed is there.
        ManifestDamaged: A manifest.
        IndexDamaged: An index.
        DestinationOccupied: Something else has the name of a sidecar.
        DestinationBusy: Another process writes sidecars there.
        DestinationFull: No space.
    """
    began = time.monotonic()
    names, folder = prove_readers(readers), os.path.abspath(os.fsdecode(path))
    works = [_Work(place, names, overwrite=overwrite) for place in places(folder)]  # all refusals before the first write
    progress.start("sidecars", sum(len(work.todo) for work in works), None)
    try:
        for work in works:
            with _locked(work.place):
                work.run(progress)
    except OSError as error:
        raise disk_error(f"{error.filename or folder}: {error.strerror}", error.errno, folder) from error
    progress.finish()
    return SidecarsResult(
        path=folder, readers=tuple(names), written=tuple(os.path.join(w.place.path, s.file) for w in works for s in w.todo),
        kept=tuple(os.path.join(w.place.path, s.file) for w in works for s in w.kept),
        notes=(*_why_card(works, readers), *(note for work in works for note in work.notes)), seconds=time.monotonic() - began,
    )  # fmt: skip


class _Work:
    """What is to be written into one folder."""

    def __init__(self, place: Place, names: Sequence[str], *, overwrite: bool) -> None:
        self.place, self._overwrite = place, overwrite
        self.todo: list[Sidecar] = []
        self.kept: list[Sidecar] = []
        self.notes: list[str] = []
        self._ours, self._stale = self._before()
        wanted = place.wanted({*names, *(one.reader for one in self._ours.values() if self._stale)})
        for sidecar in wanted:
            (self.todo if self._must_write(sidecar) else self.kept).append(sidecar)
        right = {sidecar.file for sidecar in wanted}
        self._gone = sorted(file for file, one in self._ours.items() if self._stale and file not in right and not one.editable)

    def _before(self) -> tuple[dict[str, Written], bool]:
        """What an earlier call wrote here, and whether it was for another dataset."""
        try:
            found = recorded(self.place.path)
        except SidecarDamaged as error:
            self.notes.append(f"{error.message}: it is written anew")
            return {}, False
        return ({one.file: one for one in found[1]}, found[0] != self.place.digest) if found is not None else ({}, False)

    def _must_write(self, sidecar: Sidecar) -> bool:
        """Whether a file is missing, or ours and not right.

        Raises:
            DestinationOccupied: It is somebody else's.
        """
        path, before = os.path.join(self.place.path, sidecar.file), self._ours.get(sidecar.file)
        if not os.path.lexists(path):
            return True
        try:
            problem = sidecar.difference(path)
            ours = before is not None and (not sidecar.editable or facts(path)[1] == before.sha256)
        except OSError as error:
            problem, ours = f"it cannot be read: {error.strerror}", before is not None and not sidecar.editable
        if problem is None or ours or self._overwrite:
            return problem is not None or (ours and self._stale)  # a uuid, say, is right in any form, but not an old one
        if sidecar.editable:
            self.notes.append(f"{sidecar.file} is there and left as it is ({_what_then(sidecar.file)})")
            return False
        msg = f"{sidecar.file} is there already, and it is not what the index gives ({problem})"
        raise DestinationOccupied(msg, path=path, hint="Move it away, or replace it with --overwrite.")

    def run(self, progress: Progress) -> None:
        """Write what is missing; first of all, that these files are ours."""
        home = os.path.join(self.place.path, FOLDER)
        files = {file: one for file, one in self._ours.items() if file not in self._gone}
        for sidecar in self.todo:
            files[sidecar.file] = Written(sidecar.file, sidecar.reader, sidecar.editable, 0, None)
        if self.todo:
            self._record(home, files)
        for sidecar in self.todo:
            size, sha256 = self._write(sidecar, os.path.join(home, PART))
            files[sidecar.file] = Written(sidecar.file, sidecar.reader, sidecar.editable, size, sha256)
            progress.advance(1, size)
        for sidecar in self.kept:
            path = os.path.join(self.place.path, sidecar.file)
            if not sidecar.editable or sidecar.difference(path) is None:  # it says the same: vouched for, whoever wrote it
                size, sha256 = facts(path)
                files[sidecar.file] = Written(sidecar.file, sidecar.reader, sidecar.editable, size, sha256)
        for file in self._gone:
            remove(os.path.join(self.place.path, file))
        self._record(home, files)

    def _write(self, sidecar: Sidecar, part: str) -> tuple[int, str]:
        target = os.path.join(self.place.path, sidecar.file)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        try:
            sidecar.write(part)
            found = facts(part, flush=True)
            settle(part, target)
        finally:
            remove(part)
        return found

    def _record(self, home: str, files: Mapping[str, Written]) -> None:
        raw = encode(self.place.digest, files.values())
        path = os.path.join(home, RECORD)
        if os.path.exists(path):
            with open(path, "rb", opener=open_regular) as file:
                if file.read() == raw:
                    return  # so that a dataset on a disk that cannot be written is found to be complete
        publish(os.path.join(home, PART), path, lambda file: file.write(raw))


def _why_card(works: Sequence[_Work], readers: Sequence[str]) -> list[str]:
    """A file that nobody asked for is explained where it is written."""
    return why_card(readers) if any(sidecar.file == CARD for work in works for sidecar in work.todo) else []


def _what_then(file: str) -> str:
    if file == CARD:
        return "datasets needs the lines `configs:` of fastfeed's: fastfeed index --for hf --overwrite writes them"
    return "--overwrite replaces it"


def facts(path: str, *, flush: bool = False) -> tuple[int, str]:
    """Size and sha256 of a file."""
    with open(path, "rb", opener=open_regular) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        if flush:
            os.fsync(file.fileno())
        return file.tell(), digest


@contextmanager
def _locked(place: Place) -> Iterator[None]:
    """One process at a time, as far as the file system knows locks; each file is whole without them too.

    Raises:
        DestinationBusy: Another process writes here.
    """
    descriptor = os.open(os.path.join(place.path, FOLDER), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        msg = "another process is writing sidecars there"
        raise DestinationBusy(msg, path=place.path, hint="Wait until it is done.") from None
    except OSError:  # no locks here: two writers would write the same bytes
        os.close(descriptor)
        yield
        return
    try:
        yield
    finally:
        os.close(descriptor)


# ------------------------------------------------------------------------------------------------ for verify and --overwrite
def vouched(folder: str) -> set[str]:
    """Files that the record of a folder names; none where it is damaged, which sidecar_findings() tells."""
    try:
        found = recorded(folder)
    except DatasetError:
        return set()
    return {one.file for one in found[1]} if found is not None else set()


def sidecar_findings(path: str) -> Iterator[FastfeedError]:
    """What is wrong with the sidecars at a path, each with how to mend it. What is wrong with manifests is not told here."""
    try:
        record = read_record(path)
    except DatasetError:
        return  # told by verify itself
    for folder in (
        [path, *(os.path.join(path, split) for split in sorted(record.splits))] if isinstance(record, Group) else [path]
    ):
        try:
            found = recorded(folder)
        except (SidecarDamaged, VersionUnsupported) as error:
            yield error
            continue
        if found is not None:
            yield from islice(_judged(path, folder, *found), _MAX_FINDINGS)


def _judged(path: str, folder: str, digest: str, files: Sequence[Written]) -> Iterator[FastfeedError]:
    try:
        place = next(place for place in places(path) if place.path == folder)
        right = {one.file: one for one in place.sidecars()}
    except UsageError as error:
        yield SidecarDamaged(f"sidecars are here, and there cannot be any: {error.message}", path=folder, hint="Remove them.")
        return
    except DatasetError:
        return  # manifest or index are damaged: told by verify itself, and nothing can be derived from them
    if digest != place.digest:
        msg = "the sidecars were made for another dataset than the one that is here"
        readers = ",".join(sorted({one.reader for one in files}))
        yield SidecarDamaged(msg, path=folder, expected=place.digest, got=digest, hint=_again(readers, path))
        return
    begun = [one for one in files if one.sha256 is None and not one.editable]
    if begun:
        msg = f"{format_count(len(begun), 'sidecar')} begun and not finished, {begun[0].file} the first"
        yield SidecarDamaged(msg, path=folder, hint=_again(",".join(sorted({one.reader for one in begun})), path))
    for one in (one for one in files if one.sha256 is not None):
        problem = _problem(one, right.get(one.file), os.path.join(folder, one.file))
        if problem is not None:
            msg = f"the sidecar {one.file} {problem}"
            yield SidecarDamaged(msg, path=os.path.join(folder, one.file), hint=_again(one.reader, path))


def _problem(one: Written, right: Sidecar | None, path: str) -> str | None:
    if right is None:
        return "belongs to no reader"
    if right.editable:
        return None
    try:
        size, sha256 = facts(path)
        problem = right.difference(path)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    except DatasetError:
        return None  # the index is damaged: told by verify itself
    if problem is None and (size, sha256) != (one.size_bytes, one.sha256):
        problem = f"it has {size} bytes and sha256 {sha256}, its record says {one.size_bytes} bytes and {one.sha256}"
    return f"is not what fastfeed wrote: {problem}" if problem is not None else None


def _again(readers: str, path: str) -> str:
    return f"Run fastfeed index {path} --for {readers}: it mends that; the shards are not touched."


def owned(folder: str) -> tuple[list[str], list[str]]:
    """Files of a folder that were written as sidecars: those that may go, and those that their owner has edited.

    Raises:
        SidecarDamaged: The record is damaged.
        VersionUnsupported: It is of a later version.
    """
    found = recorded(folder)
    ours: list[str] = []
    edited: list[str] = []
    for one in found[1] if found is not None else ():
        path = os.path.join(folder, one.file)
        if not os.path.lexists(path):
            continue
        (edited if one.editable and facts(path)[1] != one.sha256 else ours).append(path)
    return ours, edited
