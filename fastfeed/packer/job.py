"""A pack job from end to end: scan, plan, write (or continue), publish."""

import hashlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

from fastfeed.archive.dataset import Archive
from fastfeed.archive.manifest import FOLDER, WRITER, Manifest
from fastfeed.archive.sidecars import prove_readers
from fastfeed.config import (
    IMAGE_OPTIONS,
    ROW_OPTIONS,
    AllOptions,
    ImageConfig,
    PackConfig,
    RowConfig,
    image_config,
    pack_config,
    row_config,
)
from fastfeed.disk import prove_utf8
from fastfeed.errors import SourceChanged, SourceUnreadable, UsageError, warn
from fastfeed.machine import free_bytes, processors
from fastfeed.packer.compare import compare_job, compare_published, listed_left_out, published, standing
from fastfeed.packer.compression import encoder_of, notes_of, prove_frames, why_compressed
from fastfeed.packer.crew import Crew
from fastfeed.packer.journal import Journal, peek_listing
from fastfeed.packer.plan import DatasetPlan, PackPlan, make_plan
from fastfeed.packer.probe import probe
from fastfeed.packer.result import DatasetResult, PackResult
from fastfeed.packer.rows.asked import RowJob
from fastfeed.packer.rows.changed import Changed
from fastfeed.packer.rows.choose import Chosen, choose
from fastfeed.packer.rows.folder import Folder
from fastfeed.packer.rows.images import ReencodedRows
from fastfeed.packer.rows.job import pack_rows
from fastfeed.packer.rows.python import PythonRows
from fastfeed.packer.rows.resampled import Resampled
from fastfeed.packer.rows.splits import pack_splits
from fastfeed.packer.rows.stream import StreamJob, pack_stream
from fastfeed.packer.rows.transcode import jpegtran_of
from fastfeed.packer.sidecars import write_sidecars
from fastfeed.packer.writing import Job, Writing, held_journal, prove_room, tell_kept, worker_count
from fastfeed.sample import SkipList, printable
from fastfeed.source.scan import Listing, scan
from fastfeed.trace import QUIET, Progress
from fastfeed.units import format_count

_ROUNDS = 20
_SHOWN = 5


def pack(  # noqa: PLR0913 - each is an option of the command
    source: Any,  # noqa: ANN401 - a path or a dataset
    destination: str | os.PathLike[str],
    *,
    workers: int | None = None,
    exclude: str | os.PathLike[str] | SkipList | None = None,
    from_audit: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    dry_run: bool = False,
    trust_scan: bool = False,
    anyway: bool = False,
    readers: Sequence[str] = (),
    progress: Progress = QUIET,
    on_plan: Callable[[PackResult], None] | None = None,
    **options: Unpack[AllOptions],
) -> PackResult:
    """Pack into shards. A call that was interrupted continues; one that is done is found to be done.

    Args:
        source: A folder (a class a folder, train/ val/ of those, or files that share a stem); a list of files (.csv .tsv
            .jsonl, also .gz and .zst); Parquet or Arrow files with bytes (a path or a glob); JSON lines that are the
            samples; "module:name" of a Python object; or that object: any dataset with __len__ and __getitem__, Hugging
            Face's too, or an iterable of dicts.
        destination: A folder that is new, empty, or holds an unfinished or finished pack of the same source.
        workers: Processes; by default the usable processors, at most one a shard. The bytes do not depend on it.
        exclude: A skip list (JSONL file) of samples to leave out.
        from_audit: Report (JSONL file) of an audit of the same folder, list, tables or tars. Errors are left out, oversize
            images made smaller (to max_side, which then is for them alone), scan bombs and slow formats re-encoded as baseline
            JPEG; the plan tells what is done, and what is left alone and why.
        overwrite: Replace what an earlier pack wrote there.
        dry_run: Only plan.
        trust_scan: Continue with the kept scan and do not walk the folder again; each file is still checked when read.
        anyway: Pack even what is read fast as it is.
        readers: Other readers (dali, energon, hf, wids) whose index files are written as well, as write_sidecars() does.
        progress: Hears how far it is.
        on_plan: Called with the plan (a record with dry_run set) before the first byte is written; not for an iterable.
        **options: Fields of fastfeed.config.PackConfig: shard_bytes (a number, or a text such as "256MiB"), shards,
            samples_per_shard, shuffle, layout, group, class_map, write_cls, name, limit, hidden, on_error, compress, level,
            frame_bytes; and of fastfeed.config.RowConfig for what is no folder: field, root, label, key, column, classes,
            encode, row_json; and of fastfeed.config.ImageConfig to make images smaller: max_side, resize_short, quality,
            apply_exif, only_field; or to give JPEGs restart markers between their blocks, without loss, and keep where they
            are, so that a reader decodes only the rows and columns that a crop needs: jpeg_rows.

    Raises:
        UsageError: An option is wrong.
        SourceError: Source files are unreadable, ambiguous, or changed.
        DestinationError: The destination is busy, occupied or full.
        WorkerDied: A worker was killed; the next call continues.
    """
    if workers is not None and workers < 1:
        msg = "workers counts from 1"
        raise UsageError(msg, got=workers)
    prove_utf8()
    given = dict(options)
    about_rows = {name: given.pop(name) for name in ROW_OPTIONS & set(given)}
    root = given.pop("root", None)
    report = None if from_audit is None else os.fsdecode(from_audit)
    images = image_config({name: given.pop(name) for name in IMAGE_OPTIONS & set(given)}, audited=report is not None)
    config, rows = pack_config(given), row_config(about_rows)
    prove_readers(readers, compression=config.compress)
    jpegtran_of(images)  # it may not be installed, and a scan takes minutes
    skip = _skip_list(exclude)
    chosen = choose(source, rows, root=None if root is None else os.fsdecode(root), anyway=anyway)  # type: ignore[arg-type]
    _prove_kind(chosen, [*about_rows, *(["root"] if root is not None else [])], report)
    where = os.path.abspath(os.fsdecode(source)) if chosen is None else chosen.where
    crew = Crew(workers or processors().count)
    job = Job(where, os.path.abspath(os.fsdecode(destination)), config, skip, {}, workers, crew, progress)
    if chosen is None and not images.changes and report is None:
        result = _pack_folder(job, overwrite=overwrite, dry_run=dry_run, trust_scan=trust_scan, on_plan=on_plan)
    elif chosen is None:
        result = _pack_folder_changed(job, images, report, overwrite=overwrite, dry_run=dry_run, on_plan=on_plan)
    else:
        result = _pack_rows(job, chosen, rows, images, report=report, overwrite=overwrite, dry_run=dry_run, on_plan=on_plan)
    return result if dry_run else _with_sidecars(result, readers, progress)


def _skip_list(exclude: str | os.PathLike[str] | SkipList | None) -> SkipList:
    """What is to be left out; it warns of a file that names nothing, from which someone expects something."""
    if not isinstance(exclude, str | os.PathLike):
        return exclude or SkipList()
    found = SkipList.read(os.fsdecode(exclude))
    if not found.entries:
        warn(f"the skip list {printable(os.fsdecode(exclude))} is empty: nothing is left out by it")
    return found


def _prove_kind(chosen: Chosen | None, about_rows: Sequence[str], report: str | None) -> None:
    """Whether options fit the kind of source.

    Raises:
        UsageError: Options about rows and a folder of files, or an audit's report and a dataset that is code.
    """
    if chosen is None and about_rows:
        names = ", ".join(sorted(about_rows))
        msg = f"{names} is for lists, tables and Python datasets, and the source is a folder of files"
        raise UsageError(msg, got=names)
    if chosen is not None and report is not None and (chosen.rows is None or isinstance(chosen.rows, PythonRows)):
        msg = "from_audit is for what is stored (folders, lists, tables, tars), and here code makes the samples"
        hint = (
            "fastfeed audit --skip-list writes the errors by their names: leave them out with --exclude, and let the dataset "
            "make large images smaller itself."
        )
        raise UsageError(msg, path=chosen.where, hint=hint)


def _with_sidecars(result: PackResult, readers: Sequence[str], progress: Progress) -> PackResult:
    """Last of all, for a dataset that is whole: a rerun after a kill in between finds it finished, and comes here again."""
    if not readers:
        return result
    found = write_sidecars(result.destination, readers, progress=progress)
    return replace(result, sidecars=found, seconds=result.seconds + found.seconds)


def _pack_rows(  # noqa: PLR0913 - what was asked for
    job: Job, chosen: Chosen, rows: RowConfig, images: ImageConfig, *, report: str | None, overwrite: bool, dry_run: bool,
    on_plan: Callable[[PackResult], None] | None,
) -> PackResult:  # fmt: skip
    """What is no folder of files."""
    if os.path.isdir(chosen.where):  # of tables
        _refuse_overlap(os.path.abspath(chosen.where), job.destination)
    if chosen.rows is None:
        if dry_run:
            msg = "there is no plan for an iterable: nobody knows what comes"
            raise UsageError(msg, got=chosen.where, hint="Give a dataset with a length, or pack a few (--limit N) for a trial.")
        stream = StreamJob(
            samples=chosen.samples or (), where=chosen.where, name=chosen.name, destination=job.destination, config=job.config,
            rows=rows, images=images, exclude=job.exclude, progress=job.progress,
        )  # fmt: skip
        return pack_stream(stream, overwrite=overwrite)
    audited = None if report is None else Resampled(chosen.rows, images, report)
    unaudited = ReencodedRows(chosen.rows, images) if images.changes else chosen.rows
    rowjob = RowJob(
        source=unaudited if audited is None else audited.rows(), where=chosen.where, name=chosen.name,
        destination=job.destination, config=job.config, rows=rows, images=images, workers=job.workers, progress=job.progress,
        exclude=job.exclude if audited is None else audited.excluded(job.exclude),
        more_options={} if audited is None else audited.options(),
    )  # fmt: skip
    return pack_rows(rowjob, overwrite=overwrite, dry_run=dry_run, on_plan=on_plan)


def _pack_folder_changed(
    job: Job, images: ImageConfig, report: str | None, *, overwrite: bool, dry_run: bool,
    on_plan: Callable[[PackResult], None] | None,
) -> PackResult:  # fmt: skip
    """A folder whose images change: their sizes cannot be planned, so its samples are packed as rows."""
    _refuse_overlap(job.source, job.destination)
    with job.crew:
        folder = Folder.read(job.source, _scan(job), job.config)
    changed = Changed(folder, images, report)
    exclude = changed.excluded(job.exclude)
    jobs = []
    for split in folder.sources():
        name = job.config.name or os.path.basename(job.source) or "data"
        stem = split if split and job.config.name is None else f"{name}-{split}" if split else name
        jobs.append(RowJob(
            source=changed.rows(split), where=job.source, name=stem, split=split,
            destination=os.path.join(job.destination, split) if split else job.destination,
            config=replace(job.config, name=None), rows=RowConfig(), images=images, more_options=changed.options(),
            exclude=exclude, workers=job.workers, progress=job.progress, one_of_several=split != "",
        ))  # fmt: skip
    if len(jobs) == 1 and not jobs[0].split:
        return pack_rows(jobs[0], overwrite=overwrite, dry_run=dry_run, on_plan=on_plan)
    return pack_splits(job.destination, jobs, overwrite=overwrite, dry_run=dry_run, on_plan=on_plan)


def _pack_folder(
    job: Job, *, overwrite: bool, dry_run: bool, trust_scan: bool, on_plan: Callable[[PackResult], None] | None
) -> PackResult:
    began = time.monotonic()
    _refuse_overlap(job.source, job.destination)
    job = replace(job, identity=_identity(job.config, job.exclude, job.source))
    if dry_run:
        return _planned(job, began, overwrite=overwrite)
    done = None if overwrite or os.path.isdir(os.path.join(job.destination, FOLDER, "job")) else published(job.destination)
    if done is not None:  # without a lock: a finished pack may lie on a disk that cannot be written
        with job.crew:
            return _already(job, done, _scan(job), began)
    with held_journal(job.destination) as journal, job.crew:  # the crew ends before the lock is given away
        result = _run(job, journal, overwrite=overwrite, trust_scan=trust_scan, on_plan=on_plan)
    return replace(result, notes=(*journal.notes, *result.notes), seconds=time.monotonic() - began)


def _refuse_overlap(source: str, destination: str) -> None:
    real_source, real_target = os.path.realpath(source), os.path.realpath(destination)
    if os.path.commonpath([real_source, real_target]) in {real_source, real_target}:
        msg = "source and destination lie within each other"
        raise UsageError(msg, path=destination, hint="Choose a destination outside of the source.")


def _identity(config: PackConfig, skip: SkipList, root: str) -> dict[str, object]:
    """All that decides bytes besides the source's files: a rerun must find it equal."""
    options: dict[str, object] = {**config.record(), "name": config.name or os.path.basename(root) or "data"}
    entries = "\n".join(sorted(entry.to_json() for entry in skip.entries))
    options["exclude"] = hashlib.sha256(entries.encode()).hexdigest()[:16] if entries else None
    return {"writer": WRITER, "options": options, **encoder_of(config)}


def _scan(job: Job) -> Listing:
    hands = job.crew if job.crew.count > 1 else None
    return scan(job.source, job.progress, hidden=job.config.hidden, hands=hands)


def _planned(job: Job, began: float, *, overwrite: bool) -> PackResult:
    """What pack would do."""
    with job.crew:
        listing = _scan(job)
    result = _result(job, _explained(job, _plan(job, listing, {}), listing), began, dry_run=True)
    told = standing(
        job.destination, overwrite=overwrite,
        prove_finished=lambda done: compare_published(job, done, listing),
        prove_begun=lambda before: compare_job(job, before, peek_listing(job.destination), listing),
    )  # fmt: skip
    return replace(result, notes=(*result.notes, *told))


def _plan(job: Job, listing: Listing, failed: Mapping[str, str]) -> PackPlan:
    plan = make_plan(listing, job.config, name=os.path.basename(job.source), exclude=job.exclude, failed=failed)
    packed = sum(dataset.source_files for dataset in plan.datasets)
    known = {item.source for items in plan.left_out.values() for item in items}
    missing = len(listing) - packed - plan.limited - (sum(path in known for path in listing.paths) if known else 0)
    if missing:
        msg = f"the plan loses {format_count(missing, 'file')}: this is a fault of fastfeed, please report it"
        raise SourceChanged(msg, path=job.source, expected=len(listing), got=len(listing) - missing)
    return plan


def _explained(job: Job, plan: PackPlan, listing: Listing) -> PackPlan:
    """The plan with what compression would gain, by a probe."""
    framing = job.config.framing
    if framing is None:
        return plan
    prove_frames(job.config, max(shard.size_bytes for dataset in plan.datasets for shard in dataset.shards))
    found = [probe(dataset, job.source, listing.paths, framing) for dataset in plan.datasets]
    reasons = [why_compressed(job.config, tried) for tried in found]
    datasets = [replace(d, why=(*d.why, *why)) for d, why in zip(plan.datasets, reasons, strict=True)]
    return replace(plan, datasets=tuple(datasets))


def _run(
    job: Job, journal: Journal, *, overwrite: bool, trust_scan: bool, on_plan: Callable[[PackResult], None] | None
) -> PackResult:
    began = time.monotonic()
    kept = None if overwrite else journal.kept_listing()
    listing = kept if trust_scan and kept is not None else _scan(job)
    job.crew.prepare()
    if overwrite or journal.is_clearing():
        plan = _plan(job, listing, {})  # nothing is removed for a source or a disk that cannot do
        prove_room(journal, plan.size_bytes)
        journal.prove_ours(plan)
        journal.clear()
        os.makedirs(job.destination, exist_ok=True)
        kept = None
    done = published(job.destination)
    if done is not None:
        result = _already(job, done, listing, began)
        journal.finish()
        return result
    compare_job(job, journal.read("job.json"), kept, listing)
    plan = _explained(job, _plan(job, listing, _failed_before(journal)), listing)
    journal.prove_ours(plan)
    if kept is None or journal.read("job.json") != job.identity:  # only now: a source that is refused leaves nothing behind
        journal.begin(job.identity, listing.save())
    if on_plan is not None:
        on_plan(_result(job, plan, began, dry_run=True))
    writing = _write(job, journal, listing, plan)
    manifests = writing.publish()
    journal.finish()
    tell_kept(journal, writing.kept)
    return _result(job, writing.plan, began, manifests=manifests, writing=writing)


def _already(job: Job, done: Mapping[str, Manifest], listing: Listing, began: float) -> PackResult:
    """A finished pack of the same source and options, its shards all there, is left alone."""
    compare_published(job, done, listing)
    for split in done:
        Archive(os.path.join(job.destination, split)).prove_shard_sizes()
    plan = _plan(job, listing, _failed_then(job, done, listing))
    return _result(job, plan, began, manifests=done, already_packed=True)


def _write(job: Job, journal: Journal, listing: Listing, plan: PackPlan) -> Writing:
    """Write until nothing fails: with on_error skip, what cannot be read is left out and the rest planned anew.

    Raises:
        SourceUnreadable: Something else fails in every round.
    """
    failed = _failed_before(journal)
    for _ in range(_ROUNDS):
        journal.plan_is(plan)
        writing = Writing(job, journal, plan, listing)
        writing.run()
        if not writing.failed:
            return writing
        failed = {**failed, **writing.failed}
        journal.write("failed.json", failed)
        plan = _plan(job, listing, failed)
    msg = f"source files keep failing after {_ROUNDS} rounds"
    raise SourceUnreadable(msg, path=job.source, hint="The disk may be dying: copy the source first.")


def _failed_before(journal: Journal) -> dict[str, str]:
    return {str(path): str(why) for path, why in (journal.read("failed.json") or {}).items()}


def _failed_then(job: Job, done: Mapping[str, Manifest], listing: Listing) -> dict[str, str]:
    """Files that a finished pack could not read, by its own list, besides those that no scan can read."""
    seen = {item.source for item in listing.unreadable}
    found: dict[str, str] = {}
    for split in done:
        items = listed_left_out(os.path.join(job.destination, split)) or ()
        found.update({item.source: item.why for item in items if item.kind == "unreadable" and item.source not in seen})
    return found


def _result(  # noqa: PLR0913 - one record from its parts
    job: Job, plan: PackPlan, began: float, *, manifests: Mapping[str, Manifest] | None = None,
    writing: Writing | None = None, already_packed: bool = False, dry_run: bool = False,
) -> PackResult:  # fmt: skip
    shards = sum(len(dataset.shards) for dataset in plan.datasets)
    workers, why = worker_count(job.workers, shards)
    left_out = tuple(item for items in plan.left_out.values() for item in items)
    return PackResult(
        destination=job.destination,
        datasets=tuple(_dataset_result(job, dataset, (manifests or {}).get(dataset.split)) for dataset in plan.datasets),
        left_out=left_out, skipped=sum(item.kind == "unreadable" for item in left_out), limited=plan.limited,
        notes=(*plan.notes, *notes_of(*(manifests or {}).values())),
        workers=workers, workers_why=why, shards_written=writing.written if writing else 0,
        shards_kept=shards - (writing.written if writing else 0) if manifests else 0, already_packed=already_packed,
        dry_run=dry_run, needs_bytes=plan.size_bytes, free_bytes=free_bytes(job.destination),
        seconds=time.monotonic() - began,
    )  # fmt: skip


def _dataset_result(job: Job, plan: DatasetPlan, manifest: Manifest | None) -> DatasetResult:
    return DatasetResult(
        split=plan.split, name=plan.name, path=os.path.join(job.destination, plan.split) if plan.split else job.destination,
        samples=len(plan.keys), shards=len(plan.shards), size_bytes=manifest.size_bytes if manifest else plan.size_bytes,
        tar_bytes=None if job.config.compress is None else plan.size_bytes, source_files=plan.source_files,
        source_bytes=plan.source_bytes, fields=plan.fields, classes=None if plan.classes is None else len(plan.classes),
        order=plan.order, digest=manifest.digest if manifest else None, why=plan.why,
    )  # fmt: skip
