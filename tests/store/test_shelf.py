"""Entries of a cache: whole or not there, put in once, within the budget, whoever is killed in between."""

import os
import random
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from caching import NAME, OTHER, folder_of, other_process
from loading import in_own_space

from fastfeed.store.firstneeds import comes_first
from fastfeed.store.lease import Lease
from fastfeed.store.shelf import Room, Shelf

LARGE = Room(1 << 40)


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Shelf]:
    made = opened(tmp_path)
    yield made
    made.close()


def opened(place: Path, name: str = NAME, entries: int = 64) -> Shelf:
    return Shelf(Lease(str(place), name, entries, about={}))


def content(shelf: Shelf, number: int) -> bytes | None:
    entry = shelf.find(number)
    if entry is None:
        return None
    data = bytearray(entry.size)
    assert shelf.read(entry, 0, memoryview(data))
    return bytes(data)


def test_what_is_put_in_is_found_by_others(tmp_path: Path, shelf: Shelf):
    dice = random.Random(1)
    entries = {number: dice.randbytes(dice.randrange(1, 20_000)) for number in (0, 7, 63, 8)}
    for number, data in entries.items():
        assert shelf.find(number) is None
        assert shelf.put(number, data, LARGE)
    other = opened(tmp_path)
    assert {number: content(other, number) for number in range(64) if other.find(number)} == entries
    entry = other.find(7)
    assert entry is not None and other.is_whole(entry)
    part = bytearray(5)
    assert other.read(entry, 3, memoryview(part)) and part == entries[7][3:8]
    other.close()


def test_a_row_that_is_no_row_is_no_entry(tmp_path: Path, shelf: Shelf):
    assert shelf.put(3, b"three", LARGE)
    path = folder_of(tmp_path) / NAME / "table"
    whole = path.read_bytes()
    row = whole[96:128]
    for bit in range(0, 256, 5):
        changed = bytearray(whole)
        changed[96 + bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        assert shelf.find(3) is None
    path.write_bytes(whole[:160] + row + whole[192:])  # of another entry
    assert shelf.find(5) is None and shelf.find(3) is not None
    os.truncate(path, 100)
    assert shelf.find(3) is None


def test_data_that_was_cut_is_no_bus_error(tmp_path: Path, shelf: Shelf):
    assert shelf.put(3, bytes(50_000), LARGE)
    entry = shelf.find(3)
    assert entry is not None
    os.truncate(folder_of(tmp_path) / NAME / "data", 10)
    assert not shelf.read(entry, 0, memoryview(bytearray(50_000)))
    assert not shelf.is_whole(entry)


def test_an_empty_entry_is_one(tmp_path: Path, shelf: Shelf):
    for number in (3, 4):
        assert shelf.put(number, b"", LARGE) and content(shelf, number) == b""
    assert shelf.put(5, b"five", LARGE) and shelf.put(6, b"", LARGE)
    entry = shelf.find(4)
    assert entry is not None and shelf.is_whole(entry) and content(opened(tmp_path), 5) == b"five"


def test_dropped_is_gone(shelf: Shelf):
    assert shelf.put(3, b"three", LARGE)
    shelf.drop(3)
    assert shelf.find(3) is None
    assert shelf.put(3, b"again", LARGE) and content(shelf, 3) == b"again"


def test_the_budget_is_that_of_all_caches_at_the_place(tmp_path: Path, shelf: Shelf):
    other, room = opened(tmp_path, OTHER), Room(1 << 20)
    kept = [(which, number) for number in range(64) for which in (shelf, other) if which.put(number, bytes(32 << 10), room)]
    used = shelf.folder.used_bytes()
    assert (1 << 20) - (200 << 10) < used <= 1 << 20
    assert {which for which, _ in kept} == {shelf, other} and len(kept) >= 24
    assert not shelf.has_room(32 << 10, room) and shelf.has_room(32 << 10, Room(2 << 20))
    other.close()
    assert shelf.has_room(32 << 10, room)


def test_others_room_on_the_file_system_is_left(shelf: Shelf):
    facts = os.statvfs(shelf.folder.path)
    all_of_it = Room(1 << 60, reserve_bytes=facts.f_blocks * facts.f_frsize)
    assert not shelf.has_room(1, all_of_it) and not shelf.put(0, b"x", all_of_it)
    assert shelf.find(0) is None


def test_what_batches_need_is_left_where_the_place_is_memory(shelf: Shelf):
    class Batches:
        needed_bytes = 0

    batches, memory = Batches(), Room(1 << 60, is_memory=True)
    comes_first(batches)
    assert shelf.has_room(1, memory)
    facts = os.statvfs(shelf.folder.path)
    batches.needed_bytes = facts.f_blocks * facts.f_frsize
    assert not shelf.has_room(1, memory) and not shelf.put(0, b"x", memory)
    assert shelf.has_room(1, Room(1 << 60))  # a disk
    del batches
    assert shelf.has_room(1, memory)


def test_memory_is_looked_at_where_the_place_is_memory(shelf: Shelf, monkeypatch):
    from fastfeed.machine import Memory
    from fastfeed.store import shelf as module

    monkeypatch.setattr(module, "memory", lambda: Memory(1 << 30, (1 << 30) - (64 << 20), "64 MiB left"))
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.0)
    assert shelf.has_room(1 << 20, Room(1 << 40, memory_bytes=63 << 20, is_memory=True))
    assert not shelf.has_room(2 << 20, Room(1 << 40, memory_bytes=63 << 20, is_memory=True))
    assert shelf.has_room(2 << 20, Room(1 << 40, memory_bytes=63 << 20))


def test_only_one_fetches_an_entry_and_its_neighbours_are_free(tmp_path: Path, shelf: Shelf):
    other = opened(tmp_path)
    with shelf.fetching(5, 0) as first, other.fetching(5, 0.01) as second, other.fetching(6, 0) as neighbour:
        assert (first, second, neighbour) == (True, False, True)
        with shelf.fetching(5, 0) as again:  # another thread of the same process
            assert not again
    with other.fetching(5, 0) as later:
        assert later
    other.close()


RACE = """
import sys
from caching import NAME
from fastfeed.store.lease import Lease
from fastfeed.store.shelf import Room, Shelf
shelf = Shelf(Lease(sys.argv[1], NAME, 64, about={}))
print("ready", flush=True)
sys.stdin.readline()
fetched = 0
for number in range(64):
    with shelf.fetching(number, 60.0) as alone:
        assert alone
        if shelf.find(number) is None:
            fetched += 1
            assert shelf.put(number, bytes([number]) * 5000, Room(1 << 30))
print(fetched, flush=True)
sys.stdin.read()
"""


def test_processes_that_want_the_same_do_the_work_once(tmp_path: Path, shelf: Shelf):
    with other_process(RACE, tmp_path) as one, other_process(RACE, tmp_path) as two, other_process(RACE, tmp_path) as three:
        for process in (one, two, three):
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        assert sum(int(process.stdout.readline()) for process in (one, two, three) if process.stdout) == 64
    assert [content(shelf, number) for number in range(64)] == [bytes([number]) * 5000 for number in range(64)]
    assert shelf.folder.used_bytes() < 64 * 8192 + 8192


def test_a_process_forked_meanwhile_keeps_no_lock(tmp_path: Path, shelf: Shelf):
    begin = os.pipe()
    children = []

    def forked() -> None:
        children.append(os.fork())
        if not children[-1]:  # a worker that lives on, started by another thread just now
            os.close(begin[1])
            os.read(begin[0], 1)
            os._exit(0)

    with shelf.fetching(5, 0), shelf.folder.locked():
        turn = shelf.take_turn()
        assert turn is not None
        forked()
    shelf.give_turn(turn)
    other = opened(tmp_path)
    with other.fetching(5, 0) as alone:
        assert alone
    again = other.take_turn()
    assert again is not None
    other.give_turn(again)
    other.close()
    os.close(begin[1])
    assert os.waitpid(children[0], 0)[1] == 0
    os.close(begin[0])


KILLED = """
import sys, time
from caching import NAME
from fastfeed.store import shelf as module
from fastfeed.store.lease import Lease
from fastfeed.store.shelf import Room, Shelf
shelf = Shelf(Lease(sys.argv[1], NAME, 64, about={}))
with shelf.fetching(5, 0):
    if sys.argv[2] == "allocated":  # the room is taken, and nothing written yet
        shelf._taken(5000, Room(1 << 30))
    print("ready", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("when", ["fetching", "allocated"])
def test_a_killed_fetcher_blocks_nobody_and_its_room_is_counted(tmp_path: Path, shelf: Shelf, when):
    with other_process(KILLED, tmp_path, when) as process:
        with shelf.fetching(5, 0.02) as alone:
            assert not alone
        process.send_signal(signal.SIGKILL)
        process.wait()
    with shelf.fetching(5, 5.0) as alone:
        assert alone and shelf.find(5) is None
        assert shelf.put(5, b"mine", Room(1 << 30))
    assert content(shelf, 5) == b"mine"
    assert shelf.folder.used_bytes() >= (8192 if when == "allocated" else 0)


def test_threads_may_use_one(shelf: Shelf):
    def use(seed: int) -> None:
        for number in random.Random(seed).sample(range(64), 64):
            with shelf.fetching(number, 30.0) as alone:
                if alone and shelf.find(number) is None:
                    shelf.put(number, bytes([number]) * 3000, LARGE)

    threads = [threading.Thread(target=use, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(content(shelf, number) == bytes([number]) * 3000 for number in range(64))


FULL = """
import json, os
from caching import NAME
from fastfeed.store.lease import Lease
from fastfeed.store.shelf import Room, Shelf
shelf = Shelf(Lease("/dev/shm", NAME, 64, about={}))
kept = [number for number in range(64) if shelf.put(number, bytes([number]) * (1 << 20), Room(1 << 40))]
whole = all(shelf.is_whole(shelf.find(number)) for number in kept)
facts = os.statvfs("/dev/shm")
shelf.close()
print(json.dumps([len(kept), whole, facts.f_bavail * facts.f_frsize, os.listdir("/dev/shm")]))
"""


@pytest.mark.long
def test_a_full_file_system_is_no_error():
    kept, whole, free, left = in_own_space(FULL, 16)
    assert 14 <= kept < 16 and whole and free < 2 << 20 and left == []


def test_purging_takes_all_out_and_gives_room_back(tmp_path: Path, shelf: Shelf):
    other = opened(tmp_path)
    for number in range(8):
        assert shelf.put(number, bytes(50_000), LARGE)
    assert other.folder.used_bytes() >= 400_000
    shelf.purge()
    assert all(which.find(number) is None for which in (shelf, other) for number in range(64))
    assert other.folder.used_bytes() <= 8192
    assert other.put(3, b"again", LARGE) and content(shelf, 3) == b"again"
    other.close()


def test_content_is_known_by_its_checksum(shelf: Shelf):
    assert shelf.put(3, b"three", LARGE)
    entry = shelf.find(3)
    assert entry is not None and shelf.is_content(entry, b"three") and not shelf.is_content(entry, b"tree!")
