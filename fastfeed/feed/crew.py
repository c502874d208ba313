"""The workers of one inner loader in words: which samples they are at, when they hang or have died."""

import re
import signal
import threading
import weakref
from collections.abc import Callable
from typing import Any

from fastfeed.feed.naming import indices_text, sample_name
from fastfeed.feed.obstacles import imports_unguarded
from fastfeed.feed.tasks import TaskOrder
from fastfeed.feed.workers import NOT_BEGUN, Workers

_PIDS = re.compile(r"pid\(?s?\)? ?\(?([0-9, ]+)")
_ABOUT_WORKERS = ("DataLoader worker (pid", "DataLoader timed out")
DYING_SECONDS = 2.0
"""How long an error that a worker's death may have caused waits to know."""
_HINT = "A worker that is killed mostly ran out of memory; a crash is mostly in a decoder: look at the samples named here"


def about_workers(error: BaseException) -> bool:
    """Whether an exception is torch's, about a worker that died or took too long."""
    return isinstance(error, RuntimeError) and str(error).startswith(_ABOUT_WORKERS)


class WorkerLost(RuntimeError):
    """torch's error about a worker, with the samples that it was at."""


class Crew:
    """What is said about workers. It keeps no pass.

    Args:
        workers: The workers; None where there are none.
        order: What they fetch.
        dataset: The user's.
        context: How they are started: the loader's multiprocessing_context.
    """

    def __init__(self, workers: Workers | None, order: TaskOrder, dataset: Any, context: Any = None) -> None:  # noqa: ANN401
        self.workers, self._order, self._dataset, self._context = workers, order, dataset, context
        self.told: set[int] = set()
        """Workers whose end was told."""
        if workers is not None:
            _CREWS.add(self)

    @property
    def begun(self) -> bool:
        """Whether all of its workers have begun to work."""
        return self.workers is None or self.workers.begun

    def doing(self, worker: int) -> str:
        """Which sample a worker is at."""
        assert self.workers is not None
        batch, position = self.workers.at(worker)
        drawn = self._order.current.pending.get(batch)
        if batch == NOT_BEGUN:
            return "before its first batch"
        if drawn is None:
            return f"after batch {batch}"
        whole = f"batch {batch} {indices_text(drawn.indices)}"
        if not self._order.batched:
            return f"at {sample_name(self._dataset, drawn.indices)}, batch {batch}"
        if position < 0:
            return f"at {whole}" if self.workers.busy_seconds(worker) is not None else f"done with {whole}"
        index = next((index for at, index in enumerate(drawn.indices) if at == position), None)
        return f"at {sample_name(self._dataset, index)}, number {position} of {whole}"

    def hanging(self, seconds: float) -> list[str]:
        """A text for each worker that is at its batch for longer, with its stack."""
        workers = self.workers
        if workers is None:
            return []
        late = [worker for worker in range(workers.count) if (workers.busy_seconds(worker) or 0.0) > seconds]
        return [f"worker {worker} is {self.doing(worker)}\n{workers.stack_of(worker)}".rstrip() for worker in late]

    def obituary(self, patience_seconds: float) -> str | None:
        """That workers have died, in words that begin as torch's; None where none has."""
        dead = {} if self.workers is None else self.workers.dead(patience_seconds)
        if self.workers is None or not dead:
            return None
        return "; ".join(f"DataLoader worker (pid {self.workers.pid_of(worker)}) {how}" for worker, how in dead.items())

    def named(self, error: BaseException) -> list[int]:
        """The workers whose process numbers are in torch's words."""
        assert self.workers is not None
        pids = [int(pid) for found in _PIDS.finditer(str(error)) for pid in re.findall(r"\d+", found.group(1))]
        return sorted({worker for pid in pids if (worker := self.workers.worker_of(pid)) is not None})

    def lost(self, error: BaseException) -> WorkerLost:
        """Torch's words about a worker, with the samples that were on their way, and stacks where workers hang."""
        if isinstance(error, WorkerLost):
            return error
        assert self.workers is not None
        text = str(error).strip().removesuffix(".")
        lines, stacks = [], []
        named = self.named(error)
        self.told.update(named)
        meant = named or range(self.workers.count)
        for worker in meant:
            lines.append(f"worker {worker} was {self.doing(worker)}")
            stacks.append(self.workers.stack_of(worker) if self.workers.busy_seconds(worker) is not None else "")
        unguarded = imports_unguarded(self._context) if all(self.workers.at(one)[0] == NOT_BEGUN for one in meant) else None
        hint = f". {unguarded}" if unguarded else "" if "timed out" in text else f". {_HINT}"
        lost = WorkerLost("\n".join([f"{text}: {'; '.join(lines)}{hint}", *filter(None, stacks)]))
        lost.__cause__ = error
        return lost


_CREWS: weakref.WeakSet[Crew] = weakref.WeakSet()


class _NamingHandler:
    """torch's handler of SIGCHLD raises wherever the main thread is, mostly in the training step: there too with names."""

    def __init__(self, handler: Callable[[int, Any], Any]) -> None:
        self._handler = handler

    def __call__(self, number: int, frame: Any) -> None:  # noqa: ANN401 - a frame or None
        try:
            self._handler(number, frame)
        except RuntimeError as error:
            own = [(crew, named) for crew in _CREWS if about_workers(error) and (named := crew.named(error))]
            if not own or isinstance(error, WorkerLost):
                raise
            crew, named = own[0]
            if not crew.told.issuperset(named):
                raise crew.lost(error) from error
            # torch's handler raises again whenever another child ends, by then in the middle of whatever handles the first


def name_deaths() -> None:
    """Put names into what torch's handler of SIGCHLD raises; it is there once workers were started."""
    if threading.current_thread() is not threading.main_thread():
        return  # only the main thread may, and torch has set no handler either
    handler = signal.getsignal(signal.SIGCHLD)
    if callable(handler) and not isinstance(handler, _NamingHandler):
        signal.signal(signal.SIGCHLD, _NamingHandler(handler))
