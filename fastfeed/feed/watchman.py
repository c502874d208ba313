"""A thread that says which sample a worker hangs at, while the main process waits for it."""

import logging
import threading
import time
from collections.abc import Callable

LOG = logging.getLogger("fastfeed.loader")


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
        threading.Thread(target=self._run, name="fastfeed-watch", daemon=True).start()

    def waiting(self) -> None:
        """The main process begins to wait for a batch."""
        self._told, self._since = False, time.monotonic()

    def arrived(self) -> None:
        """It came."""
        self._since = None

    def stop(self) -> None:
        """No more."""
        self._stop.set()

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
