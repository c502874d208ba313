"""Worker processes: hands them orders, hears them, and lets none of them pass away unnoticed.

They are started with subprocess, not multiprocessing: no main guard is needed, nothing is inherited from a program that
has threads or CUDA, and nothing is pickled.
"""

import json
import os
import selectors
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import IO, Any, Protocol, Self

from fastfeed.config import package_folder
from fastfeed.errors import WorkerDied

_TAIL_BYTES = 4000
_AHEAD = 2
"""Orders that a worker has: it goes on with the second while this process makes the next."""
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


class AnyOrder(Protocol):
    """What a crew needs of an order."""

    @property
    def target(self) -> str:
        """Path of the shard."""

    @property
    def paths(self) -> list[str]:
        """Its inputs, for messages."""

    def encode(self) -> bytes:
        """As it passes the pipe."""


def start_worker(module: str = "fastfeed.packer.worker") -> Process:
    """A fresh interpreter that runs a worker's main().

    Args:
        module: Where that main() is.
    """
    return subprocess.Popen(  # noqa: S603 - our own code, by this interpreter
        [sys.executable, "-P", "-X", "utf8", "-c", _START, package_folder(), module], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, process_group=0,
    )  # fmt: skip


class _Worker:
    """One process, the order that it has, and what it said."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.orders: deque[AnyOrder] = deque()
        """Given and not yet reported on: the first is in work, the others wait in the pipe or in the process."""
        self.unread, self.complaint = b"", b""

    @property
    def order(self) -> AnyOrder | None:
        """The one in work."""
        return self.orders[0] if self.orders else None

    def pipe(self, name: str) -> IO[bytes]:
        pipe: IO[bytes] | None = getattr(self.process, name)
        assert pipe is not None
        return pipe

    def give(self, order: AnyOrder) -> None:
        self.orders.append(order)
        try:
            self.pipe("stdin").write(order.encode())
            self.pipe("stdin").flush()
        except BrokenPipeError:
            return  # it is dead: its closed stdout says so, and end() tells why


class Crew:
    """A fixed number of workers.

    Args:
        count: How many.
        start: Starts one.
    """

    def __init__(self, count: int, start: Callable[[], Process] = start_worker) -> None:
        self.count, self._start_one = count, start
        self._workers: list[_Worker] = []
        self._selector = selectors.DefaultSelector()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.wait()
            for name in ("stdin", "stdout", "stderr"):
                try:
                    worker.pipe(name).close()
                except BrokenPipeError:
                    continue  # an order was still in the pipe of a dead worker
        self._selector.close()

    def _start(self) -> None:
        """All of them before the first order, so that they start side by side."""
        for _ in range(self.count):
            with _signals_held():  # between its start and the list, Ctrl-C would leave a worker that nobody ends
                worker = _Worker(self._start_one())
                self._workers.append(worker)
            for name in ("stdout", "stderr"):
                self._selector.register(worker.pipe(name), selectors.EVENT_READ, (worker, name))

    def run(self, orders: Iterator[AnyOrder], hear: Callable[[dict[str, Any]], None]) -> None:
        """Have every order carried out.

        Args:
            orders: Taken one by one as workers come free.
            hear: Called with each event: progress, done, inputs, disk. What it raises ends the run.

        Raises:
            WorkerDied: A worker ended before it was told to; the message names the inputs that it had.
        """
        self._start()
        for worker, order in zip(self._workers * _AHEAD, orders, strict=False):  # in this order: zip must not take one too many
            worker.give(order)
        while any(worker.orders for worker in self._workers):
            for key, _ in self._selector.select():
                worker, name = key.data
                data = os.read(key.fd, 1 << 16)
                if name == "stderr":
                    worker.complaint = (worker.complaint + data)[-_TAIL_BYTES:]
                    if not data:
                        self._selector.unregister(key.fileobj)
                elif data:
                    self._listen(worker, data, orders, hear)
                elif worker.orders:
                    raise _end(worker)
                else:  # killed while it had nothing to do: nothing is lost
                    self._selector.unregister(key.fileobj)

    def _listen(self, worker: _Worker, data: bytes, orders: Iterator[AnyOrder], hear: Callable[[dict[str, Any]], None]) -> None:
        *lines, worker.unread = (worker.unread + data).split(b"\n")
        for line in lines:
            event = json.loads(line)
            if event["event"] != "progress":
                worker.orders.popleft()
            hear(event)
            if len(worker.orders) < _AHEAD:
                following = next(orders, None)
                if following is not None:
                    worker.give(following)


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


def _end(worker: _Worker) -> WorkerDied:
    """Why a worker is gone, with the inputs that it had."""
    code = worker.process.wait()
    rest = worker.pipe("stderr").read()
    complaint = (worker.complaint + rest).decode(errors="replace").strip()
    if code < 0:
        how = f"was killed by {signal.Signals(-code).name}"
        hint = "The kernel kills so when memory runs out: try fewer --workers. " if code == -signal.SIGKILL else ""
    else:
        how, hint = f"ended with exit code {code}", ""
    order = worker.orders[0]
    files = [path for path in order.paths if path]
    inputs = f"{len(files)} inputs from {files[0]!r} to {files[-1]!r}" if files else "no inputs"
    msg = f"a worker process {how} while it packed {inputs}" + (f": {complaint}" if complaint else "")
    hint += "Nothing is lost: run the same command again, it continues with this shard."
    return WorkerDied(msg, shard=os.path.basename(order.target), hint=hint)
