"""The background filling of a cache: all of the data once, in the order in which it lies there, by one process a machine.

A thread fetches block after block while training runs, so a slow place is read sequentially, and what is wanted next is there
already more and more often. Waiting for disks, networks and locks lets go of Python's lock, so the thread costs the process
that it runs in some 50 us a block. Where several processes use a cache, one of them fills it; when it ends, another goes on.
"""

import logging
import os
import threading
import weakref

from fastfeed.store.cached import CachedStore
from fastfeed.store.cachefolder import CacheUnusable
from fastfeed.store.shelf import Shelf

LOG = logging.getLogger("fastfeed.cache")
_TURN_SECONDS = 1.0
"""How often a process asks whether it is its turn."""


class Filling:
    """Fills the cache of a store until all is in, there is no room, or nobody has the store any more.

    Args:
        store: It; it is not kept alive.
    """

    def __init__(self, store: CachedStore) -> None:
        ended = threading.Event()
        self._thread = threading.Thread(target=_run, args=(weakref.ref(store), ended), name="fastfeed-cache", daemon=True)
        self._thread.start()
        # At the end of the program it comes before the cache is left: whatever was made last is finalized first.
        self.stop = weakref.finalize(self, _stop, self._thread, ended, os.getpid())
        """End; wait until the block that is being fetched is in."""

    @property
    def runs(self) -> bool:
        """Whether there may be more to fetch."""
        return self._thread.is_alive()


def _stop(thread: threading.Thread, ended: threading.Event, process: int) -> None:
    if os.getpid() != process:
        return  # a child has no such thread
    ended.set()
    if thread is not threading.current_thread():  # which has dropped the last reference to the store
        thread.join()


def _run(store: "weakref.ref[CachedStore]", ended: threading.Event) -> None:
    turn = None
    try:
        while turn is None and not ended.is_set():
            found = store()
            if found is None or found.shelf is None:
                return
            turn = found.shelf.take_turn()
            del found
            if turn is None:
                ended.wait(_TURN_SECONDS)
        _fill(store, ended)
    except (OSError, CacheUnusable) as error:
        LOG.info("a cache is not filled any more: %s", error)
    finally:
        if turn is not None:
            Shelf.give_turn(turn)


def _fill(store: "weakref.ref[CachedStore]", ended: threading.Event) -> None:
    """Block by block; in between nothing here keeps the store."""
    number: int | None = 0
    while number is not None and not ended.is_set():
        found = store()
        number = None if found is None else found.fill_from(number)
        del found
