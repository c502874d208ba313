"""Which samples are audited where not all are, and what that tells of the others."""

import math
import random
from array import array
from collections.abc import Iterable, Iterator

from fastfeed.feed.permutation import Permutation

CONFIDENCE = 0.95
_HALVINGS = 60
_CHUNK = 1 << 13


def positions(count: int, *, sample: int | None, shuffled: bool, seed: int) -> Iterable[int]:
    """The positions to audit, in order.

    Args:
        count: How many samples there are.
        sample: So many of them, drawn at random; None for all.
        shuffled: In random order, so that whatever was done when time is up is a random part.
        seed: The same seed draws the same.
    """
    draw = random.Random(seed)
    if sample is not None and sample < count:
        drawn = draw.sample(range(count), sample)
        return array("q", drawn if shuffled else sorted(drawn))
    return range(count) if not shuffled else _shuffled(count, seed)


def _shuffled(count: int, seed: int) -> Iterator[int]:
    """All positions in random order, without a list of them: there may be milliards."""
    order = Permutation(count, seed)
    for start in range(0, count, _CHUNK):
        yield from order[start : min(start + _CHUNK, count)].tolist()


def at_most(bad: int, audited: int, confidence: float = CONFIDENCE) -> float:
    """The share of bad samples among all that a random part, of which some are bad, leaves possible.

    One-sided and exact (Clopper and Pearson): with more than this share of bad samples, a part with so few of them would be
    drawn with a probability below 1 - confidence.

    Args:
        bad: How many of the part are bad.
        audited: How many the part has.
        confidence: Between 0 and 1.
    """
    if bad >= audited:
        return 1.0
    low, high = bad / audited, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if _few(bad, audited, middle) > 1 - confidence:
            low = middle
        else:
            high = middle
    return high


def _few(bad: int, audited: int, share: float) -> float:
    """Probability that a part has at most so many bad ones."""
    of = math.lgamma(audited + 1)
    good, wrong = math.log1p(-share) if share < 1 else -math.inf, math.log(share) if share > 0 else -math.inf
    return math.fsum(
        math.exp(of - math.lgamma(k + 1) - math.lgamma(audited - k + 1) + (k * wrong if k else 0.0) + (audited - k) * good)
        for k in range(bad + 1)
    )
