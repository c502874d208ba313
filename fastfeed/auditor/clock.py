"""The clocks of one stage of one sample: what passed, what was computed, what was waited for, and what the disk had to bring.

Wall time alone says nothing on a machine that has other work: a sample that waits for a processor is not a slow sample.
"""

import os
import threading
import time
from resource import RUSAGE_SELF, RUSAGE_THREAD, getrusage
from types import TracebackType
from typing import Self

from fastfeed.auditor.record import StageTime

SCHEDSTAT = "/proc/thread-self/schedstat"
"""Of the thread that opens it: nanoseconds on a processor, nanoseconds of waiting for one, turns."""

_NO_WAIT_NS = 10_000
"""Neither a turn of another thread nor a page from a disk fits into so little time without computing."""
_SURELY_COUNTED_NS = 50_000_000
"""A thread that computed for so long has been seen by the kernel's tick."""


class Clock:
    """Times what happens within ``with``, in the thread that enters; may be used again and again.

    About 10 us a use, outside the time that it measures.

    Args:
        process: Count processor time and page faults of all threads: for work that a library spreads over threads of its own.
            Waiting for a processor stays that of the thread that enters.
        schedstat: Where the kernel tells how long a thread waited for a processor.
    """

    __slots__ = ("_began", "_process", "_schedstat", "_time")

    def __init__(self, *, process: bool = False, schedstat: str = SCHEDSTAT) -> None:
        self._process, self._schedstat = process, schedstat
        self._began: tuple[float | None, int, int, int] | None = None
        self._time: StageTime | None = None

    @property
    def time(self) -> StageTime:
        """Of the last use.

        Raises:
            RuntimeError: It was never used, or is in use.
        """
        if self._time is None:
            msg = "a clock has a time once its with block has ended"
            raise RuntimeError(msg)
        return self._time

    def __enter__(self) -> Self:
        self._time = None
        # Wall time is read last and, at the end, first: what reading the others costs is in none of them.
        self._began = (*self._slow(), self._cpu(), time.perf_counter_ns())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        wall, cpu = time.perf_counter_ns(), self._cpu()
        assert self._began is not None
        began_delay, began_faults, began_cpu, began_wall = self._began
        wall, cpu = wall - began_wall, cpu - began_cpu
        if not self._process and began_delay and wall - cpu < _NO_WAIT_NS:
            self._time = StageTime(wall / 1e9, cpu / 1e9, 0.0)  # most uses: looking would take as long as what there is to see
            return
        delay, faults = self._slow()
        waited = None if delay is None or began_delay is None else delay - began_delay
        if waited is not None:
            # A processor may be lost between the readings of two clocks: then it was waited for outside of the wall's time.
            waited = max(0.0, min(waited, (wall if self._process else wall - cpu) / 1e9))
        self._time = StageTime(wall / 1e9, cpu / 1e9, waited, faults - began_faults)

    def _cpu(self) -> int:
        return time.process_time_ns() if self._process else time.thread_time_ns()

    def _slow(self) -> tuple[float | None, int]:
        """Seconds of waiting for a processor, major page faults."""
        return _queue(self._schedstat).seconds(), getrusage(RUSAGE_SELF if self._process else RUSAGE_THREAD).ru_majflt


class _Queue:
    """A thread's file of scheduling times. It is kept open: opening takes ten times as long as reading."""

    __slots__ = ("_descriptor", "path", "process")

    def __init__(self, path: str) -> None:
        self.path, self.process = path, os.getpid()
        self._descriptor: int | None = None
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # a kernel without it, or a sandbox that hides it: said by None
            return

    def seconds(self) -> float | None:
        """How long this thread has waited for a processor so far; None where nothing tells."""
        if self._descriptor is None:
            return None
        ran, waited = os.pread(self._descriptor, 96, 0).split()[:2]
        # A kernel that does not count shows zeros for ever; one that does shows them to a thread that has just begun.
        if not int(ran) and time.thread_time_ns() > _SURELY_COUNTED_NS:
            return None
        return int(waited) / 1e9

    def __del__(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)


class _Queues(threading.local):
    """By thread."""

    queue: _Queue | None = None


_QUEUES = _Queues()


def _queue(path: str) -> _Queue:
    """This thread's. After a fork it is opened again: the parent's file tells of the parent."""
    queue = _QUEUES.queue
    if queue is None or queue.path != path or queue.process != os.getpid():
        queue = _QUEUES.queue = _Queue(path)
    return queue
