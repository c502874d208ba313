"""An iterable of samples becomes shards while it is read: nobody knows how many there are, so a shard is closed when full.

Resumption reads the iterable again from its beginning and compares each sample with what finished shards hold; the first
that differs is named. One process: an iterable has one reader.
"""

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from fastfeed.archive.dataset import Archive
from fastfeed.archive.manifest import FOLDER, STREAM, WRITER, Manifest
from fastfeed.config import ImageConfig, PackConfig, RowConfig
from fastfeed.errors import FastfeedError, SourceUnreadable, UsageError
from fastfeed.machine import free_bytes
from fastfeed.packer.compare import listed_left_out, published
from fastfeed.packer.compression import compression_of, encoder_of, notes_of, why_compressed
from fastfeed.packer.journal import Journal
from fastfeed.packer.result import DatasetResult, PackResult
from fastfeed.packer.rows import huggingface
from fastfeed.packer.rows.asked import as_json, options_of
from fastfeed.packer.rows.finish import counted, publish_rows
from fastfeed.packer.rows.greedy import KEY, Encoder, GreedyShards, Wanted
from fastfeed.packer.rows.images import encoder_versions
from fastfeed.packer.rows.labels import keep_unlabelled
from fastfeed.packer.rows.python import about_bytes, as_dict
from fastfeed.packer.rows.source import PROBE_BYTES, PROBES
from fastfeed.packer.rows.standing import compare_rows, refuse_splits
from fastfeed.packer.rows.transcode import jpegtran_of
from fastfeed.packer.rows.values import Names
from fastfeed.packer.writing import held_journal
from fastfeed.sample import SkipList
from fastfeed.source.scan import LeftOut
from fastfeed.trace import QUIET, Progress
from fastfeed.units import format_size


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
        if self.rows.key is not None:
            msg = f"key= is for tables and lists: a sample of an iterable is named by its {KEY!r}"
            raise UsageError(msg, got=repr(self.rows.key))

    def identity(self) -> dict[str, Any]:
        """What a rerun must find equal, besides the samples."""
        options = options_of(self.config, self.rows, name=self.name, exclude=self.exclude)
        if self.images.changes:
            versions = encoder_versions() if self.images.changes_pixels else {}
            options["images"] = {**self.images.record(), **versions}
        encoders = {**encoder_of(self.config), **jpegtran_of(self.images)}
        return as_json({"writer": WRITER, "options": options, "source": {"type": self.where}, **encoders})


def pack_stream(job: StreamJob, *, overwrite: bool = False) -> PackResult:
    """Pack an iterable.

    Args:
        job: What to pack.
        overwrite: Replace what an earlier pack wrote there.

    Raises:
        SourceError: A sample cannot be read or stored, or differs from what an earlier run wrote.
        DestinationError: The destination is busy, occupied or full.
        UsageError: An option that does not fit.
    """
    began = time.monotonic()
    if not overwrite and not os.path.isdir(os.path.join(job.destination, FOLDER, "job")):
        done = published(job.destination)
        if done is not None:
            return _already(job, done, began)
    with held_journal(job.destination) as journal:  # OSErrors of the iterable are told as its own: _samples
        result = _run(job, journal, overwrite=overwrite)
    return replace(result, notes=(*journal.notes, *result.notes), seconds=time.monotonic() - began)


def _already(job: StreamJob, done: Mapping[str, Manifest], began: float) -> PackResult:
    """A finished pack with equal options is taken for this one, and that is said: its samples were not compared."""
    refuse_splits(job.destination, done)
    before = {"writer": done[""].writer, "options": dict(done[""].options)}
    compare_rows(job.destination, job.identity(), before, "a finished pack")
    Archive(job.destination).prove_shard_sizes()
    note = "a finished pack with the same options is there: its samples were not compared with the iterable's"
    result = _result(job, done[""], began)
    left_out = listed_left_out(job.destination) or ()
    skipped = sum(item.kind == "unreadable" for item in left_out)
    return replace(
        result,
        notes=(note, *result.notes),
        already_packed=True,
        shards_kept=len(done[""].shards),
        left_out=left_out,
        skipped=skipped,
    )


def _run(job: StreamJob, journal: Journal, *, overwrite: bool) -> PackResult:
    began = time.monotonic()
    identity, before = job.identity(), journal.read("job.json")
    if before is not None and not overwrite and not journal.is_clearing():
        compare_rows(job.destination, identity, before, "an unfinished pack")
    samples, encoder, why = _settled(job)
    first = _first(samples, job.config.limit)
    settle(encoder, first, skip=job.config.on_error == "skip")
    if overwrite or journal.is_clearing():  # nothing is removed for a source that cannot do
        journal.clear()
        os.makedirs(job.destination, exist_ok=True)
    if journal.read("job.json") is None:
        journal.begin(identity)
    decides = {**identity, "options": {**identity["options"], "on_error": None}}
    writing = GreedyShards(Wanted(job.config, job.name, job.exclude, decides), journal, encoder, job.progress)
    job.progress.start("pack", None, None)
    writing.run(chain(first, samples))
    job.progress.finish()
    about = {
        "source_digest": writing.digest.hexdigest(), "layout": "stream", "order": STREAM, "options": identity["options"],
        "source_files": 1, "columns": _columns(job, encoder.names), "classes": encoder.classes,
        "numbered_classes": encoder.classes is None, "split": "",
        "compression": compression_of(job.config),
    }  # fmt: skip
    plan = writing.plan()
    outcomes = Counter[str]()
    manifest = publish_rows(job.destination, plan, counted(writing.records(), outcomes), about)
    journal.finish()
    result = _result(job, manifest, began, (*why, *encoder.names.why))
    result = replace(result, datasets=(replace(result.datasets[0], jpeg_rows=dict(outcomes) or None),))
    return _finished(result, writing, plan.left_out)


def _finished(result: PackResult, writing: GreedyShards, left_out: tuple[LeftOut, ...]) -> PackResult:
    missed = [entry.source or entry.key or f"index {entry.index}" for entry in writing.exclude.unmatched()]
    skipped = sum(item.kind == "unreadable" for item in left_out)
    told = (f"{len(missed)} of the skip list's entries match no sample ({missed[0]})",) if missed else ()
    return replace(
        result, shards_written=writing.written, shards_kept=len(writing.shards) - writing.written, left_out=left_out,
        skipped=skipped, notes=(*result.notes, *told),
    )  # fmt: skip


def _columns(job: StreamJob, names: Names) -> tuple[str, ...] | None:
    """Typed columns: those that are settled, and what re-encoding adds."""
    return tuple(names.columns or ()) if not job.images.changes_pixels else None


def _settled(job: StreamJob) -> tuple[Iterator[dict[str, Any]], Encoder, tuple[str, ...]]:
    """The samples as dicts, and what makes rows of them."""
    found: Any = job.samples
    label, classes, why = job.rows.label, job.rows.classes, tuple[str, ...]()
    if huggingface.is_stream(found):
        prepared = huggingface.prepare_stream(found, job.rows)
        found, label, classes, why = prepared.dataset, prepared.label, prepared.classes, prepared.why
    encoder = Encoder(Names.of(job.rows, label), classes, job.images)
    return _samples(found, job.where, named=classes is not None), encoder, why


def _samples(samples: Iterable[Any], where: str, *, named: bool) -> Iterator[dict[str, Any]]:
    """The samples as dicts.

    Raises:
        SourceUnreadable: The iterable raised something; what, and at which sample.
    """
    number, iterator = 0, None
    while True:
        try:
            iterator = iter(samples) if iterator is None else iterator
            item = next(iterator)
        except StopIteration:
            break
        except FastfeedError:
            raise
        except (Exception, SystemExit) as error:
            msg = f"the iterable raised {type(error).__name__} at sample {number}: {error}"
            hint = "Nothing is lost: mend it and run the same again, it continues."
            raise SourceUnreadable(msg, path=where, sample=number, hint=hint) from error
        yield as_dict(item, named=named)
        number += 1
    if number == 0:
        msg = "the iterable gives no sample"
        raise SourceUnreadable(msg, path=where, hint="Was it used up before? A generator gives its samples only once.")


def _first(samples: Iterator[dict[str, Any]], limit: int | None) -> list[dict[str, Any]]:
    """The first samples, fewer where they are large: fields and typed columns are settled by them."""
    found: list[dict[str, Any]] = []
    size = 0
    while len(found) < min(PROBES, limit or PROBES) and size < PROBE_BYTES:
        sample = next(samples, None)
        if sample is None:
            break
        found.append(sample)
        size += sum(map(about_bytes, sample.values()))
    return found


def settle(encoder: Encoder, first: list[dict[str, Any]], *, skip: bool) -> None:
    """Settle fields and typed columns, and whether samples have a class.

    Args:
        encoder: Gets to know it.
        first: The first samples.
        skip: A sample that cannot be stored does not count.

    Raises:
        SourceUnreadable: One cannot be stored.
        UsageError: An option does not fit them.
    """
    values = [{name: value for name, value in sample.items() if name != KEY} for sample in first]
    encoder.names.settle(values)
    labels = []
    for number, sample in enumerate(values):
        try:
            labels.append(encoder.row(f"{number:09d}", sample).label)
        except SourceUnreadable as error:
            if not skip:
                error.message = f"sample {number} of the iterable cannot be packed: {error.message}"
                raise
    encoder.labels.settle(labels)
    keep_unlabelled(encoder.names, encoder.labels, values)


def _result(job: StreamJob, manifest: Manifest, began: float, why: tuple[str, ...] = ()) -> PackResult:
    size = manifest.size_bytes
    how = (
        f"at most {job.config.samples_per_shard:,} samples a shard"
        if job.config.samples_per_shard is not None
        else f"a shard is closed at {format_size(job.config.shard_bytes)}"
    )
    dataset = DatasetResult(
        split="", name=manifest.name, path=job.destination, samples=manifest.samples, shards=len(manifest.shards),
        size_bytes=size, tar_bytes=manifest.tar_bytes, source_files=1, source_bytes=manifest.source_bytes,
        fields=manifest.fields, classes=None if manifest.classes is None else len(manifest.classes), order=manifest.order,
        digest=manifest.digest, why=(f"an iterable ({job.where}): {how}", *why, *why_compressed(job.config)),
    )  # fmt: skip
    return PackResult(
        destination=job.destination, datasets=(dataset,), left_out=(), skipped=0, limited=0, notes=notes_of(manifest),
        workers=1, workers_why="an iterable has one reader: 1 worker", shards_written=0, shards_kept=0, already_packed=False,
        dry_run=False, needs_bytes=size, free_bytes=free_bytes(job.destination), seconds=time.monotonic() - began,
    )  # fmt: skip
