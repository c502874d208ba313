"""The end of a pack of rows: the shards' records become index and manifest."""

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from fastfeed.archive.bytestrings import ByteStrings
from fastfeed.archive.index import IndexData, UserColumn
from fastfeed.archive.manifest import Manifest, ShardEntry
from fastfeed.errors import SourceUnreadable
from fastfeed.packer.publish import DatasetFacts, publish_parts
from fastfeed.packer.rows.labels import MAX_NUMBERED_CLASSES
from fastfeed.packer.rows.paths import distinct_sources
from fastfeed.packer.rows.plan import RowPlan
from fastfeed.packer.rows.record import RowRecord
from fastfeed.packer.rows.scalars import ScalarColumn, typed

_PROBED = {"codec": "B", "width": "I", "height": "I", "orientation": "B"}


def publish_rows(folder: str, plan: RowPlan, records: Iterable[RowRecord], about: Mapping[str, Any]) -> Manifest:
    """Write index, left-out list and manifest.

    Args:
        folder: Where the shards are.
        plan: What was written.
        records: Of each shard, in order.
        about: source_digest, layout, order, options, source_files, columns, classes, numbered_classes, split, compression.

    Raises:
        SourceUnreadable: Some samples have a class and others have none.
    """
    found = list(records)
    compression = about["compression"]
    entries = [
        ShardEntry(shard.file, len(record.keys), record.size_bytes, record.sha256, record.tar_bytes if compression else None)
        for shard, record in zip(plan.shards, found, strict=True)
    ]
    fields = tuple(sorted({name for record in found for name in record.fields}))
    labels, classes = _labels(found, about["classes"], numbered=about["numbered_classes"])
    sizes = _column(found, "size", "Q")
    data = IndexData(
        keys=list(chain.from_iterable(record.keys for record in found)), labels=labels,
        members_per_sample=chain.from_iterable(record.members_per_sample for record in found),
        sources=distinct_sources(found), fields=_field_numbers(found, fields), offsets=_column(found, "offset", "Q"),
        sizes=sizes,
        records={
            "xxh3": _column(found, "xxh3", "Q"), **{name: _column(found, name, kind) for name, kind in _PROBED.items()},
            **_jpeg_rows(found),
        },
        user=_user_columns(found, about["columns"]),
    )  # fmt: skip
    facts = DatasetFacts(
        name=plan.name, split=about["split"], samples=len(data.keys), members=len(sizes), source_files=about["source_files"],
        source_bytes=sum(sizes), source_digest=about["source_digest"], layout=about["layout"], order=plan.order,
        fields=fields, classes=classes, options=about["options"], compression=compression,
    )  # fmt: skip
    del found
    return publish_parts(folder, facts, data=data, shards=entries, left_out=plan.left_out)


def counted(records: Iterable[RowRecord], outcomes: "Counter[str]") -> Iterator[RowRecord]:
    """Records as they pass, what became of their images whose rows were to be indexed added up."""
    for record in records:
        outcomes.update(record.outcomes)
        yield record


def _column(records: Sequence[RowRecord], name: str, kind: str) -> "array[int]":
    joined: array[int] = array(kind)
    for record in records:
        joined.extend(record.members[name])
    return joined


def _jpeg_rows(records: Sequence[RowRecord]) -> dict[str, object]:
    """The two columns of row-indexed JPEGs, where rows were to be indexed."""
    if not any(record.pixels for record in records):
        return {}
    rows, pixels = ByteStrings(), array("Q")
    for record in records:
        rows.extend(record.jpeg_rows)
        pixels.extend(record.pixels)
    return {"jpeg_intervals": rows, "pixels_xxh3": pixels}


def _field_numbers(records: Sequence[RowRecord], fields: Sequence[str]) -> "array[int]":
    """The field of each member by its number among those of all shards."""
    numbers, joined = {name: number for number, name in enumerate(fields)}, array("H")
    for record in records:
        own = [numbers[name] for name in record.fields]
        joined.extend(array("H", [own[number] for number in record.members["field"]]))
    return joined


def _labels(
    records: Sequence[RowRecord], classes: tuple[str, ...] | None, *, numbered: bool
) -> tuple["array[int] | None", tuple[str, ...] | None]:
    """The label column and the class map; neither where samples have no class."""
    labelled = {record.is_labelled for record in records}
    if labelled == {False}:
        return None, None
    if labelled != {True}:
        before = [record.label(at) for record in records for at in range(len(record.keys))]
        number = before.index(None)
        msg = f"sample {number} has no class, and others have"
        raise SourceUnreadable(msg, sample=number, hint="Give every sample a class, or none: leave the label column out.")
    labels: array[int] = array("q")
    for record in records:
        labels.extend(record.labels)
    if classes is None and numbered and max(labels) < MAX_NUMBERED_CLASSES:
        classes = tuple(map(str, range(max(labels) + 1)))
    assert classes is not None  # whatever reads labels takes none that has no name: labels.py
    assert 0 <= min(labels) <= max(labels) < len(classes)
    return labels, classes


def _user_columns(records: Sequence[RowRecord], wanted: Sequence[str] | None) -> list[UserColumn]:
    """Typed columns: those that are wanted, else all that there are."""
    names = list(dict.fromkeys(name for record in records for name in record.scalars)) if wanted is None else wanted
    found = []
    for name in names:
        parts = []
        for record in records:
            part = record.scalars.pop(name, None) or ScalarColumn()  # taken out: memory is given back column by column
            part.pad(len(record.keys))
            parts.append(part)
        found.append(typed(name, parts))
    return found
