"""A dataset without the samples that a skip list names: the positions of the others close up."""

import os

import numpy as np
from numpy.typing import NDArray

from fastfeed.archive.catalog import Catalog
from fastfeed.archive.index import SAMPLE
from fastfeed.errors import Facts, UsageError, warn
from fastfeed.sample import SkipList, printable
from fastfeed.units import format_count

Skip = str | os.PathLike[str] | SkipList


def kept_positions(skip: Skip, catalog: Catalog) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """The positions that a skip list does not name, and what to say about it.

    Args:
        skip: The list, or the JSONL file that holds it.
        catalog: The samples.

    Returns:
        int64, ascending; and sentences: how many samples are left out, how many entries name none.

    Raises:
        UsageError: The list cannot be read, or it names no sample at all.
    """
    entries = list_of(skip)
    found = np.flatnonzero(named(entries, catalog))
    such = printable(os.fsdecode(catalog.source(0) or b"")) if len(catalog) else "no sample"
    said = told(entries, len(found), catalog.path, such)
    return np.delete(np.arange(len(catalog), dtype=np.int64), found), said


def list_of(skip: Skip) -> SkipList:
    """The list, read where it is a file.

    Raises:
        UsageError: It cannot be read.
    """
    return skip if isinstance(skip, SkipList) else SkipList.read(os.fsdecode(skip))


def named(entries: SkipList, catalog: Catalog) -> NDArray[np.bool_]:
    """Whether a skip list names each sample; bool, shape (samples,)."""
    found = np.zeros(len(catalog), dtype=np.bool_)
    sources = {os.fsencode(entry.source) for entry in entries.entries if entry.source is not None}
    for position, source in catalog.members_with(sources):
        found[position] |= entries.match(os.fsdecode(source), None) is not None
    keys = {os.fsencode(entry.key) for entry in entries.entries if entry.source is None and entry.key is not None}
    for position, key in catalog.index.rows_with(SAMPLE, "key", keys):
        found[position] |= entries.match(None, os.fsdecode(key)) is not None
    for entry in entries.entries:
        at = entry.index if entry.source is None and entry.key is None and entry.dataset_digest == catalog.digest else None
        if at is not None and 0 <= at < len(catalog) and entries.match(None, None, (catalog.digest, at)) is not None:
            found[at] = True
    return found


def told(entries: SkipList, count: int, path: str | None, such: str) -> tuple[str, ...]:
    """What to say about a skip list; it warns of entries that named no sample, since they may be mistyped.

    Args:
        entries: The list, which has been asked about every sample.
        count: How many samples are left out.
        path: Of the dataset.
        such: What a sample is called here.

    Raises:
        UsageError: No entry named a sample.
    """
    missed = list(entries.unmatched())
    said = [f"{format_count(count, 'sample')} left out by the skip list"]
    if missed:
        first = printable(missed[0].source or missed[0].key or f"index {missed[0].index}")
        if len(missed) == len(entries.entries):
            msg = f"the skip list ({format_count(len(missed), 'entry', 'entries')}) matches no sample of this dataset"
            hint = "A source is relative to the folder that was packed or opened; an index needs this dataset's digest."
            facts: Facts = {"expected": f"such as {such}", "got": first, "hint": hint}
            if path is not None:
                facts["path"] = path
            raise UsageError(msg, **facts)
        matches = "entry of the skip list matches", "entries of the skip list match"
        said.append(f"{format_count(len(missed), *matches)} no sample ({first})")
        warn(said[-1])
    return tuple(said)
