import random
import re

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
    assert re.fullmatch(r"5,000,000 tokens, 1\d,\d{3} times the median of all texts, which is 410", found[500].text)
    assert re.fullmatch(r"3 tokens, 1/137 of the median of all texts, which is 410", found[1001].text)


def test_a_kind_of_longer_texts_is_no_outlier_and_what_is_longer_still_is():
    articles = [30 * (300 + length // 4) for length in usual(100, 7)]
    assert outliers([*usual(2000), *articles], "character") == {}
    assert sorted(outliers([*usual(2000), *articles, 3_000_000], "character")) == [2100]


def test_the_end_of_a_tail_is_no_outlier():
    assert outliers([*usual(500), *(int(4000 * 1.1**step) for step in range(20))], "character") == {}


def test_tokens_have_a_code_of_their_own():
    found = outliers([100] * 50 + [90_000], "token", setcodes.TOKENS_OUTLIER)
    assert [finding.code for finding in found.values()] == [setcodes.TOKENS_OUTLIER]


def test_equal_lengths_make_no_outlier_of_the_next():
    assert outliers([100] * 500 + [101, 130, 90], "token") == {}
    assert sorted(outliers([100] * 500 + [1100], "token")) == [500]


def test_empty_texts_and_small_sets():
    assert outliers([0] * 100 + [100] * 100, "token") == {}
    assert outliers([100] * (LEAST - 2) + [1_000_000], "token") == {}
    assert outliers([], "token") == {}
