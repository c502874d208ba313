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


@dataclass(slots=True)
class Record:
    """What is known of a shard's members only after reading them."""

    xxh3: list[int] = field(default_factory=list)
    probes: list[Probe] = field(default_factory=list)


def write_record(file: BinaryIO, record: Record, sha256: str, order: str) -> None:
    """A shard's record: checksums and headers of its members, its sha256, the digest of its order."""
    codecs, widths, heights, orientations = zip(*record.probes, strict=True)
    listed = [
        ColumnData("member", "xxh3", "uint64", (array("Q", record.xxh3),)),
        ColumnData("member", "width", "uint32", (array("I", widths),)),
        ColumnData("member", "height", "uint32", (array("I", heights),)),
        ColumnData("member", "codec", "uint8", (bytes(codecs),)),
        ColumnData("member", "orientation", "uint8", (bytes(orientations),)),
    ]
    for name, text in (("sha256", sha256), ("order", order)):
        listed.append(ColumnData("shard", name, BYTES, (array("Q", [0, len(text)]), text.encode())))
    columns.write(file, {"member": len(record.xxh3), "shard": 1}, listed)


def read_record(path: str) -> tuple[dict[str, bytes], str, str] | None:
    """A shard's record as (columns by name, sha256, digest of its order); None where there is none or it is damaged."""
    try:
        with open(path, "rb") as file:
            raw = file.read()
        found = {}
        for (_, name), column in proven_columns(raw, path).items():
            start, stop = column.extents[-1]
            found[name] = raw[start:stop]
        return found, found.pop("sha256").decode(), found.pop("order").decode()
    except (FileNotFoundError, FastfeedError, KeyError):
        return None  # such a shard is written again: the record is worth less than the check
