"""A loader inside a framework that shares data over processes and keeps books of its loaders (fastfeed/accelerate.py)."""

import operator
from collections.abc import Iterator, Sized
from typing import Any, Final, Protocol, cast, runtime_checkable

import torch
from torch.utils.data import BatchSampler, DistributedSampler, IterableDataset, RandomSampler, SequentialSampler

from fastfeed.errors import UsageError
from fastfeed.feed.loader import DataLoader
from fastfeed.feed.order import FeedSampler, OrderSampler
from fastfeed.feed.position import Position
from fastfeed.feed.ranks import Distributed, Share

_END: Final = object()


class Host(Protocol):
    """The framework. It is kept by its loaders: it shall not keep them, or workers end whenever a circle is collected."""

    processes: int
    rank: int
    splits: bool
    """batch_size is that of all processes together."""
    reseeds: bool
    """A shuffle without a seed gets one, also on one process."""

    def prove(self, *, stream: bool, asked: bool) -> None:
        """Whether several processes can share, and whose part is whose if nobody has said it (asked).

        Raises:
            UsageError: They cannot.
        """

    def seed(self, generator: torch.Generator | None) -> int:
        """A seed that all processes share."""

    def shard(self, batches: Any) -> Any:  # noqa: ANN401
        """A batch sampler that draws this process's batches of another one."""

    def synchronize(self, generator: torch.Generator | None) -> None:
        """Give random generators the same state in all processes: the one that is given, and those that the user names."""

    def begin(self, loader: "PreparedLoader") -> None:
        """A pass begins; perhaps in the place of one that was left."""

    def end(self, loader: "PreparedLoader") -> None:
        """Its pass has ended."""

    def move(self, batch: Any) -> Any:  # noqa: ANN401
        """The batch on the device."""


@runtime_checkable
class _HasEpoch(Protocol):
    def set_epoch(self, epoch: int) -> None: ...


class PreparedLoader(DataLoader):
    """A fastfeed.DataLoader whose batches are on the device, and of which a framework keeps books.

    Args:
        loader: What it is a copy of, with the same workers, options and position.
        host: The framework.
    """

    end_of_dataloader = False
    """Whether the batch that was given last is the last one of its pass."""
    remainder = -1
    """Of the last step's samples over all ranks, those that are no padding, if they are fewer than in other steps; 0 if they
    are not, -1 if it cannot be told."""

    def __init__(self, loader: DataLoader, host: Host) -> None:
        # torch's constructor is not called: everything was decided when the loader was made.
        vars(self).update(loader.__getstate__())
        self.host = host
        self._mine: FeedSampler | None = None
        """Where the order is ours."""
        self._synchronized: torch.Generator | None = None
        self.passes = self._left_out = self._coming = 0
        self._share()
        self._position = None if self._own is None or self.disabled else Position(self._own, self.batch_sampler)
        self._show_position()

    # ------------------------------------------------------------------------------------------------ whose samples
    def _share(self) -> None:
        """Settle what this process reads."""
        several, stream = self.host.processes > 1, isinstance(self.dataset, IterableDataset)
        shuffle = None if stream else self._torchs_order()
        own = self.sampler if isinstance(self.sampler, OrderSampler) and shuffle is not None else None
        asked: Distributed = own.distributed if isinstance(own, FeedSampler) else self.distributed
        if several and asked is not False:
            self.host.prove(stream=stream, asked=asked is not None)
            asked = asked if asked is not None else (self.host.rank, self.host.processes)
        if shuffle is None:
            if asked:
                self._share_foreign()
            return
        if own is None and (asked or (shuffle and self.host.reseeds)):
            self.seed = self.host.seed(self.generator) if shuffle else self.seed
            own = OrderSampler(cast("Sized", self.dataset), shuffle=shuffle, seed=self.seed or 0)
        if own is not None:
            self._share_own(own, asked or False)

    def _torchs_order(self) -> bool | None:
        """Whether the order shuffles, if it is one of ours or what torch makes of shuffle=; None for one of the user's."""
        if self.batch_size is None and self.batch_sampler is not None:
            return None
        sampler: Any = self.sampler
        if isinstance(sampler, OrderSampler):
            return sampler.shuffle
        if getattr(sampler, "data_source", None) is not self.dataset:
            return None
        if type(sampler) is SequentialSampler:
            return False
        torchs = type(sampler) is RandomSampler and not sampler.replacement and sampler.generator is self.generator
        return True if torchs and sampler.num_samples == len(sampler.data_source) else None

    def _share_own(self, own: OrderSampler, asked: Distributed) -> None:
        """Draw this process's part of an order of ours. Ranks take whole batches in turn; in blocks, each has its lanes."""
        batch, sampler = self.batch_size, own.sharing(asked, drop_last=self.drop_last and asked is not False, run=1)
        if self.host.splits and batch is not None:
            if batch % sampler.num_replicas:
                msg = f"split_batches=True: batch_size={batch} does not go round {sampler.num_replicas} processes"
                raise UsageError(msg)
            batch //= sampler.num_replicas
        sampler.run = batch if batch is not None and own.mode != "block" else 1
        batches = None if batch is None else _Batches(sampler, batch, self.drop_last)
        self._mine = sampler
        vars(self).update(distributed=asked, sampler=sampler, batch_sampler=batches, batch_size=batch)

    def _share_foreign(self) -> None:
        """Draw this process's part of what a sampler of the user's draws."""
        sampler: Any = getattr(self.batch_sampler, "sampler", self.sampler)
        if isinstance(sampler, DistributedSampler) and sampler.num_replicas > 1:
            msg = f"{type(sampler).__name__} gives each rank its part already, and its padding cannot be told from samples"
            raise UsageError(msg, hint="Leave sampler out: prepare() shares; or distributed=False reads what it draws.")
        itself = self.batch_sampler is None and isinstance(self.sampler, BatchSampler)
        if self.batch_sampler is None and not itself:
            msg = f"batch_size=None with a sampler of one's own cannot be shared by {self.host.processes} processes"
            raise UsageError(msg, hint="Give batch_size, or leave sampler out.")
        if self.with_index and not self.drop_last:
            msg = "with_index cannot tell the padding (valid) that a sampler of one's own gets under several processes"
            raise UsageError(msg, hint="Leave out the sampler or with_index, or give drop_last=True.")
        if hasattr(sampler, "generator"):
            if sampler.generator is None:
                sampler.generator = torch.Generator().manual_seed(int(torch.empty((), dtype=torch.int64).random_().item()))
            self._synchronized = sampler.generator
        name = "sampler" if itself else "batch_sampler"
        vars(self)[name] = self.host.shard(vars(self)[name])

    # ------------------------------------------------------------------------------------------------ passes
    def __iter__(self) -> Any:  # noqa: ANN401 - an iterator of batches
        """Begin an epoch."""
        self.host.synchronize(self._synchronized)
        if self._own is None:
            self._hand_on(self._coming)
        elif isinstance(self.dataset, _HasEpoch):
            self.dataset.set_epoch(self._coming if self._mine is None else self._to_come(self._mine).epoch)
        self._coming += 1
        left_out, self._left_out = self._left_out, 0
        self.passes += 1
        return _Pass(self, super().__iter__(), left_out)

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is this epoch; without a call, each is the next one."""
        self._coming = epoch
        super().set_epoch(epoch)

    def _hand_on(self, epoch: int) -> None:
        """Tell the user's sampler and dataset which epoch it is, as Accelerate does."""
        drawn = self.sampler if self.batch_sampler is None else self.batch_sampler
        inner = getattr(drawn, "batch_sampler", None)
        for one in (drawn, inner, getattr(drawn, "sampler", None), getattr(inner, "sampler", None), self.dataset):
            if isinstance(one, _HasEpoch):
                one.set_epoch(epoch)

    def leave_out(self, batches: int) -> None:
        """Let the next pass leave out its first batches. In an order of ours they are not fetched; else they are dropped.

        Raises:
            UsageError: More batches than there are.
        """
        mine, most, start, epoch = self._mine, None, 0, 0
        if mine is not None:
            coming = self._to_come(mine)
            most, start, epoch = self._batches_of(coming), coming.start, coming.epoch
        if batches < 0 or (most is not None and batches > most):
            msg = "the epoch has not so many batches to leave out"
            raise UsageError(msg, expected="0 or more" if most is None else f"0 to {most}", got=batches)
        if mine is None:
            self._left_out = operator.index(batches)
            return
        consumed = mine.size if batches == most else start + batches * self._step
        mine.load({**mine.state(), "epoch": epoch, "consumed": consumed})
        mine.set_epoch(epoch)  # also where nothing of it is left
        if self._position is not None:
            self._position.handed = None

    @staticmethod
    def _to_come(mine: FeedSampler) -> Share:
        """This rank's part of the next iteration, whatever was begun."""
        return mine.sharing(mine.distributed, drop_last=mine.drop_last, run=mine.run).share

    def _batches_of(self, share: Share) -> int:
        each = self.batch_size or 1
        return share.length // each if self.drop_last else -(-share.length // each)

    def pass_facts(self) -> tuple[int | None, int]:
        """Batches of the pass that was begun last, None where only its end tells; and its remainder (see there)."""
        if self._mine is None:
            total, each = self._foreign_samples(), self.total_batch_size
            return None, -1 if total is None or each is None else 0 if self.drop_last else total % each
        share = self._mine.share
        # Gathered rank by rank, padding is at the end of the last step where ranks take whole batches in turn.
        at_end = self._mine.run > 1 or share.padding <= 1 or self.batch_size in {None, 1}
        known = share.ranks.world == self.host.processes and at_end
        return self._batches_of(share), -1 if not known else 0 if self.drop_last else share.rest % self._step

    def _foreign_samples(self) -> int | None:
        """Samples that a sampler of the user's, or of torch's, draws in an epoch; None where it cannot be told."""
        if self.host.processes > 1 and self.distributed is False:
            return None
        drawn: Any = self.sampler if self.batch_sampler is None else self.batch_sampler
        drawn = getattr(drawn, "batch_sampler", drawn)  # what a shard is of
        if isinstance(drawn, BatchSampler):
            drawn = getattr(drawn, "sampler", None)
        elif self.batch_sampler is not None:
            return None
        if isinstance(self.dataset, IterableDataset):
            drawn = self.dataset
        return len(drawn) if hasattr(drawn, "__len__") else None

    # ------------------------------------------------------------------------------------------------ sizes
    @property
    def _step(self) -> int:
        """Samples of a step over all ranks, in an order of ours."""
        assert self._mine is not None
        return (self.batch_size or 1) * self._mine.num_replicas

    @property
    def total_batch_size(self) -> int | None:
        """Samples of a step over all ranks; None where a batch sampler of the user's decides."""
        if self._mine is not None:
            return self._step
        drawn: Any = self.sampler if self.batch_sampler is None else self.batch_sampler
        each: int | None = getattr(drawn, "batch_size", 1 if self.batch_sampler is None else None)
        whole = each is None or getattr(drawn, "split_batches", True)  # only shards have that
        return each if whole or each is None else each * int(drawn.num_processes)

    @property
    def total_dataset_length(self) -> int:
        """Samples of the dataset."""
        return len(self.dataset)  # type: ignore[arg-type]  # of a stream without a length, torch's raises as well


class _Batches(BatchSampler):
    """torch's, with what Accelerate and Trainer ask batch samplers for."""

    @property
    def even_batches(self) -> bool:
        """True: ranks have equally many samples."""
        return True

    @even_batches.setter
    def even_batches(self, even: bool) -> None:
        if not even:
            raise uneven()

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is this epoch."""
        cast("FeedSampler", self.sampler).set_epoch(epoch)


def uneven() -> UsageError:
    """What even_batches=False meets."""
    msg = "even_batches=False asks for ranks with unequal batches, and fastfeed's ranks have equally many samples"
    return UsageError(msg, hint="Leave it out: gather_for_metrics drops the padding, and loader.valid tells it.")


class _Pass(Iterator[Any]):
    """One pass over a prepared loader.

    Args:
        loader: It.
        batches: Its pass.
        left_out: Batches that are read and not given.
    """

    def __init__(self, loader: PreparedLoader, batches: Iterator[Any], left_out: int) -> None:
        self._loader, self._batches, self._number, self._left_out = loader, batches, loader.passes, left_out
        self._count, self._remainder = loader.pass_facts()
        self._given, self._begun = 0, False
        self._ahead: list[Any] = []

    def __next__(self) -> Any:  # noqa: ANN401 - a batch
        if not self._begun:
            self._begin()
        try:
            batch = self._take()
        except StopIteration:
            self.close()
            raise
        return self._loader.host.move(batch)

    def _begin(self) -> None:
        self._begun, loader = True, self._loader
        loader.end_of_dataloader, loader.remainder = False, self._remainder
        loader.host.begin(loader)
        for _ in range(self._left_out):
            next(self._batches, None)

    def _take(self) -> Any:  # noqa: ANN401 - a batch
        """The next batch. Whether it is the last is known by the count, or by having asked for the one after it."""
        loader = self._loader
        if self._count is not None:
            self._given += 1  # one that fails counts as well
            loader.end_of_dataloader = self._given >= self._count
            return next(self._batches)
        if not self._ahead and not loader.end_of_dataloader:
            self._ahead.append(next(self._batches))
        if not self._ahead:
            raise StopIteration
        found = next(self._batches, _END)  # what it raises comes one batch early, and loses none
        if found is _END:
            loader.end_of_dataloader = True
        else:
            self._ahead.append(found)
        return self._ahead.pop(0)

    def close(self) -> None:
        """The books know no more of it."""
        if self._begun and self._loader.passes == self._number:
            self._loader.host.end(self._loader)
        self._begun = False

    def __del__(self) -> None:
        if getattr(self, "_begun", False):
            self.close()
