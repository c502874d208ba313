"""How many samples a child has at a time, and how long its answers may wait: messages cost as much as the looks at a sample."""

FIRST_AHEAD = 2
"""Samples that a child has while nobody knows what they take."""
MOST_AHEAD = 64
_AHEAD_SECONDS = 0.2
_MANY_AHEAD, _GATHER_SECONDS = 8, 0.02


def ahead_of(usual_seconds: float | None) -> int:
    """How many samples a child should have: it goes on with the next while the crew takes in the last.

    Of samples that take long it has one, so that nobody waits long for the last ones, or when time is up.

    Args:
        usual_seconds: What a sample takes; None where that is unknown.
    """
    if usual_seconds is None:
        return FIRST_AHEAD
    return max(1, min(MOST_AHEAD, int(_AHEAD_SECONDS / usual_seconds)))


def gather_seconds(usual_seconds: float | None) -> float:
    """How long answers may wait for others, so that a crew is not woken for each: a quarter of what children have at most.

    Args:
        usual_seconds: What a sample takes; None where that is unknown.
    """
    ahead = ahead_of(usual_seconds)
    if usual_seconds is None or ahead < _MANY_AHEAD:
        return 0.0
    return min(_GATHER_SECONDS, usual_seconds * ahead / 4)
