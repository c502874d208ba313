"""Dividing samples into parts by chance: disjoint, complete, stratified, the same for the same seed. Pure.

The rule of version 1, for n samples, all of it reproducible from this page:

1. keys = the first n numbers of numpy's bit generator PCG64(seed), as ``random_raw`` gives them. numpy promises that
   stream for good (its compatibility policy is on bit generators, not on Generator's methods, so none is used).
2. Without groups: the samples of each class are sorted by their key (the lower position first at a tie). Of n_c samples,
   part k gets floor(n_c f_k); the few that are left go one each to those parts whose n_c f_k is no whole number, the ones
   furthest behind their fractions over all classes so far first, classes in the order of their smallest key. So each part
   has of each class its share, rounded up or down. The first samples by key go to part 0, the next to part 1, and so on.
3. With groups: groups in the order of their smallest key; each goes whole to the part that most lacks its samples, class by
   class: the part with the largest sum over the group's classes of (its samples of the class) x (what the part still lacks
   of the class) / (all samples of the class), in float64, classes in the order of their values; the first part at a tie.

Fractions are taken as the nearest ones with a denominator up to a million, so 0.1 is a tenth.
"""

import operator
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from fastfeed.errors import UsageError

Codes = NDArray[np.int64]
_DENOMINATOR = 1_000_000


def fractions_of(given: Sequence[float]) -> list[Fraction]:
    """The parts' shares, which add up to 1; what is left of it is a last part.

    Raises:
        UsageError: None, one that is not between 0 and 1, or more than 1 in all.
    """
    try:
        exact = [Fraction(share) for share in given if 0 < share < 1]
    except (TypeError, ValueError):  # text, None, an array: what cannot be compared with a number, or is none
        exact = []
    if not given or len(exact) < len(given):
        msg = "split takes the parts' shares, each between 0 and 1"
        raise UsageError(msg, expected="split(0.9) or split(0.8, 0.1, 0.1)", got=f"split({', '.join(map(repr, given))})")
    shares = [share.limit_denominator(_DENOMINATOR) for share in exact]
    rest = 1 - sum(shares, Fraction(0))
    if rest < 0 or not all(0 < share < 1 for share in shares):
        msg = "the parts' shares are more than 1 in all" if rest < 0 else f"a share is finer than 1 in {_DENOMINATOR:,}"
        raise UsageError(msg, got=f"split({', '.join(map(repr, given))})")
    return [*shares, rest] if rest else shares


def split_positions(
    shares: Sequence[Fraction], seed: int, classes: Codes, groups: Codes | None = None
) -> list[NDArray[np.int64]]:
    """Places of each part's samples, rising.

    Args:
        shares: Of the parts, 1 in all.
        seed: From 0.
        classes: A number for each sample; equal numbers are one class.
        groups: The same; a group is never divided. None: each sample by itself.

    Raises:
        UsageError: A seed that is none.
    """
    try:
        number = -1 if isinstance(seed, bool) else operator.index(seed)
    except TypeError:
        number = -1
    if number < 0:
        msg = "seed is a whole number from 0"
        raise UsageError(msg, got=repr(seed))
    keys = np.random.PCG64(number).random_raw(len(classes))
    parts = _alone(shares, keys, classes) if groups is None else _together(shares, keys, classes, groups)
    return [np.flatnonzero(parts == part) for part in range(len(shares))]


def _alone(shares: Sequence[Fraction], keys: NDArray[np.uint64], classes: Codes) -> NDArray[np.int64]:
    """The part of each sample, class by class."""
    order = _ordered(keys, classes)
    sizes, firsts = _runs(classes[order])
    parts = np.empty(len(classes), dtype=np.int64)
    behind = [Fraction(0)] * len(shares)
    for at in np.argsort(keys[order[firsts]], kind="stable").tolist():
        counts = _shared(int(sizes[at]), shares, behind)
        parts[order[firsts[at] : firsts[at] + sizes[at]]] = np.repeat(np.arange(len(shares)), counts)
    return parts


def _shared(size: int, shares: Sequence[Fraction], behind: list[Fraction]) -> list[int]:
    """How many of a class each part gets; behind, what each part lacks so far, is kept up to date."""
    exact = [size * share for share in shares]
    counts = [int(share) for share in exact]
    for part, share in enumerate(exact):
        behind[part] += share - counts[part]
    open_parts = [part for part, share in enumerate(exact) if share != counts[part]]
    for part in sorted(open_parts, key=lambda part: (-behind[part], part))[: size - sum(counts)]:
        counts[part] += 1
        behind[part] -= 1
    return counts


def _together(shares: Sequence[Fraction], keys: NDArray[np.uint64], classes: Codes, groups: Codes) -> NDArray[np.int64]:
    """The part of each sample, group by group."""
    numbers = np.unique(classes, return_inverse=True)[1].reshape(-1)
    order = _ordered(keys, groups)
    sizes, firsts = _runs(groups[order])
    totals = np.bincount(numbers).tolist()
    lacks = [[float(share) * total for total in totals] for share in shares]
    parts = np.empty(len(classes), dtype=np.int64)
    for at in np.argsort(keys[order[firsts]], kind="stable").tolist():
        members = order[firsts[at] : firsts[at] + sizes[at]]
        kinds = [list(map(int, pair)) for pair in zip(*np.unique(numbers[members], return_counts=True), strict=True)]
        wants = [_want(lack, totals, kinds) for lack in lacks]
        part = wants.index(max(wants))
        for kind, count in kinds:
            lacks[part][kind] -= count
        parts[members] = part
    return parts


def _want(lack: list[float], totals: list[int], kinds: list[list[int]]) -> float:
    """How much a part lacks what a group has. Added up one after another: how sum() does it differs between releases."""
    total = 0.0
    for kind, count in kinds:
        total += count * lack[kind] / totals[kind]
    return total


def _ordered(keys: NDArray[np.uint64], codes: Codes) -> NDArray[np.int64]:
    """Places sorted by code, then by key, then by place."""
    order = np.argsort(keys, kind="stable")
    if not len(codes) or bool((codes == codes[0]).all()):
        return order
    low, high = int(codes.min()), int(codes.max())
    small = (codes - low).astype(np.min_scalar_type(high - low)) if high - low < 1 << 63 else codes  # few bits sort fast
    return order[np.argsort(small[order], kind="stable")]


def _runs(values: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Sizes and first places of the runs of equal values."""
    firsts = np.flatnonzero(np.concatenate([np.ones(min(1, len(values)), dtype=np.bool_), values[1:] != values[:-1]]))
    return np.diff(np.append(firsts, len(values))), firsts
