"""The background filling of a cache of samples, in a process of its own.

To make samples is the user's code, which may need Python's lock, draw random numbers, or bear no second thread: none of that
may happen in the process that trains. So a process does it that has the lowest priority, and what it makes no worker has to
make any more. It is started as workers are, ends with its dataset and with the process that started it, and can be killed at
any time: what is half put in is not in.

It is nice 19, and not SCHED_IDLE: that could be kept from running for seconds while it holds the lock under which room in the
cache is given out.
"""

import logging
import os
import signal
import threading
import time
import weakref
from typing import Any, Self

import torch

from fastfeed.feed.workers import end_with, leave_to_parent
from fastfeed.store.filling import SUMS, Fillable, Filled, fill, filled

LOG = logging.getLogger("fastfeed.cache")
_LOWEST_PRIORITY = 19
_LOOK_SECONDS = 0.5
"""How often it is looked whether the parent lives."""


class FillingApart:
    """Fills the cache of something in a process of its own.

    Args:
        target: It. The process has a copy, as a worker has.
        context: Of multiprocessing: how the process is started.
    """

    def __init__(self, target: Fillable, context: Any) -> None:  # noqa: ANN401 - torch's loaders take any
        self._sums = torch.zeros(SUMS, dtype=torch.int64)
        self._sums.share_memory_()  # type: ignore[no-untyped-call]
        self._process = context.Process(target=_run, args=(target, self._sums, os.getpid()), name="fastfeed-cache", daemon=True)
        self._process.start()
        self.stop = weakref.finalize(self, _stop, self._process, os.getpid())
        """End it."""

    @classmethod
    def begun(cls, target: Fillable, context: Any) -> Self | None:  # noqa: ANN401
        """One that has begun; None, which is logged, where no process can be started."""
        try:
            return cls(target, context)
        except Exception as error:  # noqa: BLE001 - whatever pickling a dataset raises; workers that cannot start either say so
            LOG.info("a cache is filled by reads alone: no process could be started for it (%s)", error)
            return None

    @property
    def runs(self) -> bool:
        """Whether there may be more to fetch."""
        return bool(self._process.is_alive())

    @property
    def filled(self) -> Filled:
        """What was fetched so far."""
        runs = self.runs
        return filled(self._sums.tolist(), runs=runs)


def _stop(process: Any, owner: int) -> None:  # noqa: ANN401 - of any context
    if os.getpid() != owner:
        return  # a worker, whose parent's it is
    process.terminate()
    process.join()


def _run(target: Fillable, sums: torch.Tensor, owner: int) -> None:
    """What the process does, for the one that started it."""
    end_with(owner)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the parent's handlers are not for it
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal; the parent says when to end
    os.nice(_LOWEST_PRIORITY)
    leave_to_parent()
    torch.set_num_threads(1)
    threading.Thread(target=_end_after, args=(os.getppid(),), name="fastfeed-ends", daemon=True).start()
    fill(lambda: target, sums.numpy(), _wait)


def _wait(seconds: float) -> bool:
    """Rest; nobody but who started the process ends it."""
    time.sleep(seconds)
    return False


def _end_after(parent: int) -> None:
    """End with a parent that is killed, also in the midst of a sample that takes for ever."""
    while os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)
    os._exit(1)
