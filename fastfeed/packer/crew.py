"""Worker processes: hands them orders, hears them, and lets none of them pass away unnoticed.

They are started with subprocess, not multiprocessing: no main guard is needed, nothing is inherited from a program that
has threads or CUDA, and nothing is pickled.
"""

import os
import selectors
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import IO, Any, Protocol, Self

from fastfeed.config import package_folder
from fastfeed.errors import WorkerDied
from fastfeed.source import wire
from fastfeed.source.wire import Message, Task
from fastfeed.units import format_signal

_TAIL_BYTES = 4000
_AHEAD = 2
"""Tasks that a worker has: it goes on with the second while this process makes the next."""
_MOST_LISTERS = 16
"""Workers that share a scan: what more of them find, this process cannot take in as fast."""
_START = """
import sys
site = [at for at, path in enumerate(sys.path) if path.endswith(("site-packages", "dist-packages"))]
sys.path.insert(site[0] if site else len(sys.path), sys.argv[1])
from importlib import import_module
import_module(sys.argv[2]).main()
"""
"""This very fastfeed, but nothing from the working directory (-P), and no file beside fastfeed before the standard library."""


class Process(Protocol):
    """What a crew needs of a process: subprocess.Popen has it."""

    stdin: IO[bytes] | None
    stdout: IO[bytes] | None
    stderr: IO[bytes] | None
    pid: int

    def kill(self) -> None:
        """SIGKILL."""

    def wait(self) -> int:
        """Its exit code, negative for a signal."""

    def poll(self) -> int | None:
        """The same, None while it runs."""


def start_worker(module: str = "fastfeed.packer.process", stdin: int = subprocess.PIPE) -> Process:
    """A fresh interpreter that runs a worker's main().

    Args:
        module: Where that main() is; the number of this process is its last argument.
        stdin: Descriptor of what its stdin is; by default a pipe.
    """
    return subprocess.Popen(  # noqa: S603 - our own code, by this interpreter
        [sys.executable, "-P", "-X", "utf8", "-c", _START, package_folder(), module, str(os.getpid())],
        stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, process_group=0,
    )  # fmt: skip


class _Worker:
    """One process, the tasks that it has, and what it said."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.tasks: deque[Task] = deque()
        """Given and not yet answered: the first is in work, the others wait in the pipe or in the process."""
        self.ready = self.gone = False
        """Whether it has started, and whether it ended while it had nothing to do."""
        self.unread, self.complaint = wire.Unread(), b""

    def pipe(self, name: str) -> IO[bytes]:
        pipe: IO[bytes] | None = getattr(self.process, name)
        assert pipe is not None
        return pipe

    def give(self, task: Task) -> None:
        self.tasks.append(task)
        self.tell(task.encode())

    def tell(self, message: bytes) -> None:
        try:
            self.pipe("stdin").write(message)
            self.pipe("stdin").flush()
        except BrokenPipeError:
            return  # it is dead: its closed stdout says so, and end() tells why

    def close(self) -> None:
        self.process.wait()
        for name in ("stdin", "stdout", "stderr"):
            try:
                self.pipe(name).close()
            except BrokenPipeError:
                continue  # an order was still in the pipe of a dead worker


class Crew:
    """Workers that share first a scan and then the writing of shards. They are started when they are needed first.

    Args:
        count: How many there are at most.
        start: Starts one.
    """

    def __init__(self, count: int, start: Callable[[], Process] = start_worker) -> None:
        self.count, self._start_one = count, start
        self._workers: list[_Worker] = []
        self._selector: selectors.BaseSelector

    def __enter__(self) -> Self:
        self._selector = selectors.DefaultSelector()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end(self._workers)
        self._selector.close()

    def _end(self, workers: Sequence[_Worker]) -> None:
        for worker in workers:
            worker.process.kill()
        for worker in workers:
            for name in ("stdout", "stderr"):
                if worker.pipe(name) in self._selector.get_map():
                    self._selector.unregister(worker.pipe(name))
            worker.close()

    def _have(self, count: int) -> None:
        """So many living workers. The new ones start side by side, before the first of them gets a task."""
        living = [worker for worker in self._workers if worker.process.poll() is None]
        self._end([worker for worker in self._workers if worker not in living[:count]])
        self._workers = living[:count]
        while len(self._workers) < count:
            with _signals_held():  # between its start and the list, Ctrl-C would leave a worker that nobody ends
                worker = _Worker(self._start_one())
                self._workers.append(worker)
            for name in ("stdout", "stderr"):
                self._selector.register(worker.pipe(name), selectors.EVENT_READ, (worker, name))

    def share(
        self,
        following: Callable[[], Task | None],
        hear: Callable[[Task, Message], None],
        meanwhile: Callable[[], bool],
    ) -> None:
        """Have tasks done that come of each other, as the folders of a scan do.

        Args:
            following: Gives the next one, None where there is none at present.
            hear: Called with each task that is done, and what came of it. What it raises ends the run.
            meanwhile: Does a little here, while there is nothing to hear; gives whether there was anything to do.

        Raises:
            WorkerDied: A worker ended before it was told to.
        """
        self._have(max(1, min(self.count, _MOST_LISTERS) - 1))  # this process is one of those that share

        def answered(task: Task, message: Message) -> None:
            if message.head["event"] != "progress":
                hear(task, message)

        self._carry_out(following, answered, meanwhile)

    def prepare(self) -> None:
        """Let those that shared a scan, and one more, load what the writing of shards needs, while there is none yet."""
        if self._workers:
            self._have(min(self.count, len(self._workers) + 1))
        for worker in self._workers:
            worker.tell(wire.encode({"order": "prepare"}))

    def run(self, orders: Iterator[Task], hear: Callable[[dict[str, Any]], None], count: int) -> None:
        """Have every order carried out.

        Args:
            orders: Taken one by one as workers come free.
            hear: Called with each event: progress, done, inputs, disk. What it raises ends the run.
            count: Workers, at most as many as the crew has.

        Raises:
            WorkerDied: A worker ended before it was told to; the message names the inputs that it had.
        """
        self._have(count)
        self._carry_out(lambda: next(orders, None), lambda _, message: hear(message.head), None)

    def _carry_out(
        self,
        following: Callable[[], Task | None],
        hear: Callable[[Task, Message], None],
        meanwhile: Callable[[], bool] | None,
    ) -> None:
        while True:
            self._feed(following, at_once=meanwhile is None)
            heard = self._selector.select(0) if meanwhile is not None else []
            if not heard:
                if meanwhile is not None and meanwhile():
                    continue
                if not any(worker.tasks for worker in self._workers):
                    return
                heard = self._selector.select()
            for key, _ in heard:
                self._answered(key, hear)

    def _answered(self, key: selectors.SelectorKey, hear: Callable[[Task, Message], None]) -> None:
        """Take in what a worker wrote, or that it has gone."""
        worker, name = key.data
        data = os.read(key.fd, 1 << 16)
        if name == "stderr":
            worker.complaint = (worker.complaint + data)[-_TAIL_BYTES:]
            if not data:
                self._selector.unregister(key.fileobj)
        elif data:
            self._listen(worker, data, hear)
        elif worker.tasks:
            raise _died(worker)
        else:  # killed while it had nothing to do: nothing is lost
            worker.ready, worker.gone = False, True
            self._selector.unregister(key.fileobj)

    def _feed(self, following: Callable[[], Task | None], *, at_once: bool) -> None:
        """Give each worker what it lacks. Not at once: only those that have started, so that no task waits for one."""
        for _ in range(_AHEAD):
            for worker in self._workers:
                if len(worker.tasks) < _AHEAD and not worker.gone and (at_once or worker.ready):
                    task = following()
                    if task is None:
                        return
                    worker.give(task)

    @staticmethod
    def _listen(worker: _Worker, data: bytes, hear: Callable[[Task, Message], None]) -> None:
        for message in worker.unread.feed(data):
            match message.head["event"]:
                case "ready":
                    worker.ready = True
                case "progress":
                    hear(worker.tasks[0], message)
                case _:
                    hear(worker.tasks.popleft(), message)


@contextmanager
def _signals_held() -> Iterator[None]:
    """SIGINT and SIGTERM wait. Python answers them in the main thread alone, so elsewhere there is nothing to hold."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    waiting: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda caught, _: waiting.append(caught)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        for caught in waiting:
            signal.raise_signal(caught)


def _died(worker: _Worker) -> WorkerDied:
    """Why a worker is gone, with the inputs that it had."""
    code = worker.process.wait()
    rest = worker.pipe("stderr").read()
    complaint = (worker.complaint + rest).decode(errors="replace").strip()
    if code < 0:
        how = f"was killed by {format_signal(-code)}"
        hint = "The kernel kills so when memory runs out: try fewer --workers. " if code == -signal.SIGKILL else ""
    else:
        how, hint = f"ended with exit code {code}", ""
    task = worker.tasks[0]
    msg = f"a worker process {how} while it {task.doing}" + (f": {complaint}" if complaint else "")
    hint += "Nothing is lost: run the same command again"
    if task.shard is None:
        return WorkerDied(msg, hint=hint + ".")
    return WorkerDied(msg, shard=task.shard, hint=hint + ", it continues with this shard.")
