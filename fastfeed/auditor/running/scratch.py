"""Temporary folders of audits. One that a killed audit has left is removed by the next one: a lock tells who is alive."""

import fcntl
import os
import shutil
import tempfile
import time
import weakref
from contextlib import suppress

_PREFIX = "fastfeed-audit-"
_YOUNG_SECONDS = 60.0
"""A folder that is younger may be one that its process has made and not yet locked."""


class Scratch:
    """A folder that is removed with this object, and at the end of this process.

    Attributes:
        path: Of the folder.
    """

    def __init__(self) -> None:
        _sweep(tempfile.gettempdir())
        self.path = tempfile.mkdtemp(prefix=_PREFIX)
        lock = _locked(self.path)
        self._remove = weakref.finalize(self, _removed, self.path, lock)

    def close(self) -> None:
        """Remove it now."""
        self._remove()


def _locked(path: str) -> int | None:
    """The descriptor of a folder that holds its lock; None where another process has it, or it has gone, or is no folder."""
    with suppress(OSError):  # whatever the reason, it is not this process's to remove
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor
    return None


def _removed(path: str, lock: int | None) -> None:
    shutil.rmtree(path, ignore_errors=True)
    if lock is not None:
        os.close(lock)


def _sweep(folder: str) -> None:
    """Remove what killed audits of the same user have left."""
    with os.scandir(folder) as entries:
        left = [entry.path for entry in entries if entry.name.startswith(_PREFIX) and _is_old(entry)]
    for path in left:
        lock = _locked(path)
        if lock is not None:
            _removed(path, lock)


def _is_old(entry: "os.DirEntry[str]") -> bool:
    try:
        facts = entry.stat(follow_symlinks=False)
    except FileNotFoundError:  # its audit has just removed it
        return False
    return facts.st_uid == os.getuid() and time.time() - facts.st_mtime > _YOUNG_SECONDS
