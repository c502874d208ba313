"""Which samples are slow, judged from what a loader records while a model is trained: DataLoader(audit=).

It costs a few microseconds a batch and constant memory. So less is known than in an audit: times are those of the wall clock,
in workers that share processors with a training; and of each batch only the slowest samples are known, beside one that is as
slow or quick as any, of which many tell what is usual. What repeats is measured by the next epochs: a sample that is among the
slowest each time, and far from the usual, is slow; one that was so only once stays a suspicion.
"""

import json
import logging
import os
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fastfeed.auditor.judging.codes import OVERSIZE
from fastfeed.auditor.judging.judge import judge_ledger
from fastfeed.auditor.judging.ledger import Ledger
from fastfeed.auditor.judging.rules import Cuts
from fastfeed.auditor.naming import Naming
from fastfeed.auditor.record import SampleRecord, StageTime
from fastfeed.disk import publish
from fastfeed.feed.timing import Delivery
from fastfeed.units import format_count, format_seconds

LOG = logging.getLogger("fastfeed.audit")
KEPT_SLOW, KEPT_USUAL = 512, 2048
"""Samples that are kept by name. Twice as many slow ones are for a moment."""
COSTLIEST = 20
"""Samples that are in the report whether they are flagged or not."""
_MOST_REPEATS = 9
_NAMED = 3
_WALL = Cuts(z_alone=9.0, z_with_ratio=6.0, least_excess_seconds=10e-3, ratio_excess_seconds=20e-3)
"""A worker that is put off for a time slice or two loses 10 ms by the wall clock, through no fault of its sample."""
_WHOLE, _LOAD = "fetch", "load"


@dataclass(slots=True)
class _Seen:
    """What one sample took, each time that it was seen: seconds by stage."""

    times: list[dict[str, float]] = field(default_factory=list)
    seen: int = 0

    def add(self, times: dict[str, float]) -> None:
        self.seen += 1
        if len(self.times) <= _MOST_REPEATS:
            self.times.append(times)

    @property
    def seconds(self) -> float:
        """The most that it took."""
        return max(sum(times.values()) for times in self.times)


@dataclass(frozen=True, slots=True)
class _Sample:
    """One that is judged."""

    record: SampleRecord
    others: list[dict[str, float]]
    """What it took at other times."""
    seen: int


class TrainingAudit:
    """Hears of a loader's batches, and judges at the end of each epoch.

    Args:
        dataset: The loader's.
        path: Of the report.
    """

    def __init__(self, dataset: Any, path: str) -> None:  # noqa: ANN401 - any dataset
        self.path = path
        self._naming = Naming(dataset)
        self._slow: dict[Any, _Seen] = {}
        self._usual: list[tuple[Any, dict[str, float]]] = []
        self._batches = self._recorded = self._judged = self._epochs = 0
        self._random = random.Random(0)  # its own: those of the training are not to be moved
        self._pid = os.getpid()

    # ------------------------------------------------------------------------------------------------ hearing
    def delivered(self, delivery: Delivery) -> None:
        """A batch was handed out."""
        self._batches += 1
        record = delivery.times.record
        if record is not None:
            self._recorded += 1
            for index, spent in record.slowest:
                self._slow.setdefault(index, _Seen()).add(_by_stage(record.stages, spent))
            if record.usual is not None:
                index, spent = record.usual
                self._add_usual(index, _by_stage(record.stages, spent))
            if len(self._slow) > 2 * KEPT_SLOW:
                self._forget()
        if delivery.remaining == 0:
            self._epochs += 1
            self._report()

    def _add_usual(self, index: Any, times: dict[str, float]) -> None:  # noqa: ANN401 - any index
        """Each one that was ever seen stays with the same probability (reservoir)."""
        if len(self._usual) < KEPT_USUAL:
            self._usual.append((index, times))
            return
        at = self._random.randrange(self._recorded)
        if at < KEPT_USUAL:
            self._usual[at] = (index, times)

    def _forget(self) -> None:
        """The slowest stay."""
        kept = sorted(self._slow, key=lambda index: self._slow[index].seconds, reverse=True)[:KEPT_SLOW]
        self._slow = {index: self._slow[index] for index in kept}

    def close(self) -> None:
        """Judge what was heard since the last time."""
        if self._batches > self._judged and os.getpid() == self._pid:  # a fork has only a copy
            self._report()

    # ------------------------------------------------------------------------------------------------ judging
    def _report(self) -> None:
        self._judged = self._batches
        self._forget()
        samples = self._samples()
        self._judge(samples)
        samples.sort(key=lambda one: -one.record.wall_seconds)
        told = [one for at, one in enumerate(samples) if one.record.findings or at < COSTLIEST]
        self._write([_line(one) for one in told])
        self._tell([one.record for one in told])

    def _samples(self) -> list[_Sample]:
        """All that are known by name: the slow ones by the most that they took, each once."""
        seen = {index: _Seen([times], 1) for index, times in self._usual} | self._slow
        found = []
        for index, one in seen.items():
            worst, *others = sorted(one.times, key=lambda times: -sum(times.values()))
            record = self._naming.record(index)
            record.times = _as_clocks(worst)
            found.append(_Sample(record, others, one.seen))
        return found

    def _judge(self, samples: Sequence[_Sample]) -> None:
        """Add findings. Of sizes nothing is said: the largest of these are not the largest of all."""
        ledger = Ledger()
        for number, one in enumerate(samples):  # in place of its index, which may be no number
            ledger.add(replace(one.record, index=number))
        repeats = [iter(one.others) for one in samples]

        def remeasure(indices: Sequence[int], *, cold: bool) -> Mapping[int, Sequence[Mapping[str, StageTime]]]:
            """What other epochs have measured, the next one of each; nothing of files that are not in memory."""
            found = {number: next(repeats[number], None) for number in indices if not cold}
            return {number: [_as_clocks(times)] for number, times in found.items() if times is not None}

        verdict = judge_ledger(ledger, remeasure, cuts=_WALL, wall_only=True)
        for number, findings in verdict.findings.items():
            samples[number].record.findings += [one for one in findings if one.code is not OVERSIZE]

    # ------------------------------------------------------------------------------------------------ telling
    def _write(self, lines: Sequence[Mapping[str, Any]]) -> None:
        text = "".join(json.dumps(line) + "\n" for line in lines).encode()
        try:
            publish(f"{self.path}.part", self.path, lambda file: file.write(text))
        except OSError as error:  # a training is not ended by a report
            LOG.warning("the audit's report %s cannot be written: %s", self.path, error.strerror)

    def _tell(self, records: Sequence[SampleRecord]) -> None:
        flagged = [record for record in records if record.findings]
        heard = f"audit after {format_count(self._epochs, 'epoch')}, {format_count(self._batches, 'batch', 'batches')}"
        if self._recorded < self._batches:
            heard += f" ({self._recorded:,} of them recorded)"
        counts = Counter(record.findings[0].code.name for record in flagged)
        what = ", ".join(f"{count:,} {code}" for code, count in counts.most_common()) or "no slow sample"
        proven = [record for record in flagged if record.status == "flagged"]
        first_ones = (proven or flagged or records)[:_NAMED]
        named = [f"{record.name} ({format_seconds(record.wall_seconds)})" for record in first_ones]
        first = f"; {'first' if flagged else 'the costliest'}: {', '.join(named)}" if named else ""
        LOG.log(logging.WARNING if proven else logging.INFO, "%s: %s%s; report: %s", heard, what, first, self.path)


def _by_stage(stages: Sequence[str], spent: Sequence[float]) -> dict[str, float]:
    """Seconds by stage; where parts are not known, of all of it."""
    parts = {name: nanoseconds * 1e-9 for name, nanoseconds in zip(stages, spent, strict=True) if nanoseconds}
    whole = parts.pop(_WHOLE, 0.0)
    return parts or {_LOAD: whole}


def _as_clocks(times: Mapping[str, float]) -> dict[str, StageTime]:
    """What a judge takes: all of it counts as computing, since nobody knows which part was waiting."""
    return {stage: StageTime(seconds, seconds, 0.0) for stage, seconds in times.items()}


def _line(one: _Sample) -> dict[str, Any]:
    """A line of the report: as one of an audit, but that of its times only those of the wall clock are known."""
    line = one.record.as_json()
    for time in line["times"].values():
        time.update((name, None) for name in tuple(time) if name != "wall_seconds")
    return {**line, "times_seen": one.seen}
