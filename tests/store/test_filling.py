"""The background filling of a cache: one process does it, until there is nothing left to do, and nothing of it is left."""

import gc
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from caching import NAME, Counted, caches_in, other_process

from fastfeed.store import filling as module
from fastfeed.store.base import Range
from fastfeed.store.cached import BLOCK_BYTES, CachedStore, block_count
from fastfeed.store.filling import Filled, Filling
from fastfeed.store.lease import Lease
from fastfeed.store.shelf import Room, Shelf

SIZES = {"a": 5 * BLOCK_BYTES, "b": BLOCK_BYTES + 1}


class Gated(Counted):
    """Files whose reading waits until it may go on."""

    def __init__(self) -> None:
        super().__init__({name: bytes([size % 251]) * size for name, size in SIZES.items()})
        self.gate = threading.Event()

    def read_many(self, ranges: Sequence[Range]) -> None:
        super().read_many(ranges)
        assert self.gate.wait(60)


def cache(place: Path, room: Room = Room(1 << 40)) -> tuple[CachedStore, Gated]:  # noqa: B008 - frozen
    inner = Gated()
    return CachedStore(inner, Shelf(Lease(str(place), NAME, block_count(SIZES), about={})), SIZES, room), inner


def until(done) -> None:
    deadline = time.monotonic() + 60
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_all_of_it_in_order(tmp_path: Path):
    store, inner = cache(tmp_path)
    inner.gate.set()
    filling = Filling(store)
    until(lambda: not filling.runs)
    assert [(name, start) for name, start, _ in inner.asked] == [
        *(("a", number * BLOCK_BYTES) for number in range(5)), ("b", 0), ("b", BLOCK_BYTES),
    ]  # fmt: skip
    found = filling.filled
    assert (found.pieces, found.fetched_bytes, found.state) == (7, sum(SIZES.values()), "it came to the end")
    assert str(found).startswith("7 pieces (6.0 MiB) fetched in the background in ")
    assert store.read("b", 5, BLOCK_BYTES + 1) == inner.files["b"][5:] and len(inner.asked) == 7


def test_nothing_is_told_in_no_figures():
    assert (
        str(Filled(pieces=0, fetched_bytes=0, fetch_seconds=0, state="it goes on"))
        == "nothing fetched in the background (it goes on)"
    )


def test_reads_go_on_beside_it(tmp_path: Path):
    store, inner = cache(tmp_path)
    filling = Filling(store)
    until(lambda: inner.asked)  # it waits in the midst of the first block
    inner.gate.set()
    assert store.read("b", 0, 10) == inner.files["b"][:10]
    until(lambda: not filling.runs)
    assert len(inner.asked) == len(set(inner.asked)) == 7


def test_it_ends_with_the_store_and_the_cache_goes(tmp_path: Path):
    store, inner = cache(tmp_path)
    store.filling = filling = Filling(store)
    until(lambda: inner.asked)
    del store
    gc.collect()
    assert caches_in(tmp_path) == [NAME]  # the block that is being fetched is still wanted
    inner.gate.set()
    until(lambda: not filling.runs)
    assert len(inner.asked) < 7 and not list(tmp_path.iterdir())


def test_it_can_be_stopped_and_ends_where_there_is_no_room(tmp_path: Path):
    store, inner = cache(tmp_path, Room(3 * BLOCK_BYTES))
    inner.gate.set()
    filling = Filling(store)
    until(lambda: not filling.runs)
    assert 1 <= len(inner.asked) <= 3 and filling.filled.state == "it ended where there was no more room"
    filling.stop()
    filling.stop()
    assert not filling.runs


class Busy:
    """Ten pieces, each of so many seconds of processor time and of waiting."""

    entries = 10

    def __init__(self, shelf: Shelf, busy_seconds: float, waits_seconds: float) -> None:
        self.shelf, self.busy_seconds, self.waits_seconds = shelf, busy_seconds, waits_seconds

    def fill_from(self, number: int) -> int | None:
        began = time.thread_time()
        while time.thread_time() - began < self.busy_seconds:
            pass
        time.sleep(self.waits_seconds)
        return number + 1 if number < self.entries else None


def test_it_rests_as_its_share_of_a_processor_asks_for_and_not_where_it_has_waited(tmp_path: Path):
    shelf, rests = Shelf(Lease(str(tmp_path), NAME, 1, about={})), []

    def is_ended(seconds: float) -> bool:
        rests.append(seconds)
        return False

    found = []
    for busy_seconds, waits_seconds, share in ((0.01, 0.0, 0.005), (0.001, 0.1, 0.1)):
        rests.clear()
        module.fill(lambda: Busy(shelf, busy_seconds, waits_seconds), [0] * module.SUMS, is_ended, share=share)  # noqa: B023
        found.append(rests[-10:])
    assert all(0 < seconds < 10 for seconds in found[0])  # 2 s, less what the piece took on a machine that may be busy
    assert not any(found[1])
    shelf.close()


TURNS = """
import sys
from caching import NAME
from fastfeed.store.lease import Lease
from fastfeed.store.shelf import Shelf
shelf = Shelf(Lease(sys.argv[1], NAME, 7, about={}))
print(shelf.take_turn() is not None, flush=True)
sys.stdin.read()
"""


def test_one_process_at_a_time_and_another_takes_over(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(module, "_TURN_SECONDS", 0.01)
    with other_process(TURNS, tmp_path) as process:
        store, inner = cache(tmp_path)
        inner.gate.set()
        filling = Filling(store)
        until(lambda: filling.filled.state == "another process does it")
        time.sleep(0.1)  # in which it could fetch all, if it did not wait
        assert filling.runs and not inner.asked
        process.kill()
        process.wait()
        until(lambda: not filling.runs)
    assert len(inner.asked) == 7


ENDS = """
import sys
from caching import NAME, Counted
from fastfeed.store.cached import CachedStore, block_count
from fastfeed.store.filling import Filling
from fastfeed.store.lease import Lease
from fastfeed.store.shelf import Room, Shelf
sizes = {"a": 200 << 20}
shelf = Shelf(Lease(sys.argv[1], NAME, block_count(sizes), about={}))
store = CachedStore(Counted({"a": bytes(200 << 20)}), shelf, sizes, Room(1 << 40))
store.filling = Filling(store)
while store.shelf.find(3) is None:
    pass
print("ready", flush=True)
"""


def test_a_program_that_ends_in_its_midst_leaves_nothing(tmp_path: Path):
    with other_process(ENDS, tmp_path) as process:
        assert process.wait(60) == 0
    assert not list(tmp_path.iterdir())
