"""fastfeed/store/base.py: what the protocol says holds for each store that there is."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastfeed.errors import ShardDamaged
from fastfeed.store.base import Range, Store
from fastfeed.store.local import LocalStore
from fastfeed.store.memory import MemoryStore

FILES = {"a.tar": bytes(range(256)) * 40, "b.tar": b"short", "empty.tar": b""}


@pytest.fixture(scope="module", params=["local", "memory"])
def store(request, tmp_path_factory) -> Store:
    """Each kind of store, over the same three files."""
    if request.param == "memory":
        return MemoryStore(FILES)
    folder = tmp_path_factory.mktemp("store")
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    return LocalStore(str(folder))


def test_sizes(store):
    assert {name: store.size(name) for name in FILES} == {name: len(content) for name, content in FILES.items()}


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(FILES)), st.data())
def test_a_range_is_half_open(store, name, data):
    start = data.draw(st.integers(0, len(FILES[name])))
    stop = data.draw(st.integers(start, len(FILES[name])))
    assert store.read(name, start, stop) == FILES[name][start:stop]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["a.tar", "b.tar"]), st.integers(0, 5), st.integers(0, 5)), max_size=6))
def test_read_many_fills_each_buffer_and_no_byte_more(store, wanted):
    buffers = [bytearray(b"\xee" * 8) for _ in wanted]
    ranges = [
        Range(name, min(first, second), max(first, second), memoryview(buffer)[1 : 1 + abs(first - second)])
        for (name, first, second), buffer in zip(wanted, buffers, strict=True)
    ]
    store.read_many(ranges)
    for wish, buffer in zip(ranges, buffers, strict=True):
        size = wish.stop - wish.start
        assert bytes(buffer) == b"\xee" + FILES[wish.name][wish.start : wish.stop] + b"\xee" * (7 - size)


def test_a_file_that_is_not_there(store):
    for call in (lambda: store.size("none.tar"), lambda: store.read("none.tar", 0, 1)):
        with pytest.raises(
            ShardDamaged, match=r"a shard cannot be opened: no such file .*shard none.tar|No such file"
        ) as caught:
            call()
        assert caught.value.shard == "none.tar"
    with pytest.raises(ShardDamaged, match="a shard cannot be opened"):
        store.read_many([Range("none.tar", 0, 1, memoryview(bytearray(1)))])


@pytest.mark.parametrize(("start", "stop", "got"), [(0, 6, 5), (4, 9, 1), (5, 6, 0), (50, 60, 0)])
def test_a_file_that_ends_too_early(store, start, stop, got):
    text = rf"a shard ends too early: it was cut .*shard b.tar, bytes \[{start}, {stop}\)\): expected {stop - start}, got {got}"
    with pytest.raises(ShardDamaged, match=text):
        store.read("b.tar", start, stop)
    with pytest.raises(ShardDamaged, match=text):
        store.read_many([Range("b.tar", start, stop, memoryview(bytearray(stop - start)))])
