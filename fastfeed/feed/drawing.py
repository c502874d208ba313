"""What a loader draws from: torch's sampler, the user's, what a framework puts in its place, or an order of ours."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils.data import DistributedSampler, IterableDataset, RandomSampler, Sampler, SequentialSampler

from fastfeed.errors import UsageError, warn
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
    if drawn_by_us(asked.sampler) or drawn_by_us(asked.batch_sampler):
        return own_share(asked.sampler)
    if leaves_out(asked.sampler) or leaves_out(asked.batch_sampler):
        return None
    wanted = asked.only_ours()
    if not wanted:
        return every_rank(dataset, asked) if asked.distributed is False else None
    streams = isinstance(dataset, IterableDataset)
    if not streams and asked.batch_sampler is None and type(asked.sampler) is SequentialSampler and not asked.shuffle:
        # shuffle=False in other words, and so it may be sharded: Lightning's overfit_batches gives it
        return _order(dataset, replace(asked, shuffle_mode="full"))
    if streams or asked.sampler is not None or asked.batch_sampler is not None:
        if not streams and not asked.shares and asked.shuffle_mode == "full" and asked.skip is None:
            return None  # a sampler of one's own with sample mode's random numbers
        what = "an IterableDataset" if streams else "a sampler or batch_sampler of one's own"
        msg = f"{', '.join(wanted)} needs the loader's own order, and {what} has another"
        hint = (
            "A stream yields in an order of its own" if streams else "Leave sampler and batch_sampler out, or leave these out"
        )
        raise UsageError(msg, hint=f"{hint}.")
    return _order(dataset, asked)


def _order(dataset: Any, asked: Asked) -> Sampler[int]:  # noqa: ANN401 - any dataset
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
        kept = KeptSampler(len(dataset), skip, shuffle=asked.shuffle, generator=asked.generator)
        return EveryRank(kept) if asked.distributed is False else kept
    labels = getattr(dataset, "targets", None) if mode == "block" else None
    options: dict[str, Any] = {
        "shuffle": asked.shuffle, "seed": asked.seed or 0, "mode": mode, "labels": labels, "skip": skip,
    }  # fmt: skip
    if asked.distributed is None:
        return OrderSampler(dataset, **options)
    return FeedSampler(dataset, distributed=asked.distributed, drop_last=asked.drop_last, **options)


def drawn_from(sampler: Any, batch_sampler: Any) -> Any:  # noqa: ANN401 - any sampler
    """What indices come from: the sampler, or what a batch sampler draws from; None where that is not told."""
    return sampler if batch_sampler is None else getattr(batch_sampler, "sampler", None)


def set_epoch(sampler: Any, batch_sampler: Any, epoch: int) -> None:  # noqa: ANN401 - any sampler
    """Tell the epoch to what draws, where it takes one."""
    for one in (drawn_from(sampler, batch_sampler), batch_sampler):
        if hasattr(one, "set_epoch"):
            one.set_epoch(epoch)


def drawn_by_us(given: Any) -> bool:  # noqa: ANN401 - a sampler or batch sampler
    """Whether an order of ours decides already: a loader that a framework makes again brings it along."""
    return any(
        isinstance(one, OrderSampler) or shared_order(one) is not None for one in (given, getattr(given, "sampler", None))
    )


def leaves_out(given: Any) -> bool:  # noqa: ANN401 - a sampler or batch sampler
    """Whether a skip list is kept to already: a loader that a framework makes again brings ours along, perhaps wrapped."""
    waiting = [(given, _DEPTH)]
    while waiting:
        value, depth = waiting.pop()
        if isinstance(value, OrderSampler | KeptSampler):
            return True
        if depth:
            inside = getattr(value, "__dict__", {})
            waiting += [(inside[name], depth - 1) for name in _INSIDE if inside.get(name) is not None]
    return False


def shared_order(given: Any) -> OrderSampler | None:  # noqa: ANN401 - a sampler
    """The order of ours that a framework's sampler gives ranks their parts of; None where it is something else.

    Lightning puts a DistributedSampler around a sampler that is none; what is in it has no public name. By another name
    it would be a sampler like a user's own: it draws the same, and there are no positions.
    """
    if not isinstance(given, DistributedSampler) or isinstance(given, OrderSampler):
        return None
    within = getattr(given.dataset, "_sampler", None)
    return within if isinstance(within, OrderSampler) else None


class EveryRank(DistributedSampler[int]):
    """Draws what another sampler draws, on each rank all of it: distributed=False.

    It is a DistributedSampler so that frameworks leave it in its place, instead of giving each rank a part.

    Args:
        sampler: Draws indices.
    """

    def __init__(self, sampler: Any) -> None:  # noqa: ANN401 - any iterable
        # The base class's constructor is not called: it asks for the process group.
        self.sampler = sampler
        self.dataset = getattr(sampler, "data_source", sampler)
        self.num_replicas, self.rank, self.epoch, self.drop_last, self.seed = 1, 0, 0, False, 0
        self.shuffle = not isinstance(sampler, SequentialSampler)

    def __iter__(self) -> Iterator[int]:
        return iter(self.sampler)

    def __len__(self) -> int:
        return len(self.sampler)

    def set_epoch(self, epoch: int) -> None:
        """Handed on, where the sampler takes it."""
        self.epoch = epoch
        set_epoch(self.sampler, None, epoch)


def every_rank(dataset: Any, asked: Asked) -> EveryRank | None:  # noqa: ANN401 - any dataset
    """The sampler of a loader with distributed=False; None where torch shall judge what was given."""
    sampler = asked.sampler
    if isinstance(dataset, IterableDataset) or asked.batch_sampler is not None or (sampler is not None and asked.shuffle):
        return None
    if sampler is None:
        sampler = RandomSampler(dataset, generator=asked.generator) if asked.shuffle else SequentialSampler(dataset)
    return None if isinstance(sampler, DistributedSampler) else EveryRank(sampler)


def own_share(given: Any) -> FeedSampler | None:  # noqa: ANN401 - a sampler
    """An order of ours that gives this rank its part by itself, for a framework's sampler around one that does not.

    It draws the same samples in the same batches, but for a shuffle of the framework's on top, and has positions.
    """
    within = shared_order(given)
    if within is None:
        return None
    found = FeedSampler(within.dataset, distributed=(given.rank, given.num_replicas), drop_last=given.drop_last)
    found.take_over(within)
    return found


class EpochWatch:
    """Whether a user's DistributedSampler is told its epochs: if nobody calls set_epoch, each has the order of the first."""

    def __init__(self) -> None:
        self._last: int | None = None
        """The sampler's epoch in the pass before, unless it was named since."""
        self._told = False

    def named(self) -> None:
        """The loader was told which epoch the next pass is, be it the same one again."""
        self._last = None

    def begin(self, sampler: Any, *, moves: bool) -> None:  # noqa: ANN401 - any sampler
        """A pass begins.

        Args:
            sampler: What is drawn from.
            moves: Where nobody has called set_epoch since the last pass, it is called here; otherwise that is told, once.
        """
        if not isinstance(sampler, DistributedSampler) or isinstance(sampler, OrderSampler | EveryRank) or not sampler.shuffle:
            return
        if self._last is not None and sampler.epoch == self._last:
            if moves:
                sampler.set_epoch(sampler.epoch + 1)
            elif not self._told:
                self._told = True
                warn(
                    f"the DistributedSampler was not told of a new epoch: this one has the same order as epoch {self._last}, "
                    "and so will all others. Call set_epoch(epoch) before each epoch (or, if the order shall stay, give "
                    "shuffle=False)."
                )
        self._last = sampler.epoch
