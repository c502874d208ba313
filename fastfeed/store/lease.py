"""A cache that is made, joined, left, and removed with its last lease.

A cache is complete once its ``about`` is there. Workers that are forked use what their parent has open, and have no lease: a
cache goes with the processes that opened it, not with workers that outlive them by seconds. What is open can be read on even
then. Workers that are spawned are guests for the same reason: they open the files and take no lease.
"""

import errno
import fcntl
import json
import logging
import os
import time
import weakref
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

from fastfeed.store.cachefolder import ABOUT, DATA, KEEP, LOCK_SECONDS, TABLE, CacheFolder, CacheUnusable, unlock

LOG = logging.getLogger("fastfeed.cache")
ROW_BYTES = 32
"""Of the table."""
OPEN = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_ABOUT_BYTES = 1 << 16
_SHORT = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}
"""The process or the machine has no more of something."""
_Joined = tuple[CacheFolder, list[int], tuple[int, int, int]]
"""The folder of all caches; the descriptor whose lock is the lease, none for a guest; those of the cache's folder and files."""


class Lease:
    """A cache that this process has open, and that is not removed while it has.

    Args:
        base: The place.
        name: Of the cache.
        entries: Rows of its table.
        about: What it is of, for those who look at it; as JSON.
        keep: It stays when its last lease ends.
        guest: Somebody else has a lease for as long as this process lives: it takes none, and makes nothing.

    Raises:
        CacheUnusable: The place cannot be used.
    """

    def __init__(
        self, base: str, name: str, entries: int, *, about: Mapping[str, object], keep: bool = False, guest: bool = False
    ) -> None:
        join = _visited if guest else partial(_joined, entries=entries, about=about, keep=keep)
        try:
            self.folder, self._held, (self.own, self.table, self.data) = join(base, name)
        except OSError as error:
            msg = f"the cache at {base} cannot be used: {error.strerror}"
            raise CacheUnusable(msg) from error
        _LEASES.add(self)
        self.close = weakref.finalize(self, _left, self.folder, name, self._held)
        """Leave. With the last lease the cache is removed, unless it is kept; what is open stays open for other threads."""
        # Not at the end of the program: a thread that still reads must not find another file under a number.
        weakref.finalize(self, _closed, (self.own, self.table, self.data)).atexit = False

    def drop(self) -> None:
        """End the lease, and keep open what is open."""
        while self._held:
            os.close(self._held.pop())


_LEASES: "weakref.WeakSet[Lease]" = weakref.WeakSet()


def _drop_all() -> None:
    """In a process just forked."""
    for lease in list(_LEASES):
        lease.drop()


os.register_at_fork(after_in_child=_drop_all)


def _visited(base: str, name: str) -> _Joined:
    """A cache that somebody else has a lease on."""
    folder = CacheFolder(base, make=False)
    return folder, [], _opened(folder, name)


def _joined(base: str, name: str, *, entries: int, about: Mapping[str, object], keep: bool) -> _Joined:
    """A cache with a lease, made where there is none."""
    deadline = time.monotonic() + LOCK_SECONDS
    while time.monotonic() < deadline:
        folder = CacheFolder(base)
        try:
            with folder.locked():
                folder.sweep(but=name)
                _settle(folder, name, entries, about)
                if keep:
                    os.close(os.open(f"{name}/{KEEP}", OPEN | os.O_CREAT, 0o600, dir_fd=folder.descriptor))
                return folder, *_leased(folder, name)
        except FileNotFoundError:
            continue  # the last cache was removed from the folder just now, and the folder with it
    msg = f"the folder of caches at {base} was removed again and again"
    raise CacheUnusable(msg)


def _leased(folder: CacheFolder, name: str) -> tuple[list[int], tuple[int, int, int]]:
    """The lease of a cache, under the lock, and what is open of it; nothing is left open if that fails."""
    lease = folder.open(name)
    try:
        fcntl.flock(lease, fcntl.LOCK_SH | fcntl.LOCK_NB)  # nobody has another one: that would need the folder's lock
        return [lease], _opened(folder, name)
    except OSError:
        os.close(lease)
        raise


def _opened(folder: CacheFolder, name: str) -> tuple[int, int, int]:
    """Descriptors of a cache's folder, its table and its data."""
    own = folder.open(name)
    found = [own]
    try:
        found.extend(os.open(file, OPEN, dir_fd=own) for file in (TABLE, DATA))  # the first stays in it if the second fails
    except OSError:
        for descriptor in found:
            os.close(descriptor)
        raise
    return found[0], found[1], found[2]


def _settle(folder: CacheFolder, name: str, entries: int, about: Mapping[str, object]) -> None:
    """Have a cache: the one that is there, or a new one."""
    there = name in folder.names()
    if there and _is_complete(folder, name, entries):
        return
    if there and folder.is_used(name):
        msg = f"the cache {folder.path}/{name} is damaged, and in use"
        raise CacheUnusable(msg)
    if there:
        folder.remove(name)
    _make(folder, name, entries, about)


def _is_complete(folder: CacheFolder, name: str, entries: int) -> bool:
    """Whether a cache was made to its end, and by one that had as many entries."""
    try:
        about = read_about(folder, name)
        size = os.stat(f"{name}/{TABLE}", dir_fd=folder.descriptor, follow_symlinks=False).st_size
        os.stat(f"{name}/{DATA}", dir_fd=folder.descriptor, follow_symlinks=False)
    except ValueError:
        return False
    except OSError as error:
        if error.errno in _SHORT:
            raise  # it says nothing about the cache
        return False
    return size == entries * ROW_BYTES and about.get("entries") == entries


def _make(folder: CacheFolder, name: str, entries: int, about: Mapping[str, object]) -> None:
    """Make a cache, or nothing."""
    text = json.dumps({**about, "entries": entries, "made": time.time()}).encode("ascii")
    os.mkdir(name, 0o700, dir_fd=folder.descriptor)
    with ExitStack() as undo:
        undo.callback(folder.remove, name)
        for file, content in ((DATA, b""), (TABLE, b""), (ABOUT, text)):  # about last: then it is complete
            path = f"{name}/{file}"
            made = os.open(path, OPEN | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder.descriptor)
            with open(made, "wb") as stream:
                stream.write(content)
                if file == TABLE:
                    stream.truncate(entries * ROW_BYTES)
        undo.pop_all()


def read_about(folder: CacheFolder, name: str) -> dict[str, Any]:
    """What a cache says of itself.

    Raises:
        OSError: It says nothing.
        ValueError: Or nothing that can be read.
    """
    descriptor = os.open(f"{name}/{ABOUT}", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder.descriptor)
    try:
        about = json.loads(os.read(descriptor, _MOST_ABOUT_BYTES))
    finally:
        os.close(descriptor)
    if not isinstance(about, dict):
        msg = "it is no table"
        raise ValueError(msg)  # noqa: TRY004 - as what cannot be decoded
    return about


def _closed(descriptors: tuple[int, ...]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _left(folder: CacheFolder, name: str, lease: list[int]) -> None:
    """Who had a lease, and was the last, removes the cache."""
    leased = bool(lease)
    while lease:
        unlock(lease.pop())
    if not leased:
        return
    try:
        with folder.locked():
            if name in folder.names() and not folder.is_kept(name) and not folder.is_used(name):
                folder.remove(name)
            folder.remove_empty()
    except (OSError, CacheUnusable) as error:
        LOG.info("a cache that was left is still there, and is removed by the next run that caches: %s", error)
