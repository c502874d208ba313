"""A thread that says which sample a worker hangs at, while the main process waits for it."""

import atexit
import logging
import threading
import time
import weakref
from collections.abc import Callable

LOG = logging.getLogger("fastfeed.loader")
_END_SECONDS = 2.0


class Watchman:
    """Logs once for each wait that takes too long.

    Args:
        hanging: Gives a text for each worker that is at its batch for too long. It must not keep the pass: who drops that
            ends its workers.
        seconds: What too long is.
    """

    def __init__(self, hanging: Callable[[], list[str]], seconds: float) -> None:
        self._hanging, self._seconds = hanging, seconds
        self._since: float | None = None
        self._told = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fastfeed-watch", daemon=True)
        self._thread.start()
        _WATCHMEN.add(self)

    def waiting(self) -> None:
        """The main process begins to wait for a batch."""
        self._told, self._since = False, time.monotonic()

    def arrived(self) -> None:
        """It came."""
        self._since = None

    def stop(self) -> None:
        """No more."""
        self._hanging = _nobody  # what it knows is let go here, not when its thread wakes up: see _end
        self._stop.set()

    def end(self) -> None:
        """No more, and its thread has ended, if it does so soon."""
        self.stop()
        self._thread.join(_END_SECONDS)

    def _run(self) -> None:
        pause = min(1.0, self._seconds / 4)
        while not self._stop.wait(pause):
            since = self._since
            waited = 0.0 if since is None else time.monotonic() - since
            if self._told or waited <= self._seconds:
                continue
            for text in self._hanging():  # none yet, where a worker began its batch after the wait did: the next look finds it
                self._told = True
                LOG.warning("no batch for %.0f s: %s", waited, text)


def _nobody() -> list[str]:
    return []


_WATCHMEN: weakref.WeakSet[Watchman] = weakref.WeakSet()


@atexit.register
def _end() -> None:
    """End the threads before the interpreter: one that lets go of a tensor meanwhile would abort the process.

    (Python 3.11 ends a daemon thread that asks for the GIL by unwinding its stack, and C++ that frees a tensor terminates.)
    """
    for watchman in list(_WATCHMEN):
        watchman.end()
