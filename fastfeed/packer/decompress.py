"""From compressed shards to the plain tars that they hold: the dataset that packing without compression would have made.

Index and left-out list are the same bytes, since offsets count in the tar anyway; the manifest is written anew. Shards are
published whole or not at all, the manifest last, and the next run goes on where one was interrupted, as pack does.
"""

import hashlib
import os
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import BinaryIO

from fastfeed.archive.dataset import Archive, datasets_in, read_record
from fastfeed.archive.manifest import FOLDER, Group, Manifest, OwnedFile, ShardEntry
from fastfeed.archive.regular import open_regular
from fastfeed.archive.shard import RESTORE, shard_file
from fastfeed.config import OF_COMPRESSION
from fastfeed.disk import FULL_HINT, publish
from fastfeed.errors import DestinationFull, DestinationOccupied, IndexDamaged, NotADataset, ShardDamaged, UsageError
from fastfeed.machine import free_bytes, processors
from fastfeed.packer.journal import Journal
from fastfeed.packer.publish import publish_group, publish_manifest
from fastfeed.packer.shardfile import Finished, ShardFile
from fastfeed.packer.tape import Tape, members_in, open_tape
from fastfeed.trace import Progress
from fastfeed.units import format_size

_SPARE_BYTES = 1 << 20
_COPY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class _Shard:
    """One shard to be written."""

    archive: Archive
    entry: ShardEntry
    folder: str
    """Of the new dataset."""
    file: str

    @property
    def target(self) -> str:
        return os.path.join(self.folder, self.file)


@dataclass(frozen=True, slots=True)
class _Dataset:
    """One dataset to be written, as the journal wants it."""

    archive: Archive
    split: str
    """Its folder below the destination, empty for a dataset by itself."""
    shards: tuple[_Shard, ...]

    @property
    def name(self) -> str:
        return self.archive.manifest.name


@dataclass(frozen=True, slots=True)
class Unpacked:
    """What was written."""

    datasets: int
    shards: int
    kept: int
    """Shards that an interrupted run had already written."""
    size_bytes: int


def unpack_shards(path: str, target: str, progress: Progress) -> Unpacked:
    """Write the plain tars of a compressed dataset, or of all splits of one pack call.

    Args:
        path: The packed folder.
        target: A folder that is new, empty, or holds an interrupted run of this.
        progress: Hears how far it is.

    Raises:
        UsageError: The shards are plain tars already.
        DestinationOccupied: The destination holds something else.
        DestinationFull: Not enough space.
        ShardDamaged: A shard is not as it was packed; none is written from it.
    """
    datasets = _datasets(path, target)
    journal = Journal(target)
    try:
        _begin(journal, datasets)
        shards = [shard for dataset in datasets for shard in dataset.shards]
        todo = [shard for shard in shards if _finished(journal, shard) is None]
        _prove_room(target, todo)
        progress.start("unpack", len(todo), sum(shard.entry.stream_bytes for shard in todo))
        _write(journal, todo, progress)
        progress.finish()
        manifests = {dataset.split: _publish(journal, dataset) for dataset in datasets}
        if list(manifests) != [""]:
            publish_group(target, manifests)
        journal.finish()
    finally:
        journal.close()
    size_bytes = sum(shard.entry.stream_bytes for shard in shards)
    return Unpacked(len(datasets), len(shards), len(shards) - len(todo), size_bytes)


def _datasets(path: str, target: str) -> list[_Dataset]:
    is_group = isinstance(read_record(path), Group)
    found = []
    for folder in datasets_in(path):
        archive, split = Archive(folder), os.path.basename(folder) if is_group else ""
        if archive.manifest.compression is None:
            msg = "the shards here are plain tars already"
            raise UsageError(msg, path=folder, hint="Copy the folder, .fastfeed included; or unpack to files without --shards.")
        archive.prove_shard_sizes()
        name, home = archive.manifest.name, os.path.join(target, split)
        entries = enumerate(archive.manifest.shards)
        shards = tuple(_Shard(archive, entry, home, shard_file(name, number)) for number, entry in entries)
        found.append(_Dataset(archive, split, shards))
    return found


@dataclass(frozen=True, slots=True)
class _Planned:
    """As the journal wants it."""

    datasets: tuple[_Dataset, ...]


def _begin(journal: Journal, datasets: list[_Dataset]) -> None:
    """Take the destination, or find that an interrupted run of this has it."""
    identity = {"unpack": [dataset.archive.manifest.digest for dataset in datasets]}
    before = journal.read("job.json")
    if before is not None and before != identity:
        what = "an interrupted unpack of another dataset" if "unpack" in before else "an unfinished pack"
        raise DestinationOccupied(f"{what} is there", path=journal.destination, hint="Name another folder, or remove this one.")
    if before is None:
        try:
            read_record(journal.destination)
        except NotADataset:
            journal.begin(identity)
        else:
            msg = "a packed dataset is there already"
            hint = "If an unpack of this one has finished there, nothing is left to do; else name a new or empty folder."
            raise DestinationOccupied(msg, path=journal.destination, hint=hint)
    planned = _Planned(tuple(datasets))
    journal.prove_ours(planned)
    journal.plan_is(planned)


def _finished(journal: Journal, shard: _Shard) -> Finished | None:
    """What is known of a shard that an interrupted run has written; None where it has not."""
    note = journal.read(f"{shard.file}.done")
    whole = os.path.exists(shard.target) and os.path.getsize(shard.target) == shard.entry.stream_bytes
    return Finished(**note) if note is not None and whole else None


def _prove_room(target: str, todo: list[_Shard]) -> None:
    homes = {shard.archive.path: shard.archive.manifest for shard in todo}
    owned = sum(manifest.index.size_bytes + manifest.left_out.size_bytes for manifest in homes.values())
    need, free = sum(shard.entry.stream_bytes for shard in todo) + owned + _SPARE_BYTES, free_bytes(target)
    if need > free:
        msg = "there is not enough free space"
        raise DestinationFull(msg, path=target, expected=format_size(need), got=f"{format_size(free)} free", hint=FULL_HINT)


def _write(journal: Journal, todo: Iterable[_Shard], progress: Progress) -> None:
    """Threads: decoding, hashing and writing hold no lock of the interpreter."""
    stop = threading.Event()
    with ThreadPoolExecutor(processors().count) as pool:
        waiting = [pool.submit(_write_one, journal, shard, progress, stop) for shard in todo]
        try:
            for done in waiting:
                done.result()
        finally:
            stop.set()  # after an error or Ctrl-C no thread begins another, nor goes on with its own
            for later in waiting:
                later.cancel()


class _Stopped(Exception):
    """Another shard has failed."""


def _write_one(journal: Journal, shard: _Shard, progress: Progress, stop: threading.Event) -> None:
    def save(done: Finished) -> None:
        facts = {"sha256": done.sha256, "size_bytes": done.size_bytes, "tar_bytes": done.tar_bytes}
        journal.write(f"{shard.file}.done", facts)

    path = os.path.join(shard.archive.path, shard.entry.file)
    os.makedirs(shard.folder, exist_ok=True)
    with _reading(shard):
        file = open(path, "rb", buffering=0, opener=open_regular)  # noqa: SIM115 - closed below
    with file, ShardFile(journal.path(f"{shard.file}.{os.getpid()}.part"), shard.target) as out:
        _copy(file.fileno(), shard, out, (progress, stop))
        out.finish(save, trailer=False)
    progress.advance(1, 0)


def _copy(descriptor: int, shard: _Shard, out: ShardFile, hears: tuple[Progress, threading.Event]) -> None:
    """The tar in a shard, proven frame by frame and at the end by the file's sha256."""
    progress, stop = hears
    with _reading(shard):
        tape = open_tape(descriptor, stop, shard.archive.manifest.framed(shard.entry))
    if tape.problem is not None:
        raise tape.problem
    for piece in _pieces(tape, shard):
        if stop.is_set():
            raise _Stopped
        if tape.lost:
            lost = tape.lost[0]
            lost.members += members_in(shard.archive, shard.entry, lost.frame)
            raise lost.told(shard.archive)
        out.write(piece)
        progress.advance(0, len(piece))
    with _reading(shard):
        sha256 = tape.finish()
    if sha256 != shard.entry.sha256:
        msg = "a shard's sha256 differs from the manifest's"
        raise ShardDamaged(msg, shard=shard.entry.file, expected=shard.entry.sha256, got=sha256, hint=RESTORE)


def _pieces(tape: Tape, shard: _Shard) -> Iterator[bytes]:
    with _reading(shard):
        yield from tape.pieces()


@contextmanager
def _reading(shard: _Shard) -> Iterator[None]:
    """An I/O error here is the shard's, not the destination's."""
    try:
        yield
    except OSError as error:
        msg = f"a shard cannot be read: {error.strerror}"
        raise ShardDamaged(msg, path=shard.archive.path, shard=shard.entry.file, hint=RESTORE) from error


def _publish(journal: Journal, dataset: _Dataset) -> Manifest:
    """Index, left-out list, manifest."""
    manifest, home = dataset.archive.manifest, os.path.join(journal.destination, dataset.split, FOLDER)
    os.makedirs(home, exist_ok=True)
    for owned in (manifest.index, manifest.left_out):
        _carry(os.path.join(dataset.archive.path, FOLDER), home, owned)
    entries = []
    for shard in dataset.shards:
        done = _finished(journal, shard)
        if done is None:
            msg = "a finished shard has gone or changed before the manifest was written"
            raise DestinationOccupied(msg, path=shard.target, hint="Nothing else may write there. Run the same command again.")
        entries.append(ShardEntry(shard.file, shard.entry.samples, done.size_bytes, done.sha256))
    options = {name: value for name, value in manifest.options.items() if name not in OF_COMPRESSION}
    return publish_manifest(home, replace(manifest, shards=tuple(entries), compression=None, options=options))


def _carry(source: str, home: str, owned: OwnedFile) -> None:
    """A file of .fastfeed as it is, proven by its sha256."""
    path, part = os.path.join(source, owned.file), os.path.join(home, f"{owned.file}.part")

    def copy(out: BinaryIO) -> None:
        sha256 = hashlib.sha256()
        with open(path, "rb", opener=open_regular) as file:
            while piece := file.read(_COPY_BYTES):
                sha256.update(piece)
                out.write(piece)
        if sha256.hexdigest() != owned.sha256:
            msg = f"{FOLDER}/{owned.file} is damaged"
            raise IndexDamaged(msg, path=path, expected=owned.sha256, got=sha256.hexdigest(), hint=RESTORE)

    publish(part, os.path.join(home, owned.file), copy)
