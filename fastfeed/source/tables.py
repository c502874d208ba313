"""Tables of rows and named columns: csv, tsv, jsonl (each also .gz and .zst) and parquet, read by column.

Cells stay as text, close together, until a column is asked for with its type; the type is that of all its cells, and says
why. Whatever is wrong with a table is named by its line.
"""

import os
from collections.abc import Iterator, Mapping, Sequence

from fastfeed.archive.usercolumn import UserColumn
from fastfeed.errors import SourceChanged, UsageError
from fastfeed.source.arrow import ParquetFile
from fastfeed.source.cells import Cells, Parsed, infer
from fastfeed.source.delimited import read_delimited
from fastfeed.source.jsonlines import raw_rows, read_jsonl
from fastfeed.source.textfile import COMPRESSED

_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_JSONL = (".jsonl", ".ndjson")
_PARQUET = (".parquet", ".pq")
FORMATS = (*_DELIMITERS, *_JSONL, *_PARQUET)
"""What the name of a table ends in; all but parquet may have .gz or .zst behind it."""


def table_format(path: str) -> str | None:
    """The one of FORMATS that a file's name ends in, None where it names no table."""
    name = path.lower()
    stem = name.removesuffix(next((end for end in COMPRESSED if name.endswith(end)), ""))
    found = next((end for end in FORMATS if stem.endswith(end)), None)
    return None if found in _PARQUET and stem != name else found


def read_table(path: str | os.PathLike[str], *, columns: Sequence[str] | None = None) -> "Table":
    """Read a table.

    Args:
        path: A file; its name says its format (FORMATS).
        columns: Only these are kept, the others cost no memory; None keeps all.

    Raises:
        SourceUnreadable: It cannot be opened or read.
        SourceError: Its bytes or its rows break the rules of its format; the line is named.
        SourceAmbiguous: It has no header, or cells parted by another character.
        UsageError: A name that ends in none of FORMATS, a column that it has not, or an optional package that is not
            installed.
    """
    file = os.fsdecode(path)
    kind = table_format(file)
    if kind is None:
        msg = f"{os.path.basename(file)} is no table by its name"
        raise UsageError(msg, path=file, expected=f"a name that ends in {', '.join(FORMATS)}", hint="Rename or convert it.")
    if kind in _PARQUET:
        return Table(file, ParquetFile(file), columns)
    before = _stamp(file)
    parsed = read_jsonl(file, columns) if kind in _JSONL else read_delimited(file, _DELIMITERS[kind], columns)
    return Table(file, parsed, columns, stamp=before if kind in _JSONL else None)


class Table:
    """A table, its cells read by column.

    Args:
        path: Its file.
        content: What is in it.
        columns: Those that were asked for, None for all.
        stamp: Size and time of a jsonl file when it was read.

    Raises:
        UsageError: A column that it has not.
    """

    def __init__(
        self,
        path: str,
        content: "Parsed | ParquetFile",
        columns: Sequence[str] | None = None,
        *,
        stamp: tuple[int, int] | None = None,
    ) -> None:
        self.path = path
        self._content, self._stamp = content, stamp
        self.names: tuple[str, ...] = content.names
        """All columns that the file has, in its order."""
        self.notes: tuple[str, ...] = tuple(content.notes) if isinstance(content, Parsed) else ()
        """What a reader of the table should know: sentences."""
        self.unreadable: Mapping[str, str] = {} if isinstance(content, Parsed) else content.unreadable
        """Columns that hold no text and no numbers, such as bytes: name -> why."""
        for name in columns or ():
            self._prove(name)
        self._kept = frozenset(self.names if columns is None else columns)

    def __len__(self) -> int:
        return self._content.rows

    def text(self, name: str) -> list[str]:
        """A column's cells as they are written; "" for missing.

        Raises:
            UsageError: No such column, or it was not kept.
            SourceError: A parquet file that is damaged, or a column of it that holds bytes.
        """
        return list(self.cells(name))

    def cells(self, name: str) -> Cells:
        """As text(), without an object a cell.

        Raises:
            UsageError: As text().
            SourceError: As text().
        """
        self._prove(name)
        if name not in self._kept:
            msg = f"column {name!r} of {os.path.basename(self.path)} was not kept"
            raise UsageError(msg, path=self.path, expected=f"one of {', '.join(sorted(self._kept))}")
        return self._content.cells[name] if isinstance(self._content, Parsed) else self._content.cells(name)

    def typed(self, name: str) -> UserColumn:
        """A column with the one type that all its cells have; its .why says where the type comes from.

        Types are those of archive/README.md §4.3; cells.infer() tells the rules for text. A JSON string is text also if it
        holds digits; a parquet column keeps the type that the file declares, as far as no digit is lost.

        Raises:
            UsageError: As text(), or a name that a column cannot have.
            SourceError: As text().
        """
        content = self._content
        if isinstance(content, Parsed):
            declared = content.texts.get(name)
        else:
            self._prove(name)
            found = content.typed(name)
            if found is not None:
                return found
            declared = content.is_text(name)
        cells = self.cells(name)
        return UserColumn(name, "text", cells, declared) if declared else infer(name, cells, self.where)

    def where(self, row: int) -> str:
        """Where a row is in its file, for messages: "line 7", or "row 7" of a parquet file (from 1)."""
        return f"line {self._content.line(row)}" if isinstance(self._content, Parsed) else f"row {row + 1}"

    def rows_raw(self) -> Iterator[str]:
        """The JSON object of each row of a jsonl file, as it is written; read anew from the file, row by row.

        Raises:
            UsageError: The table is no jsonl file.
            SourceChanged: The file is another one by now.
        """
        if self._stamp is None:
            msg = f"{os.path.basename(self.path)} has no rows of JSON"
            raise UsageError(msg, path=self.path, expected="a jsonl file")
        if _stamp(self.path) != self._stamp:
            msg = "the table changed after it was read"
            raise SourceChanged(msg, path=self.path, hint="Begin again when nothing writes to it.")
        return raw_rows(self.path)

    def _prove(self, name: str) -> None:
        if name not in self.names:
            msg = f"{os.path.basename(self.path)} has no column {name!r}"
            raise UsageError(msg, path=self.path, expected=f"one of {', '.join(map(repr, self.names))}")


def _stamp(path: str) -> tuple[int, int] | None:
    try:
        facts = os.stat(path)
    except OSError:
        return None  # whoever opens it says why
    return facts.st_size, facts.st_mtime_ns
