"""A pack of rows from end to end: facts, plan, write (or continue), publish. The same promises as a pack of a folder."""

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from fastfeed.archive.dataset import Archive
from fastfeed.archive.manifest import FOLDER, WRITER, Manifest
from fastfeed.config import ImageConfig, PackConfig, RowConfig
from fastfeed.disk import FULL_HINT, disk_error, remove
from fastfeed.errors import (
    DatasetError,
    DestinationError,
    DestinationFull,
    DestinationOccupied,
    SourceChanged,
    SourceUnreadable,
)
from fastfeed.machine import free_bytes
from fastfeed.packer.compare import compare_options, listed_left_out, published
from fastfeed.packer.crew import Crew, Process, start_worker
from fastfeed.packer.journal import Journal, peek, refuse_foreign
from fastfeed.packer.result import DatasetResult, PackResult
from fastfeed.packer.rows.finish import publish_rows
from fastfeed.packer.rows.plan import RowPlan, RowShard, plan_rows
from fastfeed.packer.rows.record import RowRecord
from fastfeed.packer.rows.source import RowFacts, RowSource
from fastfeed.packer.rows.worker import Forked
from fastfeed.packer.rows.writer import RowOrder
from fastfeed.packer.writing import worker_count
from fastfeed.sample import SkipList, printable
from fastfeed.source.scan import LeftOut
from fastfeed.trace import QUIET, Progress
from fastfeed.units import format_count, format_size

_ROUNDS = 20
_SHOWN = 5
_SPARE_BYTES = 8 << 20
_WORKER = "fastfeed.packer.rows.worker"


@dataclass(slots=True, kw_only=True)
class RowJob:
    """What was asked for."""

    source: RowSource
    where: str
    """What messages call the source: a path, or the type of an object."""
    name: str
    """Stem of the shards' names, where config has none."""
    destination: str
    config: PackConfig
    rows: RowConfig
    images: ImageConfig = field(default_factory=ImageConfig)
    """How the source makes images smaller: an option that a rerun must have as well."""
    exclude: SkipList = field(default_factory=SkipList)
    workers: int | None = None
    progress: Progress = QUIET
    split: str = ""
    """Folder of the split in the packed source."""
    one_of_several: bool = False
    """Whether the skip list is for other splits too, so that it need not name any sample of this one."""
    facts: RowFacts = field(init=False)
    identity: Mapping[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.facts = self.source.facts()
        options = {**asdict(self.config), **asdict(self.rows), "name": self.config.name or self.name}
        if self.images.changes:
            options.update(asdict(self.images))
        entries = "\n".join(sorted(entry.to_json() for entry in self.exclude.entries))
        options["exclude"] = hashlib.sha256(entries.encode()).hexdigest()[:16] if entries else None
        identity = {"writer": WRITER, "options": options, "source": self.facts.identity}
        self.identity = json.loads(json.dumps(identity))  # tuples are lists in what is kept

    def source_digest(self) -> str:
        """What the manifest says of the source."""
        return hashlib.sha256(json.dumps(self.identity["source"], sort_keys=True).encode()).hexdigest()

    def columns(self) -> tuple[str, ...] | None:
        """Typed columns to be kept; None for all that the rows turn out to have."""
        known = self.rows.column if self.facts.columns is None else self.facts.columns
        return None if known is None else (*known, *self.facts.extra_columns)

    def plan(self, failed: Mapping[int, LeftOut]) -> RowPlan:
        """With these rows left out.

        Raises:
            SourceUnreadable: Rows are known to be unreadable, and on_error is stop.
        """
        known = {**self.facts.failed, **failed}
        plan = plan_rows(
            self.facts, self.config, name=self.name, exclude=self.exclude, failed=known, one_of_several=self.one_of_several
        )
        broken = [item for item in (*plan.left_out, *self.facts.left_out) if item.kind == "unreadable"]
        if broken and self.config.on_error == "stop":
            shown = "; ".join(f"{printable(item.source)}: {printable(item.why)}" for item in broken[:_SHOWN])
            more = f"; and {len(broken) - _SHOWN} more" if len(broken) > _SHOWN else ""
            msg = f"{format_count(len(broken), 'sample')} cannot be read ({shown}{more})"
            raise SourceUnreadable(msg, path=self.where, hint="Mend them, or leave them out with --on-error skip.")
        return replace(plan, left_out=(*plan.left_out, *self.facts.left_out))


@dataclass(frozen=True, slots=True)
class _Planned:
    """One dataset without splits, as the journal wants it."""

    name: str
    shards: Sequence[RowShard]
    split: str = ""

    @property
    def datasets(self) -> "tuple[_Planned, ...]":
        return (self,)


def pack_rows(
    job: RowJob, *, overwrite: bool = False, dry_run: bool = False, on_plan: Callable[[PackResult], None] | None = None
) -> PackResult:
    """Pack rows. A call that was interrupted continues; one that is done is found to be done.

    Args:
        job: What to pack.
        overwrite: Replace what an earlier pack wrote there.
        dry_run: Only plan.
        on_plan: Called with the plan before the first byte is written.

    Raises:
        SourceError: Rows cannot be read, or are not what they were.
        DestinationError: The destination is busy, occupied or full.
        WorkerDied: A worker was killed; the next call continues.
    """
    began = time.monotonic()
    if dry_run:
        result = _result(job, job.plan({}), began, dry_run=True)
        return replace(result, notes=(*result.notes, *_standing(job, overwrite=overwrite)))
    done = None if overwrite or os.path.isdir(os.path.join(job.destination, FOLDER, "job")) else published(job.destination)
    if done is not None:
        return _already(job, done, began)
    journal = Journal(job.destination)
    try:
        result = _run(job, journal, overwrite=overwrite, on_plan=on_plan)
        return replace(result, notes=(*journal.notes, *result.notes), seconds=time.monotonic() - began)
    except BrokenPipeError:
        raise  # who listened to on_plan has gone: that is no fault of the destination
    except OSError as error:
        raise disk_error(f"{error.filename or job.destination}: {error.strerror}", error.errno, job.destination) from error
    finally:
        journal.close()


def _standing(job: RowJob, *, overwrite: bool) -> list[str]:
    """What a dry run should say of what is at the destination."""
    try:
        refuse_foreign(job.destination)
        done, before = published(job.destination), peek(job.destination)
        what = "a finished pack" if done is not None else "an unfinished pack" if before is not None else None
        if what is None:
            return []
        if overwrite:
            return [f"the destination holds {what}: it would be replaced"]
        if done is not None:
            _compare_published(job, done)
            return ["the destination holds this very pack: there would be nothing to do"]
        _compare_job(job, before)
    except (DestinationError, SourceChanged, DatasetError) as error:
        return [f"without --overwrite this would be refused: {error.message}"]
    return ["the destination holds an unfinished pack with these options: it would be continued"]


def _run(job: RowJob, journal: Journal, *, overwrite: bool, on_plan: Callable[[PackResult], None] | None) -> PackResult:
    began = time.monotonic()
    if overwrite or journal.is_clearing():
        plan = job.plan({})  # nothing is removed for a source that cannot do
        journal.prove_ours(_Planned(plan.name, plan.shards))
        journal.clear()
        os.makedirs(job.destination, exist_ok=True)
    done = published(job.destination)
    if done is not None:
        result = _already(job, done, began)
        journal.finish()
        return result
    _compare_job(job, journal.read("job.json"))
    failed = _failed_before(journal)
    plan = job.plan(failed)
    journal.prove_ours(_Planned(plan.name, plan.shards))
    if journal.read("job.json") is None:  # only now: a source that is refused leaves nothing behind
        journal.begin(job.identity)
    if on_plan is not None:
        on_plan(_result(job, plan, began, dry_run=True))
    writing = _Writing(job, journal)
    plan = writing.until_whole(plan, failed)
    manifest = publish_rows(job.destination, plan, writing.records(plan), _about(job, plan))
    journal.finish()
    if writing.kept:
        journal.notes.append(
            f"{format_count(writing.kept, 'shard')} kept from an earlier run, unread: fastfeed verify proves all"
        )
    return _result(job, plan, began, manifest=manifest, written=writing.written)


def _about(job: RowJob, plan: RowPlan) -> dict[str, Any]:
    """What the manifest says of source and options."""
    return {
        "source_digest": job.source_digest(), "layout": job.facts.layout, "order": plan.order,
        "options": job.identity["options"], "source_files": job.facts.files, "classes": job.facts.classes,
        "columns": job.columns(),
        "numbered_classes": job.facts.numbered_classes, "split": job.split,
    }  # fmt: skip


def _compare_published(job: RowJob, done: Mapping[str, Manifest]) -> None:
    for manifest in done.values():
        before = {"writer": manifest.writer, "options": dict(manifest.options)}
        compare_options(job.destination, job.identity, before, "a finished pack")
        if manifest.source_digest != job.source_digest():
            msg = "the source has changed since it was packed"
            hint = "Pack into another folder, or replace the old pack with --overwrite."
            raise SourceChanged(msg, path=job.where, hint=hint)


def _compare_job(job: RowJob, before: Mapping[str, Any] | None) -> None:
    if before is None:
        return
    compare_options(job.destination, job.identity, before, "an unfinished pack")
    then, now = before.get("source"), job.identity["source"]
    if then != now:
        names = sorted(name for name in {*(then or {}), *now} if (then or {}).get(name) != now.get(name))
        msg = f"the source has changed since this pack began ({', '.join(names)})"
        hint = "Undo the change to continue, or start anew with --overwrite."
        raise SourceChanged(msg, path=job.where, hint=hint)


def _already(job: RowJob, done: Mapping[str, Manifest], began: float) -> PackResult:
    """A finished pack of the same source and options, its shards all there, is left alone."""
    if set(done) != {""}:
        msg = "a finished pack with splits is there"
        raise DestinationOccupied(msg, path=job.destination, hint="Choose another folder, or use --overwrite.")
    _compare_published(job, done)
    Archive(job.destination).prove_shard_sizes()
    result = _result(job, job.plan({}), began, manifest=done[""], already_packed=True)
    left_out = listed_left_out(job.destination)  # what could not be read then is known to its list alone
    if left_out is None:
        return result
    return replace(result, left_out=left_out, skipped=sum(item.kind == "unreadable" for item in left_out))


def _failed_before(journal: Journal) -> dict[int, LeftOut]:
    return {int(number): LeftOut(*entry) for number, entry in (journal.read("failed.json") or {}).items()}


class _Writing:
    """Writes what is missing, in rounds: with on_error skip, rows that fail are left out and the rest is planned anew."""

    def __init__(self, job: RowJob, journal: Journal) -> None:
        self.job, self.journal = job, journal
        self.kept = self.written = 0
        self._failed: dict[int, LeftOut] = {}

    def until_whole(self, plan: RowPlan, failed: Mapping[int, LeftOut]) -> RowPlan:
        """Write; gives the plan that was carried out in the end.

        Raises:
            SourceUnreadable: Rows cannot be read, and on_error is stop; or others fail in every round.
        """
        known = dict(failed)
        for _ in range(_ROUNDS):
            self.journal.plan_is(_Planned(plan.name, plan.shards))
            self._failed = {}
            self._round(plan)
            if not self._failed:
                return plan
            known.update(self._failed)
            self.journal.write("failed.json", {str(number): list(item) for number, item in known.items()})
            plan = self.job.plan(known)
        msg = f"rows keep failing after {_ROUNDS} rounds"
        raise SourceUnreadable(msg, path=self.job.where, hint="Look at the source first.")

    def _round(self, plan: RowPlan) -> None:
        job = self.job
        os.makedirs(job.destination, exist_ok=True)
        todo = [shard for shard in plan.shards if not self._is_there(plan, shard)]
        self.kept = len(plan.shards) - len(todo)
        share = sum(shard.stop - shard.first for shard in todo) / max(1, len(plan.rows))
        need, free = int(plan.about_bytes * share) + _SPARE_BYTES, free_bytes(job.destination)
        if need > free:
            msg = "there is not enough free space"
            got = f"{format_size(free)} free"
            raise DestinationFull(msg, path=job.destination, expected=f"about {format_size(need)}", got=got, hint=FULL_HINT)
        job.progress.start("pack", sum(shard.stop - shard.first for shard in todo), None)
        workers, _ = worker_count(job.workers, len(todo))
        with Crew(workers, self._start) as crew:
            crew.run((self._order(plan, shard, at) for at, shard in enumerate(todo)), self._hear)
        job.progress.finish()

    def _start(self) -> Process:
        spec = self.job.source.spec()
        if spec is None:
            return Forked(self.job.source)
        process = start_worker(_WORKER)
        assert process.stdin is not None
        process.stdin.write(json.dumps(spec).encode() + b"\n")
        return process

    def _order(self, plan: RowPlan, shard: RowShard, at: int) -> RowOrder:
        return RowOrder(
            shard=at, target=os.path.join(self.job.destination, shard.file), record=self._record(shard),
            part=self.journal.path(f"{shard.file}.{os.getpid()}.part"), digest=plan.digest(shard, self.job.identity),
            numbers=list(plan.rows[shard.first : shard.stop]), keys=list(plan.keys[shard.first : shard.stop]),
            write_cls=self.job.config.write_cls,
        )  # fmt: skip

    def _record(self, shard: RowShard) -> str:
        return self.journal.path(f"{shard.file}.done")

    def _is_there(self, plan: RowPlan, shard: RowShard) -> bool:
        target, found = os.path.join(self.job.destination, shard.file), RowRecord.load(self._record(shard))
        whole = found is not None and os.path.exists(target) and os.path.getsize(target) == found.size_bytes
        if whole and found is not None and found.order == plan.digest(shard, self.job.identity):
            return True
        remove(target)
        remove(self._record(shard))
        return False

    def records(self, plan: RowPlan) -> Iterator[RowRecord]:
        """Of all shards, in order.

        Raises:
            DestinationError: A shard is not there as it was written.
        """
        for shard in plan.shards:
            target, found = os.path.join(self.job.destination, shard.file), RowRecord.load(self._record(shard))
            if found is None or not os.path.exists(target) or os.path.getsize(target) != found.size_bytes:
                msg = "a finished shard has gone or changed before the manifest was written"
                raise DestinationError(msg, path=target, hint="Nothing else may write there. Run the same command again.")
            yield found

    def _hear(self, event: dict[str, Any]) -> None:
        match event["event"]:
            case "progress":
                self.job.progress.advance(event["files"], event["bytes"])
            case "done":
                self.written += 1
            case "disk":
                raise disk_error(event["what"], event["errno"], self.job.destination)
            case "inputs":
                self._rows_failed(event["failed"])

    def _rows_failed(self, failed: Sequence[tuple[int, str, str, str]]) -> None:
        shown = "; ".join(f"{printable(name)}: {printable(why)}" for _, name, _, why in failed[:_SHOWN])
        more = f"; and {len(failed) - _SHOWN} more" if len(failed) > _SHOWN else ""
        if any(kind == "changed" for _, _, kind, _ in failed):
            msg = f"the source changed while it was packed ({shown}{more})"
            hint = "Let nothing write there; then start anew with --overwrite."
            raise SourceChanged(msg, path=self.job.where, sample=failed[0][0], hint=hint)
        if self.job.config.on_error == "stop":
            msg = f"{format_count(len(failed), 'sample')} cannot be packed ({shown}{more})"
            hint = "Nothing is lost: mend them and run the same again, or leave them out with --on-error skip."
            raise SourceUnreadable(msg, path=self.job.where, sample=failed[0][0], hint=hint)
        self._failed.update({number: LeftOut(name, "unreadable", why) for number, name, _, why in failed})


def _result(  # noqa: PLR0913 - one record from its parts
    job: RowJob, plan: RowPlan, began: float, *, manifest: Manifest | None = None, written: int = 0,
    already_packed: bool = False, dry_run: bool = False,
) -> PackResult:  # fmt: skip
    workers, why = worker_count(job.workers, len(plan.shards))
    facts = job.facts
    size_bytes = sum(entry.size_bytes for entry in manifest.shards) if manifest else plan.about_bytes
    classes = manifest.classes if manifest else facts.classes
    fields = manifest.fields if manifest else facts.fields
    dataset = DatasetResult(
        split=job.split, name=plan.name, path=job.destination, samples=manifest.samples if manifest else len(plan.rows),
        shards=len(manifest.shards) if manifest else len(plan.shards),
        size_bytes=size_bytes, source_files=facts.files,
        source_bytes=manifest.source_bytes if manifest else facts.source_bytes, fields=fields,
        classes=None if classes is None else len(classes), order=plan.order, digest=manifest.digest if manifest else None,
        why=plan.why,
    )  # fmt: skip
    return PackResult(
        destination=job.destination, datasets=(dataset,), left_out=plan.left_out,
        skipped=sum(item.kind == "unreadable" for item in plan.left_out), limited=plan.limited, notes=plan.notes,
        workers=workers, workers_why=why, shards_written=written,
        shards_kept=len(plan.shards) - written if manifest else 0, already_packed=already_packed, dry_run=dry_run,
        needs_bytes=plan.about_bytes, free_bytes=free_bytes(job.destination), seconds=time.monotonic() - began,
    )  # fmt: skip
