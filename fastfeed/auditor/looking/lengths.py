"""Texts that are far longer or shorter than the others, in characters or tokens."""

from collections.abc import Sequence

import numpy as np

from fastfeed.auditor.finding import Finding
from fastfeed.auditor.looking import setcodes
from fastfeed.units import format_count

LEAST = 30
"""Of fewer texts there is no usual length."""
CUT = 6.0
"""Modified z score of the logarithm: 0.6745 * (value - median) / MAD, as Iglewicz and Hoaglin (1993) define it."""
MIN_RATIO = 10.0
"""To the median: what is within is no outlier, however alike the others are."""
_FLOOR = 0.1
"""Least MAD of the logarithms: sets of nearly equal lengths have next to none."""


def outliers(lengths: Sequence[int], unit: str) -> dict[int, Finding]:
    """Positions of the outliers, and what there is to say about each.

    Args:
        lengths: Of each text; those of 0 are not looked at (they are empty, which is told elsewhere).
        unit: What is counted, in the singular: character, token.
    """
    values = np.asarray(lengths, dtype=np.float64)
    known = values > 0
    if known.sum() < LEAST:
        return {}
    logs = np.log(np.where(known, values, 1.0))
    middle = float(np.median(logs[known]))
    spread = max(float(np.median(np.abs(logs[known] - middle))), _FLOOR)
    far = known & (0.6745 * np.abs(logs - middle) / spread > CUT) & (np.abs(logs - middle) > np.log(MIN_RATIO))
    usual = round(float(np.exp(middle)))
    places = [int(at) for at in np.flatnonzero(far)]
    return {at: Finding(setcodes.LENGTH_OUTLIER, _told(lengths[at], usual, unit)) for at in places}


def _told(length: int, usual: int, unit: str) -> str:
    return f"{format_count(length, unit)}; the median is {usual:,}"
