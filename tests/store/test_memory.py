"""fastfeed/store/memory.py: the fake is a store as the others are (test_base.py), over a mapping that may change."""

import pytest

from fastfeed.errors import ShardDamaged
from fastfeed.store.base import Range
from fastfeed.store.memory import MemoryStore


def test_it_reads_what_the_mapping_holds_now():
    files = {"a.tar": b"before"}
    store = MemoryStore(files)
    assert store.read("a.tar", 0, 6) == b"before"
    files["a.tar"] = b"after!"
    assert store.read("a.tar", 0, 6) == b"after!"
    del files["a.tar"]
    with pytest.raises(ShardDamaged, match=r"no such file \(shard a.tar\)"):
        store.size("a.tar")


def test_a_buffer_of_another_length_is_refused():
    with pytest.raises(ValueError, match=r"different structures|cannot modify size"):
        MemoryStore({"a": b"xyz"}).read_many([Range("a", 0, 3, memoryview(bytearray(2)))])
