"""Which keys were met before, without an object a key: a table of 64-bit hashes, some 20 bytes each."""

from array import array

from fastfeed.archive.shard import digest

_FIRST_SLOTS = 1 << 10


class KeySet:
    """Keys by their hash (xxh3-64, case folded); two keys of one hash are taken for equal, so whoever asks must look."""

    def __init__(self) -> None:
        self._slots = array("Q", [0]) * _FIRST_SLOTS
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, key: str) -> bool:
        """Whether it is new, as far as hashes tell."""
        value = digest(key.lower().encode()) or 1
        if not self._put(value):
            return False
        self._count += 1
        if 3 * self._count > 2 * len(self._slots):
            before, self._slots = self._slots, array("Q", [0]) * (2 * len(self._slots))
            for kept in before:
                if kept:
                    self._put(kept)
        return True

    def _put(self, value: int) -> bool:
        slots, mask = self._slots, len(self._slots) - 1
        at = value & mask
        while slots[at]:
            if slots[at] == value:
                return False
            at = (at + 1) & mask
        slots[at] = value
        return True
