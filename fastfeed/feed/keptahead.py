"""The samples of fastfeed.cached that nobody has asked for yet, in the order of their numbers: something that can be filled.

One process does it at low priority (fillingapart.py), so nobody must wait for it: a sample is made without the lock of its
entry, and what a reader has made meanwhile is that one's.
"""

import time
from typing import Any, Protocol

from fastfeed.feed.splitting import wanted_of
from fastfeed.store.cached import FETCH_NS, FETCHED_BYTES
from fastfeed.store.cacheplan import CachePlan
from fastfeed.store.shelf import Entry, Shelf
from fastfeed.trace import count

LEAP = 64
"""Samples; as many as a few batches of readers."""


class KeepsSamples(Protocol):
    """A dataset with a cache of its samples."""

    cache: CachePlan

    @property
    def shelf(self) -> Shelf | None:
        """Where samples are kept; None where they are not, or not any more."""

    def made_to_keep(self, number: int) -> bytes | None:
        """A sample as it is kept; None where it cannot be kept, or made."""

    def __len__(self) -> int: ...


class Ahead:
    """The samples that are wanted.

    Args:
        dataset: The dataset.
        view: It, or Subsets of it.
    """

    def __init__(self, dataset: KeepsSamples, view: Any) -> None:  # noqa: ANN401 - of torch's Subset
        self.dataset, self._numbers = dataset, wanted_of(dataset, view)
        self.entries = len(self._numbers)
        self._mark: tuple[int, Entry | None] | None = None
        """The last one that was seen in the cache."""
        self._emptied = False

    @property
    def shelf(self) -> Shelf | None:
        """Where they are kept; None where they are not, or not any more."""
        return None if self._emptied else self.dataset.shelf

    def fill_from(self, number: int) -> int | None:
        """As Fillable's. Where readers are just as far, it leaps ahead of them, so that nothing is made twice for long."""
        shelf = self.shelf
        if shelf is None or number >= self.entries or self._was_emptied(shelf):
            return None
        at = self._numbers[number]
        entry = shelf.find(at)
        if entry is not None:
            self._mark = at, entry
            return number + 1
        began = time.perf_counter_ns()
        data = self.dataset.made_to_keep(at)
        spent = time.perf_counter_ns() - began
        if data is None:
            return number + 1
        with shelf.fetching(at, 0) as alone:
            if not alone or shelf.find(at) is not None:
                return number + LEAP
            if self._was_emptied(shelf) or not self._is_put(shelf, at, data):
                return None
        count(FETCHED_BYTES, len(data))
        count(FETCH_NS, spent)
        return number + 1

    def _is_put(self, shelf: Shelf, number: int, data: bytes) -> bool:
        room = self.dataset.cache.room
        if not (shelf.has_room(len(data), room) and shelf.put(number, data, room)):
            return False
        self._mark = number, shelf.find(number)
        return True

    def _was_emptied(self, shelf: Shelf) -> bool:
        """Whether samples were found to have changed since this began: its copy of the dataset is from before."""
        if self._mark is not None and shelf.find(self._mark[0]) != self._mark[1]:
            self._emptied = True
        return self._emptied
