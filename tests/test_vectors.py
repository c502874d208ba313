from array import array
from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from fastfeed import vectors

large = st.integers(0, 8 << 30)
columns = st.lists(large, max_size=9)


@given(st.integers(0, 99), st.integers(0, 99), st.integers(1, 5))
def test_counting(start, stop, step):
    assert vectors.counting("Q", start, stop, step) == array("Q", range(start, stop, step))
    assert vectors.counting("q", start, stop).typecode == "q"


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=1, max_size=9), st.data())
def test_taken(values, data):
    rows = data.draw(st.lists(st.integers(-1, len(values) - 1)))
    for given_rows in (rows, array("q", rows)):
        assert vectors.taken(array("q", values), given_rows) == array("q", [values[row] for row in rows])
    assert vectors.taken(array("q", values), range(len(values))) == array("q", values)
    assert vectors.taken(array("H", [7, 8]), [1]).typecode == "H"


def test_filled():
    column = array("q", [10, 11, 12, 13])
    assert vectors.filled(column, array("q", [5, -1, 6, -1]), array("q", [1, 2])) == array("q", [10, 1, 12, 2])
    assert column == array("q", [10, 11, 12, 13])


@given(columns)
def test_sums(values):
    assert vectors.total(array("Q", values)) == sum(values)
    assert vectors.running(array("Q", values), 512) == array("Q", accumulate(values, initial=512))
    assert vectors.rounded_up(array("Q", values), 512, 512) == array("Q", [-(-(v + 512) // 512) * 512 for v in values])
    assert vectors.differences(array("Q", accumulate(values, initial=0))) == array("Q", values)
    if values:
        assert vectors.largest(array("Q", values)) == max(values)


def test_is_run():
    assert all(vectors.is_run(array("q", run)) for run in ([], [3], [3, 4, 5]))
    assert not any(vectors.is_run(array("q", other)) for other in ([3, 5], [4, 3], [3, 3], [3, 4, 4]))
