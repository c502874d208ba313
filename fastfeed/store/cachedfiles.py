"""Plain files as members, kept whole once they were read: what is across a network is asked for once.

A file that is kept is what it was when it was read; that it is still the file that was listed is proven at that time.
"""

import logging
import time
from collections.abc import Collection, Sequence
from contextlib import suppress

from fastfeed.archive.catalog import Place
from fastfeed.errors import FastfeedError
from fastfeed.store.cached import (
    DAMAGED,
    FETCH_NS,
    FETCHED_BYTES,
    FULL_SECONDS,
    HIT_BYTES,
    HIT_NS,
    HITS,
    MISS_BYTES,
    MISSES,
    WAIT_SECONDS,
)
from fastfeed.store.cachefolder import CacheUnusable
from fastfeed.store.files import FileCatalog, FileReader
from fastfeed.store.shelf import Room, Shelf
from fastfeed.trace import count

LOG = logging.getLogger("fastfeed.cache")


class CachedFileReader(FileReader):
    """Reads the files of samples.

    Args:
        files: What they are.
        shelf: Where they are kept, an entry a row of the index.
        room: How much may be kept.
    """

    def __init__(self, files: FileCatalog, shelf: Shelf, room: Room) -> None:
        super().__init__(files)
        self.shelf: Shelf | None = shelf
        self.room = room
        self.want(range(len(files)), files.fields)
        self.filling: object | None = None
        """What fills it in the background (filling.py), and ends with it."""
        self._full_until = 0.0

    def want(self, positions: Sequence[int], fields: Collection[str]) -> None:
        """Say what is to be fetched by fill_from; all, if nothing is said.

        Args:
            positions: Of samples, in the order in which they are fetched.
            fields: Which files of a sample.
        """
        self._positions, self._fields, self.entries = positions, fields, len(positions)

    def read_part(self, position: int, place: Place, start: int, stop: int) -> bytes:
        """Bytes [start, stop) of a file. A file that is not kept is kept if all of it is asked for.

        Raises:
            SourceUnreadable: As read().
            SourceChanged: As read().
        """
        began = time.perf_counter_ns()
        data = self._kept(place, start, stop)
        if data is not None:
            count(HITS)
            count(HIT_BYTES, len(data))
            count(HIT_NS, time.perf_counter_ns() - began)
            return data
        count(MISSES)
        count(MISS_BYTES, stop - start)
        shelf = self.shelf
        if shelf is None or (start, stop) != (place.start, place.stop) or time.monotonic() < self._full_until:
            return self._fetched(position, place, start, stop)
        return self._fetched_and_kept(shelf, position, place)

    def _kept(self, place: Place, start: int, stop: int) -> bytes | None:
        """Bytes that are kept, and are what was put in as far as that can be told from them."""
        shelf = self.shelf
        if shelf is None:
            return None
        try:
            entry = shelf.find(place.row)
            if entry is None or entry.size != place.stop - place.start:
                return None
            data = bytearray(stop - start)
            if shelf.read(entry, start - place.start, memoryview(data)) and (
                len(data) < entry.size or shelf.is_content(entry, data)
            ):
                return bytes(data)
            count(DAMAGED)
            shelf.drop(place.row)
        except OSError as error:
            self._give_up(error)
        return None

    def _fetched(self, position: int, place: Place, start: int, stop: int) -> bytes:
        began = time.perf_counter_ns()
        data = super().read_part(position, place, start, stop)
        count(FETCHED_BYTES, len(data))
        count(FETCH_NS, time.perf_counter_ns() - began)
        return data

    def _fetched_and_kept(self, shelf: Shelf, position: int, place: Place) -> bytes:
        """A whole file, which this process fetches and keeps, or another one just has."""
        data: bytes | None = None
        try:
            with shelf.fetching(place.row, WAIT_SECONDS) as alone:
                data = self._kept(place, place.start, place.stop)
                if data is not None:
                    return data
                data = self._fetched(position, place, place.start, place.stop)
                if alone and not (shelf.has_room(len(data), self.room) and shelf.put(place.row, data, self.room)):
                    self._full_until = time.monotonic() + FULL_SECONDS
        except (OSError, CacheUnusable) as error:
            self._give_up(error)
        return data if data is not None else self._fetched(position, place, place.start, place.stop)

    def fill_from(self, number: int) -> int | None:
        """As Fillable's: the files of a sample. Of those that cannot be read whoever wants them is told."""
        if number >= self.entries:
            return None
        position = self._positions[number]
        for place in self.files.places(position):
            shelf = self.shelf
            if shelf is None:
                return None
            if place.field not in self._fields or shelf.find(place.row) is not None:
                continue
            if not shelf.has_room(place.stop - place.start, self.room):
                return None
            with suppress(FastfeedError):
                self._fetched_and_kept(shelf, position, place)
            if time.monotonic() < self._full_until:
                return None
        return number + 1

    def _give_up(self, error: Exception) -> None:
        """Read on without a cache."""
        shelf, self.shelf = self.shelf, None
        if shelf is not None:
            text = error.strerror if isinstance(error, OSError) else str(error)
            LOG.warning("the cache cannot be used any more (%s): files are read without it, with the same results", text)
