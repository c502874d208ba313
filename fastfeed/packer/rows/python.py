"""A Python dataset as a source of rows: anything with __len__ and __getitem__, Hugging Face's datasets among them."""

import dataclasses
import hashlib
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from fastfeed.archive.shard import CLASS_FIELD
from fastfeed.config import RowConfig
from fastfeed.errors import FastfeedError, SourceUnreadable, UsageError
from fastfeed.packer.rows import huggingface
from fastfeed.packer.rows.byname import MAX_WHY, told_error, type_name
from fastfeed.packer.rows.fork import ask
from fastfeed.packer.rows.kinds import is_index
from fastfeed.packer.rows.labels import LabelReader, keep_unlabelled, to_row
from fastfeed.packer.rows.source import PROBE_BYTES, PROBES, Reading, Row, RowFacts, RowFailed
from fastfeed.packer.rows.values import Names
from fastfeed.units import format_count

_FETCH = 64
"""Rows asked for at once where the dataset has __getitems__, at most."""
_FETCH_BYTES = 16 << 20
"""So much they shall hold together."""
_DEEP = 4
_PAIR = 2


def as_dict(item: Any, *, named: bool = False) -> dict[str, Any]:  # noqa: ANN401 - whatever a dataset gives
    """A sample by name: a mapping as it is; of a pair (x, class) the class is "cls"; anything else is "item".

    Args:
        item: What the dataset gave.
        named: Classes have names, so that a text may be the class of a pair.

    Raises:
        UsageError: A mapping with keys that are no text.
    """
    if isinstance(item, Mapping):
        wrong = next((name for name in item if not isinstance(name, str)), None)
        if wrong is not None:
            msg = f"a sample is a dict with the key {wrong!r}"
            raise UsageError(msg, expected="keys that are str", got=type(wrong).__name__)
        return dict(item)
    if isinstance(item, tuple) and hasattr(item, "_asdict"):
        return dict(item._asdict())
    if dataclasses.is_dataclass(item) and not isinstance(item, type):
        return {entry.name: getattr(item, entry.name) for entry in dataclasses.fields(item)}
    if isinstance(item, tuple) or (isinstance(item, list) and not all(isinstance(part, str | int | float) for part in item)):
        parts = list(item)
        if len(parts) == _PAIR and is_index(parts[1]):
            return {"item": parts[0], "cls": operator.index(parts[1])}
        if len(parts) == _PAIR and named and isinstance(parts[1], str):
            return {"item": parts[0], "cls": parts[1]}
        names = ["item", "item1"] if len(parts) == _PAIR else [f"item{number}" for number in range(len(parts))]
        return dict(zip(names, parts, strict=True))
    return {"item": item}


class PythonRows:
    """Rows of a live object.

    Args:
        dataset: With __len__ and __getitem__; a sample is a dict, a tuple (x, class), or one value.
        config: How values become fields.

    Raises:
        UsageError: An option that is not for a Python dataset.
    """

    def __init__(self, dataset: Any, config: RowConfig) -> None:  # noqa: ANN401 - any map-style dataset
        self.what = type_name(dataset)
        self.dataset, self.classes = dataset, config.classes
        self.reading: Reading | None = None
        """Where a worker notes which row it asks the dataset for."""
        self.identity: dict[str, object] = {"type": self.what}
        self.why: tuple[str, ...] = ()
        self._names: Sequence[str] | None = None
        self._declared: tuple[str, ...] = ()
        label = config.label
        if huggingface.is_table(dataset):
            found = huggingface.prepare(dataset, config)
            self.dataset, label, self.classes, self.why = found.dataset, found.label, found.classes, found.why
            self._names, self._declared = found.names, found.columns
            self.identity["features"] = found.features
        if config.key is not None:
            msg = "key= is for tables and lists: samples of a Python dataset are numbered"
            raise UsageError(msg, got=repr(config.key))
        self.names = Names.of(config, label)
        self.labels = LabelReader(self.classes)
        self._step = _FETCH

    def facts(self) -> RowFacts:
        """What is known beforehand.

        Raises:
            SourceUnreadable: It is empty, or a sample that is looked at cannot be read.
            UsageError: A value that cannot be stored.
        """
        count = self._count()
        if count == 0:
            msg = "the dataset has no sample"
            raise SourceUnreadable(msg, got=self.what)
        self.reading = Reading()
        try:
            found = ask(lambda: self._look(count), self.reading)
        finally:
            self.reading.close()
            self.reading = None
        self.names, self.labels = Names(**found["names"]), LabelReader(self.classes, labelled=found["labelled"])
        looked, seen = found["rows"], found["bytes"]
        self._step = max(1, min(_FETCH, _FETCH_BYTES * looked // max(1, seen)))
        return RowFacts(
            count=count, source_bytes=seen * count // looked, exact=looked == count, files=1, layout="dataset",
            identity={**self.identity, "rows": count, "probe": found["digest"]}, classes=self.classes, names=self._names,
            numbered_classes=self.classes is None, fields=tuple(found["fields"]), notes=tuple(found["notes"]),
            max_field_bytes=self.names.max_field_bytes, columns=self.names.columns,
            why=(f"a dataset of {format_count(count, 'sample')} ({self.what})", *self.why, *found["why"]),
        )  # fmt: skip

    def _count(self) -> int:
        try:
            return len(self.dataset)
        except (Exception, SystemExit) as error:
            msg = f"the dataset does not say how many samples it has ({told_error(error)})"
            hint = "Let __len__ give a whole number from 0 on, or give an iterable of samples: iter(dataset)."
            raise SourceUnreadable(msg, expected="a whole number", got=self.what, hint=hint) from error

    def _look(self, count: int) -> dict[str, Any]:
        """What some samples tell, in a fork: the object here stays as it is, for each worker to begin with."""
        items = self._probes(count)
        label = self.names.label
        if label is not None and label not in self._declared and not any(label in item for item in items.values()):
            msg = f"no sample that was looked at has the label column {label!r}"
            raise UsageError(msg, expected=f"one of {', '.join(sorted(set().union(*items.values())))}", got=repr(label))
        self.names.settle(items.values(), self._declared)
        rows = {number: self._encoded(number, item) for number, item in items.items()}
        self.labels.settle([row.label for row in rows.values()])
        if keep_unlabelled(self.names, self.labels, items.values()):
            rows = {number: self._encoded(number, item) for number, item in items.items()}
        first, digest = next(iter(rows)), hashlib.sha256()
        for row in rows.values():
            digest.update(_fingerprint(row))
        return {
            "names": self.names.to_json(), "why": self.names.why, "labelled": self.labels.labelled, "rows": len(rows),
            "bytes": sum(len(member.data) for row in rows.values() for member in row.members), "digest": digest.hexdigest(),
            "fields": self._fields(rows.values()), "notes": self._notes(first, rows[first]),
        }  # fmt: skip

    def _fields(self, rows: Iterable[Row]) -> tuple[str, ...]:
        found = {member.field for row in rows for member in row.members}
        return tuple(sorted(found | {CLASS_FIELD} if self.labels.labelled else found))

    def _probes(self, count: int) -> dict[int, dict[str, Any]]:
        """Rows spread evenly, fewer where they are large; the first is among them."""
        spread = sorted({number * (count - 1) // max(1, PROBES - 1) for number in range(PROBES)})
        found: dict[int, dict[str, Any]] = {}
        size = 0
        for at in range(len(spread)):
            number = spread[at * 37 % len(spread)] if len(spread) == PROBES else spread[at]  # a cut leaves them spread
            found[number] = self._probe(number)
            size += sum(about_bytes(value) for value in found[number].values())
            if size > PROBE_BYTES:
                break
        return found

    def _probe(self, number: int) -> dict[str, Any]:
        self._note([number])
        try:
            return as_dict(self.dataset[number], named=self.classes is not None)
        except FastfeedError:
            raise
        except (Exception, SystemExit) as error:
            msg = f"{self._name(number)} cannot be read ({told_error(error)})"
            hint = "It was one of those looked at before the plan. Mend the dataset, or give one without it (a Subset)."
            raise SourceUnreadable(msg, sample=number, hint=hint) from error

    def _encoded(self, number: int, item: Mapping[str, Any]) -> Row:
        try:
            return to_row(self.names.encode_row(item), self.labels)
        except FastfeedError as error:
            error.message = f"{self._name(number)} cannot be packed: {error.message}"
            raise

    def _notes(self, number: int, row: Row) -> tuple[str, ...]:
        """Whether a row is the same when it is read again."""
        again = self._encoded(number, self._probe(number))
        if _fingerprint(again) == _fingerprint(row):
            return ()
        what = f"{self._name(number)} is another at each reading (a random transform?)"
        return (f"{what}: an interrupted run cannot be continued, and no run gives the bytes of another",)

    def _name(self, number: int) -> str:
        return self._names[number] if self._names is not None else f"sample {number}"

    # ------------------------------------------------------------------------------------------------ rows
    def rows(self, numbers: Sequence[int]) -> Iterator[Row | RowFailed]:
        """Rows in order; what a sample's reading raises makes it a failed one."""
        fetch = getattr(self.dataset, "__getitems__", None)
        at = 0
        while at < len(numbers):
            chunk, size = list(numbers[at : at + self._step]), 0
            for row in self._together(fetch, chunk) if fetch is not None and len(chunk) > 1 else map(self._one, chunk):
                size += sum(len(member.data) for member in row.members) if isinstance(row, Row) else 0
                yield row
            at += len(chunk)
            self._step = max(1, min(_FETCH, 2 * self._step, _FETCH_BYTES * len(chunk) // max(1, size)))

    def _together(self, fetch: Any, numbers: list[int]) -> Iterable[Row | RowFailed]:  # noqa: ANN401 - a method
        self._note(numbers)
        try:
            items = list(fetch(numbers))
        except (Exception, SystemExit):  # noqa: BLE001 - which one it was is found by asking for each, and that one is reported
            return map(self._one, numbers)
        if len(items) != len(numbers):
            return map(self._one, numbers)
        return map(self._row, numbers, items)

    def _one(self, number: int) -> Row | RowFailed:
        self._note([number])
        try:
            item = self.dataset[number]
        except (Exception, SystemExit) as error:  # noqa: BLE001 - any fault of a sample is its own, and is reported with its number
            return RowFailed(number, self._name(number), "unreadable", told_error(error))
        return self._row(number, item)

    def _row(self, number: int, item: Any) -> Row | RowFailed:  # noqa: ANN401 - whatever a dataset gives
        try:
            return to_row(self.names.encode_row(as_dict(item, named=self.classes is not None)), self.labels)
        except FastfeedError as error:
            return RowFailed(number, self._name(number), "unreadable", str(error)[:MAX_WHY])

    def _note(self, numbers: Sequence[int]) -> None:
        if self.reading is not None:
            self.reading.note(numbers[0], numbers[-1])

    def spec(self) -> None:
        """None: a live object."""
        return


def about_bytes(value: Any, depth: int = 0) -> int:  # noqa: ANN401 - any value
    """About how much a value holds, from what it says of itself. A dict may hold itself: it is not followed for ever."""
    if isinstance(value, dict):
        return sum(about_bytes(part, depth + 1) for part in value.values()) if depth < _DEEP else 0
    size = getattr(value, "nbytes", None)
    if isinstance(size, int):
        return size
    return len(value) if isinstance(value, bytes | bytearray | str | list) else 8


def _fingerprint(row: Row) -> bytes:
    """Of all that a row holds."""
    members = [(member.field, hashlib.sha256(member.data).hexdigest()) for member in row.members]
    return repr((members, row.label, row.scalars)).encode(errors="backslashreplace")
