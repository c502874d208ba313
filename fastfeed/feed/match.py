"""Which sample each row of a side table names: by key, by source path, or by position."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import xxhash
from numpy.typing import NDArray

from fastfeed.archive.catalog import Catalog
from fastfeed.archive.index import MEMBER, Strings
from fastfeed.archive.usercolumn import UserColumn
from fastfeed.errors import UsageError

BY = {
    "key": "key", "__key__": "key", "path": "source", "file_name": "source", "filename": "source", "source": "source",
    "index": "index",
}  # fmt: skip
"""Names of a table's column that says which sample a row is of -> what it holds."""

_CHUNK_ROWS = 1 << 16


def candidates(names: Sequence[str], table: str) -> list[str]:
    """The columns of a table that may say which sample a row is of; the first that names any sample is taken.

    A column index is one only where there is no other: positions fit any dataset, also the wrong one.

    Raises:
        UsageError: There is none.
    """
    found = [name for name in BY if name in names]
    if not found:
        msg = f"no column of {table} says which sample a row is of"
        hint = "Name that column key (the sample's key), path (its path in the packed source) or index (its position)."
        raise UsageError(msg, expected=f"one of {', '.join(BY)}", got=", ".join(map(repr, names)), hint=hint)
    return [name for name in found if BY[name] != "index"] or found


def matched(archive: Catalog, what: str, wanted: Sequence[bytes]) -> NDArray[np.int64]:
    """The sample that each row names.

    Args:
        archive: The dataset.
        what: "key", or "source": the path of any of the sample's members.
        wanted: A name for each row.

    Returns:
        Positions, -1 where there is no such sample; int64, shape (rows,).

    Raises:
        UsageError: The dataset has no source paths.
        IndexDamaged: The index's ranges leave their column.
    """
    if what == "key":
        return places(archive.index.keys, wanted)
    plain = [name.removeprefix(b"./") for name in wanted]
    if not archive.index.has(MEMBER, "source"):
        return _by_members(archive, plain)
    rows = places(archive.index.strings(MEMBER, "source"), plain)
    starts = archive.index.sample_starts()
    samples = np.searchsorted(starts, np.maximum(rows, 0).astype(np.uint64), side="right") - 1
    there = (rows >= 0) & np.fromiter(map(bool, plain), dtype=np.bool_, count=len(plain))  # made members have no path
    return np.where(there, samples, -1).astype(np.int64)


def _by_members(archive: Catalog, wanted: Sequence[bytes]) -> NDArray[np.int64]:
    """Samples by sources that are no column: of tars read in place, where they are made of tar and member.

    Raises:
        UsageError: The samples have no sources.
    """
    if len(archive) and archive.source(0) is None:
        msg = "this dataset does not know from which files its samples came, so a table cannot be joined by path"
        raise UsageError(msg, path=archive.path, hint="Join it by key or by index.")
    found = {source: position for position, source in archive.members_with(set(wanted))}
    return np.array([found.get(source, -1) for source in wanted], dtype=np.int64)


def by_index(column: UserColumn, samples: int, table: str) -> NDArray[np.int64]:
    """The sample that each row names by its position; -1 beyond the dataset.

    Raises:
        UsageError: They are no whole numbers.
    """
    if column.kind != "int64":
        msg = f"column {column.name!r} of {table} holds no positions ({column.why})"
        raise UsageError(msg, expected="whole numbers from 0, none missing")
    numbers = np.asarray(column.values, dtype=np.int64)
    return np.where((numbers >= 0) & (numbers < samples), numbers, -1)


def places(column: Strings, wanted: Sequence[bytes]) -> NDArray[np.int64]:
    """The first row of a column that is each of some strings, -1 for none.

    By sorted hashes, 16 bytes a row while it works; no object a row is kept. Each match is proven on the bytes.
    """
    starts, data = column.ranges()
    hashes = np.empty(len(column), dtype=np.uint64)
    digest = xxhash.xxh3_64_intdigest
    for first in range(0, len(column), _CHUNK_ROWS):
        ends = starts[first : first + _CHUNK_ROWS + 1].tolist()
        hashes[first : first + len(ends) - 1] = [digest(data[start:stop]) for start, stop in pairwise(ends)]
    order = np.argsort(hashes, kind="stable")
    ranked = hashes[order]
    asked = np.fromiter(map(digest, wanted), dtype=np.uint64, count=len(wanted))
    at = np.searchsorted(ranked, asked)
    found = np.full(len(wanted), -1, dtype=np.int64)
    hits = np.flatnonzero(ranked[np.minimum(at, len(ranked) - 1)] == asked) if len(ranked) else np.zeros(0, dtype=np.int64)
    rows = order[at[hits]]
    same = [
        data[start:stop] == wanted[hit]
        for hit, start, stop in zip(hits.tolist(), starts[rows].tolist(), starts[rows + 1].tolist(), strict=True)
    ]
    found[hits] = np.where(same, rows, -1)
    for hit in hits[np.logical_not(same)].tolist():  # another string of the same hash stands first
        run = order[at[hit] : np.searchsorted(ranked, asked[hit], side="right")].tolist()
        found[hit] = next((row for row in run if data[starts[row] : starts[row + 1]] == wanted[hit]), -1)
    return found
