"""What passes the pipes between this process and its workers: a line of JSON, then columns of bytes, whose sizes it gives."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple, Protocol

from fastfeed import errors

_FACTS = ("message", "path", "sample", "expected", "got", "hint")


class Message(NamedTuple):
    """An order, or an event."""

    head: dict[str, Any]
    columns: list[bytes]


class Task(Protocol):
    """Something that a worker is given to do, and answers with one event that is no progress."""

    @property
    def doing(self) -> str:
        """What a worker did when it died: "packed 3 inputs"."""

    @property
    def shard(self) -> str | None:
        """File name of the shard that it writes."""

    def encode(self) -> bytes:
        """The order as it passes the pipe."""


def encode(head: Mapping[str, object], columns: Sequence[bytes] = ()) -> bytes:
    """A message; text in the head may hold surrogate escapes."""
    whole = {**head, "columns": [len(column) for column in columns]}
    return b"".join((json.dumps(whole).encode(), b"\n", *columns))


def read(file: BinaryIO) -> Message | None:
    """A message from a pipe; None where it was closed, be it in the midst of one."""
    line = file.readline()
    if not line.endswith(b"\n"):
        return None
    head = json.loads(line)
    sizes = head.pop("columns")
    columns = [file.read(size) for size in sizes]
    return Message(head, columns) if sum(map(len, columns)) == sum(sizes) else None


class Unread:
    """What came from a pipe and is not yet a whole message."""

    def __init__(self) -> None:
        self._data = b""
        self._head: dict[str, Any] | None = None

    def feed(self, data: bytes) -> Iterator[Message]:
        """The messages that these bytes complete."""
        self._data += data
        while True:
            if self._head is None:
                line, newline, rest = self._data.partition(b"\n")
                if not newline:
                    return
                self._head, self._data = json.loads(line), rest
            sizes = self._head["columns"]
            if len(self._data) < sum(sizes):
                return
            columns, at = [], 0
            for size in sizes:
                columns.append(self._data[at : at + size])
                at += size
            head, self._head, self._data = self._head, None, self._data[at:]
            del head["columns"]
            yield Message(head, columns)


def error_head(error: errors.FastfeedError) -> dict[str, object]:
    """An error as part of a message."""
    facts = {name: getattr(error, name) for name in _FACTS}
    return {
        "error": type(error).__name__,
        "facts": {name: value if isinstance(value, int | None) else str(value) for name, value in facts.items()},
    }


def error_of(head: Mapping[str, Any]) -> errors.FastfeedError:
    """The error that a message tells of."""
    facts = dict(head["facts"])
    kind: type[errors.FastfeedError] = getattr(errors, head["error"])
    return kind(facts.pop("message"), **{name: value for name, value in facts.items() if value is not None})
