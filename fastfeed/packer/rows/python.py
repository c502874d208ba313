"""A Python dataset as a source of rows: anything with __len__ and __getitem__, Hugging Face's datasets among them."""

import dataclasses
import hashlib
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from fastfeed.config import RowConfig
from fastfeed.errors import FastfeedError, SourceUnreadable, UsageError
from fastfeed.packer.rows.source import Row, RowFacts, RowFailed
from fastfeed.packer.rows.values import Encoded, Names
from fastfeed.units import format_count

PROBES = 64
"""Rows that are read before the plan, evenly spaced: they settle fields, sizes and the source's identity."""
_FETCH = 64
"""Rows asked for at once where the dataset has __getitems__."""


def as_dict(item: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever a dataset gives
    """A sample by name: a mapping as it is; of a tuple (x, class) the class is "cls"; anything else is "item"."""
    if isinstance(item, Mapping):
        wrong = next((name for name in item if not isinstance(name, str)), None)
        if wrong is not None:
            msg = f"a sample is a dict with the key {wrong!r}"
            raise UsageError(msg, expected="keys that are str", got=type(wrong).__name__)
        return dict(item)
    if isinstance(item, tuple | list):
        parts = list(item)
        names = [f"item{number}" for number in range(len(parts))] if len(parts) != 2 else ["item", "item1"]  # noqa: PLR2004
        if len(parts) == 2 and _is_index(parts[1]):  # noqa: PLR2004 - a sample and its class
            names = ["item", "cls"]
            parts[1] = operator.index(parts[1])
        return dict(zip(names, parts, strict=True))
    return {"item": item}


def _is_index(value: object) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool)


class LabelReader:
    """From what a source calls a class to its number.

    Args:
        classes: Names by number, None where labels are numbers.
    """

    def __init__(self, classes: Sequence[str] | None) -> None:
        self._numbers = None if classes is None else {name: number for number, name in enumerate(classes)}

    def number(self, value: object) -> int | None:
        """The class number; None for a missing class (None, or -1 as Hugging Face has it).

        Raises:
            UsageError: It is neither a number nor a known name.
        """
        if value is None:
            return None
        if _is_index(value):
            number = operator.index(value)  # type: ignore[arg-type]
            return None if number == -1 else number
        if isinstance(value, str) and self._numbers is not None and value in self._numbers:
            return self._numbers[value]
        known = "" if self._numbers is None else f" among {len(self._numbers)} names"
        msg = f"the class {value!r} is no whole number{' and no known name' if self._numbers is not None else ''}"
        hint = "Give the names with classes=[...], in the order of their numbers."
        raise UsageError(msg, expected=f"a whole number from 0, or a name{known}", got=repr(value), hint=hint)


def to_row(encoded: Encoded, labels: LabelReader, key: str | None = None) -> Row:
    """A row from its values."""
    return Row(encoded.members, labels.number(encoded.label), encoded.scalars or None, key)


class PythonRows:
    """Rows of a live object.

    Args:
        dataset: With __len__ and __getitem__; a sample is a dict, a tuple (x, class), or one value.
        config: How values become fields.
    """

    def __init__(self, dataset: Any, config: RowConfig) -> None:  # noqa: ANN401 - any map-style dataset
        self.what = f"{type(dataset).__module__}.{type(dataset).__qualname__}"
        self.dataset, self.config = dataset, config
        self.why: list[str] = []
        self.classes = config.classes
        label = config.label
        self.identity: dict[str, object] = {"type": self.what}
        if is_hugging_face(dataset):
            label = self._hugging_face(label)
        if config.key is not None:
            msg = "key= is for tables and lists: samples of a Python dataset are numbered"
            raise UsageError(msg, got=repr(config.key))
        self.names = Names.of(config, label)
        self.labels = LabelReader(self.classes)

    def _hugging_face(self, label: str | None) -> str | None:
        """Take encoded bytes in place of decoded images, and class names from the features."""
        dataset = self.dataset.with_format(None)
        for name, feature in dataset.features.items():
            if getattr(feature, "decode", False) and dataclasses.is_dataclass(feature):
                dataset = dataset.cast_column(name, dataclasses.replace(feature, decode=False))  # type: ignore[type-var]
                self.why.append(f"column {name!r}: its bytes as they are, not decoded")
        labels = [name for name, feature in dataset.features.items() if type(feature).__name__ == "ClassLabel"]
        if label is None and len(labels) == 1:
            label = labels[0]
            self.why.append(f"the class is column {label!r}: it is the only ClassLabel")
        feature = dataset.features.get(label) if label is not None else None
        if self.classes is None and feature is not None and type(feature).__name__ == "ClassLabel":
            self.classes = tuple(feature.names)
        elif self.classes is None and label is not None and getattr(feature, "dtype", "") in {"string", "large_string"}:
            self.classes = tuple(sorted(dataset.unique(label)))
            self.why.append(f"classes are the {len(self.classes)} values of {label!r}, sorted")
        self.dataset = dataset
        self.identity["features"] = str(dataset.features)
        return label

    def facts(self) -> RowFacts:
        """What is known beforehand.

        Raises:
            SourceUnreadable: It is empty, or a sample that is looked at cannot be read.
            UsageError: A value that cannot be stored.
        """
        count = len(self.dataset)
        if count == 0:
            msg = "the dataset has no sample"
            raise SourceUnreadable(msg, got=self.what)
        numbers = sorted({number * (count - 1) // max(1, PROBES - 1) for number in range(PROBES)})
        items = [self._probe(number) for number in numbers]
        if self.names.label is not None and not any(self.names.label in item for item in items):
            msg = f"no sample has the label column {self.names.label!r}"
            raise UsageError(msg, expected=f"one of {', '.join(sorted(set().union(*items)))}", got=repr(self.names.label))
        self.names.settle(items)
        rows = [to_row(self.names.encode_row(item), self.labels) for item in items]
        digest = hashlib.sha256()
        for row in rows:
            digest.update(repr([(m.field, hashlib.sha256(m.data).hexdigest()) for m in row.members]).encode())
            digest.update(repr((row.label, row.scalars)).encode())
        seen = sum(len(member.data) for row in rows for member in row.members)
        return RowFacts(
            count=count, source_bytes=seen * count // len(rows), exact=len(rows) == count, files=1, layout="dataset",
            identity={**self.identity, "rows": count, "probe": digest.hexdigest()}, classes=self.classes,
            numbered_classes=self.classes is None, fields=tuple(sorted({m.field for row in rows for m in row.members})),
            max_field_bytes=self.names.max_field_bytes,
            why=(f"a dataset of {format_count(count, 'sample')} ({self.what})", *self.why, *self.names.why),
        )  # fmt: skip

    def _probe(self, number: int) -> dict[str, Any]:
        try:
            return as_dict(self.dataset[number])
        except FastfeedError:
            raise
        except Exception as error:
            msg = f"sample {number} cannot be read ({type(error).__name__}: {error})"
            hint = "It was one of those looked at before the plan. Mend the dataset, or give one without it (a Subset)."
            raise SourceUnreadable(msg, sample=number, hint=hint) from error

    def rows(self, numbers: Sequence[int]) -> Iterator[Row | RowFailed]:
        """Rows in order; what a sample's reading raises makes it a failed one."""
        fetch = getattr(self.dataset, "__getitems__", None)
        for start in range(0, len(numbers), _FETCH):
            chunk = list(numbers[start : start + _FETCH])
            yield from self._together(fetch, chunk) if fetch is not None else map(self._one, chunk)

    def _together(self, fetch: Any, numbers: list[int]) -> Iterable[Row | RowFailed]:  # noqa: ANN401 - a method
        try:
            items = list(fetch(numbers))
        except Exception:  # noqa: BLE001 - which one it was is found by asking for each, and that one is reported
            return map(self._one, numbers)
        if len(items) != len(numbers):
            return map(self._one, numbers)
        return [self._row(number, item) for number, item in zip(numbers, items, strict=True)]

    def _one(self, number: int) -> Row | RowFailed:
        try:
            item = self.dataset[number]
        except Exception as error:  # noqa: BLE001 - any fault of a sample is its own, and is reported with its number
            return RowFailed(number, f"sample {number}", "unreadable", f"{type(error).__name__}: {error}")
        return self._row(number, item)

    def _row(self, number: int, item: Any) -> Row | RowFailed:  # noqa: ANN401 - whatever a dataset gives
        try:
            return to_row(self.names.encode_row(as_dict(item)), self.labels)
        except FastfeedError as error:
            return RowFailed(number, f"sample {number}", "unreadable", str(error))

    def spec(self) -> None:
        """None: a live object."""
        return


def is_hugging_face(dataset: object) -> bool:
    """Whether it is a datasets.Dataset, without importing that package."""
    return any(base.__module__.startswith("datasets.") and base.__name__ == "Dataset" for base in type(dataset).__mro__)
