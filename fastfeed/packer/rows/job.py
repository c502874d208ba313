"""A pack of rows from end to end: facts, plan, write (or continue), publish. The same promises as a pack of a folder."""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from fastfeed.archive.dataset import Archive
from fastfeed.archive.manifest import FOLDER, Manifest
from fastfeed.archive.shard import CLASS_FIELD
from fastfeed.disk import FULL_HINT, remove
from fastfeed.errors import DestinationError, DestinationFull, SourceChanged, SourceUnreadable
from fastfeed.machine import free_bytes
from fastfeed.packer.compare import listed_left_out, published, standing
from fastfeed.packer.compression import compression_of, notes_of, why_compressed
from fastfeed.packer.crew import Crew, Process, start_worker
from fastfeed.packer.journal import Journal
from fastfeed.packer.result import DatasetResult, PackResult
from fastfeed.packer.rows.asked import Planned, RowJob, shown
from fastfeed.packer.rows.finish import counted, publish_rows
from fastfeed.packer.rows.plan import RowPlan, RowShard
from fastfeed.packer.rows.record import RowRecord
from fastfeed.packer.rows.standing import compare_job, compare_published
from fastfeed.packer.rows.worker import Forked
from fastfeed.packer.rows.writer import RowOrder
from fastfeed.packer.writing import Hearing, held_journal, prove_room, tell_kept, worker_count
from fastfeed.source import wire
from fastfeed.source.scan import LeftOut
from fastfeed.units import format_count, format_size

_ROUNDS = 20
_SPARE_BYTES = 8 << 20
_WORKER = "fastfeed.packer.rows.worker"


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
        told = standing(
            job.destination, overwrite=overwrite, prove_finished=lambda done: compare_published(job, done),
            prove_begun=lambda before: compare_job(job, before),
        )  # fmt: skip
        return replace(result, notes=(*result.notes, *told))
    done = None if overwrite or os.path.isdir(os.path.join(job.destination, FOLDER, "job")) else published(job.destination)
    if done is not None:
        return _already(job, done, began)
    with held_journal(job.destination) as journal:
        result = _run(job, journal, overwrite=overwrite, on_plan=on_plan)
    return replace(result, notes=(*journal.notes, *result.notes), seconds=time.monotonic() - began)


def _run(job: RowJob, journal: Journal, *, overwrite: bool, on_plan: Callable[[PackResult], None] | None) -> PackResult:
    began = time.monotonic()
    if overwrite or journal.is_clearing():
        plan = job.plan({})  # nothing is removed for a source or a disk that cannot do
        prove_room(journal, plan.about_bytes)
        journal.prove_ours(Planned(plan.name, plan.shards))
        journal.clear()
        os.makedirs(job.destination, exist_ok=True)
    done = published(job.destination)
    if done is not None:
        result = _already(job, done, began)
        journal.finish()
        return result
    compare_job(job, journal.read("job.json"))
    failed = _failed_before(journal)
    plan = job.plan(failed)
    journal.prove_ours(Planned(plan.name, plan.shards))
    if journal.read("job.json") is None:  # only now: a source that is refused leaves nothing behind
        journal.begin(job.identity)
    if on_plan is not None:
        on_plan(_result(job, plan, began, dry_run=True))
    writing = _Writing(job, journal)
    plan = writing.until_whole(plan, failed)
    outcomes = Counter[str]()
    manifest = publish_rows(job.destination, plan, counted(writing.records(plan), outcomes), _about(job, plan))
    journal.finish()
    tell_kept(journal, writing.kept)
    result = _result(job, plan, began, manifest=manifest, written=writing.written)
    return replace(result, datasets=(replace(result.datasets[0], jpeg_rows=dict(outcomes) or None),))


def _about(job: RowJob, plan: RowPlan) -> dict[str, Any]:
    """What the manifest says of source and options."""
    return {
        "source_digest": job.source_digest(), "layout": job.facts.layout, "order": plan.order,
        "options": job.identity["options"], "source_files": plan.source_files, "classes": job.facts.classes,
        "columns": job.columns(), "numbered_classes": job.facts.numbered_classes, "split": job.split,
        "compression": compression_of(job.config),
    }  # fmt: skip


def _already(job: RowJob, done: Mapping[str, Manifest], began: float) -> PackResult:
    """A finished pack of the same source and options, its shards all there, is left alone."""
    compare_published(job, done)
    Archive(job.destination).prove_shard_sizes()
    result = _result(job, job.plan({}, refuse=False), began, manifest=done[""], already_packed=True)
    left_out = listed_left_out(job.destination)  # what could not be read then is known to its list alone
    if left_out is None:
        return result
    return replace(result, left_out=left_out, skipped=sum(item.kind == "unreadable" for item in left_out))


def _failed_before(journal: Journal) -> dict[int, LeftOut]:
    return {int(number): LeftOut(*entry) for number, entry in (journal.read("failed.json") or {}).items()}


class _Writing(Hearing):
    """Writes what is missing, in rounds: with on_error skip, rows that fail are left out and the rest is planned anew."""

    def __init__(self, job: RowJob, journal: Journal) -> None:
        super().__init__(job.progress, job.destination)
        self.job, self.journal = job, journal
        self._failed: dict[int, LeftOut] = {}

    def until_whole(self, plan: RowPlan, failed: Mapping[int, LeftOut]) -> RowPlan:
        """Write; gives the plan that was carried out in the end.

        Raises:
            SourceUnreadable: Rows cannot be read, and on_error is stop; or others fail in every round.
        """
        known = dict(failed)
        for _ in range(_ROUNDS):
            self.journal.plan_is(Planned(plan.name, plan.shards))
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
            crew.run((self._order(plan, shard, at) for at, shard in enumerate(todo)), self.hear, workers)
        job.progress.finish()

    def _start(self) -> Process:
        spec = self.job.source.spec()
        if spec is None:
            return Forked(self.job.source, [self.journal.descriptor])
        process = start_worker(_WORKER)
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # it is dead already: whoever gives it an order hears why
            process.stdin.write(wire.encode({"order": "source", "spec": spec}))
            process.stdin.flush()
        return process

    def _order(self, plan: RowPlan, shard: RowShard, at: int) -> RowOrder:
        return RowOrder(
            number=at, target=os.path.join(self.job.destination, shard.file), record=self._record(shard),
            part=self.journal.path(f"{shard.file}.{os.getpid()}.part"), digest=plan.digest(shard, self.job.decides),
            numbers=list(plan.rows[shard.first : shard.stop]), keys=list(plan.keys[shard.first : shard.stop]),
            write_cls=self.job.config.write_cls, go_on=self.job.config.on_error == "skip",
            framing=self.job.config.framing, jpeg_rows=self.job.images.jpeg_rows,
        )  # fmt: skip

    def _record(self, shard: RowShard) -> str:
        return self.journal.path(f"{shard.file}.done")

    def _is_there(self, plan: RowPlan, shard: RowShard) -> bool:
        target, found = os.path.join(self.job.destination, shard.file), RowRecord.load(self._record(shard))
        whole = found is not None and os.path.exists(target) and os.path.getsize(target) == found.size_bytes
        if whole and found is not None and found.order == plan.digest(shard, self.job.decides):
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

    def inputs_failed(self, failed: Sequence[tuple[int, str, str, str]]) -> None:
        """Rows that cannot be packed: the number of each, its name, the kind of its fault and why.

        Raises:
            SourceChanged: One is not what it was.
            SourceUnreadable: One cannot be read, and on_error is stop.
        """
        facts = self.job.facts
        told = shown([(facts.name(number), why) for number, _, _, why in failed])
        if any(kind == "changed" for _, _, kind, _ in failed):
            msg = f"the source changed while it was packed ({told})"
            hint = "Let nothing write there; then start anew with --overwrite."
            raise SourceChanged(msg, path=self.job.where, sample=failed[0][0], hint=hint)
        if self.job.config.on_error == "stop":
            msg = f"{format_count(len(failed), 'sample')} cannot be packed ({told})"
            hint = "Nothing is lost: mend them and run the same again, or leave them out with --on-error skip."
            if "files" in facts.identity:  # without them it is another source, and that is not continued
                hint = hint.removesuffix(".") + " (where files have gone, with --overwrite too)."
            raise SourceUnreadable(msg, path=self.job.where, sample=failed[0][0], hint=hint)
        self._failed.update({number: LeftOut(facts.name(number), "unreadable", why) for number, _, _, why in failed})


def _planned_fields(job: RowJob) -> tuple[str, ...]:
    """Those that are known beforehand, without the class members if pack would make them and they are not wanted."""
    kept = job.config.write_cls or job.facts.holds_class
    return tuple(name for name in job.facts.fields if name != CLASS_FIELD or kept)


def _result(  # noqa: PLR0913 - one record from its parts
    job: RowJob, plan: RowPlan, began: float, *, manifest: Manifest | None = None, written: int = 0,
    already_packed: bool = False, dry_run: bool = False,
) -> PackResult:  # fmt: skip
    workers, why = worker_count(job.workers, len(plan.shards))
    facts = job.facts
    size_bytes = manifest.size_bytes if manifest else plan.about_bytes
    tar_bytes = None if job.config.compress is None else manifest.tar_bytes if manifest else plan.about_bytes
    classes = manifest.classes if manifest else facts.classes
    dataset = DatasetResult(
        split=job.split, name=plan.name, path=job.destination, samples=manifest.samples if manifest else len(plan.rows),
        shards=len(manifest.shards) if manifest else len(plan.shards),
        size_bytes=size_bytes, tar_bytes=tar_bytes, source_files=manifest.source_files if manifest else plan.source_files,
        source_bytes=manifest.source_bytes if manifest else facts.source_bytes * len(plan.rows) // max(1, facts.count),
        fields=manifest.fields if manifest else _planned_fields(job),
        classes=None if classes is None else len(classes), order=plan.order, digest=manifest.digest if manifest else None,
        why=(*plan.why, *why_compressed(job.config)),
    )  # fmt: skip
    return PackResult(
        destination=job.destination, datasets=(dataset,), left_out=plan.left_out,
        skipped=sum(item.kind == "unreadable" for item in plan.left_out), limited=plan.limited,
        notes=(*plan.notes, *notes_of(manifest)),
        workers=workers, workers_why=why, shards_written=written,
        shards_kept=len(plan.shards) - written if manifest else 0, already_packed=already_packed, dry_run=dry_run,
        needs_bytes=plan.about_bytes, free_bytes=free_bytes(job.destination), seconds=time.monotonic() - began,
    )  # fmt: skip
