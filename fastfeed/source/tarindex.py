"""The index of tars: found where it was made before, else made, published whole or not at all.

Only what is new is walked: rows of tars that an older index in the same folder knows, and that have not changed since,
are taken over. So a tar that is added to ten thousand costs one walk.
"""

import errno
import fcntl
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass

from fastfeed.archive.index import MEMBER, SAMPLE
from fastfeed.archive.tars import GZIP, LOST, TarSet
from fastfeed.disk import disk_error, publish, remove
from fastfeed.errors import DatasetError, DestinationError, NotADataset
from fastfeed.source.tarfiles import Patterns, TarPaths, find_tars, seek_points
from fastfeed.source.tarrows import Indexed, Older, TarWalk, put_together
from fastfeed.store.gzip_stream import write_seek_points
from fastfeed.store.tars import TarStore
from fastfeed.trace import QUIET, Progress
from fastfeed.units import format_count

WALKERS = 16
"""Tars walked at once. A walk waits for its disk most of the time; where it does not, more make it no slower."""
_POLL_SECONDS = 0.5
_SHOWN = 20
_PART = ".part"
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL})
_UNWRITABLE = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})


@dataclass(frozen=True, slots=True)
class FoundKind:
    """All findings of one kind."""

    kind: str
    count: int
    lost: bool
    """Whether they cost data."""
    examples: tuple[str, ...]
    """The first of them in words, with tar and bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexResult:
    """What is known of tars that are read in place."""

    path: str
    """The index file."""
    base: str
    """The folder below which the tars lie."""
    tars: int
    size_bytes: int
    """Of the tars, as they are stored."""
    samples: int
    members: int
    fields: tuple[str, ...]
    labels: bool
    """Whether every sample has a class number."""
    checksums: bool
    """Whether each read is checked against a checksum."""
    dropped: int
    """Samples that are known to be lost or broken, and are left out."""
    found: tuple[FoundKind, ...]
    """What is no sample, what is damaged, what readers differ about."""
    walked: int
    """Tars whose headers were read in this call; the others were known."""
    index_bytes: int
    seconds: float

    @property
    def lost(self) -> int:
        """How many findings cost data."""
        return sum(kind.count for kind in self.found if kind.lost)


def index_tars(
    tars: Patterns,
    *,
    index_dir: str | os.PathLike[str] | None = None,
    checksums: bool = False,
    walkers: int = WALKERS,
    progress: Progress = QUIET,
) -> IndexResult:
    """Make tars readable at random where they are. What is indexed already, and has not changed, is left alone.

    Args:
        tars: Paths or patterns: "laion/*.tar", "laion/{00000..00099}.tar"; also .tar.gz and .tar.zst.
        index_dir: A folder for the index, where none can be written beside the tars.
        checksums: Read every payload and keep its checksum, so that each later read is checked.
        walkers: How many tars are walked at once.
        progress: Hears how far it is.

    Raises:
        UsageError: No tar is named, or the tars are shards of a packed dataset.
        NotADataset: Nothing is there.
        SourceError: A tar cannot be opened, is compressed with something else, or changes meanwhile; or none has a sample.
        DestinationError: The index cannot be written.
    """
    began = time.monotonic()
    paths = find_tars(tars)
    folder = None if index_dir is None else os.fsdecode(index_dir)
    known, _ = look_up(paths, folder, whole=True)
    walked = 0
    if known is None or (checksums and not known.index.has(MEMBER, "xxh3")):
        known, walked = make(paths, folder, checksums=checksums, walkers=walkers, whole=True, progress=progress)
    return result_of(known, walked, time.monotonic() - began)


def look_up(paths: TarPaths, index_dir: str | None, *, whole: bool = False) -> tuple[TarSet | None, str]:
    """The index of tars if there is one and they have not changed since; else why not.

    Args:
        paths: The tars.
        index_dir: As index_tars().
        whole: Prove all columns of the index, also where it is so large that opening it does not.

    Raises:
        NotADataset: A tar is gone.
    """
    path = paths.index_path(index_dir)
    if not os.path.exists(path):
        return None, "they have no index yet"
    try:
        found = TarSet(path, paths.base)
        if whole:
            found.index.prove()
    except DatasetError as error:
        return None, f"their index cannot be used ({error.message})"
    changed = [
        entry.file
        for entry, facts in zip(found.tars, _facts(paths), strict=True)
        if facts != (entry.size_bytes, entry.mtime_ns)
    ]
    if changed:
        return None, f"{format_count(len(changed), 'tar')} of them changed since they were indexed ({changed[0]})"
    return found, ""


def _facts(paths: TarPaths) -> Iterator[tuple[int, int]]:
    for path in paths.paths():
        try:
            facts = os.stat(path)
        except OSError as error:
            msg = f"a tar cannot be found: {error.strerror}"
            raise NotADataset(msg, path=path) from error
        yield facts.st_size, facts.st_mtime_ns


def make(
    paths: TarPaths, index_dir: str | None, *, checksums: bool = False, walkers: int = WALKERS, whole: bool = False,
    progress: Progress = QUIET,
) -> tuple[TarSet, int]:  # fmt: skip
    """Make the index of tars, and give how many of them were walked. One process at a time does; the others wait for it.

    Raises:
        SourceError: As index_tars().
        DestinationError: As index_tars().
    """
    path = paths.index_path(index_dir)
    folder = os.path.dirname(path)
    try:
        os.makedirs(folder, exist_ok=True)
        with _locked(folder) as alone:
            if alone:
                _clear(folder)
            known, _ = look_up(paths, index_dir, whole=whole)
            if known is not None and (not checksums or known.index.has(MEMBER, "xxh3")):
                return known, 0  # another process has made it while this one waited
            maker = _Maker(paths, path, checksums=checksums)
            data = put_together(maker.run(walkers, progress))
            part = _part(path)
            try:
                publish(part, path, data.write)
            finally:
                remove(part)
            return TarSet(path, paths.base), maker.walked
    except OSError as error:
        raise _unwritable(error, folder, index_dir) from error


def _part(target: str) -> str:
    """A temporary name beside a file: two processes never have the same."""
    return f"{target}.{secrets.token_hex(4)}{_PART}"


def store_of(tars: TarSet) -> TarStore:
    """What reads the tars of a set."""
    behind_gzip = [entry for entry in tars.tars if entry.form == GZIP]
    return TarStore(tars, {entry.file: seek_points(tars.index.path, tars.base, entry) for entry in behind_gzip})


def _unwritable(error: OSError, folder: str, index_dir: str | None) -> DestinationError:
    if error.errno in _UNWRITABLE and index_dir is None:
        msg = f"the index cannot be written beside the tars: {error.strerror}"
        return DestinationError(msg, path=folder, hint="Give a folder for it: index_dir=... (fastfeed index --index-dir DIR).")
    return disk_error(f"{error.filename or folder}: {error.strerror}", error.errno, folder)


def _clear(folder: str) -> None:
    """Remove what a process that was killed left half written."""
    for name in os.listdir(folder):
        if name.endswith(_PART):
            remove(os.path.join(folder, name))


@contextmanager
def _locked(folder: str) -> Iterator[bool]:
    """Hold the folder's lock, and tell whether there is one.

    Where the file system knows no locks, two processes may make the same index: each makes all of it, and the last one stays.
    """
    descriptor = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            alone = True
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            alone = False
        yield alone
    finally:
        os.close(descriptor)


class _Maker:
    """Brings together the rows of all tars.

    Args:
        paths: The tars.
        index_path: Where the index will lie.
        checksums: Whether each payload is read.
    """

    def __init__(self, paths: TarPaths, index_path: str, *, checksums: bool) -> None:
        self._paths, self._index_path, self._checksums = paths, index_path, checksums
        self.walked = 0

    def run(self, walkers: int, progress: Progress) -> Iterator[Indexed]:
        """The rows of all tars, in order, each given away; those that an older index knows are taken from there."""
        facts = dict(zip(self._paths.files, _facts(self._paths), strict=True))
        found = self._known(facts)
        walks = {file: TarWalk(self._paths.base, file, checksums=self._checksums) for file in facts if file not in found}
        self.walked = len(walks)
        total = sum(facts[file][0] for file in walks)
        progress.start("index", len(walks), total)
        with ThreadPoolExecutor(max(1, min(walkers, len(walks))), thread_name_prefix="fastfeed-index") as pool:
            futures = {pool.submit(self._one, walk): file for file, walk in walks.items()}
            try:
                _follow(list(futures), lambda: sum(min(walk.at, facts[file][0]) for file, walk in walks.items()), progress)
            finally:
                for future in futures:
                    future.cancel()
            found.update({file: future.result() for future, file in futures.items()})
        progress.finish()
        return (found.pop(file) for file in self._paths.files)

    def _one(self, walk: TarWalk) -> Indexed:
        item = walk.run()
        if item.entry.form == GZIP and item.entry.samples:
            target = seek_points(self._index_path, self._paths.base, item.entry)
            if not os.path.exists(target):
                part = _part(target)
                write_seek_points(os.path.join(self._paths.base, item.entry.file), part)
                os.rename(part, target)
        return item

    def _known(self, facts: Mapping[str, tuple[int, int]]) -> dict[str, Indexed]:
        """Rows of tars that have not changed since an older index in the folder was made, its own former self first."""
        folder = os.path.dirname(self._index_path)
        names = sorted(name for name in os.listdir(folder) if name.startswith("tars-") and not name.endswith(_PART))
        own = os.path.basename(self._index_path)
        found: dict[str, Indexed] = {}
        for name in sorted(names, key=lambda name: (name != own, name)):
            if len(found) == len(facts):
                break
            self._take(os.path.join(folder, name), facts, found)
        return found

    def _take(self, path: str, facts: Mapping[str, tuple[int, int]], found: dict[str, Indexed]) -> None:
        try:
            tars = TarSet(path, self._paths.base)
            tars.index.prove()  # what is taken over gets new checksums
        except DatasetError:
            return  # a damaged index is of no use; its own is written anew
        older = Older(tars)
        if not older.complete or (self._checksums and not older.checksums):
            return
        for number, entry in enumerate(tars.tars):
            same = facts.get(entry.file) == (entry.size_bytes, entry.mtime_ns)
            if same and entry.file not in found and self._readable(path, entry.file, tars):
                found[entry.file] = older.take(number)

    def _readable(self, path: str, file: str, tars: TarSet) -> bool:
        entry = tars.tars[tars.numbers[file]]
        return entry.form != GZIP or os.path.exists(seek_points(path, self._paths.base, entry))


def _follow(futures: Sequence[Future[Indexed]], done_bytes: Callable[[], int], progress: Progress) -> None:
    """Tell how far the walks are until all have ended, or one has failed."""
    pending: set[Future[Indexed]] = set(futures)
    told = 0
    while pending:
        ended, pending = wait(pending, timeout=_POLL_SECONDS, return_when=FIRST_EXCEPTION)
        now = done_bytes()
        progress.advance(len(ended), max(0, now - told))
        told = max(told, now)
        for future in ended:
            future.result()


def result_of(tars: TarSet, walked: int = 0, seconds: float = 0.0) -> IndexResult:
    """What is known of indexed tars."""
    examples: dict[str, list[str]] = {}
    for finding in tars.index.findings():
        own = examples.setdefault(finding.kind, [])
        if len(own) < _SHOWN:
            own.append(tars.told(finding))
    found = [FoundKind(kind, count, kind in LOST, tuple(examples.get(kind, ()))) for kind, count in tars.found.items()]
    return IndexResult(
        path=tars.index.path, base=tars.base, tars=len(tars.tars), size_bytes=sum(entry.size_bytes for entry in tars.tars),
        samples=len(tars), members=tars.index.members, fields=tars.fields, labels=tars.index.has(SAMPLE, "label"),
        checksums=tars.index.has(MEMBER, "xxh3"), dropped=tars.dropped,
        found=tuple(sorted(found, key=lambda kind: (not kind.lost, kind.kind))), walked=walked,
        index_bytes=tars.index.table.file_bytes, seconds=seconds,
    )  # fmt: skip
