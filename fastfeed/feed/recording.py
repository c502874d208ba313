"""The times of samples, taken in the process that fetches them, and made into figures of constant size for each batch.

A log of time stamps is all that is written while samples are fetched; what it means is worked out once a batch. Recording may
cost a part of the time of the batches that are fetched: each batch earns as much, each recorded one is paid for with what its
recording took, and one that cannot be paid for is not recorded. So long batches are all recorded, and short ones in part.
"""

import time
from array import array
from collections.abc import Callable, Sequence
from contextvars import Token
from functools import cache, partial
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfeed.feed.figures import MOST_COUNTERS, MOST_STAGES, OTHER_COUNTERS, OTHER_STAGES, BatchRecord, Sketch, Timed
from fastfeed.feed.splitting import Fetch, behind_views, fetch_of, makes_samples_singly
from fastfeed.trace import Meter, done_metering, metering

PART, LEAST = 0.006, 0.001
"""Of the time of a batch; and what it earns at least, so that of very short ones some are recorded as well."""
_MARKS_OF_BATCH = 16
"""What is done for each batch, recorded or not, takes as long as so many marks, and is paid for first."""
_BEGIN, _END = 0, 1
"""Marks of a sample; the numbers behind them are stages."""
_TRIALS = 32
_COLDEST = 8
"""A mark between two samples takes at most so many times what it takes in a row; what seems longer was an interruption."""


class _Span:
    """One stage of a log. Its end is marked, and its begin where it lies within another stage, whose time stops there.

    Between two stages no time is lost: it counts as the second one's.
    """

    __slots__ = ("_mark", "_number", "_open", "_stamp")

    def __init__(self, number: int, mark: Callable[[int], None], stamp: Callable[[int], None], open_: list[int]) -> None:
        self._number, self._mark, self._stamp, self._open = number, mark, stamp, open_

    def __enter__(self) -> None:
        if self._open:
            self._stamp(_now())
            self._mark(self._open[-1])
        self._open.append(self._number)

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._stamp(_now())
        self._mark(self._open.pop())


_now = time.perf_counter_ns


class _Counting:
    """Hears counters alone: the meter of a batch that is not recorded."""

    def __init__(self) -> None:
        self.counters: dict[str, int] = {}

    def span(self, stage: str, position: int) -> "_Counting":  # noqa: ARG002 - the protocol's names
        """A context that does nothing."""
        return self

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        pass

    def count(self, name: str, amount: int = 1) -> None:
        """Something happened so many times."""
        counters = self.counters
        if name not in counters and len(counters) >= MOST_COUNTERS:
            name = OTHER_COUNTERS
        counters[name] = counters.get(name, 0) + amount


class Log:
    """The log of one batch, and the meter that writes it. A mark ends what began at the mark before."""

    def __init__(self, counting: _Counting) -> None:
        self.count = counting.count
        self._stamps, self._marks = array("q"), array("B")
        self._spans: dict[str, _Span] = {}
        self._open: list[int] = []
        """The stages that have begun and not ended, the innermost last."""
        self._fetch: Fetch | None = None
        self._in_order = False
        self.clear(None)

    def clear(self, dataset: Any) -> None:  # noqa: ANN401 - any dataset
        """A batch begins. Stages that came before keep their numbers."""
        del self._stamps[:], self._marks[:], self._open[:]
        self._indices: list[Any] = []
        self._together = 0
        """Samples that were asked for in one call; 0 where they were asked for one by one."""
        self._collate_ns: int | None = None
        self.mark_ns = 0.0
        """Nanoseconds that a mark took; 0 where that was not measured."""
        self._dataset, self._fetch = dataset, None

    @property
    def marks(self) -> int:
        """How many were made."""
        return len(self._marks)

    def span(self, stage: str, position: int) -> _Span:  # noqa: ARG002 - the sample is known without
        """A context around one stage."""
        try:
            return self._spans[stage]
        except KeyError:
            return self._stage(stage)

    def _stage(self, stage: str) -> _Span:
        if len(self._spans) >= MOST_STAGES and stage != OTHER_STAGES:
            return self.span(OTHER_STAGES, 0)
        found = self._spans[stage] = _Span(len(self._spans) + _END + 1, self._marks.append, self._stamps.append, self._open)
        return found

    # ------------------------------------------------------------------------------------------------ fetching
    def sample(self, index: Any) -> Any:  # noqa: ANN401 - any index and sample
        """Fetch a sample of the dataset."""
        fetch = self._fetch
        if fetch is None:
            return self._first(index)
        self._indices.append(index)
        self._marks.append(_BEGIN)
        self._stamps.append(_now())
        try:
            return fetch(index)
        finally:
            self._stamps.append(_now())
            self._marks.append(_END)

    def _first(self, index: Any) -> Any:  # noqa: ANN401 - any index and sample
        """As sample; and its marks are timed, with the caches as samples leave them."""
        self._fetch = fetch_of(self._dataset, self)
        began = _now()
        try:
            return self.sample(index)
        finally:
            self.mark_ns = (_now() - self._stamps[-1] + self._stamps[0] - began) / 2

    def samples(self, indices: Sequence[Any]) -> Any:  # noqa: ANN401 - what __getitems__ gives
        """Fetch many by the dataset's own __getitems__."""
        if makes_samples_singly(self._dataset):
            return [self.sample(index) for index in indices]
        return self.together(partial(self._dataset.__getitems__, indices), indices)

    def together(self, fetch: Callable[[], Any], indices: Sequence[Any]) -> Any:  # noqa: ANN401 - what it gives
        """Fetch many by one call. Where it gives None, nothing was fetched: they are asked for in another way."""
        base, _ = behind_views(self._dataset)
        self._indices, self._together = list(indices), len(indices)
        self._in_order = getattr(type(base), "makes_in_order", False)
        self._marks.append(_BEGIN)
        self._stamps.append(_now())
        try:
            found = fetch()
        finally:
            self._stamps.append(_now())
            self._marks.append(_END)
        if found is None:
            del self._marks[-2:], self._stamps[-2:]
            self._indices, self._together = [], 0
        return found

    def collated(self, collate: Callable[[Any], Any], samples: Any) -> Any:  # noqa: ANN401 - any batch
        """Make samples a batch."""
        began = _now()
        try:
            return collate(samples)
        finally:
            self._collate_ns = _now() - began

    # ------------------------------------------------------------------------------------------------ figures
    def record(self) -> BatchRecord | None:
        """The batch in figures; None where nothing was fetched to its end, or samples together and then one by one."""
        fetched = bytes(self._marks).count(_BEGIN)
        if not fetched or fetched != (1 if self._together else len(self._indices)) or len(self._marks) != len(self._stamps):
            return None
        marks, stamps = np.array(self._marks, dtype=np.int64), np.array(self._stamps)
        spent, names, indices = (stamps[1:] - stamps[:-1]).astype(np.float64), ("fetch", *self._spans), self._indices
        divided: list[int] = []
        if self._together:
            table, divided = _together(marks[1:], spent, self._together, len(names))
            if not self._in_order or 0 in divided:
                indices = []
        else:
            table = _one_by_one(marks, spent, len(indices), len(names))
        return Timed(names, indices, table, tuple(names[number] for number in divided), self._collate_ns).record()


def _one_by_one(marks: NDArray[np.int64], spent: NDArray[np.float64], samples: int, width: int) -> NDArray[np.float64]:
    """Nanoseconds by sample and stage, the first stage being all of them; float64, shape (samples, width)."""
    number = np.add.accumulate(marks == _BEGIN, dtype=np.int64)[1:] - 1
    found = np.bincount(number * (width + 1) + marks[1:], weights=spent, minlength=samples * (width + 1))
    table = found.reshape(samples, width + 1)[:, 1:].astype(np.float64)  # what lies between two samples is not theirs
    if width > 1:
        table[:, 0] = np.add.reduce(table, 1)
    return table


def _together(
    marks: NDArray[np.int64], spent: NDArray[np.float64], samples: int, width: int
) -> tuple[NDArray[np.float64], list[int]]:  # fmt: skip
    """As _one_by_one; and the stages that were not once for each sample, so that each counts with the mean.

    The first stage, all of a sample, is among them where every other is.
    """
    table = np.zeros((samples, width))
    divided, apart = [], False
    for number in range(width):
        found = spent[marks == number + _END]
        if number and len(found) == samples:
            table[:, number], apart = found, True
        elif len(found):
            table[:, number] = found.sum() / samples
            divided.append(number)
    table[:, 0] = table.sum(axis=1)
    return table, divided[1:] if apart else divided


class Recording:
    """Decides which batches of a process are recorded."""

    def __init__(self) -> None:
        self._counting = _Counting()
        self._log = Log(self._counting)
        self._credit_ns = self._cost_ns = 0.0
        """What batches have earned and recording has not spent; and what recording the last recorded batch took."""
        self._mark_ns = self._hot_ns = self._travel_ns = 0.0
        """What a mark takes; what it takes in a row; what handing over and adding up takes in a row."""
        self._token: Token[Meter] | None = None
        self._began = 0
        self._active: Log | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Recording, ()  # each process has its own

    def begin(self, dataset: Any) -> Log | None:  # noqa: ANN401 - any dataset
        """A batch is fetched next.

        Returns:
            What fetches its samples; None where it is not recorded.
        """
        self._active = None
        if self._credit_ns >= self._cost_ns:
            self._active = self._log
            self._log.clear(dataset)
        self._token = metering(self._active or self._counting)
        self._began = _now()
        return self._active

    def end(self) -> tuple[BatchRecord | None, dict[str, int] | None]:
        """The batch is made: its figures, and what was counted."""
        took = _now() - self._began
        earned = max(PART * took - _MARKS_OF_BATCH * self._mark_ns, LEAST * took)
        if self._token is not None:
            done_metering(self._token)
            self._token = None
        counters = self._counting.counters
        if counters:
            self._counting.counters = {}
        self._credit_ns += earned
        log, self._active = self._active, None
        record = None if log is None else self._paid(log)
        self._credit_ns = min(self._credit_ns, self._cost_ns)  # a long batch must not pay for many short ones after it
        return record, counters or None

    def _paid(self, log: Log) -> BatchRecord | None:
        if not self._hot_ns:  # the first time, in a new process above all, is slow for once: the second one tells
            log.record()
            self._hot_ns = _mark_cost()
        mark_ns = min(max(log.mark_ns, self._hot_ns), _COLDEST * self._hot_ns)
        self._mark_ns = mark_ns if not self._mark_ns else (3 * self._mark_ns + mark_ns) / 4
        began = _worked()
        record, marks = log.record(), log.marks
        log.clear(None)
        spent = _worked() - began
        if record is not None:
            self._travel_ns = self._travel_ns or _travel_cost(record)
        self._cost_ns = marks * self._mark_ns + self._travel_ns * self._mark_ns / self._hot_ns + spent
        self._credit_ns -= self._cost_ns
        return record


_worked = time.thread_time_ns
"""What recording costs is processor time: on a busy machine it waits no longer than what it records."""


@cache
def _mark_cost() -> float:
    """Nanoseconds that a mark takes in this process, by trying."""
    log = Log(_Counting())
    spent = 0
    for _ in range(2):
        began = _worked()
        for _ in range(_TRIALS):
            with log.span("trial", 0):
                pass
        spent = _worked() - began
    return spent / _TRIALS


def _travel_cost(record: BatchRecord) -> float:
    """Nanoseconds that handing a record over and adding it up takes, by trying; the second time counts."""
    spent = 0
    for _ in range(2):
        began = _worked()
        for _, *parts in ForkingPickler.loads(ForkingPickler.dumps(record)).sketches():
            Sketch().merge(*parts)
        spent = _worked() - began
    return float(spent)
