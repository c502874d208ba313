"""How well an order mixes samples, against a full shuffle of the same samples; and how sorted stored data is."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfeed.errors import UsageError
from fastfeed.units import format_count


@dataclass(frozen=True, slots=True, kw_only=True)
class Randomness:
    """Of one order, cut into batches. Beside each figure stands what a full shuffle has on average."""

    samples: int
    """In whole batches; a shorter last batch is left out."""
    batch_size: int
    displacement: float
    """Mean distance between a sample's place in the order and its place in storage, as a fraction of all."""
    displacement_shuffled: float
    neighbours: float
    """Share of samples whose next in storage is in the same batch."""
    neighbours_shuffled: float
    sequential: float
    """Share of samples that are drawn at most one batch after the one stored before them: reads that go on forward."""
    sequential_shuffled: float
    classes: float | None
    """Mean number of different labels in a batch; None without labels."""
    classes_shuffled: float | None
    design_effect: float | None
    """Variance of a batch's label counts against that of a full shuffle, which has 1 (Kish, Survey Sampling, 1965). A
    batch of n tells as much about the classes as n / design_effect samples drawn at random. None without labels."""

    def __str__(self) -> str:
        parts = [
            f"displacement {self.displacement:.3f} (full shuffle {self.displacement_shuffled:.3f})",
            f"stored neighbours in one batch {self.neighbours:.2%} ({self.neighbours_shuffled:.2%})",
            f"reads that go on forward {self.sequential:.2%} ({self.sequential_shuffled:.2%})",
        ]
        if self.classes is not None and self.design_effect is not None:
            alike = self.batch_size / max(self.design_effect, 1.0)
            parts.append(f"classes a batch {self.classes:.1f} ({self.classes_shuffled:.1f})")
            parts.append(
                f"design effect {self.design_effect:.2f} (1): a batch of {self.batch_size} tells as much as {alike:.0f}"
            )
        return ", ".join(parts)


def randomness(order: ArrayLike, labels: ArrayLike | None, batch_size: int) -> Randomness:
    """Measure an order: of a whole epoch, or of the part that one rank draws. Takes memory of about 100 bytes a sample.

    Args:
        order: Positions in the order in which they are drawn, none twice; shape (samples,).
        labels: By position, as of the whole dataset: classes, or whatever should be mixed; None: only positions count.
        batch_size: Consecutive samples that make a batch.

    Raises:
        UsageError: Fewer samples than two batches, a position twice, or a position without a label.
    """
    drawn = np.asarray(order, dtype=np.int64)
    batches = len(drawn) // batch_size if batch_size > 0 else 0
    if batches < 2:  # noqa: PLR2004 - variance needs two
        msg = "randomness needs at least two batches"
        raise UsageError(msg, expected=f"{2 * max(batch_size, 1)} samples", got=len(drawn))
    drawn = drawn[: batches * batch_size]
    size, storage = len(drawn), np.argsort(drawn, kind="stable")
    stored = drawn[storage]
    if bool((stored[1:] == stored[:-1]).any()):
        msg = "an order has each position once"
        raise UsageError(msg, got=f"position {stored[1:][stored[1:] == stored[:-1]][0]} twice")
    step = np.diff(storage)[np.diff(stored) == 1]
    pairs = max(len(step), 1)
    together = (storage[:-1] // batch_size == storage[1:] // batch_size)[np.diff(stored) == 1]
    classes, effect = (None, None) if labels is None else _label_figures(_labels_of(drawn, labels), batch_size)
    return Randomness(
        samples=size,
        batch_size=batch_size,
        displacement=float(np.abs(storage - np.arange(size)).mean() / size),
        displacement_shuffled=(size * size - 1) / (3 * size * size),
        neighbours=float(together.sum() / pairs),
        neighbours_shuffled=(batch_size - 1) / (size - 1),
        sequential=float(((step > 0) & (step <= batch_size)).sum() / pairs),
        sequential_shuffled=batch_size * (2 * size - batch_size - 1) / (2 * size * (size - 1)),
        classes=None if classes is None else classes[0],
        classes_shuffled=None if classes is None else classes[1],
        design_effect=effect,
    )


def _labels_of(drawn: NDArray[np.int64], labels: ArrayLike) -> NDArray[np.int64]:
    """The label of each sample drawn, numbered from 0."""
    known = np.asarray(labels)
    if known.ndim != 1 or int(drawn.max()) >= len(known) or int(drawn.min()) < 0:
        msg = "each position of an order needs a label"
        raise UsageError(msg, expected=f"labels of shape (n,), n > {int(drawn.max())}", got=f"shape {known.shape}")
    return np.unique(known[drawn], return_inverse=True)[1].reshape(-1)


def _label_figures(labels: NDArray[np.int64], batch_size: int) -> tuple[tuple[float, float], float]:
    """((mean labels a batch, the same of a full shuffle), design effect)."""
    size, totals = len(labels), np.bincount(labels)
    batch = np.arange(size) // batch_size
    cells, counts = np.unique(batch * len(totals) + labels, return_counts=True)
    shares = totals / size
    # Sum over classes of (count - batch_size * share)^2, of all batches: classes that a batch lacks are in the last term.
    squares = float((counts.astype(np.float64) ** 2 - 2 * batch_size * counts * shares[cells % len(totals)]).sum())
    batches = size // batch_size
    observed = squares / batches + batch_size**2 * float((shares**2).sum())
    random = batch_size * float((shares * (1 - shares)).sum()) * (size - batch_size) / (size - 1)
    effect = observed / random if random > 0 else 1.0
    return (len(cells) / batches, expected_distinct(totals, batch_size)), effect


def expected_distinct(totals: Sequence[int] | NDArray[np.int64], drawn: int) -> float:
    """Different labels among samples drawn at random without replacement: the mean, by the hypergeometric distribution.

    Args:
        totals: Samples of each label.
        drawn: How many are drawn; at most all.
    """
    size = int(np.sum(totals))

    def log_ways(free: int) -> float:
        return math.lgamma(free + 1) - math.lgamma(free - drawn + 1)

    every = log_ways(size)
    sizes, times = np.unique(np.asarray(totals), return_counts=True)
    present = (1.0 if size - own < drawn else -math.expm1(log_ways(size - own) - every) for own in sizes.tolist())
    return float(sum(count * share for count, share in zip(times.tolist(), present, strict=True)))


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelRuns:
    """How long equal labels stand together in storage."""

    samples: int
    runs: int
    shuffled: float
    """Mean run length if the same labels lay in random order."""

    @property
    def mean(self) -> float:
        """Mean run length, in samples."""
        return self.samples / max(self.runs, 1)

    @property
    def sorted_by_class(self) -> bool:
        """Runs are more than twice as long as in random order."""
        return self.mean > 2 * self.shuffled

    def __str__(self) -> str:
        return (
            f"equal labels stand together in runs of {self.mean:,.1f} samples on average, where random order would have "
            f"{self.shuffled:,.1f} ({format_count(self.samples, 'sample')}, {format_count(self.runs, 'run')})"
        )


def label_runs(labels: ArrayLike) -> LabelRuns:
    """Measure labels by position; shape (samples,), any type that compares.

    Raises:
        UsageError: Not one axis.
    """
    known = np.asarray(labels)
    if known.ndim != 1:
        msg = "labels have one axis, a label a sample"
        raise UsageError(msg, got=f"shape {known.shape}")
    size = len(known)
    small = known.dtype.kind in "iu" and size > 0 and int(known.min()) >= 0 and int(known.max()) <= size
    totals = (np.bincount(known) if small else np.unique(known, return_counts=True)[1]).astype(np.float64)
    # A sample begins a run if the one before differs: of a random order, n - sum of n_c^2 / n of them do, and the first.
    runs = 1 + size - float((totals**2).sum()) / size if size else 1.0
    return LabelRuns(samples=size, runs=int(size > 0) + int((known[1:] != known[:-1]).sum()), shuffled=max(size, 1) / runs)
