"""What of a place that is memory is needed first, before a cache gets more of it: batches of loaders cross in /dev/shm."""

import weakref
from typing import Protocol


class Needs(Protocol):
    """Somebody in this process who needs memory at such places."""

    @property
    def needed_bytes(self) -> int:
        """So much, at most, as far as it is known by now."""


_first: "tuple[weakref.ref[Needs], ...]" = ()
"""A tuple is exchanged as a whole: another thread, or a process forked meanwhile, sees the one before or the next."""


def comes_first(other: Needs) -> None:
    """From now on caches leave free what somebody needs; until it is gone."""
    global _first  # noqa: PLW0603 - of this process
    _first = (*(known for known in _first if known() is not None), weakref.ref(other))


def needed_bytes() -> int:
    """What all of them need together."""
    found = (known() for known in _first)
    return sum(other.needed_bytes for other in found if other is not None)
