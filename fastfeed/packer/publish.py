"""The end of a pack job: index, list of left-out files, manifest, and last of all what names them all."""

import hashlib
import json
import os
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from fastfeed import vectors
from fastfeed.archive import columns, manifest
from fastfeed.archive.index import MEMBER, SAMPLE, IndexData, UserColumn
from fastfeed.archive.manifest import (
    FOLDER,
    GROUP,
    INDEX,
    LEFT_OUT,
    MANIFEST,
    Compression,
    Group,
    Manifest,
    OwnedFile,
    ShardEntry,
)
from fastfeed.disk import publish
from fastfeed.errors import DestinationError
from fastfeed.packer.plan import DatasetPlan, source_paths
from fastfeed.packer.record import read_record
from fastfeed.source.scan import LeftOut

_RECORD_COLUMNS = ("xxh3", "codec", "width", "height", "orientation")


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """What the manifest says of the source."""

    paths: Sequence[str]
    """By file number."""
    digest: str
    options: Mapping[str, object]
    compression: Compression | None = None
    """Of the shards; None for plain tars."""


class _Digesting:
    """A binary file that hashes what passes."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.sha256, self.size = file, hashlib.sha256(), 0

    def write(self, data: bytes) -> int:
        self.sha256.update(data)
        self.size += memoryview(data).nbytes
        return self.file.write(data)


def publish_dataset(
    folder: str,
    plan: DatasetPlan,
    *,
    records: Sequence[str],
    source: SourceFacts,
    left_out: Sequence[LeftOut],
    user: Sequence[UserColumn] = (),
) -> Manifest:
    """Write index, left-out list and manifest of one dataset.

    Args:
        folder: Where its shards are.
        plan: What they hold.
        records: Paths of the shards' records, in order.
        source: What it was packed from.
        left_out: What was not packed.
        user: Columns that the user gave, a sample a row, in storage order.

    Raises:
        DestinationError: A shard is not there as it was written.
    """
    shards, parts = [], {name: bytearray() for name in _RECORD_COLUMNS}
    for shard, path in zip(plan.shards, records, strict=True):
        found = read_record(path)
        target = os.path.join(folder, shard.file)
        whole = found is not None and os.path.exists(target) and os.path.getsize(target) == found.done.size_bytes
        if found is None or not whole or found.done.tar_bytes != shard.size_bytes:
            msg = "a finished shard has gone or changed before the manifest was written"
            raise DestinationError(msg, path=target, hint="Nothing else may write there. Run the same command again.")
        for name, raw in found.columns.items():
            parts[name] += raw
        done, tar_bytes = found.done, found.done.tar_bytes if source.compression else None
        shards.append(ShardEntry(shard.file, shard.stop - shard.first, done.size_bytes, done.sha256, tar_bytes))
    data = IndexData(
        keys=plan.keys,
        labels=plan.labels,
        members_per_sample=vectors.differences(plan.starts),
        sources=source_paths(plan.files, source.paths),
        fields=plan.member_fields,
        offsets=plan.offsets,
        sizes=plan.sizes,
        records=dict(parts),
        user=user,
    )
    about = DatasetFacts(
        name=plan.name, split=plan.split, samples=len(plan.keys), members=len(plan.files), source_files=plan.source_files,
        source_bytes=plan.source_bytes, source_digest=source.digest, layout=plan.layout, order=plan.order,
        fields=plan.fields, classes=plan.classes, options=source.options, compression=source.compression,
    )  # fmt: skip
    return publish_parts(folder, about, data=data, shards=shards, left_out=left_out)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetFacts:
    """The manifest's fields that come from the plan."""

    name: str
    split: str
    samples: int
    members: int
    source_files: int
    source_bytes: int
    source_digest: str
    layout: str
    order: str
    fields: tuple[str, ...]
    classes: tuple[str, ...] | None
    options: Mapping[str, object]
    compression: Compression | None


def publish_parts(
    folder: str, about: DatasetFacts, *, data: IndexData, shards: Sequence[ShardEntry], left_out: Sequence[LeftOut]
) -> Manifest:
    """Write index, left-out list and manifest of a dataset whose shards are finished.

    Args:
        folder: Where they are.
        about: What the manifest says of them.
        data: What the index says.
        shards: In order.
        left_out: What was not packed.
    """
    home = os.path.join(folder, FOLDER)
    os.makedirs(home, exist_ok=True)
    index = _publish_index(home, data, {SAMPLE: about.samples, MEMBER: about.members})
    lines = "".join(json.dumps({"source": source, "kind": kind, "why": why}) + "\n" for source, kind, why in sorted(left_out))
    record = Manifest(
        **{name: getattr(about, name) for name in about.__slots__}, left_out_count=len(left_out), index=index,
        left_out=_publish_raw(home, LEFT_OUT, lines.encode()), shards=tuple(shards),
    )  # fmt: skip
    return publish_manifest(home, record)


def publish_manifest(home: str, record: Manifest) -> Manifest:
    """Write a manifest into a .fastfeed folder; gives it as a reader finds it, with its digest."""
    raw = manifest.encode(record)
    _publish_raw(home, MANIFEST, raw)
    decoded = manifest.decode(raw, os.path.join(home, MANIFEST))
    assert isinstance(decoded, Manifest)
    return decoded


def _publish_index(home: str, data: IndexData, rows: Mapping[str, int]) -> OwnedFile:
    facts = []

    def write(file: BinaryIO) -> None:
        passing = _Digesting(file)
        columns.write(passing, rows, data.columns())  # type: ignore[arg-type]
        facts.append(OwnedFile(INDEX, passing.size, passing.sha256.hexdigest()))

    publish(os.path.join(home, INDEX + ".part"), os.path.join(home, INDEX), write)
    return facts[0]


def _publish_raw(home: str, name: str, raw: bytes) -> OwnedFile:
    publish(os.path.join(home, name + ".part"), os.path.join(home, name), lambda file: file.write(raw))
    return OwnedFile(name, len(raw), hashlib.sha256(raw).hexdigest())


def publish_group(destination: str, manifests: Mapping[str, Manifest]) -> None:
    """Write the record that holds the splits of one call together."""
    record = Group(splits={split: found.digest for split, found in sorted(manifests.items())})
    _publish_raw(os.path.join(destination, FOLDER), GROUP, manifest.encode(record))


def index_bytes(plan: DatasetPlan, path_bytes: int) -> int:
    """About how much the index will take, for the check of free space."""
    return 1 << 16 | (len(plan.keys) * 60 + len(plan.files) * 60 + path_bytes + array("q").itemsize * len(plan.keys))
