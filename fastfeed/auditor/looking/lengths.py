"""Texts that are far longer or shorter than the others, in characters or tokens."""

from collections.abc import Sequence

import numpy as np

from fastfeed.auditor.finding import Code, Finding
from fastfeed.auditor.looking import setcodes
from fastfeed.units import format_count

LEAST = 30
"""Of fewer texts there is no usual length."""
CUT = 3.5
"""Modified z score of the logarithm: 0.6745 * (value - median) / MAD, with the cut that Iglewicz and Hoaglin (1993) give."""
MIN_RATIO = 10.0
"""To the median: what is within is no outlier, however alike the others are."""
_MOST_PART, _MOST = 0.01, 3
"""Of the texts, on either side, at most this part, but as many as three, is far: more are a kind of text (articles beside
abstracts) and no outliers."""
_BEYOND = 2.0
"""Times the length that all others stay within: what is next to them is the end of a tail."""
_FLOOR = 0.1
"""Least MAD of the logarithms: sets of nearly equal lengths have next to none."""


def outliers(lengths: Sequence[int], unit: str, code: Code = setcodes.LENGTH_OUTLIER) -> dict[int, Finding]:
    """Positions of the outliers, and what there is to say about each.

    Args:
        lengths: Of each text; those of 0 are not looked at (they are empty, which is told elsewhere).
        unit: What is counted, in the singular: character, token.
        code: Of the findings.
    """
    values = np.asarray(lengths, dtype=np.float64)
    known = values > 0
    if known.sum() < LEAST:
        return {}
    logs = np.log(np.where(known, values, 1.0))
    middle = float(np.median(logs[known]))
    spread = max(float(np.median(np.abs(logs[known] - middle))), _FLOOR)
    ordered = np.sort(logs[known])
    most = max(_MOST, int(_MOST_PART * len(ordered)))
    beyond = (logs > ordered[-1 - most] + np.log(_BEYOND)) | (logs < ordered[most] - np.log(_BEYOND))
    far = known & beyond & (0.6745 * np.abs(logs - middle) / spread > CUT) & (np.abs(logs - middle) > np.log(MIN_RATIO))
    usual = round(float(np.exp(middle)))
    places = [int(at) for at in np.flatnonzero(far)]
    return {at: Finding(code, _told(lengths[at], usual, unit)) for at in places}


def _told(length: int, usual: int, unit: str) -> str:
    times = f"{length / usual:,.0f} times" if length > usual else f"1/{usual / length:,.0f} of"
    return f"{format_count(length, unit)}, {times} the median of all texts, which is {usual:,}"
