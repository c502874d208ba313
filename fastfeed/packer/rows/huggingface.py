"""Hugging Face's datasets as they are stored: encoded bytes in place of decoded images, class names from the features.

That package is never imported here: whoever gives such a dataset has it.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from fastfeed.config import RowConfig
from fastfeed.packer.rows.values import safe_path
from fastfeed.units import format_count

_NO_CLASS = -1
"""How ClassLabel says that a row has none."""


def is_table(dataset: object) -> bool:
    """Whether it is a datasets.Dataset."""
    return _has_base(dataset, "Dataset")


def is_stream(dataset: object) -> bool:
    """Whether it is a datasets.IterableDataset."""
    return _has_base(dataset, "IterableDataset")


def is_splits(dataset: object) -> bool:
    """Whether it is a dict of datasets, a split each."""
    return _has_base(dataset, "DatasetDict") or _has_base(dataset, "IterableDatasetDict")


def _has_base(dataset: object, name: str) -> bool:
    return any(base.__module__.startswith("datasets.") and base.__name__ == name for base in type(dataset).__mro__)


@dataclasses.dataclass(frozen=True, slots=True)
class Prepared:
    """A dataset that hands out what it stores."""

    dataset: Any
    label: str | None
    """The column of the class."""
    classes: tuple[str, ...] | None
    columns: tuple[str, ...]
    features: str
    names: Sequence[str] | None
    """Original path a row, where the rows have one."""
    why: tuple[str, ...]


def prepare(dataset: Any, config: RowConfig) -> Prepared:  # noqa: ANN401 - datasets.Dataset
    """Of a table.

    Args:
        dataset: A datasets.Dataset, whatever its format.
        config: Its label and classes.
    """
    dataset, why = _as_stored(dataset)
    media, dataset = _undecoded(dataset, why)
    label = _label(dataset, config, why)
    classes = config.classes
    feature = dataset.features.get(label) if label is not None else None
    if classes is None and _is_class_label(feature):
        classes = tuple(feature.names)  # type: ignore[union-attr]
    elif classes is None and label is not None and getattr(feature, "dtype", "") in {"string", "large_string"}:
        classes = tuple(sorted({value for value in _values(dataset, label) if value is not None}))
        why.append(f"classes are the {format_count(len(classes), 'value')} of column {label!r}, sorted")
    columns = tuple(dataset.column_names)
    names = _paths(dataset, media[0]) if media else None
    return Prepared(dataset, label, classes, columns, str(dataset.features), names, tuple(why))


def prepare_stream(dataset: Any, config: RowConfig) -> Prepared:  # noqa: ANN401 - datasets.IterableDataset
    """Of a stream: as prepare(), as far as features say without reading."""
    why: list[str] = []
    if dataset.features is None:
        return Prepared(dataset, config.label, config.classes, (), "unknown", None, ())
    _, dataset = _undecoded(dataset, why)
    labels = [name for name, feature in dataset.features.items() if _is_class_label(feature)]
    label = config.label
    if label is None and len(labels) == 1:
        label = labels[0]
        why.append(f"the class is column {label!r}: it is the only ClassLabel")
    feature, classes = dataset.features.get(label), config.classes
    if classes is None and _is_class_label(feature):
        classes = tuple(feature.names)
    return Prepared(dataset, label, classes, tuple(dataset.features), str(dataset.features), None, tuple(why))


def _as_stored(dataset: Any) -> tuple[Any, list[str]]:  # noqa: ANN401
    """Without format and transform; with the columns that the format lets through."""
    why: list[str] = []
    form: Mapping[str, Any] = dataset.format
    shown = [name for name in dataset.column_names if name in form["columns"] or form["output_all_columns"]]
    hidden = [name for name in dataset.column_names if name not in shown]
    if form["type"] == "custom":
        why.append("its transform is not applied: what it stores is packed")
    elif form["type"] is not None:
        why.append(f"its format ({form['type']}) is not applied: what it stores is packed")
    dataset = dataset.with_format(None)
    if hidden:
        why.append(f"not packed, since its format hides them: {', '.join(hidden)}")
        dataset = dataset.select_columns(shown)
    return dataset, why


def _undecoded(dataset: Any, why: list[str]) -> tuple[list[str], Any]:  # noqa: ANN401
    """Images, sounds and the like as bytes; gives their columns."""
    media = []
    for name, feature in list(dataset.features.items()):
        decode = getattr(feature, "decode", None)
        if not isinstance(decode, bool) or not dataclasses.is_dataclass(feature) or isinstance(feature, type):
            continue
        media.append(name)
        if decode:
            dataset = dataset.cast_column(name, dataclasses.replace(feature, decode=False))
            why.append(f"column {name!r}: its bytes as they are, not decoded")
    return media, dataset


def _is_class_label(feature: object) -> bool:
    return type(feature).__name__ == "ClassLabel" and bool(getattr(feature, "names", None))


def _label(dataset: Any, config: RowConfig, why: list[str]) -> str | None:  # noqa: ANN401
    """The column of the class: as asked for, else the only ClassLabel, if each row has a class."""
    if config.label is not None:
        return config.label
    labels = [name for name, feature in dataset.features.items() if _is_class_label(feature)]
    if len(labels) != 1:
        if labels:
            why.append(f"no class: {', '.join(labels)} are all ClassLabels (label= chooses one)")
        return None
    missing = sum(value is None or value == _NO_CLASS for value in _values(dataset, labels[0]))
    if missing:
        why.append(f"column {labels[0]!r} is not taken as the class: {format_count(missing, 'row has', 'rows have')} none (-1)")
        return None
    why.append(f"the class is column {labels[0]!r}: it is the only ClassLabel")
    return str(labels[0])


def _values(dataset: Any, name: str) -> list[Any]:  # noqa: ANN401
    """One column; the others, images among them, are not read."""
    return list(dataset.select_columns([name])[:][name])


def _paths(dataset: Any, name: str) -> list[str] | None:  # noqa: ANN401
    """The original paths of a column of bytes and paths; None unless all rows have one."""
    flat = dataset.select_columns([name]).flatten()
    column = f"{name}.path"
    if column not in flat.column_names:
        return None
    paths = [safe_path(path or "") for path in _values(flat, column)]
    return paths if all(paths) else None
