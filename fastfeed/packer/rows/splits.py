"""The splits of a folder packed as rows: a dataset each, then the record that holds them together."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain

from fastfeed.archive.dataset import read_record
from fastfeed.archive.manifest import FOLDER, GROUP, Manifest
from fastfeed.disk import remove
from fastfeed.errors import DestinationOccupied, NotADataset, UsageError
from fastfeed.packer.compare import compare_options
from fastfeed.packer.journal import Journal
from fastfeed.packer.publish import publish_group
from fastfeed.packer.result import PackResult
from fastfeed.packer.rows.asked import RowJob
from fastfeed.packer.rows.job import pack_rows
from fastfeed.units import format_count


def pack_splits(
    destination: str, jobs: Sequence[RowJob], *, overwrite: bool, dry_run: bool, on_plan: Callable[[PackResult], None] | None
) -> PackResult:
    """Pack each split into its folder. A call that was interrupted continues: what is finished is found to be so.

    Args:
        destination: The folder of the group.
        jobs: One a split, each with its own folder below it.
        overwrite: Replace what earlier packs wrote there.
        dry_run: Only plan.
        on_plan: Called with the plan of all splits before the first byte is written.

    Raises:
        FastfeedError: As pack_rows.
        DestinationOccupied: A single dataset lies at the destination.
    """
    _prove_skip_list(jobs)
    if dry_run:
        return _joined(destination, [pack_rows(job, overwrite=overwrite, dry_run=True) for job in jobs])
    _refuse_single(destination)
    journal = Journal(destination)
    try:
        identity = {**jobs[0].identity, "options": {**jobs[0].identity["options"], "name": None}, "source": None}
        before = journal.read("job.json")
        if overwrite:
            remove(os.path.join(destination, FOLDER, GROUP))
        elif before is not None:
            compare_options(destination, identity, before, "an unfinished pack")
        journal.begin(identity)  # so that a rerun knows the folder as its own
        if on_plan is not None:
            on_plan(_joined(destination, [pack_rows(job, overwrite=overwrite, dry_run=True) for job in jobs]))
        results = [pack_rows(job, overwrite=overwrite) for job in jobs]
        already = all(result.already_packed for result in results) and _is_group(destination)
        if not already:
            manifests: dict[str, Manifest] = {}
            for job in jobs:
                record = read_record(job.destination)
                assert isinstance(record, Manifest)
                manifests[job.split] = record
            publish_group(destination, manifests)
        journal.finish()
        return replace(_joined(destination, results), already_packed=already)
    finally:
        journal.close()


def _prove_skip_list(jobs: Sequence[RowJob]) -> None:
    """A skip list that names nothing in any split is one for another source."""
    exclude = jobs[0].exclude
    plans = [job.plan({}) for job in jobs]
    missed = list(exclude.unmatched())
    if exclude.entries and len(missed) == len(exclude.entries) and plans:
        msg = f"the skip list ({format_count(len(missed), 'entry', 'entries')}) matches no sample of this source"
        raise UsageError(msg, path=jobs[0].where, hint="Paths in a skip list are relative to the source folder.")


def _refuse_single(destination: str) -> None:
    try:
        record = read_record(destination)
    except NotADataset:
        return
    if isinstance(record, Manifest):
        msg = "one dataset without splits is there"
        raise DestinationOccupied(msg, path=destination, hint="Choose another folder.")


def _is_group(destination: str) -> bool:
    return os.path.exists(os.path.join(destination, FOLDER, GROUP))


def _joined(destination: str, results: Sequence[PackResult]) -> PackResult:
    """One result of several."""
    first = results[0]
    notes = tuple(dict.fromkeys(chain.from_iterable(result.notes for result in results)))
    return replace(
        first, destination=destination, datasets=tuple(chain.from_iterable(result.datasets for result in results)),
        left_out=tuple(chain.from_iterable(result.left_out for result in results)), notes=notes,
        skipped=sum(result.skipped for result in results), limited=sum(result.limited for result in results),
        shards_written=sum(result.shards_written for result in results), seconds=sum(r.seconds for r in results),
        shards_kept=sum(result.shards_kept for result in results), needs_bytes=sum(r.needs_bytes for r in results),
        already_packed=all(result.already_packed for result in results),
    )  # fmt: skip
