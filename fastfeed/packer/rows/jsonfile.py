"""A file of JSON lines: its rows, where they are, and what a look at them tells.

One pass over the file keeps every so many of the rows' places, so that a reader goes to a row directly. A compressed file
has no places: it is read from its start.
"""

import json
import os
from array import array
from collections.abc import Iterator, Sequence
from typing import Any

from fastfeed.archive.regular import open_regular
from fastfeed.archive.usercolumn import is_user_name
from fastfeed.config import RowConfig
from fastfeed.errors import SourceChanged, SourceUnreadable, UsageError
from fastfeed.packer.rows.source import PROBES
from fastfeed.packer.rows.values import MAX_COLUMN_TEXT, prove_column_name
from fastfeed.source.textfile import COMPRESSED, open_bytes

_BOM = b"\xef\xbb\xbf"
_STRIDE, _MAX_PLACES = 16, 1 << 18
"""A place is kept for each so many rows, for fewer where there would be too many."""
_HINT = "Each line must be one JSON object."


def is_compressed(path: str) -> bool:
    """By its name."""
    return path.lower().endswith(COMPRESSED)


def lines_of(path: str) -> Iterator[tuple[int, int, bytes]]:
    """Line number from 1, bytes that the line takes, and its content; empty for a blank line.

    Raises:
        SourceError: The file cannot be read or decompressed.
    """
    with open_bytes(path) as file:
        for number, raw in enumerate(file, 1):
            yield number, len(raw), _content(number, raw)


def _content(number: int, raw: bytes) -> bytes:
    text = raw.removeprefix(_BOM) if number == 1 else raw
    return text.rstrip(b"\r\n") if not text.isspace() else b""


def parse(text: bytes, line: int, path: str) -> dict[str, Any]:
    """A line's object.

    Raises:
        SourceUnreadable: It is none.
    """
    try:
        row = json.loads(text.decode())
    except (ValueError, RecursionError) as error:
        msg = f"line {line} is no JSON ({error})"
        raise SourceUnreadable(msg, path=path, got=text[:80], hint=_HINT) from error
    if not isinstance(row, dict):
        msg = f"line {line} is no JSON object"
        raise SourceUnreadable(msg, path=path, got=text[:80], hint=_HINT)
    return row


def stamp(path: str) -> tuple[int, int]:
    """Size and time of a file: if they are what they were, so is what it holds."""
    facts = os.stat(path)
    return facts.st_size, facts.st_mtime_ns


class Survey:
    """What one pass over the file tells.

    Args:
        path: Of the file.
        config: label, key and column name members of the objects.

    Raises:
        SourceError: It cannot be read; a line is no JSON object (each is parsed if an option asks for it, a few else).
        UsageError: An option names what no row has.
    """

    def __init__(self, path: str, config: RowConfig) -> None:
        self.path, self.config = path, config
        self.stamp = stamp(path)
        self.rows = self.size_bytes = 0
        """size_bytes: of all rows, without line ends."""
        self.places: array[int] = array("Q")
        """Offset and line number of each stride-th row, in turn; empty for a compressed file."""
        self.stride = _STRIDE
        self.lines: array[int] = array("Q")
        """Line of each row; empty where row i is line i + 1."""
        self.classes: set[str] = set()
        self.keys: list[str] = []
        self.probes: list[dict[str, Any]] = []
        """Rows spread over the file."""
        self._probe_step = 1
        self._all = not (config.label is None and config.key is None and config.column is None)
        self._known: dict[str, None] = {}
        self._read()
        self._prove()

    def _read(self) -> None:
        offset, blank, places = 0, False, not is_compressed(self.path)
        lines: array[int] = array("Q")
        for line, size, text in lines_of(self.path):
            if text:
                if places and self.rows % self.stride == 0:
                    self._place(offset, line)
                lines.append(line)
                self._row(text, line)
            else:
                blank = True
            offset += size
        self.lines = lines if blank else array("Q")

    def _place(self, offset: int, line: int) -> None:
        if len(self.places) // 2 >= _MAX_PLACES:
            self.places = array("Q", [part for at in range(0, _MAX_PLACES, 2) for part in self.places[2 * at : 2 * at + 2]])
            self.stride *= 2
        if self.rows % self.stride == 0:
            self.places.extend((offset, line))

    def _row(self, text: bytes, line: int) -> None:
        number, self.rows = self.rows, self.rows + 1
        self.size_bytes += len(text)
        probed = number % self._probe_step == 0
        if not probed and not self._all:
            return
        row = parse(text, line, self.path)
        self._known.update(dict.fromkeys(row))
        label, key = self.config.label, self.config.key
        if label is not None and isinstance(row.get(label), str):
            self.classes.add(row[label])
        if key is not None:
            self.keys.append(self._key(row.get(key), line))
        if probed:
            self.probes.append(row)
            if len(self.probes) == 2 * PROBES:
                self.probes, self._probe_step = self.probes[::2], 2 * self._probe_step

    def _key(self, value: object, line: int) -> str:
        if not isinstance(value, str | int) or isinstance(value, bool) or value == "":
            msg = f"line {line} has no text or number {self.config.key!r} to be its key"
            raise SourceUnreadable(msg, path=self.path, sample=self.rows - 1, got=repr(value)[:80])
        return str(value)

    def _prove(self) -> None:
        if not self.rows:
            msg = "the file has no row"
            raise SourceUnreadable(msg, path=self.path, hint=_HINT)
        for option, names in (("label", [self.config.label]), ("column", self.config.column or ())):
            missing = next((name for name in names if name is not None and name not in self._known), None)
            if missing is not None:
                msg = f"{option} names {missing!r}, and no row has it"
                raise UsageError(msg, path=self.path, expected=f"one of {', '.join(self._known)}", got=repr(missing))

    def columns(self) -> tuple[str, ...]:
        """Typed columns: those asked for, else all single values, texts if they are short."""
        if self.config.column is not None:
            for name in self.config.column:
                prove_column_name(name)
            return self.config.column
        values: dict[str, list[Any]] = {}
        for row in self.probes:
            for name, value in row.items():
                if value is not None and name != self.config.label:
                    values.setdefault(name, []).append(value)
        return tuple(name for name, found in values.items() if is_user_name(name) and all(map(_fits, found)))


def _fits(value: object) -> bool:
    return isinstance(value, bool | int | float) or (isinstance(value, str) and len(value) <= MAX_COLUMN_TEXT)


class LineNames(Sequence[str]):
    """How messages and skip lists call the rows: file and line.

    Args:
        path: Of the file.
        rows: How many.
        lines: Line of each, empty where row i is line i + 1.
    """

    def __init__(self, path: str, rows: int, lines: "array[int]") -> None:
        self._file, self._rows, self._lines = os.path.basename(path), rows, lines

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, number: Any) -> Any:  # noqa: ANN401 - int or slice, as every sequence
        if isinstance(number, slice):
            return [self[at] for at in range(*number.indices(len(self)))]
        number = range(self._rows)[number]
        return f"{self._file} line {self._lines[number] if self._lines else number + 1}"


class LineReader:
    """Rows by number.

    Args:
        path: Of the file.
        stamp: Size and time that it had when it was surveyed.
        places: As Survey has them.
        stride: As well.
    """

    def __init__(self, path: str, stamp: tuple[int, int], places: "array[int]", stride: int) -> None:
        self.path, self._stamp, self._places, self._stride = path, stamp, places, stride
        self._stream: Iterator[tuple[int, bytes]] | None = None
        self._next = 0
        """The row that the stream gives next."""

    def row(self, number: int) -> tuple[int, bytes]:
        """Line number and content of a row.

        Raises:
            SourceError: The file cannot be read.
            SourceChanged: It is not what it was.
        """
        place = number // self._stride
        ahead = bool(self._places) and place * self._stride > self._next
        if self._stream is None or number < self._next or ahead:
            self.prove()
            self._stream = self._rows_from(place) if self._places else self._all_rows()
            self._next = place * self._stride if self._places else 0
        for line, text in self._stream:
            self._next += 1
            if self._next > number:
                return line, text
        self._stream = None
        msg = f"the file ends before row {number}"
        raise SourceChanged(msg, path=self.path)

    def _all_rows(self) -> Iterator[tuple[int, bytes]]:
        return ((line, text) for line, _, text in lines_of(self.path) if text)

    def _rows_from(self, place: int) -> Iterator[tuple[int, bytes]]:
        offset, first = self._places[2 * place : 2 * place + 2]
        try:
            with open(self.path, "rb", opener=open_regular) as file:
                file.seek(offset)
                for line, raw in enumerate(file, first):
                    text = _content(line, raw)
                    if text:
                        yield line, text
        except OSError as error:
            msg = f"the file cannot be read: {error.strerror}"
            raise SourceUnreadable(msg, path=self.path) from error

    def prove(self) -> None:
        """Prove that the file is what it was.

        Raises:
            SourceChanged: It is not.
        """
        try:
            now = stamp(self.path)
        except OSError as error:
            msg = f"the file has gone: {error.strerror}"
            raise SourceChanged(msg, path=self.path) from error
        if now != self._stamp:
            msg = "the file was written to after its rows were counted"
            raise SourceChanged(msg, path=self.path, expected=self._stamp, got=now)
