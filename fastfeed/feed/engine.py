"""The main process's side of the loader: an inner torch DataLoader whose samples are whole batches, and what comes back.

Only public parts of torch are used: an inner loader with batch_size=None draws the same random numbers, in the same order,
as the loader that it stands for, so order, base seed, worker seeds and batches are torch's (tests compare them).
"""

import logging
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from fastfeed.feed.ahead import Ahead, Room
from fastfeed.feed.crew import Crew, WorkerLost, about_workers, name_deaths
from fastfeed.feed.faults import ErrorCaps, FaultCounter
from fastfeed.feed.fetch import Failure, Fetcher, FetchRules, WorkerInit, identity
from fastfeed.feed.inner import InnerLoader, InnerOptions, in_order_option
from fastfeed.feed.naming import sample_name
from fastfeed.feed.raised import raised
from fastfeed.feed.receiving import Receiver
from fastfeed.feed.shifts import Made, Resized, Shift, Shifts, Wish
from fastfeed.feed.tasks import Pass, TaskOrder
from fastfeed.feed.timing import Answer, Delivery, FailureListener, Listener
from fastfeed.feed.workers import Workers

LOG = logging.getLogger("fastfeed.loader")


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
        self._kept: Made | None = None
        self._last: weakref.ref[EpochIterator] | None = None

    def epoch(  # noqa: PLR0917
        self,
        options: InnerOptions,
        rules: FetchRules,
        draw: Draw,
        caps: ErrorCaps,
        listeners: Sequence[Listener] = (),
        receiver: "Receivers" = Receiver,
    ) -> "EpochIterator":
        """Begin a pass; persistent workers of the last pass go on if nothing has changed."""
        made = self._kept
        if made is None or (made.options, made.rules) != (options, rules):
            self.close()
            made = self._make(options, rules, draw.generator)
        ahead = _ahead(options)
        made.order.begin(draw.base, draw.epoch_of, None if ahead is None else ahead.most, draw.round_batches)
        made.moved = draw.moved
        made.loader.generator = draw.generator
        shift = _started(made, ahead)
        if not options.persistent_workers:
            return EpochIterator(self, shift, caps, listeners, receiver)
        self._kept = made
        last = None if self._last is None else self._last()
        if last is not None and last.made is made:  # as in torch, a loader with persistent workers has one iterator
            last.begin(shift, caps, listeners, receiver)
            return last
        begun = EpochIterator(self, shift, caps, listeners, receiver)
        self._last = weakref.ref(begun)
        return begun

    def relief(self, made: Made, options: InnerOptions, *, later: bool) -> Shift:
        """Another inner loader, which takes over the pass of one.

        Args:
            made: That one.
            options: Of the other.
            later: Its workers are started, but get no work before it does take over.

        Raises:
            OSError: Its workers cannot be started. Then nothing has changed.
            RuntimeError: The same; or, in torch's words, about a worker that is there.
        """
        seed = made.loader.generator.initial_seed()  # worker seeds are those of a pass that began with this crew
        fresh = self._make(options, made.rules, torch.Generator().manual_seed(seed), made.order)
        fresh.moved = made.moved
        handover = made.order.hand_over(later=later)
        try:
            shift = _started(fresh, _ahead(options))
        except BaseException:  # Ctrl-C too: the tasks go on to the crew that is there
            made.order.take_back(handover)
            raise
        shift.take_over = handover
        return shift

    def keep(self, made: Made, instead: Made) -> None:
        """It has taken over from another one: if workers persist, they are its workers."""
        if made.options.persistent_workers:
            self._kept = made
        elif self._kept is instead:
            self._kept = None

    def _make(
        self, options: InnerOptions, rules: FetchRules, generator: torch.Generator | None, order: TaskOrder | None = None
    ) -> Made:
        count = options.num_workers
        if order is None:
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
        crew = Crew(workers, order, self.dataset, options.multiprocessing_context)
        return Made(loader, fetcher, order, crew, options, rules)

    def forget(self, made: Made) -> None:
        """Its workers cannot be used again."""
        if self._kept is made:
            self.close()

    def close(self) -> None:
        """Let go of workers that were kept."""
        self._kept = self._last = None


def _ahead(options: InnerOptions) -> Ahead | None:
    """Where batches wait for their turn, how many may."""
    bounded = options.sorts and not options.in_order and options.in_flight > 0
    return Ahead(options.in_flight, Room.now()) if bounded else None


def _started(made: Made, ahead: Ahead | None) -> Shift:
    began = time.monotonic()
    inner = iter(made.loader)
    if made.options.num_workers:
        name_deaths()
    return Shift(made, inner, ahead, time.monotonic() - began)


Receivers = Callable[[Shifts], Receiver]
"""Makes what a pass takes its batches from."""


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
        self,
        engine: Engine,
        shift: Shift,
        caps: ErrorCaps,
        listeners: Sequence[Listener] = (),
        receiver: "Receivers" = Receiver,
    ) -> None:
        self._engine = engine
        self.begin(shift, caps, listeners, receiver)

    def begin(
        self, shift: Shift, caps: ErrorCaps, listeners: Sequence[Listener] = (), receiver: "Receivers" = Receiver
    ) -> None:
        """A pass begins, with an inner loader that was started."""
        self._listeners, self._receivers = listeners, receiver
        self._given: float | None = None
        """When the batch before was handed out."""
        self._shifts = Shifts(shift)
        self._receiver = receiver(self._shifts)
        self._options = shift.made.options
        self._wish: Wish | None = None
        self._then: Callable[[Resized], None] = _nobody
        """Who is told of the crew that is coming."""
        self._pass: Pass = self.made.order.current
        counts = any(getattr(listener, "needs_length", True) for listener in listeners)
        self._length = _length(self.made.order) if counts else None
        self.handed = Handed()
        self.faults = FaultCounter(caps)

    @property
    def made(self) -> Made:
        """The inner loader that gets the tasks."""
        return self._shifts.back.made

    @property
    def start_seconds(self) -> float:
        """What starting the workers took, or, for persistent ones, having them begin again."""
        return self._shifts.back.start_seconds

    def resize(self, workers: int, then: Callable[[Resized], None]) -> None:
        """Go on with another number of workers, from one of the next calls on. No batch is lost, made twice or out of order.

        Args:
            workers: How many; 0 makes batches in this process.
            then: Is told when it is done, or that it could not be.

        Raises:
            RuntimeError: In torch mode, where random numbers depend on the workers.
        """
        if self._pass.base is None:
            msg = "the number of workers changes only in sample mode: in torch mode batches depend on it"
            raise RuntimeError(msg)
        # New processes keep what they are forked with: a moment is awaited when no batch waits for its turn, but not for long.
        self._wish = Wish(workers, then, self._receiver.next + 2 * self.made.options.in_flight)

    def _change(self) -> None:
        """Another number of workers is wished for, or on its way."""
        wish, shifts = self._wish, self._shifts
        if shifts.coming is None:
            if wish is not None and (not self._receiver.early or self._receiver.next >= wish.latest):
                self._resize(wish)
        elif self._pass.ended:
            shifts.dismiss_coming()
            self._then(Resized(self.made.options.num_workers, 0.0, None))
        elif shifts.coming.made.crew.begun:
            shift, shifts.coming = shifts.coming, None
            self._relieve(shift, self._then)
            self._receiver.greet(shift)

    def _resize(self, wish: Wish) -> None:
        """Done before the next batch is looked for: where it would be waited for, starting workers costs nothing."""
        self._wish, made, began = None, self.made, time.monotonic()
        workers = made.options.num_workers if self._pass.ended else wish.workers  # nothing is left for others to do
        if workers == made.options.num_workers:
            wish.then(Resized(workers, 0.0, None))
            return
        persistent = self._options.persistent_workers and workers > 0
        timeout = self._options.timeout if workers else 0.0  # as in torch, there is none without workers
        options = replace(self._options, num_workers=workers, persistent_workers=persistent, timeout=timeout)
        # Processes that are not forked start for seconds: they get work when they are there, and until then those before do it.
        later = workers > 0 and options.sorts and made.start_method != "fork"
        try:
            shift = self._engine.relief(made, options, later=later)
        except (OSError, RuntimeError) as error:  # torch's about shared memory, and Python's about threads, are RuntimeErrors
            if about_workers(error):
                raise  # a worker of the crew that is there died meanwhile
            wish.then(Resized(made.options.num_workers, time.monotonic() - began, str(error)))
            return
        if later:
            self._shifts.coming, self._then = shift, wish.then
        else:
            self._relieve(shift, wish.then)

    def _relieve(self, shift: Shift, then: Callable[[Resized], None]) -> None:
        """A crew that was started takes over."""
        before = self.made
        self._shifts.relieve(shift)
        self._engine.keep(shift.made, before)
        then(Resized(shift.made.options.num_workers, shift.start_seconds, None))

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
        if self._receiver.broken is not None:
            raise RuntimeError(self._receiver.broken)
        if not self.handed.batches and self.made.moved():
            self._begin_anew()
        asked = time.monotonic()
        try:
            if self._wish is not None or self._shifts.coming is not None:
                self._change()
            answer = self._receiver.take()
        except RuntimeError as error:
            if not about_workers(error) or self._shifts.crew_of(error) is None:
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
            min(max(0.0, answer.times.ended - asked), now - asked), self._shifts.front.made.options.num_workers, handed.count,
            None if self._length is None else max(0, self._length - handed.batches), answer.times,
            len(answer.failures),
        )  # fmt: skip
        for listener in self._listeners:
            listener.delivered(delivery)
        self._given = time.monotonic()

    def _begin_anew(self) -> None:
        """With another epoch. What was fetched ahead is dropped, and its workers end unless they are persistent."""
        made = self.made
        self.close()
        made.order.begin_anew()
        self._shifts = Shifts(_started(made, _ahead(made.options)))
        self._receiver = self._receivers(self._shifts)
        self._pass = made.order.current

    def _lost(self, error: RuntimeError) -> WorkerLost:
        crew = self._shifts.crew_of(error)
        assert crew is not None
        lost = crew.lost(error)
        self._receiver.broken = str(lost)
        self._engine.forget(self.made)
        return lost

    def _raised(self, failure: Failure, number: int) -> Exception:
        for listener in self._listeners:
            if isinstance(listener, FailureListener):
                listener.failed()
        fetcher = self._shifts.front.made.fetcher
        original, fetcher.original = fetcher.original, None
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

    def close(self) -> None:
        """End the pass: workers stop, unless they are persistent; what was fetched ahead is dropped."""
        self._receiver.stop()
        self._shifts = Shifts(replace(self._shifts.back, inner=iter(())))
        self._receiver = Receiver(self._shifts)


def _nobody(result: Resized) -> None:
    """Is told nothing."""


def _length(order: TaskOrder) -> int | None:
    """Batches of a pass; None where the user's sampler has no length."""
    try:
        return len(order)
    except TypeError:
        return None
