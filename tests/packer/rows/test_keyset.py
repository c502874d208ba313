import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from fastfeed.packer.rows.keyset import KeySet


@given(st.lists(st.text(max_size=3)))
def test_keys_are_met_once(keys):
    found, known = KeySet(), set()
    for key in keys:
        assert found.add(key) is (key.lower() not in known)
        known.add(key.lower())
    assert len(found) == len(known)


def test_many_keys_take_little_memory():
    found = KeySet()
    tracemalloc.start()
    for number in range(40_000):
        assert found.add(f"some/long/folder/{number:09d}")
    size, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < 25 * 40_000 and peak < 40 * 40_000
    assert not found.add("SOME/long/folder/000000007")
    assert len(found) == 40_000
