"""What a child process asks of that which is audited: one sample, loaded under clocks and looked at."""

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from fastfeed.auditor.clock import Clock
from fastfeed.auditor.record import SampleRecord, StageTime

_NO_TIME = StageTime(0.0, 0.0, 0.0)


class How(NamedTuple):
    """How a sample is loaded."""

    look: bool = True
    """Look at its bytes; else its times alone are wanted."""
    full: bool = True
    """Also by those looks that cost as much as decoding."""
    cold: bool = False
    """From the disk, not from the kernel's memory. A subject that cannot do so gives a record without times."""
    load: bool = True
    """False: only its names are wanted, since it kills whoever loads it."""
    thumbnail: bool = False
    """Make a thumbnail of its image, and nothing else."""


HOW = How()


class Subject(Protocol):
    """That which is audited."""

    @property
    def count(self) -> int | None:
        """How many samples it has; None for a stream."""

    def load(self, index: int, how: How) -> SampleRecord | None:
        """A sample; None where a stream has ended. What goes wrong is among its findings."""


class Stages:
    """A meter (fastfeed.trace) that clocks the stages of one sample. A stage within another is not counted in that."""

    def __init__(self, record: SampleRecord) -> None:
        self._record = record
        self._within: list[StageTime] = []
        """For each open stage what the stages within it took."""

    @contextmanager
    def span(self, stage: str, position: int) -> Iterator[None]:  # noqa: ARG002 - the protocol's names
        """Clock a stage, whether or not it raises; several of one name are added up."""
        clock = Clock()
        self._within.append(_NO_TIME)
        try:
            with clock:
                yield
        finally:
            within = self._within.pop()
            self.add(stage, _less(clock.time, within))
            if self._within:
                self._within[-1] = _sum(self._within[-1], clock.time)

    def add(self, stage: str, time: StageTime) -> None:
        """Count a time to a stage."""
        before = self._record.times.get(stage)
        self._record.times[stage] = time if before is None else _sum(before, time)

    def count(self, name: str, amount: int = 1) -> None:
        """Counters are nothing to an audit."""


def _sum(a: StageTime, b: StageTime) -> StageTime:
    delay = None if a.delay is None or b.delay is None else a.delay + b.delay
    return StageTime(a.wall + b.wall, a.cpu + b.cpu, delay, a.major_faults + b.major_faults)


def _less(a: StageTime, b: StageTime) -> StageTime:
    """Clocks are read one after the other, so a difference may fall short of 0."""
    delay = None if a.delay is None or b.delay is None else max(0.0, a.delay - b.delay)
    return StageTime(max(0.0, a.wall - b.wall), max(0.0, a.cpu - b.cpu), delay, max(0, a.major_faults - b.major_faults))


def one_thread() -> None:
    """Let libraries that are loaded use one thread: what others do would be in no clock of this one."""
    torch, cv2 = sys.modules.get("torch"), sys.modules.get("cv2")
    if torch is not None:
        torch.set_num_threads(1)
    if cv2 is not None:
        cv2.setNumThreads(1)


def other_draws() -> None:
    """Let random numbers be other ones than in the process before: a sample that is measured again gets other transforms."""
    random.seed()
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None:
        numpy.random.seed()
    if torch is not None:
        torch.default_generator.seed()
