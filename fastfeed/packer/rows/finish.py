"""The end of a pack of rows: the shards' records become index and manifest."""

import json
from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, repeat
from typing import Any

from fastfeed.archive.index import IndexData, UserColumn
from fastfeed.archive.manifest import Manifest, ShardEntry
from fastfeed.errors import SourceUnreadable
from fastfeed.packer.publish import DatasetFacts, publish_parts
from fastfeed.packer.rows.plan import RowPlan
from fastfeed.packer.rows.record import RowRecord
from fastfeed.packer.rows.source import Scalar
from fastfeed.packer.rows.values import distinct_sources

_MAX_NUMBERED_CLASSES = 1 << 20
_MAX_INT = 1 << 63
_KINDS = {"codec": "B", "width": "I", "height": "I", "orientation": "B"}


def publish_rows(folder: str, plan: RowPlan, records: Iterable[RowRecord], about: Mapping[str, Any]) -> Manifest:
    """Write index, left-out list and manifest.

    Args:
        folder: Where the shards are.
        plan: What was written.
        records: Of each shard, in order.
        about: source_digest, layout, order, options, source_files, columns, classes, numbered_classes, split.

    Raises:
        SourceUnreadable: Labels that name no class.
    """
    found = list(records)
    entries = [
        ShardEntry(shard.file, len(record.keys), record.size_bytes, record.sha256)
        for shard, record in zip(plan.shards, found, strict=True)
    ]
    fields = tuple(sorted({name for record in found for name in record.fields}))
    numbers = {name: number for number, name in enumerate(fields)}
    labels, classes = _labels(found, about["classes"], numbered=about["numbered_classes"])
    counts = array("Q", chain.from_iterable(record.members_per_sample for record in found))
    sizes = array("Q", chain.from_iterable(record.sizes for record in found))
    keys = list(chain.from_iterable(record.keys for record in found))
    probes = list(chain.from_iterable(record.probes for record in found))
    data = IndexData(
        keys=keys, labels=labels, members_per_sample=counts, sources=_sources(found),
        fields=array("H", [numbers[name] for record in found for name in record.fields]),
        offsets=array("Q", chain.from_iterable(record.offsets for record in found)), sizes=sizes,
        records={
            "xxh3": array("Q", chain.from_iterable(record.xxh3 for record in found)),
            **{name: array(kind, [getattr(probe, name) for probe in probes]) for name, kind in _KINDS.items()},
        },
        user=typed_columns([json.loads(text) if text else {} for record in found for text in record.scalars], about["columns"]),
    )  # fmt: skip
    facts = DatasetFacts(
        name=plan.name, split=about["split"], samples=len(keys), members=len(sizes), source_files=about["source_files"],
        source_bytes=sum(sizes), source_digest=about["source_digest"], layout=about["layout"], order=plan.order,
        fields=fields, classes=classes, options=about["options"],
    )  # fmt: skip
    return publish_parts(folder, facts, data=data, shards=entries, left_out=plan.left_out)


def _sources(records: Sequence[RowRecord]) -> list[str]:
    """Original paths; only the class members that the writer made have none."""
    per_member = [repeat(key, count) for r in records for key, count in zip(r.keys, r.members_per_sample, strict=True)]
    keys, fields = list(chain.from_iterable(per_member)), [name for record in records for name in record.fields]
    given = [source for record in records for source in record.sources]
    made = distinct_sources(keys, fields, given)
    return [source if before else "" for before, source in zip(given, made, strict=True)]


def _labels(
    records: Sequence[RowRecord], classes: tuple[str, ...] | None, *, numbered: bool
) -> tuple["array[int] | None", tuple[str, ...] | None]:
    """The label column and the class map; neither where samples have no class."""
    found = [record.label(at) for record in records for at in range(len(record.keys))]
    if all(label is None for label in found):
        return None, None
    if any(label is None for label in found):
        number = next(at for at, label in enumerate(found) if label is None)
        msg = f"sample {number} has no class, and others have"
        raise SourceUnreadable(msg, sample=number, hint="Give every sample a class, or none: leave the label column out.")
    labels = array("q", [label for label in found if label is not None])
    most = max(labels)
    if classes is None and numbered and most < _MAX_NUMBERED_CLASSES:
        classes = tuple(map(str, range(most + 1)))
    if classes is None or min(labels) < 0 or most >= len(classes):
        wrong = min(labels) if min(labels) < 0 else most
        msg = f"a label is {wrong}, which numbers no class"
        hint = "A class is numbered from 0. Name the classes with classes=, or keep the number as a column instead of a label."
        raise SourceUnreadable(msg, sample=labels.index(wrong), got=wrong, hint=hint)
    return labels, classes


def typed_columns(rows: Sequence[Mapping[str, Scalar]], wanted: Sequence[str] | None) -> list[UserColumn]:
    """Columns of the index from a mapping a sample.

    Whole numbers are int64; with missing values or with fractions among them float64 (a missing one is NaN); true and
    false are bool; anything else is text, a missing one empty.
    """
    names = list(dict.fromkeys(name for row in rows for name in row)) if wanted is None else list(wanted)
    return [_typed(name, [row.get(name) for row in rows]) for name in names]


def _typed(name: str, values: Sequence[Scalar | None]) -> UserColumn:
    kinds = {type(value) for value in values}
    if kinds == {bool}:
        return UserColumn(name, "bool", bytes(map(bool, values)))
    if kinds == {int} and all(-_MAX_INT <= value < _MAX_INT for value in values):  # type: ignore[operator]
        return UserColumn(name, "int64", array("q", values))
    if kinds <= {int, float, type(None)} and kinds != {type(None)}:
        return UserColumn(name, "float64", array("d", [float("nan") if value is None else value for value in values]))
    return UserColumn(name, "text", ["" if value is None else _text(value) for value in values])


def _text(value: Scalar) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text.encode("utf-8", "replace").decode()
