"""The folder in which one user's caches lie, at a place where others may write too: /dev/shm, a disk for temporary files.

Nobody else gets into it: it is the user's own, with mode 0700, no link, and it is opened once; whatever lies in it is reached
from its descriptor, so no name outside can be exchanged for another. A folder of that name that is somebody else's, or that
others may enter, is not used at all.

Each cache is a folder in it. Who uses a cache holds a shared lock (flock) on that folder for as long as it lives: its lease.
The kernel takes it back from a process that is killed, so a cache on whose folder an exclusive lock can be had is nobody's.
What changes caches as a whole (making, joining, sweeping, giving out room) is done under a lock on the folder of all of them.
"""

import errno
import fcntl
import os
import re
import shutil
import stat
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from fastfeed.units import format_seconds

NAME = re.compile(r"[0-9a-f]{32}")
"""Of a cache."""
TABLE, DATA, ABOUT, KEEP = FILES = "table", "data", "about", "keep"
"""Of a cache. It has the last one only if it is not removed with its last lease."""
LOCK_SECONDS = 30.0
"""Longer than removing a large cache takes; a process that was stopped while it held the lock must not stop others."""
_POLL_SECONDS = 0.0005, 0.01
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class CacheUnusable(Exception):
    """Why there is no cache; a sentence. It never leaves store/ and feed/."""


def lock(descriptor: int, how: int, seconds: float) -> bool:
    """Lock an open file by flock; whether that was possible within some seconds."""
    return within(seconds, lambda: fcntl.flock(descriptor, how | fcntl.LOCK_NB))


def within(seconds: float, attempt: Callable[[], object]) -> bool:
    """Try to lock something until others have given it back; whether that was possible within some seconds.

    Args:
        seconds: How long.
        attempt: Locks it, or raises as flock(2) and fcntl(2) do while somebody has it.
    """
    deadline, pause = time.monotonic() + seconds, _POLL_SECONDS[0]
    while True:
        try:
            attempt()
        except (BlockingIOError, PermissionError):  # EAGAIN or EACCES: POSIX leaves to the system which
            if time.monotonic() >= deadline:
                return False
            time.sleep(pause)
            pause = min(2 * pause, _POLL_SECONDS[1])
        else:
            return True


def unlock(descriptor: int) -> None:
    """Give a lock back and close its file.

    Closing alone does not do it: a process that another thread has forked meanwhile has a copy of the descriptor, and with it
    the lock, for as long as it lives.
    """
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


class _Held(threading.local):
    """What this thread has locked."""

    def __init__(self) -> None:
        self.paths: set[str] = set()


_HELD = _Held()


class CacheFolder:
    """The caches of this user at one place.

    Args:
        base: The place: a folder that is there.
        make: Make the folder where there is none.

    Raises:
        CacheUnusable: The place cannot be used, or what lies there is not this user's alone.
        FileNotFoundError: There is none, and none shall be made.
    """

    def __init__(self, base: str, *, make: bool = True) -> None:
        self.path = os.path.join(base, f"fastfeed-cache-{os.geteuid()}")
        try:
            self.descriptor = _made(self.path) if make else os.open(self.path, _FOLDER)
        except FileNotFoundError:
            if make:
                msg = f"there is no folder {base}"
                raise CacheUnusable(msg) from None
            raise
        except OSError as error:
            if error.errno == errno.ENOTDIR and not os.path.isdir(base):
                msg = f"{base} cannot be used: it is no folder"
                raise CacheUnusable(msg) from error
            why = "it is a link, or no folder" if error.errno in {errno.ELOOP, errno.ENOTDIR} else error.strerror
            msg = f"{self.path} cannot be used: {why}"
            raise CacheUnusable(msg) from error
        weakref.finalize(self, os.close, self.descriptor).atexit = False
        self._prove()

    def _prove(self) -> None:
        facts = os.fstat(self.descriptor)
        if facts.st_uid != os.geteuid():
            msg = f"{self.path} belongs to another user (number {facts.st_uid}): nothing is read from it or written to it"
            raise CacheUnusable(msg)
        if stat.S_IMODE(facts.st_mode) & 0o077:
            mode = stat.S_IMODE(facts.st_mode)
            msg = f"{self.path} may be entered by others (mode {mode:04o}, not 0700): nothing is read from it or written to it"
            raise CacheUnusable(msg)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Alone among all processes, and threads, that change caches here.

        A thread that has the lock already goes on: the garbage collector may make it leave another cache in its midst.

        Raises:
            CacheUnusable: Another one holds the lock for too long.
            FileNotFoundError: The folder is gone.
        """
        if self.path in _HELD.paths:
            yield
            return
        own = os.open(".", _FOLDER, dir_fd=self.descriptor)  # a new opening, which has a lock of its own
        try:
            if not lock(own, fcntl.LOCK_EX, LOCK_SECONDS):
                msg = f"another process has held the lock of {self.path} for {format_seconds(LOCK_SECONDS)}"
                raise CacheUnusable(msg)
            _HELD.paths.add(self.path)
            try:
                yield
            finally:
                _HELD.paths.discard(self.path)
        finally:
            unlock(own)

    def names(self) -> list[str]:
        """Of the caches here, used or not."""
        return sorted(name for name in os.listdir(self.descriptor) if NAME.fullmatch(name))

    def open(self, name: str) -> int:
        """A descriptor of a cache's folder, which its user closes.

        Raises:
            OSError: There is none, or it is no folder.
        """
        return os.open(name, _FOLDER, dir_fd=self.descriptor)

    def is_used(self, name: str) -> bool:
        """Whether somebody has a lease on a cache; under the lock, that stays so."""
        own = self.open(name)
        try:
            return not lock(own, fcntl.LOCK_EX, 0)
        finally:
            unlock(own)

    def is_kept(self, name: str) -> bool:
        """Whether a cache stays after its last lease."""
        try:
            os.stat(f"{name}/{KEEP}", dir_fd=self.descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def size_bytes(self, name: str) -> int:
        """What a cache takes at its place; of one that is being removed, what is left."""
        total = 0
        for file in FILES:
            try:
                facts = os.stat(f"{name}/{file}", dir_fd=self.descriptor, follow_symlinks=False)
            except FileNotFoundError:
                continue
            total += facts.st_blocks * 512
        return total

    def used_bytes(self) -> int:
        """What all caches here take."""
        return sum(map(self.size_bytes, self.names()))

    def remove(self, name: str) -> None:
        """Remove a cache, under the lock. Who has it open still reads what it has open."""
        shutil.rmtree(name, dir_fd=self.descriptor)

    def remove_empty(self) -> None:
        """Remove the folder itself, under the lock, if nothing is in it."""
        if not os.listdir(self.descriptor):
            os.rmdir(self.path)

    def sweep(self, but: str = "") -> list[str]:
        """Remove, under the lock, what runs that were killed have left: caches without a lease that nobody wants kept.

        Args:
            but: One that is about to be used.

        Returns:
            The names of those that were removed.
        """
        found = [name for name in self.names() if name != but and not self.is_kept(name) and not self.is_used(name)]
        for name in found:
            self.remove(name)
        return found


def _made(path: str) -> int:
    """A descriptor of the folder, made where there is none. Whose it is, is proven when it is open.

    The last user of the caches in it removes it, maybe just when it was found to be there.

    Raises:
        OSError: It cannot be made or opened; FileNotFoundError where the place is not there.
    """
    while True:
        with suppress(FileExistsError):
            os.mkdir(path, 0o700)
        try:
            return os.open(path, _FOLDER)
        except FileNotFoundError:
            if not os.path.isdir(os.path.dirname(path)):
                raise
