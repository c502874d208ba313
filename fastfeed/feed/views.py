"""Views of a packed dataset that look a row up when it is used: no list as long as the dataset exists anywhere."""

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fastfeed.archive.catalog import Catalog, Place
from fastfeed.archive.index import SAMPLE
from fastfeed.sample import escape
from fastfeed.store.members import Reader

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Samples(Sequence[tuple[str, int | None]]):
    """ImageFolder's .samples without a list: (path, class number) by position.

    Args:
        archive: The dataset.
        rows: Positions of those that a view of it shows; None for all.
    """

    def __init__(self, archive: Catalog, rows: "NDArray[np.int64] | None" = None) -> None:
        self._archive, self._rows = archive, range(len(archive)) if rows is None else rows
        self._labelled = archive.index.has(SAMPLE, "label")

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 - int or slice, as every sequence
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        position = int(self._rows[range(len(self))[index]])
        label = self._archive.label(position) if self._labelled else None
        return escape(self._archive.source(position) or b""), label


class Picked(Sequence[Any]):
    """Rows of a column of strings, or of any sequence.

    Args:
        values: The sequence.
        rows: Which of it, in this order; -1 for a missing one.
        missing: What stands for a missing one.
    """

    def __init__(self, values: Sequence[Any], rows: "slice | NDArray[np.int64]", missing: bytes | str = b"") -> None:
        self.values, self._missing = values, missing
        self._rows = range(len(values))[rows] if isinstance(rows, slice) else rows

    @property
    def rows(self) -> "NDArray[np.int64]":
        """Place of each row in values, -1 for a missing one."""
        rows = self._rows
        return np.arange(rows.start, rows.stop, rows.step) if isinstance(rows, range) else rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 - int or slice, as every sequence
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        row = int(self._rows[index])
        return self.values[row] if row >= 0 else self._missing


class MemberFile(io.RawIOBase):
    """A member's bytes as an unbuffered file."""

    def __init__(self, reader: Reader, position: int, place: Place) -> None:
        super().__init__()
        self._reader, self._position, self._place, self._at = reader, position, place, 0

    def readable(self) -> bool:
        """Yes."""
        return True

    def seekable(self) -> bool:
        """Yes."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to an offset from the member's start, the present place, or the member's end."""
        size = self._place.stop - self._place.start
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        """The present place, from the member's start."""
        return self._at

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - a writable buffer
        """Fill a buffer as far as the member reaches; give how many bytes.

        Raises:
            ShardDamaged: The shard is missing or cut.
            SourceError: A plain file is missing or has changed.
        """
        start = min(self._place.start + self._at, self._place.stop)
        stop = min(start + len(buffer), self._place.stop)
        data = self._reader.read_part(self._position, self._place, start, stop)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)
