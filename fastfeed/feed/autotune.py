"""The number of workers of a loader, corrected while it is read: the tuner hears of each batch, the pass does what it says.

Only where the number is the loader's to decide, and only in sample mode, where batches do not depend on it.

A dataset is moved into the main process only if it is known to be at home there: one of ours, or tensors, without a
worker_init_fn. Of any other one nothing is touched here: it may open a file when it is asked for its first sample, and workers
that are forked later, by another loader of the same dataset, would share that file's position.
"""

import logging
import math
import weakref
from collections import deque
from dataclasses import replace
from typing import Any, Protocol

from torch.utils.data import ConcatDataset, Subset, TensorDataset

from fastfeed.feed.ceilings import Gate
from fastfeed.feed.dataset import PackedDataset
from fastfeed.feed.engine import EpochIterator
from fastfeed.feed.fetch import MAIN
from fastfeed.feed.gating import Thrift, against_workers, receive_seconds
from fastfeed.feed.measuring import Observation
from fastfeed.feed.shifts import Resized
from fastfeed.feed.sizing import WorkerPlan
from fastfeed.feed.timing import Delivery
from fastfeed.feed.tuning import HISTORY, Resize, Stop, Tuner
from fastfeed.units import format_count

LOG = logging.getLogger("fastfeed.loader")
_FEWEST_PROBED, _MOST_PROBED, _CLEARLY = 2, 8, 4.0
"""Batches of tensors that are made here before workers are started: the first one is slower than the rest, and more than two
only where the quickest takes less than so many times what taking a batch from a worker would."""


class TunedLoader(Protocol):
    """A loader, as far as it is tuned."""

    dataset: Any
    num_workers: int
    plan: WorkerPlan
    worker_init_fn: Any
    autotune: bool
    rng: str


class _Told(deque[str]):
    """Sentences, each logged when it is said."""

    def append(self, line: str, /) -> None:
        LOG.info("%s", line)
        super().append(line)


def tuned(loader: TunedLoader, known: "Autotune | None") -> "Autotune | None":
    """What tunes a loader; None where it is not to be tuned.

    Args:
        loader: The loader, whose plan is looked at before its first pass.
        known: What this gave before.
    """
    plan = loader.plan
    if known is not None or not (loader.autotune and loader.rng == "sample" and plan.decided and plan.num_workers):
        return known
    return Autotune(loader)


class Autotune:
    """Of one loader, over all its passes. It does not keep the loader.

    Args:
        loader: With the plan to begin with.
    """

    def __init__(self, loader: TunedLoader) -> None:
        self._loader = weakref.ref(loader)
        self._plan = loader.plan
        self._tuner = Tuner(self._plan)
        self._lines = self._tuner.log = _Told(maxlen=HISTORY)
        self._thrift = Thrift()
        plain = loader.worker_init_fn is None  # what it does would not be done here
        self._probing = plain and all_tensors(loader.dataset)
        self._at_home = plain and (self._probing or isinstance(loader.dataset, PackedDataset))
        self._quickest = math.inf
        """Of the batches made here, s."""
        self._cheap: str | None = None
        """Why a dataset that is not moved here would be better off here."""
        self._settled: int | None = None
        """Workers that it stays with, for another reason than the tuner's."""
        self._gate: Gate | None = None
        self._why = ""
        """Of the last change."""
        self._complete = False
        """The pass came to its end."""
        self._last = loader.num_workers
        """What the loader's attribute was set to."""
        self._begun = self._learned = False
        self._ear: Ear | None = None

    @property
    def told(self) -> tuple[str, ...]:
        """What was measured, tried and decided, in sentences."""
        return tuple(self._lines)

    def begin(self, loader: TunedLoader) -> "list[Ear]":
        """A pass begins: sets the loader's number of workers, and gives who shall hear of its batches (follow() it)."""
        if loader.num_workers != self._last:
            self._settle(loader.num_workers, None, f"num_workers was set to {loader.num_workers}")
        if self._begun and self._settled is None:
            self._between()
        self._begun, self._complete = True, False
        coming = self._settled if self._settled is not None else 0 if self._probing else self._tuner.workers
        if coming != loader.num_workers:
            self._show(coming)
        self._ear = Ear(self)
        return [] if self._settled is not None else [self._ear]

    def _between(self) -> None:
        """Two passes."""
        short = self._thrift.epoch_over(self._plan.start_method, complete=self._complete)
        if self._cheap is not None:
            self._settle(1, None, f"{self._cheap}, so it keeps up")
        elif short is not None and not self._plan.persistent_workers:
            # One worker starts fastest; what is not known to be at home here has no other place.
            self._settle(0 if self._at_home else 1, "short", short)
        else:
            self._tuner.epoch_began()

    def hear(self, ear: "Ear", delivery: Delivery, passed: EpochIterator) -> None:
        """A batch was handed out."""
        if self._settled is not None or ear is not self._ear:
            return  # nothing is left to tune; or it is of a pass that goes on beside a later one
        self._complete = delivery.remaining == 0
        if self._probing:
            self._probe(delivery, passed)
            return
        if delivery.times.worker == MAIN:
            return
        if not self._learned:
            self._learn(passed)
        if self._thrifty(delivery, passed):
            return
        times = delivery.times
        seen = Observation(
            wait_seconds=delivery.wait_seconds, step_seconds=delivery.step_seconds, workers=delivery.workers,
            late_seconds=delivery.late_seconds, make_seconds=times.make_seconds,
            work_seconds=times.work_seconds + times.queued_seconds, remaining=delivery.remaining,
        )  # fmt: skip
        decision = self._tuner.observe(seen)
        if decision is not None:
            self._do(decision, passed)

    def _learn(self, passed: EpochIterator) -> None:
        """The first batch of workers came: the plan was made anew with its size, and there may be no room for so many."""
        loader = self._loader()
        if loader is None:
            return
        self._learned, self._plan = True, loader.plan
        fewer = self._tuner.learn(self._plan)
        if fewer is not None:  # at once, though both crews are there for a while: those before have taken what they take
            self._why = fewer.why
            passed.resize(fewer.workers, self._resized)

    # ------------------------------------------------------------------------------------------------ decisions
    def _do(self, decision: Resize | Stop, passed: EpochIterator) -> None:
        if isinstance(decision, Stop):
            self._show(decision.workers)
            return
        now, self._why = passed.made.options.num_workers, decision.why
        tight = min((each for each in self._plan.ceilings if each.name in _HELD), key=lambda each: each.workers, default=None)
        if tight is None or now + decision.workers <= tight.workers:
            passed.resize(decision.workers, self._resized)
            return
        both = format_count(now + decision.workers, "worker")
        self._lines.append(f"from the next epoch on: until the {now} have ended there would be {both}, and {tight.why}")

    def _resized(self, result: Resized) -> None:
        if result.error is not None:
            self._settle(result.workers, None, f"no other number of workers can be started ({result.error})")
        elif result.workers and self._plan.start_method == "fork":
            self._tuner.start_seconds = result.seconds
        self._show(result.workers)

    def started(self, seconds: float) -> None:
        """What starting workers took at the beginning of a pass. Spawned ones start while the consumer goes on."""
        if self._plan.start_method == "fork" and not self._plan.persistent_workers and not self._probing:
            self._tuner.start_seconds = seconds

    def _probe(self, delivery: Delivery, passed: EpochIterator) -> None:
        """Tensors: the first batches are made here, and tell whether workers are worth it."""
        times, plan, count = delivery.times, self._plan, delivery.number + 1
        self._quickest = min(self._quickest, times.make_seconds)
        clear = count >= _FEWEST_PROBED and self._quickest > _CLEARLY * receive_seconds(times.size_bytes)
        if delivery.remaining and count < _MOST_PROBED and not clear:
            return
        batches = None if delivery.remaining is None else count + delivery.remaining
        found = against_workers(self._quickest, times.size_bytes, batches, plan.start_method, persists=plan.persistent_workers)
        self._probing = False
        if found is not None:
            self._settle(0, *found)
        else:
            self._lines.append(f"{plan.why[0]}; the first batches were made without any, to see whether they are worth it")
            passed.resize(plan.num_workers, self._resized)

    def _thrifty(self, delivery: Delivery, passed: EpochIterator) -> bool:
        """Whether it was found that workers are not worth it, and the pass goes on without."""
        times = delivery.times
        cheap = self._thrift.add(
            times.worker, times.make_seconds, delivery.wait_seconds, delivery.late_seconds, times.size_bytes
        )
        if cheap is None:
            return False
        if self._at_home:
            self._settle(0, "cheap", cheap)
            passed.resize(0, self._resized)
            return True
        if self._cheap is None:
            self._cheap = cheap
            self._lines.append(
                f"{cheap}: num_workers=0 would be faster, but a dataset that fastfeed does not know is not opened in the main "
                "process unasked; from the next epoch on there is one worker"
            )
        return False

    def _settle(self, workers: int, gate: Gate | None, why: str) -> None:
        """Stay with so many workers."""
        self._settled, self._gate = workers, gate
        self._why = f"{format_count(workers, 'worker') if workers else 'no workers'}: {why}"
        self._lines.append(self._why)
        self._show(workers)

    def _show(self, workers: int) -> None:
        """The loader's number and plan are what is going on."""
        loader, self._last = self._loader(), workers
        if loader is None:
            return
        loader.num_workers = workers
        works: dict[str, Any] = {} if workers else {"prefetch_factor": None, "persistent_workers": False}
        loader.plan = replace(
            self._plan, num_workers=workers, gate=self._gate, why=(self._state(workers), *self._plan.why[1:]), **works
        )

    def _state(self, workers: int) -> str:
        """Why there are so many workers."""
        start = self._plan.num_workers
        if self._settled is not None:
            return self._why
        if self._probing:
            return "no workers for the first batches, which tell whether workers are worth it: the dataset is tensors"
        stopped = self._tuner.stopped
        if workers == start:
            return self._plan.why[0] if stopped is None else f"{format_count(start, 'worker')}, as at the start: {stopped.why}"
        changed = f"tuned from {start} to {format_count(workers, 'worker')}"
        return f"{changed} so far: {self._why}" if stopped is None else f"{changed}: {stopped.why}"


class Ear:
    """Hears of one pass's batches.

    Args:
        autotune: Is told.
    """

    def __init__(self, autotune: Autotune) -> None:
        self._autotune = autotune
        self._passed: weakref.ref[EpochIterator] | None = None

    def follow(self, passed: EpochIterator) -> None:
        """Whose batches they are: it is not kept, since its workers shall end with it."""
        self._passed = weakref.ref(passed)
        self._autotune.started(passed.start_seconds)

    def delivered(self, delivery: Delivery) -> None:
        """A batch was handed out."""
        passed = None if self._passed is None else self._passed()
        if passed is not None:
            self._autotune.hear(self, delivery, passed)


def all_tensors(dataset: object) -> bool:
    """Whether a dataset is tensors, or a part or a combination of such ones."""
    kind = type(dataset)
    if kind is TensorDataset:
        return True
    if kind is Subset:
        return all_tensors(dataset.dataset)  # type: ignore[attr-defined]
    if kind is ConcatDataset:
        return all(map(all_tensors, dataset.datasets))  # type: ignore[attr-defined]
    return False


_HELD = ("memory", "shared memory", "descriptors")
"""Ceilings of what both crews hold while one follows the other."""
