"""What comes before a cache: of all that are there, and of nobody who is gone."""

import gc

from fastfeed.store.firstneeds import comes_first, needed_bytes


class Other:
    def __init__(self, size_bytes: int) -> None:
        self.needed_bytes = size_bytes


def test_the_needs_of_all_that_are_there_add_up():
    gc.collect()  # loaders of other tests
    before = needed_bytes()
    one, two = Other(5), Other(7)
    comes_first(one)
    comes_first(two)
    assert needed_bytes() == before + 12
    one.needed_bytes = 6  # more is known by now
    assert needed_bytes() == before + 13
    del one
    assert needed_bytes() == before + 7
    del two
    assert needed_bytes() == before
