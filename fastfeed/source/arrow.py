"""Tables in parquet files, their columns read when they are asked for. pyarrow is asked for here alone."""

import datetime as dt
import decimal
import json
import math
import os
import uuid
from array import array
from collections.abc import Iterator
from typing import Any

from fastfeed.archive.usercolumn import UserColumn
from fastfeed.errors import SourceError, SourceUnreadable
from fastfeed.optional import load
from fastfeed.source.cells import CHUNK_ROWS, Cells

_BYTES = ("is_binary", "is_large_binary", "is_fixed_size_binary", "is_binary_view")  # the last is younger than the others


class ParquetFile:
    """A parquet file, its schema read.

    Args:
        path: The file.

    Raises:
        SourceError: It is no parquet file, or damaged, or has two columns of one name.
        SourceUnreadable: It cannot be opened.
        UsageError: pyarrow is not installed.
    """

    def __init__(self, path: str) -> None:
        self._parquet = load("pyarrow.parquet", "parquet", "a parquet file")
        self._arrow = load("pyarrow", "parquet", "a parquet file")
        self.path, self.base = path, os.path.basename(path)
        try:
            self._file = self._parquet.ParquetFile(path)
        except OSError as error:
            msg = f"the table cannot be read: {error.strerror or error}"
            raise SourceUnreadable(msg, path=path) from error
        except self._arrow.ArrowException as error:
            raise self._damaged(error) from error
        self._schema = self._file.schema_arrow
        self.names: tuple[str, ...] = tuple(self._schema.names)
        self.rows: int = self._file.metadata.num_rows
        self.unreadable = {
            name: f"it holds {kind}, which is no text"
            for name, kind in zip(self.names, self._schema.types, strict=True)
            if self._has_bytes(kind)
        }
        """Columns with bytes anywhere in them: name -> why they are no text."""
        twice = [name for name in self.names if self.names.count(name) > 1]
        if twice:
            msg = f"{self.base} has two columns of the name {twice[0]!r}"
            raise SourceError(msg, path=path, hint="Rename one of them.")

    def cells(self, name: str) -> Cells:
        """A column as text: numbers as Python writes them, lists and structs as JSON, null as the empty text.

        Raises:
            SourceError: The file is damaged, or the column holds bytes.
        """
        found = Cells()
        for values in self._values(name):
            found.extend([value if type(value) is str else self._written(name, value) for value in values])
        return found

    def typed(self, name: str) -> UserColumn | None:
        """A column of whole numbers, numbers or truth values without a loss; None where its cells must be looked at.

        Raises:
            SourceError: The file is damaged.
        """
        kind, types = self._schema.field(name).type, self._arrow.types
        why = f"the column is {kind} in {self.base}"
        if types.is_floating(kind):
            values: array[float] = array("d")
            for chunk in self._values(name):
                values.extend(math.nan if value is None else float(value) for value in chunk)
            return UserColumn(name, "float64", values, f"float64: {why}")
        if types.is_boolean(kind):
            truths = [value for chunk in self._values(name) for value in chunk]
            return None if None in truths else UserColumn(name, "bool", bytes(truths), f"bool: {why}")
        if types.is_integer(kind):
            return self._integers(name, f"int64: {why}")
        return None

    def _has_bytes(self, kind: Any) -> bool:  # noqa: ANN401 - an Arrow type
        types = self._arrow.types
        if any(getattr(types, test)(kind) for test in _BYTES if hasattr(types, test)):
            return True
        below = [kind.value_type] if types.is_dictionary(kind) else [kind.field(at).type for at in range(kind.num_fields)]
        return any(map(self._has_bytes, below))

    def is_text(self, name: str) -> str:
        """Why a column is text whatever its cells look like; empty where it may be something else."""
        kind, types = self._schema.field(name).type, self._arrow.types
        numeric = types.is_floating(kind) or types.is_boolean(kind) or types.is_integer(kind)
        return "" if numeric else f"text: the column is {kind} in {self.base}"

    def _integers(self, name: str, why: str) -> UserColumn | None:
        numbers: array[int] = array("q")
        for chunk in self._values(name):
            try:
                numbers.extend(array("q", chunk))
            except (OverflowError, TypeError):  # beyond int64, or missing: as for the numbers of any other table
                return None
        return UserColumn(name, "int64", numbers, why)

    def _values(self, name: str) -> Iterator[list[Any]]:
        """A column's values as Python's, many at a time."""
        try:
            # A name with a dot may also select a field of a struct: the column is taken from what comes by its own name.
            for batch in self._file.iter_batches(CHUNK_ROWS, columns=[name], use_threads=False):
                yield batch.column(batch.schema.get_field_index(name)).to_pylist()
        except (self._arrow.ArrowException, OSError) as error:
            raise self._damaged(error) from error

    def _written(self, name: str, value: Any) -> str:  # noqa: ANN401 - whatever Arrow gives
        if value is None:
            return ""
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int | float):
            return repr(value)
        if isinstance(value, dt.date | dt.time):
            return value.isoformat()
        if isinstance(value, decimal.Decimal | dt.timedelta | uuid.UUID | str):
            return str(value)
        if name in self.unreadable or not isinstance(value, list | dict):
            msg = f"column {name!r} of {self.base}: it holds {self._schema.field(name).type}, which is no text"
            raise SourceError(msg, path=self.path, hint="Take another column.")
        return json.dumps(value, ensure_ascii=False, default=str)

    def _damaged(self, error: Exception) -> SourceError:
        msg = f"{self.base} is no parquet file, or damaged ({error})"
        return SourceError(msg, path=self.path, hint="Copy it again, or write it anew.")
