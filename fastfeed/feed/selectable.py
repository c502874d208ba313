"""What a dataset with columns can do beside giving samples: name its columns, and be seen in part."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfeed.errors import UsageError
from fastfeed.feed import select, split, where
from fastfeed.feed.columns import Columns, codes, picked, workable
from fastfeed.feed.select import Selection
from fastfeed.feed.textrows import TextRows
from fastfeed.units import format_count


class Selectable:
    """Columns and views of a dataset. A view is of the dataset's own class: it shares its files, not its transform."""

    path: str
    selection: Selection | None
    """Which samples a view shows; None for all."""
    _columns: Columns
    _targets: "NDArray[np.int64] | None"
    """Of a view, once they were asked for."""

    def __len__(self) -> int:
        raise NotImplementedError

    def _stored(self, at: int) -> int:
        """Position in the packed dataset of a sample of this view."""
        return at if self.selection is None else int(self.selection.positions[at])

    @property
    def positions(self) -> NDArray[np.int64]:
        """Position in the packed dataset of each sample; int64, shape (samples,)."""
        return np.arange(len(self)) if self.selection is None else self.selection.positions

    @property
    def columns(self) -> list[str]:
        """Names that column(), where() and split() take: the format's, the packed ones, and those of side tables."""
        return self._columns.names()

    def column(self, name: str, field: str | None = None) -> Any:  # noqa: ANN401 - an array or a sequence of strings
        """A column, a sample a row.

        Args:
            name: One of columns (feed/columns.py says what a name means that is in use twice). The format's: label, key; or of
                a member: size (also bytes), offset, xxh3, codec, width, height, orientation, source.
            field: Whose member; by default the only image field, else the only field beside cls.

        Returns:
            Numbers and truth values: a read-only numpy array of shape (samples,), a view of the mapped file where every
            sample has the same fields, a copy for a view of the dataset; 0 where a sample has no such member. Text: a
            sequence of str that reads each row when it is asked for; of bytes for key and source.

        Raises:
            UsageError: No such column, or the field must be named.
            IndexDamaged: A truth value that is none.
        """
        return picked(self._columns.get(name, field), None if self.selection is None else self.selection.positions)

    def select(self, indices: Sequence[int] | ArrayLike) -> Self:
        """A view of some samples, as torch's Subset, but with all that a dataset has.

        The view's position i is the i-th of the indices; class numbers and everything else stay as they are. It shares files
        with this dataset, can have its own transform, and pickles to its path and, at most, a few bytes a sample.

        Args:
            indices: Positions in this dataset or view; negative ones count from the end; one may come twice.

        Raises:
            UsageError: They are no whole numbers.
            NoSuchPosition: One is outside; also an IndexError.
        """
        return self._view(select.indices(indices, len(self)))

    def where(self, condition: str | ArrayLike) -> Self:
        """A view of the samples for which a condition holds, in the order that they have here.

        Args:
            condition: A text on columns such as "width >= 256 and label in (1, 2)" (feed/where.py lists what it takes; a
                missing number is NaN, for which every comparison but != is false); or a mask, a truth value for each
                sample; or an array of positions, as select().

        Raises:
            UsageError: A text that is no condition, a mask of another length, or one of 0 and 1 in place of truth values.
            NoSuchPosition: A position is outside; also an IndexError.
        """
        if not isinstance(condition, str):
            return self._view(select.chosen(condition, len(self)))
        return self._view(np.flatnonzero(where.evaluate(condition, self._workable, self.columns, len(self))))

    def split(
        self, *shares: float, by: str | ArrayLike | None = None, group: str | ArrayLike | None = None, seed: int = 0
    ) -> tuple[Self, ...]:
        """Views that divide the samples by chance, such as two for shares of 0.9, three for 0.8 and 0.1 and 0.1.

        Each sample is in exactly one of them, and each keeps the order that it has here. The same dataset (or view) and seed
        give the same parts on every machine and with every release (feed/split.py states the rule).

        Args:
            *shares: Of the parts; what is left to 1 is a last part.
            by: A column, or a value for each sample: each part gets its share of each value, rounded up or down.
            group: The same: samples of one value (a speaker, a patient) are never divided; then shares and by are kept as well
                as the groups' sizes allow.
            seed: From 0.

        Raises:
            UsageError: Shares or a seed that are none, no such column, or a part that would be empty.
        """
        fractions = split.fractions_of(shares)
        classes = np.zeros(len(self), dtype=np.int64) if by is None else self._codes(by)
        parts = split.split_positions(fractions, seed, classes, None if group is None else self._codes(group))
        if not all(map(len, parts)):
            msg = "a part of the split would be empty"
            sizes = " + ".join(str(len(part)) for part in parts)
            raise UsageError(msg, path=self.path, got=f"{format_count(len(self), 'sample')}: {sizes}")
        return tuple(map(self._view, parts))

    def _workable(self, name: str, field: str | None) -> NDArray[Any] | TextRows:
        """A column for a condition.

        Raises:
            KeyError: No such column.
        """
        if not self._columns.has(name):
            raise KeyError(name)
        return workable(self.column(name, field))

    def _codes(self, by: str | ArrayLike) -> NDArray[np.int64]:
        return codes(self.column(by) if isinstance(by, str) else by, len(self))

    def _view(self, places: NDArray[np.int64]) -> Self:
        """A view of the samples at some places of this one."""
        view = object.__new__(type(self))
        view.__dict__.update(self.__dict__)
        view.selection = Selection(places if self.selection is None else self.selection.positions[places])
        view._targets = None
        return view
