"""A shard's record: what is known of its members only after reading them.

It stands beside a finished shard until the manifest is published, and proves that the shard is finished, for which
order, with which bytes.
"""

from array import array
from dataclasses import dataclass, field
from typing import BinaryIO

from fastfeed.archive import columns
from fastfeed.archive.columns import BYTES, ColumnData, proven_columns
from fastfeed.errors import FastfeedError
from fastfeed.media import Probe
from fastfeed.packer.shardfile import Finished


@dataclass(slots=True)
class Record:
    """What is known of a shard's members only after reading them."""

    xxh3: list[int] = field(default_factory=list)
    probes: list[Probe] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Kept:
    """A shard's record as it was kept."""

    columns: dict[str, bytes]
    """Of its members, by name: xxh3, width, height, codec, orientation."""
    done: Finished
    order: str
    """Digest of the order that it was written for."""


def write_record(file: BinaryIO, record: Record, done: Finished, order: str) -> None:
    """A shard's record: checksums and headers of its members, sha256 and sizes of the file, the digest of its order."""
    codecs, widths, heights, orientations = zip(*record.probes, strict=True)
    listed = [
        ColumnData("member", "xxh3", "uint64", (array("Q", record.xxh3),)),
        ColumnData("member", "width", "uint32", (array("I", widths),)),
        ColumnData("member", "height", "uint32", (array("I", heights),)),
        ColumnData("member", "codec", "uint8", (bytes(codecs),)),
        ColumnData("member", "orientation", "uint8", (bytes(orientations),)),
        ColumnData("shard", "sizes", BYTES, _text(f"{done.size_bytes} {done.tar_bytes}")),
        ColumnData("shard", "sha256", BYTES, _text(done.sha256)),
        ColumnData("shard", "order", BYTES, _text(order)),
    ]
    columns.write(file, {"member": len(record.xxh3), "shard": 1}, listed)


def _text(text: str) -> tuple[object, object]:
    return array("Q", [0, len(text)]), text.encode("ascii")


def read_record(path: str) -> Kept | None:
    """A shard's record; None where there is none or it is damaged."""
    try:
        with open(path, "rb") as file:
            raw = file.read()
        found = {}
        for (_, name), column in proven_columns(raw, path).items():
            start, stop = column.extents[-1]
            found[name] = raw[start:stop]
        size_bytes, tar_bytes = map(int, found.pop("sizes").split())
        done = Finished(found.pop("sha256").decode(), size_bytes, tar_bytes)
        return Kept(order=found.pop("order").decode(), done=done, columns=found)
    except (FileNotFoundError, FastfeedError, KeyError):
        return None  # such a shard is written again: the record is worth less than the check
