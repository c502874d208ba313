"""From shards back to files: byte for byte, under their original names, and nowhere but below the folder that was asked for."""

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass

import xxhash

from fastfeed.archive.dataset import Archive, Place, datasets_in
from fastfeed.archive.index import MEMBER
from fastfeed.archive.shard import digest, is_safe_source
from fastfeed.disk import disk_error, prove_utf8
from fastfeed.errors import DestinationOccupied, IndexDamaged, UsageError
from fastfeed.packer.decompress import unpack_shards
from fastfeed.packer.result import UnpackResult
from fastfeed.sample import escape, printable
from fastfeed.store.members import MemberReader, store_of
from fastfeed.trace import QUIET, Progress

WORKPLACE = ".fastfeed-unpack"
_NOTE = "digests.json"
_CHUNK_BYTES = 16 << 20
_REPORT_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class _File:
    """One file to be written."""

    archive: Archive
    reader: MemberReader
    position: int
    place: Place
    path: str
    """Below the destination, proven safe."""


def unpack(
    path: str | os.PathLike[str], destination: str | os.PathLike[str], *, shards: bool = False, progress: Progress = QUIET
) -> UnpackResult:
    """Write the files of a packed dataset, or of all splits of one pack call.

    Args:
        path: The packed folder.
        destination: A folder that is new, empty, or holds an interrupted unpack of the same dataset.
        shards: Write the plain tars of compressed shards instead, as a packed dataset: what packing without compression
            would have made.
        progress: Hears how far it is.

    Raises:
        NotADataset: Nothing packed is there.
        UsageError: shards, but they are plain tars already.
        DestinationOccupied: The destination holds something else.
        DestinationError: It cannot be written, or the disk is full.
        IndexDamaged: An original path is unsafe (absolute, "..") or there twice.
        ShardDamaged: Bytes differ from their checksum.
    """
    began = time.monotonic()
    prove_utf8()
    target = os.path.abspath(os.fsdecode(destination))
    folders = datasets_in(os.fsdecode(path))
    _refuse_overlap(os.path.realpath(os.fsdecode(path)), os.path.realpath(target))
    if shards:
        return _shards(os.fsdecode(path), target, progress, began)
    archives = [Archive(folder) for folder in folders]
    files, size_bytes = _prove_paths(archives)
    try:
        resumed = _begin(target, [archive.manifest.digest for archive in archives])
        progress.start("unpack", files, size_bytes)
        writer = _Writer(target, resumed=resumed, progress=progress)
        for archive in archives:
            for file in _files(archive):
                writer.write(file)
            for folder in _class_folders(archive):
                writer.folder(folder)
        writer.report()
        progress.finish()
        _end(os.path.join(target, WORKPLACE))
    except OSError as error:
        raise disk_error(f"{error.filename or target}: {error.strerror}", error.errno, target) from error
    columns = (archive.index.jpeg_rows for archive in archives)
    indexed = sum(column.count() for column in columns if column is not None)
    seconds = time.monotonic() - began
    return UnpackResult(target, len(archives), files, size_bytes, writer.kept, seconds, jpegs_indexed=indexed)


def _shards(path: str, target: str, progress: Progress, began: float) -> UnpackResult:
    try:
        done = unpack_shards(path, target, progress)
    except OSError as error:
        raise disk_error(f"{error.filename or target}: {error.strerror}", error.errno, target) from error
    seconds = time.monotonic() - began
    return UnpackResult(target, done.datasets, 0, done.size_bytes, done.kept, seconds, shards=done.shards)


def _refuse_overlap(source: str, target: str) -> None:
    if os.path.commonpath([source, target]) == source:
        msg = "the destination lies in the packed dataset"
        raise UsageError(msg, path=target, hint="Choose a folder outside of it.")


def _files(archive: Archive) -> Iterator[_File]:
    """Every member that came from a file, in storage order."""
    reader = MemberReader(archive, store_of(archive))
    sources = archive.index.strings(MEMBER, "source") if archive.index.has(MEMBER, "source") else None
    for position in range(len(archive)):
        for place in archive.places(position):
            raw = sources[place.row] if sources is not None else archive.member_name(position, place.field).encode()
            if raw:
                yield _File(archive, reader, position, place, _safe(raw, archive, position))


def _safe(raw: bytes, archive: Archive, position: int) -> str:
    """An original path, proven to stay below the destination.

    Raises:
        IndexDamaged: It would not.
    """
    if not is_safe_source(raw) or raw.partition(b"/")[0] == WORKPLACE.encode():
        msg = f"an original path is unsafe: {printable(escape(raw))!r}"
        hint = "No pack of fastfeed writes such a path: do not trust this dataset."
        raise IndexDamaged(msg, path=archive.index.path, sample=position, key=archive.key(position), hint=hint)
    return escape(raw)


def _prove_paths(archives: list[Archive]) -> tuple[int, int]:
    """Prove all paths safe and different before the first is written; give how many there are, and their bytes.

    Raises:
        IndexDamaged: One is unsafe or there twice.
    """
    seen: set[str] = set()
    folders: set[str] = set()
    size_bytes = 0
    for archive in archives:
        for folder in _class_folders(archive):
            _add_folders(folder, folders)
        for file in _files(archive):
            if file.path in seen:
                msg = f"two members have the same original path {printable(file.path)!r}"
                hint = "No pack of fastfeed writes that: do not trust this dataset."
                raise IndexDamaged(msg, path=archive.index.path, sample=file.position, hint=hint)
            seen.add(file.path)
            _add_folders(os.path.dirname(file.path), folders)
            size_bytes += file.place.stop - file.place.start
    clash = min(seen & folders, default=None)
    if clash is not None:
        msg = f"an original path is a file and a folder: {printable(clash)!r}"
        hint = "No pack of fastfeed writes that: do not trust this dataset."
        raise IndexDamaged(msg, path=archives[0].index.path, hint=hint)
    return len(seen), size_bytes


def _add_folders(folder: str, folders: set[str]) -> None:
    """Add a folder and all above it."""
    while folder and folder not in folders:
        folders.add(folder)
        folder = os.path.dirname(folder)


def _begin(target: str, digests: list[str]) -> bool:
    """Make the destination; give whether an interrupted unpack of the same dataset is there."""
    if os.path.exists(target) and not os.path.isdir(target):
        msg = "the destination is a file"
        raise DestinationOccupied(msg, path=target, hint="Name a folder that is new or empty.")
    note = os.path.join(target, WORKPLACE, _NOTE)
    if os.path.exists(note):
        if _noted(note) != digests:
            msg = "an interrupted unpack of another dataset is there"
            raise DestinationOccupied(msg, path=target, hint="Name another folder, or remove this one.")
        return True
    others = set(os.listdir(target)) - {WORKPLACE} if os.path.isdir(target) else set()
    if others or os.path.islink(os.path.dirname(note)):
        msg = "the destination holds other files"
        hint = (
            "If an unpack of this dataset has finished there, nothing is left to do; else name a folder that is new or empty."
        )
        raise DestinationOccupied(msg, path=target, hint=hint)
    os.makedirs(os.path.dirname(note), exist_ok=True)
    with open(note + ".part", "w", encoding="utf-8") as file:
        json.dump(digests, file)
    os.rename(note + ".part", note)
    return False


def _end(workplace: str) -> None:
    """Remove the work place, the note last: what is killed before is continued, what is killed after is done."""
    for name in os.listdir(workplace):
        if name != _NOTE:
            os.unlink(os.path.join(workplace, name))
    os.unlink(os.path.join(workplace, _NOTE))
    os.rmdir(workplace)


def _noted(note: str) -> object:
    """Whose unpack was interrupted; None where the note cannot be read."""
    try:
        with open(note, encoding="utf-8") as file:
            found: object = json.load(file)
    except ValueError:
        return None
    return found


class _Writer:
    """Writes files whole or not at all: beside the others under a temporary name, then renamed."""

    def __init__(self, target: str, *, resumed: bool, progress: Progress) -> None:
        self.target, self.resumed, self.progress = target, resumed, progress
        self.kept = 0
        self._part = os.path.join(target, WORKPLACE, "part")
        self._folders: set[str] = set()
        self._files = self._bytes = 0
        self._due = time.monotonic() + _REPORT_SECONDS
        self.folder(WORKPLACE)

    def folder(self, path: str) -> None:
        """Make a folder below the destination, and prove that no link leads out of it.

        Raises:
            DestinationOccupied: A link does.
        """
        missing = []
        while path and path not in self._folders:
            missing.append(path)
            path = os.path.dirname(path)
        for below in reversed(missing):  # each is proven before anything is made in it
            full = os.path.join(self.target, below)
            try:
                os.mkdir(full)
            except FileExistsError as error:
                if os.path.islink(full):
                    msg = "a link in the destination may lead out of it"
                    hint = "Name a folder that is new or empty."
                    raise DestinationOccupied(msg, path=full, got=os.path.realpath(full), hint=hint) from error
            self._folders.add(below)

    def write(self, file: _File) -> None:
        """Write one file, unless an interrupted run has."""
        self.folder(os.path.dirname(file.path))
        full = os.path.join(self.target, file.path)
        size = file.place.stop - file.place.start
        if self.resumed and _is_whole(full, size, file.place.xxh3):
            self.kept += 1
        else:
            with open(self._part, "wb", opener=_through_no_link) as out:
                out.writelines(_pieces(file))
            os.rename(self._part, full)
        self._files += 1
        self._bytes += size
        if time.monotonic() >= self._due:
            self.report()

    def report(self) -> None:
        """Tell what was done since the last report."""
        self.progress.advance(self._files, self._bytes)
        self._files = self._bytes = 0
        self._due = time.monotonic() + _REPORT_SECONDS


def _through_no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def _pieces(file: _File) -> Iterator[bytes]:
    """A member's bytes, checked; a large one is checked while it passes, so that memory stays flat."""
    place = file.place
    if place.stop - place.start <= _CHUNK_BYTES:
        yield file.reader.read(file.position, place)
        return
    checksum = xxhash.xxh3_64()
    for start in range(place.start, place.stop, _CHUNK_BYTES):
        piece = file.reader.store.read(place.shard, start, min(start + _CHUNK_BYTES, place.stop))
        checksum.update(piece)
        yield piece
    file.reader.check_digest(file.position, place, checksum.intdigest())


def _is_whole(path: str, size: int, xxh3: int) -> bool:
    if not os.path.isfile(path) or os.path.islink(path) or os.path.getsize(path) != size:
        return False
    with open(path, "rb") as file:
        return digest(file.read()) == xxh3


def _class_folders(archive: Archive) -> Iterator[str]:
    """Folders of classes: those without samples must be made too, without them the class map would differ."""
    manifest = archive.manifest
    if manifest.layout != "classes" or manifest.classes is None:
        return
    for name in manifest.classes:
        path = f"{manifest.split}/{name}" if manifest.split else name
        try:
            raw = os.fsencode(path)
        except UnicodeEncodeError:
            raw = b""  # no bytes of a path read so: refused as the unsafe path that it is
        yield _safe(raw, archive, 0)
