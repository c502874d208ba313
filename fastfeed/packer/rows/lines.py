"""JSON lines as a source of rows: a row is a sample, its line carried byte for byte as a json member."""

import os
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fastfeed.config import RowConfig
from fastfeed.errors import FastfeedError, SourceChanged, UsageError
from fastfeed.packer.rows.jsonfile import LineNames, LineReader, Survey, is_compressed, parse
from fastfeed.packer.rows.labels import LabelReader
from fastfeed.packer.rows.source import Row, RowFacts, RowFailed, RowMember, Scalar
from fastfeed.units import format_count

EXTENSIONS = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz", ".jsonl.zst", ".ndjson.zst")


def is_lines(path: str) -> bool:
    """Whether a path is that of a file of JSON lines, by its name."""
    return path.lower().endswith(EXTENSIONS)


class LineRows:
    """Rows of one file of JSON lines; empty lines are none.

    Args:
        path: Of the file.
        config: label, key and column name members of the objects.

    Raises:
        UsageError: An option that is not for rows that are samples as they are.
    """

    def __init__(self, path: str, config: RowConfig) -> None:
        if config.encode or config.row_json is False:
            name = "encode" if config.encode else "row_json"
            msg = f"{name} is not for JSON lines: each is carried as it is"
            raise UsageError(msg, path=path, got=name)
        self.path, self.config = path, config

    def facts(self) -> RowFacts:
        """One pass over the file.

        Raises:
            SourceUnreadable: A line that is no JSON object, or there is none.
            UsageError: An option names what no row has, or the label is no class.
        """
        self._survey = survey = Survey(self.path, self.config)
        label, classes, columns = self.config.label, self.config.classes, survey.columns()
        why = [f"{format_count(survey.rows, 'JSON line')} ({self.path}): each is a sample, carried byte for byte as field json"]
        if survey.classes and classes is None:
            classes = tuple(sorted(survey.classes))
            why.append(f"classes are the {format_count(len(classes), 'value')} of {label!r}, sorted")
        labels = LabelReader(classes)
        labels.settle([labels.number(row.get(label)) if label is not None else None for row in survey.probes])
        if label is not None and not labels.labelled and label not in columns:
            columns = (*columns, label)
            why.append(f"{label!r} is no class, but a typed column: it is missing or -1 in every row that was looked at")
        if columns:
            why.append(f"typed columns: {', '.join(columns)}")
        why.extend([f"keys are {self.config.key!r}"] if survey.keys else [])
        reader = LineReader(self.path, survey.stamp, survey.places, survey.stride)
        self._reader = _Reader(reader, label, labels, columns)
        self._classes = classes
        size, mtime_ns = survey.stamp
        return RowFacts(
            count=survey.rows, source_bytes=survey.size_bytes, exact=True, files=1, layout="lines", stems=survey.keys or None,
            names=survey.keys or LineNames(self.path, survey.rows, survey.lines), classes=classes,
            numbered_classes=classes is None, columns=columns, fields=("cls", "json") if labels.labelled else ("json",),
            max_field_bytes=len("json"), why=tuple(why), unshuffled=self._unshuffled(),
            identity={"file": os.path.basename(self.path), "size": size, "mtime_ns": mtime_ns, "rows": survey.rows},
        )  # fmt: skip

    def _unshuffled(self) -> str:
        compressed = is_compressed(self.path)
        return f"{os.path.basename(self.path)} is compressed, and can only be read in order" if compressed else ""

    def rows(self, numbers: Sequence[int]) -> Iterator[Row | RowFailed]:
        """Rows by number; quick where they rise."""
        return self._reader.rows(numbers)

    def spec(self) -> Mapping[str, object]:
        """Path, settled columns and classes, and places in the file."""
        survey, reader = self._survey, self._reader
        return {
            "kind": "lines", "path": self.path, "label": reader.label, "classes": self._classes, "columns": reader.columns,
            "labelled": reader.labels.labelled, "stamp": survey.stamp, "places": survey.places.tolist(),
            "stride": survey.stride,
        }  # fmt: skip

    @staticmethod
    def from_spec(spec: Mapping[str, Any]) -> "_Reader":
        """In a worker."""
        size, mtime_ns = spec["stamp"]
        reader = LineReader(spec["path"], (size, mtime_ns), array("Q", spec["places"]), spec["stride"])
        return _Reader(reader, spec["label"], LabelReader(spec["classes"], labelled=spec["labelled"]), spec["columns"])


class _Reader:
    """Rows by number, once it is settled what is in them."""

    def __init__(self, file: LineReader, label: str | None, labels: LabelReader, columns: Sequence[str]) -> None:
        self.file, self.label, self.labels, self.columns = file, label, labels, columns

    def rows(self, numbers: Sequence[int]) -> Iterator[Row | RowFailed]:
        """Rows by number; quick where they rise."""
        for at, number in enumerate(numbers):
            try:
                line, text = self.file.row(number)
                row = self._row(line, text)
                if at == len(numbers) - 1:
                    self.file.prove()  # again: what was written into it meanwhile must not pass
                yield row
            except FastfeedError as error:
                kind = "changed" if isinstance(error, SourceChanged) else "unreadable"
                yield RowFailed(number, f"{os.path.basename(self.file.path)} row {number}", kind, str(error))

    def _row(self, line: int, text: bytes) -> Row:
        row = parse(text, line, self.file.path)
        label = self.labels.number(row.get(self.label) if self.label is not None else None)
        found = ((name, row.get(name)) for name in self.columns)
        scalars: dict[str, Scalar] = {name: value for name, value in found if isinstance(value, bool | int | float | str)}
        return Row((RowMember("json", text),), label, scalars or None)
