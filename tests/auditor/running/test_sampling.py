from itertools import islice
from math import comb

import pytest

from fastfeed.auditor.running.sampling import at_most, positions


def test_all_in_order():
    assert positions(5, sample=None, shuffled=False, seed=0) == range(5)
    assert positions(5, sample=9, shuffled=False, seed=0) == range(5)


def test_a_part_is_drawn_without_repeats_and_the_same_each_time():
    drawn = list(positions(1000, sample=50, shuffled=False, seed=3))
    assert len(set(drawn)) == 50 and drawn == sorted(drawn) and max(drawn) < 1000
    assert drawn == list(positions(1000, sample=50, shuffled=False, seed=3))
    assert drawn != list(positions(1000, sample=50, shuffled=False, seed=4))


def test_shuffled_has_all():
    order = list(positions(100, sample=None, shuffled=True, seed=0))
    assert sorted(order) == list(range(100)) != order
    assert order == list(positions(100, sample=None, shuffled=True, seed=0))
    assert list(positions(100, sample=10, shuffled=True, seed=0)) != sorted(positions(100, sample=10, shuffled=True, seed=0))


def test_the_order_of_very_many_is_not_kept():
    order = iter(positions(10**11, sample=None, shuffled=True, seed=0))
    first = list(islice(order, 20_000))
    assert len(set(first)) == 20_000 and max(first) < 10**11
    assert 0.4e11 < sum(first) / 20_000 < 0.6e11


def test_none_bad_of_3000():
    assert at_most(0, 3000) == pytest.approx(1 - 0.05 ** (1 / 3000))
    assert at_most(0, 3000) < 0.001


@pytest.mark.parametrize(("bad", "audited"), [(0, 10), (1, 20), (7, 100), (99, 100)])
def test_the_bound_is_where_so_few_become_unlikely(bad, audited):
    share = at_most(bad, audited)
    few = sum(comb(audited, k) * share**k * (1 - share) ** (audited - k) for k in range(bad + 1))
    assert few == pytest.approx(0.05)
    assert bad / audited < share < 1


def test_all_bad():
    assert at_most(3, 3) == 1.0
