"""The inner loaders that a pass takes its batches from: one; while the number of workers changes also the one before.

A crew that is relieved gets no more tasks and finishes what it was given, while the next one starts. Tasks are numbered, so
all batches of the earlier crew come before those of the later one, and each is received from the crew that has it.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from fastfeed.feed.ahead import Ahead
from fastfeed.feed.crew import Crew
from fastfeed.feed.fetch import Fetcher, FetchRules
from fastfeed.feed.inner import InnerLoader, InnerOptions
from fastfeed.feed.obstacles import start_method
from fastfeed.feed.tasks import Handover, TaskOrder

LOG = logging.getLogger("fastfeed.loader")


@dataclass(slots=True)
class Made:
    """An inner loader and what belongs to it. It knows no engine: a circle would keep workers until it is collected."""

    loader: InnerLoader
    fetcher: Fetcher
    """In this process; workers have copies."""
    order: TaskOrder
    crew: Crew
    options: InnerOptions
    rules: FetchRules
    moved: Callable[[], bool] = bool
    """Whether another epoch was named since the pass began."""

    @property
    def start_method(self) -> str:
        """How workers are started, or would be."""
        given = self.loader.multiprocessing_context if self.options.num_workers else self.options.multiprocessing_context
        return start_method(given)


@dataclass(slots=True)
class Shift:
    """An inner loader at work."""

    made: Made
    inner: Iterator[Any]
    ahead: Ahead | None
    """None where nothing has to be bounded."""
    start_seconds: float
    """What starting it took the consumer."""
    take_over: Handover | None = None
    """From the crew before; None where there is none."""
    until: int | None = None
    """Number of the first batch that is the next crew's; None: whatever comes is this one's."""


@dataclass(frozen=True, slots=True)
class Resized:
    """What came of a wish for another number of workers."""

    workers: int
    """That the pass goes on with."""
    seconds: float
    """Of the consumer's time that it took."""
    error: str | None
    """Why it could not be done."""


@dataclass(frozen=True, slots=True)
class Wish:
    """For another number of workers."""

    workers: int
    then: Callable[[Resized], None]
    """Is told what came of it."""
    latest: int
    """It is done before this batch at the latest."""


def hanging(crews: list[Crew], seconds: float) -> list[str]:
    """A text for each worker of the crew in front that is at its batch for longer than that."""
    return crews[0].hanging(seconds)


def dismiss(gone: list[Any]) -> None:
    """Wait for the workers of a shift, in a thread, which therefore has to have the last reference: the list's."""
    try:
        threading.Thread(target=gone.clear, name="fastfeed-leave").start()
    except RuntimeError as error:
        LOG.warning("the workers before are waited for here, since there can be no thread for it: %s", error)


class Shifts:
    """Of one pass.

    Args:
        first: What the pass begins with.
    """

    def __init__(self, first: Shift) -> None:
        self._queue = deque([first])
        self.crews = [first.made.crew]
        """Of all shifts; the same list throughout, so a watchman may look at it without keeping the workers."""
        self.coming: Shift | None = None
        """A crew that is starting, while the others go on."""

    @property
    def front(self) -> Shift:
        """That the batch whose turn it is comes from."""
        return self._queue[0]

    @property
    def back(self) -> Shift:
        """That gets the tasks."""
        return self._queue[-1]

    def relieve(self, shift: Shift) -> None:
        """A new crew takes over."""
        assert shift.take_over is not None
        following = shift.take_over()
        self.back.until = following if shift.made.options.sorts else None
        self._queue.append(shift)
        self.crews.append(shift.made.crew)
        self._bound()
        self._share()

    def turn(self, number: int) -> None:
        """It is a batch's turn: crews that have given all that they had may go."""
        while len(self._queue) > 1 and self.front.until is not None and number >= self.front.until:
            self.leave()

    def receive(self) -> Any:  # noqa: ANN401 - what an inner loader gives
        """What comes next from the crew in front.

        Raises:
            StopIteration: No crew has anything.
        """
        while True:
            try:
                return next(self.front.inner)
            except StopIteration:
                if len(self._queue) == 1:
                    raise
            self.leave()

    def leave(self) -> None:
        """The crew in front has nothing left."""
        gone = [self._queue.popleft()]
        del self.crews[0]
        self._bound()
        self._share()
        dismiss(gone)

    def ended(self) -> None:
        """No crew has anything, and those that do not persist have ended."""
        passage = self.back.made.rules.passage
        if passage is not None:
            passage.rests()

    def dismiss_coming(self) -> None:
        """The crew that is starting is not needed."""
        gone, self.coming = [self.coming], None
        dismiss(gone)

    def crew_of(self, error: BaseException) -> Crew | None:
        """Whose workers an error of torch's is about: those that it names, else those that are waited for."""
        crews = [crew for crew in self.crews if crew.workers is not None]
        return next((crew for crew in crews if crew.named(error)), crews[0] if crews else None)

    def received(self, size_bytes: int, tensors: int) -> None:
        """A batch came."""
        back = self.back
        if back.ahead is not None:
            most = back.ahead.most
            back.ahead.seen(size_bytes, tensors)
            if back.ahead.most != most:
                self._bound()

    def _bound(self) -> None:
        """How many batches may be ahead, all crews together: what those before were given is on top while they finish it."""
        back = self.back
        most = None if back.ahead is None else back.ahead.most
        if most is not None and len(self._queue) > 1:
            most += sum(shift.made.options.in_flight for shift in list(self._queue)[:-1])
        back.made.order.current.most_ahead = most

    def _share(self) -> None:
        """How many workers take shared memory and descriptors now."""
        passage, workers = self.back.made.rules.passage, sum(shift.made.options.num_workers for shift in self._queue)
        if passage is not None and workers:
            passage.sized(workers, self.back.made.options.ahead_each)
