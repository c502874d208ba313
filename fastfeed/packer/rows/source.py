"""What a source of samples must offer, whatever it is: rows by number, a few facts known beforehand, a stable identity.

A folder's files have sizes before they are read, so its shards are laid out byte for byte in advance (packer/plan.py).
Rows have not: which samples go into which shard is settled in advance, their sizes are known when the shard is written.
Either way the bytes do not depend on how many workers write them.
"""

import mmap
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from fastfeed.source.scan import LeftOut

PROBES = 64
"""Rows that are looked at before the plan: they settle fields, sizes and, of a Python dataset, its identity."""
PROBE_BYTES = 64 << 20
"""No more of them are looked at once they hold so much."""
GATHER_BYTES = 256 << 20
"""So much of a shard is gathered at once where rows are wanted in random order and the source is read in its own."""

Scalar = bool | int | float | str
"""What a typed column can hold."""


class RowIndex(NamedTuple):
    """What became of an image whose rows were to be indexed."""

    outcome: str
    """One of packer/rows/transcode.py's, as it is told to the user."""
    starts: bytes = b""
    """A row of the column jpeg_intervals; empty where they are not indexed."""
    pixels: int = 0
    """Digest of the decoded pixels; 0 where they are not indexed."""


class RowMember(NamedTuple):
    """One field of a sample."""

    field: str
    data: bytes
    source: str = ""
    """Original path, undecodable bytes as surrogate escapes; empty where there was none."""


@dataclass(frozen=True, slots=True)
class Row:
    """One sample."""

    members: tuple[RowMember, ...]
    """Sorted by field, each field once, at least one."""
    label: int | None = None
    scalars: Mapping[str, Scalar] | None = None
    """Values of typed columns; a name that is missing here is a missing value."""
    key: str | None = None
    """A name that the sample brings along, where names cannot be known before reading (iterables)."""
    holds_class: bool = False
    """Its class is in a member cls of its own, which is carried as it is, --no-cls or not: none is added."""
    indexed: Mapping[str, RowIndex] | None = None
    """By field, of its images whose rows were to be indexed."""


@dataclass(frozen=True, slots=True)
class RowFailed:
    """A sample that cannot be read, in the place of a Row."""

    number: int
    name: str
    """Source path, or "sample N"."""
    kind: str
    """"unreadable", or "changed": something else lies there than when the pack was planned."""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFacts:
    """What is known of all rows before they are read."""

    count: int
    source_bytes: int
    """Of all payloads together; an estimate unless exact."""
    exact: bool
    files: int
    """How many files the source is made of (1 for a Python object)."""
    layout: str
    """How the manifest calls it: list, table, lines, dataset, tars."""
    identity: Mapping[str, object]
    """JSON: what a rerun must find equal for its shards to be continued."""
    starts: Sequence[int] | None = None
    """Where each sample is made of files of its own: the first of each, and one more; None where a file holds many samples."""
    stems: Sequence[str] | None = None
    """A path-like name a row, without extension; None: rows are numbered."""
    keys: Sequence[str] | None = None
    """Legal and unique keys, where the source has made them; they stand for stems."""
    order: str = "source"
    """How the manifest calls the order of all rows."""
    names: Sequence[str] | None = None
    """A source path a row for skip lists and messages; None: "sample N"."""
    classes: tuple[str, ...] | None = None
    numbered_classes: bool = False
    """Labels are whole numbers that stand for themselves: the class map is "0" up to the largest, known at the end."""
    columns: Sequence[str] | None = None
    """Names of the typed columns; None: all that the rows turn out to have."""
    extra_columns: tuple[str, ...] = ()
    """Typed columns that packing itself adds, whichever others are wanted."""
    unshuffled: str = ""
    """Why rows cannot be had in random order; empty where they can."""
    gathered: int = 0
    """Bytes that one pass over the source reads, where random order is had by passing it for each GATHER_BYTES of a shard."""
    failed: Mapping[int, LeftOut] = field(default_factory=dict)
    """Rows that cannot be read, known beforehand."""
    left_out: tuple[LeftOut, ...] = ()
    """What is in the source and is no row."""
    fields: tuple[str, ...] = ()
    """Fields that are known beforehand; a row may have others."""
    holds_class: bool = False
    """A field cls among them is the source's own: --no-cls does not leave it out."""
    max_field_bytes: int = 32
    """The longest field that a member may have, for the room that keys have."""
    why: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def name(self, number: int) -> str:
        """How messages call a row."""
        return self.names[number] if self.names is not None else f"sample {number}"


class RowReader(Protocol):
    """Rows by number: what a worker needs."""

    def rows(self, numbers: Sequence[int]) -> Iterator[Row | RowFailed]:
        """The rows with these numbers, in this order; one that cannot be read is said to have failed, and the rest goes on."""


class RowSource(RowReader, Protocol):
    """A source of rows."""

    def facts(self) -> RowFacts:
        """What is known beforehand. Called once, in the parent."""

    def spec(self) -> Mapping[str, object] | None:
        """JSON from which a fresh process makes an equal reader; None for a live object, which only a fork inherits."""


class Reading:
    """Which rows a worker is asking its source for, in memory that it shares with its parent: known also once it is dead."""

    _PAIR = struct.Struct("qq")

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, self._PAIR.size)
        self.note(-1, -1)

    def note(self, first: int, last: int) -> None:
        """It asks for these."""
        self._PAIR.pack_into(self._memory, 0, first, last)

    def told(self) -> str:
        """What it asked for last, empty where nothing."""
        first, last = self._PAIR.unpack_from(self._memory)
        if first < 0:
            return ""
        return f"it was reading sample {first}" if first == last else f"it was reading samples from {first} to {last}"

    def close(self) -> None:
        """Give the memory back."""
        self._memory.close()
