"""Which sampler a loader draws from: torch's, the user's, or ours where something was asked for that only ours can do."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import IterableDataset, Sampler, SequentialSampler

from fastfeed.errors import UsageError
from fastfeed.feed.kept import KeptSampler
from fastfeed.feed.leftout import left_out
from fastfeed.feed.order import FeedSampler, OrderSampler
from fastfeed.feed.ranks import Distributed
from fastfeed.feed.skipping import Skip

if TYPE_CHECKING:
    from fastfeed.feed.recipe import OrderOptions

_INSIDE = ("sampler", "batch_sampler", "_sampler", "_batch_sampler", "dataset")
"""Attributes under which samplers that wrap others keep them; Lightning's hide them in a dataset."""
_DEPTH = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderRequest:
    """What the user asked of the order; names and meanings are the loader's."""

    shuffle: bool
    drop_last: bool
    generator: torch.Generator | None
    seed: int | None
    distributed: Distributed
    shuffle_mode: str
    skip: Skip | None

    @property
    def sharded(self) -> bool:
        """Whether each rank shall read a part."""
        return self.distributed is not None and self.distributed is not False

    @property
    def wanted(self) -> list[str]:
        """What was asked for that only an order of ours can do."""
        asked = {
            "seed": self.seed is not None, "distributed": self.sharded, "shuffle_mode": self.shuffle_mode != "full",
            "skip": self.skip is not None,
        }  # fmt: skip
        return [
            f"{name}={getattr(self, name)!r}" if name != "skip" else "skip=" for name, is_asked in asked.items() if is_asked
        ]


def sampler_of(dataset: Any, request: OrderRequest, given: tuple[Any, Any]) -> Sampler[int] | None:  # noqa: ANN401
    """Our sampler, where it is needed. Only skip= touches more of the dataset than its length: it asks for names.

    Args:
        dataset: Any dataset.
        request: What was asked for.
        given: The user's sampler and batch sampler.

    Raises:
        UsageError: It cannot be done, or not with the given samplers.
    """
    wanted = request.wanted
    if not wanted or any(map(_is_ours, given)):
        return None
    streams = isinstance(dataset, IterableDataset)
    if streams or not _is_plain(given, dataset, request):
        if not streams and not request.sharded and request.shuffle_mode == "full" and request.skip is None:
            return None  # a sampler of one's own with sample mode's random numbers
        what = "an IterableDataset" if streams else "a sampler or batch_sampler of one's own"
        msg = f"{', '.join(wanted)} needs the loader's own order, and {what} has another"
        raise UsageError(msg, hint="Leave sampler and batch_sampler out, or leave these out.")
    _prove_mode(request)
    skip = np.empty(0, dtype=np.int64) if request.skip is None else left_out(request.skip, dataset)
    return _made(dataset, request, skip)


def _is_plain(given: tuple[Any, Any], dataset: Any, request: OrderRequest) -> bool:  # noqa: ANN401
    """Whether no order is given: none at all; or that of storage, by which Lightning replaces ours to overfit a few batches."""
    sampler, batch_sampler = given
    stored = request.skip is not None and type(sampler) is SequentialSampler and len(sampler) == len(dataset)
    return batch_sampler is None and (sampler is None or stored)


def _prove_mode(request: OrderRequest) -> None:
    if request.shuffle_mode not in {"full", "block"}:
        msg = "shuffle_mode is 'full' or 'block'"
        raise UsageError(msg, got=repr(request.shuffle_mode))
    if request.shuffle_mode == "block" and not request.shuffle:
        msg = "shuffle_mode='block' says how to shuffle, and shuffle is not asked for"
        raise UsageError(msg, expected="shuffle=True", got="shuffle=False")


def _made(dataset: Any, request: OrderRequest, skip: NDArray[np.int64]) -> Sampler[int]:  # noqa: ANN401
    if request.seed is None and not request.sharded and request.shuffle_mode == "full":
        return KeptSampler(len(dataset), skip, shuffle=request.shuffle, generator=request.generator)
    labels = getattr(dataset, "targets", None) if request.shuffle_mode == "block" else None
    options: OrderOptions = {
        "shuffle": request.shuffle, "seed": request.seed or 0, "mode": request.shuffle_mode, "labels": labels, "skip": skip,  # type: ignore[typeddict-item]
    }  # fmt: skip
    if request.distributed is None:
        return OrderSampler(dataset, **options)
    return FeedSampler(dataset, distributed=request.distributed, drop_last=request.drop_last, **options)


def _is_ours(given: Any) -> bool:  # noqa: ANN401 - a sampler or batch sampler
    """Whether an order of ours decides already: a loader that a framework makes again brings it along, perhaps wrapped."""
    waiting = [(given, _DEPTH)]
    while waiting:
        value, depth = waiting.pop()
        if isinstance(value, OrderSampler | KeptSampler):
            return True
        if depth and value is not None:
            inside = getattr(value, "__dict__", {})
            waiting += [(inside[name], depth - 1) for name in _INSIDE if name in inside]
    return False
