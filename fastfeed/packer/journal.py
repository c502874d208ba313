"""The memory of a pack job: lock, options, kept scan, records of finished shards. It lives in DST/.fastfeed/job.

The folder is there from the first byte until the manifest is published; it is what a rerun continues from.
"""

import errno
import fcntl
import json
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from fastfeed.archive.dataset import read_record
from fastfeed.archive.manifest import FOLDER, GROUP, INDEX, LEFT_OUT, MANIFEST, Group
from fastfeed.archive.regular import open_regular
from fastfeed.archive.shard import COMPRESSED_SUFFIX, shard_file
from fastfeed.archive.sidecars import RECORD
from fastfeed.disk import publish, remove, sync_folder
from fastfeed.errors import DatasetError, DestinationBusy, DestinationError, DestinationOccupied, IndexDamaged, NotADataset
from fastfeed.packer.sidecars import owned
from fastfeed.source.scan import Listing

_LOCK_WAIT_SECONDS = 2.0
"""A killed run's workers die within milliseconds; a run that lives longer than this is another run."""
_OWNED = (MANIFEST, GROUP, INDEX, LEFT_OUT, RECORD)


class PlannedShard(Protocol):
    """A shard to be written."""

    @property
    def file(self) -> str:
        """Its name."""


class PlannedDataset(Protocol):
    """A dataset to be written."""

    @property
    def split(self) -> str:
        """Its folder below the destination, empty without splits."""

    @property
    def name(self) -> str:
        """Stem of its shards' names."""

    @property
    def shards(self) -> Sequence[PlannedShard]:
        """In order."""


class Planned(Protocol):
    """What the journal needs of a plan."""

    @property
    def datasets(self) -> Sequence[PlannedDataset]:
        """Of one call."""


class Journal:
    """The job's folder, locked by this process.

    Args:
        destination: DST; created where it is missing.
        lock: Takes an exclusive lock on a descriptor, as fcntl.flock does.

    Raises:
        DestinationOccupied: Something else than fastfeed's is there.
        DestinationBusy: Another process packs into it.
        DestinationError: It cannot be made.
    """

    def __init__(self, destination: str, *, lock: Callable[[int, int], None] = fcntl.flock) -> None:
        self.destination = destination
        self.folder = os.path.join(destination, FOLDER, "job")
        self.notes: list[str] = []
        """What the user should know of this place."""
        refuse_foreign(destination)
        self._made = not os.path.isdir(destination)
        self._flock = lock
        try:
            self._lock = self._take_lock()
        except OSError as error:
            msg = f"the destination cannot be made: {error.strerror}"
            hint = "Make it writable, or choose another destination."
            raise DestinationError(msg, path=error.filename or destination, hint=hint) from error
        for name in os.listdir(self.folder):
            if name.endswith(".part"):
                remove(os.path.join(self.folder, name))

    def _take_lock(self) -> int:
        deadline = time.monotonic() + _LOCK_WAIT_SECONDS
        path = os.path.join(self.folder, "lock")
        while True:
            try:
                os.makedirs(self.folder, exist_ok=True)
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            except (FileNotFoundError, FileExistsError):  # the latter from makedirs, of a folder that went as it looked
                if time.monotonic() > deadline:
                    raise
                continue  # a run that has just finished removed the folder in between
            if not self._try_lock(descriptor, deadline):
                time.sleep(0.05)
            elif _still(descriptor, path):
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
                return descriptor
            os.close(descriptor)  # held by another run, or that run finished and removed it

    def _try_lock(self, descriptor: int, deadline: float) -> bool:
        """Whether the lock is ours; where the file system knows none, go on without and say so.

        Raises:
            DestinationBusy: Another run still holds it at the deadline.
        """
        try:
            self._flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                owner = os.pread(descriptor, 200, 0).decode(errors="replace")
                os.close(descriptor)
                msg = f"another fastfeed pack is writing there ({owner})"
                hint = "Wait until it is done, or choose another destination."
                raise DestinationBusy(msg, path=self.destination, hint=hint) from None
            return False
        except OSError as error:
            why = f"the destination's file system gives no lock ({error.strerror})"
            self.notes.append(f"{why}: make sure that no other pack writes there")
        return True

    @property
    def descriptor(self) -> int:
        """Of the lock. A forked child must close it: the lock is held as long as any process has it open."""
        return self._lock

    def close(self) -> None:
        """Release the lock; leave what a rerun continues from, and no trace where nothing began."""
        try:
            if _still(self._lock, self.path("lock")):  # else this run has finished, and what is there is the next one's
                self._tidy()
        finally:
            os.close(self._lock)

    def _tidy(self) -> None:
        for name in os.listdir(self.folder):
            if name.endswith(".part"):
                remove(self.path(name))
        if os.listdir(self.folder) == ["lock"]:
            self._remove()
            _remove_if_empty(os.path.dirname(self.folder))
            if self._made:
                _remove_if_empty(self.destination)

    def path(self, name: str) -> str:
        """A file of the job's folder."""
        return os.path.join(self.folder, name)

    def read(self, name: str) -> dict[str, Any] | None:
        """A JSON file of the job's folder; None where there is none, or none that can be read."""
        return _read_json(self.path(name))

    def write(self, name: str, content: Mapping[str, object] | bytes) -> None:
        """A file of the job's folder, whole or not at all."""
        raw = content if isinstance(content, bytes) else json.dumps(content).encode()
        publish(self.path(name + ".part"), self.path(name), lambda file: file.write(raw))

    def kept_listing(self) -> Listing | None:
        """The scan of an earlier run; None where there is none."""
        return peek_listing(self.destination)

    def begin(self, identity: Mapping[str, object], scan: bytes | None = None) -> None:
        """Keep what a rerun must find equal: options and, for a folder, its scan."""
        if scan is not None:
            self.write("scan", scan)
        self.write("job.json", identity)

    def plan_is(self, plan: Planned) -> None:
        """Keep the names of the shards to come, so that --overwrite knows what is ours.

        Shards that an earlier plan of this job had and this one has not (inputs failed in between) are removed.
        """
        named = [_Named(d.split, d.name, len(d.shards), d.shards[0].file.endswith(COMPRESSED_SUFFIX)) for d in plan.datasets]
        kept = {entry.stem: entry.shards for entry in named}
        for entry in _named(self.read("shards.json")):
            for path in entry.paths(kept.get(entry.stem, 0)):
                remove(os.path.join(self.destination, path))
                remove(self.path(f"{os.path.basename(path)}.done"))
        self.write("shards.json", {"shards": named})

    def finish(self) -> None:
        """The manifest is published: the job is forgotten."""
        self._remove()
        sync_folder(os.path.dirname(self.folder))

    def _remove(self) -> None:
        """Remove the folder, if this run still has it.

        The lock goes last. A run that waits for it makes a new one as soon as it has gone: from then on the folder is that
        run's, and a lock that went first would let it in among files that are about to be removed. job.json goes first:
        without it, what a kill leaves here is not taken for a pack that has still to be written.
        """
        if not _still(self._lock, self.path("lock")):
            return
        for name in sorted(os.listdir(self.folder), key=lambda name: (name == "lock", name != "job.json")):
            remove(self.path(name))
        _remove_if_empty(self.folder)

    def clear(self) -> None:
        """Remove what an earlier pack wrote here, manifests first, and nothing else.

        Raises:
            DestinationOccupied: It cannot be told what that is.
        """
        shards = self.owned_shards()
        shards += self._owned_sidecars({self.destination, *map(os.path.dirname, shards)})
        self.write("clearing.json", {"shards": [os.path.relpath(path, self.destination) for path in shards]})
        folders = sorted({self.destination, *(os.path.dirname(path) for path in shards)}, reverse=True)
        for folder in folders:
            for name in _OWNED:
                remove(os.path.join(folder, FOLDER, name))
                remove(os.path.join(folder, FOLDER, f"{name}.part"))
        for path in shards:
            remove(path)
        for name in os.listdir(self.folder):
            if name not in {"lock", "clearing.json"}:
                remove(self.path(name))
        remove(self.path("clearing.json"))  # last: a kill before it, and the next run ends what was begun here
        for folder in folders:
            _remove_if_empty(os.path.join(folder, FOLDER))
            _remove_if_empty(folder)

    def _owned_sidecars(self, folders: Iterable[str]) -> list[str]:
        """Files for other readers that belong to the old pack; those that somebody has edited since stay, with a note.

        Raises:
            DestinationOccupied: It cannot be told which they are.
        """
        found: list[str] = []
        for folder in sorted(folders):
            try:
                ours, edited = owned(folder)
            except DatasetError as error:
                msg = f"it is not known which files are fastfeed's: {error}"
                raise DestinationOccupied(msg, path=folder, hint="Mend that first, or remove the folder by hand.") from error
            found += ours
            self.notes += [f"{os.path.relpath(path, self.destination)} was edited, so it is left as it is" for path in edited]
        return found

    def is_clearing(self) -> bool:
        """Whether a --overwrite was killed in its midst."""
        return self.read("clearing.json") is not None

    def prove_ours(self, plan: Planned) -> None:
        """Let no file be replaced that no manifest and no unfinished job names.

        Raises:
            DestinationOccupied: There is such a file.
        """
        planned = [os.path.join(self.destination, d.split, shard.file) for d in plan.datasets for shard in d.shards]
        there = [path for path in planned if os.path.lexists(path)]
        foreign = sorted(set(there) - set(self.owned_shards())) if there else []
        if foreign:
            msg = f"{os.path.basename(foreign[0])} is there already, and no manifest and no unfinished pack names it"
            hint = f"Restore the {FOLDER} folder that it belongs to, or name a folder that is new or empty."
            raise DestinationOccupied(msg, path=self.destination, hint=hint)

    def owned_shards(self) -> list[str]:
        """Paths of all shards that a manifest or an unfinished job names.

        Raises:
            DestinationOccupied: A damaged manifest names none.
        """
        planned = self.read("shards.json")
        listed = _named(planned)
        clearing = self.read("clearing.json") or {"shards": []}
        try:
            listed.extend(_published(self.destination))
        except NotADataset:
            pass  # nothing was published here yet: the plan names all that can be there
        except DatasetError as error:
            if not planned:
                msg = f"the manifest there is damaged, so it is not known which files are fastfeed's: {error}"
                raise DestinationOccupied(msg, path=self.destination, hint="Remove the folder by hand.") from error
        named = {path for entry in listed for path in entry.paths()}
        return [os.path.join(self.destination, path) for path in sorted({*named, *clearing["shards"]})]


class _Named(NamedTuple):
    """The shards of one dataset by their names."""

    split: str
    name: str
    shards: int
    compressed: bool

    @property
    def stem(self) -> tuple[str, str, bool]:
        """What its shards have in common."""
        return self.split, self.name, self.compressed

    def paths(self, first: int = 0) -> Iterator[str]:
        """Below the destination, from a number on."""
        for number in range(first, self.shards):
            yield os.path.join(self.split, shard_file(self.name, number, compressed=self.compressed))


def _named(kept: Mapping[str, Any] | None) -> list[_Named]:
    """What shards.json says."""
    return [_Named(*entry) for entry in kept["shards"]] if kept else []


def _published(destination: str) -> list[_Named]:
    """What is published at a destination."""
    record = read_record(destination)
    splits = list(record.splits) if isinstance(record, Group) else [""]
    found = []
    for split in splits:
        below = read_record(os.path.join(destination, split)) if split else record
        if not isinstance(below, Group):
            found.append(_Named(split, below.name, len(below.shards), below.compression is not None))
    return found


def peek(destination: str) -> dict[str, Any] | None:
    """The options of an unfinished job at a destination, without touching it; None where there is none."""
    return _read_json(os.path.join(destination, FOLDER, "job", "job.json"))


def peek_listing(destination: str) -> Listing | None:
    """The kept scan of an unfinished job at a destination, without touching it; None where there is none."""
    path = os.path.join(destination, FOLDER, "job", "scan")
    try:
        with open(path, "rb", opener=open_regular) as file:
            return Listing.load(file.read(), path)
    except FileNotFoundError:
        return None
    except IndexDamaged as error:  # no reader ever sees this file, so verify and copies help nobody
        error.hint = "What this pack would be continued from is damaged: start anew with --overwrite."
        raise


def _read_json(path: str) -> dict[str, Any] | None:
    try:
        with open(path, encoding="utf-8", opener=open_regular) as file:
            found = json.load(file)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None  # a torn file is no file: what it should protect is refused by prove_ours
    return found if isinstance(found, dict) else None


def refuse_foreign(destination: str) -> None:
    """Let nothing but a new, an empty, or a folder of fastfeed's pass.

    Raises:
        DestinationOccupied: It is something else.
    """
    if os.path.exists(destination) and not os.path.isdir(destination):
        msg = "the destination is a file"
        raise DestinationOccupied(msg, path=destination, hint="Name a folder that is new or empty.")
    if os.path.isdir(destination) and os.listdir(destination) and not os.path.isdir(os.path.join(destination, FOLDER)):
        msg = "the destination holds other files, and fastfeed shares a folder with nobody"
        raise DestinationOccupied(msg, path=destination, hint="Name a folder that is new or empty.")


def _still(descriptor: int, path: str) -> bool:
    """Whether a path still names the open file."""
    try:
        there, here = os.stat(path), os.fstat(descriptor)
    except FileNotFoundError:
        return False
    return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)


def _remove_if_empty(folder: str) -> None:
    try:
        os.rmdir(folder)
    except OSError as error:  # asking first would be a race with another run, which may just be making its own
        if error.errno not in {errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT}:
            raise
