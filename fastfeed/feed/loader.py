"""fastfeed.DataLoader: torch's DataLoader with one import changed."""

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import Dataset, IterableDataset, Sampler
from torch.utils.data.distributed import DistributedSampler

from fastfeed.errors import UsageError
from fastfeed.feed.engine import Engine, EpochIterator, InnerOptions
from fastfeed.feed.faults import ErrorCaps, Replacement, prove_policy
from fastfeed.feed.fetch import FetchRules



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
        num_workers: Processes; left out, it is decided. 0 is 0.
        collate_fn: From a list of samples to a batch.
        pin_memory: Copy batches into pinned memory; left out, it is decided.
        drop_last: Leave out the last batch if it is not full.
        timeout: Seconds after which a missing batch is an error; 0 waits.
        worker_init_fn: Called in each worker with its number.
        multiprocessing_context: A start method or context.
        generator: What random numbers are drawn from.
        prefetch_factor: Batches a worker fetches ahead; left out, it is decided.
        persistent_workers: Keep workers between epochs; left out, it is decided for our own datasets.
        pin_memory_device: As torch's.
        in_order: False hands batches out as they come.
        seed: Fixes order and random numbers of all epochs; sample mode.
        rng: "torch" or "sample": which mode; left out, it follows from num_workers and seed.
        on_error: "raise" (default), "skip" or "replace": what a sample does that cannot be fetched.
        force_on_error: Let on_error skip or replace also where nothing is shuffled.
        error_caps: How many faults on_error tolerates.
        hang_seconds: After how long without a batch a worker's stack is logged; 0 never does.

    Raises:
        ValueError: As torch's; UsageError, which is one, for options of ours.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - torch's signature, then ours
        self,
        dataset: Dataset[Any],
        batch_size: int | None = 1,
        shuffle: bool | None = None,  # noqa: FBT001 - torch's
        sampler: Sampler[Any] | Iterable[Any] | None = None,
        batch_sampler: Sampler[Sequence[Any]] | Iterable[Sequence[Any]] | None = None,
        num_workers: int | None = None,
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
        on_error: str = "raise",
        force_on_error: bool = False,
        error_caps: ErrorCaps | None = None,
        hang_seconds: float = 30.0,
    ) -> None:
        if rng not in {None, "torch", "sample"}:
            msg = "rng is 'torch' or 'sample'"
            raise UsageError(msg, got=repr(rng))
        prove_policy(on_error, shuffles=bool(shuffle) or sampler is not None or batch_sampler is not None, forced=force_on_error)
        self.rng = rng or ("sample" if num_workers is None or seed is not None else "torch")
        self.seed, self.hang_seconds = seed, hang_seconds
        self.on_error, self.force_on_error, self.error_caps = on_error, force_on_error, error_caps
        workers = 0 if num_workers is None else num_workers
        extra: dict[str, Any] = {"in_order": in_order} if "in_order" in TorchDataLoader.__init__.__annotations__ else {}
        super().__init__(
            dataset, batch_size, shuffle, sampler, batch_sampler, workers, collate_fn, bool(pin_memory), drop_last, timeout,
            worker_init_fn, multiprocessing_context, generator, prefetch_factor=prefetch_factor,
            persistent_workers=bool(persistent_workers), pin_memory_device=pin_memory_device, **extra,
        )  # fmt: skip
        if not extra:
            self.in_order = in_order
        self.epoch = -1
        """The epoch that is being read; -1 before the first."""
        self._engine: Engine | None = None

    def __iter__(self) -> Any:  # noqa: ANN401 - torch's iterator, or ours
        """Begin an epoch."""
        if isinstance(self.dataset, IterableDataset):
            return super().__iter__()
        self.epoch += 1
        if self._engine is None:
            self._engine = self._new_engine()
        engine, generator = self._engine, self.generator
        engine.order.epoch = self.epoch
        if self.rng == "sample":
            base = self.seed if self.seed is not None else _drawn(self.generator)
            engine.order.base, generator = base, torch.Generator().manual_seed(base & 0x7FFFFFFFFFFFFFFF)
        options = InnerOptions(
            num_workers=self.num_workers, prefetch_factor=self.prefetch_factor, pin_memory=self.pin_memory,
            timeout=self.timeout, worker_init_fn=self.worker_init_fn, multiprocessing_context=self.multiprocessing_context,
            persistent_workers=self.persistent_workers, in_order=self.in_order and self.rng == "torch", pin_memory_device=self.pin_memory_device,
        )  # fmt: skip
        return engine.epoch(options, generator)

    def _new_engine(self) -> Engine:
        size = len(self.dataset) if self.on_error == "replace" else 0  # type: ignore[arg-type]
        rules = FetchRules(
            batched=self._auto_collation, collate=self.collate_fn, on_error=self.on_error,
            replace=Replacement(size, self.seed or 0) if size else None,
        )  # fmt: skip
        caps = self.error_caps or ErrorCaps()
        return Engine(self.dataset, rules, self._index_sampler, hang_seconds=self.hang_seconds, caps=caps)


def _drawn(generator: torch.Generator | None) -> int:
    """A base seed, drawn as torch's loader draws one."""
    return int(torch.empty((), dtype=torch.int64).random_(generator=generator).item())


__all__ = ["DataLoader", "DistributedSampler", "EpochIterator", "warnings"]
