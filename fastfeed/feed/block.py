"""An order for disks and network file systems: sequential in each of several lanes, mixed across them.

Samples are cut into blocks of consecutive positions (storage order). The blocks in random order make a tape; the tape
is cut into equal lanes; samples are drawn from the lanes in turn::

    tape    | block 7 | block 2 | block 9 | block 0 | ...            each block read front to back
    lanes   |--- lane 0 ---|--- lane 1 ---|--- lane 2 ---|           lengths differ by one sample at most
    order   lane 0, lane 1, lane 2, lane 0, lane 1, lane 2, ...

So each of a few places on the disk is read forward, and a batch holds samples of as many blocks as there are lanes.
Slot g of the order is in lane g mod lanes: where the number of ranks divides the number of lanes and rank r takes slots
r, r + ranks, ..., each lane belongs to one rank. Each slot's position is computed from (size, seed, epoch, block, lanes):
nothing is kept per sample, and any slot can be resumed at.

Blocks of a fixed number of samples begin at another sample each epoch (the positions are turned by a random offset), so
their edges move; the one short block, which is last on the tape, is another one each epoch. Given edges stay where they
are. Samples that lie together are drawn together, which a full shuffle does not do. feed/mixing.py measures it: of data
that lies in random order, batches are as mixed as in a full shuffle; where equal classes lie together, a batch tells as
much about the classes as one sample of each lane (design effect = batch size / lanes a rank: benchmarks/README.md), so
that is warned about.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fastfeed.errors import UsageError
from fastfeed.feed.permutation import Permutation, key_of

DEFAULT_BLOCK: Final = 256
"""Samples a block: 28 MB of photos of 110 KB; a seek costs less than reading 2 MB from a disk."""
DEFAULT_LANES: Final = 16
"""Lanes a rank: 16 files are open for reading at a time, and a batch of 256 takes 16 samples of each."""


class EvenBlocks:
    """A tape of blocks of one size, turned by a random offset.

    Args:
        size: Samples.
        seed: Of the order.
        epoch: Of the order.
        block: Samples a block.
    """

    __slots__ = ("_block", "_blocks", "_offset", "_size")

    def __init__(self, size: int, seed: int, epoch: int, block: int) -> None:
        self._size, self._block = size, block
        self._blocks = Permutation(size // block, key_of(seed, 1), epoch)
        self._offset = key_of(seed, 2, epoch) % size if size else 0

    def take(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Positions at places of the tape."""
        number = places // self._block
        whole = number < len(self._blocks)  # the rest of size / block is a short block, last on the tape
        start = places - number * self._block
        number[whole] = self._blocks.take(number[whole])
        start += number * self._block
        start += self._offset
        return np.where(start < self._size, start, start - self._size)


class EdgedBlocks:
    """A tape of blocks with given edges.

    Args:
        edges: First position of each block, then the number of samples; int64, increasing.
        seed: Of the order.
        epoch: Of the order.
    """

    __slots__ = ("_ends", "_shifts")

    def __init__(self, edges: NDArray[np.int64], seed: int, epoch: int) -> None:
        order = Permutation(len(edges) - 1, key_of(seed, 1), epoch)[:]
        self._ends = np.cumsum(np.diff(edges)[order])
        self._shifts = edges[1:][order] - self._ends
        """What makes a place on the tape a position, by block on the tape."""

    def take(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Positions at places of the tape."""
        found: NDArray[np.int64] = places + self._shifts[np.searchsorted(self._ends, places, side="right")]
        return found


class BlockOrder:
    """The order of one epoch: int64 positions by slot.

    Args:
        size: Samples.
        seed: Any whole number.
        epoch: Any whole number.
        block: Samples a block, or edges as of EdgedBlocks. A number is lowered to the samples of a lane where that is
            less: with as many lanes as samples, the order is a full shuffle.
        lanes: Read in turn.
    """

    __slots__ = ("_lanes", "_size", "_tape")

    def __init__(self, size: int, seed: int, epoch: int, *, block: int | NDArray[np.int64], lanes: int) -> None:
        self._size, self._lanes = size, lanes
        self._tape: EvenBlocks | EdgedBlocks
        if isinstance(block, int):
            self._tape = EvenBlocks(size, seed, epoch, max(1, min(block, size // lanes)))
        else:
            self._tape = EdgedBlocks(block, seed, epoch)

    def take(self, slots: NDArray[np.int64]) -> NDArray[np.int64]:
        """Positions at slots in range(size), which is not checked; int64, one axis."""
        turn = slots // self._lanes
        lane = slots - turn * self._lanes
        each, longer = divmod(self._size, self._lanes)
        return self._tape.take(lane * each + np.minimum(lane, longer) + turn)


def proven_edges(edges: Sequence[int] | NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Edges of blocks as an array of its own; int64, shape (blocks + 1,).

    Raises:
        UsageError: Not whole numbers that increase from 0 to size.
    """
    array = np.array(edges)
    whole = array.ndim == 1 and array.size > 0 and array.dtype.kind in "iu"
    if not whole or array[0] != 0 or array[-1] != size or bool((array[1:] <= array[:-1]).any()):
        msg = "the edges of blocks are whole numbers that increase from 0 to the number of samples"
        shown = f"{array.ravel()[:3].tolist()} ... {array.ravel()[-1:].tolist()}, {array.size} of them"
        raise UsageError(msg, expected=f"[0, ..., {size}]", got=shown, hint="A shard's first position begins a block.")
    return array.astype(np.int64)
