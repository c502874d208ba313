"""Batches with what they are made of: what a loader gives that was made with_index."""

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from fastfeed.errors import UsageError
from fastfeed.feed.engine import EpochIterator
from fastfeed.feed.naming import indices_text, sample_id


class Indexed(NamedTuple):
    """A batch with what it is made of: what a loader with_index gives."""

    batch: Any
    index: torch.Tensor  # type: ignore[assignment]
    """Positions in the dataset; int64, shape (samples,). With on_error skip or replace those that were asked for."""
    key: list[Any] | None
    """Keys of the samples, where the dataset knows them."""
    valid: torch.Tensor
    """False for a sample that is padding (distributed="exact"); bool, shape (samples,)."""


class IndexedPass:
    """The batches of a pass, each as Indexed. As those, it goes on behind a batch that failed.

    Args:
        batches: The pass.
        dataset: What is read; it may know keys.
        batched: Whether a batch has several samples.
        valid: Tells which samples of the batch that came last are no padding; None where none is.
    """

    def __init__(
        self,
        batches: EpochIterator,
        dataset: Any,  # noqa: ANN401 - any dataset
        *,
        batched: bool,
        valid: Callable[[], torch.Tensor] | None,
    ) -> None:
        self._batches, self._dataset, self._batched, self._valid = batches, dataset, batched, valid

    def __iter__(self) -> "IndexedPass":
        return self

    def __len__(self) -> int:
        return len(self._batches)

    def __next__(self) -> Indexed:
        """The next batch.

        Raises:
            UsageError: The sampler draws something else than whole numbers; or as EpochIterator.
        """
        batch, handed = next(self._batches), self._batches.handed
        indices = list(handed.indices) if self._batched else [handed.indices]
        found = [sample_id(self._dataset, index) for index in indices]
        keys = [name.key for name in found if name is not None]
        real = torch.ones(len(indices), dtype=torch.bool) if self._valid is None else self._valid()
        return Indexed(batch, positions(indices), keys if len(keys) == len(indices) else None, real)


def positions(indices: list[Any]) -> torch.Tensor:
    """Indices as an int64 tensor.

    Raises:
        UsageError: Something else than whole numbers.
    """
    try:
        return torch.tensor([operator.index(index) for index in indices], dtype=torch.int64)
    except TypeError as error:
        msg = "with_index gives whole numbers, and the sampler draws something else"
        raise UsageError(msg, got=indices_text(indices)) from error
