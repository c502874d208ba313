"""What making a batch took, as the process that made it saw it. Plain values: they travel with the batch."""

import os
import time
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from torch.utils.data import get_worker_info

from fastfeed.feed.figures import BatchRecord

Recorded = tuple[BatchRecord | None, dict[str, int] | None]
_SEVERAL = 1000
"""A longer list of something else than tensors holds none, as far as one looks."""


@dataclass(slots=True)
class BatchTimes:
    """Of one batch. The clock is CLOCK_MONOTONIC, one clock for all processes of a machine.

    It is made and sent for each batch: a frozen one takes five times as long to make.
    """

    worker: int
    """Number of the process that made it; fetch.MAIN for the main process."""
    began: float
    ended: float
    work_seconds: float
    """Processor time in between, of all threads of that process."""
    size_bytes: int
    """Of the tensors and arrays of the batch."""
    tensors: int
    """How many there are."""
    queued_seconds: float = 0.0
    """For how long the worker waited for a processor that others had: no waiting that more workers would help against. 0 in
    the main process, where nobody asks, and where the kernel does not tell."""
    record: BatchRecord | None = None
    """Times of its samples, by stage; None where they were not recorded."""
    counters: dict[str, int] | None = None
    """What the dataset has counted (trace.count)."""

    def __reduce__(self) -> tuple[Any, ...]:
        record = None if self.record is None else tuple(self.record)  # each class by name takes a look-up on arrival
        return _arrived, (
            self.worker, self.began, self.ended, self.work_seconds, self.size_bytes, self.tensors, self.queued_seconds, record,
            self.counters,
        )  # fmt: skip

    @property
    def make_seconds(self) -> float:
        """From the task to the collated batch, waiting for files included."""
        return self.ended - self.began


def _arrived(*values: Any) -> BatchTimes:  # noqa: ANN401 - as __reduce__ gave them
    found = BatchTimes(*values)
    if found.record is not None:
        found.record = BatchRecord(*found.record)
    return found


class Answer(NamedTuple):
    """What a task becomes. torch moves it: a named tuple goes through pinning part by part."""

    number: int
    """Of the batch; negative where there was nothing to do."""
    data: Any
    """The batch, or a Failure."""
    failures: list[Any]
    """Failures that were skipped or replaced."""
    times: BatchTimes | None = None
    """None where there was nothing to do."""
    unfinished: Any = None
    """What is still to be done to the batch where it is used, as decode.whole.Unfinished; None for nothing."""


class Delivery(NamedTuple):
    """One batch as the consumer gets it."""

    number: int
    wait_seconds: float
    """From the consumer's call until the batch was there."""
    step_seconds: float
    """The consumer's own time before that call, since the batch before; 0 for a pass's first batch."""
    late_seconds: float
    """The part of the wait in which the batch was not finished; the rest is handing over."""
    workers: int
    """Size of the crew that made it; 0 for the main process."""
    samples: int
    remaining: int | None
    """Batches of the pass that are still to come; None where nobody knows."""
    times: BatchTimes
    failures: int = 0
    """Samples that failed and were skipped or replaced."""


class Listener(Protocol):
    """Hears of each batch that the consumer gets, in the main process, between two steps: it has to be quick.

    One with an attribute needs_length that is False does without Delivery.remaining, for which the sampler is asked.
    """

    def delivered(self, delivery: Delivery) -> None:
        """A batch was handed out."""


@runtime_checkable
class FailureListener(Listener, Protocol):
    """Hears as well of each batch that is not handed out, because a sample of it or its making failed."""

    def failed(self) -> None:
        """An exception is raised instead of a batch."""


class Clock:
    """Times one batch in the process that makes it.

    Args:
        queued: Ask the kernel how long processors were waited for, too: 10 us.
    """

    __slots__ = ("_began", "_queued", "_work")

    def __init__(self, *, queued: bool = False) -> None:
        self._queued = _queued_seconds() if queued else None
        self._began, self._work = time.monotonic(), time.process_time()

    def stop(self, worker: int, data: Any, recorded: Recorded = (None, None)) -> BatchTimes:  # noqa: ANN401 - any batch
        """The batch is made, and this was recorded of it."""
        size_bytes, tensors = size_of(data)
        ended, work = time.monotonic(), time.process_time() - self._work
        queued = 0.0 if self._queued is None else _queued_seconds() - self._queued
        return BatchTimes(worker, self._began, ended, work, size_bytes, tensors, queued, *recorded)


_SCHEDSTAT: dict[int, int | None] = {}
"""By process: its file of scheduling times, which is kept open, since opening takes ten times as long as reading."""


def _queued_seconds() -> float:
    """How long the main thread of this worker has waited for a processor, since it began."""
    if get_worker_info() is None:
        return 0.0
    own = os.getpid()
    if own not in _SCHEDSTAT:
        try:
            _SCHEDSTAT[own] = os.open("/proc/self/schedstat", os.O_RDONLY)
        except FileNotFoundError:
            _SCHEDSTAT[own] = None  # a kernel without it
    descriptor = _SCHEDSTAT[own]
    return 0.0 if descriptor is None else int(os.pread(descriptor, 64, 0).split()[1]) / 1e9


def size_of(data: Any) -> tuple[int, int]:  # noqa: ANN401 - any batch
    """Bytes of the tensors and arrays in a batch, and how many there are; what it does not know counts nothing."""
    try:
        return _size(data)
    except RecursionError:
        return 0, 0  # a list in itself, or one too deep


def _size(data: Any) -> tuple[int, int]:  # noqa: ANN401
    if isinstance(data, torch.Tensor):
        return (data.numel() * data.element_size() if data.layout is torch.strided else 0), 1
    if isinstance(data, np.ndarray):
        return data.nbytes, 1
    if isinstance(data, dict):
        return _sum(list(data.values()))
    return _sum(data) if isinstance(data, list | tuple) else (0, 0)


def _sum(parts: list[Any] | tuple[Any, ...]) -> tuple[int, int]:
    if len(parts) > _SEVERAL and not isinstance(parts[0], torch.Tensor | np.ndarray):
        return 0, 0
    size_bytes = tensors = 0
    for part in parts:
        if not isinstance(part, str | bytes | int | float):
            size, count = _size(part)
            size_bytes, tensors = size_bytes + size, tensors + count
    return size_bytes, tensors
