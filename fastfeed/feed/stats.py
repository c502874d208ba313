"""loader.stats(): where the time of a loader's batches and samples went. A frozen record, for print, JSON and programs."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from torch.utils.data import IterableDataset, IterDataPipe

from fastfeed.errors import UsageError
from fastfeed.feed.cachestats import CacheStats, cache_stats, filled_behind
from fastfeed.feed.collecting import Collector, Slow, Totals
from fastfeed.feed.figures import ERROR, Sketch
from fastfeed.feed.naming import sample_id
from fastfeed.feed.splitting import path_of
from fastfeed.units import format_count, format_seconds, format_size

_NS = 1e-9
_LISTED = 5
PARTS_HINT = "its parts are known for PackedDataset, and for torchvision's DatasetFolder itself or Subsets of it"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageStats:
    """Times of one stage. Mean, total and max are exact; median, p90 and p99 to within 1/32 of themselves."""

    name: str
    count: int
    """Samples, or batches, that had the stage and were recorded."""
    total_seconds: float
    mean_seconds: float
    median_seconds: float
    p90_seconds: float
    p99_seconds: float
    max_seconds: float

    @classmethod
    def of(cls, name: str, sketch: Sketch) -> "StageStats":
        """From times in nanoseconds."""
        quantiles = [sketch.quantile(part) * _NS for part in (0.5, 0.9, 0.99)]
        return cls(
            name=name, count=sketch.count, total_seconds=sketch.total * _NS, mean_seconds=sketch.mean * _NS,
            median_seconds=quantiles[0], p90_seconds=quantiles[1], p99_seconds=quantiles[2], max_seconds=sketch.most * _NS,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowSample:
    """One of the slowest samples among those that were recorded."""

    index: Any
    """As the sampler gave it: an int, a text, or a text that tells what it was."""
    key: str | None
    """Where the dataset knows it."""
    path: str | None
    """Its source file, where the dataset knows it."""
    seconds: float
    """Of its fetching, the longest time that was seen."""
    stages: Mapping[str, float]
    """Seconds of that by stage, where its parts are known."""
    worker: int
    """Which fetched it then; -1 for the main process."""
    times_seen: int
    """How often it was among the slowest of its batch and of the epoch."""

    @property
    def stage(self) -> str:
        """The stage that took longest."""
        return max(self.stages, key=lambda name: self.stages[name], default="fetch")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStats:
    """What one worker has made."""

    worker: int
    """Its number; -1 for the main process."""
    batches: int
    samples: int
    make_seconds: float
    """From the task to the collated batch, waiting for files included."""
    work_seconds: float
    """Processor time in between."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderStats:
    """What loader.stats() gives. Of batches everything is counted; samples are recorded in recorded_batches of them."""

    since: str
    """"start" for all epochs so far, "epoch" for the one that was begun last."""
    epochs: int
    """How many were begun."""
    batches: int
    """How many were handed out."""
    samples: int | None
    """In them, without skipped ones; None for a stream."""
    wait_seconds: float
    """In which the consumer waited for batches."""
    step_seconds: float
    """The consumer's own time between batches."""
    late_seconds: float | None
    """The part of wait_seconds in which the batch was not made yet; None for a stream."""
    hand_over_seconds: float | None
    """The rest of it: batches were made and on their way."""
    make_seconds: float | None
    """In which batches were made, summed over workers; None for a stream."""
    work_seconds: float | None
    """Processor time of that; None for a stream."""
    size_bytes: int
    """Of the tensors and arrays in the batches."""
    wait: StageStats
    """By batch."""
    make: StageStats
    """By batch."""
    collate: StageStats
    """By recorded batch."""
    recorded_batches: int
    """Batches whose samples were recorded."""
    stages: tuple[StageStats, ...]
    """By recorded sample: "fetch" is all of it, the others are its parts, where they are known."""
    slowest: tuple[SlowSample, ...]
    """The slowest first."""
    workers: tuple[WorkerStats, ...]
    failed: int
    """Batches instead of which an exception was raised."""
    skipped: int
    """Samples left out by on_error="skip"."""
    replaced: int
    """Samples replaced by on_error="replace"."""
    counters: Mapping[str, int]
    """What datasets have counted (fastfeed.trace.count)."""
    cache: CacheStats | None
    """Reads through a cache; None where there were none."""
    notes: tuple[str, ...]
    """What the figures do not hold, in sentences."""

    @property
    def waiting(self) -> float:
        """The part of its time that the consumer waited, 0 to 1."""
        whole = self.wait_seconds + self.step_seconds
        return self.wait_seconds / whole if whole else 0.0

    @property
    def samples_per_second(self) -> float | None:
        """Samples that were handed out by the consumer's time; None for a stream, and before the first batch."""
        whole = self.wait_seconds + self.step_seconds
        return self.samples / whole if whole and self.samples is not None else None

    def to_json(self) -> dict[str, Any]:
        """As a dict that json.dumps takes; with the figures that are worked out."""
        plain = asdict(self)
        for sample in plain["slowest"]:
            sample["index"] = _text(sample["index"]) if isinstance(sample["index"], bytes) else sample["index"]
        return {**plain, "waiting": self.waiting, "samples_per_second": self.samples_per_second, "quantile_error": ERROR}

    def __str__(self) -> str:
        return "\n".join([*_summary(self), *_table(self), *_named(self), *self.notes])


class Source(Protocol):
    """What is asked of a loader."""

    @property
    def dataset(self) -> Any:  # noqa: ANN401
        """Any."""

    @property
    def record(self) -> bool:
        """Whether times are taken."""

    @property
    def disabled(self) -> bool:
        """Whether it is torch's loader alone."""

    @property
    def on_error(self) -> str:
        """What happens to samples that fail."""


def told(collector: Collector, loader: Source, since: str) -> LoaderStats:
    """What loader.stats() gives.

    Raises:
        UsageError: Nothing is recorded, or since is something else.
    """
    if since not in {"start", "epoch"}:
        msg = "since is 'start' or 'epoch'"
        raise UsageError(msg, got=repr(since))
    reasons = {
        "with FASTFEED_DISABLE": loader.disabled, "with record=False": not loader.record,
        "of a DataPipe, which torch reads itself": isinstance(loader.dataset, IterDataPipe),
    }  # fmt: skip
    for reason, holds in reasons.items():
        if holds:
            msg = f"nothing is recorded {reason}"
            raise UsageError(msg)
    return stats_of(collector.totals(epoch_only=since == "epoch"), loader, since=since, epochs=collector.epochs)


def stats_of(totals: Totals, loader: Source, *, since: str, epochs: int) -> LoaderStats:
    """Totals as a record; the loader knows names, and what on_error does."""
    dataset, on_error = loader.dataset, loader.on_error
    cache, counters = cache_stats(totals.counters, filled_behind(dataset))
    streams = isinstance(dataset, IterableDataset)
    wait_seconds, tolerated = totals.wait.total * _NS, totals.tolerated
    skipped = tolerated if on_error == "skip" else 0
    slowest = sorted(totals.slowest.items(), key=lambda item: -item[1].nanoseconds)
    return LoaderStats(
        since=since, epochs=epochs, batches=totals.batches, samples=None if streams else totals.samples - skipped,
        wait_seconds=wait_seconds, step_seconds=totals.step_seconds, late_seconds=None if streams else totals.late_seconds,
        hand_over_seconds=None if streams else max(0.0, wait_seconds - totals.late_seconds),
        make_seconds=None if streams else totals.make.total * _NS, work_seconds=None if streams else totals.work_seconds,
        size_bytes=totals.size_bytes, wait=StageStats.of("wait", totals.wait), make=StageStats.of("make", totals.make),
        collate=StageStats.of("collate", totals.collate), recorded_batches=totals.recorded,
        stages=tuple(StageStats.of(name, sketch) for name, sketch in totals.stages.items()),
        slowest=tuple(_slow(dataset, index, slow) for index, slow in slowest),
        workers=tuple(
            WorkerStats(worker=worker, batches=sums.batches, samples=sums.samples, make_seconds=sums.make_seconds,
                        work_seconds=sums.work_seconds)
            for worker, sums in sorted(totals.workers.items())
        ),
        failed=totals.failed, skipped=skipped, replaced=tolerated if on_error == "replace" else 0,
        counters=counters, cache=cache, notes=tuple(_notes(totals, streams=streams)),
    )  # fmt: skip


def _slow(dataset: Any, index: Any, slow: Slow) -> SlowSample:  # noqa: ANN401
    found = sample_id(dataset, index)
    key, source = (None, path_of(dataset, index)) if found is None else (found.key, found.source)
    return SlowSample(
        index=index, key=None if key is None else _text(key), path=None if source is None else _text(source),
        seconds=slow.nanoseconds * _NS, stages={name: spent * _NS for name, spent in slow.stages.items()},
        worker=slow.worker, times_seen=slow.seen,
    )  # fmt: skip


def _text(name: Any) -> str:  # noqa: ANN401 - bytes or str
    return name.decode(errors="backslashreplace") if isinstance(name, bytes) else str(name)


def _notes(totals: Totals, *, streams: bool) -> list[str]:
    """What the figures do not hold."""
    if streams:
        return ["the dataset is a stream, which torch's loader reads: only batches and waits are recorded, no samples"]
    notes = []
    if totals.recorded < totals.batches:
        step = round(totals.batches / totals.recorded) if totals.recorded else 1
        every = f", about every {_ordinal(step)}" if step > 1 else ""
        notes.append(
            f"samples were recorded in {totals.recorded:,} of {format_count(totals.batches, 'batch', 'batches')}{every}: "
            "recording all of them would have cost more than 1 %"
        )
    for name, count in totals.divided.items():
        whole = f"{format_count(count, 'recorded batch was', 'recorded batches were')} timed as a whole"
        notes.append(f"{name}: {whole} (__getitems__), so each of its samples counts with the mean")
    if set(totals.stages) == {"fetch"}:
        notes.append(f"fetch is one stage: {PARTS_HINT}")
    return notes


def _ordinal(number: int) -> str:
    ends = {1: "st", 2: "nd", 3: "rd"}
    return f"{number:,}{'th' if number % 100 in {11, 12, 13} else ends.get(number % 10, 'th')}"


# ------------------------------------------------------------------------------------------------ for reading
def _summary(stats: LoaderStats) -> list[str]:
    epochs = format_count(stats.epochs, "epoch") if stats.since == "start" else f"epoch {stats.epochs}"
    samples = "" if stats.samples is None else f", {format_count(stats.samples, 'sample')}"
    rate = stats.samples_per_second
    lines = [
        f"{epochs}: {format_count(stats.batches, 'batch', 'batches')}{samples}, {format_size(stats.size_bytes)}"
        + ("" if rate is None else f", {rate:,.0f} samples/s"),
        f"the training loop waited {format_seconds(stats.wait_seconds)} for batches ({stats.waiting:.1%} of its time)"
        + ("" if stats.late_seconds is None else f", {format_seconds(stats.late_seconds)} of it for such as were not made yet"),
    ]
    for worker in stats.workers:
        who = "main process" if worker.worker < 0 else f"worker {worker.worker}"
        made, busy = format_seconds(worker.make_seconds), format_seconds(worker.work_seconds)
        lines.append(f"{who}: {format_count(worker.batches, 'batch', 'batches')} in {made}, {busy} of processor time")
    wrong = {"failed batches": stats.failed, "skipped samples": stats.skipped, "replaced samples": stats.replaced}
    told = [f"{name}: {count:,}" for name, count in {**wrong, **stats.counters}.items() if count or name not in wrong]
    return [*lines, *([", ".join(told)] if told else []), *([] if stats.cache is None else [str(stats.cache)])]


def _table(stats: LoaderStats) -> list[str]:
    """Stages of a sample, its parts set in; then those of a batch."""
    rows: list[tuple[str, ...]] = [
        ("by sample" if stats.stages else "by batch", "count", "mean", "median", "p90", "p99", "max")
    ]
    for number, stage in enumerate(stats.stages):
        rows.append(_row(stage, "  " if number else ""))
    if stats.stages:
        rows.append(("by batch", "", "", "", "", "", ""))
    rows += [_row(stage) for stage in (stats.collate, stats.make, stats.wait) if stage.count]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in rows]


def _row(stage: StageStats, indent: str = "") -> tuple[str, ...]:
    times = stage.mean_seconds, stage.median_seconds, stage.p90_seconds, stage.p99_seconds, stage.max_seconds
    return (f"{indent}{stage.name}", f"{stage.count:,}", *map(_short_time, times))


def _short_time(seconds: float) -> str:
    return f"{seconds * 1e6:.0f} us" if seconds < 1e-3 else format_seconds(seconds)  # noqa: PLR2004 - a millisecond


def _named(stats: LoaderStats) -> list[str]:
    """The slowest samples below a line that says among how many, and what is usual: no more may be wrong than that."""
    if not stats.slowest or not stats.stages:
        return []
    fetch = stats.stages[0]
    lines = [
        f"slowest of {format_count(fetch.count, 'recorded sample')} (the median took {_short_time(fetch.median_seconds)}):"
    ]
    for sample in stats.slowest[:_LISTED]:
        facts = {"key": sample.key, "path" if sample.key is None else "source": sample.path}
        names = ", ".join(f"{name} {value!r}" for name, value in facts.items() if value is not None)
        parts = ", ".join(f"{stage} {_short_time(spent)}" for stage, spent in sample.stages.items())
        who = f"sample {sample.index!r}" + (f" ({names})" if names else "")
        lines.append(f"  {who}: {_short_time(sample.seconds)}" + (f" ({parts})" if parts else ""))
    return lines
