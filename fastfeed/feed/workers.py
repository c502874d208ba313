"""What the main process knows of the workers of one inner loader: which sample each is at, how it ended, its stack."""

import faulthandler
import gc
import logging
import multiprocessing
import os
import signal
import threading
import time
import weakref
from itertools import takewhile
from multiprocessing.connection import wait

import numpy as np
import torch
from numpy.typing import NDArray

from fastfeed.units import format_signal

LOG = logging.getLogger("fastfeed.loader")
_OWN_FILES = os.path.join("feed", "fetch.py"), os.path.join("feed", "streams.py")
"""Whose frames call the user's code: a stack is shown down to them."""
NOT_BEGUN, WHOLE, DONE = -1, -1, -2
"""Instead of a batch's number: before the first one. Instead of a position: all of the batch, or done with it."""
STACK_SIGNAL = signal.SIGRTMAX - 3
"""Asks a worker for its stack. Nothing else is known to use it; a worker is asked once it listens."""
_ANSWER_SECONDS = 1.0


class Whereabouts:
    """A table in shared memory, a row a worker: batch, position in it, since when, process, whether it tells its stack.

    Args:
        workers: How many.
    """

    def __init__(self, workers: int) -> None:
        self._table = torch.full((workers, 5), NOT_BEGUN, dtype=torch.int64)
        self._table.share_memory_()  # type: ignore[no-untyped-call]
        self._rows: NDArray[np.int64] | None = None

    def __getstate__(self) -> torch.Tensor:
        return self._table

    def __setstate__(self, table: torch.Tensor) -> None:
        self._table, self._rows = table, None

    @property
    def rows(self) -> NDArray[np.int64]:
        """The table as an array that sees what others write; int64, shape (workers, 5)."""
        if self._rows is None:
            self._rows = self._table.numpy()  # a tenth of a tensor's time for each entry
        return self._rows

    def begun(self, worker: int, *, listens: bool) -> None:
        """This process is the worker; it may be asked for its stack if it listens."""
        self.rows[worker, 3:] = os.getpid(), listens

    def begin(self, worker: int, batch: int) -> None:
        """It turns to a batch."""
        self.rows[worker, :3] = batch, WHOLE, time.monotonic_ns()  # one clock for all processes

    def at(self, worker: int, position: int) -> None:
        """It turns to a sample of the batch; or WHOLE, or DONE."""
        self.rows[worker, 1] = position


class Workers:
    """The workers of one inner loader, seen from the main process.

    Args:
        count: How many.
        stacks: Workers shall be able to tell their stacks.
    """

    def __init__(self, count: int, *, stacks: bool = True) -> None:
        self.count = count
        self.whereabouts = Whereabouts(count)
        self._stacks: list[int] = []
        weakref.finalize(self, _close, self._stacks)  # first: there may be no descriptor left for one of them
        # Files in memory, without a name: however this process ends, nothing of them is left.
        for worker in range(count if stacks else 0):
            self._stacks.append(os.memfd_create(f"fastfeed-stack-{worker}"))

    @property
    def stack_paths(self) -> list[str]:
        """Where workers write their stacks, for a process that has other descriptors."""
        return [f"/proc/{os.getpid()}/fd/{descriptor}" for descriptor in self._stacks]

    def at(self, worker: int) -> tuple[int, int]:
        """(batch, position in it) that a worker is at; see NOT_BEGUN, WHOLE, DONE."""
        batch, position = self.whereabouts.rows[worker, :2].tolist()
        return batch, position

    def has_made(self, batch: int, worker: int, since_ns: int) -> bool:
        """Whether a worker is done with a batch, or at a later one.

        Args:
            batch: Its number.
            worker: Who makes it.
            since_ns: Of the clock CLOCK_MONOTONIC: what a worker has turned to before is of another pass, or not told.
        """
        current, position, began_ns = self.whereabouts.rows[worker, :3].tolist()
        return bool(began_ns >= since_ns and (current > batch or (current == batch and position == DONE)))

    @property
    def begun(self) -> bool:
        """Whether all of them have begun to work, if only on tasks without any."""
        return bool((self.whereabouts.rows[:, 1] == DONE).all())

    def busy_seconds(self, worker: int) -> float | None:
        """For how long a worker is at its batch; None where it has none that it is not done with."""
        batch, position, since = self.whereabouts.rows[worker, :3].tolist()
        return None if batch == NOT_BEGUN or position == DONE else (time.monotonic_ns() - since) / 1e9

    def worker_of(self, pid: int) -> int | None:
        """The worker with a process number."""
        return next((worker for worker, own in enumerate(self._pids()) if own == pid), None)

    def pid_of(self, worker: int) -> int:
        """The process of a worker; NOT_BEGUN before it has begun."""
        return int(self.whereabouts.rows[worker, 3])

    def _pids(self) -> list[int]:
        pids: list[int] = self.whereabouts.rows[:, 3].tolist()
        return pids

    def dead(self, patience_seconds: float = 0.0) -> dict[int, str]:
        """Workers that have ended, and how. One that is dying is waited for a little."""
        deadline = time.monotonic() + patience_seconds
        while True:
            ends = {worker: ended(pid) for worker, pid in enumerate(self._pids()) if pid > 0}
            found = {worker: how for worker, how in ends.items() if how is not None}
            if found or time.monotonic() >= deadline:
                return found
            time.sleep(0.01)

    def stack_of(self, worker: int) -> str:
        """The Python stack of a worker, down to the user's code; empty where it cannot be asked or does not answer."""
        pid = self.pid_of(worker)
        if not self._stacks or self.whereabouts.rows[worker, 4] != 1 or not _is_own_child(pid):
            return ""
        descriptor = self._stacks[worker]
        before = os.fstat(descriptor).st_size
        os.kill(pid, STACK_SIGNAL)
        deadline, own = time.monotonic() + _ANSWER_SECONDS, ""
        while time.monotonic() < deadline and not any(file in own for file in _OWN_FILES):
            time.sleep(0.01)
            text = os.pread(descriptor, os.fstat(descriptor).st_size - before, before).decode("utf-8", "replace")
            own = text.rpartition("hread 0x")[2]  # the last thread is the main one, which fetches
        lines = list(takewhile(lambda line: not any(file in line for file in _OWN_FILES), own.splitlines()[1:]))
        return "\n".join(["Its stack, most recent call first:", *lines]) if lines else ""


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _is_own_child(pid: int) -> bool:
    """Whether it runs and nobody else can have its number: a child has it until it is waited for."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    except ChildProcessError:
        return False


def ended(pid: int) -> str | None:
    """How a process ended, None while it runs. A child is left to be waited for by whoever started it."""
    try:
        facts = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:  # waited for already, or the child of a fork server
        return None if os.path.exists(f"/proc/{pid}") else "has ended"
    if facts is None:
        return None
    if facts.si_code == os.CLD_EXITED:
        return f"ended with exit code {facts.si_status}"
    return f"was killed by {format_signal(facts.si_status)}"


def leave_to_parent() -> None:
    """What this process was forked with is no business of its garbage collector any more.

    A collection looks at each object, and writes into it: a copy of every page that was the parent's, some 80 MB and a fifth
    of a second with torch loaded, within the first few hundred samples. Garbage among it stays, as it does in the parent.
    """
    gc.freeze()


def end_with(process: int) -> None:
    """From now on this process ends when the one ends that it works for, however that does.

    torch's own watch sees that its parent is another one than before. That is not enough where the parent has died before
    torch looked (under spawn starting takes seconds), nor under a fork server: that is the parent, and it ends when none of
    its children is left. What such workers have open, a cache in memory that was removed for one, would be lost until
    somebody kills them.

    Args:
        process: Whom it works for.
    """
    known = multiprocessing.parent_process()
    if os.getppid() == process or known is None:
        return
    threading.Thread(target=_end_after, args=(known.sentinel,), name="fastfeed-ends", daemon=True).start()


def _end_after(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)  # whoever would hear of anything is gone


def leave_stack_on_signal(path: str) -> None:
    """From now on this process writes its Python stacks into a file when it gets STACK_SIGNAL.

    A handler in C writes them, so it needs neither the GIL nor an answer from what hangs. (faulthandler's own timer would
    do without a signal, but a forked process in which the timer of its parent runs, as in pytest's, waits for that for ever.)

    Raises:
        OSError: The file cannot be opened.
    """
    file = open(path, "r+b", buffering=0)  # noqa: SIM115 - as long as the process
    faulthandler.register(STACK_SIGNAL, file=file, all_threads=True)


def leave_stack(path: str, worker: int) -> bool:
    """The same, where a worker can go on without: whether it will leave its stack."""
    try:
        leave_stack_on_signal(path)
    except FileNotFoundError:
        return False  # the pass was dropped while this worker started: nobody will ask
    except OSError as error:
        LOG.warning("if worker %d hangs, its stack will not be known: %s", worker, error)
        return False
    return True
