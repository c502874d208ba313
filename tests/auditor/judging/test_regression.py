"""A line that wild values do not move."""

import numpy as np
import pytest

from fastfeed.auditor.judging.regression import SCALE_FLOOR, level_line, robust_line, robust_scale


def scattered(seed, count, scatter=0.13):
    random = np.random.default_rng(seed)
    x = np.column_stack([random.normal(10, 0.6, count), np.zeros(count)])
    x[:, 1] = x[:, 0] * 0.9 + 3 + random.normal(0, 0.3, count)
    return x, 0.5 * x[:, 0] + 0.4 * x[:, 1] - 12 + random.normal(0, scatter, count)


@pytest.mark.parametrize("seed", range(5))
def test_a_fifth_of_wild_values_moves_nothing(seed):
    x, y = scattered(seed, 1000)
    y[:200] += 4.0
    line = robust_line(x, y)
    assert line.slopes.tolist() == pytest.approx([0.5, 0.4], abs=0.07)
    assert 0.1 <= line.scale < 0.2
    assert (line.z(x, y)[:200] > 15).all()
    assert (np.abs(line.z(x, y)[200:]) < 6).all()


def test_of_very_many_some_are_enough():
    x, y = scattered(1, 60_000)
    line = robust_line(x, y)
    assert line.slopes.tolist() == pytest.approx([0.5, 0.4], abs=0.02)


def test_equal_times_have_a_floor_of_scatter():
    x, _ = scattered(2, 100)
    y = np.full(100, -5.0)
    y[7] += 0.3
    line = robust_line(x, y)
    assert line.scale == SCALE_FLOOR
    assert line.slopes.tolist() == pytest.approx([0, 0], abs=0.01)
    assert line.z(x, y)[7] == pytest.approx(3.0, rel=0.05)


def test_a_size_that_never_varies_has_no_slope():
    x, y = scattered(3, 200)
    x[:, 1] = 7.0
    line = robust_line(x, y)
    assert line.slopes[1] == 0.0
    assert np.isfinite(line.leverage).all()


def test_sizes_that_vary_alike_share_the_slope():
    x, _ = scattered(4, 200)
    x[:, 1] = x[:, 0]
    line = robust_line(x, 0.8 * x[:, 0])
    assert line.slopes.tolist() == pytest.approx([0.4, 0.4], abs=1e-6)


def test_far_from_the_samples_the_line_is_less_sure():
    x, y = scattered(5, 40)
    line = robust_line(x, y)
    near, far = x[:1], x[:1] + 5.0
    high = 1.0
    assert line.z(far, line.expected(far) + high)[0] < line.z(near, line.expected(near) + high)[0] * 0.9


def test_a_level_with_given_slopes():
    x = np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0], [3.0, 3.0]])
    y = np.array([0.0, 1.0, 2.0, 9.0])
    line = level_line(x, y, np.array([0.5, 0.5]))
    assert line.expected(x).tolist() == pytest.approx([0, 1, 2, 3])
    assert line.z(x, y)[3] > 6


def test_the_scale_does_not_see_wild_values():
    assert robust_scale(np.array([-1.0, 0.0, 1.0, 1e9])) < 3
    assert robust_scale(np.zeros(5)) == SCALE_FLOOR
