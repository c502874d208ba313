"""Tables whose cells a character parts: csv (RFC 4180) and tsv (IANA text/tab-separated-values)."""

import csv
import os
import re
from array import array
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

from fastfeed.errors import SourceAmbiguous, SourceError
from fastfeed.source.cells import CHUNK_ROWS, Cells, Parsed
from fastfeed.source.textfile import MAX_LINE_BYTES, open_text

_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?")
_FILE_NAME = re.compile(
    r"\.(jpe?g|png|gif|bmp|webp|tiff?|txt|json|wav|mp3|flac|ogg|opus|mp4|npy|npz|pdf|xml|html?)", re.IGNORECASE
)
_SHOWN = 5


def read_delimited(path: str, delimiter: str, wanted: Collection[str] | None) -> Parsed:
    """All rows of a csv or tsv file, by column.

    A csv's cells may be in quotes, doubled inside. A tsv has no quotes: they are part of the text (so CommonVoice
    writes them).

    Args:
        path: The file, perhaps compressed.
        delimiter: A comma or a tab.
        wanted: Only these columns are kept; None keeps all.

    Raises:
        SourceError: No header, a name twice in it, a row of another length, a quote that is never closed, not UTF-8.
        SourceUnreadable: It cannot be read.
    """
    quoting: dict[str, Any] = {"strict": True} if delimiter == "," else {"quoting": csv.QUOTE_NONE}
    with open_text(path, newline="") as file, _long_fields():
        rows = csv.reader(file, delimiter=delimiter, **quoting)
        reading = _Reading(path, rows)
        parsed = reading.header(delimiter)
        kept = [at for at, name in enumerate(reading.names) if name and (wanted is None or name in wanted)]
        columns = [(at, Cells()) for at in kept]
        for chunk in reading.chunks():
            turned = list(zip(*chunk, strict=True))
            for at, cells in columns:
                cells.extend(turned[at])
            parsed.rows += len(chunk)
    parsed.lines = reading.lines if reading.crooked else array("Q")
    parsed.cells = {reading.names[at]: cells for at, cells in columns}
    if delimiter == "\t":
        parsed.notes += _quoted(parsed.cells)
    return parsed


@contextmanager
def _long_fields() -> Iterator[None]:
    # The module's limit of 131,072 characters is its own, not a fact of the file: a caption or a JSON cell may be longer.
    # Some limit there must be: a cell in quotes goes on over the ends of lines, which are bounded elsewhere.
    before = csv.field_size_limit(MAX_LINE_BYTES)
    try:
        yield
    finally:
        csv.field_size_limit(before)


class _Reading:
    """A csv reader that knows on which line each row begins."""

    def __init__(self, path: str, rows: Any) -> None:  # noqa: ANN401 - the csv module does not name its reader's type
        self.path, self._rows = path, rows
        self.base = os.path.basename(path)
        self.names: list[str] = []
        self.lines: array[int] = array("Q")
        self.crooked = False
        """Whether a row takes several lines, or a line has no row."""

    def header(self, delimiter: str) -> Parsed:
        """The names of the columns."""
        first = next(self.chunks(1), None)
        if first is None:
            msg = f"{self.base} is empty"
            raise SourceError(msg, path=self.path, hint="Its first line must name the columns.")
        self.names = list(first[0])
        parsed = Parsed(tuple(name for name in self.names if name), first_line=self.lines.pop() + 1)
        unnamed = [str(at) for at, name in enumerate(self.names, 1) if not name]
        if unnamed:
            parsed.notes.append(f"left out: column {', '.join(unnamed)} of {self.base}, which the header does not name")
        twice = [name for name, count in Counter(parsed.names).items() if count > 1]
        if twice:
            places = [at for at, name in enumerate(self.names, 1) if name == twice[0]]
            msg = f"the header of {self.base} names column {twice[0]!r} twice"
            raise SourceError(msg, path=self.path, got=f"columns {', '.join(map(str, places))}", hint="Rename one of them.")
        self._prove_header(delimiter)
        return parsed

    def _prove_header(self, delimiter: str) -> None:
        names = self.names
        others = [other for other in ";\t,|" if other != delimiter and other in names[0]]
        if len(names) == 1 and others:
            msg = f"the header of {self.base} is one column, {names[0][:80]!r}: its cells seem to be parted by {others[0]!r}"
            hint = "A .csv has commas, a .tsv has tabs: convert it or rename it."
            raise SourceAmbiguous(msg, path=self.path, hint=hint)
        numbers = [name for name in names if _NUMBER.fullmatch(name)]
        files = [name for name in names if _FILE_NAME.fullmatch(os.path.splitext(name)[1])]
        if len(numbers) == len(names) or files:
            msg = f"{self.base} has no header: its first line holds {(files or numbers)[0][:80]!r}"
            raise SourceAmbiguous(msg, path=self.path, hint="Add a first line that names the columns.")

    def chunks(self, size: int = CHUNK_ROWS) -> Iterator[list[list[str]]]:
        """Rows, many at a time; blank lines are passed over.

        Raises:
            SourceError: A row of another length than the header, or a quote in the wrong place.
        """
        rows, before = self._rows, self._rows.line_num
        while True:
            try:
                found = [(row, rows.line_num) for row in islice(rows, size)]
            except csv.Error as error:
                raise self._misquoted(error) from error
            if not found:
                return
            ends = [before, *(line for _, line in found)]
            before = ends[-1]
            chunk = [row for row, _ in found if row]
            starts = array("Q", (end + 1 for (row, _), end in zip(found, ends, strict=False) if row))
            self.crooked = self.crooked or len(chunk) < len(found) or before - ends[0] != len(found)
            if self.names and set(map(len, chunk)) - {len(self.names)}:
                at = next(at for at, row in enumerate(chunk) if len(row) != len(self.names))
                raise self._ragged(chunk[at], starts[at])
            self.lines.extend(starts)
            if chunk:
                yield chunk

    def _ragged(self, row: Sequence[str], line: int) -> SourceError:
        msg = f"line {line} of {self.base} has {len(row)} fields, its header has {len(self.names)}"
        hint = "A comma or a quote in a text must be in quotes." if row and len(row) > len(self.names) else "Mend that line."
        return SourceError(msg, path=self.path, got=",".join(row)[:80], hint=hint)

    def _misquoted(self, error: csv.Error) -> SourceError:
        line = self._rows.line_num
        what = "a quote that is opened is never closed" if "unexpected end" in str(error) else str(error)
        msg = f"{self.base} breaks the rules of csv up to line {line}: {what}"
        return SourceError(
            msg, path=self.path, hint='A quote inside a text is written twice, and the text in quotes: "a ""b"" c".'
        )


def _quoted(columns: dict[str, Cells]) -> list[str]:
    """What to say of cells of a tsv that are in quotes."""
    notes = []
    for name, cells in columns.items():
        count = sum(len(value) > 1 and value[0] == value[-1] == '"' for value in cells)
        if count:
            notes.append(f"column {name!r}: {count} cells are in quotes, which belong to the text (a tsv has no quoting)")
    return notes
