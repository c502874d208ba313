"""Writes one shard of rows: an order in, a record out. Under a temporary name until it is whole, as all shards."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache

from fastfeed.archive import tar
from fastfeed.archive.shard import CLASS_FIELD, LEGAL_FIELD, MAX_FIELD_BYTES, digest, member_name
from fastfeed.disk import publish
from fastfeed.media import FIRST_BYTES, NOT_AN_IMAGE, probe
from fastfeed.packer.rows.record import RowRecord
from fastfeed.packer.rows.source import Row, RowFailed, RowMember, RowReader
from fastfeed.packer.shardfile import Finished, ShardFile
from fastfeed.packer.worker import DiskFailed
from fastfeed.source import wire
from fastfeed.units import format_count

_REPORT_SECONDS = 0.1
_MAX_FAILURES, _MORE_FAILURES_SECONDS = 100, 2.0
"""A run that stops at a failure names more of the same shard: at most so many, found within so long."""

_PADDINGS = [tar.padding(size) for size in range(tar.BLOCK_BYTES)]


@dataclass(frozen=True, slots=True)
class RowOrder:
    """What one shard is made of."""

    number: int
    """Of the order within the job."""
    target: str
    """Final path of the shard."""
    part: str
    """Temporary name, in the job's folder."""
    record: str
    """Where its record goes."""
    digest: str
    """Of what decides the shard's bytes: see RowPlan.digest."""
    numbers: Sequence[int]
    """Rows, in storage order."""
    keys: Sequence[str]
    write_cls: bool
    go_on: bool = False
    """Name every row that fails, since all of them are left out; else the rest of the shard is looked at only shortly."""

    framing: Sequence[int] | None = None
    """Level and frame_bytes of a compressed shard."""
    jpeg_rows: bool = False
    """Whether rows of JPEGs are to be indexed."""

    @property
    def doing(self) -> str:
        """What a worker did when it died."""
        first, last = self.numbers[0], self.numbers[-1]
        return f"packed {format_count(len(self.numbers), 'sample')} from sample {first} to sample {last}"

    @property
    def shard(self) -> str:
        """File name of the shard."""
        return os.path.basename(self.target)

    def encode(self) -> bytes:
        """As it passes the pipe."""
        return wire.encode({"order": "rows", **asdict(self)})

    @classmethod
    def decode(cls, message: wire.Message) -> "RowOrder":
        """Back from the pipe."""
        return cls(**{name: value for name, value in message.head.items() if name != "order"})


class RowsFailed(Exception):
    """Rows of a shard that cannot be packed. args: a list of RowFailed."""

    @property
    def rows(self) -> list[RowFailed]:
        """They."""
        found: list[RowFailed] = self.args[0]
        return found


class RowShardWriter:
    """Writes one shard.

    Args:
        order: What to write.
        report: Told of samples and bytes done since the last call.
    """

    def __init__(self, order: RowOrder, report: Callable[[int, int], None]) -> None:
        self.order, self.report = order, report
        self.record = RowRecord(order=order.digest)
        self._samples = self._bytes = self._at = 0
        self._due = time.monotonic() + _REPORT_SECONDS

    def run(self, source: RowReader) -> str:
        """Write, flush, rename; give the sha256.

        Raises:
            RowsFailed: Rows cannot be packed; nothing is left of the shard.
            DiskFailed: The disk refused; nothing is left of the shard.
        """
        order = self.order
        try:
            with ShardFile(order.part, order.target, order.framing) as out:
                self._rows(source, out)
                self.finish(out)
        except OSError as error:
            raise DiskFailed(f"{error.filename or order.target}: {error.strerror}", error.errno) from error
        return self.record.sha256

    def finish(self, out: ShardFile) -> None:
        """The last sample is written: everything to the disk, the record beside it, then the real name."""
        out.finish(self._save)
        self._tell()

    def _save(self, done: Finished) -> None:
        self.record.sha256, self.record.size_bytes, self.record.tar_bytes = done.sha256, done.size_bytes, done.tar_bytes
        publish(self.order.part + ".record.part", self.order.record, self.record.save)

    def _rows(self, source: RowReader, out: ShardFile) -> None:
        order = self.order
        failed: list[RowFailed] = []
        until = 0.0
        for number, key, row in zip(order.numbers, order.keys, self._read(source), strict=True):
            if isinstance(row, Row):
                wrong = wrong_with(key, row)
                if wrong is None and not failed:
                    self.add(key, row, out)
                    continue
                row = RowFailed(number, f"sample {number}", "unreadable", wrong) if wrong is not None else row  # noqa: PLW2901
            if isinstance(row, RowFailed):
                failed.append(row)
                until = until or time.monotonic() + _MORE_FAILURES_SECONDS
            if failed and not order.go_on and (len(failed) >= _MAX_FAILURES or time.monotonic() > until):
                break
        if failed:
            raise RowsFailed(failed)

    def _read(self, source: RowReader) -> Iterator[Row | RowFailed]:
        """The rows; what the system refuses to a source is no fault of the disk that is written to."""
        numbers, at = self.order.numbers, 0
        try:
            for row in source.rows(numbers):
                yield row
                at += 1
        except OSError as error:
            number = numbers[min(at, len(numbers) - 1)]
            why = f"{error.filename}: {error.strerror}" if error.filename else str(error)
            raise RowsFailed([RowFailed(number, f"sample {number}", "unreadable", why)]) from error

    def add(self, key: str, row: Row, out: ShardFile) -> None:
        """Write one sample."""
        members: Sequence[RowMember] = row.members
        label = row.label if self.order.write_cls and not row.holds_class else None
        if label is not None:
            members = sorted([*members, RowMember(CLASS_FIELD, b"%d" % label)])
        out.begin_sample()
        pieces, at, block = list[bytes](), self._at, tar.BLOCK_BYTES
        for name, data, source in members:
            size = len(data)
            pieces += (tar.header(member_name(key, name).encode("ascii"), size), data, _PADDINGS[size % block])
            seen = probe(data) if size and data[0] in FIRST_BYTES else NOT_AN_IMAGE
            made = label is not None and name == CLASS_FIELD
            self.record.add_member(name, source, offset=at + block, size_bytes=size, xxh3=digest(data), probe=seen, made=made)
            if self.order.jpeg_rows:
                self.record.add_rows(row.indexed.get(name) if row.indexed else None)
            at += block + size + -size % block
            self._bytes += size
        out.write(*pieces)
        self._at = at
        self.record.add_sample(key, len(members), row.label, row.scalars)
        self._samples += 1
        if time.monotonic() >= self._due:
            self._tell()

    def _tell(self) -> None:
        self.report(self._samples, self._bytes)
        self._samples = self._bytes = 0
        self._due = time.monotonic() + _REPORT_SECONDS


@lru_cache(maxsize=1 << 12)
def _is_legal(name: str) -> bool:
    return LEGAL_FIELD.fullmatch(name) is not None and len(name) <= MAX_FIELD_BYTES


def wrong_with(key: str, row: Row) -> str | None:
    """What rule of the format a row would break."""
    if not row.members:
        return "it has nothing to store: " + ("every value is missing" if row.label is None else "it is only its class")
    fields = [member.field for member in row.members]
    if len(set(fields)) < len(fields):
        return f"it has a field twice: {', '.join(fields)}"
    if CLASS_FIELD in fields and row.label is not None and not row.holds_class:
        return f"it has a field {CLASS_FIELD} of its own beside its class"
    for member in row.members:
        if not _is_legal(member.field):
            rule = f"words of a-z 0-9 _ + - joined by dots, at most {MAX_FIELD_BYTES} bytes"
            return f"its field {member.field!r} is not legal: {rule}"
        if len(key) + 1 + len(member.field) > tar.MAX_NAME_BYTES:
            return f"its key {key!r} is too long for field {member.field!r}"
        if len(member.data) > tar.MAX_MEMBER_BYTES:
            return f"its field {member.field} has 8 GiB or more, which no tar reader takes"
    return None
