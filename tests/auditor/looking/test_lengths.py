import random

from fastfeed.auditor.looking import setcodes
from fastfeed.auditor.looking.lengths import LEAST, outliers


def usual(count, seed=0):
    source = random.Random(seed)
    return [max(1, int(source.lognormvariate(6, 0.5))) for _ in range(count)]


def test_usual_lengths_have_no_outliers():
    for seed in range(5):
        assert outliers(usual(3000, seed), "character") == {}


def test_far_longer_and_far_shorter():
    lengths = [*usual(500), 5_000_000, *usual(500, 1), 3]
    found = outliers(lengths, "token")
    assert sorted(found) == [500, 1001]
    assert found[500].code is setcodes.LENGTH_OUTLIER
    assert found[500].text.startswith("5,000,000 tokens; the median is ")


def test_equal_lengths_make_no_outlier_of_the_next():
    assert outliers([100] * 500 + [101, 130, 90], "token") == {}
    assert sorted(outliers([100] * 500 + [1100], "token")) == [500]


def test_empty_texts_and_small_sets():
    assert outliers([0] * 100 + [100] * 100, "token") == {}
    assert outliers([100] * (LEAST - 2) + [1_000_000], "token") == {}
    assert outliers([], "token") == {}
