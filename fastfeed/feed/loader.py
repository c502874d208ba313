"""fastfeed.DataLoader: torch's DataLoader with one import changed."""

import logging
import operator
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, cast

import torch
import torch.distributed as dist
from torch.utils.data import BatchSampler, Dataset, IterableDataset, IterDataPipe, Sampler
from torch.utils.data import DataLoader as TorchDataLoader

from fastfeed.errors import UsageError
from fastfeed.feed.autotune import Autotune, tuned
from fastfeed.feed.dataset import PackedDataset
from fastfeed.feed.engine import Draw, Engine, EpochIterator, Handed
from fastfeed.feed.faults import ErrorCaps, Replacement, pool_of, prove_policy
from fastfeed.feed.fetch import FetchRules
from fastfeed.feed.generators import stored_generators
from fastfeed.feed.inner import HAS_IN_ORDER, InnerOptions, in_order_option
from fastfeed.feed.naming import indices_text, sample_id
from fastfeed.feed.order import FeedSampler, OrderSampler
from fastfeed.feed.planning import plan_of, raise_descriptors, request_of
from fastfeed.feed.ranks import Distributed
from fastfeed.feed.streams import stream_loader

_STATE_VERSION = 1
LOG = logging.getLogger("fastfeed.loader")


class Indexed(NamedTuple):
    """A batch with what it is made of: what a loader with_index gives."""

    batch: Any
    index: torch.Tensor  # type: ignore[assignment]
    """Positions in the dataset; int64, shape (samples,). With on_error skip or replace those that were asked for."""
    key: list[Any] | None
    """Keys of the samples, where the dataset knows them."""
    valid: torch.Tensor
    """False for a sample that is padding (distributed="exact"); bool, shape (samples,)."""


class DataLoader(TorchDataLoader[Any]):
    """A torch DataLoader: its arguments, their order, meaning, errors and attributes; what is left out is decided.

    Two modes of random numbers. *Torch mode*, where num_workers is given and neither seed nor rng asks for more: order,
    base seed, worker seeds and batches are those of torch.utils.data.DataLoader, number for number. *Sample mode*, where
    workers are left to us or seed= is given: torch, numpy and random are seeded for each sample from (base, epoch, index),
    so results do not depend on how many workers there are, how they start, or where a run was resumed.

    Args:
        dataset: Any torch dataset.
        batch_size: Samples a batch; None for no batching.
        shuffle: Draw in random order.
        sampler: Draws indices.
        batch_sampler: Draws lists of indices.
        num_workers: Processes; left out, it is decided, and corrected while training runs. 0 is 0.
        collate_fn: From a list of samples to a batch.
        pin_memory: Copy batches into pinned memory; left out, it is decided.
        drop_last: Leave out the last batch if it is not full; with distributed also what does not go round the ranks.
        timeout: Seconds after which a missing batch is an error; 0 waits.
        worker_init_fn: Called in each worker with its number.
        multiprocessing_context: A start method or context.
        generator: What random numbers are drawn from.
        prefetch_factor: Batches a worker fetches ahead; left out, it is decided.
        persistent_workers: Keep workers between epochs; left out, it is decided for our own datasets.
        pin_memory_device: As torch's.
        in_order: False hands batches out as they come.
        seed: Fixes order and random numbers of all epochs; sample mode, and resumable.
        rng: "torch" or "sample": which mode; left out, it follows from num_workers and seed.
        distributed: True gives each rank of torch.distributed its part; "exact" as well, each sample counting once (see
            valid); a process group, or (rank, world); False says that every rank shall read everything. Left out, nothing
            is sharded, as in torch, with a warning where there are several ranks.
        shuffle_mode: "full", or "block": sequential reading for disks and network file systems (feed/block.py).
        on_error: "raise" (default), "skip" or "replace": what a sample does that cannot be fetched.
        force_on_error: Let on_error skip or replace also where nothing is shuffled.
        error_caps: How many faults on_error tolerates.
        with_index: Give Indexed instead of bare batches.
        autotune: Whether num_workers is a decision of the loader's. It sets this itself, so that a loader that a framework
            makes again from its attributes decides again.
        hang_seconds: After how long without a batch a worker's stack is logged; 0 never does.

    Raises:
        ValueError: As torch's; UsageError, which is one, for options of ours.
    """

    _autotune: Autotune | None = None
    """From the first pass on, where there is something to tune."""

    def __init__(  # noqa: PLR0913, PLR0917 - torch's signature, then ours
        self,
        dataset: Dataset[Any],
        batch_size: int | None = 1,
        shuffle: bool | None = None,  # noqa: FBT001 - torch's
        sampler: Sampler[Any] | Iterable[Any] | None = None,
        batch_sampler: Sampler[Sequence[Any]] | Iterable[Sequence[Any]] | None = None,
        num_workers: "int | Literal['auto'] | None" = None,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool | None = None,  # noqa: FBT001 - torch's
        drop_last: bool = False,  # noqa: FBT001, FBT002 - torch's
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        multiprocessing_context: Any = None,  # noqa: ANN401 - torch's
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool | None = None,
        pin_memory_device: str = "",
        in_order: bool = True,
        seed: int | None = None,
        rng: str | None = None,
        distributed: Distributed = None,
        shuffle_mode: str = "full",
        on_error: str = "raise",
        force_on_error: bool = False,
        error_caps: ErrorCaps | None = None,
        with_index: bool = False,
        hang_seconds: float = 30.0,
        autotune: bool | None = None,
    ) -> None:
        if rng not in {None, "torch", "sample"}:
            msg = "rng is 'torch' or 'sample'"
            raise UsageError(msg, got=repr(rng))
        _prove_stream(dataset, {"rng": rng == "sample", "on_error": on_error != "raise", "with_index": with_index})
        prove_policy(
            on_error, shuffles=bool(shuffle) or sampler is not None or batch_sampler is not None, forced=force_on_error
        )
        self.autotune = num_workers is None or num_workers == "auto" or bool(autotune)
        asked = None if self.autotune else cast("int", num_workers)
        self.rng = rng or ("sample" if asked is None or seed is not None else "torch")
        self.seed, self.distributed, self.shuffle_mode = seed, distributed, shuffle_mode
        self.on_error, self.force_on_error, self.error_caps = on_error, force_on_error, error_caps
        self.with_index, self.hang_seconds = with_index, hang_seconds
        ours = self._order_of(dataset, shuffle=bool(shuffle), drop_last=drop_last, given=(sampler, batch_sampler))
        request = request_of(dataset, batch_size, asked, {
            "prefetch_factor": prefetch_factor, "pin_memory": pin_memory, "persistent_workers": persistent_workers,
            "multiprocessing_context": multiprocessing_context,
        })  # fmt: skip
        own, numbers = isinstance(dataset, PackedDataset), self.rng == "torch"
        self.plan = plan_of(dataset, request, own=own, block_order=shuffle_mode == "block", torch_numbers=numbers)
        """What was decided, and why: print it."""
        workers = self.plan.num_workers if asked is None else asked
        if asked is None and not workers:
            prefetch_factor = multiprocessing_context = None
            persistent_workers = False
        ahead = self.plan.prefetch_factor if prefetch_factor is None and workers else prefetch_factor
        super().__init__(
            dataset, batch_size, None if ours is not None else shuffle, ours if ours is not None else sampler,
            batch_sampler,  # type: ignore[arg-type]  # torch's annotation says lists, its code takes any batch
            workers, collate_fn, self.plan.pin_memory if pin_memory is None else pin_memory, drop_last, timeout, worker_init_fn,
            multiprocessing_context, generator, prefetch_factor=ahead,
            persistent_workers=self.plan.persistent_workers if persistent_workers is None else persistent_workers,
            pin_memory_device=pin_memory_device, **in_order_option(in_order=in_order),
        )  # fmt: skip
        if not HAS_IN_ORDER:
            self.in_order = in_order
        self._epoch = -1
        self._engine: Engine | None = None
        self._handed: Handed | None = None
        """Of the pass that was begun last, unless a position was loaded since."""
        self._told = self._length_asked = False
        self._streaming: TorchDataLoader[Any] | None = None

    def _order_of(self, dataset: Any, *, shuffle: bool, drop_last: bool, given: tuple[Any, Any]) -> OrderSampler | None:  # noqa: ANN401
        """Our sampler, where something was asked for that only it can do."""
        sharded = self.distributed is not None and self.distributed is not False
        asked = {"seed": self.seed is not None, "distributed": sharded, "shuffle_mode": self.shuffle_mode != "full"}
        wanted = [f"{name}={getattr(self, name)!r}" for name, is_asked in asked.items() if is_asked]
        if not wanted or any(map(_drawn_by_us, given)):
            return None
        streams = isinstance(dataset, IterableDataset)
        if streams or any(part is not None for part in given):
            if not streams and not sharded and self.shuffle_mode == "full":
                return None  # a sampler of one's own with sample mode's random numbers
            what = "an IterableDataset" if streams else "a sampler or batch_sampler of one's own"
            msg = f"{', '.join(wanted)} needs the loader's own order, and {what} has another"
            raise UsageError(msg, hint="Leave sampler and batch_sampler out, or leave these out.")
        if self.shuffle_mode not in {"full", "block"}:
            msg = "shuffle_mode is 'full' or 'block'"
            raise UsageError(msg, got=repr(self.shuffle_mode))
        if self.shuffle_mode == "block" and not shuffle:
            msg = "shuffle_mode='block' says how to shuffle, and shuffle is not asked for"
            raise UsageError(msg, expected="shuffle=True", got="shuffle=False")
        labels = getattr(dataset, "targets", None) if self.shuffle_mode == "block" else None
        options: dict[str, Any] = {"shuffle": shuffle, "seed": self.seed or 0, "mode": self.shuffle_mode, "labels": labels}
        if self.distributed is None:
            return OrderSampler(dataset, **options)
        return FeedSampler(dataset, distributed=self.distributed, drop_last=drop_last, **options)

    # ------------------------------------------------------------------------------------------------ epochs
    def __iter__(self) -> Any:  # noqa: ANN401 - torch's iterator, or ours
        """Begin an epoch."""
        if isinstance(self.dataset, IterDataPipe):
            return super().__iter__()
        if self.num_workers and not self.plan.decided:
            self.check_worker_number_rationality()  # as torch does each time
        if isinstance(self.dataset, IterableDataset):
            return iter(self._stream())
        if not self._told:
            self._told = True
            self._tell()
            raise_descriptors(self.plan)
            for line in self.plan.costs:
                LOG.info("%s", line)
        self._epoch += 1
        own, epoch = self._own, self._epoch
        if self._engine is None:
            batches: Any = self.sampler if self.batch_sampler is None else self.batch_sampler
            self._engine = Engine(self.dataset, batches, once=own is not None or self.rng == "sample", early=own is not None)
        draw = self._draw(own, epoch)
        self._autotune = tuned(self, self._autotune)
        listeners = [] if self._autotune is None else self._autotune.begin(self)
        begun = self._engine.epoch(self._inner_options(), self._rules(), draw, self.error_caps or ErrorCaps(), listeners)
        for listener in listeners:
            listener.follow(begun)
        self._handed = begun.handed  # not the pass itself: when its user drops it, its workers shall end
        return self._indexed(begun) if self.with_index else begun

    def _draw(self, own: OrderSampler | None, epoch: int) -> Draw:
        # The loader itself is not kept by its passes: `for batch in DataLoader(...)` may be all that knows of it.
        epoch_of = (lambda: epoch) if own is None else (lambda: own.share.epoch)
        if self.rng == "torch":
            return Draw(epoch_of=epoch_of, generator=self.generator)
        base = self.seed if self.seed is not None else 0 if own is not None else _drawn(self.generator)
        return Draw(epoch_of=epoch_of, generator=torch.Generator().manual_seed(base & 0x7FFFFFFFFFFFFFFF), base=base)

    def _stream(self) -> TorchDataLoader[Any]:
        """The loader of an IterableDataset, as torch's with what it would hang at told instead (feed/streams.py)."""
        if self._streaming is None or not self.persistent_workers:
            self._streaming = stream_loader(self)
        if self._length_asked:
            len(self._streaming)  # torch warns of a wrong length where it was asked for
        return self._streaming

    def __len__(self) -> int:
        length = super().__len__()
        self._length_asked = True
        return length

    def _inner_options(self) -> InnerOptions:
        return InnerOptions(
            num_workers=self.num_workers, prefetch_factor=self.prefetch_factor, pin_memory=self.pin_memory,
            timeout=self.timeout if self.num_workers or not self.plan.decided else 0,
            worker_init_fn=self.worker_init_fn, multiprocessing_context=self.multiprocessing_context,
            persistent_workers=self.persistent_workers and self.num_workers > 0,
            in_order=self.in_order and self.rng == "torch", sorts=self.in_order,
            pin_memory_device=self.pin_memory_device, hang_seconds=self.hang_seconds,
        )  # fmt: skip

    def _rules(self) -> FetchRules:
        replace = None
        if self.on_error == "replace":
            sampler = self.sampler if self.batch_sampler is None else self.batch_sampler
            pool = pool_of(sampler, len(self.dataset), forced=self.force_on_error)  # type: ignore[arg-type]
            replace = Replacement(pool, self.seed or 0)
        batched = self.batch_sampler is not None
        return FetchRules(batched=batched, collate=self.collate_fn, on_error=self.on_error, replace=replace)

    def __getstate__(self) -> dict[str, Any]:
        """Without the workers that are kept, as torch's would be if it could be pickled with them."""
        return {**self.__dict__, "_engine": None, "_streaming": None, "_autotune": None}

    @property
    def tuning(self) -> tuple[str, ...]:
        """How the number of workers was corrected while training ran: what was measured, tried and decided, in sentences."""
        return () if self._autotune is None else self._autotune.told

    @property
    def _own(self) -> OrderSampler | None:
        """The order of ours that is drawn from: the sampler, or what a batch sampler draws from."""
        given = self.sampler if self.batch_sampler is None else getattr(self.batch_sampler, "sampler", None)
        return given if isinstance(given, OrderSampler) else None

    @property
    def epoch(self) -> int:
        """The epoch that is being read, or was read last; -1 before the first."""
        own = self._own
        return self._epoch if own is None else own.share.epoch

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is this epoch; without a call, each is the next one."""
        self._epoch = epoch - 1
        if hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(epoch)

    def _tell(self) -> None:
        """Warnings about what the first epoch begins with, once."""
        ranks = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
        known = self.batch_sampler is None or type(self.batch_sampler) is BatchSampler  # others may give ranks their parts
        sampler = self.sampler if self.batch_sampler is None else getattr(self.batch_sampler, "sampler", None)
        whole = type(sampler) is OrderSampler or type(sampler).__module__ == "torch.utils.data.sampler"
        if ranks > 1 and self.distributed is None and known and whole:
            warnings.warn(
                f"torch.distributed has {ranks} ranks, and each of them will read every sample: distributed=True gives "
                "each its part, distributed=False says that it is meant.",
                stacklevel=3,
            )
        found = stored_generators(self.dataset) if self.num_workers > 0 else []
        if found:
            warnings.warn(
                f"the dataset keeps random generators of its own ({', '.join(found[:3])}): each worker has a copy that gives "
                "the same numbers, and each epoch begins with the same state. Draw from numpy.random, torch or random "
                "instead: they are seeded for each worker" + (" and each sample." if self.rng == "sample" else "."),
                stacklevel=3,
            )

    # ------------------------------------------------------------------------------------------------ index and validity
    @property
    def valid(self) -> torch.Tensor:
        """Which samples of the batch that was handed out last are no padding; bool, shape (samples,). See distributed."""
        own, handed = self._own, self._handed
        if own is None or handed is None or not handed.batches:
            msg = "valid is of the last batch of a loader with an order of its own (seed= or distributed=)"
            raise UsageError(msg)
        return torch.from_numpy(own.share.valid(handed.start, handed.start + handed.count))

    def _indexed(self, batches: EpochIterator) -> Iterator[Indexed]:
        handed = batches.handed
        for batch in batches:
            indices = list(handed.indices) if self.batch_sampler is not None else [handed.indices]
            found = [sample_id(self.dataset, index) for index in indices]
            keys = [name.key for name in found if name is not None]
            valid = self.valid if self._own is not None else torch.ones(len(indices), dtype=torch.bool)
            yield Indexed(batch, _positions(indices), keys if len(keys) == len(indices) else None, valid)

    # ------------------------------------------------------------------------------------------------ resumption
    def state_dict(self) -> dict[str, Any]:
        """Where the epoch is, by the batches that were handed out: a few numbers, the same on every rank.

        Raises:
            UsageError: The loader has no order of its own.
        """
        own, handed = self._resumable(), self._handed
        if not self.in_order and self.num_workers:
            msg = "with in_order=False the batches that were handed out are no beginning of the order: there is no position"
            raise UsageError(msg, hint="Leave in_order out.")
        if handed is None:
            return {"version": _STATE_VERSION, "order": dict(own.state(0))}
        left, batch = own.share.length - handed.samples, self.batch_sampler
        ends = getattr(batch, "drop_last", False) and left < getattr(batch, "batch_size", 1)  # what is left makes no batch
        return {"version": _STATE_VERSION, "order": dict(own.state(handed.samples + left if ends else handed.samples))}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """The next iteration goes on behind the last batch that was handed out; workers and ranks may be others by then.

        Raises:
            UsageError: The loader has no order of its own, or the state is of another one.
        """
        own = self._resumable()
        if state_dict.get("version") != _STATE_VERSION or not isinstance(state_dict.get("order"), Mapping):
            msg = "this is no state of a fastfeed.DataLoader"
            raise UsageError(msg, expected=f"version {_STATE_VERSION}", got=repr(state_dict.get("version")))
        own.load(state_dict["order"])
        self._handed = None

    def _resumable(self) -> OrderSampler:
        own = self._own
        if own is None:
            msg = "only an order of the loader's own can be gone on with"
            raise UsageError(msg, hint="Give seed= (or distributed=), and no sampler or batch_sampler.")
        return own


def _prove_stream(dataset: object, asked: Mapping[str, bool]) -> None:
    """Whether options about single samples can be kept.

    Raises:
        UsageError: An IterableDataset, whose samples have no index.
    """
    wanted = [name for name, is_asked in asked.items() if is_asked]
    if wanted and isinstance(dataset, IterableDataset):
        msg = f"{' and '.join(wanted)} is about samples by index, and those of an IterableDataset have none"
        raise UsageError(msg, hint="Leave it out, or give the dataset __len__ and __getitem__.")


def _drawn_by_us(given: Any) -> bool:  # noqa: ANN401 - a sampler or batch sampler
    """Whether an order of ours decides already: a loader that a framework makes again brings it along."""
    return isinstance(given, OrderSampler) or isinstance(getattr(given, "sampler", None), OrderSampler)


def _positions(indices: list[Any]) -> torch.Tensor:
    """Indices as an int64 tensor.

    Raises:
        UsageError: Something else than whole numbers.
    """
    try:
        return torch.tensor([operator.index(index) for index in indices], dtype=torch.int64)
    except TypeError as error:
        msg = "with_index gives whole numbers, and the sampler draws something else"
        raise UsageError(msg, got=indices_text(indices)) from error


def _drawn(generator: torch.Generator | None) -> int:
    """A base seed, drawn as torch's loader draws one."""
    return int(torch.empty((), dtype=torch.int64).random_(generator=generator).item())
