"""How far workers may work ahead of a batch that holds up those behind it.

Batches that are done before their turn wait in this process. With a bound of few batches one slow sample stops every
worker; without one it fills memory. So the bound is bytes, descriptors and a number, whichever comes first.
"""

import os
import resource
from dataclasses import dataclass

SHARED_FOLDER = "/dev/shm"  # noqa: S108 - the system's own
AHEAD_BYTES = 256 << 20
"""Batches before their turn may take so much; or as much as those that workers were given, where these are large."""
MOST_AHEAD = 1024
"""And are so many at most."""
_BEFORE_KNOWN = 2
"""Before the size of a batch is known, so many times what workers were given may be on its way."""


def shared_free_bytes() -> int:
    """Free in /dev/shm, where shm_open(3) puts what it makes; 0 where there is none."""
    try:
        found = os.statvfs(SHARED_FOLDER)
    except OSError:
        return 0
    return found.f_bavail * found.f_frsize


@dataclass(frozen=True, slots=True)
class Room:
    """What there is for batches."""

    shared_bytes: int
    """Free in /dev/shm."""
    descriptors: int
    """The soft limit of open files."""

    @classmethod
    def now(cls) -> "Room":
        """Of this process."""
        return cls(shared_free_bytes(), resource.getrlimit(resource.RLIMIT_NOFILE)[0])


class Ahead:
    """The bound for one number of workers.

    Args:
        in_flight: Batches that workers are given before one is received.
        room: Before they were started.
    """

    def __init__(self, in_flight: int, room: Room) -> None:
        self._in_flight, self._room = in_flight, room
        self._size_bytes = self._tensors = 0
        self.most = _BEFORE_KNOWN * in_flight
        """Batches that may be on their way or wait for their turn, taken together."""

    def seen(self, size_bytes: int, tensors: int) -> None:
        """A batch came: its bytes, and how many tensors it has. The largest counts."""
        if size_bytes <= self._size_bytes and tensors <= self._tensors:
            return
        self._size_bytes, self._tensors = max(size_bytes, self._size_bytes), max(tensors, self._tensors)
        size = max(1, self._size_bytes)
        # A quarter of what workers leave in /dev/shm, since other ranks have the same thought; each tensor is a descriptor.
        left = max(0, self._room.shared_bytes * 9 // 10 - self._in_flight * size) // 4
        spare = min(max(AHEAD_BYTES // size, self._in_flight), left // size)
        descriptors = self._room.descriptors // 4 // max(1, self._tensors)
        self.most = self._in_flight + min(spare, descriptors, MOST_AHEAD)
