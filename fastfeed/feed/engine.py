"""The main process's side of the loader: an inner torch DataLoader whose samples are whole batches, and what comes back.

Only public parts of torch are used: an inner loader with batch_size=None draws the same random numbers, in the same order,
as the loader that it stands for, so order, base seed, worker seeds and batches are torch's (tests compare them).
"""

import logging
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from fastfeed.feed.crew import DYING_SECONDS, Crew, WorkerLost, about_workers, name_deaths
from fastfeed.feed.faults import ErrorCaps, FaultCounter
from fastfeed.feed.fetch import Failure, Fetcher, FetchRules, WorkerInit, identity
from fastfeed.feed.inner import InnerLoader, in_order_option
from fastfeed.feed.naming import indices_text, sample_name
from fastfeed.feed.raised import raised
from fastfeed.feed.tasks import Pass, TaskOrder
from fastfeed.feed.threads import WorkerThreads
from fastfeed.feed.timing import Answer, Delivery, FailureListener, Listener
from fastfeed.feed.watchman import Watchman
from fastfeed.feed.workers import Workers

LOG = logging.getLogger("fastfeed.loader")
_AHEAD_FACTOR = 4
"""Where one slow batch holds up those that are done, so many times the usual number may wait for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InnerOptions:
    """What the inner loader is made with; the names are torch's."""

    num_workers: int
    prefetch_factor: int | None
    pin_memory: bool
    timeout: float
    worker_init_fn: Any
    multiprocessing_context: Any
    persistent_workers: bool
    in_order: bool
    """The inner loader waits for its turn with each batch; otherwise it takes them as they come."""
    sorts: bool = True
    """Batches are handed out in the sampler's order, however they come."""
    pin_memory_device: str = ""
    hang_seconds: float = 0.0
    """After how long without a batch a worker's stack is reported; 0 for never."""
    threads: WorkerThreads | None = None
    """Limits the threads of libraries in workers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """What a pass draws its samples and random numbers from."""

    epoch_of: Callable[[], int]
    """Which epoch it is, asked once the pass has begun."""
    generator: torch.Generator | None
    base: int | None = None
    """Of sample mode's random numbers; None in torch mode."""
    round_batches: int | None = None
    """Batches of an epoch, where one pass goes through several; None where it is one."""
    moved: Callable[[], bool] = bool
    """Whether another epoch was named since the pass has begun; it then begins anew, if no batch was handed out."""


class Engine:
    """Makes the inner loaders of one outer loader, and keeps one where workers shall persist.

    Args:
        dataset: The user's.
        batches: The outer loader's batch sampler, or its sampler without batching.
        once: Ask it once a pass, whatever torch does (feed/tasks.py).
        early: Draw the first batch when a pass begins.
    """

    def __init__(self, dataset: Any, batches: Iterable[Any], *, once: bool, early: bool) -> None:  # noqa: ANN401
        self.dataset, self.batches, self._once, self._early = dataset, batches, once, early
        self._kept: _Made | None = None
        self._last: weakref.ref[EpochIterator] | None = None

    def epoch(  # noqa: PLR0917
        self, options: InnerOptions, rules: FetchRules, draw: Draw, caps: ErrorCaps, listeners: Sequence[Listener] = ()
    ) -> "EpochIterator":
        """Begin a pass; persistent workers of the last pass go on if nothing has changed."""
        ahead = options.num_workers * (options.prefetch_factor or 2)
        most_ahead = None if options.in_order or not options.sorts or not ahead else _AHEAD_FACTOR * ahead
        made = self._kept
        if made is None or (made.options, made.rules) != (options, rules):
            self.close()
            made = self._make(options, rules, draw.generator)
        made.order.begin(draw.base, draw.epoch_of, most_ahead, draw.round_batches)
        made.moved = draw.moved
        made.loader.generator = draw.generator
        inner = iter(made.loader)
        if options.num_workers:
            name_deaths()
        if not options.persistent_workers:
            return EpochIterator(self, made, inner, caps, listeners)
        self._kept = made
        last = None if self._last is None else self._last()
        if last is not None and last.made is made:  # as in torch, a loader with persistent workers has one iterator
            last.begin(inner, caps, listeners)
            return last
        begun = EpochIterator(self, made, inner, caps, listeners)
        self._last = weakref.ref(begun)
        return begun

    def _make(self, options: InnerOptions, rules: FetchRules, generator: torch.Generator | None) -> "_Made":
        count = options.num_workers
        order = TaskOrder(self.batches, batched=rules.batched, once=self._once, early=self._early)
        workers = Workers(count, stacks=options.hang_seconds > 0 or options.timeout > 0) if count else None
        init = None
        if workers is not None:
            init = WorkerInit(options.worker_init_fn, threads=options.threads, stack_paths=workers.stack_paths)
        fetcher = Fetcher(self.dataset, rules, None if workers is None else workers.whereabouts)
        loader = InnerLoader(
            fetcher,  # type: ignore[arg-type]  # it stands for one
            batch_size=None, sampler=order, num_workers=count, collate_fn=identity, pin_memory=options.pin_memory,
            timeout=options.timeout, worker_init_fn=init, generator=generator,
            multiprocessing_context=options.multiprocessing_context if count else None,
            prefetch_factor=options.prefetch_factor if count else None,
            persistent_workers=options.persistent_workers, pin_memory_device=options.pin_memory_device,
            **in_order_option(in_order=options.in_order),
        )  # fmt: skip
        return _Made(loader, fetcher, order, Crew(workers, order, self.dataset), options, rules)

    def forget(self, made: "_Made") -> None:
        """Its workers cannot be used again."""
        if self._kept is made:
            self.close()

    def close(self) -> None:
        """Let go of workers that were kept."""
        self._kept = self._last = None


@dataclass(slots=True)
class _Made:
    """An inner loader and what belongs to it. It knows no engine: a circle would keep workers until it is collected."""

    loader: InnerLoader
    fetcher: Fetcher
    """In this process; workers have copies."""
    order: TaskOrder
    crew: Crew
    options: InnerOptions
    rules: FetchRules
    moved: Callable[[], bool] = bool
    """Draw's, of the last pass."""


@dataclass(slots=True)
class Handed:
    """What one pass has handed out. It outlives the pass, whose end ends the workers."""

    batches: int = 0
    samples: int = 0
    """Indices in the batches, those of left-out samples counted."""
    indices: Any = ()
    """Of the last batch, as the sampler gave them."""
    start: int = 0
    """Samples of the pass in the batches before the last one, in the sampler's order."""
    count: int = 0
    """Samples of the last batch, those of left-out samples counted."""


class EpochIterator:
    """One pass over the data: what ``iter(loader)`` gives."""

    def __init__(  # noqa: PLR0917
        self, engine: Engine, made: _Made, inner: Iterator[Any], caps: ErrorCaps, listeners: Sequence[Listener] = ()
    ) -> None:
        self._engine, self.made = engine, made
        seconds = made.options.hang_seconds
        watched = made.options.num_workers > 0 and seconds > 0
        self._watch = Watchman(partial(made.crew.hanging, seconds), seconds) if watched else None
        self.begin(inner, caps, listeners)

    def begin(self, inner: Iterator[Any], caps: ErrorCaps, listeners: Sequence[Listener] = ()) -> None:
        """A pass begins, with the iterator of the inner loader."""
        self._listeners = listeners
        self._given: float | None = None
        """When the batch before was handed out."""
        self._inner = inner
        self._pass: Pass = self.made.order.current
        counts = any(getattr(listener, "needs_length", True) for listener in listeners)
        self._length = _length(self.made.order) if counts else None
        self._early: dict[int, Answer] = {}
        """Batches that came before their turn."""
        self._next = 0
        self._broken: str | None = None
        self.handed = Handed()
        self.faults = FaultCounter(caps)

    def __iter__(self) -> "EpochIterator":
        return self

    def __len__(self) -> int:
        return len(self.made.order)

    def __next__(self) -> Any:  # noqa: ANN401 - a batch
        """The next batch, in the sampler's order.

        Raises:
            Exception: What a sample raised, of its own type, with the sample's name in its message.
            RuntimeError: A worker died or took longer than timeout; the message names the samples.
            DecodeError: on_error tolerates no more.
        """
        if self._broken is not None:
            raise RuntimeError(self._broken)
        if not self.handed.batches and self.made.moved():
            self._begin_anew()
        asked = time.monotonic()
        try:
            answer = self._take()
        except RuntimeError as error:
            if not about_workers(error) or self.made.crew.workers is None:
                raise
            raise self._lost(error)  # noqa: B904 - it has its cause; a name for it would make a circle with this frame
        self._count(answer.number, answer.failures)
        if isinstance(answer.data, Failure):
            raise self._raised(answer.data, answer.number)
        if self._listeners:
            self._hear(answer, asked)
        return answer.data

    def _hear(self, answer: Answer, asked: float) -> None:
        """Tell the listeners of a batch that is about to be handed out."""
        assert answer.times is not None
        now, handed = time.monotonic(), self.handed
        delivery = Delivery(
            answer.number, now - asked, 0.0 if self._given is None else asked - self._given,
            min(max(0.0, answer.times.ended - asked), now - asked), self.made.options.num_workers, handed.count,
            None if self._length is None else max(0, self._length - handed.batches), answer.times,
            len(answer.failures),
        )  # fmt: skip
        for listener in self._listeners:
            listener.delivered(delivery)
        self._given = time.monotonic()

    def _begin_anew(self) -> None:
        """With another epoch. What was fetched ahead is dropped, and its workers end unless they are persistent."""
        self._early.clear()
        self._inner = iter(())
        self.made.order.begin_anew()
        self._inner = iter(self.made.loader)
        self._pass = self.made.order.current
        if self.made.options.num_workers:
            name_deaths()

    def _lost(self, error: RuntimeError) -> WorkerLost:
        lost = self.made.crew.lost(error)
        self._broken = str(lost)
        self._engine.forget(self.made)
        return lost

    def _raised(self, failure: Failure, number: int) -> Exception:
        for listener in self._listeners:
            if isinstance(listener, FailureListener):
                listener.failed()
        original, self.made.fetcher.original = self.made.fetcher.original, None
        return raised(failure, self._engine.dataset, number, original)

    def _count(self, number: int, failures: list[Failure]) -> None:
        drawn, handed = self._pass.pending.pop(number), self.handed
        handed.indices, handed.start, handed.count = drawn.indices, drawn.start, drawn.count
        handed.batches += 1
        handed.samples += drawn.count
        what = {"skip": "left out", "replace": "replaced"}.get(self.made.rules.on_error, "failed")
        failed = {}
        for failure in failures:
            name = sample_name(self._engine.dataset, failure.index)
            failed[failure.position] = f"{name}: {failure.kind}: {failure.message}"
            LOG.warning("%s was %s: %s: %s", name, what, failure.kind, failure.message)
        if self.made.rules.on_error != "raise":
            self.faults.batch(drawn.count, failed)

    # ------------------------------------------------------------------------------------------------ what comes back
    def _take(self) -> Answer:
        """The batch whose turn it is."""
        if self._next not in self._early:
            self._next = self._await()
        answer = self._early.pop(self._next)
        self._next += 1
        return answer

    def _await(self) -> int:
        """Receive until the batch whose turn it is has come; its number. Where nothing is sorted, any batch has its turn."""
        since = time.monotonic()
        if self._watch is not None:
            self._watch.waiting()
        try:
            while True:
                answer = self._receive()
                if answer.number >= 0:
                    self._early[answer.number], since = answer, time.monotonic()
                    if answer.number == self._next or not self.made.options.sorts:
                        return answer.number
                elif 0 < self.made.options.timeout < time.monotonic() - since:
                    msg = f"DataLoader timed out after {self.made.options.timeout} seconds"
                    raise RuntimeError(msg)  # torch's words: it heard from the other workers, which have nothing to do
        finally:
            if self._watch is not None:
                self._watch.arrived()

    def _receive(self) -> Answer:
        try:
            found: Answer = next(self._inner)
        except StopIteration:
            self._prove_complete()
            raise
        except Exception as error:  # torch gives on whatever went wrong in a worker: here it is told apart, and raised
            if self._pass.sampler_failed or about_workers(error):
                raise
            if str(error).startswith("Caught "):  # of worker_init_fn: such a worker cannot go on
                self._broken = str(error)
                error.__traceback__ = None  # torch's frames make a circle with it, which would keep the workers for a while
                raise
            lost = self.made.crew.obituary(DYING_SECONDS) if isinstance(error, OSError | EOFError | RuntimeError) else None
            if lost is None:
                raise
            raise RuntimeError(lost) from error  # a worker died while it handed over a tensor
        return found

    def _prove_complete(self) -> None:
        """Everything that the sampler gave was delivered."""
        pending = self._pass.pending
        if pending:
            first = next(iter(pending))
            msg = (
                f"the epoch ended with {len(pending)} batches missing, the first is batch {first} "
                f"{indices_text(pending[first].indices)}: this is a fault of the loader, please report it"
            )
            raise RuntimeError(msg)

    def close(self) -> None:
        """End the pass: workers stop, unless they are persistent; what was fetched ahead is dropped."""
        if self._watch is not None:
            self._watch.stop()
        self._early.clear()
        self._inner = iter(())

    def __del__(self) -> None:
        if getattr(self, "_watch", None) is not None:
            self._watch.stop()  # type: ignore[union-attr]


def _length(order: TaskOrder) -> int | None:
    """Batches of a pass; None where the user's sampler has no length."""
    try:
        return len(order)
    except TypeError:
        return None
