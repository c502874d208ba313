import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfeed.auditor.report.scale import linear_scale, log_scale

VALUES = st.lists(st.floats(1e-6, 1e12), min_size=1, max_size=20)


@given(VALUES, st.sampled_from([2, 4, 10]))
def test_all_values_and_ticks_lie_within(values, base):
    scale = log_scale(values, str, base)
    assert all(0 < scale.part(value) < 1 for value in values)
    assert all(0 <= scale.part(tick) <= 1 for tick in scale.ticks)
    assert 1 <= len(scale.ticks) <= 8


def test_a_factor_is_a_distance():
    scale = log_scale([1, 10, 1000], str)
    assert list(scale.ticks) == [1, 10, 100, 1000]
    steps = [scale.part(high) - scale.part(low) for low, high in zip(scale.ticks, scale.ticks[1:], strict=False)]
    assert steps == pytest.approx([steps[0]] * 3)


def test_one_value_lies_in_the_middle():
    scale = log_scale([5.0], str)
    assert scale.part(5.0) == pytest.approx(0.5)
    assert len(scale.ticks) >= 2


def test_where_powers_are_few_there_is_something_between_them():
    assert list(log_scale([0.003, 0.009], str).ticks) == pytest.approx([0.005, 0.01])
    assert list(log_scale([0.015, 0.85], str).ticks) == pytest.approx([0.02, 0.05, 0.1, 0.2, 0.5])
    assert list(log_scale([0.15, 2.5], str).ticks) == pytest.approx([0.2, 0.5, 1, 2])
    assert list(log_scale([1000, 5000], str, 4).ticks) == [1024, 4096]
    assert list(log_scale([1500, 3900], str, 4).ticks) == [2048, 4096]


@given(st.integers(1, 10**9))
def test_linear(high):
    scale = linear_scale(high, str)
    assert scale.ticks[0] == 0 and scale.ticks[-1] <= high
    assert 2 <= len(scale.ticks) <= 9
    assert 0 < scale.part(0) < scale.part(high) < 1
    assert math.isclose(scale.part(high / 2), 0.5)
