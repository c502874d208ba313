"""A folder of a local or mounted file system. Payload is read with pread, never mapped: a cut file is an error, no SIGBUS."""

import errno
import itertools
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Sequence

from fastfeed.archive.regular import open_regular
from fastfeed.errors import ShardDamaged
from fastfeed.store.base import Range

MAXOPEN_FILES = 128
"""Descriptors kept a process; shards beyond that are reopened when used, least recently used first."""

_HINT = "Run fastfeed verify to see all damage; copy the shard again, or pack again."


class _File:
    """A descriptor that is closed with its last user, so that eviction never pulls it from under a reading thread."""

    __slots__ = ("descriptor",)

    def __init__(self, path: str) -> None:
        self.descriptor = open_regular(path)

    def __del__(self) -> None:
        if hasattr(self, "descriptor"):
            os.close(self.descriptor)


class _OpenFiles:
    """The descriptors of this process, of all stores together, least recently used first."""

    def __init__(self) -> None:
        self._files: OrderedDict[tuple[int, str], _File] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, store: int, path: str) -> _File:
        """An open file of one store: another store may have opened what lay there before.

        Where the process has no descriptor left, others are closed for it.

        Raises:
            OSError: It cannot be opened.
        """
        with self._lock:
            file = self._files.get((store, path))
            if file is None:
                try:
                    file = _File(path)
                except OSError as error:
                    if error.errno not in {errno.EMFILE, errno.ENFILE} or not self._files:
                        raise
                    self._files.clear()
                    file = _File(path)
                self._files[store, path] = file
                if len(self._files) > MAXOPEN_FILES:
                    self._files.popitem(last=False)
            self._files.move_to_end((store, path))
            return file

    def renew_lock(self) -> None:
        """In a process just forked: a thread of the parent may have held the lock, and it is not here to release it."""
        self._lock = threading.Lock()

    def forget(self, store: int) -> None:
        """Close what a store that is gone had open."""
        for key in [key for key in list(self._files) if key[0] == store]:
            self._files.pop(key, None)  # without the lock: the garbage collector may call this inside of get()


OPEN_FILES = _OpenFiles()
_NUMBERS = itertools.count()
os.register_at_fork(after_in_child=OPEN_FILES.renew_lock)


class LocalStore:
    """Files below a folder.

    Args:
        root: The folder.
        hint: What to do where a file of it is missing or cut.
    """

    def __init__(self, root: str, hint: str = _HINT) -> None:
        self.root, self.hint = root, hint
        self._number = next(_NUMBERS)
        weakref.finalize(self, OPEN_FILES.forget, self._number).atexit = False

    def __getstate__(self) -> dict[str, str]:
        return {"root": self.root, "hint": self.hint}

    def __setstate__(self, state: dict[str, str]) -> None:
        self.__init__(state["root"], state["hint"])  # type: ignore[misc]

    def _file(self, name: str) -> _File:
        path = os.path.join(self.root, name)
        try:
            return OPEN_FILES.get(self._number, path)
        except OSError as error:
            msg = f"a shard cannot be opened: {error.strerror}"
            full = error.errno in {errno.EMFILE, errno.ENFILE}
            hint = "This process has too many files open: raise the limit (ulimit -n)." if full else self.hint
            raise ShardDamaged(msg, path=path, shard=name, hint=hint) from error

    def size(self, name: str) -> int:
        """Bytes of a file.

        Raises:
            ShardDamaged: No such file.
        """
        return os.fstat(self._file(name).descriptor).st_size

    def facts(self, name: str) -> os.stat_result:
        """What the system says of a file as it is open here.

        Raises:
            ShardDamaged: No such file.
        """
        return os.fstat(self._file(name).descriptor)

    def read(self, name: str, start: int, stop: int) -> bytes:
        """Bytes [start, stop) of a file.

        Raises:
            ShardDamaged: No such file, an I/O error, or it ends before stop.
        """
        file = self._file(name)
        try:
            data = os.pread(file.descriptor, stop - start, start)
            while len(data) < stop - start:  # a signal or a network file system may give less
                more = os.pread(file.descriptor, stop - start - len(data), start + len(data))
                if not more:
                    raise self._cut(name, start, stop, len(data))
                data += more
        except OSError as error:
            raise self._unreadable(name, start, stop, error) from error
        return data

    def read_many(self, ranges: Sequence[Range]) -> None:
        """Fill each range's buffer.

        Raises:
            ShardDamaged: As read().
        """
        file, opened = None, None
        for name, start, stop, into in ranges:
            if file is None or name != opened:
                file, opened = self._file(name), name
            filled = 0
            try:
                while filled < stop - start:
                    count = os.preadv(file.descriptor, [into[filled:]], start + filled)
                    if not count:
                        raise self._cut(name, start, stop, filled)
                    filled += count
            except OSError as error:
                raise self._unreadable(name, start, stop, error) from error

    def _cut(self, name: str, start: int, stop: int, got: int) -> ShardDamaged:
        msg = "a shard ends too early: it was cut"
        path = os.path.join(self.root, name)
        return ShardDamaged(msg, path=path, shard=name, start=start, stop=stop, expected=stop - start, got=got, hint=self.hint)

    def _unreadable(self, name: str, start: int, stop: int, error: OSError) -> ShardDamaged:
        msg = f"a shard cannot be read: {error.strerror}"
        return ShardDamaged(msg, path=os.path.join(self.root, name), shard=name, start=start, stop=stop, hint=self.hint)
