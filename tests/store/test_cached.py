"""A store in front of which blocks are kept: any read is the same as without; each block is fetched once."""

import os
import pickle
import random
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from caching import NAME, Counted, folder_of, other_process
from hypothesis import given, settings
from hypothesis import strategies as st

from fastfeed.errors import ShardDamaged
from fastfeed.store import cached
from fastfeed.store.base import Range
from fastfeed.store.cached import BLOCK_BYTES, CachedStore, block_count
from fastfeed.store.lease import Lease
from fastfeed.store.shelf import Room, Shelf
from fastfeed.trace import done_metering, metering

FILES = {"a": random.Random(1).randbytes(3 * BLOCK_BYTES + 5), "b": b"", "c": random.Random(2).randbytes(BLOCK_BYTES)}
SIZES = {name: len(data) for name, data in FILES.items()}
LARGE = Room(1 << 40)


def cache(
    place: Path, files: dict[str, bytes] | None = None, room: Room = LARGE, *, proves: bool = False
) -> tuple[CachedStore, Counted]:
    inner = Counted(FILES if files is None else files)
    return CachedStore(inner, Shelf(Lease(str(place), NAME, block_count(SIZES), about={})), SIZES, room, proves=proves), inner


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Iterator[CachedStore]:
    """One whose blocks come in as they are asked for."""
    made, _ = cache(tmp_path_factory.mktemp("place"))
    yield made
    assert made.shelf is not None
    made.shelf.close()


@st.composite
def a_range(draw: st.DrawFn) -> tuple[str, int, int]:
    name = draw(st.sampled_from(["a", "c", "b"]))
    one, other = draw(st.integers(0, SIZES[name])), draw(st.integers(0, SIZES[name]))
    return name, min(one, other), max(one, other)


@settings(deadline=None, max_examples=60)
@given(st.lists(a_range(), max_size=6))
def test_reads_are_those_of_the_store(store: CachedStore, asked):
    wishes = [Range(name, start, stop, memoryview(bytearray(stop - start))) for name, start, stop in asked]
    store.read_many(wishes)
    assert [bytes(wish.into) for wish in wishes] == [FILES[name][start:stop] for name, start, stop in asked]
    assert all(store.read(name, start, stop) == FILES[name][start:stop] for name, start, stop in asked)
    assert [store.size(name) for name in FILES] == list(SIZES.values())


def test_each_block_is_fetched_once_and_whole(tmp_path: Path):
    store, inner = cache(tmp_path)
    for _ in range(2):
        assert store.read("a", 10, BLOCK_BYTES + 10) == FILES["a"][10 : BLOCK_BYTES + 10]
        assert store.read("a", 5, 6) == FILES["a"][5:6]
    assert inner.asked == [("a", 0, BLOCK_BYTES), ("a", BLOCK_BYTES, 2 * BLOCK_BYTES)]
    other, behind = cache(tmp_path)  # another reader of the same cache
    assert other.read("a", 3, BLOCK_BYTES) == FILES["a"][3:BLOCK_BYTES] and not behind.asked


def test_what_is_kept_stays_and_of_the_rest_only_what_is_wanted_is_read(tmp_path: Path):
    store, inner = cache(tmp_path, room=Room(2 * BLOCK_BYTES + 100_000))
    for _ in range(2):
        for block in range(4):
            at = block * BLOCK_BYTES
            assert store.read("a", at, at + 5) == FILES["a"][at : at + 5]
    whole = [(start, stop) for _, start, stop in inner.asked if stop - start > 5]
    assert whole == [(0, BLOCK_BYTES), (BLOCK_BYTES, 2 * BLOCK_BYTES), (3 * BLOCK_BYTES, 3 * BLOCK_BYTES + 5)][: len(whole)]
    assert inner.asked.count(("a", 2 * BLOCK_BYTES, 2 * BLOCK_BYTES + 5)) == 2


def test_errors_are_the_stores(tmp_path: Path):
    short = {**FILES, "a": FILES["a"][: BLOCK_BYTES + 50]}
    store, inner = cache(tmp_path, short)
    for name, start, stop in (("a", BLOCK_BYTES + 40, BLOCK_BYTES + 60), ("a", 0, 4 * BLOCK_BYTES), ("no", 0, 1)):
        for _ in range(2):
            with pytest.raises(ShardDamaged) as found:
                store.read(name, start, stop)
            with pytest.raises(ShardDamaged) as wanted:
                inner.read(name, start, stop)
            assert str(found.value) == str(wanted.value)
    assert store.read("a", BLOCK_BYTES, BLOCK_BYTES + 50) == FILES["a"][BLOCK_BYTES : BLOCK_BYTES + 50]


def test_hits_and_misses_are_counted(tmp_path: Path):
    counters: dict[str, int] = {}

    class Meter:
        def span(self, stage: str, position: int):
            raise NotImplementedError

        def count(self, name: str, amount: int = 1) -> None:
            counters[name] = counters.get(name, 0) + amount

    store, _ = cache(tmp_path)
    token = metering(Meter())
    store.read("a", 0, 10)
    store.read("a", 20, 50)
    done_metering(token)
    assert counters.pop(cached.HIT_NS) > 0 and counters.pop(cached.FETCH_NS) > 0
    assert counters == {"cache misses": 1, "cache miss bytes": 10, "cache fetched bytes": BLOCK_BYTES, "cache hits": 1,
                        "cache hit bytes": 30}  # fmt: skip


def test_a_cache_that_is_taken_away_is_no_error(tmp_path: Path, caplog):
    store, inner = cache(tmp_path)
    store.read("a", 0, 10)
    shutil.rmtree(folder_of(tmp_path))
    assert store.read("a", 0, 10) == FILES["a"][:10]  # what is open is read on
    assert store.read("c", 7, 9) == FILES["c"][7:9]
    assert store.shelf is None and inner.asked[-1] == ("c", 7, 9)
    assert [record.getMessage() for record in caplog.records] == [
        "the cache cannot be used any more (No such file or directory): data is read without it, with the same results"
    ]


def test_a_cut_cache_is_fetched_again(tmp_path: Path):
    store, _ = cache(tmp_path)
    store.read("a", 0, 10)
    os.truncate(folder_of(tmp_path) / NAME / "data", 5)
    assert store.read("a", 0, 10) == FILES["a"][:10]


def test_damage_is_forgotten_and_read_anew(tmp_path: Path, caplog):
    store, _ = cache(tmp_path)
    store.read("a", 0, 10)
    data = folder_of(tmp_path) / NAME / "data"
    data.write_bytes(bytes(data.stat().st_size))
    assert store.read("a", 0, 10) == bytes(10)  # whoever knows checksums finds that out, and asks
    assert store.renewed("a", 0, 10) == FILES["a"][:10] == store.read("a", 0, 10)
    assert [record.getMessage() for record in caplog.records] == [
        "block 0 of a in the cache may be damaged: it is forgotten, and read again"
    ]
    assert store.renewed("c", 0, 10) == FILES["c"][:10]
    with pytest.raises(ShardDamaged):
        store.renewed("no", 0, 10)


def test_where_nobody_knows_checksums_a_block_is_proven_when_it_is_first_read(tmp_path: Path, caplog):
    first, _ = cache(tmp_path)
    for name in ("a", "c"):
        first.read(name, 0, SIZES[name])
    data = folder_of(tmp_path) / NAME / "data"
    data.write_bytes(bytes(data.stat().st_size))  # as after the power has failed: room was made, and nothing is in it
    second, inner = cache(tmp_path, proves=True)
    for _ in range(2):
        assert all(second.read(name, 0, SIZES[name]) == FILES[name] for name in FILES)
    assert len(inner.asked) == len(caplog.records) == 5 and "block 3 of a in the cache may be damaged" in caplog.text


def filled(store: CachedStore) -> int:
    """How many blocks it was asked to fetch, until it said that there is no more."""
    number, asked = 0, 0
    while (following := store.fill_from(number)) is not None:
        number, asked = following, asked + 1
    return asked


def test_filling_goes_from_the_first_byte_to_the_last(tmp_path: Path):
    store, inner = cache(tmp_path)
    store.read("a", BLOCK_BYTES, BLOCK_BYTES + 1)
    assert filled(store) == 5
    starts = [("a", 0), ("a", 2 * BLOCK_BYTES), ("a", 3 * BLOCK_BYTES), ("c", 0)]
    assert [(name, start) for name, start, _ in inner.asked[1:]] == starts
    asked = len(inner.asked)
    assert all(store.read(name, 0, size) == FILES[name] for name, size in SIZES.items()) and len(inner.asked) == asked
    assert filled(store) == 5 and len(inner.asked) == asked


def test_filling_ends_where_there_is_no_room(tmp_path: Path):
    store, inner = cache(tmp_path, room=Room(BLOCK_BYTES + 100_000))
    assert filled(store) == 1 and len(inner.asked) == 1


def test_it_pickles_as_the_store_behind(tmp_path: Path):
    store, _ = cache(tmp_path, room=LARGE)
    store.inner = Plain(FILES)
    assert isinstance(pickle.loads(pickle.dumps(store)), Plain)


class Plain(Counted):
    def __reduce__(self):
        return Plain, ({},)


SLOW = """
import sys, time
from caching import NAME, Counted
from fastfeed.store.cached import CachedStore, block_count
from fastfeed.store.lease import Lease
from fastfeed.store.shelf import Room, Shelf

class Slow(Counted):
    def read_many(self, ranges):
        if ranges[0].name == "c":
            print("fetching", flush=True)
            time.sleep(float(sys.argv[2]))
        super().read_many(ranges)

sizes = {"a": 3 * (1 << 20) + 5, "b": 0, "c": 1 << 20}
inner = Slow({name: bytes([7]) * size for name, size in sizes.items()})
store = CachedStore(inner, Shelf(Lease(sys.argv[1], NAME, block_count(sizes), about={})), sizes, Room(1 << 40))
store.read("c", 0, 5)
print("done", flush=True)
sys.stdin.read()
"""


def test_a_block_that_another_process_fetches_is_waited_for(tmp_path: Path):
    with other_process(SLOW, tmp_path, 0.3):
        store, inner = cache(tmp_path)
        assert store.read("c", 0, 5) == bytes([7]) * 5
        assert not inner.asked


def test_when_that_process_is_stopped_the_bytes_are_read_past_it(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(cached, "WAIT_SECONDS", 0.1)
    with other_process(SLOW, tmp_path, 60) as process:
        process.send_signal(signal.SIGSTOP)
        store, inner = cache(tmp_path)
        assert store.read("c", 0, 5) == FILES["c"][:5]
        assert inner.asked == [("c", 0, 5)]


def test_when_that_process_is_killed_the_block_is_fetched_here(tmp_path: Path):
    with other_process(SLOW, tmp_path, 60) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        store, inner = cache(tmp_path)
        assert store.read("c", 0, 5) == FILES["c"][:5]
        assert inner.asked == [("c", 0, BLOCK_BYTES)]
