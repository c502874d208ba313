"""Whether the machine lets itself be measured: a fixed piece of work that takes now this time and now that says no."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fastfeed.units import format_seconds

MOST_MOVE = 0.10
"""Of the processor time of the fixed work: more means that others use caches or the other half of a core."""
MOST_DELAY = 0.20
"""Of its wall time, ready but waiting for a processor."""
MOST_STEAL = 0.05
"""Of the machine's processor time, taken by other guests of its host."""


@dataclass(frozen=True, slots=True)
class Beat:
    """The fixed work, timed once (pulse.beat)."""

    cpu_seconds: float
    """Least of its repeats."""
    delay: float | None
    """Part of its wall time in which it was ready and waited for a processor; None where the kernel does not tell."""
    stolen: float | None = None
    """Processor time so far that other guests of the host took, of all processors, in ticks; None where nothing tells."""
    ticks: float | None = None
    """All processor time so far, in ticks."""
    megahertz: float | None = None
    """Of processor 0 at that moment."""


@dataclass(frozen=True, slots=True)
class Noise:
    """All beats of an audit: one before, then one every half minute, in a process that measures samples."""

    beats: Sequence[Beat] = ()

    @property
    def move(self) -> float:
        """How far apart the processor times are, as a part of their median; 0 of fewer than two."""
        if len(self.beats) < 2:  # noqa: PLR2004
            return 0.0
        seconds = np.array([beat.cpu_seconds for beat in self.beats])
        middle = float(np.median(seconds))
        return float(seconds.max() - seconds.min()) / middle if middle else 0.0

    @property
    def delay(self) -> float:
        """The median of the beats that tell; 0 where none does."""
        told = [beat.delay for beat in self.beats if beat.delay is not None]
        return float(np.median(told)) if told else 0.0

    @property
    def steal(self) -> float:
        """Part of the machine's processor time between the first beat and the last that the host gave to others."""
        told = [(beat.stolen, beat.ticks) for beat in self.beats if beat.stolen is not None and beat.ticks is not None]
        if not told or told[-1][1] <= told[0][1]:
            return 0.0
        return (told[-1][0] - told[0][0]) / (told[-1][1] - told[0][1])

    @property
    def why(self) -> tuple[str, ...]:
        """What makes the machine noisy, in words; nothing where it is quiet."""
        found = []
        if self.move > MOST_MOVE:
            shortest = min(beat.cpu_seconds for beat in self.beats)
            found.append(
                f"a fixed piece of work took from {format_seconds(shortest)} up to {self.move:.0%} more processor time"
            )
        if self.delay > MOST_DELAY:
            found.append(f"it waited for a processor in {self.delay:.0%} of its time")
        if self.steal > MOST_STEAL:
            found.append(f"the host gave {self.steal:.0%} of the processor time to other guests")
        return tuple(found)

    @property
    def host_noisy(self) -> bool:
        """Whether cuts have to be raised."""
        return bool(self.why)

    def as_json(self) -> dict[str, object]:
        """As a report holds it."""
        speeds = [beat.megahertz for beat in self.beats if beat.megahertz is not None]
        return {
            "host_noisy": self.host_noisy, "why": list(self.why), "beats": len(self.beats), "cpu_move": self.move,
            "delay": self.delay, "steal": self.steal, "megahertz": [min(speeds), max(speeds)] if speeds else None,
        }  # fmt: skip
