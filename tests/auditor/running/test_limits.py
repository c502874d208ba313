import pytest

from fastfeed.auditor.running.limits import Limits, Spread, opening_seconds


def test_few_times_have_no_percentile():
    spread = Spread()
    for _ in range(19):
        spread.add(1.0)
    assert spread.percentile(0.99) is None
    spread.add(1.0)
    assert spread.percentile(0.99) == pytest.approx(1.0, rel=0.2)


def test_percentiles_within_a_fifth():
    spread = Spread()
    for millisecond in range(1, 1001):
        spread.add(millisecond / 1000)
    for share in (0.1, 0.5, 0.99):
        assert share <= (spread.percentile(share) or 0) <= 1.2 * share + 0.001
    spread.add(0.0)
    assert (spread.percentile(0.0) or 1) < 1e-5


def test_limits_follow_from_the_data():
    limits, quick, slow = Limits(), Spread(), Spread()
    for _ in range(100):
        quick.add(0.005)
        slow.add(20.0)
    assert (limits.speak_after(quick), limits.end_after(quick)) == (10.0, 600.0)
    assert limits.speak_after(slow) > 100 * 20 and limits.end_after(slow) > 1000 * 20


@pytest.mark.parametrize("count", [20, 100, 1000])
def test_one_slow_sample_or_two_do_not_give_the_others_hours(count):
    limits, spread = Limits(), Spread()
    for seconds in (60.0, 60.0, *[0.005] * (count - 2)):
        spread.add(seconds)
    assert (limits.speak_after(spread), limits.end_after(spread)) == (10.0, 600.0)


def test_a_given_limit_is_one():
    assert Limits(kill_seconds=2.5).end_after(Spread()) == 2.5


def test_opening_is_given_up_only_where_a_time_is_given_and_not_at_once():
    assert [opening_seconds(given) for given in (None, 2.0, 600.0)] == [None, 60.0, 600.0]


def test_limits_come_back_from_json_and_none_is_ten_minutes_and_all_memory():
    given = Limits(2.5, 1 << 30)
    assert Limits.from_json(given.as_json()) == given
    assert Limits().gives_more_time(given) and not given.gives_more_time(Limits()) and Limits(601.0).gives_more_time(Limits())
    assert Limits().gives_more_memory(given) and not given.gives_more_memory(Limits()) and not given.gives_more_memory(given)
