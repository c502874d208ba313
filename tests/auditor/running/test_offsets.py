import random
import tracemalloc

import pytest

from fastfeed.auditor.running.offsets import Offsets


@pytest.mark.parametrize("reach", [500, 200_000, 10**15])
def test_it_is_a_dictionary_in_order(reach):
    draw, found, same = random.Random(reach), Offsets(), dict[int, int]()
    for at in range(3000):
        index = draw.randrange(reach)
        found[index] = same[index] = at
    assert list(found) == sorted(same) and len(found) == len(same)
    assert all(found[index] == at and index in found for index, at in same.items())
    assert not any(index in found for index in range(500) if index not in same)
    for index in sorted(same)[::7]:
        found.drop(index)
        del same[index]
        assert index not in found
    assert list(found) == sorted(same) and len(found) == len(same)
    assert found.drop_from(reach // 2) == sum(index >= reach // 2 for index in same)
    assert list(found) == [index for index in sorted(same) if index < reach // 2] and len(found) == len(list(found))


def test_what_was_far_is_met_again_when_the_rest_has_come_near():
    found = Offsets()
    found[100_000] = 7
    for index in range(100_000):
        found[index] = index
    assert found[100_000] == 7 and len(found) == 100_001 and list(found) == list(range(100_001))


def test_a_few_of_very_many_take_no_memory():
    tracemalloc.start()
    try:
        found = Offsets()
        for index in range(1000):
            found[index * 10**12] = index
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_position_that_has_none():
    with pytest.raises(KeyError):
        Offsets()[3]
    assert 3 not in Offsets() and len(Offsets()) == 0
