"""An audit from end to end: find what it is, load every sample in children, and say what was found."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Unpack

from fastfeed.auditor.asked import AuditConfig, AuditOptions, audit_config
from fastfeed.auditor.finding import Finding, Severity
from fastfeed.auditor.judging.judge import judge_ledger
from fastfeed.auditor.judging.ledger import Ledger
from fastfeed.auditor.judging.noise import Beat, Noise
from fastfeed.auditor.places import earlier_report, place_of, prove_places
from fastfeed.auditor.record import SampleRecord, StageTime
from fastfeed.auditor.report.baseline import Baseline
from fastfeed.auditor.report.gather import Gathered
from fastfeed.auditor.result import NAMES, AuditResult, Costliest, Summary
from fastfeed.auditor.running.catalogue import LATE
from fastfeed.auditor.running.crew import Crew, Task
from fastfeed.auditor.running.journal import Journal
from fastfeed.auditor.running.limits import Limits, opening_seconds
from fastfeed.auditor.running.process import starter
from fastfeed.auditor.running.sampling import at_most, positions
from fastfeed.auditor.running.subject import How
from fastfeed.auditor.running.targets import FOLDER, Target, find_target
from fastfeed.auditor.running.tokenizing import name_of
from fastfeed.auditor.showing import KILL_SECONDS, write_page
from fastfeed.auditor.together import Together, of_tars
from fastfeed.disk import disk_error
from fastfeed.machine import memory, processors
from fastfeed.sample import SkipEntry, SkipList
from fastfeed.trace import QUIET, Progress
from fastfeed.units import format_count

if TYPE_CHECKING:
    from fastfeed.auditor.judging.verdict import Verdict

_MEMORY_SHARE = 0.8
_LOADING_SHARE = 0.8
"""Of max_minutes: in the rest what seems slow is measured again, without which it is only a suspicion."""
_KNOWN = " (what the baseline knows counted as well)"
_SEED = 0
"""Of the random order: the same for all, so that a continued audit goes on with the same samples."""


def audit(
    target: Any,  # noqa: ANN401 - a path or a dataset
    *,
    jsonl: str | os.PathLike[str] | None = None,
    skip_list: str | os.PathLike[str] | None = None,
    html: str | os.PathLike[str] | None = None,
    progress: Progress = QUIET,
    on_interrupt: Callable[[AuditResult], None] | None = None,
    **options: Unpack[AuditOptions],
) -> AuditResult:
    """Load every sample, each under clocks and in a process that it may hang or kill, and say what is wrong with which.

    Nothing is written to what is audited.

    Args:
        target: A folder of files; what pack wrote; tars ("laion/*.tar"); a list of files (.csv, .tsv, .jsonl, .parquet);
            tables and JSON lines that are the samples; "module:name" or "file.py:name" of a Python dataset, or of a function
            without arguments that gives one; or such a dataset: anything with __len__ and __getitem__, or an iterable. Its
            transforms are run.
        jsonl: A file that gets a record of each sample. An audit that was interrupted is continued by the same call.
        skip_list: A file that gets the samples that are errors, for pack --exclude and DataLoader(skip=).
        html: A file that gets a page for a browser: what was found, charts, flagged samples with thumbnails.
        progress: Hears how far it is.
        on_interrupt: Hears what was found so far when Ctrl-C ends it, before KeyboardInterrupt is raised.
        **options: AuditConfig's fields; of a list or table field, label, key and classes, as for pack.

    Raises:
        UsageError: An option that does not fit, or no dataset.
        NotADataset: Nothing that can be audited is there.
        SourceError: It cannot be listed.
        DatasetError: What pack wrote has lost its manifest or index.
        DestinationError: The report cannot be written.
        WorkerDied: Processes die whatever they load.
    """
    config = audit_config(options)
    found = find_target(target, progress, hidden=config.hidden, root=config.root, rows=config.rows)
    prove_places(found, {"jsonl": jsonl, "skip_list": skip_list, "html": html}, baseline=config.baseline)
    place = place_of(found)
    replaced = earlier_report(jsonl, place)
    page_path = None if html is None else os.path.abspath(os.fsdecode(html))
    baseline = None if config.baseline is None else Baseline(os.fsdecode(config.baseline))
    identity = {"target": found.name, "digest": found.digest, "fast": config.fast, "hidden": config.hidden,
                "tokenizer": name_of(config.tokenizer), "rows": asdict(config.rows)}  # fmt: skip
    where = None if jsonl is None else os.fsdecode(jsonl)
    with Journal(where, identity, target=place) as journal, closing(_Job(found, config, journal, progress)) as job:
        job.notes += replaced
        try:
            job.run()
        except KeyboardInterrupt:
            if on_interrupt is not None and len(journal):
                on_interrupt(job.result_so_far(baseline))
            raise
        if skip_list is not None:
            job.notes += _write_skip_list(os.fsdecode(skip_list), found, journal)
        gathered = None if page_path is None else Gathered()
        result = job.result(baseline, gathered)
        if page_path is not None and gathered is not None:
            write_page(page_path, result, gathered, job.thumbnail_crew(), continues=where is not None)
        if job.complete:
            journal.publish(job.records_of_set())
    return result


class _Job:
    """One audit."""

    def __init__(self, target: Target, config: AuditConfig, journal: Journal, progress: Progress) -> None:
        self.target, self.config, self.journal, self.progress = target, config, journal, progress
        self.began = time.monotonic()
        self._deadline = None if config.max_minutes is None else self.began + 60 * config.max_minutes
        self.workers, why = _workers(config)
        allowed_bytes = _memory_bytes(config, self.workers)
        self.limits = Limits(config.kill_after, allowed_bytes, open_seconds=opening_seconds(config.kill_after))
        self.notes = [why, *target.why]
        self.count: int | None = None
        self.complete = True
        """Whether every sample that was to be audited was."""
        named = config.tokenizer if isinstance(config.tokenizer, str) else None
        self._spec = {**target.spec, "tokenizer": named}
        self._start = starter(self._spec, target.live, None if named is not None else config.tokenizer)
        self._times = Ledger()
        self._together = Together(names=target.kind == FOLDER)
        self._of_set: list[tuple[str, Finding]] = []
        self._beats: list[Beat] = []
        self._verdict: Verdict | None = None
        self._interrupted = False
        """What was loaded until then is no random part."""
        self._stream = False
        """Whether it can only be read from its beginning."""

    def close(self) -> None:
        """End what starts children."""
        self._start.close()

    def run(self) -> None:
        """Load what is still to be loaded, then measure again what seems slow."""
        with self._crew(replace(self.limits, open_deadline=self._deadline)) as crew:
            self.count = crew.prepare()
            if self.count is not None:
                self.journal.keep_below(self.count)
            self.journal.begin(self.limits)
            self._take_over()
            self._stream = self.count is None
            if self._stream:
                self.notes.append("a stream is read by one process, from its beginning")
            self._load(crew)
        if crew.ended_at is not None:
            self.count = crew.ended_at
        if crew.cut_short is not None:
            self.notes.append(crew.cut_short)
        self._beats = crew.beats
        self.notes += crew.looks.notes()
        self._judge()
        self._compare()
        for number, record in enumerate(self.target.before):
            record.index = (self.count or 0) + number
            self.journal.add(record)

    def _crew(self, limits: Limits) -> Crew:
        return Crew(self._start, self._spec, count=self.workers, limits=limits)

    def _take_over(self) -> None:
        """What an audit that was interrupted has left; what depends on all samples is found anew."""
        self.notes += self.journal.notes
        if self.journal.kept:
            unsure = ", whether or not the dataset has changed since" if self.target.digest is None else ""
            samples = format_count(self.journal.kept, "sample")
            self.notes.append(f"{samples} taken over from an audit that was interrupted{unsure}")
        for record in self.journal:
            kept = [found for found in record.findings if found.code.name not in LATE]
            if len(kept) < len(record.findings):
                record.findings = kept
                self.journal.add(record)
            self._hear(record)

    def _hear(self, record: SampleRecord) -> None:
        self._times.add(record)
        self._together.add(record)

    def _judge(self) -> None:
        """Find what is slow. It is measured again in processes that have not loaded it before."""
        with self._crew(self.limits) as crew:
            again = _Again(crew, self.progress, self._deadline)
            self._verdict = judge_ledger(
                self._times, None if self._stream else again, noise=Noise(self._beats), deadline=self._deadline
            )
            again.finish()
        self._note((index, found) for index, findings in self._verdict.findings.items() for found in findings)
        self.notes += self._verdict.notes

    def _compare(self) -> None:
        """Find what samples show together."""
        self._note(self._together.found(lambda index: self.journal.get(index).name))
        self._of_set += self._together.of_set(self.target.class_folders)
        if self.target.tars is not None and not self.config.fast:
            self._of_set += of_tars(self.target.tars.paths())

    def _note(self, found: Iterable[tuple[int, Finding]]) -> None:
        """Add findings to records."""
        together: dict[int, list[Finding]] = {}
        for index, finding in found:
            together.setdefault(index, []).append(finding)
        for index, findings in together.items():
            record = self.journal.get(index)
            record.findings += findings
            self.journal.add(record)

    def _load(self, crew: Crew) -> None:
        wanted = self.config.sample if self.count is None else min(self.count, self.config.sample or self.count)
        self.progress.start("audit", None if wanted is None else max(0, wanted - self.journal.kept), None)
        for record, row in crew.answers(self._tasks()):
            self.journal.add(record, row)
            self._hear(record)
            self.progress.advance(1, record.size_bytes or 0)
        self.progress.finish()

    def _tasks(self) -> Iterator[Task]:
        minutes, share = self.config.max_minutes, 1.0 if self._stream else _LOADING_SHARE
        deadline = None if minutes is None else self.began + 60 * minutes * share
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

    def thumbnail_crew(self) -> Crew | None:
        """What makes thumbnails; None where none are wanted, or nothing can be loaded a second time."""
        if not self.config.thumbnails or self.count is None or self._stream:
            return None
        return self._crew(replace(self.limits, kill_seconds=KILL_SECONDS))

    def records_of_set(self) -> Iterator[SampleRecord]:
        """What was said of classes and tars, as lines of the report behind those of samples, each named by what it is about."""
        first = (self.count or 0) + len(self.target.before)
        for number, (name, finding) in enumerate(self._of_set):
            about = finding.text.partition(":")[0]  # a class, or a place in a tar: numbers behind it may change
            yield SampleRecord(first + number, key=f"{name}: {about}", findings=[finding])

    def result(self, baseline: Baseline | None = None, gathered: Gathered | None = None) -> AuditResult:
        """What was found.

        Args:
            baseline: What it has is left out.
            gathered: Gets the records.
        """
        summary, bad = Summary(), 0
        for (name, _), record in zip(self._of_set, self.records_of_set(), strict=True):
            if baseline is not None:
                baseline.leave_out(record)
            for finding in record.findings:
                summary.add_of_set(name, finding)
        for record in self.journal:
            bad += record.index < (self.count or 0) and record.severity is Severity.ERROR
            if baseline is not None:
                baseline.leave_out(record)
            summary.add(record)
            if gathered is not None:
                gathered.add(record)
        if baseline is not None and self.config.fast:
            self.notes.append("with --fast not all that the baseline knows can be found again: the rest counts as gone")
        others = len(self.target.before)
        audited = summary.records - others
        drawn = not self._interrupted and self.count is not None and 0 < audited < self.count and self._is_drawn(audited)
        return AuditResult(
            target=self.target.name, what=self.target.what, kind=self.target.kind, splits=self.target.splits,
            samples=self.count or 0, notes=tuple(self.notes), workers=self.workers, fast=self.config.fast,
            complete=self.complete, report=self.journal.report if self.complete else None,
            seconds=time.monotonic() - self.began, **self._judged(known="" if baseline is None else _KNOWN),
            compared=None if baseline is None else baseline.compared(whole=audited == self.count),
            **summary.facts(others=others, at_most=at_most(bad, audited) if drawn else None),
        )  # fmt: skip

    def result_so_far(self, baseline: Baseline | None) -> AuditResult:
        """What was found when it was interrupted. Nothing is measured again, so that nobody has to interrupt this, too.

        Args:
            baseline: What it has is left out.
        """
        self.complete, self._interrupted = False, True
        heard = Ledger()  # the other one may have been interrupted between two columns
        for record in self.journal:
            heard.add(record)
        self._verdict = judge_ledger(heard, None, noise=Noise(self._beats))
        self.notes += self._verdict.notes
        return self.result(baseline)

    def _is_drawn(self, audited: int) -> bool:
        """Whether those that were audited are a random part: what was taken over may have been begun in order."""
        drawn = sum(index in self.journal for index in islice(self._order(), audited)) == audited
        if not drawn:
            self.notes.append("not all that was audited was drawn at random: it tells nothing of the samples that were not")
        return drawn

    def _judged(self, known: str) -> dict[str, Any]:
        """The fields of AuditResult that are about times.

        Args:
            known: What to say behind sentences that are of all samples, whatever a baseline has left out.
        """
        verdict = self._verdict
        assert verdict is not None
        costliest = [Costliest(self.journal.get(one.index).name, one.seconds, one.part, one.cumulative) for one in verdict.top]
        return {
            "costs": tuple(f"{text}{known}" for text in verdict.sentences()),
            "costliest": tuple(costliest),
            "judged": verdict.as_json(),
        }


class _Again:
    """Measures samples again, and tells how far it is: that may take minutes, in which nothing else is heard.

    Args:
        crew: Does it.
        progress: Hears of it, once there is anything to measure.
        deadline: Of time.monotonic(): no sample is begun later. None for none.
    """

    def __init__(self, crew: Crew, progress: Progress, deadline: float | None) -> None:
        self._crew, self._progress, self._deadline, self._begun = crew, progress, deadline, False

    def __call__(self, indices: Sequence[int], *, cold: bool) -> dict[int, list[dict[str, StageTime]]]:
        """One round."""
        if not self._begun:
            self._progress.start("measure", None, None)
            self._begun = True
        found = self._crew.measured(indices, cold=cold, deadline=self._deadline)
        self._progress.advance(len(indices), 0)
        return found

    def finish(self) -> None:
        """All rounds are over."""
        if self._begun:
            self._progress.finish()


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


def _write_skip_list(path: str, target: Target, journal: Journal) -> list[str]:
    """The samples that are errors; and how many of them have no name by which a skip list could name them.

    Raises:
        DestinationError: It cannot be written.
    """
    entries = [_entry(record, target) for record in journal if record.severity is Severity.ERROR]
    named = [entry for entry in entries if entry.source or entry.key or entry.dataset_digest]
    try:
        SkipList.write(path, named)
    except OSError as error:
        folder = os.path.dirname(os.path.abspath(path))
        raise disk_error(f"{path}: {error.strerror}", error.errno, folder, continues=journal.report is not None) from error
    missing = len(entries) - len(named)
    what = (
        f"{format_count(missing, 'error')} {'is' if missing == 1 else 'are'} not in the skip list, as these samples have no "
        f"names, and a position means another sample once the dataset has changed; {NAMES}"
    )
    return [what] if missing else []


def _entry(record: SampleRecord, target: Target) -> SkipEntry:
    kind = next(found.code.name for found in record.findings if found.code.severity is Severity.ERROR)
    return SkipEntry(record.path, record.key, record.index, target.digest, kind)
