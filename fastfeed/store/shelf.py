"""One cache: numbered entries, each put in once, by whichever process of this user is first; read by all.

It is a folder with two files. ``data`` grows by the entries that are put in; ``table`` has a row of 32 bytes for each possible
entry: where it lies in data, how long it is, the xxh3-64 of its bytes, and the xxh3-64 of the row itself, all zero where it is
not in. A row is written last, when the bytes have been read back and have that checksum, so an entry is whole or not there.
No process keeps anything for an entry, neither objects nor memory maps (a file that is cut would be SIGBUS).

While an entry is fetched its row is locked (a lock of the open file description on one byte, which dies with its process), so
two processes that want the same entry do the work once. Room is given out under the lock of all caches at the place and
counted by the file system, so what a killed process had taken is counted as well, and the budget is kept by all together.
"""

import errno
import fcntl
import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from fastfeed.archive.shard import digest
from fastfeed.machine import memory
from fastfeed.store.cachefolder import TABLE, within
from fastfeed.store.firstneeds import needed_bytes
from fastfeed.store.lease import OPEN, ROW_BYTES, Lease

_ROW = struct.Struct("<QQQQ")
_FACTS = struct.Struct("<QQQQ")
"""Of a row, and the entry's number, so that a row is one only in its own place."""
_FLOCK = struct.Struct("hhqqi4x")
"""struct flock of 64-bit Linux: type, whence, start, length, process."""
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EFBIG}
_TURN_ROW = 1 << 40
"""No table has so many: its lock says whose turn it is to fill the cache."""
_LOOK_SECONDS = 1.0
"""How often memory is looked at while entries are put in."""


@dataclass(frozen=True, slots=True)
class Room:
    """How much may be put in."""

    budget_bytes: int
    """Of all caches at the place together."""
    reserve_bytes: int = 0
    """Of the place's file system, for others: free space does not fall below it, nor, where the place is memory, below what
    batches need (firstneeds.py)."""
    memory_bytes: int = 0
    """Of memory, as the machine or the control group grants it, for others: what is left does not fall below it."""
    is_memory: bool = False
    """Whether the place is memory."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Where an entry lies."""

    at: int
    size: int
    xxh3: int


class Shelf:
    """The entries of a cache.

    Args:
        lease: The cache.
    """

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self.folder, self._own, self._table, self._data = lease.folder, lease.own, lease.table, lease.data
        self._looked, self._memory_left = 0.0, True

    def close(self) -> None:
        """Leave the cache."""
        self._lease.close()

    # ------------------------------------------------------------------------------------------------ reading
    def find(self, number: int) -> Entry | None:
        """An entry that is in."""
        raw = os.pread(self._table, ROW_BYTES, number * ROW_BYTES)
        if len(raw) < ROW_BYTES:
            return None
        at, size, xxh3, seal = _ROW.unpack(raw)
        return Entry(at, size, xxh3) if seal and seal == _seal(number, at, size, xxh3) else None

    def read(self, entry: Entry, start: int, into: memoryview) -> bool:
        """Fill a buffer with an entry's bytes from start on; whether all of them were there."""
        filled = 0
        while filled < len(into):
            count = os.preadv(self._data, [into[filled:]], entry.at + start + filled)
            if not count:
                return False
            filled += count
        return True

    def is_whole(self, entry: Entry) -> bool:
        """Whether an entry's bytes are still those that were put in."""
        data = bytearray(entry.size)
        return self.read(entry, 0, memoryview(data)) and self.is_content(entry, data)

    @staticmethod
    def is_content(entry: Entry, data: bytes | bytearray) -> bool:
        """Whether these are an entry's bytes."""
        return digest(data) == entry.xxh3

    # ------------------------------------------------------------------------------------------------ putting in
    @contextmanager
    def fetching(self, number: int, seconds: float) -> Iterator[bool]:
        """While this process fetches an entry; False where another one still does after some seconds.

        Raises:
            OSError: The cache was removed.
        """
        own = os.open(TABLE, OPEN, dir_fd=self._own)  # a lock belongs to an opening: threads and forks have their own
        try:
            yield _lock_row(own, number, seconds)
        finally:
            _unlock_rows(own)

    def take_turn(self) -> int | None:
        """A descriptor that makes this process the one that fills the cache in the background; None if another one does.

        Raises:
            OSError: The cache was removed.
        """
        own = os.open(TABLE, OPEN, dir_fd=self._own)
        if _lock_row(own, _TURN_ROW, 0):
            return own
        os.close(own)
        return None

    @staticmethod
    def give_turn(own: int) -> None:
        """It is another one's turn."""
        _unlock_rows(own)

    def has_room(self, size: int, room: Room) -> bool:
        """Whether an entry may be put in, as far as can be seen without waiting for others."""
        return self._fits(size, room) and self._has_memory(size, room)

    def put(self, number: int, data: bytes | bytearray | memoryview, room: Room) -> bool:
        """Put an entry in, while fetching() it; whether there was room.

        Raises:
            OSError: The file system failed otherwise than by being full.
            CacheUnusable: The lock of the place cannot be had.
        """
        size = len(data)
        at = self._taken(size, room)
        if at is None:
            return False
        xxh3, view, written = digest(data), memoryview(data), 0
        try:
            while written < size:
                written += os.pwrite(self._data, view[written:], at + written)
            entry = Entry(at, size, xxh3)
            if not self.is_whole(entry):
                msg = "what was put into the cache is not what was read back"
                raise OSError(errno.EIO, msg)
            os.pwrite(self._table, _ROW.pack(at, size, xxh3, _seal(number, at, size, xxh3)), number * ROW_BYTES)
        except OSError as error:
            if error.errno in _FULL:
                return False
            raise
        return True

    def drop(self, number: int) -> None:
        """Take an entry out; its room is not given out again."""
        os.pwrite(self._table, bytes(ROW_BYTES), number * ROW_BYTES)

    def purge(self) -> None:
        """Take all entries out, and give their room back.

        Raises:
            OSError: The file system failed.
            CacheUnusable: The lock of the place cannot be had.
        """
        with self.folder.locked():
            size = os.fstat(self._table).st_size
            os.ftruncate(self._table, 0)
            os.ftruncate(self._table, size)
            os.ftruncate(self._data, 0)

    def _taken(self, size: int, room: Room) -> int | None:
        """Where an entry of a size can be put: room that the file system has set aside for it."""
        with self.folder.locked():
            if not self._fits(size, room):
                return None
            at = os.fstat(self._data).st_size
            try:
                os.posix_fallocate(self._data, at, size or 1)  # it refuses a size of 0, which an empty file's entry has
            except OSError as error:
                if error.errno in _FULL:
                    return None
                raise
            if self.folder.used_bytes() > room.budget_bytes:  # a file system may give more at once (2 MiB, of huge pages)
                os.ftruncate(self._data, at)
                return None
            return at

    def _fits(self, size: int, room: Room) -> bool:
        facts = os.fstatvfs(self._own)
        free = facts.f_bavail * facts.f_frsize
        reserve = max(room.reserve_bytes, needed_bytes()) if room.is_memory else room.reserve_bytes
        return free - size >= reserve and self.folder.used_bytes() + size <= room.budget_bytes

    def _has_memory(self, size: int, room: Room) -> bool:
        if not room.is_memory:
            return True
        now = time.monotonic()
        if now - self._looked >= _LOOK_SECONDS:
            now_left = memory()
            self._memory_left = not now_left.limit_bytes or now_left.free_bytes - size >= room.memory_bytes
            self._looked = now
        return self._memory_left


def _seal(number: int, at: int, size: int, xxh3: int) -> int:
    """Of a row, never 0."""
    return digest(_FACTS.pack(number, at, size, xxh3)) or 1


def _unlock_rows(own: int) -> None:
    """Give all locks of an opening back and close it: a process that was forked meanwhile has a copy of the descriptor."""
    fcntl.fcntl(own, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, 0, 0, 0))
    os.close(own)


def _lock_row(own: int, number: int, seconds: float) -> bool:
    """Lock a row of an opening of the table; whether that was possible within some seconds."""
    row = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, number, 1, 0)
    return within(seconds, lambda: fcntl.fcntl(own, fcntl.F_OFD_SETLK, row))
