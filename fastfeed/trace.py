"""Spans, counters and progress: what the working rooms report to, without knowing who listens.

Reading code calls ``recorder.span(stage, position)`` around each stage of a sample; the null recorder is the default and
costs one call. Whoever wants to hear of all that one thread reads sets a Meter (``metering``): a loader does so for each
batch, and says which epoch it reads for. Judging lives above (auditor, bench); feed never imports it. Long jobs report to a
Progress.
"""

import heapq
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar, Token
from dataclasses import dataclass
from typing import Protocol

_NOTHING = nullcontext()


class Recorder(Protocol):
    """Hears of every stage of every sample."""

    def span(self, stage: str, position: int) -> AbstractContextManager[None]:
        """A context around one stage ("read", "decode", "transform") of the sample at a position."""


class NullRecorder:
    """Records nothing."""

    __slots__ = ()

    def span(self, stage: str, position: int) -> AbstractContextManager[None]:  # noqa: ARG002 - the protocol's names
        """A context that does nothing."""
        return _NOTHING

    def count(self, name: str, amount: int = 1) -> None:
        """Nothing."""

    def __reduce__(self) -> str:
        return "NULL"  # there is one, in every process


NULL = NullRecorder()


class Meter(Recorder, Protocol):
    """Hears of stages and of counters, whoever reports them."""

    def count(self, name: str, amount: int = 1) -> None:
        """Something happened so many times."""


_METER: ContextVar[Meter] = ContextVar("fastfeed-meter", default=NULL)


def metering(meter: Meter) -> Token[Meter]:
    """From here on this thread's stages and counters are heard by a meter, until done_metering takes the token."""
    return _METER.set(meter)


def done_metering(token: Token[Meter]) -> None:
    """The meter from before hears again."""
    _METER.reset(token)


def count(name: str, amount: int = 1) -> None:
    """Count something that happened, such as a cache hit; ``loader.stats().counters`` has the sum over all workers.

    Args:
        name: One of few: a loader keeps 64 names, and counts the rest as "other counters".
        amount: How many times.
    """
    _METER.get().count(name, amount)


_EPOCH: ContextVar[int | None] = ContextVar("fastfeed-epoch", default=None)


@contextmanager
def reading_epoch(number: int) -> Iterator[None]:
    """What this thread reads meanwhile is for an epoch of a loader's."""
    token = _EPOCH.set(number)
    try:
        yield
    finally:
        _EPOCH.reset(token)


def epoch_read() -> int | None:
    """The epoch that this thread reads for; None where no loader of ours has said."""
    return _EPOCH.get()


def listening(own: Recorder) -> Recorder:
    """Who hears of a sample: a recorder of the dataset's own, and this thread's meter."""
    meter = _METER.get()
    if own is NULL:
        return meter
    return own if meter is NULL else _Both(own, meter)


class _Both:
    """Two recorders."""

    __slots__ = ("_first", "_second")

    def __init__(self, first: Recorder, second: Recorder) -> None:
        self._first, self._second = first, second

    @contextmanager
    def span(self, stage: str, position: int) -> Iterator[None]:
        """Both hear."""
        with self._second.span(stage, position), self._first.span(stage, position):
            yield


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """One stage of one sample, timed by the wall clock."""

    seconds: float
    stage: str
    position: int


class SlowestRecorder:
    """Keeps the slowest spans and the total by stage, in constant memory.

    Args:
        keep: How many spans to keep.
    """

    def __init__(self, keep: int = 10) -> None:
        self.total_seconds: dict[str, float] = {}
        self.spans = 0
        self._keep = keep
        self._heap: list[Span] = []

    @contextmanager
    def span(self, stage: str, position: int) -> Iterator[None]:
        """Time one stage, whether or not it raises."""
        began = time.perf_counter()
        try:
            yield
        finally:
            seconds = time.perf_counter() - began
            self.spans += 1
            self.total_seconds[stage] = self.total_seconds.get(stage, 0.0) + seconds
            push = heapq.heappush if len(self._heap) < self._keep else heapq.heappushpop
            push(self._heap, Span(seconds, stage, position))

    def slowest(self) -> list[Span]:
        """The kept spans, slowest first."""
        return sorted(self._heap, reverse=True)


class Progress(Protocol):
    """Hears how far a long job is."""

    def start(self, stage: str, items: int | None, size_bytes: int | None) -> None:
        """A stage begins; None where its size is not known yet."""

    def advance(self, items: int, size_bytes: int) -> None:
        """This much more of the stage is done."""

    def finish(self) -> None:
        """The stage is over."""


class NullProgress:
    """Tells nobody."""

    __slots__ = ()

    def start(self, stage: str, items: int | None, size_bytes: int | None) -> None:
        """Nothing."""

    def advance(self, items: int, size_bytes: int) -> None:
        """Nothing."""

    def finish(self) -> None:
        """Nothing."""


QUIET = NullProgress()
