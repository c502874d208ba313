"""What the main process knows of the workers of one inner loader: which sample each is at, how it ended, its stack."""

import faulthandler
import logging
import os
import signal
import time
import weakref

import numpy as np
import torch
from numpy.typing import NDArray

LOG = logging.getLogger("fastfeed.loader")
_FETCH_FILE = os.path.join("feed", "fetch.py")
NOT_BEGUN, WHOLE, DONE = -1, -1, -2
"""Instead of a batch's number: before the first one. Instead of a position: all of the batch, or done with it."""


class Whereabouts:
    """A table in shared memory, a row a worker: which batch it is at, which position in it, and its process.

    Args:
        workers: How many.
    """

    def __init__(self, workers: int) -> None:
        self._table: torch.Tensor = torch.full((workers, 3), NOT_BEGUN, dtype=torch.int64)
        self._table.share_memory_()  # type: ignore[no-untyped-call]
        self._rows: NDArray[np.int64] | None = None

    def __getstate__(self) -> torch.Tensor:
        return self._table

    def __setstate__(self, table: torch.Tensor) -> None:
        self._table, self._rows = table, None

    @property
    def rows(self) -> NDArray[np.int64]:
        """The table as an array that sees what others write; int64, shape (workers, 3)."""
        if self._rows is None:
            self._rows = self._table.numpy()  # a tenth of a tensor's time for each entry
        return self._rows

    def begun(self, worker: int) -> None:
        """This process is the worker."""
        self.rows[worker, 2] = os.getpid()

    def at(self, worker: int, batch: int, position: int) -> None:
        """It turns to a sample."""
        row = self.rows[worker]
        row[0], row[1] = batch, position


class Workers:
    """The workers of one inner loader, seen from the main process.

    Args:
        count: How many.
        stack_seconds: After how long at one batch a worker writes down its stack; 0 for never.
    """

    def __init__(self, count: int, stack_seconds: float) -> None:
        self.count, self.stack_seconds = count, stack_seconds
        self.whereabouts = Whereabouts(count)
        # Files in memory, without a name: however this process ends, nothing of them is left.
        self._stacks = [os.memfd_create(f"fastfeed-stack-{worker}") for worker in range(count)] if stack_seconds > 0 else []
        weakref.finalize(self, _close, self._stacks)

    @property
    def stack_paths(self) -> list[str]:
        """Where workers write their stacks, for a process that has other descriptors."""
        return [f"/proc/{os.getpid()}/fd/{descriptor}" for descriptor in self._stacks]

    def at(self, worker: int) -> tuple[int, int]:
        """(batch, position in it) that a worker is at; see NOT_BEGUN, WHOLE, DONE."""
        batch, position = self.whereabouts.rows[worker, :2].tolist()
        return batch, position

    def busy(self, worker: int) -> bool:
        """Whether a worker has a batch that it is not done with."""
        batch, position = self.at(worker)
        return batch != NOT_BEGUN and position != DONE

    def worker_of(self, pid: int) -> int | None:
        """The worker with a process number."""
        return next((worker for worker, own in enumerate(self._pids()) if own == pid), None)

    def pid_of(self, worker: int) -> int:
        """The process of a worker; NOT_BEGUN before it has begun."""
        return int(self.whereabouts.rows[worker, 2])

    def _pids(self) -> list[int]:
        pids: list[int] = self.whereabouts.rows[:, 2].tolist()
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
        """The Python stack of a worker that is at its batch for too long, down to the user's code; empty for others."""
        if not self._stacks:
            return ""
        descriptor = self._stacks[worker]
        text = os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode("utf-8", "replace")
        own = text.rpartition("\nThread ")[2].splitlines()[1:]  # the last thread is the one that fetches
        stop = next((at for at, line in enumerate(own) if _FETCH_FILE in line), len(own))
        return "\n".join(["Its stack, most recent call first:", *own[:stop]]) if own else ""


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


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
    return f"was killed by {signal.Signals(facts.si_status).name}"


class Watch:
    """Leaves this process's Python stacks in a file if one batch takes too long. A C thread writes them: it needs no GIL.

    Args:
        path: The file.
        seconds: What too long is.
    """

    def __init__(self, path: str, seconds: float) -> None:
        self._file, self._seconds = open(path, "r+b", buffering=0), seconds  # noqa: SIM115 - as long as the process

    @classmethod
    def begun(cls, path: str | None, seconds: float) -> "Watch | None":
        """A watch where the file can be had; where not, hanging samples are named without a stack, and that is said."""
        if path is None:
            return None
        try:
            return cls(path, seconds)
        except OSError as error:
            LOG.warning("if this worker hangs, its stack will not be known: %s", error)
            return None

    def begin(self) -> None:
        """A batch begins."""
        faulthandler.dump_traceback_later(self._seconds, file=self._file)

    def end(self) -> None:
        """It is done; what was written about it is no more true."""
        faulthandler.cancel_dump_traceback_later()
        if self._file.tell():
            self._file.seek(0)
            self._file.truncate()
