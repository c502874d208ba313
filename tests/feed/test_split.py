"""Splits: disjoint, complete, stratified within one, whole groups, and the same for good."""

from collections import Counter
from fractions import Fraction
from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastfeed.errors import UsageError
from fastfeed.feed.split import fractions_of, split_positions

shares_of = st.lists(st.integers(1, 20), min_size=2, max_size=4).map(
    lambda parts: [Fraction(part, sum(parts)) for part in parts]
)


def split(shares, seed, classes, groups=None):
    return [part.tolist() for part in split_positions(shares, seed, np.array(classes, dtype=np.int64), groups)]


# ------------------------------------------------------------------------------------------------ without groups
@settings(deadline=None)
@given(shares_of, st.integers(0, 2**70), st.lists(st.integers(-3, 3), min_size=1, max_size=60))
def test_parts_are_disjoint_complete_and_stratified_within_one(shares, seed, classes):
    parts = split(shares, seed, classes)
    assert sorted(at for part in parts for at in part) == list(range(len(classes)))
    assert all(part == sorted(part) for part in parts)
    for share, part in zip(shares, parts, strict=True):
        counts = Counter(classes[at] for at in part)
        for number, size in Counter(classes).items():
            assert abs(counts[number] - size * share) < 1
        assert abs(len(part) - len(classes) * share) < len(shares)
    assert split(shares, seed, classes) == parts


@settings(deadline=None)
@given(shares_of, st.integers(0, 1000), st.integers(1, 300))
def test_without_classes_the_sizes_are_the_shares(shares, seed, count):
    for share, part in zip(shares, split(shares, seed, [0] * count), strict=True):
        assert abs(len(part) - count * share) < 1


@settings(deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=60), st.permutations(range(6)), st.integers(0, 99))
def test_what_a_class_is_called_changes_nothing(classes, names, seed):
    shares = [Fraction(7, 10), Fraction(1, 5), Fraction(1, 10)]
    assert split(shares, seed, classes) == split(shares, seed, [names[number] for number in classes])


def test_many_small_classes_leave_no_part_empty():
    """Rounding each class by itself would give all of four samples a class to a part of 0.9."""
    classes = [number // 4 for number in range(4000)]
    parts = split([Fraction(9, 10), Fraction(1, 10)], 0, classes)
    assert list(map(len, parts)) == [3600, 400]


def test_chance_is_fair():
    count, shares = 40, [Fraction(3, 4), Fraction(1, 4)]
    hits = np.zeros(count)
    for seed in range(600):
        hits[split(shares, seed, [at % 4 for at in range(count)])[1]] += 1
    assert hits.min() > 600 / 4 * 0.7 and hits.max() < 600 / 4 * 1.3


def by_the_words(shares, seed, classes, groups=None):
    """The rule as the module's page tells it, sample by sample."""
    keys = np.random.PCG64(seed).random_raw(len(classes)).tolist()
    order = sorted(range(len(classes)), key=lambda at: (keys[at], at))
    parts: list[list[int]] = [[] for _ in shares]
    if groups is None:
        behind = [Fraction(0) for _ in shares]
        for number in dict.fromkeys(classes[at] for at in order):  # classes in the order of their smallest key
            mine = [at for at in order if classes[at] == number]
            counts = [int(len(mine) * share) for share in shares]
            behind = [late + len(mine) * share - count for late, share, count in zip(behind, shares, counts, strict=True)]
            rounded = [part for part, share in enumerate(shares) if len(mine) * share != counts[part]]
            for part in sorted(rounded, key=lambda part: -behind[part])[: len(mine) - sum(counts)]:
                counts[part] += 1
                behind[part] -= 1
            for part, count in enumerate(counts):
                parts[part] += mine[:count]
                mine = mine[count:]
    else:
        totals = Counter(classes)
        lacks = [{number: float(share) * total for number, total in totals.items()} for share in shares]
        for group in dict.fromkeys(groups[at] for at in order):
            mine = [at for at in order if groups[at] == group]
            counts_of = sorted(Counter(classes[at] for at in mine).items())
            wants = [reduce(lambda x, y: x + y, [c * lack[n] / totals[n] for n, c in counts_of], 0.0) for lack in lacks]
            part = wants.index(max(wants))
            parts[part] += mine
            for number, count in counts_of:
                lacks[part][number] -= count
    return [sorted(part) for part in parts]


@settings(deadline=None)
@given(shares_of, st.integers(0, 1000), st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), min_size=1, max_size=40))
def test_the_rule_is_the_one_that_is_told(shares, seed, rows):
    groups, classes = [group for group, _ in rows], [number for _, number in rows]
    assert split(shares, seed, classes) == by_the_words(shares, seed, classes)
    assert split(shares, seed, classes, np.array(groups)) == by_the_words(shares, seed, classes, groups)


def test_the_rule_of_version_1_is_kept_for_good():
    """These are facts of the first release; a change of them is a change of everybody's splits."""
    assert np.random.PCG64(0).random_raw(3).tolist() == [11749869230777074271, 4976686463289251617, 755828109848996024]
    shares, classes = [Fraction(1, 2), Fraction(3, 10), Fraction(1, 5)], [0, 0, 0, 0, 0, 1, 1, 1, 2, 2]
    assert split(shares, 0, classes) == [[1, 2, 3, 6, 8], [0, 7, 9], [4, 5]]
    assert split(shares, 7, classes, np.array([0, 0, 1, 1, 1, 2, 3, 3, 4, 4])) == [[2, 3, 4, 6, 7, 8, 9], [0, 1, 5], []]


# ------------------------------------------------------------------------------------------------ groups
rows = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 3)), min_size=1, max_size=60)


@settings(deadline=None)
@given(shares_of, st.integers(0, 1000), rows)
def test_groups_are_never_divided(shares, seed, given_rows):
    groups = np.array([group for group, _ in given_rows])
    classes = [number for _, number in given_rows]
    parts = split(shares, seed, classes, groups)
    assert sorted(at for part in parts for at in part) == list(range(len(classes)))
    assert all(part == sorted(part) for part in parts)
    homes = [{int(groups[at]) for at in part} for part in parts]
    assert sum(map(len, homes)) == len(set(groups.tolist()))
    assert split(shares, seed, classes, groups) == parts


def test_groups_keep_sizes_and_classes_as_well_as_they_can():
    rng = np.random.default_rng(3)
    sizes = rng.integers(1, 20, 400)
    groups = np.repeat(np.arange(400), sizes)
    classes = np.repeat(rng.integers(0, 4, 400), sizes)  # a speaker has one class
    parts = split_positions([Fraction(8, 10), Fraction(1, 10), Fraction(1, 10)], 1, classes, groups)
    for share, part in zip((0.8, 0.1, 0.1), parts, strict=True):
        assert abs(len(part) - share * len(classes)) < 4 * 20
        for number in range(4):
            assert abs((classes[part] == number).sum() - share * (classes == number).sum()) < 20


def test_each_sample_its_own_group_is_a_split_within_one():
    count = 500
    parts = split([Fraction(9, 10), Fraction(1, 10)], 5, [0] * count, np.arange(count))
    assert list(map(len, parts)) == [450, 50]


# ------------------------------------------------------------------------------------------------ shares and seeds
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((0.9,), [Fraction(9, 10), Fraction(1, 10)]),
        ((0.8, 0.1, 0.1), [Fraction(4, 5), Fraction(1, 10), Fraction(1, 10)]),
        ((0.8, 0.1), [Fraction(4, 5), Fraction(1, 10), Fraction(1, 10)]),
        ((1 / 3, 1 / 3, 1 / 3), [Fraction(1, 3)] * 3),
        ((0.7, 0.2, 0.1), [Fraction(7, 10), Fraction(1, 5), Fraction(1, 10)]),
        ((Fraction(1, 7),), [Fraction(1, 7), Fraction(6, 7)]),
    ],
)
def test_shares(given, expected):
    assert fractions_of(given) == expected


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            (),
            r"split takes the parts' shares, each between 0 and 1: expected .* or split\(0\.8, 0\.1, 0\.1\), got split\(\)",
        ),
        ((1.0,), r"got split\(1\.0\)"),
        ((0.5, 0.0), "each between 0 and 1"),
        ((-0.1,), "each between 0 and 1"),
        ((800, 200), "each between 0 and 1"),
        ((float("nan"),), "each between 0 and 1"),
        (("a",), r"each between 0 and 1: .*got split\('a'\)"),
        (("0.5",), "each between 0 and 1"),
        ((0.5, None), "each between 0 and 1"),
        ((np.array([0.5, 0.5]),), "each between 0 and 1"),
        ((0.8, 0.3), r"the parts' shares are more than 1 in all: got split\(0\.8, 0\.3\)"),
        ((1e-9,), "a share is finer than 1 in 1,000,000"),
        ((0.9999999999,), "a share is finer than 1 in 1,000,000"),
    ],
)
def test_shares_that_are_none(given, words):
    with pytest.raises(UsageError, match=words):
        fractions_of(given)


@pytest.mark.parametrize("seed", [-1, True, 1.5, "a", None])
def test_seeds_that_are_none(seed):
    with pytest.raises(UsageError, match="seed is a whole number from 0"):
        split([Fraction(1, 2)] * 2, seed, [0, 0])


def test_seeds_differ():
    found = {tuple(split([Fraction(1, 2)] * 2, seed, [0] * 20)[0]) for seed in (0, 1, 2, 2**64, np.int64(5))}
    assert len(found) == 5
