"""A subject whose samples are rows of a table (Parquet, Arrow) or of JSON lines: what pack would make of each is looked at."""

from collections.abc import Mapping
from typing import Any

from fastfeed.auditor.clock import Clock
from fastfeed.auditor.finding import Finding
from fastfeed.auditor.looking.textlook import Tokenizer
from fastfeed.auditor.record import SampleRecord
from fastfeed.auditor.running.codes import UNREADABLE
from fastfeed.auditor.running.examine import Member, examine_members, warm_up
from fastfeed.auditor.running.subject import How
from fastfeed.packer.rows.source import Row, RowFacts, RowFailed, RowSource
from fastfeed.packer.rows.worker import rebuild


def describe(source: RowSource, facts: RowFacts) -> dict[str, Any]:
    """What a child is told to open.

    Args:
        source: Rows that a fresh process can read.
        facts: What is known of them.
    """
    names = None if facts.names is None else list(facts.names)
    return {"rows": source.spec(), "count": facts.count, "names": names, "classes": facts.classes}


class Rowed:
    """Rows by number.

    Args:
        spec: As describe() gives it.
        tokenizer: Counts the tokens of texts.
    """

    def __init__(self, spec: Mapping[str, Any], tokenizer: Tokenizer | None = None) -> None:
        self._reader, self._tokenizer = rebuild(spec["rows"]), tokenizer
        self._names, self._classes = spec["names"], spec["classes"]
        self.count: int | None = spec["count"]
        warm_up()

    def load(self, index: int, how: How) -> SampleRecord:
        """Read a row, decode its images and look at its members. From the disk it cannot be read: others share its pages."""
        record = SampleRecord(index, path=None if self._names is None else self._names[index])
        if not how.load or how.cold:
            return record
        clock = Clock()
        with clock:
            (row,) = self._reader.rows([index])
        record.times["read"] = clock.time
        if isinstance(row, RowFailed):
            record.findings.append(Finding(UNREADABLE, row.why))
            return record
        record.label = self._label(row)
        examine_members(record, [Member(one.field, _name_of(one.source, one.field), one.data) for one in row.members], how,
                        self._tokenizer)  # fmt: skip
        return record

    def _label(self, row: Row) -> str | None:
        if row.label is None:
            return None
        return self._classes[row.label] if self._classes is not None else str(row.label)


def _name_of(source: str, field: str) -> str:
    """A member's file name: the path that it had, else its field."""
    return source or f"row.{field}"
