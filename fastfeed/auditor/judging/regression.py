"""What is usual for a size: a straight line through logarithms that a few wild values do not move."""

from dataclasses import dataclass

import numpy as np

from fastfeed.auditor.judging.ledger import Floats

MOST_SAMPLES = 20_000
"""More of them make the line no better."""
SCALE_FLOOR = 0.1
"""Of a logarithm: equal times (a MAD of 0) do not make one of 2 % more an outlier."""
_HUBER, _BISQUARE = 1.345, 4.685
"""The usual tuning: 95 % as good as least squares where all is normal."""
_NO_SPREAD = 1e-3
_ROUNDS = 15
_TINY = 1e-9


@dataclass(frozen=True, slots=True)
class Fit:
    """y = level + slopes * (x - center), with robust scatter."""

    level: float
    slopes: Floats
    center: Floats
    scale: float
    """Robust standard deviation of y, at least SCALE_FLOOR."""
    leverage: Floats
    """Shape (k + 1, k + 1): how unsure the line itself is, in units of scale squared."""

    def expected(self, x: Floats) -> Floats:
        """For x of shape (n, k), n values."""
        return self.level + (x - self.center) @ self.slopes

    def z(self, x: Floats, y: Floats) -> Floats:
        """How many standard deviations y is above the line; far from the samples that made it, the line is less sure."""
        design = _design(x - self.center)
        unsure = np.einsum("ij,jk,ik->i", design, self.leverage, design)
        return np.asarray((y - self.expected(x)) / (self.scale * np.sqrt(1 + unsure)))


def robust_line(x: Floats, y: Floats) -> Fit:
    """Huber's fit, then Tukey's bisquare, which leaves far values out altogether.

    Args:
        x: Shape (n, k), n > k, all finite; a column that does not vary has no slope, and two that vary alike share one.
        y: Shape (n,), all finite.
    """
    if len(y) > MOST_SAMPLES:
        some = np.random.default_rng(len(y)).choice(len(y), MOST_SAMPLES, replace=False)
        x, y = x[some], y[some]
    center, spread = np.median(x, axis=0), x.std(axis=0)
    unit = np.where(spread > _NO_SPREAD, spread, np.inf)
    design = _design((x - center) / unit)
    weights: Floats = np.ones(len(y))
    found: Floats = np.zeros(design.shape[1])
    scale = SCALE_FLOOR
    for turn in range(2 * _ROUNDS):
        root = np.sqrt(weights)
        found = np.linalg.lstsq(design * root[:, None], y * root, rcond=_NO_SPREAD)[0].astype(np.float64)
        rest = y - design @ found
        scale = robust_scale(rest)
        far = np.abs(rest) / scale
        weights = _huber(far) if turn < _ROUNDS else _bisquare(far)
    inverse = np.linalg.pinv((design * weights[:, None]).T @ design, rcond=_TINY, hermitian=True)
    back = 1 / np.concatenate([[1.0], unit])
    return Fit(float(found[0]), found[1:] / unit, center, scale, inverse * np.outer(back, back))


def level_line(x: Floats, y: Floats, slopes: Floats) -> Fit:
    """The same for too few samples to tell slopes: those are given, and the level is the median.

    Args:
        x: Shape (n, k), n at least 1, all finite.
        y: Shape (n,), all finite.
        slopes: Shape (k,).
    """
    center = np.median(x, axis=0)
    flat = y - (x - center) @ slopes
    level = float(np.median(flat))
    unsure = np.zeros((len(slopes) + 1, len(slopes) + 1))
    unsure[0, 0] = 1 / len(y)
    return Fit(level, slopes, center, robust_scale(flat - level), unsure)


def robust_scale(rest: Floats) -> float:
    """A standard deviation that up to half of the values may be wild for: 1.4826 MAD, at least SCALE_FLOOR."""
    return max(SCALE_FLOOR, 1.4826 * float(np.median(np.abs(rest - np.median(rest)))))


def _huber(far: Floats) -> Floats:
    """Weights that fall with the distance."""
    return _HUBER / np.maximum(far, _HUBER)


def _bisquare(far: Floats) -> Floats:
    """Weights that fall to 0."""
    return np.asarray(np.maximum(1 - (far / _BISQUARE) ** 2, 0) ** 2)


def _design(x: Floats) -> Floats:
    return np.column_stack([np.ones(len(x)), x])
