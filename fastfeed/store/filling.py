"""The background filling of a cache: all of the data once, in the order in which it lies there, by one process a machine.

A thread fetches piece after piece while training runs, so a slow place is read sequentially, and what is wanted next is there
already more and more often. Waiting for disks, networks and locks lets go of Python's lock; and the thread rests so long behind
each piece that it has at most a fifth of one processor, however fast the place is. Where several processes use a cache, one of
them fills it; when it ends, another goes on.
"""

import logging
import os
import threading
import time
import weakref
from array import array
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

from fastfeed.store.cached import FETCH_NS, FETCHED_BYTES
from fastfeed.store.cachefolder import CacheUnusable
from fastfeed.store.shelf import Shelf
from fastfeed.trace import done_metering, metering
from fastfeed.units import format_count, format_seconds, format_size

LOG = logging.getLogger("fastfeed.cache")
_TURN_SECONDS = 1.0
"""How often a process asks whether it is its turn."""
_SHARE = 0.2
"""Of one processor, that a thread takes from the process that trains."""
_ENTRIES, _BYTES, _NS, _STATE, SUMS = range(5)
"""Of what is added up: what was fetched, its bytes, the time that took; how far it is; how many numbers these are."""
BEGINS, WAITS, GOES_ON, AT_THE_END, FULL, UNUSABLE = range(6)
_STATES = (
    "it begins", "another process does it", "it goes on", "it came to the end", "it ended where there was no more room",
    "it ended, since the cache could not be used any more",
)  # fmt: skip
_STOPPED = "it was stopped"
_NOTHING = nullcontext()


class Sums(Protocol):
    """Numbers that are added up: of this process, or in memory that it shares."""

    def __getitem__(self, at: int, /) -> int: ...

    def __setitem__(self, at: int, number: int, /) -> None: ...


class Fillable(Protocol):
    """What has a cache that can be filled. The process that fills it alone calls fill_from()."""

    @property
    def shelf(self) -> Shelf | None:
        """The cache; None where it is not used any more."""

    @property
    def entries(self) -> int:
        """How many pieces there are."""

    def fill_from(self, number: int) -> int | None:
        """Fetch a piece, if it is not kept yet; the number of the next one, None where there is none, or no room.

        Args:
            number: Of the piece, from 0.

        Raises:
            OSError: The cache cannot be used.
            CacheUnusable: The same.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """What was fetched in the background, in the order in which it lies there, since the cache was opened."""

    pieces: int
    """Blocks of shards, files, or samples."""
    fetched_bytes: int
    fetch_seconds: float
    """That fetching took, beside training."""
    state: str
    """Whether it goes on; a sentence."""

    def __str__(self) -> str:
        size, spent = format_size(self.fetched_bytes), format_seconds(self.fetch_seconds)
        if not self.pieces:
            return f"nothing fetched in the background ({self.state})"
        return f"{format_count(self.pieces, 'piece')} ({size}) fetched in the background in {spent} ({self.state})"


class Tally:
    """The meter of who fills: adds up what is fetched.

    Args:
        sums: Where; SUMS numbers.
    """

    def __init__(self, sums: Sums) -> None:
        self.sums = sums

    def span(self, stage: str, position: int) -> AbstractContextManager[None]:  # noqa: ARG002 - the protocol's names
        """A context that does nothing."""
        return _NOTHING

    def count(self, name: str, amount: int = 1) -> None:
        """Something happened so many times."""
        if name == FETCHED_BYTES:
            self.sums[_ENTRIES] += 1
            self.sums[_BYTES] += amount
        elif name == FETCH_NS:
            self.sums[_NS] += amount


def filled(sums: Sums, *, runs: bool) -> Filled:
    """What was added up.

    Args:
        sums: By Tally and fill().
        runs: Whether there still is somebody who may add to them.
    """
    pieces, size, spent_ns, state = (int(sums[at]) for at in range(SUMS))
    text = _STATES[state] if runs or state not in {BEGINS, WAITS, GOES_ON} else _STOPPED
    return Filled(pieces=pieces, fetched_bytes=size, fetch_seconds=spent_ns * 1e-9, state=text)


class Filling:
    """Fills the cache of something until all is in, there is no room, or nobody has it any more.

    Args:
        target: It; it is not kept alive.
    """

    def __init__(self, target: Fillable) -> None:
        ended = threading.Event()
        self._sums: Sums = array("q", [0] * SUMS)
        run = threading.Thread(target=_run, args=(weakref.ref(target), self._sums, ended), name="fastfeed-cache", daemon=True)
        self._thread = run
        run.start()
        # At the end of the program it comes before the cache is left: whatever was made last is finalized first.
        self.stop = weakref.finalize(self, _stop, run, ended, os.getpid())
        """End; wait until the piece that is being fetched is in."""

    @property
    def runs(self) -> bool:
        """Whether there may be more to fetch."""
        return self._thread.is_alive()

    @property
    def filled(self) -> Filled:
        """What was fetched so far."""
        runs = self.runs
        return filled(self._sums, runs=runs)


def _stop(thread: threading.Thread, ended: threading.Event, process: int) -> None:
    if os.getpid() != process:
        return  # a child has no such thread
    ended.set()
    if thread is not threading.current_thread():  # which has dropped the last reference to what it filled
        thread.join()


def _run(target: "weakref.ref[Fillable]", sums: Sums, ended: threading.Event) -> None:
    fill(target, sums, ended.wait, share=_SHARE)


def fill(take: Callable[[], Fillable | None], sums: Sums, is_ended: Callable[[float], bool], *, share: float = 1.0) -> None:
    """Wait until it is this process's turn, then fetch piece by piece; in between nothing here keeps what is filled.

    Args:
        take: What is filled; None where it is gone.
        sums: Where what is fetched is added up; SUMS numbers.
        is_ended: Whether to stop, asked with the seconds for which the answer may be waited for.
        share: Of one processor, which it has at most.
    """
    token, turn = metering(Tally(sums)), None
    try:
        while turn is None and not is_ended(0):
            found = take()
            if found is None or found.shelf is None:
                return
            turn = found.shelf.take_turn()
            del found
            if turn is None:
                sums[_STATE] = WAITS
                is_ended(_TURN_SECONDS)
        _fill(take, sums, is_ended, share)
    except (OSError, CacheUnusable) as error:
        sums[_STATE] = UNUSABLE
        LOG.info("a cache is not filled any more: %s", error)
    finally:
        done_metering(token)
        if turn is not None:
            Shelf.give_turn(turn)


def _fill(take: Callable[[], Fillable | None], sums: Sums, is_ended: Callable[[float], bool], share: float) -> None:
    number: int | None = 0
    rest_seconds, sums[_STATE] = 0.0, GOES_ON
    while number is not None and not is_ended(rest_seconds):
        began, spent = time.monotonic(), time.thread_time()
        found = take()
        if found is None:
            return
        following = found.fill_from(number)
        if following is None:
            sums[_STATE] = UNUSABLE if found.shelf is None else AT_THE_END if number >= found.entries else FULL
        number = following
        del found
        rest_seconds = max(0.0, (time.thread_time() - spent) / share - (time.monotonic() - began))
