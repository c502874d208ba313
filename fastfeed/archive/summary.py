"""What is inside a packed dataset, told from manifest and index without reading a shard."""

import json
import os
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfeed.archive.dataset import Archive, datasets_in
from fastfeed.archive.index import MEMBER, SAMPLE, column_names
from fastfeed.archive.manifest import FOLDER, Manifest
from fastfeed.archive.regular import open_regular
from fastfeed.errors import IndexDamaged
from fastfeed.media import Codec
from fastfeed.units import format_size


@dataclass(frozen=True, slots=True)
class FieldInfo:
    """One field over all samples."""

    name: str
    members: int
    size_bytes: int
    largest_bytes: int
    codecs: dict[str, int]
    """Image codec -> members; empty for a field without images."""
    width: tuple[int, int, int] | None
    """Smallest, median and largest width of its images, None without any."""
    height: tuple[int, int, int] | None
    rotated: int
    """Images whose EXIF orientation is not 1 (and known)."""
    row_indexed: int
    """JPEGs of which the index says where their rows begin."""


@dataclass(frozen=True, slots=True)
class ClassInfo:
    """One class."""

    number: int
    name: str
    samples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetInfo:
    """One dataset."""

    path: str
    name: str
    split: str
    digest: str
    format_version: int
    samples: int
    members: int
    shards: int
    size_bytes: int
    """Of the shards."""
    tar_bytes: int | None
    """Of the tars in compressed shards; None where the shards are the tars."""
    index_bytes: int
    source_files: int
    source_bytes: int
    layout: str
    order: str
    compression: str
    fields: tuple[FieldInfo, ...]
    classes: tuple[ClassInfo, ...] | None
    columns: tuple[str, ...]
    """Of the format."""
    user_columns: dict[str, str]
    """Those that the user gave: name -> int64, float64, bool or text."""
    left_out: dict[str, int]
    """Kind -> how many entries of the source were left out."""
    options: dict[str, object]


@dataclass(frozen=True, slots=True)
class InfoResult:
    """What is at a path."""

    path: str
    datasets: tuple[DatasetInfo, ...]


def info(path: str | os.PathLike[str]) -> InfoResult:
    """Describe a packed dataset, or all splits of one pack call.

    Args:
        path: The folder.

    Raises:
        NotADataset: Nothing packed is there.
        ManifestDamaged: A manifest.
        IndexDamaged: An index.
    """
    folder = os.fsdecode(path)
    return InfoResult(folder, tuple(_describe(Archive(below)) for below in datasets_in(folder)))


def _describe(archive: Archive) -> DatasetInfo:
    manifest, index = archive.manifest, archive.index
    columns = tuple(column_names(index))
    return DatasetInfo(
        path=archive.path, name=manifest.name, split=manifest.split, digest=manifest.digest,
        format_version=manifest.version, samples=manifest.samples, members=manifest.members, shards=len(manifest.shards),
        size_bytes=manifest.size_bytes, tar_bytes=manifest.tar_bytes, index_bytes=manifest.index.size_bytes,
        source_files=manifest.source_files, source_bytes=manifest.source_bytes, layout=manifest.layout,
        order=manifest.order, compression=_compression(manifest),
        fields=tuple(_field(archive, number, name) for number, name in enumerate(manifest.fields)),
        classes=_classes(archive), columns=columns, user_columns=dict(index.user),
        left_out=_left_out(archive), options=dict(manifest.options),
    )  # fmt: skip


def _compression(manifest: Manifest) -> str:
    compression, tar_bytes = manifest.compression, manifest.tar_bytes
    if compression is None or tar_bytes is None:
        return "none (plain tar)"
    how = f"{compression.codec} level {compression.level}, frames of at most {format_size(compression.frame_bytes)}"
    ratio = manifest.size_bytes / max(1, tar_bytes)
    return f"{how}, {ratio:.2f} of {format_size(tar_bytes)} of tar (by {compression.encoder})"


def _field(archive: Archive, number: int, name: str) -> FieldInfo:
    index = archive.index
    mine = index.field_numbers() == number
    sizes = index.array(MEMBER, "size")[mine]
    codecs: dict[str, int] = {}
    width = height = None
    rotated = row_indexed = 0
    if index.jpeg_rows is not None:
        row_indexed = int((index.jpeg_rows.lengths()[mine] > 0).sum())
    if index.has(MEMBER, "codec"):
        found = Counter(index.array(MEMBER, "codec")[mine].tolist())
        codecs = {_codec_name(codec): count for codec, count in found.most_common() if codec}
    if codecs and all(index.has(MEMBER, column) for column in ("width", "height", "orientation")):
        width, height = (_spread(index.array(MEMBER, column)[mine]) for column in ("width", "height"))
        rotated = int((index.array(MEMBER, "orientation")[mine] > 1).sum())
    largest = int(sizes.max()) if len(sizes) else 0
    return FieldInfo(name, len(sizes), int(sizes.sum()), largest, codecs, width, height, rotated, row_indexed)


def _codec_name(number: int) -> str:
    return Codec(number).name if number in Codec.__members__.values() else f"codec {number}"


def _spread(values: NDArray[Any]) -> tuple[int, int, int] | None:
    known = values[values > 0]
    return (int(known.min()), int(np.median(known)), int(known.max())) if len(known) else None


def _classes(archive: Archive) -> tuple[ClassInfo, ...] | None:
    names = archive.manifest.classes
    if names is None or not archive.index.has(SAMPLE, "label"):
        return None
    labels = archive.index.array(SAMPLE, "label")
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < len(names):
        msg = "a label names no class"
        raise IndexDamaged(msg, path=archive.index.path, expected=f"0 to {len(names) - 1}", hint="Run fastfeed verify.")
    counts = np.bincount(labels, minlength=len(names))
    return tuple(ClassInfo(number, name, int(counts[number])) for number, name in enumerate(names))


def _left_out(archive: Archive) -> dict[str, int]:
    path = os.path.join(archive.path, FOLDER, archive.manifest.left_out.file)
    try:
        with open(path, encoding="utf-8", opener=open_regular) as file:
            return dict(Counter(str(json.loads(line)["kind"]) for line in file).most_common())
    except (OSError, ValueError, KeyError, TypeError) as error:
        msg = f"the list of left-out files cannot be read: {error}"
        raise IndexDamaged(msg, path=path, hint="Run fastfeed verify.") from error
