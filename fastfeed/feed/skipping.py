"""A dataset without the samples that a skip list names: the positions of the others close up."""

import hashlib
import os
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fastfeed.archive.catalog import Catalog, Place
from fastfeed.archive.index import SAMPLE
from fastfeed.errors import FastfeedError, UsageError, warn
from fastfeed.sample import SkipList, printable
from fastfeed.units import format_count

Skip = str | os.PathLike[str] | SkipList
NOTHING: NDArray[np.int64] = np.empty(0, dtype=np.int64)
NOTHING.flags.writeable = False
_Error = TypeVar("_Error", bound=FastfeedError)


def positions_to_skip(skip: Skip, catalog: Catalog) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """The positions that a skip list names, ascending, and what to say about it.

    Args:
        skip: The list, or the JSONL file that holds it.
        catalog: The samples.

    Raises:
        UsageError: The list cannot be read, or it names no sample at all.
    """
    entries = skip if isinstance(skip, SkipList) else SkipList.read(os.fsdecode(skip))
    found: set[int] = set()
    sources = {os.fsencode(entry.source) for entry in entries.entries if entry.source is not None}
    for position, source in catalog.members_with(sources):
        if entries.match(os.fsdecode(source), None) is not None:
            found.add(position)
    keys = {os.fsencode(entry.key) for entry in entries.entries if entry.source is None and entry.key is not None}
    for position, key in catalog.index.rows_with(SAMPLE, "key", keys):
        if entries.match(None, os.fsdecode(key)) is not None:
            found.add(position)
    for entry in entries.entries:
        at = entry.index if entry.source is None and entry.key is None and entry.dataset_digest == catalog.digest else None
        if at is not None and 0 <= at < len(catalog) and entries.match(None, None, (catalog.digest, at)) is not None:
            found.add(at)
    return np.array(sorted(found), dtype=np.int64), _told(entries, len(found), catalog)


def _told(entries: SkipList, count: int, catalog: Catalog) -> tuple[str, ...]:
    """How many samples are left out, and which entries named none: those are a warning, since they may be mistyped."""
    missed = list(entries.unmatched())
    told = [f"{format_count(count, 'sample')} left out by the skip list"]
    if missed:
        first = printable(missed[0].source or missed[0].key or f"index {missed[0].index}")
        if len(missed) == len(entries.entries):
            msg = f"the skip list ({format_count(len(missed), 'entry', 'entries')}) matches no sample of this dataset"
            such = printable(os.fsdecode(catalog.source(0) or b"")) if len(catalog) else "no sample"
            hint = "A source is relative to the folder that was packed or opened; an index needs this dataset's digest."
            raise UsageError(msg, path=catalog.path, expected=f"such as {such}", got=first, hint=hint)
        matches = "entry of the skip list matches", "entries of the skip list match"
        told.append(f"{format_count(len(missed), *matches)} no sample ({first})")
        warn(told[-1])
    return tuple(told)


def kept_of(values: NDArray[Any], skipped: NDArray[np.int64]) -> NDArray[Any]:
    """Rows of samples without those that are skipped; read-only, a view where none is."""
    if not len(skipped):
        return values
    kept = np.delete(values, skipped)
    kept.flags.writeable = False
    return kept


class Skipped:
    """A catalog without some of its samples. Memory does not grow with those that stay.

    Args:
        catalog: All samples.
        skipped: Positions to leave out, ascending.
    """

    def __init__(self, catalog: Catalog, skipped: NDArray[np.int64]) -> None:
        self._all = catalog
        self._before = skipped - np.arange(len(skipped))
        """For each skipped one, how many that stay stand before it: a position moves on by those not above it."""
        self._skipped = skipped
        self.path, self.index, self.fields, self.classes = catalog.path, catalog.index, catalog.fields, catalog.classes
        self.remedy, self.undecodable = catalog.remedy, catalog.undecodable
        self.digest = hashlib.sha256(catalog.digest.encode() + skipped.astype("<i8").tobytes()).hexdigest()

    def __len__(self) -> int:
        return len(self._all) - len(self._skipped)

    def row(self, position: int) -> int:
        """The position that a sample has among all."""
        return position + int(self._before.searchsorted(position, side="right"))

    def key(self, position: int) -> str:
        """As the catalog's."""
        return self._all.key(self.row(position))

    def places(self, position: int) -> Iterator[Place]:
        """As the catalog's."""
        return self._all.places(self.row(position))

    def source(self, position: int) -> bytes | None:
        """As the catalog's."""
        return self._all.source(self.row(position))

    def source_of(self, position: int, place: Place) -> bytes:
        """As the catalog's."""
        return self._all.source_of(self.row(position), place)

    def members_with(self, sources: AbstractSet[bytes]) -> Iterator[tuple[int, bytes]]:
        """As the catalog's, by the positions that have closed up."""
        for row, source in self._all.members_with(sources):
            at = int(self._skipped.searchsorted(row))
            if at == len(self._skipped) or self._skipped[at] != row:
                yield row - at, source

    def label(self, position: int) -> int:
        """As the catalog's."""
        return self._all.label(self.row(position))

    def at(self, error: _Error, position: int, place: Place) -> _Error:
        """As the catalog's; the sample's number is the one by which it was asked for."""
        located = self._all.at(error, self.row(position), place)
        located.sample = position
        return located

    def prove(self) -> None:
        """As the catalog's."""
        self._all.prove()

    def parts(self) -> str:
        """As the catalog's."""
        return self._all.parts()
