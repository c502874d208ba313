"""What making a batch took, as the process that made it saw it. Plain values: they travel with the batch."""

import os
import time
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch.utils.data import get_worker_info

_SEVERAL = 1000
"""A longer list of something else than tensors holds none, as far as one looks."""


@dataclass(frozen=True, slots=True)
class BatchTimes:
    """Of one batch. The clock is CLOCK_MONOTONIC, one clock for all processes of a machine."""

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
    the main process, and where the kernel does not tell."""

    @property
    def make_seconds(self) -> float:
        """From the task to the collated batch, waiting for files included."""
        return self.ended - self.began


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


@dataclass(frozen=True, slots=True)
class Delivery:
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


class Listener(Protocol):
    """Hears of each batch that the consumer gets, in the main process, between two steps: it has to be quick."""

    def delivered(self, delivery: Delivery) -> None:
        """A batch was handed out."""


class Clock:
    """Times one batch in the process that makes it."""

    __slots__ = ("_began", "_queued", "_work")

    def __init__(self) -> None:
        self._queued = _queued_seconds()
        self._began, self._work = time.monotonic(), time.process_time()

    def stop(self, worker: int, data: Any) -> BatchTimes:  # noqa: ANN401 - any batch
        """The batch is made."""
        size_bytes, tensors = size_of(data)
        ended, work, queued = time.monotonic(), time.process_time() - self._work, _queued_seconds() - self._queued
        return BatchTimes(worker, self._began, ended, work, size_bytes, tensors, queued)


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
            size, count = size_of(part)
            size_bytes, tensors = size_bytes + size, tensors + count
    return size_bytes, tensors
