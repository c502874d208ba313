"""Suspects are measured again beside samples like them. What repeats is slow; what does not was the machine."""

from collections.abc import Iterable
from dataclasses import dataclass

from fastfeed.auditor.finding import Code
from fastfeed.auditor.judging.codes import RANDOM_SLOW, SLOW, SLOW_COLD, SLOW_UNCONFIRMED, STALL_ONCE
from fastfeed.auditor.judging.repeats import Repeats
from fastfeed.auditor.judging.rules import Cuts
from fastfeed.auditor.judging.suspects import Suspect
from fastfeed.auditor.judging.trial import Case, Trial, trials

_MAY_DRAW = ("transform", "load")
"""Stages in which something may be drawn at random. Reading and decoding compute the same each time."""
_MAY_BE_COLD = ("read", "load")
LATE = "time was up before it was measured again often enough"
"""Why a suspicion is unconfirmed that might have been confirmed with more time."""
_WORST_FIRST = (SLOW, SLOW_COLD, RANDOM_SLOW, SLOW_UNCONFIRMED, STALL_ONCE)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a suspicion."""

    suspect: Suspect
    code: Code
    seconds: float
    """Of the clock: the least of the repeats where all were slow, else the most of them; as first seen where there are none."""
    usual_seconds: float
    """What its like take."""
    repeats: int = 0
    slow_repeats: int = 0
    why: str = ""
    """Why it is unconfirmed."""


def unconfirmed(suspect: Suspect, why: str) -> Outcome:
    """A suspicion that is left as it is."""
    return Outcome(suspect, SLOW_UNCONFIRMED, suspect.seconds, suspect.usual_seconds, why=why)


def confirmed(cases: list[Case], repeats: Repeats, cuts: Cuts) -> list[Outcome]:
    """Measures again, as often as it takes; an outcome for each case, but for those that turn out to be nothing."""
    _take(cases, repeats, cuts.repeats)
    unsettled = [trial.case for trial in trials(cases, repeats, cuts) if _unsettled(trial)]
    _take(unsettled, repeats, cuts.more_repeats)
    why = LATE if repeats.time_is_up else "it could not be measured again"
    warm = {trial.case: _warm(trial, why) for trial in trials(cases, repeats, cuts)}
    cold = [case for case, outcome in warm.items() if outcome is not None and _may_be_cold(outcome)]
    _take(cold, repeats, cuts.repeats, cold=True)
    proven = {trial.case: _proven(trial, SLOW_COLD) for trial in trials(cold, repeats, cuts, cold=True) if trial.always}
    return [outcome for outcome in (warm | proven).values() if outcome is not None]


def worst_each(outcomes: Iterable[Outcome]) -> dict[int, Outcome]:
    """By row the worst of its outcomes; of equal ones that which costs the most."""
    ordered = sorted(outcomes, key=lambda one: (_WORST_FIRST.index(one.code), -one.suspect.excess_seconds))
    found: dict[int, Outcome] = {}
    for one in ordered:
        found.setdefault(one.suspect.row, one)
    return found


def _take(cases: list[Case], repeats: Repeats, rounds: int, *, cold: bool = False) -> None:
    repeats.take((row for case in cases for row in case.rows), rounds, cold=cold)


def _unsettled(trial: Trial) -> bool:
    """Whether more repeats may tell more."""
    if not trial.enough or trial.always:
        return False
    return trial.suspect.stage in _MAY_DRAW or (trial.suspect.clock == "blocked" and trial.slow > 0)


def _warm(trial: Trial, why_not: str) -> Outcome | None:
    """None where it is not what it seemed to be."""
    if not trial.enough:
        return unconfirmed(trial.suspect, why_not) if trial.suspect.sure else None
    if trial.always:
        return _proven(trial, SLOW)
    if trial.at_random and (trial.suspect.stage in _MAY_DRAW or trial.suspect.clock == "blocked"):
        return _proven(trial, RANDOM_SLOW)
    # Waiting that may have been for a processor, and did not repeat, says nothing about the sample.
    return _outcome(trial, STALL_ONCE) if trial.stalled and trial.suspect.sure else None


def _may_be_cold(outcome: Outcome) -> bool:
    return outcome.code is STALL_ONCE and outcome.suspect.clock == "blocked" and outcome.suspect.stage in _MAY_BE_COLD


def _proven(trial: Trial, code: Code) -> Outcome:
    """As far as the clock is sure."""
    if trial.suspect.sure:
        return _outcome(trial, code)
    return _outcome(trial, SLOW_UNCONFIRMED, "waiting for a processor may be in it")


def _outcome(trial: Trial, code: Code, why: str = "") -> Outcome:
    seconds = trial.seconds.min() if trial.always else trial.seconds.max()
    return Outcome(trial.suspect, code, float(seconds), trial.usual, len(trial.seconds), trial.slow, why)
