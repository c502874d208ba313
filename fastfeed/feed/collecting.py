"""What a loader has seen of its batches, added up in the main process in constant memory.

Deliveries are kept for a moment and added up many at a time, which takes a fraction of the time that one by one would.
"""

from collections.abc import Mapping
from typing import Any, Self

from fastfeed.feed.figures import MOST_COUNTERS, MOST_STAGES, OTHER_COUNTERS, OTHER_STAGES, BatchRecord, Sketch
from fastfeed.feed.timing import BatchTimes, Delivery, size_of

_AT_A_TIME = 64
KEPT_SLOWEST = 10


class Slow:
    """A sample that took long. The worst of its times is kept."""

    __slots__ = ("nanoseconds", "seen", "stages", "worker")

    def __init__(self, nanoseconds: float, stages: dict[str, float], worker: int) -> None:
        self.nanoseconds, self.stages, self.worker, self.seen = nanoseconds, stages, worker, 1


class WorkerSums:
    """Of the batches that one worker has made."""

    __slots__ = ("batches", "make_seconds", "samples", "work_seconds")

    def __init__(self) -> None:
        self.batches = self.samples = 0
        self.make_seconds = self.work_seconds = 0.0

    def add(self, batches: int, samples: int, make_seconds: float, work_seconds: float) -> None:
        """Batches come."""
        self.batches, self.samples = self.batches + batches, self.samples + samples
        self.make_seconds, self.work_seconds = self.make_seconds + make_seconds, self.work_seconds + work_seconds


class Totals:
    """Sums over batches; other sums can be merged into them."""

    def __init__(self) -> None:
        self.batches = self.samples = self.size_bytes = self.failed = self.tolerated = self.recorded = 0
        self.step_seconds = self.late_seconds = self.work_seconds = 0.0
        self.wait, self.make, self.collate = Sketch(), Sketch(), Sketch()
        """Nanoseconds of each batch; collating, of recorded ones."""
        self.stages: dict[str, Sketch] = {}
        """Nanoseconds of each recorded sample."""
        self.divided: dict[str, int] = {}
        """Recorded batches in which a stage was timed for the batch as a whole."""
        self.slowest: dict[Any, Slow] = {}
        """By index as it travels."""
        self.workers: dict[int, WorkerSums] = {}
        self.counters: dict[str, int] = {}

    # ------------------------------------------------------------------------------------------------ adding up
    def add(self, deliveries: list[Delivery]) -> None:
        """Batches come."""
        _, waits, steps, lates, _, samples, _, times, failures = zip(*deliveries, strict=True)
        self.batches += len(deliveries)
        self.tolerated += sum(failures)
        self.samples += sum(samples)
        self.step_seconds += sum(steps)
        self.late_seconds += sum(lates)
        self.wait.add([wait * 1e9 for wait in waits])
        self.make.add([(one.ended - one.began) * 1e9 for one in times])
        for one, count in zip(times, samples, strict=True):
            self._add_times(one, count)

    def add_stream(self, waits: list[float], steps: list[float], sizes: list[int]) -> None:
        """Batches of a stream come: of those no more is known."""
        self.batches += len(waits)
        self.step_seconds += sum(steps)
        self.size_bytes += sum(sizes)
        self.wait.add([wait * 1e9 for wait in waits])

    def _add_times(self, times: BatchTimes, samples: int) -> None:
        self.size_bytes += times.size_bytes
        self.work_seconds += times.work_seconds
        sums = self.workers.get(times.worker) or self.workers.setdefault(times.worker, WorkerSums())
        sums.add(1, samples, times.ended - times.began, times.work_seconds)
        if times.counters:
            self._add_counters(times.counters)
        if times.record is not None:
            self._add_record(times.record, times.worker)

    def _add_record(self, record: BatchRecord, worker: int) -> None:
        self.recorded += 1
        for name, total, most, buckets in record.sketches():
            self._stage(name).merge(total, most, buckets)
        for name in record.divided:
            self.divided[name] = self.divided.get(name, 0) + 1
        if record.collate_ns is not None:
            self.collate.add(record.collate_ns)
        for index, spent in record.slowest:
            stages = {name: part for name, part in zip(record.stages[1:], spent[1:], strict=True) if part}
            self._add_slow(index, Slow(spent[0], stages, worker))

    def _stage(self, name: str) -> Sketch:
        if name not in self.stages and len(self.stages) >= MOST_STAGES:
            name = OTHER_STAGES
        return self.stages.get(name) or self.stages.setdefault(name, Sketch())

    def _add_slow(self, index: Any, slow: Slow) -> None:  # noqa: ANN401 - any index
        kept = self.slowest
        before = kept.get(index)
        if before is not None:
            slow.seen += before.seen
            if before.nanoseconds >= slow.nanoseconds:
                before.seen, slow = slow.seen, before
        kept[index] = slow
        if len(kept) > KEPT_SLOWEST:
            del kept[min(kept, key=lambda one: kept[one].nanoseconds)]

    def _add_counters(self, counters: Mapping[str, int]) -> None:
        for name, amount in counters.items():
            at = name if name in self.counters or len(self.counters) < MOST_COUNTERS else OTHER_COUNTERS
            self.counters[at] = self.counters.get(at, 0) + amount

    def merge(self, other: "Totals") -> None:
        """The batches of other sums come."""
        for name in ("batches", "samples", "size_bytes", "failed", "tolerated", "recorded", "step_seconds", "late_seconds",
                     "work_seconds"):  # fmt: skip
            setattr(self, name, getattr(self, name) + getattr(other, name))
        pairs = [(self.wait, other.wait), (self.make, other.make), (self.collate, other.collate)]
        pairs += [(self._stage(name), sketch) for name, sketch in other.stages.items()]
        for mine, sketch in pairs:
            mine.merge(sketch.total, sketch.most, sketch.buckets)
        for stage, count in other.divided.items():
            self.divided[stage] = self.divided.get(stage, 0) + count
        for index, slow in other.slowest.items():
            again = Slow(slow.nanoseconds, slow.stages, slow.worker)
            again.seen = slow.seen
            self._add_slow(index, again)
        for worker, sums in other.workers.items():
            mine_of = self.workers.setdefault(worker, WorkerSums())
            mine_of.add(sums.batches, sums.samples, sums.make_seconds, sums.work_seconds)
        self._add_counters(other.counters)


class Collector:
    """Hears of all batches of a loader: sums of this epoch and of those before it."""

    needs_length = False

    def __init__(self) -> None:
        self.epochs = 0
        """How many were begun."""
        self._before, self._current = Totals(), Totals()
        self._heard: list[Delivery] = []
        self._streamed: list[tuple[float, float, int]] = []

    def begin(self) -> Self:
        """An epoch begins."""
        self._settle()
        self._before.merge(self._current)
        self._current = Totals()
        self.epochs += 1
        return self

    def delivered(self, delivery: Delivery) -> None:
        """A batch was handed out."""
        self._heard.append(delivery)
        if len(self._heard) >= _AT_A_TIME:
            self._settle()

    def failed(self) -> None:
        """An exception was raised instead of a batch."""
        self._current.failed += 1

    def streamed(self, wait_seconds: float, step_seconds: float, batch: Any) -> None:  # noqa: ANN401 - any batch
        """A batch of a stream was handed out."""
        self._streamed.append((wait_seconds, step_seconds, size_of(batch)[0]))
        if len(self._streamed) >= _AT_A_TIME:
            self._settle()

    def _settle(self) -> None:
        heard, self._heard = self._heard, []
        if heard:
            self._current.add(heard)
        streamed, self._streamed = self._streamed, []
        if streamed:
            waits, steps, sizes = zip(*streamed, strict=True)
            self._current.add_stream(list(waits), list(steps), list(sizes))

    @property
    def counters(self) -> Mapping[str, int]:
        """What datasets have counted so far."""
        return self.totals(epoch_only=False).counters

    def totals(self, *, epoch_only: bool) -> Totals:
        """Sums over the epoch that was begun last, or over all. They do not change any more."""
        self._settle()
        found = Totals()
        if not epoch_only:
            found.merge(self._before)
        found.merge(self._current)
        return found
