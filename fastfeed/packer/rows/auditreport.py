"""The report of an audit, as packing reads it: a line of JSON a sample, as ``fastfeed audit --jsonl`` writes it.

The file is the interface. Packing knows neither the auditor nor its catalogue of codes.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fastfeed.errors import UsageError

ERROR, WARNING = "error", "warning"
_SHOWN = 80


@dataclass(frozen=True, slots=True)
class Audited:
    """What the report says of one sample."""

    path: str | None
    """Below what was audited, undecodable bytes as surrogate escapes; None for what has no name, and for what is no sample."""
    size_bytes: int | None
    format: str | None
    width: int | None
    height: int | None
    mode: str | None
    """Of Pillow."""
    codes: Mapping[str, str]
    """Severity of each finding by its code, in the order of the report."""

    @property
    def is_jpeg(self) -> bool:
        """Whether it is one, of whichever kind: "JPEG", "JPEG progressive"."""
        return self.format is not None and self.format.partition(" ")[0] == "JPEG"

    def code_of(self, severity: str) -> str | None:
        """The first code that is so severe."""
        return next((code for code, found in self.codes.items() if found == severity), None)


def read_report(path: str) -> Iterator[Audited]:
    """The lines of a report.

    Args:
        path: Of the JSONL file.

    Raises:
        UsageError: No such file, or a line that no audit has written; the line is named.
    """
    try:
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                yield _parsed(line, path, number)
    except (OSError, UnicodeDecodeError) as error:
        msg = f"the audit report cannot be read: {getattr(error, 'strerror', None) or error}"
        raise UsageError(msg, path=path) from error


def _parsed(line: str, path: str, number: int) -> Audited:
    try:
        record = json.loads(line)
        codes = {str(found["code"]): str(found["severity"]) for found in record["findings"]}
        if not isinstance(record["index"], int):
            msg = "its index is no number"
            raise TypeError(msg)
        size_bytes, width, height = (_number(record.get(name)) for name in ("size_bytes", "width", "height"))
        name, kind, mode = (None if record.get(name) is None else str(record[name]) for name in ("path", "format", "mode"))
        return Audited(name, size_bytes, kind, width, height, mode, codes)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        msg = f"line {number} of the audit report is no record of a sample ({type(error).__name__}: {error})"
        hint = "fastfeed audit SRC --jsonl FILE writes such a report."
        raise UsageError(msg, path=path, got=line.strip()[:_SHOWN], hint=hint) from error


def _number(value: object) -> int | None:
    if value is None or (isinstance(value, int) and value >= 0):
        return value
    msg = f"{value!r} is no size"
    raise TypeError(msg)
