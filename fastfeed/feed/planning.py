"""What the planner of workers is told: the user's request, and what process, dataset and machine are."""

import logging
import multiprocessing
import resource
import sys
from collections.abc import Mapping
from dataclasses import replace
from multiprocessing.context import BaseContext
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch.utils.data import IterableDataset, TensorDataset

from fastfeed.feed.cachestats import cache_stats, filled_behind
from fastfeed.feed.ceilings import Option, SizingFacts, StartMethod, WorkerRequest
from fastfeed.feed.decode.whole import Tells
from fastfeed.feed.obstacles import against_sending, is_guarded, prove_is_not_starting, tensors_on
from fastfeed.feed.passage import Passage, can_start, passage_of
from fastfeed.feed.sizing import MOVED, WorkerPlan, plan_workers
from fastfeed.feed.splitting import behind_views
from fastfeed.machine import survey
from fastfeed.mounts import file_system
from fastfeed.units import format_size

LOG = logging.getLogger("fastfeed.loader")


def request_of(
    dataset: Any,  # noqa: ANN401
    batch_size: Any,  # noqa: ANN401
    workers: Any,  # noqa: ANN401
    given: Mapping[str, Any],
    *,
    moved: bool = False,
    override: frozenset[Option] = frozenset(),
) -> WorkerRequest:
    """What the user passed, for the planner. Values that torch refuses are left out: it says what is wrong with them.

    Args:
        dataset: Any dataset; its length is asked for.
        batch_size: As given.
        workers: As given; None where they are left to us.
        given: prefetch_factor, pin_memory, persistent_workers, multiprocessing_context: as given.
        moved: Whether we move batches onto a device.
        override: Options whose explicit values give way to the loader's decision.
    """
    size = None if isinstance(dataset, IterableDataset) else _length(dataset)
    batch = batch_size if isinstance(batch_size, int) and batch_size > 0 else 1
    ahead, method = given["prefetch_factor"], given["multiprocessing_context"]
    return WorkerRequest(
        num_workers=None if workers is None else int(workers) if isinstance(workers, int | np.integer) and workers >= 0 else 0,
        batches=None if size is None else -(-size // batch),
        pin_memory=given["pin_memory"],
        moved=moved,
        override=override,
        persistent_workers=given["persistent_workers"],
        prefetch_factor=ahead if isinstance(ahead, int) and ahead > 0 else None,
        multiprocessing_context=_start_method(method),
    )


def _start_method(given: Any) -> StartMethod | None:  # noqa: ANN401 - a name, a context, or what torch refuses
    name = given.get_start_method() if isinstance(given, BaseContext) else given
    return cast("StartMethod", name) if name in multiprocessing.get_all_start_methods() else None


def _length(dataset: Any) -> int | None:  # noqa: ANN401 - any dataset
    """How many samples; None where it does not tell, which torch allows with a sampler."""
    try:
        return len(dataset)
    except Exception:  # noqa: BLE001 - a plan can do without; who needs the length asks again, and raises
        return None


class Planner:
    """Decides workers, prefetching, sharing and pinning of one loader: before the start, and again when more is known.

    Args:
        request: What the user passed.
        facts: What is known before the start.
    """

    def __init__(self, request: WorkerRequest, facts: SizingFacts) -> None:
        self.request, self.facts = request, facts
        self.pins = self.plan().pin_memory
        """Whether memory is pinned, if CUDA is in use."""

    def plan(self) -> WorkerPlan:
        """The decision by what is known."""
        return plan_workers(self.request, self.facts)

    def learn(self, *, batch_bytes: int, batch_tensors: int, worker_bytes: int | None = None) -> bool:
        """What the first batch, or the first worker, has shown; whether the plan has to be made anew.

        Args:
            batch_bytes: Of a collated batch.
            batch_tensors: Tensors in it.
            worker_bytes: Memory of its own that a worker was seen to take; None where nobody looked.
        """
        worker = self.facts.worker_bytes if worker_bytes is None else worker_bytes
        before = self.facts
        self.facts = replace(before, batch_bytes=batch_bytes, batch_tensors=batch_tensors, worker_bytes=worker)
        return self.facts != before

    def look(self, dataset: Any, needed: Mapping[str, Any]) -> bool:  # noqa: ANN401 - any dataset
        """Look at what workers would need, before any is started; whether the plan has to be made anew.

        Args:
            dataset: The user's.
            needed: What a worker is given besides, by name: collate_fn, worker_init_fn.
        """
        before = self.facts
        found = replace(_as_workers_start(before, self.request), cuda_tensors=tensors_on(dataset, "cuda"))
        if (self.request.multiprocessing_context or found.start_method) != "fork":
            why, size_bytes = against_sending({"dataset": dataset, **needed})
            found = replace(found, unpicklable=why, dataset_bytes=size_bytes)
        self.facts = found
        return found != before

    def replanned(self, plan: WorkerPlan, passage: Passage) -> WorkerPlan:
        """A plan with what a pass has shown so far: the size of batches, and what went past /dev/shm.

        Args:
            plan: That is in force.
            passage: How batches come.
        """
        if self.facts.batch_bytes is None and passage.first is not None:
            size_bytes, tensors = passage.first
            if self.learn(batch_bytes=size_bytes, batch_tensors=tensors):
                plan = _in_force(plan, self.plan())
        said = [line for line in passage.said if line not in plan.why]
        return replace(plan, why=(*plan.why, *said)) if said else plan


def _in_force(plan: WorkerPlan, fresh: WorkerPlan) -> WorkerPlan:
    """A new plan with the workers of one that is carried out: their number changes where it is tuned, or not at all."""
    why = [plan.why[0], *fresh.why[1:]]
    if fresh.num_workers != plan.num_workers:
        why.insert(1, f"with batches as large as the first one, to begin with would have been right: {fresh.why[0]}")
    made = replace(
        fresh, num_workers=plan.num_workers, gate=plan.gate, persistent_workers=plan.persistent_workers,
        prefetch_factor=fresh.prefetch_factor or plan.prefetch_factor if plan.num_workers else None, why=tuple(why),
    )  # fmt: skip
    return _with_pinning(made, plan.pin_memory, fresh.why)


_STAY = "no pinned memory: batches stay on the CPU"
_NOT_YET = "no pinned memory so far: CUDA was not in use in this process when the pass began"


def _with_pinning(plan: WorkerPlan, pins: bool, planned: tuple[str, ...]) -> WorkerPlan:  # noqa: FBT001
    """A plan under which memory is pinned, or not yet, with the reason for that.

    Args:
        plan: It.
        pins: Whether memory is pinned.
        planned: The reasons of a plan in which nobody has looked yet whether CUDA is in use.
    """
    if plan.pin_memory == pins:
        return plan
    why = tuple(line for line in planned if line.startswith("pinned memory")) if pins else (_NOT_YET,)
    others = tuple(line for line in plan.why if line != _NOT_YET and not line.startswith("pinned memory"))
    return replace(plan, pin_memory=pins, why=(*others, *why))


def planner_of(
    dataset: Any,  # noqa: ANN401
    request: WorkerRequest,
    *,
    own: bool,
    block_order: bool,
    torch_numbers: bool = False,
) -> Planner:
    """Who decides. Nothing of the dataset is touched but its length, of ours its path, and of a TensorDataset its sizes.

    Args:
        dataset: What is read.
        request: What the user passed.
        own: Whether the dataset is one of ours.
        block_order: Whether it is read in sequential blocks.
        torch_numbers: Whether random numbers shall be those of torch's loader.
    """
    if isinstance(dataset, IterableDataset) and request.num_workers is None:
        # each worker would read a stream of its own, and most streams do not know of the others
        request = _without_workers(request)
    facts = replace(_facts(dataset, own=own, block_order=block_order), torch_numbers=torch_numbers)
    facts = _as_workers_start(facts, request)
    if type(dataset) is TensorDataset and request.batches:
        size = sum(tensor.numel() * tensor.element_size() for tensor in dataset.tensors)
        facts = replace(facts, batch_bytes=-(-size // request.batches), batch_tensors=len(dataset.tensors))
    return Planner(replace(request, pipes=True), facts)


def _without_workers(request: WorkerRequest) -> WorkerRequest:
    return WorkerRequest(
        num_workers=0, pin_memory=request.pin_memory, batches=request.batches, stream=True, moved=request.moved
    )


def _facts(dataset: Any, *, own: bool, block_order: bool) -> SizingFacts:  # noqa: ANN401
    path = getattr(dataset, "path", None) if own else getattr(dataset, "root", None)
    return SizingFacts(
        machine=survey(),
        own_dataset=own,
        file_system=file_system(path) if isinstance(path, str) else None,
        block_order=block_order,
        sharing=torch.multiprocessing.get_sharing_strategy(),  # type: ignore[no-untyped-call]
        daemonic=multiprocessing.current_process().daemon,
    )


def _as_workers_start(facts: SizingFacts, request: WorkerRequest) -> SizingFacts:
    """Facts with how workers would start as things are now, and whether the script is one that can be imported for that."""
    # Asked without allow_none, it would be settled here, and set_start_method, which may come later, would refuse.
    method = multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]
    forks = (request.multiprocessing_context or method) == "fork"
    guarded = None if forks else is_guarded(sys.modules.get("__main__"))
    return replace(facts, start_method=cast("StartMethod", method), guarded_main=guarded)


def raise_descriptors(plan: WorkerPlan) -> None:
    """Raise this process's soft limit of open files where the plan says so."""
    if plan.decided and plan.descriptor_limit is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (plan.descriptor_limit, hard))


class Counts(Protocol):
    """What is asked of who adds up what batches tell."""

    @property
    def counters(self) -> Mapping[str, int]:
        """What was counted so far."""


class PlannedLoader:
    """What a loader keeps of its plan: the part of DataLoader that knows why, and how batches come from workers."""

    dataset: Any
    collate_fn: Any
    worker_init_fn: Any
    multiprocessing_context: Any
    num_workers: int
    prefetch_factor: int | None
    persistent_workers: bool
    pin_memory: bool
    _planner: Planner
    _plan: WorkerPlan
    _device_side: Any = None
    """A Tells of where batches go; None where they stay."""
    _passage: Passage | None = None
    """How batches go from workers to here; None before the first pass with workers."""
    _alone = False
    """The pass is without its workers: none can be started."""
    _looked = False
    """What workers would need was looked at."""

    @property
    def plan(self) -> WorkerPlan:
        """What was decided, and why: print it. With the first batch of workers more is known, and it is decided anew."""
        if self._passage is not None:
            self._plan = self._planner.replanned(self._plan, self._passage)
        base, _ = behind_views(self.__dict__.get("dataset"))  # the constructor asks before it has one
        data = (*base.told, *self._told_of_cache(base)) if isinstance(base, Tells) else ()
        why = self._plan.why
        if self._device_side is not None:
            data = (*data, *self._device_side.told)
            pinning = _STAY if self._device_side.stays else MOVED
            why = tuple(pinning if line in {_STAY, MOVED} else line for line in why)
        if (data, why) != (self._plan.data, self._plan.why):
            self._plan = replace(self._plan, data=data, why=why)
        return self._plan

    @plan.setter
    def plan(self, plan: WorkerPlan) -> None:
        self._plan = plan

    def _told_of_cache(self, dataset: Tells) -> tuple[str, ...]:
        """What a cache was good for so far, as far as that is recorded."""
        collector: Counts | None = self.__dict__.get("_collector")
        if getattr(dataset, "cache", None) is None or collector is None:
            return ()
        stats, _ = cache_stats(collector.counters, filled_behind(dataset))
        needed = 0 if self._passage is None else self._passage.needed_bytes
        left = [f"batches need up to {format_size(needed)} of /dev/shm: a cache there leaves so much free"] if needed else []
        return (*left, *([] if stats is None else [str(stats)]))

    def look_for_obstacles(self) -> None:
        """Before the first workers are started that were decided on: whether dataset and functions can go to them.

        Raises:
            UsageError: This process is being started as a worker itself.
        """
        plan = self._plan
        if self.num_workers:
            prove_is_not_starting(self.multiprocessing_context)
        if self._looked or not plan.decided or not 0 < self.num_workers == plan.num_workers:
            return
        self._looked = True
        needed = {"collate_fn": self.collate_fn, "worker_init_fn": self.worker_init_fn}
        if not self._planner.look(self.dataset, needed):
            return
        self._plan = self._planner.plan()
        if self._plan.num_workers != plan.num_workers:
            self.num_workers = self._plan.num_workers
            LOG.info("%s", self._plan.why[0])

    def settle_pinning(self) -> None:
        """Pin, where that is ours to decide, only if CUDA is in use by now.

        Pinning would begin with making CUDA's context, which takes longer than a short epoch, and memory of the GPU.
        """
        if self._planner.request.pin_memory is not None or not self._planner.pins:
            return
        self.pin_memory = bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
        self._plan = _with_pinning(self._plan, self.pin_memory, self._planner.plan().why)

    def open_passage(self, *, torch_numbers: bool) -> None:
        """The way of batches from the workers of the next pass, and how far those work ahead by what is known now.

        Args:
            torch_numbers: Whether random numbers shall be those of torch's loader.

        Raises:
            UsageError: No worker can be started, and without them the random numbers would be others.
        """
        running = self.persistent_workers and self._passage is not None
        self._alone = not running and not can_start(torch_numbers=torch_numbers)
        if self._alone:
            return
        plan, left_out = self.plan, self._planner.request.prefetch_factor is None
        if left_out and plan.prefetch_factor is not None:
            self.prefetch_factor = plan.prefetch_factor
        past, ahead = plan.sharing == "pipe", self.prefetch_factor
        self._passage = passage_of(self._passage, past=past, workers=self.num_workers, prefetch_factor=ahead)
