"""What decides how an audit is done."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypedDict

from fastfeed.config import RowConfig, row_config
from fastfeed.errors import UsageError
from fastfeed.units import parse_size

_ROWS = ("field", "label", "key", "classes")
"""Options that are about rows, as pack has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditConfig:
    """What decides how an audit is done."""

    workers: int | None = None
    """Processes; by default the usable processors."""
    sample: int | None = None
    """Only so many samples, drawn at random."""
    max_minutes: float | None = None
    """Begin no sample after this time; they are then taken in random order. The last fifth is for measuring again."""
    fast: bool = False
    """Without the looks that cost as much as decoding: a second decoder that warns of damage, grey bands, later frames, PNGs'
    checksums, headers of tars; and without a search of a JPEG's data for another picture behind the first."""
    kill_after: float | None = None
    """Seconds after which a sample is ended. Without it: the longer of ten minutes and 1,000 times what 99 of 100 take.
    With it the opening of a dataset is given up as well, after a minute at least; without it that may take for ever."""
    memory_limit: int | str | None = None
    """What loading one sample may take; by default four fifths of the memory that is left, shared by the workers."""
    hidden: bool = False
    """Of a folder: look also at what begins with a dot."""
    root: str | os.PathLike[str] | None = None
    """Of a list: the folder that paths are relative to; else its own."""
    rows: RowConfig = field(default_factory=RowConfig)
    """Of a list or table: which columns name files (field), the class (label) and samples (key); the classes; as for pack."""
    baseline: str | os.PathLike[str] | None = None
    """The report (jsonl=) of an earlier audit: only what is not in it counts."""
    thumbnails: bool = True
    """Whether the page (html=) shows flagged images."""
    tokenizer: Any = None
    """Counts the tokens of texts: something to call with a text, something with encode(), or "module:name", "file.py:name"."""

    def __post_init__(self) -> None:
        for name in ("workers", "sample"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                msg = f"{name} is a whole number from 1"
                raise UsageError(msg, got=repr(value))
        for name in ("max_minutes", "kill_after"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int | float) or not value > 0):
                msg = f"{name} is a number above 0"
                raise UsageError(msg, got=repr(value))
        if isinstance(self.memory_limit, str):
            try:
                object.__setattr__(self, "memory_limit", parse_size(self.memory_limit))
            except ValueError as error:
                msg = f"memory_limit: {error}"
                raise UsageError(msg) from error


class AuditOptions(TypedDict, total=False):
    """AuditConfig's fields as keyword arguments."""

    workers: int | None
    sample: int | None
    max_minutes: float | None
    fast: bool
    kill_after: float | None
    memory_limit: int | str | None
    hidden: bool
    root: str | os.PathLike[str] | None
    field: Mapping[str, str]
    label: str | None
    key: str | None
    classes: Sequence[str] | None
    baseline: str | os.PathLike[str] | None
    thumbnails: bool
    tokenizer: Any


def audit_config(options: Mapping[str, object]) -> AuditConfig:
    """An AuditConfig from keyword arguments.

    Raises:
        UsageError: An option that there is not, or a value that does not fit.
    """
    names = [entry.name for entry in fields(AuditConfig) if entry.name != "rows"] + list(_ROWS)
    unknown = sorted(set(options) - set(names))
    if unknown:
        msg = f"audit has no option {', '.join(unknown)}"
        raise UsageError(msg, expected=f"among {', '.join(names)}", got=", ".join(unknown))
    about_rows = {name: value for name, value in options.items() if name in _ROWS}
    others = {name: value for name, value in options.items() if name not in _ROWS}
    return AuditConfig(rows=row_config(about_rows), **others)  # type: ignore[arg-type]
