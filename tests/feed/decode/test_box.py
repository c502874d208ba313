"""Parts of images."""

import pytest

from fastfeed.feed.decode.box import Box, around


def test_a_box_ends_behind_its_last_pixels():
    assert (Box(1, 2, 30, 40).bottom, Box(1, 2, 30, 40).right) == (31, 42)


@pytest.mark.parametrize(("boxes", "expected"), [
    ([Box(3, 4, 5, 6)], Box(3, 4, 5, 6)),
    ([Box(0, 0, 9, 9), Box(2, 3, 1, 1)], Box(0, 0, 9, 9)),
    ([Box(5, 1, 2, 3), Box(1, 8, 3, 2), Box(4, 4, 1, 1)], Box(1, 1, 6, 9)),
])  # fmt: skip
def test_the_box_around_others(boxes, expected):
    assert around(boxes) == expected
