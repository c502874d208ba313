"""Compressed shards through torch: the same values as from plain tars, whatever the workers, the order and the access."""

import io
import os
import random
from pathlib import Path
from typing import Any

import pytest
from helpers import flip_bit, make_captioned, make_photos, packed
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

import fastfeed
from fastfeed.errors import ShardDamaged
from fastfeed.feed.dataset import PackedDataset
from fastfeed.store.frames import FrameStore

LARGE = random.Random(1).randbytes(40_000)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[PackedDataset, PackedDataset]:
    """The same samples plain and compressed; one of them larger than several frames."""
    folder = tmp_path_factory.mktemp("pair")
    source = make_captioned(folder / "src", 40)
    (source / "007.wav").write_bytes(LARGE)
    packed(source, folder / "plain", shards=3)
    packed(source, folder / "zst", shards=3, compress="zstd", frame_bytes=8192)
    return fastfeed.open(folder / "plain"), fastfeed.open(folder / "zst")


def values(sample: dict[str, Any]) -> dict[str, Any]:
    return {name: value.tobytes() if name == "jpg" else value for name, value in sample.items()}


def test_every_sample_is_the_same_alone_and_in_any_batch(pair: tuple[PackedDataset, PackedDataset]):
    plain, zst = pair
    wanted = [values(plain[at]) for at in range(40)]
    assert [values(zst[at]) for at in range(40)] == wanted
    order = [*random.Random(2).sample(range(40), 40), 7, 7, 0]
    assert [values(sample) for sample in zst.__getitems__(order)] == [wanted[at] for at in order]


@pytest.mark.long
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_read_it(pair: tuple[PackedDataset, PackedDataset], context: str):
    plain, zst = pair
    zst[3]  # something is kept when the workers are forked
    texts = fastfeed.open(zst.path, fields=["txt"])
    loader = DataLoader(texts, batch_size=7, num_workers=2, multiprocessing_context=context)
    assert [text for batch in loader for text in batch["txt"]] == [plain[at]["txt"] for at in range(40)]


def test_a_file_over_one_member_reads_at_random(pair: tuple[PackedDataset, PackedDataset]):
    _, zst = pair
    with zst.open(7, "wav") as file:
        assert file.seek(0, io.SEEK_END) == 40_000
        for at in (0, 39_000, 12_345, 20_000, 1):
            file.seek(at)
            assert file.read(3000) == LARGE[at : at + 3000]
        file.seek(5)
        assert file.read() == LARGE[5:]


def test_columns_are_those_of_the_tar(pair: tuple[PackedDataset, PackedDataset]):
    plain, zst = pair
    assert zst.columns == plain.columns
    for name in ("size", "offset", "xxh3"):
        assert zst.column(name, field="txt").tolist() == plain.column(name, field="txt").tolist()


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    make_photos(tmp_path / "src", each=8)
    packed(tmp_path / "src", tmp_path / "packed", compress="zstd", frame_bytes=4096)
    return tmp_path / "packed"


def test_a_damaged_frame_is_named_by_sample_and_frame(photos: Path):
    dataset = fastfeed.open(photos)
    place = next(place for place in dataset._archive.places(5) if place.field == "jpg")
    store = dataset._reader.store  # type: ignore[attr-defined]
    assert isinstance(store, FrameStore)
    frame = store._table(place.shard)[store._table(place.shard).frames_of(place.start, place.stop)[0]]
    flip_bit(photos / place.shard, frame.start + 25)
    damaged = fastfeed.open(photos)
    for read in (lambda: damaged[5], lambda: damaged.__getitems__([0, 5, 15]), lambda: damaged.open(5, "jpg").read()):
        where = rf"frame {frame.number} \(bytes \[{frame.start}, {frame.stop}\) of the file"
        with pytest.raises(ShardDamaged, match=where) as caught:
            read()
        error = caught.value
        assert (error.shard, error.sample, error.key) == (place.shard, 5, "cat/005")
        assert error.start is not None and frame.tar_start < error.start < frame.tar_stop


def sample_or_error(dataset: PackedDataset, at: int) -> Any:
    try:
        return dataset[at]
    except ShardDamaged as error:
        return error


@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.data())
def test_whatever_bit_is_flipped_a_sample_is_right_or_refused(pair: tuple[PackedDataset, PackedDataset], data: st.DataObject):
    plain, zst = pair
    shard = data.draw(st.sampled_from(sorted(Path(zst.path).glob("*.zst"))), label="shard")
    bit = data.draw(st.integers(0, shard.stat().st_size * 8 - 1), label="bit")
    flip_bit(shard, bit // 8, bit % 8)
    try:
        damaged = fastfeed.open(zst.path, fields=["txt", "wav"])
        for at in range(40):
            got = sample_or_error(damaged, at)
            right = {name: value for name, value in plain[at].items() if name != "jpg"}
            assert got == right or (isinstance(got, ShardDamaged) and (got.shard, got.sample) == (shard.name, at))
    finally:
        flip_bit(shard, bit // 8, bit % 8)


def test_t6_a_cut_or_missing_shard_is_known_at_opening(photos: Path):
    shard = photos / "src-000000.tar.zst"
    os.truncate(shard, shard.stat().st_size - 1)
    with pytest.raises(ShardDamaged, match="a shard has the wrong size"):
        fastfeed.open(photos)
    shard.unlink()
    with pytest.raises(ShardDamaged, match="a shard cannot be found"):
        fastfeed.open(photos)


def test_i5_a_member_behind_the_end_of_the_tar(photos: Path):
    """The file is smaller than the tar: bounds are those of the tar."""
    dataset = fastfeed.open(photos)
    last = list(dataset._archive.places(15))[-1]
    assert last.stop > (photos / last.shard).stat().st_size
    assert dataset[15][1] == 1


def test_f2_compressed_shards_without_their_home_are_known(photos: Path):
    (photos / ".fastfeed").rename(photos.parent / "gone")
    with pytest.raises(fastfeed.DatasetError, match=r"here are shards \(src-000000.tar.zst ...\) but no .fastfeed folder"):
        fastfeed.open(photos)
