"""Many byte strings close together, on their way into a column: no Python object for each."""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any


class ByteStrings(Sequence[bytes]):
    """A sequence of byte strings, kept as one string and where each begins.

    Args:
        values: To begin with.
    """

    __slots__ = ("data", "starts")

    def __init__(self, values: Iterable[bytes] = ()) -> None:
        self.data = bytearray()
        """All of them, joined."""
        self.starts: array[int] = array("Q", [0])
        """Where each begins, and where the last one ends: what a column of type bytes stores."""
        self.extend(values)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, row: Any) -> Any:  # noqa: ANN401 - int or slice, as every sequence
        if isinstance(row, slice):
            return [self[at] for at in range(*row.indices(len(self)))]
        row = range(len(self))[row]
        return bytes(self.data[self.starts[row] : self.starts[row + 1]])

    def __iter__(self) -> Iterator[bytes]:
        return (bytes(self.data[start:stop]) for start, stop in pairwise(self.starts))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ByteStrings):
            return self.data == other.data and self.starts == other.starts
        return isinstance(other, list) and list(self) == other

    __hash__ = None  # type: ignore[assignment] # it grows

    def extend(self, values: Iterable[bytes]) -> None:
        """Add strings at the end."""
        first = len(self.data)
        if isinstance(values, ByteStrings):
            self.data += values.data
            self.starts.extend([first + start for start in values.starts[1:]])
            return
        listed = list(values)
        self.data += b"".join(listed)
        self.starts.extend(list(accumulate(map(len, listed), initial=first))[1:])
