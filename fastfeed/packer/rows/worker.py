"""A process that writes shards of rows: a line with the source, then orders in; progress and results out.

It is a fresh interpreter where the source can be told in JSON (files), else a fork of the process that holds the live
object, as torch's DataLoader makes its workers on Linux: nothing is pickled, and what the object holds open is shared.
"""

import io
import os
import queue
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import IO, Any, BinaryIO

from fastfeed.packer.rows import fork
from fastfeed.packer.rows.source import Reading, RowReader
from fastfeed.packer.rows.writer import RowOrder, RowsFailed, RowShardWriter
from fastfeed.packer.worker import DiskFailed
from fastfeed.source import wire

_HOMES = {
    "files": ("fastfeed.packer.rows.files", "FileRows"),
    "parquet": ("fastfeed.packer.rows.tablerows", "TableRows"),
    "lines": ("fastfeed.packer.rows.lines", "LineRows"),
    "images": ("fastfeed.packer.rows.images", "ReencodedRows"),
    "treated": ("fastfeed.packer.rows.treated", "TreatedRows"),
    "tars": ("fastfeed.packer.rows.tars", "TarRows"),
}


def rebuild(spec: Mapping[str, object]) -> RowReader:
    """The reader that a spec tells of."""
    home, name = _HOMES[str(spec["kind"])]
    source: RowReader = getattr(import_module(home), name).from_spec(spec)
    return source


def serve(source: RowReader, orders: BinaryIO, events: int) -> None:
    """Write shards until the parent goes.

    Args:
        source: Gives the rows.
        orders: Where orders come from.
        events: Descriptor to which events go, a line of JSON each.
    """

    def say(**event: object) -> None:
        view = memoryview(wire.encode(event))
        while view:
            view = view[os.write(events, view) :]

    say(event="ready")
    for message in _orders(orders):
        order = RowOrder.decode(message)
        try:
            RowShardWriter(order, lambda files, size: say(event="progress", files=files, bytes=size)).run(source)
            say(event="done", shard=order.number)
        except RowsFailed as error:
            failed = [[row.number, row.name, row.kind, row.why] for row in error.rows]
            say(event="inputs", shard=order.number, failed=failed)
        except DiskFailed as error:
            say(event="disk", shard=order.number, what=str(error.args[0]), errno=error.args[1])


def _orders(file: BinaryIO) -> Iterator[wire.Message]:
    """A thread reads them, so that a parent's death ends this process in the midst of a shard."""
    waiting: queue.SimpleQueue[wire.Message] = queue.SimpleQueue()

    def listen() -> None:
        try:
            while order := wire.read(file):
                waiting.put(order)
        finally:
            os._exit(1)

    threading.Thread(target=listen, daemon=True).start()
    while True:
        yield waiting.get()


def main() -> None:
    """In a fresh interpreter: the source's spec is the first message on stdin."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    events = os.dup(1)
    os.dup2(2, 1)  # whatever a library prints must not be taken for an event
    first = wire.read(sys.stdin.buffer)
    if first is not None:
        serve(rebuild(first.head["spec"]), sys.stdin.buffer, events)


class Forked:
    """A fork of this process that serves a live source; looks like subprocess.Popen as far as the crew uses it.

    Args:
        source: The live object.
        foreign: Descriptors that the fork must not keep: a lock lives as long as any process holds it.
    """

    _parents_ends: set[int] = set()  # noqa: RUF012 - of all forks: a child must not keep its siblings' pipes open

    def __init__(self, source: RowReader, foreign: Sequence[int] = ()) -> None:
        pipes = [os.pipe() for _ in range(3)]
        (orders, self._orders), (self._events, events), (self._words, words) = pipes
        self._reading = Reading()
        foreign = [*self._parents_ends, *foreign, self._orders, self._events, self._words]
        _tell_reading(source, self._reading)
        self.pid = fork.start(lambda: serve(source, os.fdopen(orders, "rb"), events), words, foreign)
        _tell_reading(source, None)
        for descriptor in (orders, events, words):
            os.close(descriptor)
        self._own = {self._orders, self._events, self._words}
        self._parents_ends.update(self._own)
        self.stdin: IO[bytes] | None = os.fdopen(self._orders, "wb")
        self.stdout: IO[bytes] | None = os.fdopen(self._events, "rb")
        self.stderr: IO[bytes] | None = _Words(self._words, self._reading)
        self.returncode: int | None = None

    def kill(self) -> None:
        """SIGKILL, also to what its code has started."""
        if self.returncode is None:
            fork.kill(self.pid)

    def poll(self) -> int | None:
        """Its exit code, None while it runs."""
        return self._reap(os.WNOHANG)

    def wait(self) -> int:
        """Its exit code, negative for a signal."""
        code = self._reap(0)
        assert code is not None
        return code

    def _reap(self, how: int) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, how)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
                self._parents_ends.difference_update(self._own)
        return self.returncode


def _tell_reading(source: Any, reading: Reading | None) -> None:  # noqa: ANN401 - a source, maybe within another
    """Where a live object's source, which may be within another, notes what it reads."""
    while not hasattr(source, "reading") and hasattr(source, "inner"):
        source = source.inner
    if hasattr(source, "reading"):
        source.reading = reading


class _Words(io.FileIO):
    """What a fork writes to its stderr; its last words say which sample it was reading."""

    def __init__(self, descriptor: int, reading: Reading) -> None:
        super().__init__(descriptor, "rb")
        self._reading = reading

    def readall(self) -> bytes:
        """To the end."""
        words, told = super().readall(), self._reading.told()
        return words + f" ({told})".encode() if told else words

    def read(self, size: int | None = -1, /) -> bytes:
        """At most size bytes, or to the end."""
        return self.readall() if size is None or size < 0 else super().read(size) or b""

    def close(self) -> None:
        """And give the shared memory back."""
        super().close()
        self._reading.close()
