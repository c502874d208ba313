"""Batches with what they are made of: what a loader gives that was made with_index."""

import operator
from collections.abc import Callable, Iterator
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


def indexed(
    batches: EpochIterator,
    dataset: Any,  # noqa: ANN401 - any dataset
    *,
    batched: bool,
    valid: Callable[[], torch.Tensor] | None,
) -> Iterator[Indexed]:
    """The batches of a pass, each as Indexed.

    Args:
        batches: The pass.
        dataset: What is read; it may know keys.
        batched: Whether a batch has several samples.
        valid: Tells which samples of the batch that came last are no padding; None where none is.
    """
    handed = batches.handed
    for batch in batches:
        indices = list(handed.indices) if batched else [handed.indices]
        found = [sample_id(dataset, index) for index in indices]
        keys = [name.key for name in found if name is not None]
        real = torch.ones(len(indices), dtype=torch.bool) if valid is None else valid()
        yield Indexed(batch, positions(indices), keys if len(keys) == len(indices) else None, real)


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
