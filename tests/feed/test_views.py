"""Views that look rows up when they are used: .samples, columns, and a file over one member."""

import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
from helpers import encoded, make_captioned, make_photos, pack_photos, packed, photo
from PIL import Image

import fastfeed
from fastfeed.errors import ShardDamaged, UsageError
from fastfeed.feed.dataset import PackedDataset
from fastfeed.feed.views import Picked, Samples
from fastfeed.media import Codec


@pytest.fixture
def mixed(tmp_path: Path) -> PackedDataset:
    """Four samples; of a caption, the third has none, and the last alone has a mask."""
    source = make_captioned(tmp_path / "src")
    (source / "002.txt").unlink()
    (source / "003.mask.png").write_bytes(encoded(photo(0, (5, 6), "L"), "PNG"))
    packed(source, tmp_path / "packed", shards=2)
    return fastfeed.open(tmp_path / "packed")


# ------------------------------------------------------------------------------------------------ samples
def test_samples_are_a_lazy_sequence(tmp_path: Path):
    dataset = fastfeed.open(pack_photos(tmp_path))
    samples = dataset.samples
    assert not isinstance(samples, list)
    assert (len(samples), samples[0], samples[-1]) == (6, ("cat/000.jpg", 0), ("dog/002.jpg", 1))
    assert samples[2:4] == [("cat/002.jpg", 0), ("dog/000.jpg", 1)]
    assert list(samples) == [samples[i] for i in range(6)]
    assert list(dataset.imgs) == list(samples)
    with pytest.raises(IndexError, match="out of range"):
        samples[6]


def test_samples_without_classes(mixed: PackedDataset):
    assert list(mixed.samples) == [(f"{i:03d}.jpg", None) for i in range(4)]


def test_a_samples_source_is_its_images(tmp_path: Path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "0.json").write_text("{}")
    (tmp_path / "src" / "0.webp").write_bytes(encoded(photo(), "WEBP"))
    (tmp_path / "src" / "1.json").write_text("{}")
    packed(tmp_path / "src", tmp_path / "packed")
    archive = fastfeed.open(tmp_path / "packed")._archive
    assert [archive.source(position) for position in range(2)] == [b"0.webp", b"1.json"]


def test_names_that_are_no_utf8_come_as_surrogates(tmp_path: Path):
    make_photos(tmp_path / "src", ["cat"], each=1)
    os.rename(os.fsencode(tmp_path / "src" / "cat" / "000.jpg"), os.fsencode(tmp_path / "src" / "cat") + b"/\xff.jpg")
    packed(tmp_path / "src", tmp_path / "packed")
    dataset = fastfeed.open(tmp_path / "packed")
    assert dataset.samples[0] == ("cat/\udcff.jpg", 0)
    assert dataset.identity(0).source == b"cat/\xff.jpg"


# ------------------------------------------------------------------------------------------------ columns
def test_columns_of_like_samples_are_views_of_the_index(tmp_path: Path):
    dataset = fastfeed.open(pack_photos(tmp_path))
    sizes = dataset.column("size")
    assert sizes.tolist() == [(tmp_path / "photos" / name).stat().st_size for name, _ in dataset.samples]
    assert sizes.base is not None
    assert not sizes.flags.writeable
    assert dataset.column("width").tolist() == [16] * 6
    assert dataset.column("height").tolist() == [12] * 6
    assert dataset.column("codec").tolist() == [Codec.JPEG] * 6
    assert dataset.column("orientation").dtype == np.uint8
    assert dataset.column("label").tolist() == [0, 0, 0, 1, 1, 1]
    assert dataset.column("size", "cls").tolist() == [1] * 6
    assert dataset.column("xxh3").dtype == np.uint64
    assert dataset.column("offset").shape == (6,)


def test_columns_of_unlike_samples_have_zeros_where_a_member_is_missing(mixed: PackedDataset, tmp_path: Path):
    assert mixed.column("width", "mask.png").tolist() == [0, 0, 0, 5]
    assert mixed.column("height", "mask.png").tolist() == [0, 0, 0, 6]
    texts = mixed.column("size", "txt")
    assert texts.tolist() == [10, 10, 0, 10]
    assert not texts.flags.writeable
    assert mixed.column("size", "jpg").tolist() == [(tmp_path / "src" / f"{i:03d}.jpg").stat().st_size for i in range(4)]


def test_columns_of_strings(mixed: PackedDataset):
    keys = mixed.column("key")
    assert list(keys) == [b"000", b"001", b"002", b"003"]
    sources = mixed.column("source", "txt")
    assert (len(sources), list(sources)) == (4, [b"000.txt", b"001.txt", b"", b"003.txt"])
    assert sources[-1] == b"003.txt"
    assert sources[1:3] == [b"001.txt", b""]
    with pytest.raises(IndexError, match="out of bounds"):
        sources[4]


def test_sources_of_like_samples(tmp_path: Path):
    sources = fastfeed.open(pack_photos(tmp_path)).column("source")
    assert list(sources) == [f"{name}/{at:03d}.jpg".encode() for name in ("cat", "dog") for at in range(3)]
    assert sources[::-2] == [b"dog/002.jpg", b"dog/000.jpg", b"cat/001.jpg"]


@pytest.mark.parametrize(
    ("name", "field", "words"),
    [
        ("colour", None, r"there is no column 'colour' \(.*\): expected one of codec, .*width, xxh3, got 'colour'"),
        ("members", None, "there is no column 'members'"),
        ("field", None, "there is no column 'field'"),
        ("size", "wav", r"there is no field 'wav' \(.*\): expected one of jpg, mask.png, txt, got 'wav'"),
        ("size", None, "samples have several fields: say of which .*expected field= one of jpg, mask.png, txt"),
    ],
)
def test_columns_that_there_are_not(mixed: PackedDataset, name: str, field: str | None, words: str):
    with pytest.raises(UsageError, match=words):
        mixed.column(name, field)


def test_the_only_field_needs_no_name(tmp_path: Path):
    packed(make_captioned(tmp_path / "src"), tmp_path / "packed")
    assert fastfeed.open(tmp_path / "packed").column("width").tolist() == [16] * 4


def test_picked_rows_of_any_sequence():
    picked = Picked("abcde", slice(4, None, -2))
    assert (list(picked), picked.rows.tolist(), len(picked)) == (["e", "c", "a"], [4, 2, 0], 3)
    some = Picked(["a", "b"], np.array([1, -1, 0]), "")
    assert (list(some), some[-2], some[1:]) == (["b", "", "a"], "", ["", "a"])
    assert list(Picked(some, np.array([2, 2]))) == ["a", "a"]


def test_samples_of_a_view(tmp_path: Path):
    dataset = fastfeed.open(pack_photos(tmp_path))
    some = Samples(dataset._archive, np.array([5, 0]))
    assert (list(some), some[-1], len(some)) == ([("dog/002.jpg", 1), ("cat/000.jpg", 0)], ("cat/000.jpg", 0), 2)
    with pytest.raises(IndexError):
        some[2]


# ------------------------------------------------------------------------------------------------ a file over a member
def test_a_member_as_a_file(mixed: PackedDataset, tmp_path: Path):
    raw = (tmp_path / "src" / "001.jpg").read_bytes()
    with mixed.open(1, "jpg") as file:
        assert file.seekable()
        assert file.readable()
        assert not file.writable()
        assert file.read(10) == raw[:10]
        assert file.tell() == 10
        assert file.seek(-5, os.SEEK_END) == len(raw) - 5
        assert file.read() == raw[-5:]
        assert file.read() == b""
        assert file.seek(-3, os.SEEK_CUR) == len(raw) - 3
        assert file.read(100) == raw[-3:]
        assert file.seek(len(raw) + 99) == len(raw) + 99
        assert file.read(1) == b""
        assert file.seek(0) == 0
        assert file.read() == raw
    assert mixed.open(-3, "jpg").read() == raw


def test_other_libraries_read_it(tmp_path: Path):
    (tmp_path / "src").mkdir()
    np.savez(tmp_path / "src" / "0.npz", x=np.arange(5))
    photo().save(tmp_path / "src" / "0.png")
    packed(tmp_path / "src", tmp_path / "packed")
    dataset = fastfeed.open(tmp_path / "packed")
    with zipfile.ZipFile(dataset.open(0, "npz")) as archive:
        assert archive.namelist() == ["x.npy"]
    with np.load(dataset.open(0, "npz")) as arrays:
        assert arrays["x"].tolist() == [0, 1, 2, 3, 4]
    with Image.open(dataset.open(0, "png")) as image:
        assert image.convert("RGB").tobytes() == photo().tobytes()


def test_text_by_lines(mixed: PackedDataset):
    assert list(io.TextIOWrapper(mixed.open(3, "txt"))) == ["picture 3\n"]


def test_a_file_of_a_field_that_the_sample_has_not(mixed: PackedDataset):
    with pytest.raises(UsageError, match=r"sample 2 has no member of field 'txt' .*sample 2, key '002'"):
        mixed.open(2, "txt")
    with pytest.raises(IndexError, match="position 4 is outside of a dataset of 4 samples"):
        mixed.open(4, "txt")


def test_a_file_of_a_shard_that_was_cut_names_the_sample(mixed: PackedDataset, tmp_path: Path):
    file = mixed.open(3, "jpg")
    shard = tmp_path / "packed" / "src-000001.tar"
    os.truncate(shard, 512)
    with pytest.raises(ShardDamaged, match=r"shard src-000001\.tar, sample 3, key '003', source '003\.jpg', member '003\.jpg'"):
        file.read()
