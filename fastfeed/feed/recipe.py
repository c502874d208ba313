"""What decides an epoch's order besides the epoch, proven once; and the order that it makes."""

import operator
from collections.abc import Sequence
from typing import Final, Literal, Protocol, TypedDict, cast

import numpy as np
import xxhash
from numpy.typing import ArrayLike, NDArray

from fastfeed.errors import UsageError, warn
from fastfeed.feed.block import DEFAULT_BLOCK, DEFAULT_LANES, BlockOrder, proven_edges
from fastfeed.feed.mixing import label_runs
from fastfeed.feed.permutation import MAX_SIZE, Permutation

Mode = Literal["none", "full", "block"]
State = dict[str, int | str | None]
"""Whole numbers, texts and None, so that JSON and torch.save carry it."""

STATE_VERSION: Final = 1


class OrderOptions(TypedDict, total=False):
    """What decides an epoch's order, besides the epoch.

    shuffle: False: as stored, by position.
    seed: Any whole number, the same on all ranks; 0 by default, as DistributedSampler's.
    mode: How to shuffle. "full": each order equally likely. "block": sequential reading, feed/block.py.
    skip: Positions to leave out, before anything else is counted.
    block: Of mode "block": samples a block, or edges: the first position of each block, then the number of samples.
    lanes: Of mode "block": how many blocks are read at a time; a multiple of the number of ranks, so that each rank
        reads forward. Left out, it is 16 a rank of the first iteration, and a loaded position brings its own.
    labels: Class of each sample by position; looked at by mode "block" alone, which warns if they lie sorted.
    """

    shuffle: bool
    seed: int
    mode: Literal["full", "block"]
    skip: ArrayLike
    block: int | Sequence[int] | NDArray[np.int64]
    lanes: int | None
    labels: ArrayLike | None


class Order(Protocol):
    """Numbers of samples by slot."""

    def take(self, slots: NDArray[np.int64], /) -> NDArray[np.int64]:
        """The samples at slots below the size."""


class Stored:
    """The order without a shuffle."""

    @staticmethod
    def take(slots: NDArray[np.int64], /) -> NDArray[np.int64]:
        """As they lie."""
        return slots


class Recipe:
    """OrderOptions, proven, for a dataset of some length.

    Args:
        length: Samples of the dataset.
        options: As given.

    Raises:
        UsageError: An option that does not fit.
        TypeError: An option that there is not.
    """

    def __init__(self, length: int, options: OrderOptions) -> None:
        unknown = sorted(set(options) - set(OrderOptions.__annotations__))
        if unknown:
            msg = f"a sampler has no option {', '.join(unknown)}: of ranks, FeedSampler takes distributed=(rank, world)"
            raise TypeError(msg)
        if not 0 <= length <= MAX_SIZE:
            msg = "an order has 0 to 2^40 samples"
            raise UsageError(msg, got=length)
        self.length = length
        self.seed = operator.index(options.get("seed", 0))
        self.mode: Mode = _mode_of(options)
        self._skip = _proven_skip(options.get("skip", ()), length)
        self._skip_from = self._skip - np.arange(len(self._skip))
        """The number of the first sample behind each skipped position, among those that are not skipped."""
        self.size = length - len(self._skip)
        """Samples an epoch, over all ranks: the dataset's without those to skip."""
        self.block: int | NDArray[np.int64] | None = None
        """Of mode "block": samples a block; or edges of blocks, in numbers of samples that are not skipped."""
        self.given_lanes: int | None = None
        self.lanes: int | None = None
        """Of mode "block"; None before the first order, where it was not given."""
        if self.mode == "block":
            self._set_up_blocks(options)

    def _set_up_blocks(self, options: OrderOptions) -> None:
        block, lanes, labels = options.get("block", DEFAULT_BLOCK), options.get("lanes"), options.get("labels")
        if np.ndim(block) == 0:
            self.block = positive("block", block)
        else:
            edges = proven_edges(cast("Sequence[int]", block), self.length)
            self.block = np.unique(edges - np.searchsorted(self._skip, edges))
        self.given_lanes = self.lanes = None if lanes is None else positive("lanes", lanes)
        if labels is not None:
            self._judge(labels)

    def _judge(self, labels: ArrayLike) -> None:
        runs = label_runs(labels)
        if runs.samples != self.length:
            msg = "labels has a label for each sample"
            raise UsageError(msg, expected=self.length, got=runs.samples)
        if runs.sorted_by_class:
            warn(
                f"mode='block' draws together what lies together, and {runs}: batches will hold few classes. "
                "Pack the data in random order (fastfeed pack --shuffle SEED), or shuffle in full."
            )

    def order(self, epoch: int, world: int) -> Order:
        """The order of an epoch: numbers of samples among those that are not skipped.

        Args:
            epoch: Any whole number.
            world: Ranks, which settle the lanes if nothing has yet.
        """
        if self.mode == "none":
            return Stored()
        if self.mode == "full":
            return Permutation(self.size, self.seed, epoch)
        if self.lanes is None:
            self.lanes = DEFAULT_LANES * world
        assert self.block is not None
        return BlockOrder(self.size, self.seed, epoch, block=self.block, lanes=self.lanes)

    def positions(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Positions of samples by their number among those that are not skipped."""
        if not len(self._skip):
            return numbers
        return numbers + np.searchsorted(self._skip_from, numbers, side="right")

    def identity(self) -> State:
        """What must be the same for a position in an epoch to mean the same, but lanes."""
        skip = xxhash.xxh3_64_hexdigest(self._skip.tobytes()) if len(self._skip) else None
        block = xxhash.xxh3_64_hexdigest(self.block.tobytes()) if isinstance(self.block, np.ndarray) else self.block
        return {
            "version": STATE_VERSION, "size": self.length, "skip": skip, "seed": self.seed, "mode": self.mode, "block": block,
        }  # fmt: skip


def _mode_of(options: OrderOptions) -> Mode:
    mode, shuffle = options.get("mode", "full"), options.get("shuffle", True)
    if mode not in {"full", "block"} or (mode == "block" and not shuffle):
        msg = "mode says how to shuffle, 'full' or 'block', and needs a shuffle"
        raise UsageError(msg, got=f"mode={mode!r}, shuffle={shuffle}")
    alien = [name for name in ("block", "lanes") if options.get(name) is not None and mode != "block"]
    if alien:
        msg = f"only mode='block' has {' and '.join(alien)}"
        raise UsageError(msg, got=f"mode={mode!r}, shuffle={shuffle}")
    return mode if shuffle else "none"


def _proven_skip(skip: ArrayLike, length: int) -> NDArray[np.int64]:
    """Positions to leave out, in order, each once.

    Raises:
        UsageError: Something else, or a position that there is not.
    """
    array = np.asarray(skip)
    if array.size == 0:
        return np.empty(0, dtype=np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        msg = "skip is a list of positions"
        raise UsageError(msg, got=f"{array.dtype} of shape {array.shape}")
    lowest, highest = int(array.min()), int(array.max())
    if lowest < 0 or highest >= length:
        msg = "skip names a position that the dataset has not"
        raise UsageError(msg, expected=f"0 to {length - 1}", got=lowest if lowest < 0 else highest)
    return np.unique(array).astype(np.int64)


def positive(name: str, value: object) -> int:
    """A whole number from 1.

    Raises:
        UsageError: It is none.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        msg = f"{name} is a whole number from 1"
        raise UsageError(msg, got=repr(value))
    return int(value)
