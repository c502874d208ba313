"""Files in memory: the fake for tests, documentation and benchmarks."""

from collections.abc import Mapping, Sequence

from fastfeed.errors import ShardDamaged
from fastfeed.store.base import Range


class MemoryStore:
    """A store over a mapping of names to bytes.

    Args:
        files: Name -> content.
    """

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.files = files

    def _content(self, name: str) -> bytes:
        try:
            return self.files[name]
        except KeyError:
            msg = "a shard cannot be opened: no such file"
            raise ShardDamaged(msg, shard=name) from None

    def size(self, name: str) -> int:
        """Bytes of a file.

        Raises:
            ShardDamaged: No such file.
        """
        return len(self._content(name))

    def read(self, name: str, start: int, stop: int) -> bytes:
        """Bytes [start, stop) of a file.

        Raises:
            ShardDamaged: No such file, or it ends before stop.
        """
        data = self._content(name)[start:stop]
        if len(data) < stop - start:
            msg = "a shard ends too early: it was cut"
            raise ShardDamaged(msg, shard=name, start=start, stop=stop, expected=stop - start, got=len(data))
        return data

    def read_many(self, ranges: Sequence[Range]) -> None:
        """Fill each range's buffer.

        Raises:
            ShardDamaged: As read().
        """
        for name, start, stop, into in ranges:
            into[:] = self.read(name, start, stop)
