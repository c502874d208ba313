"""Compressed shards as the tars that they hold: any range equals the tar's, each frame is decoded once, errors say where."""

import io
import os
import pickle
import random
import threading
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastfeed.archive import frame as codec
from fastfeed.archive.frame import FrameWriter
from fastfeed.archive.seektable import Frame, Framed
from fastfeed.errors import ShardDamaged
from fastfeed.store import frames
from fastfeed.store.base import Range
from fastfeed.store.frames import FRAMES, KEPT_BYTES, FrameStore, Kept
from fastfeed.store.local import LocalStore
from fastfeed.store.memory import MemoryStore

FRAME_BYTES = 4096
NAMES = ["x-000000.tar.zst", "x-000001.tar.zst"]


def textlike(size: int, seed: int) -> bytes:
    dice = random.Random(seed)
    return b" ".join(dice.choice([b"frame", b"sample", b"of", b"the", b"shard"]) for _ in range(size // 3 + 1))[:size]


SAMPLES = {name: [textlike(size, at) for at, size in enumerate((700, 900, 12_000, 1, 4096, 3000, 3000, 40))] for name in NAMES}
SAMPLES[NAMES[1]].append(os.urandom(5000))
TARS = {name: b"".join(samples) for name, samples in SAMPLES.items()}


def compressed(samples: Sequence[bytes]) -> bytes:
    out = io.BytesIO()
    writer = FrameWriter(out.write, level=3, frame_bytes=FRAME_BYTES)
    for sample in samples:
        writer.begin_sample()
        writer.write(sample)
    writer.finish()
    return out.getvalue()


FILES = {name: compressed(samples) for name, samples in SAMPLES.items()}
FACTS = {name: Framed(name, len(FILES[name]), len(TARS[name]), FRAME_BYTES) for name in NAMES}


@pytest.fixture
def store() -> FrameStore:
    return FrameStore(MemoryStore(FILES), FACTS)


@pytest.fixture
def decodes(monkeypatch) -> list[tuple[str, int]]:
    """What is decoded from now on: (shard, frame)."""
    seen: list[tuple[str, int]] = []
    real = codec.decode

    def watched(raw: bytes, frame: Frame, shard: str) -> bytes:
        seen.append((shard, frame.number))
        return real(raw, frame, shard)

    monkeypatch.setattr(codec, "decode", watched)
    return seen


def wish(name: str, start: int, stop: int) -> Range:
    return Range(name, start, stop, memoryview(bytearray(stop - start)))


@st.composite
def a_range(draw: st.DrawFn) -> tuple[str, int, int]:
    name = draw(st.sampled_from(NAMES))
    one, other = draw(st.integers(0, len(TARS[name]))), draw(st.integers(0, len(TARS[name])))
    return name, min(one, other), max(one, other)


@given(a_range())
def test_any_range_is_that_of_the_tar(wanted):
    name, start, stop = wanted
    assert FrameStore(MemoryStore(FILES), FACTS).read(name, start, stop) == TARS[name][start:stop]


@settings(max_examples=50)
@given(st.lists(a_range(), max_size=12))
def test_any_batch_is_that_of_the_tar_whatever_its_order(wanted):
    ranges = [wish(*each) for each in wanted]
    FrameStore(MemoryStore(FILES), FACTS).read_many(ranges)
    assert [bytes(each.into) for each in ranges] == [TARS[name][start:stop] for name, start, stop in wanted]


def test_its_size_is_the_tars(store):
    assert [store.size(name) for name in NAMES] == [len(TARS[name]) for name in NAMES]


def test_a_batch_decodes_each_frame_once_even_if_nothing_can_be_kept(store, decodes, monkeypatch):
    monkeypatch.setattr(FRAMES, "budget_bytes", 0)
    dice = random.Random(3)
    wanted = []
    for name in NAMES * 200:
        start = dice.randrange(len(TARS[name]))
        wanted.append((name, start, min(len(TARS[name]), start + dice.randrange(6000))))
    store.read_many([wish(*each) for each in wanted])
    assert len(set(decodes)) == len(decodes) > 8
    assert decodes == sorted(decodes), "in storage order"


def test_neighbours_that_are_read_one_by_one_decode_each_frame_once(store, decodes):
    name, at = NAMES[0], 0
    for sample in SAMPLES[name]:
        assert store.read(name, at, at + len(sample)) == sample
        at += len(sample)
    assert len(set(decodes)) == len(decodes) == len(store._table(name))


def test_a_large_frame_is_kept_though_it_is_larger_than_the_budget(store, decodes, monkeypatch):
    monkeypatch.setattr(FRAMES, "budget_bytes", 10)
    for at in range(0, 700, 100):
        store.read(NAMES[0], at, at + 100)
    assert len(decodes) == 1


class Counting(MemoryStore):
    def __init__(self) -> None:
        super().__init__(FILES)
        self.calls: list[list[tuple[str, int, int]]] = []

    def read_many(self, ranges: Sequence[Range]) -> None:
        self.calls.append([(each.name, each.start, each.stop) for each in ranges])
        super().read_many(ranges)


def test_the_store_below_is_asked_for_many_frames_at_a_time(monkeypatch):
    inner = Counting()
    whole = [(name, 0, len(TARS[name])) for name in NAMES]
    FrameStore(inner, FACTS).read_many([wish(*each) for each in whole])
    (asked,) = inner.calls
    assert asked == sorted(asked) and asked[-1][2] < len(FILES[NAMES[1]])
    monkeypatch.setattr(frames, "READ_BYTES", 300)
    inner = Counting()
    FrameStore(inner, FACTS).read_many([wish(*each) for each in whole])
    assert len(inner.calls) > 5
    assert [each for call in inner.calls for each in call] == asked


# ------------------------------------------------------------------------------------------------ what is kept
def test_what_is_kept_stays_within_its_budget_and_the_last_is_always_kept():
    kept: Kept[str] = Kept(100)
    for number in range(20):
        kept.put((0, number), f"value {number}", 30)
        assert kept.get((0, number)) == f"value {number}"
        assert kept.size_bytes <= 100
    assert kept.get((0, 17)) == "value 17"
    kept.put((0, 20), "new", 30)
    assert kept.get((0, 17)) == "value 17" and kept.get((0, 18)) is None  # used last, kept longest
    kept.put((0, 21), "large", 1000)
    assert kept.get((0, 21)) == "large" and kept.size_bytes == 1000 and kept.get((0, 17)) is None
    kept.put((0, 21), "another", 1)
    assert kept.get((0, 21)) == "large"


def test_stores_do_not_see_each_others_frames():
    other = {name: compressed([bytes(len(TARS[name]))]) for name in NAMES}
    facts = {name: FACTS[name]._replace(size_bytes=len(other[name])) for name in NAMES}
    one, two = FrameStore(MemoryStore(FILES), FACTS), FrameStore(MemoryStore(other), facts)
    assert one.read(NAMES[0], 0, 50) == TARS[NAMES[0]][:50]
    assert two.read(NAMES[0], 0, 50) == bytes(50)
    assert one.read(NAMES[0], 0, 50) == TARS[NAMES[0]][:50]


def test_a_fork_begins_with_nothing_kept_and_reads(store):
    name = NAMES[0]
    store.read(name, 0, 700)
    assert FRAMES.size_bytes > 0
    FRAMES._lock.acquire()  # as a thread of the parent that is in the midst of it
    try:
        child = os.fork()
        if child == 0:
            right = FRAMES.size_bytes == 0 and store.read(name, 0, 700) == TARS[name][:700]
            os._exit(0 if right else 1)
    finally:
        FRAMES._lock.release()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert 0 < FRAMES.size_bytes <= KEPT_BYTES


def test_threads_read_at_once(store):
    wrong: list[str] = []

    def work(seed: int) -> None:
        dice = random.Random(seed)
        for _ in range(100):
            name = dice.choice(NAMES)
            start = dice.randrange(len(TARS[name]))
            stop = min(len(TARS[name]), start + dice.randrange(9000))
            if store.read(name, start, stop) != TARS[name][start:stop]:
                wrong.append(name)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_it_pickles_to_what_it_was_made_of(tmp_path):
    for name, raw in FILES.items():
        (tmp_path / name).write_bytes(raw)
    store = FrameStore(LocalStore(str(tmp_path)), FACTS)
    store.read(NAMES[0], 0, 10)
    raw = pickle.dumps(store)
    assert len(raw) < 1000
    assert pickle.loads(raw).read(NAMES[1], 5, 900) == TARS[NAMES[1]][5:900]


# ------------------------------------------------------------------------------------------------ damage
def both(store: FrameStore, name: str, start: int, stop: int, words: str) -> None:
    """A read alone and one in a batch fail with the range that was wanted."""
    with pytest.raises(ShardDamaged, match=words) as one:
        store.read(name, start, stop)
    with pytest.raises(ShardDamaged, match=words) as many:
        store.read_many([wish(name, stop, stop), wish(name, start, stop)])
    for error in (one.value, many.value):
        assert (error.shard, error.start, error.stop) == (name, start, stop)


def test_a_damaged_frame_is_named_with_its_bytes_of_the_file_and_of_the_tar():
    name = NAMES[0]
    table = FrameStore(MemoryStore(FILES), FACTS)._table(name)
    hit = table[2]
    raw = bytearray(FILES[name])
    raw[hit.start + 40] ^= 1
    store = FrameStore(MemoryStore({**FILES, name: bytes(raw)}), FACTS)
    place = rf"frame 2 \(bytes \[{hit.start}, {hit.stop}\) of the file, \[{hit.tar_start}, {hit.tar_stop}\) of the tar in it\)"
    both(store, name, hit.tar_start - 5, hit.tar_stop + 5, f"{place} of a compressed shard cannot be decoded")
    assert store.read(name, 0, hit.tar_start) == TARS[name][: hit.tar_start]  # the others are whole
    assert store.read(name, hit.tar_stop, len(TARS[name])) == TARS[name][hit.tar_stop :]


def test_swapped_frames_are_found():
    name = NAMES[0]
    samples = [textlike(4096, 1), bytes(reversed(textlike(4096, 1)))]
    raw = bytearray(compressed(samples))
    facts = {name: Framed(name, len(raw), 8192, FRAME_BYTES)}
    one, other = FrameStore(MemoryStore({name: bytes(raw)}), facts)._table(name)
    if one.stop - one.start != other.stop - other.start:
        raw[-9 - 24 : -9 - 20], raw[-9 - 12 : -9 - 8] = raw[-9 - 12 : -9 - 8], raw[-9 - 24 : -9 - 20]  # their sizes too
    raw[: other.stop] = raw[other.start : other.stop] + raw[one.start : one.stop]
    store = FrameStore(MemoryStore({name: bytes(raw)}), facts)
    both(store, name, 0, 10, "has another checksum than the seek table's")


def test_a_damaged_seek_table_is_named():
    name = NAMES[0]
    raw = bytearray(FILES[name])
    raw[-9 - 12] ^= 1
    both(
        FrameStore(MemoryStore({**FILES, name: bytes(raw)}), FACTS),
        name,
        7,
        70,
        "the seek table of a compressed shard does not add up",
    )


def test_a_shard_that_is_cut_is_named():
    name = NAMES[0]
    both(FrameStore(MemoryStore({**FILES, name: FILES[name][:-1]}), FACTS), name, 7, 70, "a shard ends too early: it was cut")


def test_a_shard_that_is_cut_after_its_table_was_read(tmp_path):
    for name, raw in FILES.items():
        (tmp_path / name).write_bytes(raw)
    store = FrameStore(LocalStore(str(tmp_path)), FACTS)
    table = store._table(NAMES[0])
    os.truncate(tmp_path / NAMES[0], table[1].start + 3)
    both(store, NAMES[0], table[1].tar_start, table[1].tar_stop, r"it was cut, in frame 1 \(bytes")


def test_a_missing_shard_and_one_that_nobody_knows():
    both(FrameStore(MemoryStore({}), FACTS), NAMES[0], 0, 5, "cannot be opened: no such file")
    both(FrameStore(MemoryStore(FILES), {}), NAMES[0], 0, 5, "the dataset has no such shard")


def test_behind_the_end_of_the_tar(store):
    size = len(TARS[NAMES[0]])
    both(store, NAMES[0], size - 5, size + 1, "the tar in a compressed shard ends too early.*expected 6, got 5")


def test_z9_any_cut_that_keeps_the_bounds_is_read():
    """Another writer's frames: some small, some within samples."""
    name, out = NAMES[0], io.BytesIO()
    writer = FrameWriter(out.write, level=1, frame_bytes=3000)
    writer.write(TARS[name])
    writer.finish()
    store = FrameStore(MemoryStore({name: out.getvalue()}), {name: FACTS[name]._replace(size_bytes=len(out.getvalue()))})
    assert store.read(name, 100, 20_000) == TARS[name][100:20_000]


def test_a_range_over_frames_of_which_some_are_kept(store):
    name = NAMES[0]
    table = store._table(name)
    for number in (1, 3):
        store.read(name, table[number].tar_start, table[number].tar_start + 1)
    assert store.read(name, 5, len(TARS[name])) == TARS[name][5:]


def test_nothing_is_allocated_for_what_no_frame_holds(store):
    with pytest.raises(ShardDamaged, match="ends too early"):
        store.read(NAMES[0], 0, 1 << 60)
