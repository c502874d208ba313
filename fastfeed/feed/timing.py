"""What making a batch took, as the process that made it saw it. Plain values: they travel with the batch."""

import time
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

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

    __slots__ = ("_began", "_work")

    def __init__(self) -> None:
        self._began, self._work = time.monotonic(), time.process_time()

    def stop(self, worker: int, data: Any) -> BatchTimes:  # noqa: ANN401 - any batch
        """The batch is made."""
        size_bytes, tensors = size_of(data)
        return BatchTimes(worker, self._began, time.monotonic(), time.process_time() - self._work, size_bytes, tensors)


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
