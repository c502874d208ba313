"""Columns that the user gave, on their way into an index or a side file: name, kind, values. README.md §4.3.

Free of numpy, so that whatever reads tables can make them.
"""

import re
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal, get_args

from fastfeed.archive.columns import BYTES
from fastfeed.errors import UsageError

USER = "x."
"""Before the name of a user column in the index, so that it never meets a name of the format."""
UserKind = Literal["int64", "float64", "bool", "text"]
STORED: Mapping[UserKind, str] = {"int64": "int64", "float64": "float64", "bool": "uint8", "text": BYTES}
"""Kind -> type in the column file."""
KIND_OF: Mapping[str, UserKind] = {stored: kind for kind, stored in STORED.items()}
MAX_NAME_BYTES = 200
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_FORMATS: Mapping[UserKind, str] = {"int64": "ql", "float64": "d", "bool": "B?"}
_ITEM_BYTES: Mapping[UserKind, int] = {"int64": 8, "float64": 8, "bool": 1}


def is_user_name(name: str) -> bool:
    """Whether a user column may be called so: 1 to 200 bytes of UTF-8 without control characters."""
    return not _CONTROL.search(name) and 1 <= len(name.encode()) <= MAX_NAME_BYTES


@dataclass(frozen=True, slots=True)
class UserColumn:
    """A column that the user gave, a sample a row.

    Raises:
        UsageError: The name or the kind is not one that the format takes.
    """

    name: str
    kind: UserKind
    values: Sequence[Any]
    """int64: array('q'); float64: array('d'), missing is NaN; bool: bytes of 0 and 1; text: strings, missing is ""."""
    why: str = ""
    """Where the kind comes from; it is not written."""

    def __post_init__(self) -> None:
        if not is_user_name(self.name):
            msg = f"a column's name is 1 to {MAX_NAME_BYTES} bytes of UTF-8 without control characters"
            raise UsageError(msg, got=ascii(self.name[:80]), hint="Rename the column.")
        if self.kind not in STORED:
            msg = f"column {self.name!r} has an unknown kind"
            raise UsageError(msg, expected=f"one of {', '.join(get_args(UserKind))}", got=repr(self.kind))

    def stored(self, rows: int) -> tuple[str, tuple[object, ...]]:
        """Type and parts in a column file.

        Args:
            rows: How many values there must be.

        Raises:
            UsageError: It has not that many values, values of another type, or text that is no UTF-8.
        """
        if len(self.values) != rows:
            msg = f"column {self.name!r} has not one value a sample"
            raise UsageError(msg, expected=f"{rows} values", got=len(self.values))
        parts: tuple[object, ...] = self._texts() if self.kind == "text" else (self._numbers(),)
        return STORED[self.kind], parts

    def _numbers(self) -> memoryview:
        view = memoryview(self.values)  # type: ignore[arg-type] # arrays and bytes have a buffer
        if view.format not in _FORMATS[self.kind] or view.itemsize != _ITEM_BYTES[self.kind]:
            msg = f"column {self.name!r} has values of another type than it says"
            raise UsageError(msg, expected=self.kind, got=f"items of {view.itemsize} bytes and format {view.format!r}")
        if self.kind == "bool" and (other := bytes(view).translate(None, b"\0\1")):
            msg = f"column {self.name!r} has a truth value that is neither 0 nor 1"
            raise UsageError(msg, got=other[0])
        return view

    def _texts(self) -> tuple[object, object]:
        text = "".join(self.values)
        try:
            data = text.encode()
        except UnicodeEncodeError as error:
            ends = accumulate(map(len, self.values))
            row = next(row for row, end in enumerate(ends) if end > error.start)
            msg = f"row {row} of column {self.name!r} is no UTF-8 text"
            got = ascii(self.values[row][:80])
            raise UsageError(msg, got=got, hint="Give it as text without surrogate escapes.") from error
        lengths = map(len, self.values) if text.isascii() else (len(value.encode()) for value in self.values)
        return array("Q", accumulate(lengths, initial=0)), data
