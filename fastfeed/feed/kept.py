"""torch's own order over the samples that a skip list leaves."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch.utils.data import RandomSampler, Sampler, SequentialSampler

from fastfeed.feed.recipe import Recipe


class KeptSampler(Sampler[int]):
    """Draws what torch's loader draws from a Subset of the kept samples, number for number, as positions in the whole dataset.

    It is no RandomSampler: frameworks make such a one anew from its length alone, and would draw skipped samples again.

    Args:
        length: Samples of the dataset.
        skip: Positions to leave out; int64.
        shuffle: Draw in random order.
        generator: What random numbers are drawn from; None for torch's global state.

    Raises:
        ValueError: torch's, where nothing is left to shuffle.
    """

    def __init__(
        self,
        length: int,
        skip: ArrayLike,
        *,
        shuffle: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        self.recipe = Recipe(length, {"shuffle": False, "skip": skip})
        """Which positions are kept."""
        self.shuffle = shuffle
        numbers = range(self.recipe.size)
        self._numbers: Sampler[int] = RandomSampler(numbers, generator=generator) if shuffle else SequentialSampler(numbers)
        self._positions = self.recipe.positions(np.arange(self.recipe.size, dtype=np.int64))

    def __iter__(self) -> Iterator[int]:
        """Positions, one by one: torch's sampler shall draw its random numbers when it would."""
        return map(self._positions.item, self._numbers)

    def __len__(self) -> int:
        return self.recipe.size
