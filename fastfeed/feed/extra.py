"""Side tables joined to a dataset when it is opened, without touching it: ``extra="captions-v2.parquet"``.

A table's rows find their samples by a column named key, path or index (feed/match.py). What comes of it is written once as a
column file, a sample a row, and mapped from then on: it costs each worker nothing, and what is pickled is its path. A sample
without a row gets the missing value (archive/README.md §4.3): NaN, or the empty text.

The column files lie in ``$XDG_CACHE_HOME/fastfeed/extra`` (``~/.cache/fastfeed/extra``), or, where that cannot be written, in
``fastfeed-UID/extra`` of the folder for temporary files. A file's name is made of the digests of table and dataset, so a
changed table gets a new one. Files that nobody opened for 30 days are removed when another is written; the folder may be
removed at any time that no dataset is open. Only folders of this user that nobody else can write to are used.
"""

import hashlib
import json
import os
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfeed.archive import columns
from fastfeed.archive.catalog import Catalog
from fastfeed.archive.columns import BYTES, ColumnData
from fastfeed.archive.index import SAMPLE, MappedColumns
from fastfeed.archive.usercolumn import USER, UserColumn
from fastfeed.errors import IndexDamaged, SourceChanged, SourceError, SourceUnreadable, UsageError
from fastfeed.feed.match import BY, by_index, candidates, matched
from fastfeed.feed.scratch import keep, recall
from fastfeed.source.tables import Table, read_table

Extra = str | os.PathLike[str] | Mapping[str, Any]
"""A table's path, or arrays by the names of their columns, a sample a value."""

_RULES = b"fastfeed extra 1"
"""Goes into each file's name; a release that joins or types otherwise changes it."""
_REPORT = "join"
_EXACT = 1 << 53
_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinReport:
    """What came of joining one table."""

    table: str
    """Its file's name; "arrays" for arrays."""
    by: str
    """The column that says which sample a row is of, and what it holds: "path (source)"."""
    rows: int
    matched: int
    """Rows that name a sample here."""
    unmatched: list[str] = field(default_factory=list)
    """The first of the others: "line 7: 'x'"."""
    samples: int
    samples_without: int
    """Samples without a row: their values are missing."""
    columns: dict[str, str]
    """Name -> where its type comes from."""
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        text = (
            f"{self.table}, joined by {self.by}: {self.samples - self.samples_without:,} of {self.samples:,} samples have a row"
        )
        if self.rows > self.matched:
            text += f"; {self.rows - self.matched:,} of {self.rows:,} rows name no sample here ({', '.join(self.unmatched)}"
            text += ", ...)" if self.rows - self.matched > len(self.unmatched) else ")"
        return "; ".join([text, *self.notes])


class Joined:
    """The columns of one side table, mapped. It pickles to the path of its column file.

    Args:
        path: The column file.

    Raises:
        IndexDamaged: The file has gone, or is damaged.
    """

    def __init__(self, path: str) -> None:
        try:
            self.columns = MappedColumns(path)
            raw = self.columns.strings(_REPORT, _REPORT)[0]
            self.report = JoinReport(**json.loads(raw))
        except (IndexDamaged, KeyError, ValueError, TypeError) as error:
            msg = "the column file of a joined table has gone or is damaged"
            raise IndexDamaged(msg, path=path, hint="Open the dataset again: it is made anew.") from error

    @classmethod
    def proven(cls, path: str) -> "Joined":
        """From a file that lay there for a while: every byte of it is checked.

        Raises:
            IndexDamaged: As the class.
        """
        found = cls(path)
        found.columns.prove()
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return Joined, (self.columns.path,)

    def __repr__(self) -> str:
        return f"<{self.report}>"


def join(archive: Catalog, given: Extra | Sequence[Extra] | None) -> tuple[Joined, ...]:
    """Join side tables to a dataset.

    Args:
        archive: The dataset.
        given: One table or mapping of arrays, or several.

    Raises:
        UsageError: No table, no column to join by, no row that names a sample, or arrays that are no columns.
        SourceError: The table breaks a rule of its format, or two of its rows name one sample.
        DestinationError: The column file can be written nowhere.
    """
    if given is None:
        return ()
    several = given if isinstance(given, list | tuple) else [given]
    return tuple(_arrays(archive, one) if isinstance(one, Mapping) else _table(archive, one) for one in several)


def _table(archive: Catalog, given: Any) -> Joined:  # noqa: ANN401 - what a user passed
    if not isinstance(given, str | os.PathLike):
        msg = "extra takes the path of a table, a mapping of arrays by name, or a list of these"
        raise UsageError(msg, got=type(given).__name__, hint="A data frame is one with dict(frame).")
    path = os.path.abspath(os.fsdecode(given))
    name = os.path.basename(path)
    before, digest = _digest(path)
    key = hashlib.sha256(b"\0".join([_RULES, archive.digest.encode(), digest, os.fsencode(name)])).hexdigest()
    known = recall(key, Joined.proven)
    if known is not None:
        return known
    table = read_table(path)
    if _stamp(path) != before:
        msg = "a side table changed while it was read"
        raise SourceChanged(msg, path=path, hint="Open the dataset again when nothing writes to the table.")
    return _kept(key, *_joined(archive, table, name), len(archive))


def _digest(path: str) -> tuple[tuple[int, int], bytes]:
    try:
        stamp = _stamp(path)
        with open(path, "rb") as file:
            return stamp, hashlib.file_digest(file, "sha256").digest()
    except OSError as error:
        msg = f"a side table cannot be read: {error.strerror}"
        raise SourceUnreadable(msg, path=path) from error


def _stamp(path: str) -> tuple[int, int]:
    facts = os.stat(path)
    return facts.st_size, facts.st_mtime_ns


def _joined(archive: Catalog, table: Table, name: str) -> tuple[list[UserColumn], JoinReport]:
    """The table's columns, a sample a row, and what came of it."""
    on, samples = _samples(archive, table, name)
    rows = np.full(len(archive), -1, dtype=np.int64)
    hits = np.flatnonzero(samples >= 0)
    rows[samples[hits]] = hits
    first = _first_misses(table, on, samples)
    found, notes = [], list(table.notes)
    for column in table.names:
        if column == on:
            continue
        if column in table.unreadable:
            notes.append(f"left out: column {column!r} ({table.unreadable[column]})")
        else:
            found.append(_picked(table.typed(column), rows))
    report = JoinReport(
        table=name, by=on if on == BY[on] else f"{on} ({BY[on]})", rows=len(table), matched=len(hits), unmatched=first,
        samples=len(archive), samples_without=int((rows < 0).sum()), columns={column.name: column.why for column in found},
        notes=notes,
    )  # fmt: skip
    return found, report


def _samples(archive: Catalog, table: Table, name: str) -> tuple[str, NDArray[np.int64]]:
    """The column that says which sample a row is of, and the sample of each row, -1 for none.

    Raises:
        UsageError: No row names a sample.
        SourceError: Two rows name one sample.
    """
    tried = []
    for on in candidates(table.names, name):
        if BY[on] == "index":
            samples = by_index(table.typed(on), len(archive), name)
        else:
            samples = matched(archive, BY[on], [os.fsencode(value) for value in table.cells(on)])
        if not len(table) or bool((samples >= 0).any()):
            _prove_single(archive, table, samples, name)
            return on, samples
        tried.append(f"column {on!r} has {', '.join(_first_misses(table, on, samples))}")
    example = {"key": repr(archive.key(0)), "source": repr(os.fsdecode(archive.source(0) or b"")),
               "index": f"a number below {len(archive)}"}  # fmt: skip
    wanted = dict.fromkeys(f"{BY[on]} such as {example[BY[on]]}" for on in candidates(table.names, name))
    msg = f"no row of {name} names a sample of this dataset"
    raise UsageError(msg, path=table.path, expected=" or ".join(wanted), got="; ".join(tried))


def _first_misses(table: Table, on: str, samples: NDArray[np.int64]) -> list[str]:
    """The first rows that name no sample: "line 7: 'x'"."""
    cells = table.cells(on)
    return [f"{table.where(row)}: {cells[row]!r}" for row in np.flatnonzero(samples < 0)[:_SHOWN].tolist()]


def _prove_single(archive: Catalog, table: Table, samples: NDArray[np.int64], name: str) -> None:
    order = np.argsort(samples, kind="stable")
    twice = np.flatnonzero((samples[order][1:] == samples[order][:-1]) & (samples[order][1:] >= 0))
    if len(twice):
        one, other = (int(order[twice[0] + at]) for at in (0, 1))
        msg = f"{table.where(one)} and {table.where(other)} of {name} name the same sample"
        position = int(samples[one])
        raise SourceError(
            msg, path=table.path, sample=position, key=archive.key(position), got=f"{len(twice):,} such rows",
            hint="A side table has one row a sample: put several values into one cell, for instance as JSON.",
        )  # fmt: skip


def _picked(column: UserColumn, rows: NDArray[np.int64]) -> UserColumn:
    """A table's column with a row for each sample; -1 is a missing one, which may need another type."""
    there = rows >= 0
    name, kind, why = column.name, column.kind, column.why
    if kind == "text":
        values = list(column.values)  # as objects for a moment: rows are looked up here and there
        return UserColumn(name, kind, [values[row] if row >= 0 else "" for row in rows.tolist()], why)
    numbers = np.frombuffer(column.values, dtype={"int64": "i8", "float64": "f8", "bool": "u1"}[kind])  # type: ignore[call-overload]
    some = numbers[rows[there]]
    if bool(there.all()):
        return UserColumn(name, kind, memoryview(some), why)
    if kind == "int64" and len(some) and max(abs(int(some.min())), abs(int(some.max()))) > _EXACT:
        texts = [str(numbers[row]) if row >= 0 else "" for row in rows.tolist()]
        return UserColumn(name, "text", texts, f"{why}; text, since samples have no row and float64 would round")
    wide = np.full(len(rows), np.nan)
    wide[there] = some
    return UserColumn(name, "float64", memoryview(wide), f"{why}; float64, since samples have no row (NaN)")  # type: ignore[arg-type]


def _arrays(archive: Catalog, given: Mapping[str, Any]) -> Joined:
    """Arrays as columns."""
    found = [_array(name, value, len(archive)) for name, value in given.items()]
    digest = hashlib.sha256(_RULES)
    digest.update(archive.digest.encode())
    for column in found:
        kind, parts = column.stored(len(archive))
        digest.update(repr((column.name, kind, [memoryview(part).nbytes for part in parts])).encode())  # type: ignore[arg-type]
        for part in parts:
            digest.update(memoryview(part).cast("B"))  # type: ignore[arg-type]
    known = recall(digest.hexdigest(), Joined.proven)
    report = JoinReport(
        table="arrays", by="index", rows=len(archive), matched=len(archive), samples=len(archive), samples_without=0,
        columns={column.name: column.why for column in found},
    )  # fmt: skip
    return known or _kept(digest.hexdigest(), found, report, len(archive))


def _array(name: str, value: Any, samples: int) -> UserColumn:  # noqa: ANN401 - what a user passed
    if isinstance(value, list | tuple) and len(value) == samples and all(isinstance(text, str) for text in value):
        return UserColumn(str(name), "text", value, "given as strings")  # an array of strings would pad each to the longest
    try:
        values = np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:
        msg = f"extra column {name!r} is no array: {error}"
        raise UsageError(msg, got=type(value).__name__) from error
    if values.shape != (samples,):
        msg = f"extra column {name!r} has not one value a sample"
        raise UsageError(msg, expected=f"shape ({samples},)", got=f"shape {values.shape}")
    why = f"given as {values.dtype}"
    kind = values.dtype.kind
    if kind == "b":
        return UserColumn(str(name), "bool", values.tobytes(), why)
    if kind in "iu" and (not samples or int(values.max()) < 1 << 63):
        return UserColumn(str(name), "int64", array("q", values.astype("<i8").tobytes()), why)
    if kind == "f":
        return UserColumn(str(name), "float64", array("d", values.astype("<f8").tobytes()), why)
    texts = ["" if text is None else text for text in values.tolist()] if kind in "UO" else [None]
    if not all(isinstance(text, str) for text in texts):
        msg = f"extra column {name!r} holds neither numbers, truth values nor strings"
        raise UsageError(msg, expected="int64, float64, bool or str", got=why)
    return UserColumn(str(name), "text", texts, why)


def _kept(key: str, found: Sequence[UserColumn], report: JoinReport, samples: int) -> Joined:
    """Write a column file and map it."""
    raw = json.dumps(asdict(report)).encode()
    written = [ColumnData(_REPORT, _REPORT, BYTES, (array("Q", [0, len(raw)]), raw))]
    written += [ColumnData(SAMPLE, USER + column.name, *column.stored(samples), required=False) for column in found]
    return Joined(keep(key, lambda file: columns.write(file, {SAMPLE: samples, _REPORT: 1}, written)))
