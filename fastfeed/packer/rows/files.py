"""Files as rows: those that a list names. Each is read as in a pack of a folder, and proven to be the one that was planned."""

import json
import math
import os
from collections.abc import Iterator, Sequence

from fastfeed.archive.usercolumn import UserColumn, is_user_name
from fastfeed.config import RowConfig
from fastfeed.packer.rows.source import Row, RowFacts, RowFailed, RowMember, Scalar
from fastfeed.packer.rows.values import ROW_JSON, safe_path
from fastfeed.packer.worker import InputFailed, read_small
from fastfeed.source.listed import Listed, read_list, source_path
from fastfeed.source.lister import UNREADABLE
from fastfeed.source.scan import LeftOut
from fastfeed.source.tables import Table

_SHOWN = 12


class FileRows:
    """The samples of a list.

    Args:
        listed: What it says.
        config: row_json says whether a sample gets its row as JSON.
    """

    def __init__(self, listed: Listed, config: RowConfig) -> None:
        self.listed, self.config = listed, config
        self._raw, self.why = _raw_rows(listed.table, config)
        nested = ("is a list", "is an object") if self._raw is not None and config.column is None else ()
        self.columns = [column for column in listed.columns if not column.why.endswith(nested)] if nested else listed.columns

    @classmethod
    def of_list(cls, path: str, config: RowConfig, root: str | None) -> "FileRows":
        """Read a list.

        Raises:
            SourceError: It names nothing that is there.
            UsageError: A column that it has not.
        """
        return cls(read_list(path, config, root), config)

    def facts(self) -> RowFacts:
        """What is known beforehand."""
        listed, listing, draft = self.listed, self.listed.listing, self.listed.draft
        names = [self._name(draft.files[draft.starts[at]]) for at in range(len(draft))]
        raw_bytes = sum(len(self._raw[row].encode()) for row in listed.rows) if self._raw is not None else 0
        return RowFacts(
            count=len(draft), source_bytes=sum(listing.sizes) + raw_bytes, exact=True, layout="list",
            files=len(draft.files), starts=draft.starts,
            identity={"list": listed.digest, "files": listing.digest(), "rows": len(draft)},
            stems=draft.stems, names=names, classes=None if draft.classes is None else tuple(draft.classes),
            max_field_bytes=max(map(len, {*draft.fields, ROW_JSON, "cls"})), columns=tuple(c.name for c in self.columns),
            fields=tuple(sorted({*draft.fields, *(["cls"] if draft.classes else []), *([ROW_JSON] if self._raw else [])})),
            failed=self._broken(names), left_out=tuple(listed.missing),
            why=(*draft.why, *self.why, *_columns_why(self.columns)),
        )  # fmt: skip

    def _source(self, file: int) -> str:
        """A file's path as the index has it, empty where it takes none such."""
        return safe_path(source_path(self.listed.listing.names[file], self.listed.root))

    def _name(self, file: int) -> str:
        """A file's path as messages have it."""
        return self._source(file) or self.listed.listing.names[file]

    def sources(self, number: int) -> list[str]:
        """The paths of a sample's files as the index has them, without those that it takes none of."""
        return [source for file in self.listed.draft.files_of(number) if (source := self._source(file))]

    def _broken(self, names: Sequence[str]) -> dict[int, LeftOut]:
        """Samples that need a file that cannot be read."""
        listing, draft = self.listed.listing, self.listed.draft
        if not listing.unreadable:
            return {}
        why = {item.source: item.why for item in listing.unreadable}
        found = {}
        for at, name in enumerate(names):
            gone = next((f for f in draft.files_of(at) if listing.codecs[f] == UNREADABLE), None)
            if gone is not None:
                path = listing.names[gone]
                own = self._name(gone) == name
                found[at] = LeftOut(name, "unreadable", why[path] if own else f"its sample needs {path}: {why[path]}")
        return found

    def rows(self, numbers: Sequence[int]) -> Iterator[Row | RowFailed]:
        """Samples in the order asked for."""
        for number in numbers:
            try:
                yield self._row(number)
            except InputFailed as error:
                draft = self.listed.draft
                own = self.listed.listing.names[draft.files[draft.starts[number]]] == error.path
                why = error.why if own else f"its sample needs {error.path}: {error.why}"
                yield RowFailed(number, error.path, error.kind, why)

    def _row(self, number: int) -> Row:
        listed, listing, draft = self.listed, self.listed.listing, self.listed.draft
        members = []
        for at in range(draft.starts[number], draft.starts[number + 1]):
            file = draft.files[at]
            path, size, stamp = listing.names[file], listing.sizes[file], listing.mtimes_ns[file]
            if listing.codecs[file] == UNREADABLE:
                raise InputFailed(path, "unreadable", "it was not there when the list was read")
            data = read_small(os.path.join(listed.root, path), path, size, stamp)
            members.append(RowMember(draft.fields[at], data, self._source(file)))
        if self._raw is not None:
            members.append(RowMember(ROW_JSON, self._raw[listed.rows[number]].encode("utf-8", "surrogatepass")))
        scalars: dict[str, Scalar] = {}
        for column in self.columns:
            value = column.values[number]
            if not isinstance(value, float) or not math.isnan(value):
                scalars[column.name] = bool(value) if column.kind == "bool" else value
        label = draft.labels[number] if draft.classes is not None else None
        return Row(tuple(sorted(members)), label, scalars or None)

    def spec(self) -> None:
        """None: the list stays in memory, and a fork shares it."""
        return


def _raw_rows(table: Table, config: RowConfig) -> tuple[list[str] | None, tuple[str, ...]]:
    """The JSON of each row, where samples shall have it."""
    if config.row_json is False:
        return None, ()
    is_json = table.path.lower().removesuffix(".gz").removesuffix(".zst").endswith((".jsonl", ".ndjson"))
    if not is_json:
        if config.row_json is None:
            return None, ()
        columns = [(name, _column(table, name)) for name in table.names]
        rows = [
            json.dumps({name: _plain(column.values[row], column.kind) for name, column in columns}, ensure_ascii=False)
            for row in range(len(table))
        ]
        return rows, ("each sample gets its row as field json: asked for",)
    rows = list(table.rows_raw())
    if config.row_json:
        return rows, ("each sample gets its row as field json: asked for",)
    nested = next((at for at, row in enumerate(rows) if _is_nested(row)), None)
    if nested is None:
        return None, ()
    return rows, (f"each sample gets its row as field json: rows hold lists or objects ({table.where(nested)})",)


def _column(table: Table, name: str) -> UserColumn:
    """A column by its type; as text where the index takes no such name, since JSON does."""
    return table.typed(name) if is_user_name(name) else UserColumn("text", "text", table.text(name))


def _is_nested(row: str) -> bool:
    return any(isinstance(value, list | dict) for value in json.loads(row).values())


def _plain(value: object, kind: str) -> object:
    """A cell as JSON has it."""
    if kind == "bool":
        return bool(value)
    return None if isinstance(value, float) and math.isnan(value) else value


def _columns_why(columns: Sequence[UserColumn]) -> list[str]:
    """One sentence for all typed columns."""
    if not columns:
        return []
    shown = ", ".join(f"{column.name} ({column.kind})" for column in columns[:_SHOWN])
    more = f" and {len(columns) - _SHOWN} more" if len(columns) > _SHOWN else ""
    return [f"typed columns: {shown}{more}"]
