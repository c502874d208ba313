"""What was found about a sample's times, in words."""

from fastfeed.auditor.finding import Finding
from fastfeed.auditor.judging.codes import RANDOM_SLOW, SLOW_COLD, SLOW_UNCONFIRMED, STALL_ONCE
from fastfeed.auditor.judging.confirming import Outcome
from fastfeed.units import format_seconds


def told(outcome: Outcome, format_name: str | None) -> Finding:
    """The finding of an outcome.

    Args:
        outcome: What became of the suspicion.
        format_name: Of the sample; None where unknown.
    """
    suspect = outcome.suspect
    spent = "of processor time" if suspect.clock == "cpu" else "of waiting for something else than a processor"
    takes = f"{suspect.stage} takes {format_seconds(outcome.seconds)} {spent}{_compared(outcome, format_name)}"
    if outcome.code is RANDOM_SLOW:
        text = f"{takes}, in {outcome.slow_repeats} of {outcome.repeats} repeats (this is the longest)"
    elif outcome.code is SLOW_COLD:
        text = f"{takes}, when its file is not in memory (least of {outcome.repeats} repeats)"
    elif outcome.code is STALL_ONCE:
        text = (
            f"{suspect.stage} took {format_seconds(suspect.seconds)} {spent} once, "
            f"and at most {format_seconds(outcome.seconds)} in {outcome.repeats} repeats"
        )
    elif outcome.code is SLOW_UNCONFIRMED and not outcome.repeats:
        text = f"{takes}; unconfirmed: {outcome.why}"
    elif outcome.code is SLOW_UNCONFIRMED:
        text = f"{takes} (least of {outcome.repeats} repeats); unconfirmed: {outcome.why}"
    else:
        text = f"{takes} (least of {outcome.repeats} repeats)"
    return Finding(outcome.code, text)


def _compared(outcome: Outcome, format_name: str | None) -> str:
    """The same of its like; who they are, where they are of another format."""
    like = "its like take"
    if format_name in outcome.suspect.group.guests:
        like = f"{outcome.suspect.group.name} of its size takes, as too few samples are {format_name}"
    usual = outcome.usual_seconds
    least = 50e-6  # shown as 0.1 ms: times of less than that are not worth a ratio
    if usual < least:
        return f", and not the {format_seconds(usual)} that {like}"
    return f", {outcome.seconds / usual:.1f} times the {format_seconds(usual)} that {like}"
