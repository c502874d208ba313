"""What the loader does about samples that fail: policies, caps, and which sample stands in for another."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch.utils.data import BatchSampler, DistributedSampler, RandomSampler, SequentialSampler, SubsetRandomSampler

from fastfeed.errors import DecodeError, UsageError
from fastfeed.feed.drawing import EveryRank
from fastfeed.feed.kept import KeptSampler
from fastfeed.feed.order import OrderSampler
from fastfeed.feed.permutation import mixed
from fastfeed.feed.recipe import Recipe
from fastfeed.feed.seeds import number_of
from fastfeed.units import format_count

ON_ERROR = ("raise", "skip", "replace")
_MIN_SEEN = 200
"""A rate means something from so many samples on."""
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class ErrorCaps:
    """When tolerated faults are too many."""

    consecutive: int = 20
    """Samples that failed one after another, in the order of delivery."""
    rate: float = 0.05
    """Share of all samples of an epoch, once 200 were asked for."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """Which sample stands in for one that failed: a pure function of base, epoch and index, the same on every rank.

    Args:
        pool: The samples that may: indices.
        base: The loader's seed, or 0.
    """

    pool: Sequence[Any]
    base: int

    def __call__(self, index: object, epoch: int, attempt: int) -> Any:  # noqa: ANN401 - an index of the pool
        """Another index."""
        drawn = mixed(mixed(self.base + epoch) ^ mixed(number_of(index)) ^ mixed(attempt + 0x5F))
        return self.pool[drawn % len(self.pool)]


def pool_of(sampler: object, size: int, *, forced: bool) -> Sequence[Any]:
    """The samples that a sampler may draw, so that none from outside (a validation split) stands in for one of them.

    Args:
        sampler: A loader's sampler or batch sampler.
        size: Samples of the dataset.
        forced: Take all samples of the dataset where the sampler does not tell.

    Raises:
        UsageError: It does not tell.
    """
    while isinstance(sampler, EveryRank) or (
        isinstance(sampler, BatchSampler) and type(sampler).__iter__ is BatchSampler.__iter__  # it draws as torch's does
    ):
        sampler = sampler.sampler
    if isinstance(sampler, OrderSampler | KeptSampler):
        return _Unskipped(sampler.recipe)
    if isinstance(sampler, SubsetRandomSampler):
        return sampler.indices
    if forced or isinstance(sampler, DistributedSampler) or type(sampler) in {RandomSampler, SequentialSampler}:
        return range(size)
    msg = f"on_error='replace' has to know which samples may stand in, and {type(sampler).__qualname__} does not tell"
    hint = "Use on_error='skip', or say with force_on_error=True that any sample of the dataset may."
    raise UsageError(msg, hint=hint)


@dataclass(frozen=True, slots=True)
class _Unskipped(Sequence[int]):
    """The positions that an order of ours draws; those of the same recipe are equal, so that persistent workers go on."""

    recipe: Recipe

    def __len__(self) -> int:
        return self.recipe.size

    def __getitem__(self, number: Any) -> Any:  # noqa: ANN401 - one number is all that is asked for
        return int(self.recipe.positions(np.array([number], dtype=np.int64))[0])


class FaultCounter:
    """Counts tolerated faults in the main process.

    Args:
        caps: When they are too many.
    """

    def __init__(self, caps: ErrorCaps) -> None:
        self.caps = caps
        self.seen = self.failed = self.consecutive = 0
        self.names: list[str] = []

    def batch(self, size: int, failed: Mapping[int, str]) -> None:
        """A batch came.

        Args:
            size: Samples that were asked for.
            failed: Those that failed: position in the batch -> how to call it.

        Raises:
            DecodeError: They are too many.
        """
        self.seen += size
        if not failed:
            self.consecutive = 0
            return
        self.failed += len(failed)
        self.names = [*self.names, *failed.values()][-_SHOWN:]
        for position in range(size):
            self.consecutive = self.consecutive + 1 if position in failed else 0
            if self.consecutive >= self.caps.consecutive:
                raise self._too_many(f"{format_count(self.consecutive, 'sample')} failed one after another")
        if self.seen >= _MIN_SEEN and self.failed / self.seen > self.caps.rate:
            raise self._too_many(
                f"{self.failed:,} of {format_count(self.seen, 'sample')} failed ({self.failed / self.seen:.1%})"
            )

    def _too_many(self, what: str) -> DecodeError:
        msg = f"{what}, which is more than on_error tolerates; the last: {'; '.join(self.names)}"
        expected = f"fewer than {self.caps.consecutive} in a row, and at most {self.caps.rate:.1%}"
        return DecodeError(msg, expected=expected, hint="Mend the data, leave samples out with skip=, or raise error_caps=.")


def prove_policy(on_error: str, *, shuffles: bool, forced: bool) -> None:
    """Whether a policy may be had.

    Raises:
        UsageError: No such policy, or one that would change an evaluation silently.
    """
    if on_error not in ON_ERROR:
        msg = f"on_error is one of {', '.join(ON_ERROR)}"
        raise UsageError(msg, got=repr(on_error))
    if on_error != "raise" and not shuffles and not forced:
        msg = f"on_error={on_error!r} without shuffle would change what an evaluation is over"
        hint = "Leave known samples out with skip=, or insist with force_on_error=True."
        raise UsageError(msg, got=f"on_error={on_error!r}, shuffle=False", hint=hint)
