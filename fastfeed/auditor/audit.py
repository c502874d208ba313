"""An audit from end to end: find what it is, load every sample in children, and say what was found."""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, TypedDict, Unpack

from fastfeed.auditor.finding import Severity
from fastfeed.auditor.record import SampleRecord
from fastfeed.auditor.result import AuditResult, Summary
from fastfeed.auditor.running.crew import Crew, Task
from fastfeed.auditor.running.journal import Journal
from fastfeed.auditor.running.limits import Limits
from fastfeed.auditor.running.process import starter
from fastfeed.auditor.running.sampling import at_most, positions
from fastfeed.auditor.running.subject import How
from fastfeed.auditor.running.targets import Target, find_target
from fastfeed.errors import UsageError
from fastfeed.machine import memory, processors
from fastfeed.sample import SkipEntry, SkipList
from fastfeed.trace import QUIET, Progress
from fastfeed.units import format_count, parse_size

_MEMORY_SHARE = 0.8
_SEED = 0
"""Of the random order: the same for all, so that a continued audit goes on with the same samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditConfig:
    """What decides how an audit is done."""

    workers: int | None = None
    """Processes; by default the usable processors."""
    sample: int | None = None
    """Only so many samples, drawn at random."""
    max_minutes: float | None = None
    """Begin no sample after this time; they are then taken in random order."""
    fast: bool = False
    """Without the looks that cost as much as decoding."""
    kill_after: float | None = None
    """Seconds after which a sample is ended. Without it: ten minutes, or 1,000 times what 99 of 100 samples take."""
    memory_limit: int | str | None = None
    """What loading one sample may take; by default four fifths of the memory that is left, shared by the workers."""
    hidden: bool = False
    """Of a folder: look also at what begins with a dot."""

    def __post_init__(self) -> None:
        for name in ("workers", "sample"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                msg = f"{name} is a whole number from 1"
                raise UsageError(msg, got=repr(value))
        for name in ("max_minutes", "kill_after"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int | float) or not value > 0):
                msg = f"{name} is a number above 0"
                raise UsageError(msg, got=repr(value))
        if isinstance(self.memory_limit, str):
            try:
                object.__setattr__(self, "memory_limit", parse_size(self.memory_limit))
            except ValueError as error:
                msg = f"memory_limit: {error}"
                raise UsageError(msg) from error


class AuditOptions(TypedDict, total=False):
    """AuditConfig's fields as keyword arguments."""

    workers: int | None
    sample: int | None
    max_minutes: float | None
    fast: bool
    kill_after: float | None
    memory_limit: int | str | None
    hidden: bool


def audit(
    target: Any,  # noqa: ANN401 - a path or a dataset
    *,
    jsonl: str | os.PathLike[str] | None = None,
    skip_list: str | os.PathLike[str] | None = None,
    progress: Progress = QUIET,
    **options: Unpack[AuditOptions],
) -> AuditResult:
    """Load every sample, each under clocks and in a process that it may hang or kill, and say what is wrong with which.

    Nothing is written to what is audited.

    Args:
        target: A folder of files; what pack wrote; tars ("laion/*.tar"); a list of files (.csv, .tsv, .jsonl, .parquet);
            "module:name" or "file.py:name" of a Python dataset, or of a function without arguments that gives one; or such
            a dataset: anything with __len__ and __getitem__, or an iterable. Its transforms are run.
        jsonl: A file that gets a record of each sample. An audit that was interrupted is continued by the same call.
        skip_list: A file that gets the samples that are errors, for pack --exclude and DataLoader(skip=).
        progress: Hears how far it is.
        **options: AuditConfig's fields.

    Raises:
        UsageError: An option that does not fit, or no dataset.
        NotADataset: Nothing that can be audited is there.
        SourceError: It cannot be listed.
        DatasetError: What pack wrote has lost its manifest or index.
        DestinationError: The report cannot be written.
        WorkerDied: Processes die whatever they load.
    """
    unknown = sorted(set(options) - {entry.name for entry in fields(AuditConfig)})
    if unknown:
        msg = f"audit has no option {', '.join(unknown)}"
        raise UsageError(msg, expected=f"among {', '.join(entry.name for entry in fields(AuditConfig))}")
    config = AuditConfig(**options)
    found = find_target(target, progress, hidden=config.hidden)
    for path in (jsonl, skip_list):
        _prove_apart(found, path)
    identity = {"target": found.name, "digest": found.digest, "fast": config.fast, "hidden": config.hidden}
    with Journal(None if jsonl is None else os.fsdecode(jsonl), identity) as journal:
        job = _Job(found, config, journal, progress)
        job.run()
        result = job.result()
        if skip_list is not None:
            _write_skip_list(os.fsdecode(skip_list), found, journal)
        if job.complete:
            journal.publish()
    return result


def _prove_apart(target: Target, path: str | os.PathLike[str] | None) -> None:
    """Whether a file that is written lies outside of what is audited.

    Raises:
        UsageError: It lies inside.
    """
    if path is None or not os.path.isdir(target.name):
        return
    root, place = os.path.realpath(target.name), os.path.realpath(os.fsdecode(path))
    if os.path.commonpath([root, place]) == root:
        msg = "this file lies in what is audited, to which nothing is written"
        raise UsageError(msg, path=place, hint="Name a file elsewhere.")


class _Job:
    """One audit."""

    def __init__(self, target: Target, config: AuditConfig, journal: Journal, progress: Progress) -> None:
        self.target, self.config, self.journal, self.progress = target, config, journal, progress
        self.began = time.monotonic()
        self.workers, why = _workers(config)
        self.limits = Limits(config.kill_after, _memory_bytes(config, self.workers))
        self.notes = [why, *target.why]
        self.count: int | None = None
        self.wanted: int | None = None
        self.complete = True
        """Whether every sample that was to be audited was."""

    def run(self) -> None:
        """Load what is still to be loaded."""
        start = starter(self.target.spec, self.target.live)
        with Crew(start, self.target.spec, count=self.workers, limits=self.limits) as crew:
            self.count = crew.prepare()
            if self.count is None:
                self.notes.append("a stream is read by one process, from its beginning")
            self._load(crew)
        if crew.ended_at is not None:
            self.count = crew.ended_at
        if crew.cut_short is not None:
            self.notes.append(crew.cut_short)
        for number, record in enumerate(self.target.before):
            record.index = (self.count or 0) + number
            self.journal.add(record)

    def _load(self, crew: Crew) -> None:
        self.wanted = self.config.sample if self.count is None else min(self.count, self.config.sample or self.count)
        self.progress.start("audit", self.wanted, None)
        if self.journal.kept:
            self.progress.advance(self.journal.kept, 0)
            self.notes.append(f"{format_count(self.journal.kept, 'sample')} taken over from an audit that was interrupted")
        if self.journal.why_anew is not None:
            self.notes.append(self.journal.why_anew)
        for record in crew.run(self._tasks()):
            self.journal.add(record)
            self.progress.advance(1, record.size_bytes or 0)
        self.progress.finish()

    def _tasks(self) -> Iterator[Task]:
        minutes = self.config.max_minutes
        deadline = None if minutes is None else self.began + 60 * minutes
        how = How(full=not self.config.fast)
        for index in self._order():
            if index in self.journal:
                continue
            if deadline is not None and time.monotonic() > deadline:
                self.complete = False
                return
            yield Task(index, how)

    def _order(self) -> Iterator[int]:
        if self.count is None:
            yield from range(self.config.sample) if self.config.sample is not None else _numbers()
            return
        shuffled = self.config.max_minutes is not None
        yield from positions(self.count, sample=self.config.sample, shuffled=shuffled, seed=_SEED)

    def result(self) -> AuditResult:
        """What was found."""
        summary, bad = Summary(), 0
        for record in self.journal:
            summary.add(record)
            bad += record.index < (self.count or 0) and record.severity is Severity.ERROR
        others = len(self.target.before)
        audited = summary.records - others
        part = self.count is not None and 0 < audited < self.count
        return AuditResult(
            target=self.target.name, what=self.target.what, samples=self.count or 0, notes=tuple(self.notes),
            workers=self.workers, fast=self.config.fast, complete=self.complete, report=self.journal.report,
            seconds=time.monotonic() - self.began,
            **summary.facts(others=others, at_most=at_most(bad, audited) if part else None),
        )  # fmt: skip


def _numbers() -> Iterator[int]:
    number = 0
    while True:
        yield number
        number += 1


def _workers(config: AuditConfig) -> tuple[int, str]:
    if config.workers is not None:
        return config.workers, f"{format_count(config.workers, 'process', 'processes')}: as asked for"
    found = processors()
    return found.count, f"{format_count(found.count, 'process', 'processes')}: {found.why}"


def _memory_bytes(config: AuditConfig, workers: int) -> int | None:
    if config.memory_limit is not None:
        return int(config.memory_limit)
    free = memory().free_bytes
    return int(free * _MEMORY_SHARE / workers) if free else None


def _write_skip_list(path: str, target: Target, journal: Journal) -> None:
    """The samples that are errors."""
    SkipList.write(path, (entry for record in journal if (entry := _entry(record, target)) is not None))


def _entry(record: SampleRecord, target: Target) -> SkipEntry | None:
    bad = [found for found in record.findings if found.code.severity is Severity.ERROR]
    if not bad:
        return None
    return SkipEntry(record.path, record.key, record.index, target.digest, bad[0].code.name)
