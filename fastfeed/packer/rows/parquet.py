"""Parquet and Arrow files as a source of rows: bytes columns become members, the rest JSON and typed columns.

The only user of pyarrow here. Rows are read by row group, so a worker holds one group's batch of rows and no more as long
as rows are asked for in order.
"""

import json
import os
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

from fastfeed.config import RowConfig
from fastfeed.errors import FastfeedError, SourceUnreadable, UsageError
from fastfeed.packer.rows.python import PROBES, LabelReader, to_row
from fastfeed.packer.rows.source import Row, RowFacts, RowFailed
from fastfeed.packer.rows.values import Names, safe_path
from fastfeed.source.names import split_name
from fastfeed.units import format_count

EXTENSIONS = (".parquet", ".arrow", ".feather")
_BATCH_ROWS = 64
_CACHED_GROUPS = 2


def _arrow() -> Any:  # noqa: ANN401 - a module
    try:
        import pyarrow as pa  # noqa: PLC0415 - optional
        import pyarrow.parquet  # noqa: PLC0415
    except ImportError as error:
        msg = "reading Parquet and Arrow files needs pyarrow"
        raise UsageError(msg, hint="Install it: pip install 'fastfeed[parquet]'.") from error
    return pa


class _File:
    """One file: its schema, and its rows by group (an Arrow file's record batches are groups as well)."""

    def __init__(self, path: str) -> None:
        pa = _arrow()
        self.path = path
        try:
            if path.endswith(".parquet"):
                self._parquet = pa.parquet.ParquetFile(path)
                self.schema = self._parquet.schema_arrow
                groups = [self._parquet.metadata.row_group(at) for at in range(self._parquet.num_row_groups)]
                self.counts = [group.num_rows for group in groups]
                self.source_bytes = sum(group.total_byte_size for group in groups)
            else:
                self._parquet = None
                self._table = _arrow_table(pa, path)
                self.schema = self._table.schema
                self.counts = [batch.num_rows for batch in self._table.to_batches()]
                self.source_bytes = self._table.nbytes
        except (OSError, pa.ArrowException) as error:
            msg = f"the file cannot be read as {'Parquet' if path.endswith('.parquet') else 'Arrow'}: {error}"
            raise SourceUnreadable(msg, path=path) from error

    def batches(self, group: int) -> Iterator[list[dict[str, Any]]]:
        """Rows of a group, a few at a time."""
        if self._parquet is not None:
            found = self._parquet.iter_batches(batch_size=_BATCH_ROWS, row_groups=[group], use_threads=False)
        else:
            whole = self._table.to_batches()[group]
            found = (whole.slice(at, _BATCH_ROWS) for at in range(0, whole.num_rows, _BATCH_ROWS))
        return (batch.to_pylist() for batch in found)

    def values(self, column: str) -> list[Any]:
        """A column."""
        if self._parquet is not None:
            found = self._parquet.read(columns=[column], use_threads=False).column(0)
        else:
            found = self._table.column(column)
        return list(found.to_pylist())

    def paths(self, column: str) -> list[str | None]:
        """The paths of a column of (bytes, path), without the bytes."""
        if self._parquet is not None:
            found = self._parquet.read(columns=[f"{column}.path"], use_threads=False).column(0)
            return [None if value is None else value["path"] for value in found.to_pylist()]
        parts = [chunk.field("path") for chunk in self._table.column(column).chunks]
        return [path for part in parts for path in part.to_pylist()]


def _arrow_table(pa: Any, path: str) -> Any:  # noqa: ANN401 - pyarrow has no types
    """A memory-mapped table, from a file of Arrow's file or stream format (Hugging Face's cache is a stream)."""
    source = pa.memory_map(path)
    try:
        return pa.ipc.open_file(source).read_all()
    except pa.ArrowInvalid:
        source.seek(0)
        return pa.ipc.open_stream(source).read_all()


class ParquetRows:
    """Rows of files with one schema, in the order given.

    Args:
        paths: Of the files.
        config: How columns become fields.
        names: Settled by another process; None settles them here.
    """

    def __init__(self, paths: Sequence[str], config: RowConfig, names: Names | None = None) -> None:
        self.paths, self.config = list(paths), config
        self._files = [_File(path) for path in self.paths]
        first = self._files[0]
        for file in self._files[1:]:
            if not file.schema.equals(first.schema):
                msg = "the files have different columns or types"
                raise SourceUnreadable(msg, path=file.path, expected=_schema_text(first), got=_schema_text(file))
        self._starts = [0, *accumulate(sum(file.counts) for file in self._files)]
        self._groups = [(file, group) for file in self._files for group in range(len(file.counts))]
        self._group_starts = [0, *accumulate(file.counts[group] for file, group in self._groups)]
        self._whole: OrderedDict[int, list[dict[str, Any]]] = OrderedDict()
        self.why: list[str] = []
        label, self.classes, self._numbered = self._label(), config.classes, True
        if names is not None:
            label = names.label
        self._classes_of(label)
        self.names = names or Names.of(config, label)
        self.labels = LabelReader(self.classes)

    # ------------------------------------------------------------------------------------------------ the class
    def _label(self) -> str | None:
        label, names = self.config.label, self._files[0].schema.names
        if label is not None and label not in names:
            msg = f"there is no column {label!r}"
            raise UsageError(msg, path=self.paths[0], expected=f"one of {', '.join(names)}", got=repr(label))
        if label is None:
            named = [name for name, feature in self._features().items() if _is_class_label(feature)]
            if len(named) == 1:
                label = named[0]
                self.why.append(f"the class is column {label!r}: the file's Hugging Face metadata says so")
        return label

    def _features(self) -> Mapping[str, Any]:
        """Hugging Face's description of the columns, where the file has one."""
        raw = (self._files[0].schema.metadata or {}).get(b"huggingface")
        try:
            found = json.loads(raw)["info"]["features"] if raw else {}
        except (ValueError, KeyError, TypeError):
            return {}  # a hint that cannot be read is none
        return found if isinstance(found, dict) else {}

    def _classes_of(self, label: str | None) -> None:
        feature = self._features().get(label) if label is not None else None
        if label is None or self.classes is not None:
            return
        if _is_class_label(feature):
            self.classes = tuple(feature["names"])  # type: ignore[index]
        elif "string" in str(self._files[0].schema.field(label).type):
            values = {value for file in self._files for value in file.values(label)}
            self.classes = tuple(sorted(value for value in values if value is not None))
            self.why.append(f"classes are the {len(self.classes)} values of {label!r}, sorted")

    # ------------------------------------------------------------------------------------------------ facts
    def facts(self) -> RowFacts:
        """What is known beforehand.

        Raises:
            SourceUnreadable: There are no rows.
        """
        count = self._starts[-1]
        if count == 0:
            msg = "the file has no row"
            raise SourceUnreadable(msg, path=self.paths[0])
        probes = [row for _, row in zip(range(PROBES), self._in_order(), strict=False)]
        self.names.settle(probes)
        stats = [os.stat(path) for path in self.paths]
        stems, names = self._stems()
        shown = self.paths[0] if len(self.paths) == 1 else f"{len(self.paths)} files"
        return RowFacts(
            count=count, source_bytes=sum(file.source_bytes for file in self._files), exact=True, files=len(self.paths),
            layout="table", stems=stems, names=names, classes=self.classes, numbered_classes=self.classes is None,
            max_field_bytes=self.names.max_field_bytes, fields=tuple(sorted(self.names.fields.values())),
            identity={
                "files": [os.path.basename(path) for path in self.paths], "sizes": [s.st_size for s in stats],
                "mtimes_ns": [s.st_mtime_ns for s in stats], "rows": count,
            },
            why=(f"a table of {format_count(count, 'row')} ({shown})", *self.why, *self.names.why),
        )  # fmt: skip

    def has_payload(self) -> bool:
        """Whether there is a column of bytes, so that packing buys something."""
        return any("binary" in str(field.type) for field in self._files[0].schema)

    def _stems(self) -> tuple[list[str] | None, list[str] | None]:
        """Name and source path a row, by the key column or by the paths beside the bytes; neither where there is none."""
        schema = self._files[0].schema
        column = self.config.key
        if column is not None and column not in schema.names:
            msg = f"there is no column {column!r}"
            raise UsageError(msg, path=self.paths[0], expected=f"one of {', '.join(schema.names)}", got=repr(column))
        media = [f.name for f in schema if _is_media(f.type)]
        if column is None and not media:
            return None, None
        if column is not None:
            values = [value for file in self._files for value in file.values(column)]
            if any(value is None for value in values):
                msg = f"the key column {column!r} has missing values"
                raise SourceUnreadable(msg, path=self.paths[0], sample=values.index(None))
            texts = [str(value) for value in values]
            self.why.append(f"keys are column {column!r}")
            return texts, texts
        paths = [safe_path(path or "") for file in self._files for path in file.paths(media[0])]
        if not all(paths):
            return None, None
        self.why.append(f"keys are the paths in column {media[0]!r}")
        return [split_name(path)[0] for path in paths], paths

    # ------------------------------------------------------------------------------------------------ rows
    def _in_order(self) -> Iterator[dict[str, Any]]:
        for file, group in self._groups:
            for batch in file.batches(group):
                yield from batch

    def rows(self, numbers: Sequence[int]) -> Iterator[Row | RowFailed]:
        """Rows in the order asked for; quick where that is the files' own."""
        at, last = -1, -1
        stream: Iterator[dict[str, Any]] = iter(())
        ascending = all(before < after for before, after in pairwise(numbers))
        for number in numbers:
            group = bisect_right(self._group_starts, number) - 1
            if not ascending:
                yield self._row(number, self._group(group)[number - self._group_starts[group]])
                continue
            if group != at:
                at, last = group, self._group_starts[group] - 1
                file, own = self._groups[group]
                stream = (row for batch in file.batches(own) for row in batch)
            row: dict[str, Any] = {}
            while last < number:
                row, last = next(stream), last + 1
            yield self._row(number, row)

    def _group(self, group: int) -> list[dict[str, Any]]:
        """All rows of a group; the last few groups are kept."""
        found = self._whole.get(group)
        if found is None:
            file, own = self._groups[group]
            found = self._whole[group] = [row for batch in file.batches(own) for row in batch]
            if len(self._whole) > _CACHED_GROUPS:
                self._whole.popitem(last=False)
        self._whole.move_to_end(group)
        return found

    def _row(self, number: int, row: dict[str, Any]) -> Row | RowFailed:
        try:
            return to_row(self.names.encode_row(row), self.labels)
        except FastfeedError as error:
            file = bisect_right(self._starts, number) - 1
            where = f"{os.path.basename(self.paths[file])} row {number - self._starts[file]}"
            return RowFailed(number, where, "unreadable", str(error))

    # ------------------------------------------------------------------------------------------------ workers
    def spec(self) -> Mapping[str, object]:
        """Paths and settled names."""
        return {"kind": "parquet", "paths": self.paths, "names": self.names.to_json(), "classes": self.classes}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> "ParquetRows":
        """In a worker."""
        classes = None if spec["classes"] is None else tuple(spec["classes"])
        return cls(spec["paths"], RowConfig(classes=classes), Names(**spec["names"]))


def _schema_text(file: _File) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in file.schema)


def _is_class_label(feature: object) -> bool:
    return isinstance(feature, dict) and feature.get("_type") == "ClassLabel" and isinstance(feature.get("names"), list)


def _is_media(kind: object) -> bool:
    """Whether a type is Hugging Face's pair of bytes and path."""
    names = {field.name for field in kind} if str(kind).startswith("struct<") else set()  # type: ignore[attr-defined]
    return names == {"bytes", "path"}
