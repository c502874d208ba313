"""Shards of an iterable: a shard is closed when it is full, and compared where an earlier run finished it."""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fastfeed.archive.manifest import STREAM
from fastfeed.archive.shard import LEGAL_KEY, MAX_FIELD_BYTES, MAX_PART_BYTES, digest, shard_file
from fastfeed.archive.tar import MAX_NAME_BYTES
from fastfeed.config import ImageConfig, PackConfig
from fastfeed.disk import remove
from fastfeed.errors import FastfeedError, SourceChanged, SourceUnreadable
from fastfeed.packer.journal import Journal
from fastfeed.packer.rows.asked import Planned
from fastfeed.packer.rows.images import NotReencoded, Reencoder
from fastfeed.packer.rows.keyset import KeySet
from fastfeed.packer.rows.labels import LabelReader, to_row
from fastfeed.packer.rows.plan import RowPlan, RowShard
from fastfeed.packer.rows.record import RowRecord
from fastfeed.packer.rows.scalars import ScalarColumn
from fastfeed.packer.rows.source import Row, Scalar
from fastfeed.packer.rows.values import Names, safe_path
from fastfeed.packer.rows.writer import RowOrder, RowShardWriter, wrong_with
from fastfeed.packer.shape import legal_name
from fastfeed.packer.shardfile import ShardFile
from fastfeed.sample import SkipList
from fastfeed.source.names import safe_key
from fastfeed.source.scan import LeftOut
from fastfeed.trace import Progress

KEY = "__key__"
"""As webdataset calls a sample's name."""
_HASH_DIGITS = 10
_Keyed = tuple[str, Row]


class Encoder:
    """From what an iterable gives to keys and rows.

    Args:
        names: How values become fields.
        classes: Names of the classes, None where they are numbers.
        images: How images are changed.
    """

    def __init__(self, names: Names, classes: tuple[str, ...] | None, images: ImageConfig) -> None:
        self.names, self.labels, self.classes, self.images = names, LabelReader(classes), classes, images
        self._reencoder = Reencoder(images) if images.changes else None

    def row(self, key: str, values: Mapping[str, Any]) -> Row:
        """A sample's row.

        Raises:
            SourceUnreadable: It cannot be stored; the message says why.
        """
        try:
            row = to_row(self.names.encode_row(values), self.labels, key)
            row = self._reencoder.apply(row) if self._reencoder is not None else row
        except NotReencoded as error:
            raise SourceUnreadable(str(error)) from error
        except FastfeedError as error:
            raise SourceUnreadable(error.message, expected=error.expected, got=error.got, hint=error.hint or "") from error
        wrong = wrong_with(key, row)
        if wrong is not None:
            raise SourceUnreadable(wrong)
        return row

    def key(self, number: int, given: object) -> str:
        """A sample's key: its own where it is legal, else made of it; its number where it has none.

        Raises:
            SourceUnreadable: It is no legal key, and no relative path either, so nothing would keep it as it is.
        """
        if given is None:
            return f"{number:09d}"
        name, room = str(given), MAX_NAME_BYTES - 1 - self.names.max_field_bytes
        if LEGAL_KEY.fullmatch(name) and len(name) <= room:
            return name
        if safe_path(name) != name or len(os.fsencode(os.path.basename(name))) > MAX_PART_BYTES - 1 - MAX_FIELD_BYTES:
            msg = f"its {KEY} is no key and no relative path, so it could not be kept"
            hint = f"Give each sample a {KEY} such as cat/001, or none: then it is numbered."
            raise SourceUnreadable(msg, expected="a relative path", got=ascii(name[:80]), hint=hint)
        return safe_key(name, name, room, _HASH_DIGITS)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What was asked for, as far as shards go."""

    config: PackConfig
    """How large they are, and what to do about samples that cannot be stored."""
    name: str
    """Stem of their names where config has none."""
    exclude: SkipList
    identity: Mapping[str, Any]
    """What a rerun must find equal."""


class GreedyShards:
    """Writes shard after shard.

    Args:
        wanted: How large they are, and what is left out.
        journal: Of the destination.
        encoder: Makes rows.
        progress: Hears how far it is.
    """

    def __init__(self, wanted: "Wanted", journal: Journal, encoder: Encoder, progress: Progress) -> None:
        self.config, self.exclude = wanted.config, wanted.exclude
        self.journal, self.encoder, self.progress = journal, encoder, progress
        self.stem = legal_name(wanted.config.name or wanted.name)
        self._identity = hashlib.sha256(json.dumps(wanted.identity, sort_keys=True).encode()).hexdigest()
        self.shards: list[RowShard] = []
        self.left_out: list[LeftOut] = []
        self.digest = hashlib.sha256()
        """Of all keys and checksums: what the manifest knows the source by."""
        self.written = self.samples = 0
        self._keys = KeySet()
        self._open_keys: list[str] = []
        """Of the shard that is being written or compared."""

    def run(self, samples: Iterator[Mapping[str, Any]]) -> None:
        """Read everything.

        Raises:
            SourceUnreadable: A sample cannot be stored, or has the name of another.
            SourceChanged: One differs from what a finished shard holds, or samples are missing.
        """
        rows = self._rows(samples)
        row = next(rows, None)
        while row is not None:
            record = RowRecord.load(self._record_path(len(self.shards)))
            row = self._compare(record, row, rows) if record is not None and self._is_whole(record) else self._write(row, rows)
        if not self.samples:
            msg = "no sample is left to pack"
            raise SourceUnreadable(msg, hint="Look at what is left out, and at the skip list.")
        if os.path.exists(self._path(len(self.shards))):
            msg = f"the iterable ended after {self.samples:,} samples, and an earlier run of this pack had more"
            hint = "Give the same samples in the same order to continue, or start anew with --overwrite."
            raise SourceChanged(msg, sample=self.samples, got="no more samples", hint=hint)

    # ------------------------------------------------------------------------------------------------ samples
    def _rows(self, samples: Iterator[Mapping[str, Any]]) -> Iterator[_Keyed]:
        """Key and row of each sample that stays."""
        number = -1
        while self.config.limit is None or self.samples < self.config.limit:
            sample = next(samples, None)
            if sample is None:
                return
            number += 1
            row = self._row(number, dict(sample))
            if row is not None:
                self.samples += 1
                key, members = row[0], row[1].members
                self.digest.update(f"{key}\0{[(m.field, digest(m.data)) for m in members]}\0".encode())
                yield row

    def _row(self, number: int, values: dict[str, Any]) -> _Keyed | None:
        """None for a sample that is left out."""
        given = values.pop(KEY, None)
        try:
            key = self.encoder.key(number, given)
        except SourceUnreadable as error:
            shown = ascii(str(given))[1:-1]
            self._leave_out(number, shown, shown, error)
            return None
        if not self._keys.add(key):
            self._refuse_twice(number, key)
        called = str(given) if given is not None else None
        fields = self.encoder.names.fields.values()
        sources = (called, *(f"{key}.{field}" for field in fields)) if self.exclude.entries else (called,)
        entry = next(filter(None, (self.exclude.match(source, key) for source in sources)), None)
        if entry is not None:
            kind = f" ({entry.kind})" if entry.kind else ""
            self.left_out.append(LeftOut(called or key, "excluded", f"named by the skip list{kind}"))
            return None
        try:
            row = self.encoder.row(key, values)
        except SourceUnreadable as error:
            self._leave_out(number, key, called or key, error)
            return None
        return key, row if called in {None, key} else _restorable(row, str(given))

    def _leave_out(self, number: int, key: str, called: str, error: SourceUnreadable) -> None:
        """Leave a sample out that cannot be packed.

        Raises:
            SourceUnreadable: on_error is stop.
        """
        if self.config.on_error == "skip":
            self.left_out.append(LeftOut(called, "unreadable", str(error)))
            return
        msg = f"sample {number} of the iterable cannot be packed: {error.message}"
        hint = error.hint or "Mend it and run the same again: it continues; or leave such samples out (on_error skip)."
        raise SourceUnreadable(msg, sample=number, key=key, expected=error.expected, got=error.got, hint=hint) from error

    def _refuse_twice(self, number: int, key: str) -> None:
        """Which sample has the key already; none, where only the hashes are equal."""
        first = next((at for at, other in enumerate(self._keys_so_far()) if other.lower() == key.lower()), None)
        if first is not None:
            msg = f"sample {number} of the iterable has the name {key!r}, and so has the {first:,}. of those packed before it"
            hint = f"Upper and lower case are equal. Give each sample a {KEY} of its own, or none."
            raise SourceUnreadable(msg, sample=number, key=key, hint=hint)

    def _keys_so_far(self) -> Iterator[str]:
        for at in range(len(self.shards)):
            record = RowRecord.load(self._record_path(at))
            yield from record.keys if record is not None else ()
        yield from self._open_keys

    # ------------------------------------------------------------------------------------------------ one shard
    def _path(self, number: int) -> str:
        return os.path.join(self.journal.destination, self._file(number))

    def _file(self, number: int) -> str:
        return shard_file(self.stem, number, compressed=self.config.compress is not None)

    def _record_path(self, number: int) -> str:
        return self.journal.path(f"{self._file(number)}.done")

    def _is_whole(self, record: RowRecord) -> bool:
        path = self._path(len(self.shards))
        return record.order == self._identity and os.path.exists(path) and os.path.getsize(path) == record.size_bytes

    def _compare(self, record: RowRecord, row: _Keyed | None, rows: Iterator[_Keyed]) -> _Keyed | None:
        """Go through the samples of a finished shard; gives the first one behind it."""
        self._open_keys = record.keys
        scalars = {name: column.values() for name, column in record.scalars.items()}
        for at, (key, members) in enumerate(record.samples()):
            kept = key, members, record.label(at), {name: next(values) for name, values in scalars.items()}
            if row is None or repr(kept) != repr(self._as_kept(*row, scalars)):
                number = (self.shards[-1].stop if self.shards else 0) + at
                msg = f"sample {number} of the iterable is not what it was when this pack began"
                hint = "Give the same samples in the same order to continue, or start anew with --overwrite."
                raise SourceChanged(
                    msg, sample=number, key=key, got=row[0] if row is not None else "no more samples", hint=hint
                )
            self.progress.advance(1, sum(len(m.data) for m in row[1].members))
            row = next(rows, None)
        self._close(len(record.keys))
        return row

    def _as_kept(self, key: str, row: Row, columns: Mapping[str, object]) -> tuple[Any, ...]:
        """A sample as a record has it."""
        members = [(member.field, digest(member.data)) for member in row.members]
        if self.config.write_cls and row.label is not None:
            members = sorted([*members, ("cls", digest(b"%d" % row.label))])
        own = row.scalars or {}
        return key, members, row.label, {name: _kept(own.get(name)) for name in {**columns, **own}}

    def _write(self, row: _Keyed | None, rows: Iterator[_Keyed]) -> _Keyed | None:
        """Write a shard until it is full; gives the first sample behind it."""
        number = len(self.shards)
        target, record = self._path(number), self._record_path(number)
        remove(record)
        first = self.shards[-1].stop if self.shards else 0
        begun = (*self.shards, RowShard(os.path.basename(target), first, first))
        self.journal.prove_ours(Planned(self.stem, begun))
        self.journal.plan_is(Planned(self.stem, begun))
        order = RowOrder(
            number=number, target=target, part=self.journal.path(f"{os.path.basename(target)}.{os.getpid()}.part"),
            record=record, digest=self._identity, numbers=[], keys=[], write_cls=self.config.write_cls,
            framing=self.config.framing, jpeg_rows=self.encoder.images.jpeg_rows,
        )  # fmt: skip
        writer, size, count = RowShardWriter(order, self.progress.advance), 0, 0
        self._open_keys = writer.record.keys
        with ShardFile(order.part, order.target, order.framing) as out:
            while row is not None and not self._is_full(size, count):
                writer.add(row[0], row[1], out)
                size += sum(len(member.data) for member in row[1].members)
                count += 1
                row = next(rows, None)
            writer.finish(out)
        self.written += 1
        self._close(count)
        return row

    def _is_full(self, size: int, count: int) -> bool:
        config = self.config
        return count >= config.samples_per_shard if config.samples_per_shard is not None else size >= config.shard_bytes

    def _close(self, count: int) -> None:
        first = self.shards[-1].stop if self.shards else 0
        self.shards.append(RowShard(self._file(len(self.shards)), first, first + count))

    # ------------------------------------------------------------------------------------------------ the end
    def plan(self) -> RowPlan:
        """What was written, as a plan."""
        return RowPlan(
            name=self.stem, rows=range(self.samples), keys=(), shards=tuple(self.shards), order=STREAM,
            left_out=tuple(self.left_out), limited=0, source_files=1, about_bytes=0, why=(), notes=(),
        )  # fmt: skip

    def records(self) -> Iterator[RowRecord]:
        """Of all shards, in order."""
        for number in range(len(self.shards)):
            record = RowRecord.load(self._record_path(number))
            assert record is not None  # written or compared a moment ago, and the lock is ours
            yield record


def _restorable(row: Row, given: str) -> Row:
    """A sample whose name became another key: its members that have no path of their own are restored by that name."""
    members = (member if member.source else member._replace(source=f"{given}.{member.field}") for member in row.members)
    return replace(row, members=tuple(members))


def _kept(value: Scalar | None) -> Scalar | None:
    """A value as a record gives it back."""
    if value is None:
        return None
    column = ScalarColumn()
    column.add(value)
    return next(column.values())
