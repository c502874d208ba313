"""A worker process: one order in, progress and a result out. It lists folders and writes shards.

Python starts it, so what it imports is time that others wait: what only the writing of shards needs comes when asked for.
When the parent dies, so does this process.
"""

import os
import queue
import signal
import sys
import threading
from collections.abc import Iterator

from fastfeed.source import wire
from fastfeed.source.lister import ListOrder, walk


def main() -> None:
    """Carry out orders until the parent goes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    say({"event": "ready"})
    for order in _orders():
        if order.head["order"] == "list":
            _write(walk(ListOrder.decode(order)).encode())
            continue
        from fastfeed.packer.worker import Order, carry_out  # noqa: PLC0415 - half of what a start takes

        if order.head["order"] == "write":
            carry_out(Order.decode(order), say)


def say(event: dict[str, object]) -> None:
    """Tell the parent."""
    _write(wire.encode(event))


def _write(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


def _orders() -> Iterator[wire.Message]:
    """Orders from stdin. A thread reads them, so that a parent's death ends this process in the midst of a shard."""
    waiting: queue.SimpleQueue[wire.Message] = queue.SimpleQueue()

    def listen() -> None:
        try:
            while order := wire.read(sys.stdin.buffer):
                waiting.put(order)
        finally:
            os._exit(1)  # the parent closed the pipe or died: the temporary file is swept by the next run

    threading.Thread(target=listen, daemon=True).start()
    while True:
        yield waiting.get()


if __name__ == "__main__":
    main()
