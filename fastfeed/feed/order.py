"""The order in which a loader draws samples: samplers that are a function of (seed, epoch), and know where they are.

An epoch's order is a list of positions by slot, with a slot for each sample that is not skipped. It depends on seed,
epoch and OrderOptions, and neither on ranks (but for lanes that are left to us) nor on batches or workers. Slots go to
the ranks in turn (feed/ranks.py, Share), so a position in the epoch is one number, the slots that all ranks together
have handed out, and is valid for any other number of ranks and any batch size. With as many samples a step over all
ranks, a step draws the same samples whatever the number of ranks.

torch's BatchSampler suffices on top: a batch is the next ``batch_size`` of a rank's samples, all ranks have equally many,
and neither the position nor the mask of valid samples needs to know where batches end. That also is what Lightning's
rules ask for: a loader made with ``batch_size`` and ``sampler``, which it can make again from these two.
"""

import copy
import operator
from collections.abc import Iterator, Mapping, Sized
from dataclasses import replace
from typing import Any, Final, Unpack, cast

import numpy as np
from torch.utils.data import DistributedSampler, Sampler

from fastfeed.errors import UsageError, warn
from fastfeed.feed.cursor import Cursor
from fastfeed.feed.ranks import Distributed, Ranks, Share, checked, ranks_of, unsharded_ranks
from fastfeed.feed.recipe import Mode, Order, OrderOptions, Recipe, State, positive
from fastfeed.units import format_count

_CHUNK: Final = 4096
"""Slots computed at once."""


class OrderSampler(Sampler[int]):
    """Draws every sample once an epoch, in an order of (seed, epoch), and leaves ranks to the framework around it.

    It is no DistributedSampler: Lightning and Accelerate give each rank its part of it. FeedSampler does that itself.

    **Epochs**: the first iteration is epoch 0, and each further one is the next. After set_epoch(e) the next iteration is
    epoch e, and further ones go on from there: each epoch comes once, whether a loop calls set_epoch or not. Iterations
    that are left early count: on several ranks, all of them begin one or none does.

    **Positions**: state() is a position in the epoch; load() makes the next iteration go on from one.

    Args:
        dataset: Has a length; or the length itself.
        **options: OrderOptions.

    Raises:
        UsageError: An option that does not fit.
        TypeError: An option that there is not, or a dataset without a length.
    """

    def __init__(self, dataset: Sized | int, **options: Unpack[OrderOptions]) -> None:
        # torch's constructors are not called: DistributedSampler's asks for the process group, which may come later.
        self.dataset: Any = range(dataset) if isinstance(dataset, int | np.integer) else dataset
        self._recipe = Recipe(int(dataset) if isinstance(dataset, int | np.integer) else len(dataset), options)
        self._cursor = Cursor()
        self._begun: Share | None = None
        """The share of the iteration that was begun last, unless a position was loaded since."""

    @property
    def seed(self) -> int:
        """Of the order; fixed, as shuffle is."""
        return self._recipe.seed

    @property
    def shuffle(self) -> bool:
        """Whether the order is another one than that of storage."""
        return self._recipe.mode != "none"

    @property
    def recipe(self) -> Recipe:
        """What decides the order, besides the epoch."""
        return self._recipe

    @property
    def mode(self) -> Mode:
        """none, full or block."""
        return self._recipe.mode

    @property
    def size(self) -> int:
        """Samples an epoch, over all ranks: the dataset's without those to skip."""
        return self._recipe.size

    @property
    def lanes(self) -> int | None:
        """Of mode "block"; None before the first iteration, where it was not given."""
        return self._recipe.lanes

    # ------------------------------------------------------------------------------------------------ epochs
    @property
    def epoch(self) -> int:
        """The epoch of the iteration that was begun last; or, after set_epoch and load, the one that they name."""
        return self._cursor.epoch

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self.set_epoch(epoch)

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is this epoch: from a position that was loaded for it, else from its beginning."""
        before = self._cursor.epoch
        dropped = self._cursor.set_epoch(operator.index(epoch))
        if dropped:
            warn(
                f"set_epoch({epoch}) drops the position that was loaded, {format_count(dropped, 'sample')} into epoch "
                f"{before}: load it after set_epoch({epoch}), or call set_epoch({before}) to go on from it."
            )

    @property
    def moved(self) -> bool:
        """Whether set_epoch has named another epoch than that of the iteration that was begun last."""
        return self._begun is not None and not self._cursor.begun and self._cursor.epoch != self._begun.epoch

    def __iter__(self) -> Iterator[int]:
        """Positions of this rank's samples; epoch and ranks are settled now, not when the first sample is asked for.

        Raises:
            UsageError: The dataset's length has changed; or as FeedSampler's ranks.
        """
        if len(self.dataset) != self._recipe.length:
            msg = "the dataset's length has changed since the sampler was made"
            hint = "Make the sampler and the loader anew."
            raise UsageError(msg, expected=self._recipe.length, got=len(self.dataset), hint=hint)
        ranks = self._ranks()  # before the cursor moves: it may raise
        share = self._begun = self._share_of(*self._cursor.begin(), ranks)
        return self._draw(share, self._recipe.order(share.epoch, ranks.world))

    def _draw(self, share: Share, order: Order) -> Iterator[int]:
        for start in range(0, share.length, _CHUNK):
            yield from self._recipe.positions(order.take(share.slots(start, start + _CHUNK))).tolist()

    # ------------------------------------------------------------------------------------------------ shares
    def _ranks(self) -> Ranks:
        return Ranks(0, 1, "a sampler that leaves ranks to others")

    def _share_of(self, epoch: int, start: int, ranks: Ranks) -> Share:
        return Share(size=self.size, epoch=epoch, start=start, ranks=ranks, drop_last=False)

    @property
    def share(self) -> Share:
        """This rank's part of the iteration that was begun last; before the first and after load(), of the next one.

        Who iterates takes it once the iteration has begun: it has the mask of valid samples, and what state() needs.
        """
        return self._begun or self._share_of(*self._cursor.coming(), self._ranks())

    def __len__(self) -> int:
        """Samples that this rank draws in a whole epoch, also while one goes on from a loaded position (share.length).

        Frameworks count on that: Lightning adds the batches before the position itself.
        """
        return self._share_of(0, 0, self._ranks()).length

    def sharing(self, distributed: Distributed, *, drop_last: bool, run: int) -> "FeedSampler":
        """A sampler of the same order, at the same position, that gives each rank its part.

        Args:
            distributed: As FeedSampler's.
            drop_last: As FeedSampler's.
            run: Samples in a row that a rank takes before the next one's turn (feed/ranks.py, Share).
        """
        made = FeedSampler(self.dataset, distributed=distributed, drop_last=drop_last, run=run)
        made._recipe, made._cursor = self._recipe, replace(self._cursor)  # noqa: SLF001 - of this family
        return made

    # ------------------------------------------------------------------------------------------------ positions
    def state(self, handed_out: int = 0, share: Share | None = None) -> State:
        """The position in the epoch, of all ranks: the same on each rank, and of the same few numbers for any size.

        Args:
            handed_out: Samples of the share that this rank has handed out; each other rank as many.
            share: Of the iteration that is meant; by default the property of that name.

        Returns:
            epoch; consumed: samples of the epoch that were handed out over all ranks, which is the size once all were;
            and what has to be the same for these to mean the same: the dataset's size, a hash of the positions to skip,
            seed, mode, block and lanes.

        Raises:
            UsageError: More samples than the share has, or fewer than none.
        """
        share = share or self.share
        if not 0 <= handed_out <= share.length:
            msg = "a rank hands out at most the samples of its share"
            raise UsageError(msg, expected=f"0 to {share.length}", got=handed_out)
        consumed = share.consumed(operator.index(handed_out))
        return {**self._recipe.identity(), "lanes": self.lanes, "epoch": share.epoch, "consumed": consumed}

    def load(self, state: Mapping[str, object]) -> None:
        """The next iteration goes on from a position: with the first sample that no rank has handed out.

        Ranks and batch sizes may be others than before. If the position is the end of its epoch, the next iteration is
        the next epoch (or, after set_epoch of that same epoch, empty).

        Raises:
            UsageError: A position of another dataset, seed or order; the message says what differs.
        """
        own: dict[str, object] = dict(self._recipe.identity())
        missing = sorted({*own, "epoch", "consumed", "lanes"} - set(state))
        if missing:
            msg = f"this is no position of a sampler: it lacks {', '.join(missing)}"
            raise UsageError(msg, got=", ".join(map(str, state)) or "nothing")
        if self._recipe.given_lanes is not None:
            own["lanes"] = self._recipe.given_lanes
        differ = [name for name, value in own.items() if state[name] != value]
        if differ:
            msg = f"this position belongs to another order, by {' and '.join(differ)}"
            expected, got = (", ".join(f"{name} {side[name]}" for name in differ) for side in (own, state))
            raise UsageError(msg, expected=expected, got=got, hint="Make the loader as it was when the position was taken.")
        epoch, consumed = (operator.index(cast("int", state[name])) for name in ("epoch", "consumed"))
        if not 0 <= consumed <= self.size:
            msg = "this position is outside of its epoch"
            raise UsageError(msg, expected=f"consumed from 0 to {self.size}", got=consumed)
        if state["lanes"] is not None:
            self._recipe.lanes = positive("lanes", state["lanes"])
        self._cursor.load(epoch, consumed, finished=0 < self.size == consumed)
        self._begun = None


class FeedSampler(OrderSampler, DistributedSampler[int]):  # type: ignore[override]  # seed and shuffle are fixed
    """Gives each rank its part of an order, without a word from the framework around it.

    A real DistributedSampler, so Lightning leaves it in its place and calls set_epoch. Rank and world are asked for at
    each iteration and each len(), not before: it may be made before the process group is.

    Args:
        dataset: Has a length; or the length itself.
        distributed: True: the ranks of torch.distributed's default group (one rank, where no launcher started several
            processes). "exact": the same, and exact. A process group (of a mesh: mesh.get_group()), or (rank, world).
            False: each process draws everything, on purpose. None: the same, with a warning where there are several.
        exact: Each sample counts once over all ranks: share.valid() tells samples from padding, which keeps the number of
            batches equal. Without it padding counts: the epoch's first samples come twice, as DistributedSampler's.
        drop_last: Leave out the last samples that do not go round the ranks, instead of padding.
        run: Samples in a row that a rank takes before the next one's turn (feed/ranks.py, Share).
        **options: OrderOptions.

    Raises:
        UsageError: An option that does not fit; a rank outside of [0, world), as torch's.
        TypeError: An option that there is not, or a dataset without a length.
    """

    def __init__(
        self,
        dataset: Sized | int,
        *,
        distributed: Distributed = True,
        exact: bool = False,
        drop_last: bool = False,
        run: int = 1,
        **options: Unpack[OrderOptions],
    ) -> None:
        self.distributed, self.run = checked(distributed), positive("run", run)
        self.exact, self.drop_last = exact or self.distributed == "exact", drop_last
        if self.exact and drop_last:
            msg = "exact draws each sample, and drop_last leaves some out"
            raise UsageError(msg, hint="Give one of them.")
        super().__init__(dataset, **options)
        self._told = False

    def __iter__(self) -> Iterator[int]:
        """Positions of this rank's samples; epoch and ranks are settled now, not when the first sample is asked for.

        Raises:
            UsageError: The dataset's length has changed; this process is not in the group; or there is no group, and a
                launcher started several processes.
        """
        if self.distributed is None and not self._told and (world := unsharded_ranks()) > 1:
            self._told = True
            warn(
                f"torch.distributed has {world} ranks, and each of them draws every sample: distributed=True gives each its "
                "part, distributed=False says that it is meant."
            )
        return super().__iter__()

    def _ranks(self) -> Ranks:
        return ranks_of(self.distributed)

    def _share_of(self, epoch: int, start: int, ranks: Ranks) -> Share:
        return Share(size=self.size, epoch=epoch, start=start, ranks=ranks, drop_last=self.drop_last, run=self.run)

    def take_over(self, other: OrderSampler) -> None:
        """Draw the order of another sampler of the same dataset, from where that one is."""
        self._recipe, self._cursor = copy.copy(other.recipe), copy.copy(other._cursor)  # noqa: SLF001 - one of ours
        if not self._cursor.loaded:  # a position brings its lanes; those that a number of ranks settled are settled anew
            self._recipe.lanes = self._recipe.given_lanes

    @property
    def rank(self) -> int:  # type: ignore[override]
        """This process's, now."""
        return self._ranks().rank

    @property
    def num_replicas(self) -> int:  # type: ignore[override]
        """The world, now."""
        return self._ranks().world

    @property
    def num_samples(self) -> int:  # type: ignore[override]
        """Samples of each rank in a whole epoch."""
        return len(self)

    @property
    def total_size(self) -> int:  # type: ignore[override]
        """Samples of all ranks in a whole epoch, with padding."""
        return len(self) * self.num_replicas
