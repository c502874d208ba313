"""Tables of one JSON object a line: jsonl, also called ndjson."""

import json
import os
from array import array
from collections.abc import Collection, Iterator
from itertools import islice
from typing import Any

from fastfeed.errors import SourceError
from fastfeed.source.cells import CHUNK_ROWS, Cells, Parsed
from fastfeed.source.textfile import open_text

_MISSING = object()
_NAMES = {str: "a string", dict: "an object", list: "a list", bool: "true or false", int: "a number", float: "a number"}


def read_jsonl(path: str, wanted: Collection[str] | None) -> Parsed:
    """All rows of a jsonl file, by column; a column is there if one row has it.

    Numbers, true and false are as JSON writes them, strings as they are, null and what a row has not are missing; lists and
    objects are JSON text.

    Args:
        path: The file, perhaps compressed.
        wanted: Only these columns are kept; None keeps all.

    Raises:
        SourceError: A line that is no JSON object; not UTF-8.
        SourceUnreadable: It cannot be read.
    """
    parsed, columns = Parsed(), dict[str, _Column]()
    with open_text(path, newline="\n") as file:
        lines = _lines(file)
        while found := list(islice(lines, CHUNK_ROWS)):
            objects = [_object(text, number, path) for number, text in found]
            parsed.lines.extend(number for number, _ in found)
            for name in dict.fromkeys(name for row in objects for name in row):
                column = columns.setdefault(name, _Column())
                if wanted is None or name in wanted:
                    column.pad(parsed.rows)
                    column.extend([row.get(name, _MISSING) for row in objects], parsed.lines, parsed.rows)
            parsed.rows += len(objects)
    if parsed.rows == 0:
        msg = f"{os.path.basename(path)} is empty"
        raise SourceError(msg, path=path, hint="Each of its lines must be a JSON object.")
    if parsed.lines[-1] == parsed.rows:
        parsed.lines = array("Q")
    parsed.names = tuple(columns)
    for name, column in columns.items():
        column.pad(parsed.rows)
        parsed.cells[name] = column.cells
        if column.why:
            parsed.texts[name] = column.why
    return parsed


def raw_rows(path: str) -> Iterator[str]:
    """The JSON object of each row as it is written, read anew from the file.

    Raises:
        SourceError: As read_jsonl, but for lines that are no objects.
        SourceUnreadable: It cannot be read.
    """
    with open_text(path, newline="\n") as file:
        for _, text in _lines(file):
            yield text.strip()


def _lines(file: Iterator[str]) -> Iterator[tuple[int, str]]:
    """Line numbers from 1 and texts; blank lines are passed over."""
    return ((number, line) for number, line in enumerate(file, 1) if not line.isspace())


class _Column:
    """The cells of one key, and why they are text if they are no numbers throughout."""

    def __init__(self) -> None:
        self.cells, self.why = Cells(), ""

    def pad(self, rows: int) -> None:
        """Missing cells up to a row."""
        while len(self.cells) < rows:
            self.cells.extend([""] * min(CHUNK_ROWS, rows - len(self.cells)))

    def extend(self, values: list[Any], lines: "array[int]", first: int) -> None:
        """Add a chunk of JSON values."""
        kinds = set(map(type, values)) & {str, dict, list}
        if kinds and not self.why:
            at = next(at for at, value in enumerate(values) if type(value) in kinds)
            self.why = f"text: line {lines[first + at]} is {_NAMES[type(values[at])]}"
        self.cells.extend([value if type(value) is str else _written(value) for value in values])


def _written(value: Any) -> str:  # noqa: ANN401 - JSON has no one type
    return "" if value is None or value is _MISSING else json.dumps(value, ensure_ascii=False)


def _object(text: str, number: int, path: str) -> dict[str, Any]:
    where = f"line {number} of {os.path.basename(path)}"
    try:
        row = json.loads(text)
    except (ValueError, RecursionError) as error:
        msg = f"{where} is no JSON ({error})"
        raise SourceError(msg, path=path, got=text[:80], hint="Each line must be one JSON object.") from error
    if not isinstance(row, dict):
        msg = f"{where} is no JSON object"
        raise SourceError(msg, path=path, got=text[:80], hint="Each line must be one JSON object.")
    return row
