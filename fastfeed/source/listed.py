"""A list (csv, tsv, jsonl, parquet) that names files: which columns are paths, what the samples are, and each with its reason.

It gives what a scan and a layout give of a folder, a Listing and a Draft, so that whoever reads folders reads lists.
"""

import hashlib
import math
import os
import re
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from fastfeed.archive.shard import LEGAL_FIELD, MAX_FIELD_BYTES
from fastfeed.archive.usercolumn import UserColumn, is_user_name
from fastfeed.config import RowConfig
from fastfeed.errors import SourceUnreadable, UsageError
from fastfeed.media import IMAGE_EXTENSIONS, is_image_field
from fastfeed.sample import printable
from fastfeed.source.layout import Draft
from fastfeed.source.lister import NOT_SNIFFED, UNREADABLE
from fastfeed.source.names import canonical, split_name
from fastfeed.source.scan import LeftOut, Listing
from fastfeed.source.tables import Table, read_table
from fastfeed.units import format_count

_PROBED_ROWS = 50
_SHOWN = 5
_WHOLE = re.compile("-?(?:0|[1-9][0-9]*)")
_SHOWN_CHARACTERS = 40
_MAX_NUMBERED_CLASSES = 1 << 20
_BRACES = re.compile(r"\{([^{}]*)\}")
_OWN_EXTENSIONS = IMAGE_EXTENSIONS | {"txt", "json", "npy", "npz", "wav", "flac", "mp3", "ogg", "opus", "mp4", "webm", "xml"}


@dataclass(frozen=True, slots=True)
class Template:
    """Where the files of one field are."""

    name: str
    """As the user or the column calls it."""
    parts: tuple[str, ...]
    """Text and column names in turn: text, column, text, column, ..., text."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that it needs."""
        return self.parts[1::2]

    def paths(self, table: Table) -> list[str]:
        """The path of each row; empty where a cell that it needs is missing."""
        cells = [table.text(name) for name in self.columns]
        texts = self.parts[::2]
        rows = zip(*cells, strict=True) if cells else iter([()] * len(table))
        return [
            "" if cells and not all(row) else "".join([texts[0], *(a + b for a, b in zip(row, texts[1:], strict=True))])
            for row in rows
        ]


@dataclass(slots=True)
class Listed:
    """A list, read."""

    table: Table
    root: str
    """Folder below which the files are."""
    listing: Listing
    """The files, in the order of samples and fields."""
    draft: Draft
    """The samples: a row each, but for those without any file."""
    rows: "array[int]"
    """Row of the table a sample."""
    columns: list[UserColumn]
    """Typed columns, a sample a row."""
    digest: str
    """sha256 of the list's bytes."""
    missing: list[LeftOut] = field(default_factory=list)
    """Rows that name no file, or one that is not there."""


def read_list(path: str, config: RowConfig, root: str | None = None) -> Listed:
    """Read a list and look at each file that it names.

    Args:
        path: Of the list.
        config: field, label, key, column, classes.
        root: Folder to which paths in it are relative; by default the list's own.

    Raises:
        SourceUnreadable: The list cannot be read, or names no file that is there.
        UsageError: A column that it has not.
    """
    table = read_table(path)
    base = os.path.abspath(root if root is not None else os.path.dirname(os.path.abspath(path)))
    if not len(table):
        msg = "the list has no row"
        raise SourceUnreadable(msg, path=path)
    templates, why = _templates(table, config, base)
    reader = _Reader(table, base, templates, config)
    listed = reader.read()
    listed.draft.why[:0] = [f"a list of {format_count(len(table), 'row')} ({path}), files below {base}", *why, *table.notes]
    return listed


def _templates(table: Table, config: RowConfig, root: str) -> tuple[list[Template], list[str]]:
    """Where the files are: as asked for, else the columns whose cells are paths of files that are there."""
    if config.field:
        return [_template(name, text, table) for name, text in config.field], []
    found, tried = [], []
    for name in table.names:
        cells = [cell for _, cell in zip(range(_PROBED_ROWS), table.text(name), strict=False) if cell]
        if not cells or any(len(cell) > 4096 or "\0" in cell for cell in cells):  # noqa: PLR2004 - no path is longer
            continue
        there = sum(os.path.isfile(os.path.join(root, cell)) for cell in cells)
        tried.append((there, any(os.path.splitext(cell)[1] or "/" in cell for cell in cells), name, cells[0]))
        if there * 2 > len(cells):
            found.append(Template(name, ("", name, "")))
    if not found:
        _, _, column, cell = max(tried, default=(0, False, "", ""))
        msg = f"no column of the list names files below {root}"
        hint = (
            "Say where they are: --field image='images/{id}.jpg' (a column in braces), or --root FOLDER for paths that are "
            "relative to another folder."
        )
        got = f"columns {', '.join(table.names[:8])}; for instance {printable(cell[:80])!r} of {column!r} is no file"
        raise SourceUnreadable(msg, path=table.path, got=got, hint=hint)
    names = " and ".join(repr(template.name) for template in found)
    return found, [f"files are named by column {names}: what it says is there"]


def _template(name: str, text: str, table: Table) -> Template:
    """Of "images/{id}.jpg", or of the name of a column."""
    if not text:
        msg = f"field {name} has no template"
        raise UsageError(msg, expected="such as 'images/{id}.jpg'", got=repr(text))
    if "{" not in text and text in table.names:
        return Template(name, ("", text, ""))
    parts = _BRACES.split(text)
    unknown = [column for column in parts[1::2] if column not in table.names]
    if unknown or len(parts) == 1:
        what = "no column" if len(parts) == 1 else f"column {unknown[0]!r}, which is not there"
        msg = f"the template of field {name} names {what}"
        expected = f"one of {', '.join(table.names)} in braces"
        raise UsageError(msg, path=table.path, expected=expected, got=repr(text))
    return Template(name, tuple(parts))


class _Reader:
    """Goes through the rows once."""

    def __init__(self, table: Table, root: str, templates: Sequence[Template], config: RowConfig) -> None:
        self.table, self.root, self.templates, self.config = table, root, templates, config
        self.listing, self.rows = Listing(), array("q")
        self.draft = Draft("", "list", None, as_imagefolder=False)
        self.missing: list[LeftOut] = []

    def read(self) -> Listed:
        paths = [template.paths(self.table) for template in self.templates]
        fields = [
            _field(template, own, first=at == 0) for at, (template, own) in enumerate(zip(self.templates, paths, strict=True))
        ]
        fields = [f"{_word(t.name)}.{name}" if fields.index(name) < at else name
                  for at, (t, name) in enumerate(zip(self.templates, fields, strict=True))]  # fmt: skip
        order = sorted(range(len(fields)), key=fields.__getitem__)
        for row in range(len(self.table)):
            self._row(row, [(fields[at], paths[at][row]) for at in order], paths[0][row])
        self.listing.folders.append("")
        self.listing.folder_starts.append(len(self.listing))
        if not len(self.draft):
            shown = "; ".join(f"{printable(item.source)}: {item.why}" for item in self.missing[:3])
            msg = f"no row of the list names a file that is there ({shown})"
            raise SourceUnreadable(msg, path=self.table.path, hint="Look at --root and --field.")
        self._label()
        self._stems(fields)
        return Listed(
            self.table, self.root, self.listing, self.draft, self.rows, self._columns(), _digest(self.table.path), self.missing
        )

    def _row(self, row: int, wanted: Sequence[tuple[str, str]], first: str) -> None:
        """One row: its files are looked at; one that is not there makes the sample one that is left out."""
        listing, draft, before = self.listing, self.draft, len(self.listing)
        for name, path in wanted:
            if not path:
                continue  # a missing cell is a missing field
            self._file(row, path)
            draft.files.append(len(listing) - 1)
            draft.fields.append(name)
        if len(listing) == before:
            why = "its cells name no file"
            self.missing.append(LeftOut(f"{os.path.basename(self.table.path)} {self.table.where(row)}", "unreadable", why))
            return
        draft.starts.append(len(draft.files))
        draft.stems.append(first or listing.names[before])
        self.rows.append(row)

    def _file(self, row: int, path: str) -> None:
        listing = self.listing
        try:
            facts = os.stat(os.path.join(self.root, path))
            why = "" if os.path.stat.S_ISREG(facts.st_mode) else "no regular file"  # type: ignore[attr-defined]
            size, stamp = facts.st_size, facts.st_mtime_ns
        except (OSError, ValueError) as error:
            why, size, stamp = (error.strerror if isinstance(error, OSError) else None) or "no path", 0, 0
        listing.names.append(path)
        listing.sizes.append(0 if why else size)
        listing.mtimes_ns.append(0 if why else stamp)
        listing.codecs.append(UNREADABLE if why else NOT_SNIFFED)
        if why:
            listing.unreadable.append(LeftOut(path, "unreadable", f"{why} ({self.table.where(row)} of the list)"))

    # ------------------------------------------------------------------------------------------------ class, key, columns
    def _label(self) -> None:
        """The class column, as class numbers."""
        name = self.config.label
        if name is None:
            return
        column = self.table.typed(name)
        values = [column.values[row] for row in self.rows]
        draft = self.draft
        if column.kind == "text":
            self._named_label(column, values)
            return
        most = len(self.config.classes) if self.config.classes else _MAX_NUMBERED_CLASSES
        wrong = next((at for at, value in enumerate(values) if not (0 <= value < most and value == int(value))), None)
        if wrong is not None:
            raise self._no_class(wrong, values[wrong], most)
        draft.labels = array("q", map(int, values))
        draft.classes = list(self.config.classes or map(str, range(max(draft.labels) + 1)))
        draft.why.append(f"the class is column {name!r}: its whole numbers as they are")

    def _no_class(self, sample: int, value: float, most: int) -> UsageError:
        """Why a number is no class."""
        where = f"{self.table.where(self.rows[sample])} of the list"
        hint = "Keep it as a column (--column), or list the names of the classes as text."
        if math.isnan(value):
            msg, hint = f"{where} has no class", "Give every row a class, or leave --label out."
        elif math.isinf(value) or value != int(value):
            msg = f"{where} has the class {value}, which is no whole number"
        elif value < 0:
            msg = f"{where} has the class {int(value)}, and classes are numbered from 0"
        else:
            msg = f"{where} has the class {int(value)}, and there are {most:,} classes at most"
        return UsageError(msg, path=self.table.path, expected=f"a whole number from 0 to {most - 1}", got=value, hint=hint)

    def _named_label(self, column: UserColumn, values: Sequence[str]) -> None:
        classes = list(self.config.classes or sorted(set(values)))
        numbers = {text: number for number, text in enumerate(classes)}
        wrong = next((at for at, text in enumerate(values) if text not in numbers or not text), None)
        if wrong is not None:
            where = self.table.where(self.rows[wrong])
            msg = f"{where} of the list has " + (f"the unknown class {values[wrong]!r}" if values[wrong] else "no class")
            raise UsageError(msg, path=self.table.path, got=repr(values[wrong]), hint="Give every row a class that is known.")
        self.draft.classes, self.draft.labels = classes, array("q", [numbers[text] for text in values])
        order = "as they are listed" if self.config.classes else "in sorted order"
        why = f"the class is column {column.name!r}: {format_count(len(classes), 'name')}, numbered {order}"
        self.draft.why.append(why + self._no_numbers(column, values))

    def _no_numbers(self, column: UserColumn, values: Sequence[str]) -> str:
        """Why classes of which some are numbers are names all the same; empty where none is."""
        if not any(map(str.isdecimal, values)):
            return ""
        odd = next((at for at, text in enumerate(values) if not _WHOLE.fullmatch(text)), None)
        if odd is None:  # by another row than those that are taken, or by its type
            return f"; they are no numbers, for the column is {column.why}"
        return f"; they are no numbers, for {self.table.where(self.rows[odd])} is {values[odd][:_SHOWN_CHARACTERS]!r}"

    def _stems(self, fields: Sequence[str]) -> None:
        """Names of the samples: the key column, else the path of the first field's file."""
        draft = self.draft
        if self.config.key is not None:
            texts = self.table.text(self.config.key)
            draft.stems = [texts[row] for row in self.rows]
            empty = next((at for at, stem in enumerate(draft.stems) if not stem), None)
            if empty is not None:
                msg = f"{self.table.where(self.rows[empty])} of the list has no {self.config.key!r} to be its key"
                raise SourceUnreadable(msg, path=self.table.path)
            draft.why.append(f"keys are column {self.config.key!r}")
            return
        draft.stems = [split_name(_below(path, self.root))[0] for path in draft.stems]
        if len(fields) > 1:
            draft.why.append(f"each row is a sample of {', '.join(sorted(set(fields)))}")

    def _columns(self) -> list[UserColumn]:
        """Typed columns: those asked for, else all but the class and the paths themselves."""
        bare = {t.columns[0] for t in self.templates if t.parts[0] == t.parts[-1] == "" and len(t.columns) == 1}
        names = self.config.column
        if names is None:
            names = tuple(
                name for name in self.table.names if name not in bare and name != self.config.label and is_user_name(name)
            )
        return [_picked(self.table.typed(name), self.rows, len(self.table)) for name in names]


def _picked(column: UserColumn, rows: Sequence[int], count: int) -> UserColumn:
    """A column's values at some rows."""
    if len(rows) == count:
        return column
    values = column.values
    picked = [values[row] for row in rows]
    kept: object = bytes(picked) if column.kind == "bool" else picked
    if column.kind in {"int64", "float64"}:
        kept = array("q" if column.kind == "int64" else "d", picked)
    return UserColumn(column.name, column.kind, kept, column.why)  # type: ignore[arg-type]


def _field(template: Template, paths: Sequence[str], *, first: bool) -> str:
    """The field that a template's files become."""
    own = template.name.lower()
    if LEGAL_FIELD.fullmatch(own) and len(own) <= MAX_FIELD_BYTES and own.rpartition(".")[2] in _OWN_EXTENSIONS:
        return own
    counts = Counter(canonical(split_name(os.path.basename(path))[1]) or "bin" for path in paths if path)
    images = [name for name in counts if is_image_field(name)]
    if len(images) == len(counts) or not images:
        extension = min(counts, key=lambda name: (-counts[name], name), default="bin")
    else:
        extension = counts.most_common(1)[0][0]
    return extension if first else f"{_word(template.name)}.{extension}"


def _word(name: str) -> str:
    word = "".join(c if c.isascii() and (c.isalnum() or c in "_+-") else "_" for c in name.lower())
    return word[: MAX_FIELD_BYTES - 8] or "field"


def _below(path: str, root: str) -> str:
    """A path as seen from the root, without the parts that lead elsewhere."""
    if os.path.isabs(path):
        path = os.path.relpath(path, root)
    return "/".join(part for part in path.split("/") if part not in {"", ".", ".."})


def source_path(path: str, root: str) -> str:
    """The original path of a file as the index keeps it: below the root where it lies there."""
    return _below(path, root)


def _digest(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()
