"""What slow samples cost: their part of the time, how often a batch waits for one, and which cost the most."""

from dataclasses import dataclass

import numpy as np

from fastfeed.auditor.judging.ledger import Floats, Rows, Table
from fastfeed.units import format_seconds

BATCH = 256
"""Samples of the batch in the statement."""
TOP = 20
_SHOWN_STEPS = 10_000
"""A batch in fewer than one of so many is not worth a sentence."""


@dataclass(frozen=True, slots=True)
class Impact:
    """Of some samples together."""

    samples: int
    part_of_samples: float
    stage: str
    """In which they cost the most."""
    part_of_stage: float
    """Of the time that all samples take in that stage."""
    part_of_time: float
    """Of the time of all stages: computing and being blocked, not waiting for a processor."""
    excess_seconds: float
    """Median of what one takes above a median sample."""
    steps: float
    """A batch holds one of them every so many steps; at least 1."""

    def sentence(self) -> str:
        """For the summary."""
        text = f"{_percent(self.part_of_samples)} of samples take {_percent(self.part_of_stage)} of {self.stage} time"
        of_all = self.samples / self.part_of_samples
        if self.steps > _SHOWN_STEPS or of_all < BATCH:
            return text
        steps = round(self.steps)
        which = {1: "each batch", 2: "every second batch"}.get(steps, f"one batch in {steps:,}")
        more = f"in the median it takes {format_seconds(self.excess_seconds)} more than a median sample"
        return f"{text}; with batches of {BATCH}, {which} holds one of them, and {more}"

    def as_json(self) -> dict[str, float | int | str]:
        """As a report holds it."""
        return {
            "samples": self.samples, "part_of_samples": self.part_of_samples, "stage": self.stage,
            "part_of_stage": self.part_of_stage, "part_of_time": self.part_of_time, "excess_seconds": self.excess_seconds,
            "batch": BATCH, "steps": self.steps, "sentence": self.sentence(),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Costly:
    """One of the samples that cost the most."""

    index: int
    seconds: float
    part: float
    """Of all time."""
    cumulative: float
    """Of it and those before it."""

    def as_json(self) -> dict[str, float | int]:
        """As a report holds it."""
        return {"index": self.index, "seconds": self.seconds, "part": self.part, "cumulative": self.cumulative}


def impact(table: Table, rows: Rows) -> Impact | None:
    """Of these rows; None where there are none, or where nothing took any time."""
    cost = table.cost
    if not len(rows) or not cost.sum():
        return None
    stage = max(table.stages, key=lambda name: float(table.stages[name].cost[rows].sum()))
    part = len(rows) / table.samples
    return Impact(
        samples=len(rows),
        part_of_samples=part,
        stage=stage,
        part_of_stage=_part(table.stages[stage].cost, rows),
        part_of_time=_part(cost, rows),
        excess_seconds=max(0.0, float(np.median(cost[rows]) - np.median(cost))),
        steps=1 / (1 - (1 - part) ** BATCH),
    )


def costliest(table: Table, count: int = TOP) -> tuple[Costly, ...]:
    """Those that cost the most, in that order."""
    cost = table.cost
    total = float(cost.sum())
    if not total:
        return ()
    rows = np.argsort(-cost, kind="stable")[:count]
    parts = cost[rows] / total
    columns = zip(table.index[rows].tolist(), cost[rows].tolist(), parts.tolist(), np.cumsum(parts).tolist(), strict=True)
    return tuple(Costly(*values) for values in columns)


def _part(cost: Floats, rows: Rows) -> float:
    total = float(cost.sum())
    return float(cost[rows].sum()) / total if total else 0.0


def _percent(part: float) -> str:
    """Two digits: 31 %, 0.2 %, 0.0031 %."""
    percent = 100 * part
    return f"{percent:.0f} %" if percent >= 10 else f"{percent:.2g} %"  # noqa: PLR2004 - two digits
