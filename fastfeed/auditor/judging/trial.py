"""The repeats of a suspect against those of samples like it."""

from dataclasses import dataclass

import numpy as np

from fastfeed.auditor.judging.controls import Control
from fastfeed.auditor.judging.ledger import Floats
from fastfeed.auditor.judging.repeats import Repeats
from fastfeed.auditor.judging.rules import Cuts
from fastfeed.auditor.judging.suspects import Suspect

_OVER_CONTROLS = 2.0
"""What is slow at random is so at least so many times as often as its like, or it is the machine."""
_APART = 2.0
"""Times that differ by less are the same, once above and once below a bar."""
_SHORTEST_SECONDS = 1e-6


@dataclass(frozen=True, slots=True)
class Case:
    """A suspect and those that it is compared with."""

    suspect: Suspect
    controls: tuple[Control, ...]

    @property
    def rows(self) -> list[int]:
        """All of them."""
        return [self.suspect.row, *(control.row for control in self.controls)]


@dataclass(frozen=True, slots=True)
class Trial:
    """What the repeats of one case say."""

    case: Case
    cuts: Cuts
    seconds: Floats
    """Of the suspect, each repeat."""
    controls: list[Floats]
    """Of each control that could be measured, for a sample of the suspect's size."""
    usual: float
    """What the suspect would take if it were like them, in seconds."""

    @property
    def suspect(self) -> Suspect:
        """Who is on trial."""
        return self.case.suspect

    @property
    def bar(self) -> float:
        """Slow is what takes longer, in seconds."""
        floor = self.suspect.floor_seconds + (self.usual if self.suspect.clock == "cpu" else 0.0)
        return max(self.cuts.proof_ratio * self.usual, floor)

    @property
    def enough(self) -> bool:
        """Whether it was measured as often as it has to be."""
        return len(self.seconds) >= self.cuts.repeats

    @property
    def slow(self) -> int:
        """How many of the repeats are."""
        return int((self.seconds > self.bar).sum())

    @property
    def always(self) -> bool:
        """Whether each repeat is."""
        return self.enough and self.slow == len(self.seconds)

    @property
    def at_random(self) -> bool:
        """Whether some are, more often than those of its like, and clearly longer than the others."""
        if not self.enough or self.seconds.max() < _APART * self.seconds.min():
            return False
        bar = self.bar * self._scatter
        others = np.concatenate(self.controls) if self.controls else np.zeros(1)
        often = max(self.cuts.random_part, _OVER_CONTROLS * float((others > bar).mean()))
        return int((self.seconds > bar).sum()) >= often * len(self.seconds)

    @property
    def stalled(self) -> bool:
        """Whether it was slow the first time, and is another thing now; else it is always a little more than usual."""
        return self.suspect.seconds > max(self.bar, _APART * float(np.median(self.seconds)))

    @property
    def _scatter(self) -> float:
        """The usual is from least times; a single time has to be compared with middle ones, which are so many times longer."""
        if self.suspect.clock != "cpu" or not self.controls:
            return 1.0
        return float(np.median([np.median(seconds) / max(seconds.min(), _SHORTEST_SECONDS) for seconds in self.controls]))


def trials(cases: list[Case], repeats: Repeats, cuts: Cuts, *, cold: bool = False) -> list[Trial]:
    """Each case with what was measured of it so far."""
    measured = [_of_controls(case, repeats, cold=cold) for case in cases]
    paces = _paces(cases, measured)
    found = []
    for case, times in zip(cases, measured, strict=True):
        suspect = case.suspect
        scaled = [control.factor * seconds for control, seconds in times]
        usual = _usual(suspect, scaled, paces.get(suspect.stage, 0.0))
        seconds = repeats.seconds(suspect.row, suspect.stage, suspect.clock, cold=cold)
        found.append(Trial(case, cuts, seconds, scaled, usual))
    return found


def _of_controls(case: Case, repeats: Repeats, *, cold: bool) -> list[tuple[Control, Floats]]:
    """Seconds of each that could be measured."""
    stage, clock = case.suspect.stage, case.suspect.clock
    times = [(control, repeats.seconds(control.row, stage, clock, cold=cold)) for control in case.controls]
    return [(control, seconds) for control, seconds in times if len(seconds)]


def _paces(cases: list[Case], measured: list[list[tuple[Control, Floats]]]) -> dict[str, float]:
    """By stage: how many times what the line says controls take now (computing).

    Each control once: suspects of one kind share theirs, and those may be another kind as well.
    """
    found: dict[str, dict[int, float]] = {}
    for case, times in zip(cases, measured, strict=True):
        if case.suspect.clock == "cpu":
            paces = {control.row: float(seconds.min()) / control.usual_seconds for control, seconds in times}
            found.setdefault(case.suspect.stage, {}).update(paces)
    return {stage: float(np.median(list(paces.values()))) for stage, paces in found.items() if paces}


def _usual(suspect: Suspect, controls: list[Floats], pace: float) -> float:
    """The least of each control, in the middle. Three controls may all be quick by chance: at least what the line says.

    Where no control could be measured, what the line says as it is.
    """
    if not controls:
        return suspect.usual_seconds
    middle = float(np.median([seconds.min() for seconds in controls]))
    return max(middle, pace * suspect.usual_seconds) if suspect.clock == "cpu" else middle
