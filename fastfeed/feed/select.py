"""Which samples a view of a dataset shows: positions as an array, and how that travels to other processes."""

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfeed.errors import NoSuchPosition, UsageError

Positions = NDArray[np.int64]


class Selection:
    """Positions of the samples that a view shows, in its order.

    Pickled, it is a range, or a bit a position between the first and the last where they rise (1.25 MB for any choice
    among ten million), or the numbers in the fewest bytes.

    Args:
        positions: int64, each in the dataset.
    """

    __slots__ = ("positions",)

    def __init__(self, positions: Positions) -> None:
        self.positions = np.ascontiguousarray(positions, dtype=np.int64)
        if self.positions.flags.writeable:
            self.positions.flags.writeable = False

    def __len__(self) -> int:
        return len(self.positions)

    def __reduce__(self) -> tuple[Any, ...]:
        return restored, packed(self.positions)


def packed(positions: Positions) -> tuple[str, int, int, int | bytes]:
    """Positions in few bytes: (kind, first, count, step or bytes)."""
    count = len(positions)
    if count == 0:
        return "range", 0, 0, 1
    first, low, high = int(positions[0]), int(positions.min()), int(positions.max())
    steps = np.diff(positions)
    step = int(steps[0]) if count > 1 else 1
    if bool((steps == step).all()):
        return "range", first, count, step
    dtype = np.min_scalar_type(high - low)
    if bool((steps > 0).all()) and high - low < 8 * count * dtype.itemsize:
        bits = np.zeros(high - low + 1, dtype=np.bool_)
        bits[positions - low] = True
        return "bits", low, count, np.packbits(bits).tobytes()
    return dtype.str, low, count, (positions - low).astype(dtype).tobytes()


def restored(kind: str, first: int, count: int, rest: int | bytes) -> Selection:
    """The selection that packed() took apart."""
    if isinstance(rest, int):
        return Selection(first + step_array(count, rest))
    if kind == "bits":
        return Selection(np.flatnonzero(np.unpackbits(np.frombuffer(rest, dtype=np.uint8))) + first)
    return Selection(np.frombuffer(rest, dtype=kind).astype(np.int64) + first)


def step_array(count: int, step: int) -> Positions:
    """0, step, 2 step, ..."""
    return np.arange(count, dtype=np.int64) * step


def indices(given: Sequence[int] | ArrayLike, size: int) -> Positions:
    """Places in a sequence of a size; negative ones count from the end.

    Args:
        given: Whole numbers: a list, a range, an array, a tensor.
        size: How many there are.

    Returns:
        int64, from 0 to below size, in the order given.

    Raises:
        UsageError: They are no whole numbers, or no flat sequence.
        NoSuchPosition: One is outside.
    """
    places = np.asarray(given)
    if places.ndim != 1 or (places.dtype.kind not in "iu" and len(places)):
        msg = "positions are a flat sequence of whole numbers"
        hint = "A mask of true and false is for where()." if places.dtype.kind == "b" else "Give a list, a range or an array."
        raise UsageError(msg, got=f"{places.dtype} of shape {places.shape}", hint=hint)
    outside = (places < -size) | (places >= size) if len(places) else np.zeros(0, dtype=np.bool_)
    if bool(outside.any()):
        msg = f"position {int(places[int(outside.argmax())])} is outside of a dataset of {size} samples"
        raise NoSuchPosition(msg)
    wide = places.astype(np.int64)
    return np.where(wide < 0, wide + size, wide)


def chosen(condition: ArrayLike, size: int) -> Positions:
    """Places that a mask (one truth value for each) or an array of places names.

    Raises:
        UsageError: A mask of another length, numbers that look like a mask, or neither mask nor places.
        NoSuchPosition: A place is outside.
    """
    given = np.asarray(condition)
    if given.dtype.kind != "b":
        places = indices(given, size)
        if len(places) == size and not np.isin(given, (0, 1), invert=True).any() and len(np.unique(places)) < size:
            msg = "as many numbers as there are samples, each 0 or 1, look like a mask, and a mask is of true and false"
            hint = "For a mask give mask.astype(bool); for samples that come several times, select()."
            raise UsageError(msg, expected="bool", got=str(given.dtype), hint=hint)
        return places
    if given.shape != (size,):
        msg = "a mask has one truth value for each sample"
        raise UsageError(msg, expected=f"shape ({size},)", got=f"shape {given.shape}")
    return np.flatnonzero(given)


def position(index: int, size: int, path: str) -> int:
    """One place from 0; negative ones count from the end.

    Raises:
        NoSuchPosition: It is outside.
    """
    place = operator.index(index)
    if not -size <= place < size:
        msg = f"position {place} is outside of a dataset of {size} samples"
        raise NoSuchPosition(msg, path=path)
    return place + size if place < 0 else place
