"""fastfeed.DataLoader: torch's DataLoader with one import changed."""

import copy
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from types import GenericAlias
from typing import Any, Literal

import torch
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import Dataset, IterableDataset, IterDataPipe, Sampler

from fastfeed.feed.autotune import Autotune, Ear, tuned
from fastfeed.feed.cacheasked import fill_behind, use_cache
from fastfeed.feed.caching import CacheWish
from fastfeed.feed.collecting import Collector
from fastfeed.feed.dataset import PackedDataset
from fastfeed.feed.decodedby import Batching, Decode
from fastfeed.feed.device import Device, DeviceSide, side_of
from fastfeed.feed.drawing import Asked, EpochWatch, drawn_from, sampler_of, set_epoch
from fastfeed.feed.engine import Draw, Engine
from fastfeed.feed.faults import ErrorCaps, Replacement, pool_of, prove_policy
from fastfeed.feed.fetch import FetchRules
from fastfeed.feed.indexed import IndexedPass
from fastfeed.feed.inner import InnerOptions, in_order_option
from fastfeed.feed.inwords import loader_text
from fastfeed.feed.judged import Judges
from fastfeed.feed.planning import PlannedLoader, planner_of, raise_descriptors, request_of
from fastfeed.feed.position import RESUMPTION, Position, PositionedLoader
from fastfeed.feed.ranks import Distributed
from fastfeed.feed.receiving import Receiver
from fastfeed.feed.seeds import drawn_base
from fastfeed.feed.skipping import Skip
from fastfeed.feed.stats import LoaderStats, told
from fastfeed.feed.streaming import Streaming
from fastfeed.feed.swapped import asking, notice_swap
from fastfeed.feed.switches import plain_plan, prove_batches, prove_rng, prove_stream, switches
from fastfeed.feed.threads import WorkerThreads
from fastfeed.feed.warned import tell_of_generators, tell_of_ranks

LOG = logging.getLogger("fastfeed.loader")


class DataLoader(TorchDataLoader[Any], PlannedLoader, PositionedLoader):  # torch's first: laid out alike (feed/standin.py)
    """A torch DataLoader: its arguments, their order, meaning, errors and attributes; what is left out is decided.

    Two modes of random numbers. *Torch mode*, where num_workers is given and neither seed nor rng asks for more: order,
    base seed, worker seeds and batches are those of torch.utils.data.DataLoader, number for number. *Sample mode*, where
    workers are left to us or seed= is given: torch, numpy and random are seeded for each sample from (base, epoch, index),
    so results do not depend on how many workers there are, how they start, or where a run was resumed.

    Resumption: where the order is the loader's own (seed= or distributed=), it has state_dict(), which gives the position
    behind the last batch that was handed out, as a dict of a few numbers, the same on every rank; and
    load_state_dict(state), which makes the next iteration go on from there, with other workers, ranks or batch sizes if
    you like. Other loaders do not have these two (hasattr is False, so frameworks leave them alone); a call says why.

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
        skip: A skip list (JSONL file): its samples are left out before anything is sharded. It is matched here, by source,
            then key, by index only with the dataset's digest; indices stay those of the whole dataset (feed/leftout.py).
        on_error: "raise" (default), "skip" or "replace": what a sample does that cannot be fetched.
        force_on_error: Let on_error skip or replace also where nothing is shuffled.
        error_caps: How many faults on_error tolerates.
        with_index: Give Indexed instead of bare batches.
        autotune: Whether num_workers is a decision of the loader's. It sets this itself, so that a loader that a framework
            makes again from its attributes decides again.
        hang_seconds: After how long without a batch a worker's stack is logged; 0 never does.
        batch_transform: Called with each batch behind collate_fn, where batches are made: MixUp, CutMix. In sample mode its
            random numbers do not depend on the workers either.
        channels_last: Batches of images (tensors of four axes) lie in memory as torch.channels_last, as models on GPUs like it.
        record: Take the times that stats() tells, at less than 1 % of the time of batches of a few milliseconds or more.
        audit: Judge samples by these times at the end of each epoch, log which are slow, and write a report (JSONL) to this
            file; True is fastfeed-audit.jsonl. The command fastfeed audit looks closer.
        device: Where batches come: "cuda", "cuda:1", a torch.device. They are moved ahead of their turn on a side stream, and
            images that a packed dataset writes whole cross as bytes (feed/device.py). "cuda" is LOCAL_RANK's device where that
            is set, else the current one; without CUDA batches stay on the CPU, with a warning.
        device_decode: What decodes images: "cpu", the workers; "dali", NVIDIA DALI on the device, or by its own code for CPUs
            with device="cpu"; "auto", DALI where it can and is there; fastfeed.DaliOptions, DALI with settings.
            Order, crops and flips are the same with all; pixels of a GPU's are 1.2 levels off on average (feed/dalioptions.py).
        cache: Have the dataset's bytes kept between epochs, for all ranks and workers on this machine: as fastfeed.open has it.
        cache_dir: Where.

    Raises:
        ValueError: As torch's; UsageError, which is one, for options of ours.
    """

    _device_side: DeviceSide | None = None
    _engine: Engine | None = None
    _streaming: Streaming | None = None
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
        skip: Skip | None = None,
        on_error: str = "raise",
        force_on_error: bool = False,
        error_caps: ErrorCaps | None = None,
        with_index: bool = False,
        hang_seconds: float = 30.0,
        autotune: bool | None = None,
        record: bool = True,
        audit: "bool | str | os.PathLike[str]" = False,
        batch_transform: Callable[[Any], Any] | None = None,
        channels_last: bool = False,
        device: Device = None,
        device_decode: Decode = "cpu",
        cache: CacheWish = None,
        cache_dir: "str | os.PathLike[str] | None" = None,
    ) -> None:
        prove_rng(rng)
        batching = Batching(batch_size is not None or batch_sampler is not None, collate_fn, batch_transform, channels_last)
        prove_batches(batch_transform, channels_last=channels_last, batched=batching.batched)
        of_samples = {"rng": rng == "sample", "on_error": on_error != "raise", "with_index": with_index, "audit": bool(audit)}
        prove_stream(dataset, of_samples)
        self._device_side = side_of(device, device_decode, dataset, batching)
        prove_policy(
            on_error, shuffles=bool(shuffle) or sampler is not None or batch_sampler is not None, forced=force_on_error
        )
        switch = switches({
            "on_error": on_error != "raise", "with_index": with_index, "rng='sample'": rng == "sample",
            "distributed='exact'": distributed == "exact", "batch_transform": batch_transform is not None,
            "channels_last": channels_last, "device": device is not None,
        })  # fmt: skip
        given, asked = switch.workers(num_workers, autotune=autotune)
        self.disabled, self.autotune = switch.disabled, asked is None
        self.rng = switch.rng(rng, decided=self.autotune and not isinstance(dataset, IterableDataset), seeded=seed is not None)
        self.seed, self.distributed, self.shuffle_mode = seed, distributed, shuffle_mode
        self.on_error, self.force_on_error, self.error_caps = on_error, force_on_error, error_caps
        self.with_index, self.hang_seconds, self.skip, self.record = with_index, hang_seconds, skip, record
        self.batch_transform, self.channels_last, self.cache, self.cache_dir = batch_transform, channels_last, cache, cache_dir
        self.audit, self._judges, self.device, self.device_decode = audit, Judges(audit, record=record), device, device_decode
        use_cache(dataset, None if self.disabled else cache, None if self.disabled else cache_dir)
        ours = sampler_of(dataset, Asked(
            sampler=sampler, batch_sampler=batch_sampler, shuffle=bool(shuffle), drop_last=drop_last, generator=generator,
            seed=seed, distributed=distributed, shuffle_mode=shuffle_mode, skip=skip,
        ))  # fmt: skip
        options = {
            "prefetch_factor": prefetch_factor, "pin_memory": pin_memory, "persistent_workers": persistent_workers,
            "multiprocessing_context": multiprocessing_context,
        }  # fmt: skip
        request = request_of(dataset, batch_size, given, options, moved=bool(self._device_side), override=switch.gives_way)
        self._planner = planner_of(
            dataset, request, own=isinstance(dataset, PackedDataset), block_order=shuffle_mode == "block",
            torch_numbers=self.rng == "torch",
        )  # fmt: skip
        self.plan = plain_plan(request) if self.disabled else self._planner.plan()
        workers, options = switch.settled(self.plan, asked, options)
        super().__init__(
            dataset, batch_size, None if ours is not None else shuffle, ours if ours is not None else sampler,
            batch_sampler,  # type: ignore[arg-type]  # torch's annotation says lists, its code takes any batch
            workers, collate_fn, drop_last=drop_last, timeout=timeout, worker_init_fn=worker_init_fn, generator=generator,
            pin_memory_device=pin_memory_device, **options, **in_order_option(in_order=in_order),
        )  # fmt: skip
        self.__dict__.setdefault("in_order", in_order)  # a torch that does not know it
        self._epoch, self._watch = -1, EpochWatch()
        self._collector, self._told, self._length_asked = Collector(), False, False
        self._position = None if self._own is None or self.disabled else Position(self._own, self.batch_sampler)
        self._show_position()

    # ------------------------------------------------------------------------------------------------ epochs
    def __iter__(self) -> Any:  # noqa: ANN401 - torch's iterator, or ours
        """Begin an epoch."""
        if self.disabled or isinstance(self.dataset, IterDataPipe):
            return super().__iter__()
        ears = self._prepare_workers()
        if isinstance(self.dataset, IterableDataset):
            stream = iter(self._stream())
            stream.collector = self._collector.begin() if self.record else None
            stream.conveyor = None if self._device_side is None else self._device_side.conveyor()
            return stream
        self._tell()
        fill_behind(self)
        self._epoch += 1
        self._watch.begin(drawn_from(self.sampler, self.batch_sampler), moves=self.rng == "sample")
        heard = [self._collector.begin(), *self._judges.begin(self.dataset)] if self.record else []
        caps = self.error_caps or ErrorCaps()
        receiver = Receiver if self._device_side is None else self._device_side.receiver
        begun = self._running().epoch(self._inner_options(), self._rules(), self._draw(), caps, [*heard, *ears], receiver)
        for ear in ears:
            ear.follow(begun)
        if self._position is not None:
            self._position.begin(begun)
        if not self.with_index:
            return begun
        valid = None if self._position is None else lambda: self.valid
        return IndexedPass(begun, self.dataset, batched=self.batch_sampler is not None, valid=valid)

    def _prepare_workers(self) -> list[Ear]:
        """Settle how many workers the next pass has and how their batches come; who hears of these, to correct the number."""
        self.look_for_obstacles()
        self.settle_pinning()
        self._autotune = tuned(self, self._autotune)
        ears = [] if self._autotune is None else self._autotune.begin(self)
        if self.num_workers and not self.plan.decided:
            self.check_worker_number_rationality()  # as torch does each time
        if self.num_workers or ears:
            self.open_passage(torch_numbers=self.rng == "torch")
        return ears

    def _tell(self) -> None:
        """What the user is told once, when the first pass begins."""
        if self._told:
            return
        self._told = True
        tell_of_ranks(self.distributed, self.sampler, self.batch_sampler)
        tell_of_generators(self.dataset if self.num_workers else None, each_sample=self.rng == "sample")
        raise_descriptors(self.plan)
        for line in self.plan.costs:
            LOG.info("%s", line)

    def stats(self, since: str = "start") -> LoaderStats:
        """Where the time of batches and samples went (feed/stats.py); constant memory. Print it, or see to_json().

        Args:
            since: "start" for all epochs so far, "epoch" for the one that was begun last.

        Raises:
            UsageError: Nothing is recorded (record=False, or a DataPipe), or since is something else.
        """
        return told(self._collector, self, since)

    def _draw(self) -> Draw:
        """What the next pass draws from. It keeps no loader: `for batch in DataLoader(...)` may be all that knows of it."""
        own, epoch, generator, base = self._own, self._epoch, self.generator, None
        if self.rng == "sample":
            base = self.seed if self.seed is not None else 0 if own is not None else drawn_base(self.generator)
            generator = torch.Generator().manual_seed(base & 0x7FFFFFFFFFFFFFFF)
        if own is None:
            return Draw(epoch_of=lambda: epoch, generator=generator, base=base, round_batches=self._round_batches())
        return Draw(epoch_of=lambda: own.share.epoch, generator=generator, base=base, moved=lambda: own.moved)

    def _running(self) -> Engine:
        """What makes the passes; kept, as persistent workers are.

        It may be another loader's: Lightning copies what was set on a loader in its hooks to the one that it makes from it.
        """
        batches: Any = self.sampler if self.batch_sampler is None else self.batch_sampler
        if self._engine is None or self._engine.batches is not batches:
            own = self._own is not None
            self._engine = Engine(self.dataset, batches, once=own or self.rng == "sample", early=own)
        return self._engine

    def _round_batches(self) -> int | None:
        """Batches of an epoch for a subclass whose one endless pass is read in such parts, as timm's and ultralytics'."""
        return len(self) if type(self).__len__ is not DataLoader.__len__ else None

    def _get_iterator(self) -> Any:  # noqa: ANN401 - as __iter__
        """Named by torch: begins a pass, for subclasses that have an __iter__ of their own (ultralytics' reset)."""
        return super()._get_iterator() if self.disabled or isinstance(self.dataset, IterDataPipe) else DataLoader.__iter__(self)

    __class_getitem__: Any = classmethod(GenericAlias)  # as torch's, DataLoader[int] is a type

    def _stream(self) -> Streaming:
        """The loader of an IterableDataset, as torch's with what it would hang at told instead (feed/streaming.py)."""
        if self._streaming is None or not self.persistent_workers:
            self._streaming = Streaming(self, self.hang_seconds, self._passage)
        if self._length_asked:
            len(self._streaming)  # torch warns of a wrong length where it was asked for
        return self._streaming

    def __len__(self) -> int:
        length = super().__len__()
        self._length_asked = True
        return length

    def __repr__(self) -> str:
        return loader_text(self)

    def _inner_options(self) -> InnerOptions:
        workers = 0 if self._alone else self.num_workers
        return InnerOptions(
            num_workers=workers, prefetch_factor=self.prefetch_factor, pin_memory=self.pin_memory,
            timeout=self.timeout if workers or not (self._alone or self._plan.decided) else 0,
            worker_init_fn=self.worker_init_fn, multiprocessing_context=self.multiprocessing_context,
            persistent_workers=self.persistent_workers and workers > 0,
            in_order=self.in_order and self.rng == "torch", sorts=self.in_order,
            pin_memory_device=self.pin_memory_device, hang_seconds=self.hang_seconds,
            threads=WorkerThreads(self._plan.threads_per_worker, exact=self.rng == "torch"),
        )  # fmt: skip

    def _rules(self) -> FetchRules:
        replace = None
        if self.on_error == "replace":
            sampler = self.sampler if self.batch_sampler is None else self.batch_sampler
            pool = pool_of(sampler, len(self.dataset), forced=self.force_on_error)  # type: ignore[arg-type]
            replace = Replacement(pool, self.seed or 0)
        return FetchRules(
            batched=self.batch_sampler is not None, collate=self.collate_fn, on_error=self.on_error, replace=replace,
            record=self.record, passage=self._passage, tuned=self._autotune is not None, batch_transform=self.batch_transform,
            channels_last=self.channels_last, raw=self._device_side is not None and self.batch_transform is None,
            encoded_bytes=0 if self._device_side is None else self._device_side.encoded_bytes,
        )  # fmt: skip

    @property
    def tuning(self) -> tuple[str, ...]:
        """How the number of workers was corrected while training ran: what was measured, tried and decided, in sentences."""
        return () if self._autotune is None else self._autotune.told

    @property
    def _is_accelerate_prepared(self) -> bool:
        """Asked by Accelerate just before it puts a plain loader in this one's place (feed/swapped.py)."""
        notice_swap(self._own, asking())
        return False

    @property
    def epoch(self) -> int:
        """The epoch that is being read, or was read last; -1 before the first."""
        own = self._own
        return self._epoch if own is None else own.share.epoch

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is this epoch; without a call, each is the next one."""
        self._epoch = epoch - 1
        self._watch.named()
        set_epoch(self.sampler, self.batch_sampler, epoch)

    # ------------------------------------------------------------------------------------------------ pickling
    def __getstate__(self) -> dict[str, Any]:
        """Without the workers that are kept, as torch's would be if it could be pickled with them."""
        running = dict.fromkeys(("_engine", "_streaming", "_passage", "_autotune"))
        state = {**self.__dict__, **running, "_collector": Collector(), "_position": copy.copy(self._position)}
        return {name: value for name, value in state.items() if name not in RESUMPTION}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._show_position()
