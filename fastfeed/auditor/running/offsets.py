"""Where the record of each sample begins in a file: eight bytes a sample, and no more where only a few of many are audited."""

from array import array
from collections.abc import Iterator

_NONE = -1
_NEAR = 1 << 16
"""A position so far behind the last one, or half as far again, has a place in the array; those beyond are kept one by one."""


class Offsets:
    """Offsets by position; those of positions near each other in an array, others in a dictionary."""

    def __init__(self) -> None:
        self._near = array("q")
        self._far: dict[int, int] = {}
        self._count = 0

    def __len__(self) -> int:
        """How many positions have one."""
        return self._count

    def __contains__(self, index: int) -> bool:
        return self._near[index] != _NONE if index < len(self._near) else index in self._far

    def __getitem__(self, index: int) -> int:
        return self._near[index] if index < len(self._near) else self._far[index]

    def __setitem__(self, index: int, at: int) -> None:
        self._count += index not in self
        size = len(self._near)
        if index >= size + max(_NEAR, size // 2):
            self._far[index] = at
            return
        if index >= size:
            self._near.frombytes(_NONE.to_bytes(8, "little", signed=True) * max(index + 1 - size, size // 8))
            for reached in [far for far in self._far if far < len(self._near)]:
                self._near[reached] = self._far.pop(reached)
        self._near[index] = at

    def __iter__(self) -> Iterator[int]:
        """The positions that have one, in order."""
        yield from (index for index, at in enumerate(self._near) if at != _NONE)
        yield from sorted(self._far)

    def drop(self, index: int) -> None:
        """Forget a position that has one."""
        if index < len(self._near):
            self._near[index] = _NONE
        else:
            del self._far[index]
        self._count -= 1

    def drop_from(self, count: int) -> int:
        """Forget the positions from this one on.

        Returns:
            How many there were.
        """
        gone = [index for index in self if index >= count]
        for index in gone:
            self._far.pop(index, None)
        del self._near[count:]
        self._count -= len(gone)
        return len(gone)
