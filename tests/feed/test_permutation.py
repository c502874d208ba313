"""The permutation: one for every size, as random as a shuffle, the same on every machine and in every release."""

import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fastfeed.errors import UsageError
from fastfeed.feed.permutation import MAX_SIZE, TABLE_SIZE, Network, Permutation, key_of, mixed


def sigmas(observed: NDArray[np.int64], expected: NDArray[np.float64]) -> float:
    """A chi-square statistic's distance from its mean, in standard deviations."""
    degrees = len(observed) - 1
    return float((((observed - expected) ** 2 / expected).sum() - degrees) / math.sqrt(2 * degrees))


def elements(size: int, places: list[int], seeds: int, *, table: bool = False) -> NDArray[np.int64]:
    """Elements at places for many seeds; shape (seeds, places)."""
    at = np.array(places)
    return np.stack([(Permutation(size, seed) if table else Network(size, key_of(seed, 0))).take(at) for seed in range(seeds)])


# ---------------------------------------------------------------------------------------------------- a permutation
def test_small_sizes_are_permutations():
    for size in range(301):
        assert sorted(Permutation(size, seed=size)[:].tolist()) == list(range(size))


def test_the_network_is_a_permutation_of_small_sizes():
    for size in range(1, 301):
        assert sorted(Network(size, key_of(size)).take(np.arange(size)).tolist()) == list(range(size))


@pytest.mark.parametrize("size", [TABLE_SIZE, TABLE_SIZE + 1, 65_536, 99_991, 1_000_000])
def test_larger_sizes_are_permutations(size):
    assert np.array_equal(np.sort(Permutation(size, 7, 3)[:]), np.arange(size))


@given(size=st.integers(1, MAX_SIZE), seed=st.integers(-(2**70), 2**70), epoch=st.integers(0, 2**40), data=st.data())
def test_no_element_comes_twice(size, seed, epoch, data):
    start = data.draw(st.integers(0, size - 1))
    found = Permutation(size, seed, epoch)[start : start + 300]
    assert found.dtype == np.int64
    assert len(set(found.tolist())) == len(found) == min(300, size - start)
    assert found.min() >= 0 and found.max() < size


def test_the_largest_size():
    perm = Permutation(MAX_SIZE, 0)
    found = perm[MAX_SIZE - 20_000 :]
    assert len(np.unique(found)) == 20_000
    assert 0.45 < found.mean() / MAX_SIZE < 0.55


@given(size=st.integers(1, 50_000), data=st.data())
def test_it_is_read_like_a_list(size, data):
    perm = Permutation(size, 5, 1)
    whole = perm[:].tolist()
    place = data.draw(st.integers(-size, size - 1))
    start, stop = (data.draw(st.none() | st.integers(-size - 2, size + 2)) for _ in range(2))
    step = data.draw(st.sampled_from([None, 1, 3, -1, -2]))
    assert perm[place] == whole[place]
    assert isinstance(perm[place], int)
    assert perm[start:stop:step].tolist() == whole[start:stop:step]
    places = np.array([[0, place], [size - 1, -1]])
    assert perm[places].tolist() == np.array(whole)[places].tolist()
    assert len(perm) == size


@pytest.mark.parametrize("size", [0, 1, 100, TABLE_SIZE + 1])
def test_no_such_place(size):
    perm = Permutation(size, 0)
    for place in (size, -size - 1, 2**50):
        with pytest.raises(IndexError, match=f"outside of a permutation of {size} elements"):
            perm[place]
    with pytest.raises(IndexError, match="outside of a permutation"):
        perm[np.array([0, size])]
    assert perm[np.empty(0, dtype=np.int64)].tolist() == []


@pytest.mark.parametrize("size", [-1, MAX_SIZE + 1])
def test_no_such_size(size):
    with pytest.raises(UsageError, match=r"a permutation has 0 to 2\^40 elements: got"):
        Permutation(size, 0)


def test_it_keeps_no_list():
    assert len(pickle.dumps(Permutation(10**12, 1))) < 2000
    assert repr(Permutation(10**12, 1, 4)) == "Permutation(1000000000000, seed=1, epoch=4)"


# ---------------------------------------------------------------------------------------------------- the same for ever
PINNED = {
    (20, 0, 0): [16, 15, 4, 17, 19, 14],
    (20, 0, 1): [0, 15, 11, 6, 1, 10],
    (1000, 42, 3): [133, 799, 741, 456, 303, 919],
    (16384, -1, 0): [9172, 4965, 10079, 4991, 12598, 14306],
    (16385, 0, 0): [11777, 4953, 11543, 7324, 801, 15999],
    (1281167, 42, 7): [1109390, 241033, 781785, 469845, 1021303, 740316],
    (1099511627776, 1, 2): [16996694176, 559192934325, 261806067978, 745340675420, 192929963614, 776435969172],
}
"""(size, seed, epoch) -> the first elements: a checkpoint of an earlier release goes on with these."""


def test_the_numbers_never_change():
    assert mixed(1) == 0x5692161D100B05E5
    assert key_of(0, 0) == 0xA706DD2F4D197E6F
    for (size, seed, epoch), numbers in PINNED.items():
        assert Permutation(size, seed, epoch)[:6].tolist() == numbers


def test_splitmix64_is_the_published_one():
    """The first words for the seed 1234567, as in the reference implementation's test vectors."""
    golden, state = 0x9E3779B97F4A7C15, 1234567
    words = [mixed(state + (number + 1) * golden) for number in range(3)]
    assert words == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_seeds_are_words():
    assert Permutation(1000, -1)[:].tolist() == Permutation(1000, 2**64 - 1)[:].tolist()
    assert Permutation(1000, 2**64 + 3)[:].tolist() == Permutation(1000, 3)[:].tolist()


def test_seed_and_epoch_do_not_add_up():
    """torch's DistributedSampler seeds with seed + epoch: there, epoch 1 of seed 0 is epoch 0 of seed 1."""
    for size in (1000, 100_000):
        assert Permutation(size, 0, 1)[:].tolist() != Permutation(size, 1, 0)[:].tolist()


# ---------------------------------------------------------------------------------------------------- as random as a shuffle
def test_each_order_of_four_is_equally_likely():
    seeds = 24_000
    found = np.stack([Permutation(4, seed)[:] for seed in range(seeds)]) @ np.array([64, 16, 4, 1])
    orders, counts = np.unique(found, return_counts=True)
    assert len(orders) == 24
    assert abs(sigmas(counts, np.full(24, seeds / 24))) < 4


@pytest.mark.long
@pytest.mark.parametrize(("size", "table"), [(300, True), (300, False), (4097, False), (20_000, False), (10**9, False)])
def test_places_and_pairs_are_uniform(size, table):
    """Over seeds: where the elements at some places go, and how far apart those of two places are, near and far."""
    seeds, bins = 10_000, 50
    found = elements(size, [0, 1, 2, size // 2, size // 2 + 1, size - 2, size - 1], seeds, table=table)

    def shares(total: int) -> NDArray[np.float64]:
        edges = -(-np.arange(bins + 1) * total // bins)  # element e is in bin e * bins // total
        return np.diff(edges) * seeds / total

    for place in range(found.shape[1]):
        assert abs(sigmas(np.bincount(found[:, place] * bins // size, minlength=bins), shares(size))) < 4
    for one, other in ((1, 0), (2, 1), (2, 0), (4, 3), (6, 5), (6, 0), (3, 0)):
        apart = (found[:, one] - found[:, other]) % size - 1
        assert abs(sigmas(np.bincount(apart * bins // (size - 1), minlength=bins), shares(size - 1))) < 4


def test_the_test_of_pairs_sees_too_few_rounds():
    """What test_places_and_pairs_are_uniform looks at tells a network of 4 rounds from a shuffle, but not one of 6."""

    def far_apart(rounds: int) -> float:
        found = np.stack([Network(4097, key_of(seed, 0), rounds).take(np.array([0, 4096])) for seed in range(10_000)])
        apart = (found[:, 1] - found[:, 0]) % 4097 - 1
        return sigmas(np.bincount(apart * 50 // 4096, minlength=50), np.full(50, 200.0))

    assert far_apart(4) > 6
    assert abs(far_apart(6)) < 4


@pytest.mark.parametrize("size", [10_007, 100_003])
def test_one_order_looks_like_a_shuffle(size):
    """Of one permutation: rises, pairs out of order, displacement, correlation of neighbours; each by its known mean."""
    for seed in range(3):
        order = Permutation(size, seed, 1)[:]
        rises = int((np.diff(order) > 0).sum())
        assert abs(rises - (size - 1) / 2) < 5 * math.sqrt((size + 1) / 12)
        displacement = np.abs(order - np.arange(size)).mean() / size
        assert abs(displacement - 1 / 3) < 5 / math.sqrt(size) * 0.3
        for lag in (1, 2, 100):
            assert abs(np.corrcoef(order[lag:], order[:-lag])[0, 1]) < 5 / math.sqrt(size)
        sample = order[:2000]
        inverted = int((sample[:, None] > sample[None, :])[np.triu_indices(2000, 1)].sum())
        mean, deviation = 2000 * 1999 / 4, math.sqrt(2000 * 1999 * 4005 / 72)
        assert abs(inverted - mean) < 5 * deviation


@pytest.mark.parametrize("size", [1000, 50_000])
def test_fixed_points_are_one_on_average(size):
    fixed = [int((Permutation(size, seed, 2)[:] == np.arange(size)).sum()) for seed in range(300)]
    assert abs(np.mean(fixed) - 1) < 5 / math.sqrt(300)
    assert abs(np.var(fixed) - 1) < 1


@pytest.mark.parametrize("size", [1000, 50_000])
def test_epochs_and_seeds_are_unrelated(size):
    first = Permutation(size, 4, 0)[:]
    for other in (Permutation(size, 4, 1), Permutation(size, 5, 0), Permutation(size + 1, 4, 0)):
        second = other[: size - 1]
        assert abs(np.corrcoef(first[: size - 1], second)[0, 1]) < 5 / math.sqrt(size)
