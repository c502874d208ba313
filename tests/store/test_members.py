"""Members as proven bytes: what is read fits its checksum, or the error says shard, sample, key, member and bytes."""

import os
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest
from caching import NAME, folder_of
from helpers import ColumnFile, flip_bit, make_captioned, packed, rewrite_index

from fastfeed.archive.dataset import Archive, Place
from fastfeed.archive.shard import digest
from fastfeed.errors import ShardDamaged
from fastfeed.store.base import Range
from fastfeed.store.cached import CachedStore, block_count
from fastfeed.store.lease import Lease
from fastfeed.store.local import LocalStore
from fastfeed.store.members import MemberReader
from fastfeed.store.memory import MemoryStore
from fastfeed.store.shelf import Room, Shelf


class CountingStore(MemoryStore):
    """A store in memory that remembers what it was asked for."""

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(files)
        self.asked: list[tuple[str, int, int]] = []

    def read_many(self, ranges: Sequence[Range]) -> None:
        self.asked += [(wish.name, wish.start, wish.stop) for wish in ranges]
        super().read_many(ranges)


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Six samples of jpg and txt in two shards."""
    packed(make_captioned(tmp_path / "src", 6), tmp_path / "packed", shards=2)
    return tmp_path / "packed"


@pytest.fixture
def reader(dataset: Path) -> MemberReader:
    return MemberReader(Archive(str(dataset)), LocalStore(str(dataset)))


def places(reader: MemberReader, position: int) -> list[Place]:
    return list(reader.archive.places(position))


def test_a_member_is_the_source_files_bytes(reader: MemberReader, tmp_path: Path):
    for position in range(6):
        for place in places(reader, position):
            wanted = (tmp_path / "src" / f"{position:03d}.{place.field}").read_bytes()
            assert reader.read(position, place) == wanted


def test_a_batch_is_the_same_bytes_in_the_order_asked_for(reader: MemberReader):
    order = [5, 0, 3, 3, 1]
    found = reader.read_batch([(position, places(reader, position)) for position in order])
    for position, views in zip(order, found, strict=True):
        assert [bytes(view) for view in views] == [reader.read(position, place) for place in places(reader, position)]


def test_a_batch_is_one_buffer_read_in_storage_order(dataset: Path):
    files = {path.name: path.read_bytes() for path in dataset.glob("*.tar")}
    store = CountingStore(files)
    reader = MemberReader(Archive(str(dataset)), store)
    found = reader.read_batch([(position, places(reader, position)) for position in (4, 1, 2)])
    assert store.asked == sorted(store.asked)
    assert len(store.asked) == 3, "neighbouring members of a sample are one read"
    assert len({id(view.obj) for views in found for view in views}) == 1
    assert all(not view.readonly for views in found for view in views)


def test_fleeting_ones_lie_in_the_same_memory_once_nobody_looks_at_those_before(reader: MemberReader):
    wanted = [[(position, places(reader, position))] for position in range(2)]
    expected = [[bytes(view) for view in reader.read_batch(each)[0]] for each in wanted]
    first = reader.read_batch(wanted[0], fleeting=True)[0]
    second = reader.read_batch(wanted[1], fleeting=True)[0]  # what makes a sample of a batch may read another one
    assert [[bytes(view) for view in views] for views in (first, second)] == expected
    assert first[0].obj is not second[0].obj
    memory = second[0].obj
    del second
    assert reader.read_batch(wanted[0], fleeting=True)[0][0].obj is memory


def test_nothing_wanted_is_nothing_read(reader: MemberReader):
    assert reader.read_batch([]) == []
    assert reader.read_batch([(0, []), (1, [])]) == [[], []]


def test_an_empty_member(tmp_path: Path):
    make_captioned(tmp_path / "src", 2)
    (tmp_path / "src" / "001.txt").write_bytes(b"")
    packed(tmp_path / "src", tmp_path / "packed")
    reader = MemberReader(Archive(str(tmp_path / "packed")), LocalStore(str(tmp_path / "packed")))
    _, text = places(reader, 1)
    assert reader.read(1, text) == b""
    assert bytes(reader.read_batch([(1, [text])])[0][0]) == b""


def _expect(reader: MemberReader, position: int, place: Place, words: str) -> None:
    name = f"{position:03d}.{place.field}"
    where = (
        rf"shard {place.shard}, sample {position}, key '{position:03d}', source '{name}', member '{name}', "
        rf"bytes \[{place.start}, {place.stop}\)"
    )
    with pytest.raises(ShardDamaged, match=where) as one:
        reader.read(position, place)
    with pytest.raises(ShardDamaged, match=where) as many:
        reader.read_batch([(0, places(reader, 0)), (position, [place])])
    assert words in str(one.value)
    assert words in str(many.value)
    for error in (one.value, many.value):
        assert (error.shard, error.sample, error.source, error.member) == (place.shard, position, name, name)
        assert (error.start, error.stop) == (place.start, place.stop)


@pytest.mark.parametrize("field", [0, 1])
def test_a_flipped_bit_is_found_at_every_read(dataset: Path, reader: MemberReader, field: int):
    place = places(reader, 4)[field]
    flip_bit(dataset / place.shard, place.stop - 1, 7)
    _expect(reader, 4, place, "the bytes of a member differ from their checksum: the shard is damaged")
    _expect(reader, 4, place, f"expected xxh3 {place.xxh3:016x}, got ")


def test_a_cut_shard_is_found(dataset: Path, reader: MemberReader):
    place = places(reader, 5)[0]
    os.truncate(dataset / place.shard, place.start + 3)
    _expect(reader, 5, place, "a shard ends too early: it was cut")


def test_a_shard_that_vanished_is_named(dataset: Path, reader: MemberReader):
    place = places(reader, 3)[0]
    (dataset / place.shard).unlink()
    with pytest.raises(ShardDamaged, match=r"cannot be opened: No such file .*src-000001\.tar, sample 3, key '003'"):
        reader.read(3, place)
    with pytest.raises(ShardDamaged, match=r"cannot be opened: No such file .*shard src-000001\.tar"):
        reader.read_batch([(3, [place])])


def test_a_checksum_that_was_taken_elsewhere(reader: MemberReader):
    place = places(reader, 0)[0]
    reader.check_digest(0, place, place.xxh3)
    reader.check(0, place, memoryview(reader.read(0, place)))
    assert digest(reader.read(0, place)) == place.xxh3
    with pytest.raises(ShardDamaged, match=r"differ from their checksum.* sample 0, .* got 0{15}1"):
        reader.check_digest(0, place, 1)


def test_members_in_the_wrong_order_are_damage_and_no_crash(dataset: Path):
    """An index whose digests fit but whose members of a sample do not ascend."""

    def change(file: ColumnFile) -> None:
        offsets, sizes = file.numbers("member", "offset"), file.numbers("member", "size")
        for values, name in ((offsets, "offset"), (sizes, "size")):
            values[0], values[1] = values[1], values[0]
            file.replace("member", name, struct.pack(f"<{len(values)}Q", *values))

    rewrite_index(dataset, change)
    reader = MemberReader(Archive(str(dataset)), LocalStore(str(dataset)))
    with pytest.raises(ShardDamaged, match="sample 0"):
        reader.read_batch([(0, places(reader, 0))])
    with pytest.raises(ShardDamaged, match="sample 0"):
        reader.read_batch([(0, places(reader, 0)), (1, places(reader, 1))])


def test_what_a_damaged_cache_gives_is_read_past_it(dataset: Path, tmp_path: Path):
    archive = Archive(str(dataset))
    sizes = {entry.file: entry.stream_bytes for entry in archive.manifest.shards}
    shelf = Shelf(Lease(str(tmp_path), NAME, block_count(sizes), about={}))
    reader = MemberReader(archive, CachedStore(LocalStore(str(dataset)), shelf, sizes, Room(1 << 30)))
    plain = MemberReader(archive, LocalStore(str(dataset)))
    wanted = [(position, places(reader, position)) for position in range(6)]
    expected = [[bytes(view) for view in views] for views in plain.read_batch(wanted)]
    data = folder_of(tmp_path) / NAME / "data"
    for read_singly in (False, True):
        reader.read_batch(wanted)
        data.write_bytes(bytes(data.stat().st_size))
        if read_singly:
            found = [[reader.read(position, place) for place in own] for position, own in wanted]
        else:
            found = [[bytes(view) for view in views] for views in reader.read_batch(wanted)]
        assert found == expected
    flip_bit(min(dataset.glob("*.tar")), wanted[0][1][0].start)  # now the source is damaged as well
    data.write_bytes(bytes(data.stat().st_size))
    with pytest.raises(ShardDamaged, match="differ from their checksum"):
        reader.read_batch(wanted)
    shelf.close()
