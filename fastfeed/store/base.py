"""What a place that holds shards must offer. Cache and remote places wrap it."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Range(NamedTuple):
    """Bytes wanted, and where to put them."""

    name: str
    start: int
    stop: int
    into: memoryview
    """Writable, stop - start bytes long."""


class Store(Protocol):
    """Bytes by name and range. Ranges are half open. Thread-safe, usable after fork, picklable."""

    def size(self, name: str) -> int:
        """Bytes of a file.

        Raises:
            ShardDamaged: No such file.
        """

    def read(self, name: str, start: int, stop: int) -> bytes:
        """Bytes [start, stop) of a file.

        Raises:
            ShardDamaged: No such file, or it ends before stop.
        """

    def read_many(self, ranges: Sequence[Range]) -> None:
        """Fill each range's buffer.

        Raises:
            ShardDamaged: As read().
        """
