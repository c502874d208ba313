"""A column file: typed columns that describe themselves, in one file that can be memory-mapped. README.md §4 specifies it.

This module knows bytes and types, not what a column means; archive/index.py gives the meaning. Reading the head proves
magic, version, sizes, types, bounds and overlap before anything is handed out; README.md lists each rule.
"""

import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import BinaryIO, Protocol

import xxhash

from fastfeed.errors import IndexDamaged, VersionUnsupported

MAGIC = b"\x89FFC\r\n\x1a\n"
VERSION = 1
HEAD = struct.Struct("<8sIIQQ")  # magic, version, table bytes, file bytes, xxh3-64 of the table
ALIGN_BYTES = 64
MAX_TABLE_BYTES = 16 << 20
ITEM_BYTES = {"uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8, "int64": 8, "float64": 8}
STARTS, BYTES = "starts", "bytes"
"""Two types of variable length. starts: rows+1 ascending uint64, row i of it is [start i, start i+1). bytes: the same,
followed by the bytes that those ranges cut."""

Buffer = bytes | bytearray | memoryview


class Sized(Protocol):
    """What a column's content must offer: bytes, a memoryview, an array."""

    def __buffer__(self, flags: int, /) -> memoryview:
        """The buffer protocol."""


@dataclass(frozen=True, slots=True)
class ColumnData:
    """A column to be written."""

    table: str
    name: str
    type: str
    """A key of ITEM_BYTES, or STARTS, or BYTES."""
    parts: tuple[object, ...]
    """One buffer; two for BYTES: the starts and the bytes."""
    required: bool = True
    """Whether a reader that does not know this column must refuse the file."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column's place in a file, proven to lie inside it."""

    table: str
    name: str
    type: str
    rows: int
    required: bool
    extents: tuple[tuple[int, int], ...]
    """[start, stop) in the file of each part."""
    xxh3: str
    """Of all parts in order; checked by verify, not at opening."""


@dataclass(frozen=True, slots=True)
class ColumnTable:
    """The proven head of a column file."""

    file_bytes: int
    tables: Mapping[str, int]
    """Rows of each table."""
    columns: Mapping[tuple[str, str], Column]
    """By table and name."""
    data_start: int


def write(file: BinaryIO, tables: Mapping[str, int], columns: Iterable[ColumnData]) -> None:
    """Write a column file; the same content gives the same bytes.

    Args:
        file: Open for writing, at its start.
        tables: Rows of each table.
        columns: In the order in which they shall lie in the file.
    """
    listed = [(column, [memoryview(part).cast("B") for part in column.parts]) for column in columns]  # type: ignore[arg-type]
    entries = [_entry(column, views) for column, views in listed]
    table = json.dumps({"tables": dict(tables), "columns": entries}, sort_keys=True, separators=(",", ":")).encode()
    starts, at = [], _aligned(HEAD.size + len(table))
    for _, views in listed:
        for view in views:
            starts.append(at)
            at = _aligned(at + view.nbytes)
    file.write(HEAD.pack(MAGIC, VERSION, len(table), at, xxhash.xxh3_64_intdigest(table)))
    file.write(table)
    at = HEAD.size + len(table)
    file.write(bytes(_aligned(at) - at))
    for _, views in listed:
        for view in views:
            file.write(view)
            file.write(bytes(_aligned(view.nbytes) - view.nbytes))


def _entry(column: ColumnData, views: list[memoryview]) -> dict[str, object]:
    digest = xxhash.xxh3_64()
    for view in views:
        digest.update(view)
    return {
        "table": column.table, "name": column.name, "type": column.type, "required": column.required,
        "bytes": [view.nbytes for view in views], "xxh3": digest.hexdigest(),
    }  # fmt: skip


def _aligned(at: int) -> int:
    return at + -at % ALIGN_BYTES


def read_table(head: Buffer, file_bytes: int, path: str) -> ColumnTable:
    """Prove the head of a column file.

    Args:
        head: At least the first HEAD.size bytes and the column table behind them; all of the file will do.
        file_bytes: Its real size.
        path: For messages.

    Raises:
        IndexDamaged: Any rule of README.md §4 is broken.
        VersionUnsupported: A later version of the format.
    """
    if len(head) < HEAD.size or bytes(head[:8]) != MAGIC:
        raise _damaged("this is not a column file", path, 0, 8, MAGIC.hex(), bytes(head[:8]).hex())
    _, version, table_bytes, stated_bytes, digest = HEAD.unpack_from(head)
    if version != VERSION:
        msg = f"the column file has format version {version}, this release reads {VERSION}"
        raise VersionUnsupported(msg, path=path, expected=VERSION, got=version, hint="Install a newer fastfeed.")
    if stated_bytes != file_bytes:
        raise _damaged("the file has not the size that it states", path, 0, file_bytes, stated_bytes, file_bytes)
    if table_bytes > MAX_TABLE_BYTES or HEAD.size + table_bytes > min(file_bytes, len(head)):
        raise _damaged("the column table does not fit", path, 12, 16, f"at most {file_bytes - HEAD.size}", table_bytes)
    raw = bytes(head[HEAD.size : HEAD.size + table_bytes])
    if xxhash.xxh3_64_intdigest(raw) != digest:
        got = f"{xxhash.xxh3_64_intdigest(raw):016x}"
        raise _damaged("the column table is damaged", path, HEAD.size, HEAD.size + table_bytes, f"{digest:016x}", got)
    try:
        tables, columns = _parse(raw, file_bytes)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        message = f"the column table breaks a rule: {error}"
        raise _damaged(message, path, HEAD.size, HEAD.size + table_bytes, None, None) from error
    return ColumnTable(file_bytes, tables, columns, _aligned(HEAD.size + table_bytes))


def proven_columns(raw: bytes | memoryview, path: str) -> Mapping[tuple[str, str], Column]:
    """The columns of a column file of the job by table and name, the bytes of each checked.

    Raises:
        IndexDamaged: The file is damaged.
    """
    found = read_table(raw, len(raw), path).columns
    for column in found.values():
        prove_column(raw, column, path, "Start anew with --overwrite.")
    return found


def prove_column(raw: bytes | memoryview, column: Column, path: str, hint: str) -> None:
    """Check a column's bytes against its checksum.

    Raises:
        IndexDamaged: They differ.
    """
    digest = xxhash.xxh3_64()
    for start, stop in column.extents:
        digest.update(memoryview(raw)[start:stop])
    if digest.hexdigest() != column.xxh3:
        msg, got = f"column {column.name} of {column.table} is damaged", digest.hexdigest()
        start, stop = column.extents[0][0], column.extents[-1][1]
        raise IndexDamaged(msg, path=path, start=start, stop=stop, expected=column.xxh3, got=got, hint=hint)


def table_bytes(head: Buffer) -> int:
    """How many bytes from the file's start read_table needs, as far as the fixed head says."""
    if len(head) < HEAD.size:
        return HEAD.size
    return HEAD.size + min(int(HEAD.unpack_from(head)[2]), MAX_TABLE_BYTES)


def _damaged(message: str, path: str, start: int, stop: int, expected: object, got: object) -> IndexDamaged:  # noqa: PLR0917 - the facts of one error
    hint = "Run fastfeed verify to see what else is damaged; restore the file from a copy, or pack again."
    return IndexDamaged(message, path=path, start=start, stop=stop, expected=expected, got=got, hint=hint)


def _parse(raw: bytes, file_bytes: int) -> tuple[dict[str, int], dict[tuple[str, str], Column]]:
    record = json.loads(raw)
    tables = {str(name): _count(rows, "rows") for name, rows in record["tables"].items()}
    columns: dict[tuple[str, str], Column] = {}
    at = _aligned(HEAD.size + len(raw))
    for entry in record["columns"]:
        column = _column(entry, tables, at)
        if (column.table, column.name) in columns:
            msg = f"column {column.name} of {column.table} is there twice"
            raise ValueError(msg)
        columns[column.table, column.name] = column
        at = _aligned(column.extents[-1][1])
    if at != file_bytes:
        msg = f"the columns end at byte {at}, the file at {file_bytes}"
        raise ValueError(msg)
    return tables, columns


def _column(entry: dict[str, object], tables: dict[str, int], at: int) -> Column:
    # One entry of the table, its extents laid from at on.
    table, name, kind, xxh3 = (_text(entry[key]) for key in ("table", "name", "type", "xxh3"))
    required, sizes = entry["required"], entry["bytes"]
    if not (isinstance(required, bool) and isinstance(sizes, list)):
        msg = f"column {name} of {table} has a field of the wrong type"
        raise TypeError(msg)
    rows = tables[table]
    expected = (rows + 1) * 8 if kind in {STARTS, BYTES} else rows * ITEM_BYTES.get(kind, 0)
    known = kind in {STARTS, BYTES} or kind in ITEM_BYTES
    if known and (len(sizes) != 1 + (kind == BYTES) or sizes[0] != expected):
        msg = f"column {name} of {table} has {sizes} bytes for {rows} rows of {kind}"
        raise ValueError(msg)
    extents = []
    for size in sizes:
        stop = at + _count(size, "bytes")
        extents.append((at, stop))
        at = _aligned(stop)
    if not extents:
        msg = f"column {name} of {table} has no bytes"
        raise ValueError(msg)
    return Column(table, name, kind, rows, required, tuple(extents), xxh3)


def _text(value: object) -> str:
    if not isinstance(value, str):
        msg = f"{value!r} is not a string"
        raise TypeError(msg)
    return value


def _count(value: object, what: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 60:
        msg = f"{what} is {value!r}"
        raise ValueError(msg)
    return value
