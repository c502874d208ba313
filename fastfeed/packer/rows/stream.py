"""An iterable of samples becomes shards while it is read: nobody knows how many there are, so a shard is closed when full.

Resumption reads the iterable again from its beginning and compares each sample with what finished shards hold; the first
that differs is named. One process: an iterable has one reader.
"""

import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import chain, islice
from typing import Any

from fastfeed.archive.dataset import Archive
from fastfeed.archive.manifest import FOLDER, STREAM, WRITER, Manifest
from fastfeed.archive.shard import LEGAL_KEY, digest, shard_file
from fastfeed.archive.tar import MAX_NAME_BYTES
from fastfeed.config import ImageConfig, PackConfig, RowConfig
from fastfeed.disk import disk_error, remove
from fastfeed.errors import FastfeedError, SourceChanged, SourceUnreadable, UsageError
from fastfeed.machine import free_bytes
from fastfeed.packer.compare import compare_options, published
from fastfeed.packer.journal import Journal
from fastfeed.packer.plan import legal_name
from fastfeed.packer.result import DatasetResult, PackResult
from fastfeed.packer.rows.finish import publish_rows
from fastfeed.packer.rows.images import NotReencoded, Reencoder
from fastfeed.packer.rows.plan import RowPlan, RowShard
from fastfeed.packer.rows.python import PROBES, LabelReader, as_dict, to_row
from fastfeed.packer.rows.record import RowRecord
from fastfeed.packer.rows.source import Row
from fastfeed.packer.rows.values import Names
from fastfeed.packer.rows.writer import RowOrder, RowShardWriter, wrong_with
from fastfeed.packer.shardfile import ShardFile
from fastfeed.sample import SkipList
from fastfeed.source.names import safe_key
from fastfeed.source.scan import LeftOut
from fastfeed.trace import QUIET, Progress
from fastfeed.units import format_size

KEY = "__key__"
"""As webdataset calls a sample's name."""
_HASH_DIGITS = 10


@dataclass(slots=True, kw_only=True)
class StreamJob:
    """What was asked for."""

    samples: Iterable[Any]
    where: str
    name: str
    destination: str
    config: PackConfig
    rows: RowConfig
    images: ImageConfig = field(default_factory=ImageConfig)
    exclude: SkipList = field(default_factory=SkipList)
    progress: Progress = QUIET

    def __post_init__(self) -> None:
        for name, value in (("shards", self.config.shards), ("shuffle", self.config.shuffle)):
            if value is not None:
                msg = f"{name} cannot be had of an iterable: nobody knows how many samples come"
                raise UsageError(msg, got=value, hint="Use samples_per_shard or shard_bytes, or give a dataset with a length.")

    def identity(self) -> dict[str, Any]:
        """What a rerun must find equal, besides the samples."""
        options = {**asdict(self.config), **asdict(self.rows), "name": self.config.name or self.name}
        if self.images.changes:
            options["images"] = {**asdict(self.images), **Reencoder(self.images).versions()}
        entries = "\n".join(sorted(entry.to_json() for entry in self.exclude.entries))
        options["exclude"] = hashlib.sha256(entries.encode()).hexdigest()[:16] if entries else None
        found: dict[str, Any] = json.loads(json.dumps({"writer": WRITER, "options": options, "source": {"type": self.where}}))
        return found


def pack_stream(job: StreamJob, *, overwrite: bool = False) -> PackResult:
    """Pack an iterable.

    Args:
        job: What to pack.
        overwrite: Replace what an earlier pack wrote there.

    Raises:
        SourceError: A sample cannot be stored, or differs from what an earlier run wrote.
        DestinationError: The destination is busy, occupied or full.
        UsageError: A finished pack is there: whether it is this one cannot be told without reading all samples again.
    """
    began = time.monotonic()
    if not overwrite and not os.path.isdir(os.path.join(job.destination, FOLDER, "job")):
        done = published(job.destination)
        if done is not None:
            return _already(job, done, began)
    journal = Journal(job.destination)
    try:
        result = _run(job, journal, overwrite=overwrite)
        return replace(result, notes=(*journal.notes, *result.notes), seconds=time.monotonic() - began)
    except OSError as error:
        raise disk_error(f"{error.filename or job.destination}: {error.strerror}", error.errno, job.destination) from error
    finally:
        journal.close()


def _already(job: StreamJob, done: Mapping[str, Manifest], began: float) -> PackResult:
    """A finished pack with equal options is taken for this one, and that is said: its samples were not compared."""
    for manifest in done.values():
        before = {"writer": manifest.writer, "options": dict(manifest.options)}
        compare_options(job.destination, job.identity(), before, "a finished pack")
    Archive(job.destination).prove_shard_sizes()
    note = "a finished pack with the same options is there: its samples were not compared with the iterable's"
    result = _result(job, done[""], (), began)
    return replace(result, notes=(note,), already_packed=True, shards_kept=len(done[""].shards))


@dataclass(frozen=True, slots=True)
class _Planned:
    """As the journal wants it: the shards that have begun."""

    name: str
    shards: tuple[RowShard, ...]
    split: str = ""

    @property
    def datasets(self) -> "tuple[_Planned, ...]":
        return (self,)


def _run(job: StreamJob, journal: Journal, *, overwrite: bool) -> PackResult:
    began = time.monotonic()
    if overwrite or journal.is_clearing():
        journal.clear()
        os.makedirs(job.destination, exist_ok=True)
    identity, before = job.identity(), journal.read("job.json")
    if before is not None:
        compare_options(job.destination, identity, before, "an unfinished pack")
    else:
        journal.begin(identity)
    samples = iter(job.samples)
    first = [as_dict(item) for item in islice(samples, PROBES)]
    if not first:
        msg = "the iterable gives no sample"
        raise SourceUnreadable(msg, got=job.where)
    names = Names.of(job.rows, job.rows.label)
    names.settle([{name: value for name, value in item.items() if name != KEY} for item in first])
    writing = _Writing(job, journal, names, hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest())
    job.progress.start("pack", None, None)
    writing.run(chain(first, map(as_dict, samples)))
    job.progress.finish()
    plan = writing.plan()
    about = {
        "source_digest": writing.digest.hexdigest(), "layout": "stream", "order": STREAM, "options": identity["options"],
        "source_files": 1, "columns": job.rows.column, "classes": job.rows.classes,
        "numbered_classes": job.rows.classes is None, "split": "",
    }  # fmt: skip
    manifest = publish_rows(job.destination, plan, writing.records(), about)
    journal.finish()
    result = _result(job, manifest, tuple(names.why), began)
    return replace(
        result, shards_written=writing.written, shards_kept=len(plan.shards) - writing.written, left_out=plan.left_out,
        limited=writing.limited,
    )  # fmt: skip


class _Writing:
    """Shard after shard: compared where an earlier run finished it, written else."""

    def __init__(self, job: StreamJob, journal: Journal, names: Names, identity: str) -> None:
        self.job, self.journal, self.names, self.identity = job, journal, names, identity
        self.stem = legal_name(job.config.name or job.name)
        self.labels = LabelReader(job.rows.classes)
        self._reencoder = Reencoder(job.images)
        self.shards: list[RowShard] = []
        self.left_out: list[LeftOut] = []
        self.digest = hashlib.sha256()
        """Of all keys and checksums: what the manifest knows the source by."""
        self.written = self.limited = 0
        self._used: dict[str, int] = {}
        self._count = 0

    def run(self, samples: Iterator[Mapping[str, Any]]) -> None:
        """Read everything.

        Raises:
            SourceUnreadable: A sample cannot be stored, or has the name of another.
            SourceChanged: One differs from what a finished shard holds.
        """
        rows = self._rows(samples)
        row = next(rows, None)
        while row is not None:
            record = RowRecord.load(self._record_path(len(self.shards)))
            row = self._compare(record, row, rows) if record is not None and self._is_whole(record) else self._write(row, rows)

    def _rows(self, samples: Iterator[Mapping[str, Any]]) -> Iterator[tuple[str, Row]]:
        """Key and row of each sample that stays."""
        for number, sample in enumerate(samples):
            if self.job.config.limit is not None and self._count >= self.job.config.limit:
                return
            values = dict(sample)
            given = values.pop(KEY, None)
            key = self._key(number, given)
            entry = self.job.exclude.match(str(given) if given is not None else None, key)
            if entry is not None:
                self.left_out.append(LeftOut(key, "excluded", "named by the skip list"))
                continue
            try:
                row = to_row(self.names.encode_row(values), self.labels, key)
                row = self._reencoder.apply(row) if self.job.images.changes else row
            except NotReencoded as error:
                msg = f"sample {number} of the iterable cannot be packed: {error}"
                raise SourceUnreadable(msg, sample=number, key=key) from error
            except FastfeedError as error:
                msg = f"sample {number} of the iterable cannot be packed: {error.message}"
                raise SourceUnreadable(msg, sample=number, key=key, got=error.got, hint=error.hint or "") from error
            wrong = wrong_with(key, row)
            if wrong is not None:
                msg = f"sample {number} of the iterable cannot be packed: {wrong}"
                raise SourceUnreadable(msg, sample=number, key=key)
            self._count += 1
            self.digest.update(f"{key}\0{[(m.field, digest(m.data)) for m in row.members]}\0".encode())
            yield key, row

    def _key(self, number: int, given: object) -> str:
        if given is None:
            key = f"{number:09d}"
        else:
            name, room = str(given), MAX_NAME_BYTES - 1 - self.names.max_field_bytes
            legal = LEGAL_KEY.fullmatch(name) and len(name) <= room
            key = name if legal else safe_key(name, name, room, _HASH_DIGITS)
        before = self._used.setdefault(key.lower(), number)
        if before != number:
            msg = f"samples {before} and {number} of the iterable have the same name {key!r} (upper and lower case are equal)"
            raise SourceUnreadable(msg, sample=number, key=key, hint=f"Give each sample a {KEY} of its own, or none.")
        return key

    # ------------------------------------------------------------------------------------------------ one shard
    def _path(self, number: int) -> str:
        return os.path.join(self.job.destination, shard_file(self.stem, number))

    def _record_path(self, number: int) -> str:
        return self.journal.path(f"{shard_file(self.stem, number)}.done")

    def _is_whole(self, record: RowRecord) -> bool:
        path = self._path(len(self.shards))
        return record.order == self.identity and os.path.exists(path) and os.path.getsize(path) == record.size_bytes

    def _compare(
        self, record: RowRecord, row: tuple[str, Row] | None, rows: Iterator[tuple[str, Row]]
    ) -> tuple[str, Row] | None:
        """Go through the samples of a finished shard; gives the first one behind it."""
        member = 0
        for at, key in enumerate(record.keys):
            stop = member + record.members_per_sample[at]
            kept = list(zip(record.fields[member:stop], record.xxh3[member:stop], strict=True))
            member = stop
            now = None if row is None else [(m.field, digest(m.data)) for m in row[1].members]
            if now is not None and self.job.config.write_cls and row is not None and row[1].label is not None:
                now = sorted([*now, ("cls", digest(b"%d" % row[1].label))])
            if row is None or row[0] != key or now != kept or row[1].label != record.label(at):
                number = (self.shards[-1].stop if self.shards else 0) + at
                msg = f"sample {number} of the iterable is not what it was when this pack began"
                hint = "Give the same samples in the same order to continue, or start anew with --overwrite."
                raise SourceChanged(
                    msg, sample=number, key=key, got=row[0] if row is not None else "no more samples", hint=hint
                )
            self.job.progress.advance(1, sum(len(m.data) for m in row[1].members))
            row = next(rows, None)
        self._close(len(record.keys))
        return row

    def _write(self, row: tuple[str, Row] | None, rows: Iterator[tuple[str, Row]]) -> tuple[str, Row] | None:
        """Write a shard until it is full; gives the first sample behind it."""
        number = len(self.shards)
        target, record = self._path(number), self._record_path(number)
        remove(record)
        first = self.shards[-1].stop if self.shards else 0
        begun = (*self.shards, RowShard(os.path.basename(target), first, first))
        self.journal.prove_ours(_Planned(self.stem, begun))
        self.journal.plan_is(_Planned(self.stem, begun))
        order = RowOrder(
            shard=number, target=target, part=self.journal.path(f"{os.path.basename(target)}.{os.getpid()}.part"),
            record=record, digest=self.identity, numbers=[], keys=[], write_cls=self.job.config.write_cls,
        )  # fmt: skip
        writer, size, count = RowShardWriter(order, self.job.progress.advance), 0, 0
        with ShardFile(order.part, order.target) as out:
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
        config = self.job.config
        if config.samples_per_shard is not None:
            return count >= config.samples_per_shard
        return size >= config.shard_bytes

    def _close(self, count: int) -> None:
        first = self.shards[-1].stop if self.shards else 0
        self.shards.append(RowShard(shard_file(self.stem, len(self.shards)), first, first + count))

    # ------------------------------------------------------------------------------------------------ the end
    def plan(self) -> RowPlan:
        """What was written, as a plan."""
        return RowPlan(
            name=self.stem, rows=range(self._count), keys=(), shards=tuple(self.shards), order=STREAM,
            left_out=tuple(self.left_out), limited=self.limited, about_bytes=0, why=(), notes=(),
        )  # fmt: skip

    def records(self) -> Iterator[RowRecord]:
        """Of all shards, in order."""
        for number in range(len(self.shards)):
            record = RowRecord.load(self._record_path(number))
            assert record is not None  # written or compared a moment ago, and the lock is ours
            yield record


def _result(job: StreamJob, manifest: Manifest, why: tuple[str, ...], began: float) -> PackResult:
    size = sum(entry.size_bytes for entry in manifest.shards)
    how = (
        f"at most {job.config.samples_per_shard:,} samples a shard"
        if job.config.samples_per_shard is not None
        else f"a shard is closed at {format_size(job.config.shard_bytes)}"
    )
    dataset = DatasetResult(
        split="", name=manifest.name, path=job.destination, samples=manifest.samples, shards=len(manifest.shards),
        size_bytes=size, source_files=1, source_bytes=manifest.source_bytes, fields=manifest.fields,
        classes=None if manifest.classes is None else len(manifest.classes), order=manifest.order, digest=manifest.digest,
        why=(f"an iterable ({job.where}): {how}", *why),
    )  # fmt: skip
    return PackResult(
        destination=job.destination, datasets=(dataset,), left_out=(), skipped=0, limited=0, notes=(), workers=1,
        workers_why="an iterable has one reader: 1 worker", shards_written=0, shards_kept=0, already_packed=False,
        dry_run=False, needs_bytes=size, free_bytes=free_bytes(job.destination), seconds=time.monotonic() - began,
    )  # fmt: skip
