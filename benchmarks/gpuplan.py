"""What tools/gpu-check runs, in which order, and with how many steps, so that it ends in the time that it has."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Self

from benchmarks.gputable import DEMAND

WARM_STEPS = 40
"""The first ones of each run, which are not counted: in them workers start and cuDNN tries what is fastest."""
LEAST_STEPS, MOST_STEPS = 300, 600
"""Counted steps of a training run. With fewer, what was loaded ahead counts for much."""
LEAST_LOADING_STEPS = 100
_LOADING_PART = 3
"""A run without training has a third of the steps of one with it."""
_GRAIN_STEPS = 50
_LOADED = (("hand-written", 13_000), ("dali 0.9", 17_000), ("dali", 7_000), ("torch", 2_700), ("fastfeed", 6_000))
"""Images a second, loading alone, on one H200 with 16 cores, by a word in the way's name: a guess at what a run will take."""
_OF_DEMAND = 0.9
"""What a way gets of it while it trains, if it loads fast enough: likewise."""
_WORKERS_TOO = 1.3
"""Starting with workers, against the fixed batch's start without."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast runs are: at first another machine's figures, then what the fixed batch has shown.

    Args:
        gpus: How many train.
        batch_size: Images a step of each.
        demand_images_s: Of a fixed batch, all GPUs together; None for so many H200.
        start_seconds: Of a run, until its first step.
    """

    gpus: int
    batch_size: int
    demand_images_s: float | None = None
    start_seconds: float = 16.0

    def seconds_of(self, steps: int, images_s: float) -> float:
        """What so many steps take, those that are not counted besides."""
        return (steps + WARM_STEPS) * self.batch_size * self.gpus / images_s

    def seen(self, steps: int, images_s: float, took_seconds: float) -> Self:
        """After a run of the fixed batch.

        Args:
            steps: Its counted ones.
            images_s: What it found.
            took_seconds: From the start of its process to the end.
        """
        start = max(0.0, took_seconds - self.seconds_of(steps, images_s))
        return replace(self, demand_images_s=images_s, start_seconds=_WORKERS_TOO * start)


@dataclass(frozen=True, slots=True)
class Run:
    """One run."""

    way: str
    trains: bool

    def steps(self, training_steps: int) -> int:
        """Its counted steps, where a training run has so many."""
        return training_steps if self.trains else max(LEAST_LOADING_STEPS, training_steps // _LOADING_PART)

    def seconds(self, steps: int, pace: Pace) -> float:
        """What it is expected to take with so many counted steps."""
        demand = 4_700 * pace.gpus if pace.demand_images_s is None else pace.demand_images_s
        loaded = next((rate for word, rate in _LOADED if word in self.way), demand) * pace.gpus
        return pace.start_seconds + pace.seconds_of(steps, min(_OF_DEMAND * demand, loaded) if self.trains else loaded)


def runs_of(ways: Sequence[str], more_loading: Iterable[str] = ()) -> list[Run]:
    """All runs: training between two of the fixed batch; then loading alone, which counts for less where time is short.

    Args:
        ways: Their names.
        more_loading: Ways that are only loaded from, at the end.
    """
    trained = [DEMAND, *ways, DEMAND]
    return [*(Run(way, trains=True) for way in trained), *(Run(way, trains=False) for way in (*ways, *more_loading))]


def training_steps(runs: Sequence[Run], seconds_left: float, pace: Pace) -> int:
    """The most steps with which all runs fit, from LEAST_STEPS, which may be too many, to MOST_STEPS.

    Args:
        runs: Those that are to come.
        seconds_left: For all of them.
        pace: How fast they are.
    """
    possible = range(LEAST_STEPS, MOST_STEPS + 1, _GRAIN_STEPS)
    fitting = [steps for steps in possible if sum(run.seconds(run.steps(steps), pace) for run in runs) <= seconds_left]
    return max(fitting, default=LEAST_STEPS)
