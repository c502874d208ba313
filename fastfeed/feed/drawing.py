"""What a loader draws from: torch's sampler, the user's, what a framework puts in its place, or an order of ours."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils.data import IterableDataset, Sampler, SequentialSampler

from fastfeed.errors import UsageError
from fastfeed.feed.kept import KeptSampler
from fastfeed.feed.leftout import left_out
from fastfeed.feed.order import FeedSampler, OrderSampler
from fastfeed.feed.ranks import Distributed
from fastfeed.feed.skipping import Skip

_INSIDE = ("sampler", "batch_sampler", "_sampler", "_batch_sampler", "dataset")
"""Attributes under which samplers that wrap others keep them; Lightning's hide them in a dataset."""
_DEPTH = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Arguments of the loader, as they were given."""

    sampler: Any
    batch_sampler: Any
    shuffle: bool
    drop_last: bool
    generator: torch.Generator | None
    seed: int | None
    distributed: Distributed
    shuffle_mode: str
    skip: Skip | None = None

    @property
    def shares(self) -> bool:
        """Each rank shall have its part."""
        return self.distributed is not None and self.distributed is not False

    def only_ours(self) -> list[str]:
        """What only an order of ours can do."""
        asked = {"seed": self.seed is not None, "distributed": self.shares, "shuffle_mode": self.shuffle_mode != "full"}
        said = [f"{name}={getattr(self, name)!r}" for name, is_asked in asked.items() if is_asked]
        return said if self.skip is None else [*said, "skip"]


def sampler_of(dataset: Any, asked: Asked) -> Sampler[int] | None:  # noqa: ANN401 - any dataset
    """The sampler of a loader, where it is neither torch's nor the user's: those stay as they are.

    Only skip touches more of a dataset than its length, here and now: it asks for names, a list that fits nothing is an
    error where the loader is made, and whoever looks at the sampler finds the samples that are left.

    Args:
        dataset: What is read.
        asked: The loader's arguments.

    Raises:
        UsageError: Something was asked for that only an order of ours can do, and another order was given.
    """
    wanted = asked.only_ours()
    if not wanted or drawn_by_us(asked.sampler) or drawn_by_us(asked.batch_sampler):
        return None
    streams = isinstance(dataset, IterableDataset)
    if not streams and asked.batch_sampler is None and type(asked.sampler) is SequentialSampler and not asked.shuffle:
        # shuffle=False in other words: Lightning's overfit_batches gives it
        return _order(dataset, replace(asked, shuffle_mode="full"))
    if streams or asked.sampler is not None or asked.batch_sampler is not None:
        if not streams and not asked.shares and asked.shuffle_mode == "full" and asked.skip is None:
            return None  # a sampler of one's own with sample mode's random numbers
        what = "an IterableDataset" if streams else "a sampler or batch_sampler of one's own"
        msg = f"{', '.join(wanted)} needs the loader's own order, and {what} has another"
        raise UsageError(msg, hint="Leave sampler and batch_sampler out, or leave these out.")
    return _order(dataset, asked)


def _order(dataset: Any, asked: Asked) -> OrderSampler | KeptSampler:  # noqa: ANN401 - any dataset
    """An order of ours.

    Raises:
        UsageError: A shuffle_mode that there is not, or without a shuffle; or as left_out.
    """
    mode = asked.shuffle_mode
    if mode not in {"full", "block"}:
        msg = "shuffle_mode is 'full' or 'block'"
        raise UsageError(msg, got=repr(mode))
    if mode == "block" and not asked.shuffle:
        msg = "shuffle_mode='block' says how to shuffle, and shuffle is not asked for"
        raise UsageError(msg, expected="shuffle=True", got="shuffle=False")
    skip = () if asked.skip is None else left_out(asked.skip, dataset)
    if asked.seed is None and not asked.shares and mode == "full":
        return KeptSampler(len(dataset), skip, shuffle=asked.shuffle, generator=asked.generator)
    labels = getattr(dataset, "targets", None) if mode == "block" else None
    options: dict[str, Any] = {
        "shuffle": asked.shuffle, "seed": asked.seed or 0, "mode": mode, "labels": labels, "skip": skip,
    }  # fmt: skip
    if asked.distributed is None:
        return OrderSampler(dataset, **options)
    return FeedSampler(dataset, distributed=asked.distributed, drop_last=asked.drop_last, **options)


def drawn_by_us(given: Any) -> bool:  # noqa: ANN401 - a sampler or batch sampler
    """Whether an order of ours decides already: a loader that a framework makes again brings it along, perhaps wrapped."""
    waiting = [(given, _DEPTH)]
    while waiting:
        value, depth = waiting.pop()
        if isinstance(value, OrderSampler | KeptSampler):
            return True
        if depth:
            inside = getattr(value, "__dict__", {})
            waiting += [(inside[name], depth - 1) for name in _INSIDE if inside.get(name) is not None]
    return False
