"""Tars of others as a store: ranges by name, whatever a tar is stored as."""

import os
import pickle
import random
import threading
from pathlib import Path

import pytest
from tarring import gzipped, pairs, tar_of, zstandarded

from fastfeed.archive.tars import TarSet
from fastfeed.errors import ShardDamaged
from fastfeed.source.tarfiles import find_tars
from fastfeed.source.tarindex import make, store_of
from fastfeed.store.base import Range
from fastfeed.store.tars import MAX_STREAMS, TarStore, frames_of

RAW = tar_of([(f"{number:04d}.bin", random.Random(number).randbytes(5000)) for number in range(60)])


def store_with(folder: Path, **tars: bytes) -> TarStore:
    for name, raw in tars.items():
        (folder / f"{name}.tar").write_bytes(raw)
    return store_of(make(find_tars(str(folder / "*.tar")), None)[0])


@pytest.fixture
def store(tmp_path: Path) -> TarStore:
    return store_with(tmp_path, a=RAW, b=gzipped(RAW, 3), c=zstandarded(RAW, 30_000), d=zstandarded(RAW))


def test_ranges(store: TarStore):
    chance = random.Random(3)
    for name in ("a.tar", "b.tar", "c.tar", "d.tar"):
        assert store.size(name) == len(RAW)
        for _ in range(20):
            start = chance.randrange(len(RAW) - 3000)
            assert store.read(name, start, start + 3000) == RAW[start : start + 3000]


def test_many_ranges_at_once(store: TarStore):
    chance = random.Random(4)
    wanted = []
    for _ in range(40):
        start = chance.randrange(len(RAW) - 3000)
        wanted.append(Range(chance.choice("abcd") + ".tar", start, start + 2000, memoryview(bytearray(2000))))
    store.read_many(wanted)
    assert all(bytes(wish.into) == RAW[wish.start : wish.stop] for wish in wanted)


def test_it_pickles_to_its_paths(store: TarStore):
    raw = pickle.dumps(store)
    assert len(raw) < 1000
    again = pickle.loads(raw)
    assert again.read("b.tar", 512, 1512) == again.read("d.tar", 512, 1512) == RAW[512:1512]


def test_each_thread_has_streams_of_its_own(store: TarStore):
    wrong: list[str] = []

    def read(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(30):
            name, start = chance.choice("bcd") + ".tar", chance.randrange(len(RAW) - 3000)
            if store.read(name, start, start + 1000) != RAW[start : start + 1000]:
                wrong.append(name)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_fork_and_its_parent_do_not_disturb_each_other(store: TarStore):
    """[P5]: a descriptor's place is shared by a fork."""
    store.read("b.tar", 0, 100), store.read("d.tar", 0, 100)
    child = os.fork()
    if not child:  # pragma: no cover - in the child
        good = all(
            store.read(name, at, at + 500) == RAW[at : at + 500]
            for at in range(0, 200_000, 9000)
            for name in ("b.tar", "d.tar")
        )
        os._exit(0 if good else 1)
    for at in range(200_000, 0, -9000):
        assert store.read("b.tar", at, at + 500) == RAW[at : at + 500]
        assert store.read("d.tar", at, at + 500) == RAW[at : at + 500]
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_few_streams_stay_open(tmp_path: Path):
    names = [f"{number:02d}" for number in range(MAX_STREAMS + 3)]
    store = store_with(tmp_path, **dict.fromkeys(names, zstandarded(tar_of(pairs(2)))))
    before = len(os.listdir("/proc/self/fd"))
    for name in names:
        store.read(f"{name}.tar", 0, 100)
    # LocalStore keeps descriptors of its own, by which it sees that a tar has not changed
    assert len(os.listdir("/proc/self/fd")) <= before + MAX_STREAMS + len(names)


@pytest.mark.parametrize("name", ["a.tar", "b.tar", "d.tar"])
def test_a_tar_that_changes_is_not_read(store: TarStore, name: str):
    """[P5]"""
    path = os.path.join(store.tars.base, name)
    store.read(name, 0, 100)
    os.utime(path, ns=(1, 1))
    for read in (lambda: store.read(name, 0, 100), lambda: store.read_many([Range(name, 0, 4, memoryview(bytearray(4)))])):
        with pytest.raises(ShardDamaged, match=r"a tar has changed since it was indexed .*modified at 1 ns.*index it again"):
            read()


def test_what_cannot_be_read(store: TarStore):
    with pytest.raises(ShardDamaged, match=r"there is no such tar .*none\.tar"):
        store.read("none.tar", 0, 1)
    for name in ("b.tar", "c.tar"):
        with pytest.raises(ShardDamaged, match=rf"a compressed tar ends too early .*{name}.*expected 1000, got 10"):
            store.read(name, len(RAW) - 10, len(RAW) + 990)
    with pytest.raises(ShardDamaged, match="a shard ends too early"):
        store.read("a.tar", len(RAW) - 10, len(RAW) + 990)


def test_seek_points_that_are_lost(store: TarStore):
    os.unlink(store.seek_points["b.tar"])
    with pytest.raises(ShardDamaged, match="a compressed tar cannot be read: No such file or directory"):
        store.read("b.tar", 0, 1)


def test_frames_of_one_tar(store: TarStore):
    tars = TarSet(store.tars.index.path, store.tars.base)
    assert [len(frames_of(tars, number)) for number in range(4)] == [0, 0, -(-len(RAW) // 30_000), 1]
    assert list(frames_of(tars, 2).starts) == list(range(0, len(RAW), 30_000))
