"""JSON lines as a source of rows: a row is a sample, its line carried byte for byte as a json member."""

import gzip
import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO

from fastfeed.config import RowConfig
from fastfeed.errors import SourceUnreadable, UsageError
from fastfeed.packer.rows.python import LabelReader
from fastfeed.packer.rows.source import Row, RowFacts, RowFailed, RowMember, Scalar
from fastfeed.units import format_count

EXTENSIONS = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz", ".jsonl.zst", ".ndjson.zst")


def is_lines(path: str) -> bool:
    """Whether a path is that of a file of JSON lines, by its name."""
    return path.lower().endswith(EXTENSIONS)


def _opened(path: str) -> BinaryIO:
    """The uncompressed lines."""
    if path.lower().endswith(".gz"):
        return gzip.open(path, "rb")  # type: ignore[return-value]
    if path.lower().endswith(".zst"):
        import zstandard  # noqa: PLC0415 - only for such files

        return io.BufferedReader(zstandard.ZstdDecompressor().stream_reader(open(path, "rb"), read_across_frames=True))
    return open(path, "rb")


class LineRows:
    """Rows of one file of JSON lines; empty lines are none.

    Args:
        path: Of the file.
        config: label, key and column name members of the objects.
    """

    def __init__(self, path: str, config: RowConfig) -> None:
        self.path, self.config = path, config
        self.classes = config.classes
        self.labels = LabelReader(self.classes)
        self._stream: Iterator[bytes] = iter(())
        self._next = 0

    def facts(self) -> RowFacts:
        """One pass over the file.

        Raises:
            SourceUnreadable: A line that is no JSON object, or there is none.
        """
        keys: list[str] = []
        values: set[str] = set()
        count = size = 0
        label, key = self.config.label, self.config.key
        for line in self._lines():
            if label is not None or key is not None or count == 0:
                row = self._object(line, count)
                keys.extend([self._key(row, count)] if key is not None else [])
                if label is not None and isinstance(row.get(label), str):
                    values.add(row[label])
            count, size = count + 1, size + len(line)
        if not count:
            msg = "the file has no row"
            raise SourceUnreadable(msg, path=self.path)
        why = [f"{format_count(count, 'JSON line')}: each is a sample, carried byte for byte as field json"]
        if values and self.classes is None:
            self.classes = tuple(sorted(values))
            why.append(f"classes are the {len(values)} values of {label!r}, sorted")
        self.labels = LabelReader(self.classes)
        facts = os.stat(self.path)
        identity = {"file": os.path.basename(self.path), "size": facts.st_size, "mtime_ns": facts.st_mtime_ns, "rows": count}
        return RowFacts(
            count=count, source_bytes=size, exact=True, files=1, layout="lines", identity=identity,
            stems=keys or None, names=keys or None, classes=self.classes, numbered_classes=self.classes is None,
            fields=("json",), max_field_bytes=len("json"), why=tuple(why),
        )  # fmt: skip

    def _key(self, row: Mapping[str, Any], number: int) -> str:
        value = row.get(str(self.config.key))
        if not isinstance(value, str | int) or isinstance(value, bool) or value == "":
            msg = f"row {number} has no text or number {self.config.key!r} to be its key"
            raise SourceUnreadable(msg, path=self.path, sample=number, got=repr(value))
        return str(value)

    def _lines(self) -> Iterator[bytes]:
        try:
            with _opened(self.path) as file:
                for line in file:
                    if line.strip():
                        yield line.rstrip(b"\r\n")
        except (OSError, EOFError) as error:
            msg = f"the file cannot be read: {error}"
            raise SourceUnreadable(msg, path=self.path) from error

    def _object(self, line: bytes, number: int) -> dict[str, Any]:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            msg = f"row {number} is no JSON ({error})"
            raise SourceUnreadable(msg, path=self.path, sample=number, got=line[:80]) from error
        if not isinstance(row, dict):
            msg = f"row {number} is no JSON object"
            raise SourceUnreadable(msg, path=self.path, sample=number, got=line[:80])
        return row

    def rows(self, numbers: Sequence[int]) -> Iterator[Row | RowFailed]:
        """Rows in rising order; a number below the last one begins the file anew."""
        for number in numbers:
            if number < self._next or self._next == 0:
                self._stream, self._next = self._lines(), 0
            line = b""
            while self._next <= number:
                line, self._next = next(self._stream), self._next + 1
            yield self._row(number, line)

    def _row(self, number: int, line: bytes) -> Row | RowFailed:
        try:
            row = self._object(line, number)
            label = self.labels.number(row.get(self.config.label)) if self.config.label is not None else None
        except (SourceUnreadable, UsageError) as error:
            return RowFailed(number, f"{os.path.basename(self.path)} row {number}", "unreadable", str(error))
        wanted = self.config.column
        scalars: dict[str, Scalar] = {
            name: value
            for name, value in row.items()
            if isinstance(value, bool | int | float | str) and name != self.config.label and (wanted is None or name in wanted)
        }
        return Row((RowMember("json", line),), label, scalars or None)

    def spec(self) -> Mapping[str, object]:
        """Path and configuration."""
        names = ("label", "column")
        return {"kind": "lines", "path": self.path, "classes": self.classes, **{n: getattr(self.config, n) for n in names}}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> "LineRows":
        """In a worker."""
        lists = {name: None if spec[name] is None else tuple(spec[name]) for name in ("classes", "column")}
        return cls(spec["path"], RowConfig(label=spec["label"], classes=lists["classes"], column=lists["column"]))
