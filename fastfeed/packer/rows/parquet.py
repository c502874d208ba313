"""Parquet and Arrow files as a source of rows: bytes columns become members, the rest JSON and typed columns."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fastfeed.archive.shard import CLASS_FIELD
from fastfeed.config import RowConfig
from fastfeed.errors import FastfeedError, SourceUnreadable, UsageError
from fastfeed.packer.rows.labels import LabelReader, keep_unlabelled
from fastfeed.packer.rows.source import PROBE_BYTES, Row, RowFacts, RowFailed
from fastfeed.packer.rows.tablefile import EXTENSIONS as EXTENSIONS  # noqa: PLC0414 - this module is the door to tables
from fastfeed.packer.rows.tablefile import (
    Head,
    TableFile,
    hides_nanoseconds,
    holds_bytes,
    holds_media,
    holds_text,
    is_parquet,
    is_struct,
    read_head,
)  # fmt: skip
from fastfeed.packer.rows.tablerows import Facts, TableRows, stamp
from fastfeed.packer.rows.values import OTHER_ROW_JSON, ROW_JSON, Names, safe_path
from fastfeed.source.names import split_name
from fastfeed.units import format_count

_PROBED_GROUPS, _PROBED_ROWS = 8, 8
_NO_CLASS = -1
_LABELS = {"label", "labels", "class", "class_id", "target"}
"""What a column of classes is often called."""


class ParquetRows:
    """Rows of files with one schema, in the order given.

    Args:
        paths: Of the files.
        config: How columns become fields.

    Raises:
        SourceUnreadable: A file cannot be read, has two columns of one name, or other columns than the first.
        UsageError: A column that is not there.
    """

    def __init__(self, paths: Sequence[str], config: RowConfig) -> None:
        self.config = config
        stamps = list(map(stamp, paths))
        self._heads = [read_head(path) for path in paths]
        self.path, self.schema = paths[0], self._heads[0].schema
        _refuse_twice(self.path, self.schema)
        self._refuse_hidden_nanoseconds()
        for head in self._heads[1:]:
            if not head.schema.equals(self.schema):
                msg = "the files have different columns or types"
                raise SourceUnreadable(msg, path=head.path, expected=_schema_text(self._heads[0]), got=_schema_text(head))
        self.why: list[str] = []
        self.classes = config.classes
        names = Names.of(config, self._label())
        files = [Facts(head.path, head.counts, sum(head.sizes), seen) for head, seen in zip(self._heads, stamps, strict=True)]
        self.table = TableRows(files, names, LabelReader(self.classes))

    def _refuse_hidden_nanoseconds(self) -> None:
        for column in self.schema:
            if hides_nanoseconds(column.type):
                msg = f"column {column.name!r} holds times of day in nanoseconds inside of {column.type}, which Python has not"
                raise SourceUnreadable(msg, path=self.path, hint="Write them as text or as whole numbers.")

    # ------------------------------------------------------------------------------------------------ the class
    def _label(self) -> str | None:
        """The column of the class, and its classes: as asked for, else what Hugging Face's metadata say."""
        label, features = self.config.label, self._features()
        if label is not None:
            self._prove_column(label)
        else:
            named = [name for name, feature in features.items() if _is_class_label(feature) and name in self.schema.names]
            label = named[0] if len(named) == 1 and self._is_whole(named[0]) else None
        if label is None or self.classes is not None:
            return label
        feature = features.get(label)
        if _is_class_label(feature):
            self.classes = tuple(feature["names"])  # type: ignore[index] # _is_class_label says so
        elif holds_text(self.schema.field(label).type):
            self.classes = tuple(sorted({value for value in self._values(label) if value is not None}))
            self.why.append(f"classes are the {format_count(len(self.classes), 'value')} of column {label!r}, sorted")
        return label

    def _is_whole(self, name: str) -> bool:
        """Whether each row has a class; says what comes of it."""
        missing = sum(value is None or value == _NO_CLASS for value in self._values(name))
        if missing:
            rows = format_count(missing, "row has", "rows have")
            self.why.append(f"column {name!r} is not taken as the class: {rows} none (-1)")
            return False
        self.why.append(f"the class is column {name!r}: the file's Hugging Face metadata says so")
        return True

    def _features(self) -> Mapping[str, Any]:
        """Hugging Face's description of the columns, where the file has one."""
        raw = (self.schema.metadata or {}).get(b"huggingface")
        try:
            found = json.loads(raw)["info"]["features"] if raw else {}
        except (ValueError, KeyError, TypeError):
            return {}  # a hint that cannot be read is none
        return found if isinstance(found, dict) else {}

    def _prove_column(self, name: str) -> None:
        if name not in self.schema.names:
            msg = f"there is no column {name!r}"
            raise UsageError(msg, path=self.path, expected=f"one of {', '.join(self.schema.names)}", got=repr(name))

    def _values(self, column: str) -> Iterator[Any]:
        """A column of all files."""
        for head in self._heads:
            file = TableFile(head.path)
            try:
                yield from file.values(column)
            finally:
                file.close()

    # ------------------------------------------------------------------------------------------------ facts
    def facts(self) -> RowFacts:
        """What is known beforehand.

        Raises:
            SourceUnreadable: There are no rows, or those that are looked at cannot be read.
            UsageError: A value that cannot be stored.
        """
        table, names = self.table, self.table.names
        count, size = len(table.row_names), sum(sum(head.sizes) for head in self._heads)
        if count == 0:
            msg = "the file has no row" if len(self._heads) == 1 else "the files have no row"
            raise SourceUnreadable(msg, path=self.path)
        probes = self._probes()
        names.settle([*probes.values(), *self._first_values(probes.values())], self.schema.names)
        fields = self._prove_probes(probes)
        keep_unlabelled(names, self.table.labels, probes.values())
        stems, paths = self._stems()
        shown = self.path if len(self._heads) == 1 else f"{len(self._heads)} files"
        return RowFacts(
            count=count, source_bytes=size, exact=True, files=len(self._heads), layout="table", stems=stems,
            names=paths or table.row_names, classes=self.classes, numbered_classes=self.classes is None,
            columns=names.columns, max_field_bytes=names.max_field_bytes, fields=self._fields(fields),
            gathered=sum(sum(head.sizes) for head in self._heads if is_parquet(head.path)),
            identity={
                "files": [os.path.basename(head.path) for head in self._heads],
                "sizes": [file.stamp[0] for file in table.files], "mtimes_ns": [file.stamp[1] for file in table.files],
                "rows": count,
            },
            why=(f"a table of {format_count(count, 'row')} ({shown})", *self.why, *names.why, *self._told_rest(fields)),
        )  # fmt: skip

    def _told_rest(self, fields: set[str]) -> list[str]:
        """What becomes of the columns that are no field."""
        told = [
            f"the other columns of each row are its field {field}: row_json=False (--no-row-json) leaves it out"
            for field in (ROW_JSON, OTHER_ROW_JSON)
            if field in fields - set(self.table.names.fields.values())
        ]
        names = [name for name in self.schema.names if name.lower() in _LABELS]
        if names and self.table.names.label is None and not any("not taken as the class" in line for line in self.why):
            told.append(f"column {names[0]!r} is not taken as the class: label={names[0]!r} (--label {names[0]}) makes it so")
        return told

    def _fields(self, found: set[str]) -> tuple[str, ...]:
        """Those that the settled columns become, and those that the rows which were looked at have besides (a row's JSON)."""
        labels = {CLASS_FIELD} if self.table.labels.labelled else set()
        return tuple(sorted({*self.table.names.fields.values(), *found, *labels}))

    def _probes(self) -> dict[int, dict[str, Any]]:
        """A few rows, from groups that are spread evenly; fewer where they are large."""
        found: dict[int, dict[str, Any]] = {}
        size = 0
        for number in self.table.spread(_PROBED_GROUPS, _PROBED_ROWS):
            try:
                found[number] = self.table.values(number, alone=True)
            except (ValueError, OverflowError) as error:
                msg = f"{self.table.row_names[number]} holds a value that Python has not ({error})"
                raise SourceUnreadable(msg, path=self.path, sample=number) from error
            size += self.table.mean_bytes(number)
            if size > PROBE_BYTES:
                break
        return found

    def _prove_probes(self, probes: Mapping[int, Mapping[str, Any]]) -> set[str]:
        """The rows that were looked at can be packed, so that a mistake in the options shows early; their fields."""
        numbers, fields = [], set[str]()
        for number, values in probes.items():
            try:
                encoded = self.table.names.encode_row(values)
                numbers.append(self.table.labels.number(encoded.label))
                fields.update(member.field for member in encoded.members)
            except FastfeedError as error:
                error.message = f"{self.table.row_names[number]} cannot be packed: {error.message}"
                raise
        self.table.labels.settle(numbers)
        return fields

    def _first_values(self, probes: Sequence[Mapping[str, Any]] | Any) -> list[dict[str, Any]]:  # noqa: ANN401 - dict's values
        """Columns of bytes that no probe has a value of: the first value that there is, so that they have their field."""
        found = []
        for column in self.schema:
            seen = any(row[column.name] is not None for row in probes)
            if not seen and (holds_bytes(column.type) or holds_media(column.type)):
                value = next((value for value in self._values(column.name) if value is not None), None)
                found.append({column.name: value})
        return found

    def first(self, count: int) -> list[dict[str, Any]]:
        """The first rows, as Python's values."""
        return [self.table.values(number) for number in range(min(count, len(self.table.row_names)))]

    def has_payload(self) -> bool:
        """Whether there is a column of bytes, so that packing buys something."""
        return any(holds_bytes(column.type) or holds_media(column.type) for column in self.schema)

    def _stems(self) -> tuple[list[str] | None, list[str] | None]:
        """Name and source path a row, by the key column or by the paths beside the bytes; neither where there is none."""
        column = self.config.key
        media = [entry.name for entry in self.schema if holds_media(entry.type)]
        if column is not None:
            self._prove_column(column)
            values = list(self._values(column))
            wrong = next((at for at, value in enumerate(values) if not isinstance(value, str | int) or value == ""), None)
            if wrong is not None:
                msg = f"{self.table.row_names[wrong]} has no text or number {column!r} to be its key"
                raise SourceUnreadable(msg, path=self.path, sample=wrong, got=repr(values[wrong])[:80])
            texts = list(map(str, values))
            self.why.append(f"keys are column {column!r}")
            return texts, texts
        paths = [safe_path(path or "") for path in self._values(f"{media[0]}.path")] if media else []
        if not paths or not all(paths):
            return None, None
        self.why.append(f"keys are the paths in column {media[0]!r}")
        return [split_name(path)[0] for path in paths], paths

    # ------------------------------------------------------------------------------------------------ rows
    def rows(self, numbers: Sequence[int]) -> Iterator[Row | RowFailed]:
        """Rows in the order asked for; quick where that is the files' own."""
        return self.table.rows(numbers)

    def spec(self) -> Mapping[str, object]:
        """Of the rows: paths, groups, and what was settled."""
        return self.table.to_spec(self.classes)


def _refuse_twice(path: str, fields: Any, inside: str = "") -> None:  # noqa: ANN401 - pyarrow has no types
    """Of two columns with one name, or two parts of a struct, a row as a dict would keep only the last."""
    names = [column.name for column in fields]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        msg = f"the file has {names.count(twice)} columns that are called {inside + twice!r}"
        hint = "Rename all but one, or write the file without them: a sample holds each name once."
        raise SourceUnreadable(msg, path=path, expected="different names", got=repr(inside + twice), hint=hint)
    for column in fields:
        if is_struct(column.type):
            _refuse_twice(path, column.type, f"{inside}{column.name}.")


def _schema_text(head: Head) -> str:
    return ", ".join(f"{column.name}: {column.type}" for column in head.schema)


def _is_class_label(feature: object) -> bool:
    return isinstance(feature, dict) and feature.get("_type") == "ClassLabel" and isinstance(feature.get("names"), list)
