import pytest

from fastfeed.auditor.running.pace import FIRST_AHEAD, MOST_AHEAD, ahead_of, gather_seconds


@pytest.mark.parametrize(
    ("seconds", "ahead"), [(None, FIRST_AHEAD), (1e-6, MOST_AHEAD), (0.001, MOST_AHEAD), (0.01, 20), (0.1, 2), (3.0, 1)]
)
def test_the_longer_samples_take_the_fewer_a_child_has(seconds, ahead):
    assert ahead_of(seconds) == ahead


@pytest.mark.parametrize("seconds", [1e-6, 1e-4, 0.002, 0.02])
def test_no_child_runs_out_of_work_while_answers_are_gathered(seconds):
    assert 0 < gather_seconds(seconds) <= seconds * ahead_of(seconds) / 4


@pytest.mark.parametrize("seconds", [None, 0.05, 3.0])
def test_answers_that_come_seldom_are_taken_in_at_once(seconds):
    assert gather_seconds(seconds) == 0
