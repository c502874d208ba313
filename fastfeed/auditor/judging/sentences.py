"""What was found about a sample's times, in words."""

from fastfeed.auditor.finding import Finding
from fastfeed.auditor.judging.codes import RANDOM_SLOW, SLOW_COLD, SLOW_UNCONFIRMED, STALL_ONCE
from fastfeed.auditor.judging.confirming import Outcome
from fastfeed.units import format_seconds

_VERBS = {"cpu": ("takes", "took"), "blocked": ("waits", "waited")}
_SPENT = {"cpu": "of processor time", "blocked": "for something else than a processor"}
_LEAST_SECONDS = 50e-6
"""A usual time of less than 0.1 ms is not worth a ratio."""


def told(outcome: Outcome, format_name: str | None, *, wall_only: bool = False) -> Finding:
    """The finding of an outcome.

    Args:
        outcome: What became of the suspicion.
        format_name: Of the sample; None where unknown.
        wall_only: Whether times are of the wall clock, whatever they were spent with.
    """
    suspect = outcome.suspect
    now, once = _VERBS[suspect.clock]
    spent = "by the wall clock" if wall_only else _SPENT[suspect.clock]
    takes = f"{suspect.stage} {now} {format_seconds(outcome.seconds)} {spent}{_compared(outcome, format_name)}"
    least = f" (least of {outcome.repeats} repeats)" if outcome.repeats else ""
    if outcome.code is STALL_ONCE:
        text = (
            f"{suspect.stage} {once} {format_seconds(suspect.seconds)} {spent} once, "
            f"and at most {format_seconds(outcome.seconds)} in {outcome.repeats} repeats"
        )
    elif outcome.code is RANDOM_SLOW:
        text = f"{takes}, in {outcome.slow_repeats} of {outcome.repeats} repeats (this is the longest)"
    elif outcome.code is SLOW_COLD:
        text = f"{takes}, when its file is not in memory{least}"
    elif outcome.code is SLOW_UNCONFIRMED:
        text = f"{takes}{least}; unconfirmed: {outcome.why}"
    else:
        text = f"{takes}{least}"
    return Finding(outcome.code, text)


def _compared(outcome: Outcome, format_name: str | None) -> str:
    """The same of its like; who they are, where they are of another format."""
    group, usual = outcome.suspect.group, outcome.usual_seconds
    like = f"{group.name} of its size takes, as few samples are {format_name}" if group.hosts(format_name) else "its like take"
    if usual < _LEAST_SECONDS:
        return f", and not the {format_seconds(usual)} that {like}"
    return f", {outcome.seconds / usual:.1f} times the {format_seconds(usual)} that {like}"
