"""A process that writes shards of rows: a line with the source, then orders in; progress and results out.

It is a fresh interpreter where the source can be told in JSON (files), else a fork of the process that holds the live
object, as torch's DataLoader makes its workers on Linux: nothing is pickled, and what the object holds open is shared.
"""

import json
import os
import queue
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import IO, BinaryIO

from fastfeed.packer.rows.source import RowSource
from fastfeed.packer.rows.writer import RowOrder, RowsFailed, RowShardWriter
from fastfeed.packer.worker import DiskFailed

_HOMES = {
    "files": ("fastfeed.packer.rows.files", "FileRows"),
    "parquet": ("fastfeed.packer.rows.parquet", "ParquetRows"),
    "lines": ("fastfeed.packer.rows.lines", "LineRows"),
    "images": ("fastfeed.packer.rows.images", "ReencodedRows"),
    "tars": ("fastfeed.packer.rows.tars", "TarRows"),
}


def rebuild(spec: Mapping[str, object]) -> RowSource:
    """The source that a spec tells of."""
    home, name = _HOMES[str(spec["kind"])]
    source: RowSource = getattr(import_module(home), name).from_spec(spec)
    return source


def serve(source: RowSource, orders: BinaryIO, events: int) -> None:
    """Write shards until the parent goes.

    Args:
        source: Gives the rows.
        orders: Where orders come from.
        events: Descriptor to which events go, a line of JSON each.
    """

    def say(**event: object) -> None:
        os.write(events, json.dumps(event).encode() + b"\n")

    for order in _orders(orders):
        try:
            writer = RowShardWriter(order, lambda files, size: say(event="progress", files=files, bytes=size))
            say(event="done", shard=order.shard, sha256=writer.run(source))
        except RowsFailed as error:
            failed = [[row.number, row.name, row.kind, row.why] for row in error.rows]
            say(event="inputs", shard=order.shard, failed=failed)
        except DiskFailed as error:
            say(event="disk", shard=order.shard, what=str(error.args[0]), errno=error.args[1])


def _orders(file: BinaryIO) -> Iterator[RowOrder]:
    """A thread reads them, so that a parent's death ends this process in the midst of a shard."""
    waiting: queue.SimpleQueue[RowOrder] = queue.SimpleQueue()

    def listen() -> None:
        try:
            while order := RowOrder.read(file):
                waiting.put(order)
        finally:
            os._exit(1)

    threading.Thread(target=listen, daemon=True).start()
    while True:
        yield waiting.get()


def main() -> None:
    """In a fresh interpreter: the source's spec is the first line of stdin."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    events = os.dup(1)
    os.dup2(2, 1)  # whatever a library prints must not be taken for an event
    spec = json.loads(sys.stdin.buffer.readline())
    serve(rebuild(spec), sys.stdin.buffer, events)


class Forked:
    """A fork of this process that serves a live source; looks like subprocess.Popen as far as the crew uses it.

    Args:
        source: The live object.
    """

    _parents_ends: set[int] = set()  # noqa: RUF012 - of all forks: a child must not keep its siblings' pipes open

    def __init__(self, source: RowSource) -> None:
        pipes = [os.pipe() for _ in range(3)]
        (orders, self._orders), (self._events, events), (self._words, words) = pipes
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _child(source, orders, events, words, [*self._parents_ends, self._orders, self._events, self._words])
        for descriptor in (orders, events, words):
            os.close(descriptor)
        self._own = {self._orders, self._events, self._words}
        self._parents_ends.update(self._own)
        self.stdin: IO[bytes] | None = os.fdopen(self._orders, "wb")
        self.stdout: IO[bytes] | None = os.fdopen(self._events, "rb")
        self.stderr: IO[bytes] | None = os.fdopen(self._words, "rb")
        self.returncode: int | None = None

    def kill(self) -> None:
        """SIGKILL."""
        if self.returncode is None:
            os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        """Its exit code, negative for a signal."""
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            self._parents_ends.difference_update(self._own)
        return self.returncode


def _child(source: RowSource, orders: int, events: int, words: int, foreign: list[int]) -> None:  # noqa: PLR0917 - its pipes
    """The fork's whole life."""
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for descriptor in foreign:
            os.close(descriptor)
        os.dup2(words, 1)
        os.dup2(words, 2)
        torch = sys.modules.get("torch")
        if torch is not None:  # OpenMP's threads are not in the fork, and waiting for them would be forever
            torch.set_num_threads(1)
        serve(source, os.fdopen(orders, "rb"), events)
    except BaseException:  # noqa: BLE001 - the process ends here, and its last words go to the parent
        import traceback  # noqa: PLC0415 - only in this case

        os.write(words, traceback.format_exc().encode(errors="backslashreplace"))
    finally:
        os._exit(1)
