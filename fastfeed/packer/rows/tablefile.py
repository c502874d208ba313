"""One Parquet or Arrow file: its columns, and its rows by group (an Arrow file's record batches are groups as well).

pyarrow is asked for here, for rows; source/arrow.py reads such files by column.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fastfeed.errors import SourceUnreadable
from fastfeed.optional import load

EXTENSIONS = (".parquet", ".pq", ".arrow", ".feather")
_BUFFER_BYTES = 1 << 20
"""How much of a Parquet file is read at once. Without it a whole column of a row group is."""
BATCH_ROWS, BATCH_BYTES = 64, 16 << 20
"""A batch is at most so many rows, and fewer where they hold more."""


def is_parquet(path: str) -> bool:
    """By its name."""
    return path.lower().endswith((".parquet", ".pq"))


@dataclass(frozen=True, slots=True)
class Head:
    """What is known of a file without reading its rows."""

    path: str
    schema: Any
    counts: tuple[int, ...]
    """Rows of each group."""
    sizes: tuple[int, ...]
    """Uncompressed bytes of each group."""


def read_head(path: str) -> Head:
    """Columns and groups of a file.

    Raises:
        SourceUnreadable: It cannot be read, or is no such file.
        UsageError: pyarrow is not installed.
    """
    file = TableFile(path)
    try:
        return Head(path, file.schema, *file.groups())
    finally:
        file.close()


class TableFile:
    """An open file.

    Args:
        path: Of it.

    Raises:
        SourceUnreadable: It cannot be read, or is no such file.
        UsageError: pyarrow is not installed.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._pa = load("pyarrow", "parquet", "a Parquet or Arrow file")
        self._compute = load("pyarrow.compute", "parquet", "a Parquet or Arrow file")
        self._batches: list[Any] | None = None
        self._mapped: Any = None
        try:
            if is_parquet(path):
                parquet = load("pyarrow.parquet", "parquet", "a Parquet file")
                self._file = parquet.ParquetFile(path, buffer_size=_BUFFER_BYTES)
                self.schema = self._file.schema_arrow
            else:
                self._open_arrow()
                self.schema = self._file.schema
        except (OSError, self._pa.ArrowException) as error:
            what = "Parquet" if is_parquet(path) else "Arrow"
            msg = f"the file cannot be read as {what}: {_told(error)}"
            raise SourceUnreadable(msg, path=path, hint="Copy it again, or leave it out.") from error

    def _open_arrow(self) -> None:
        """Arrow's file format, or its stream format (Hugging Face's cache is one): mapped, so rows are read when used."""
        self._mapped = self._pa.memory_map(self.path)
        try:
            self._file = self._pa.ipc.open_file(self._mapped)
        except self._pa.ArrowInvalid:
            self._mapped.seek(0)
            self._file = self._pa.ipc.open_stream(self._mapped)
            self._batches = self._stream()

    def _stream(self) -> list[Any]:
        """All batches. A stream that was cut between two reads like a whole one: only the mark at its end tells.

        The mark (Arrow columnar format, IPC streaming format) has a length, so the reader goes on by it; at a cut it stays.
        """
        found, at = [], self._mapped.tell()
        for batch in self._file:
            found.append(batch)
            at = self._mapped.tell()
        if self._mapped.tell() == at:
            msg = "it ends without the mark of a stream's end, so batches may lack"
            raise self._pa.ArrowInvalid(msg)
        return found

    def groups(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Rows and uncompressed bytes of each group."""
        if is_parquet(self.path):
            groups = [self._file.metadata.row_group(at) for at in range(self._file.num_row_groups)]
            return tuple(group.num_rows for group in groups), tuple(group.total_byte_size for group in groups)
        try:
            found = [(batch.num_rows, batch.nbytes) for batch in map(self._batch, range(self._batch_count()))]
        except (OSError, self._pa.ArrowException) as error:
            msg = f"the file cannot be read as Arrow: {_told(error)}"
            raise SourceUnreadable(msg, path=self.path, hint="Copy it again, or leave it out.") from error
        return tuple(rows for rows, _ in found), tuple(size for _, size in found)

    def _batch_count(self) -> int:
        return len(self._batches) if self._batches is not None else int(self._file.num_record_batches)

    def _batch(self, at: int) -> Any:  # noqa: ANN401 - pyarrow has no types
        return self._batches[at] if self._batches is not None else self._file.get_batch(at)

    def batches(self, group: int, rows: int) -> Iterator[Any]:
        """Record batches of a group, of at most so many rows each.

        Raises:
            SourceUnreadable: The group is damaged.
        """
        try:
            if is_parquet(self.path):
                yield from self._file.iter_batches(batch_size=rows, row_groups=[group], use_threads=False)
            else:
                whole = self._batch(group)
                yield from (whole.slice(at, rows) for at in range(0, whole.num_rows, rows))
        except (OSError, self._pa.ArrowException) as error:
            msg = f"row group {group} is damaged ({_told(error)})"
            raise SourceUnreadable(msg, path=self.path, hint="Copy the file again, or leave it out.") from error

    def values(self, column: str) -> Iterator[Any]:
        """A column, value by value; of a struct of bytes and path "NAME.path" reads the paths alone.

        Raises:
            SourceUnreadable: It is damaged.
        """
        name, _, part = column.partition(".") if column not in self.schema.names else (column, "", "")
        try:
            if is_parquet(self.path):
                found = self._file.iter_batches(batch_size=1 << 14, columns=[column], use_threads=False)
            else:
                found = (self._batch(at).select([name]) for at in range(self._batch_count()))
            for batch in found:
                values = batch.column(0)
                yield from (self._compute.struct_field(values, part) if part else values).to_pylist()
        except (OSError, self._pa.ArrowException) as error:
            msg = f"column {column!r} cannot be read ({_told(error)})"
            raise SourceUnreadable(msg, path=self.path, hint="Copy the file again, or leave it out.") from error

    def close(self) -> None:
        """Give file and memory back."""
        self._batches = None
        if self._mapped is None:
            self._file.close()
        else:
            self._mapped.close()


def _told(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


class Cursor:
    """Goes through the rows of a group, forwards.

    Args:
        file: The file.
        group: Number of the group.
        batch_rows: Rows that are decoded together.
    """

    def __init__(self, file: TableFile, group: int, batch_rows: int) -> None:
        self.group = group
        self._batches = file.batches(group, batch_rows)
        self._batch: Any = None
        self._first = self._stop = 0
        """Rows of the group that the batch holds."""
        self._rows: list[dict[str, Any]] = []
        self._rows_first = 0
        self._error: Exception | None = None

    def can_reach(self, row: int) -> bool:
        """Whether a row is not behind."""
        return row >= self._first

    def row(self, row: int, *, alone: bool = False) -> dict[str, Any]:
        """A row of the group as Python's values.

        Args:
            row: Its number in the group, not below the batch that the last one was in.
            alone: Decode no more than this one: the next that is asked for may be far.

        Raises:
            SourceUnreadable: The group is damaged.
            ValueError: A value that Python has not (a date beyond its range).
        """
        self._go_to(row)
        at = row - self._first
        if alone:
            found: dict[str, Any] = self._batch.slice(at, 1).to_pylist()[0]
            return found
        if not self._rows or not self._rows_first <= row < self._rows_first + len(self._rows):
            try:
                self._rows, self._rows_first = self._batch.slice(at).to_pylist(), row
            except (ValueError, OverflowError):  # one of them: each alone says which
                return self.row(row, alone=True)
        return self._rows[row - self._rows_first]

    def _go_to(self, row: int) -> None:
        if self._error is not None:
            raise self._error
        while row >= self._stop:
            self._rows = []
            try:
                self._batch = with_nanoseconds(next(self._batches))
            except SourceUnreadable as error:
                self._error = error
                raise
            self._first, self._stop = self._stop, self._stop + self._batch.num_rows


def with_nanoseconds(batch: Any) -> Any:  # noqa: ANN401 - pyarrow has no types
    """A batch with times of day in nanoseconds as text of nine digits: Python's times have microseconds."""
    pa = load("pyarrow", "parquet", "a Parquet or Arrow file")
    fine = [at for at, column in enumerate(batch.schema) if column.type.equals(pa.time64("ns"))]
    for at in fine:
        batch = batch.set_column(at, batch.schema.field(at).name, batch.column(at).cast(pa.string()))
    return batch


def hides_nanoseconds(kind: Any) -> bool:  # noqa: ANN401
    """Whether times of day in nanoseconds are inside of a type, where with_nanoseconds does not come."""
    return not str(kind).startswith("time64") and "time64[ns]" in str(kind)


def holds_bytes(kind: Any) -> bool:  # noqa: ANN401 - pyarrow has no types
    """Whether a type is bytes."""
    types = load("pyarrow", "parquet", "a Parquet or Arrow file").types
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind))


def holds_media(kind: Any) -> bool:  # noqa: ANN401
    """Whether a type is Hugging Face's pair of bytes and path."""
    types = load("pyarrow", "parquet", "a Parquet or Arrow file").types
    names = {field.name for field in kind} if types.is_struct(kind) else set()
    return names == {"bytes", "path"} and holds_bytes(kind.field("bytes").type)


def is_struct(kind: Any) -> bool:  # noqa: ANN401
    """Whether a type has parts with names."""
    return bool(load("pyarrow", "parquet", "a Parquet or Arrow file").types.is_struct(kind))


def holds_text(kind: Any) -> bool:  # noqa: ANN401
    """Whether a type is text, also as a dictionary."""
    types = load("pyarrow", "parquet", "a Parquet or Arrow file").types
    if types.is_dictionary(kind):
        return holds_text(kind.value_type)
    return bool(types.is_string(kind) or types.is_large_string(kind))
