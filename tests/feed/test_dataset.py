"""A packed dataset where ImageFolder stood: the same samples, values by field, errors with a place."""

import inspect
import os
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import encoded, flip_bit, make_captioned, make_photos, pack_photos, packed, photo
from PIL import Image
from torchvision.datasets import ImageFolder

import fastfeed
from fastfeed.errors import DecodeError, IndexDamaged, NotADataset, ShardDamaged
from fastfeed.feed.dataset import PackedDataset


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[ImageFolder, PackedDataset]:
    """An odd but legal ImageFolder, and the same packed."""
    folder = tmp_path_factory.mktemp("pair")
    source = make_photos(folder / "src", ("b cat", "Dog", "a.t"))
    (source / "Dog" / "deep" / "er").mkdir(parents=True)
    exif = Image.Exif()
    exif[274], exif[271] = 6, "maker"
    odd = {
        "Dog/deep/er/x.JPG": encoded(photo(1, (40, 20)), exif=exif, dpi=(72, 96), comment=b"a remark"),
        "Dog/gray.jpeg": encoded(photo(2, mode="L"), icc_profile=b"a profile"),
        "Dog/cmyk.jpg": encoded(photo(3, mode="CMYK"), progressive=True),
        "Dog/palette.png": encoded(photo(4, mode="P"), "PNG", transparency=3),
        "Dog/alpha.png": encoded(photo(5, mode="RGBA"), "PNG"),
        "Dog/one.bmp": encoded(photo(6, mode="1"), "BMP"),
        "Dog/two.webp": encoded(photo(7), "WEBP"),
        "Dog/three.tif": encoded(photo(8), "TIFF"),
        "Dog/four.pgm": encoded(photo(9, mode="L"), "PPM"),
        "a.t/sixteen.png": encoded(Image.fromarray(np.arange(192, dtype=np.uint16).reshape(12, 16)), "PNG"),
        "a.t/a.b c.jpg": encoded(photo(10)),
    }
    for name, raw in odd.items():
        (source / name).write_bytes(raw)
    packed(source, folder / "packed", shards=3)
    return ImageFolder(str(source)), fastfeed.open(folder / "packed")


def test_every_sample_is_imagefolders(pair: tuple[ImageFolder, PackedDataset]):
    theirs, ours = pair
    assert len(ours) == len(theirs) == 20
    batch = ours.__getitems__(range(20))
    for position in range(20):
        wanted, target = theirs[position]
        for image, number in (ours[position], batch[position]):
            assert (number, type(number)) == (target, int)
            assert (image.mode, image.size, type(image)) == (wanted.mode, wanted.size, type(wanted))
            assert image.tobytes() == wanted.tobytes()
            assert image.info == wanted.info
            assert dict(image.getexif()) == dict(wanted.getexif())


def test_its_facts_are_imagefolders(pair: tuple[ImageFolder, PackedDataset]):
    theirs, ours = pair
    assert ours.classes == theirs.classes == ["Dog", "a.t", "b cat"]
    assert ours.class_to_idx == theirs.class_to_idx
    assert ours.targets.tolist() == theirs.targets
    assert ours.targets.dtype == np.int64
    assert not ours.targets.flags.writeable
    assert [(os.path.join(theirs.root, path), number) for path, number in ours.samples] == theirs.samples


def test_transforms_are_called_as_imagefolder_calls_them(pair: tuple[ImageFolder, PackedDataset]):
    theirs, ours = pair
    both = {"transform": lambda image: image.resize((4, 4)).tobytes(), "target_transform": lambda number: -number}
    theirs, ours = ImageFolder(theirs.root, **both), PackedDataset(ours.path, **both)  # type: ignore[arg-type]
    assert [ours[i] for i in range(20)] == [theirs[i] for i in range(20)] == list(ours)
    positional = PackedDataset(ours.path, both["transform"], both["target_transform"])
    assert positional[3] == theirs[3]


def test_it_is_called_as_promised():
    """ImageFolder's arguments first, under their names and in their places; then ours; all else by name alone."""
    parameters = list(inspect.signature(PackedDataset).parameters.values())
    positional = [parameter for parameter in parameters if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
    assert [(parameter.name, parameter.default) for parameter in positional] == [
        ("path", inspect.Parameter.empty), ("transform", None), ("target_transform", None), ("decode", "auto"),
        ("fields", None), ("decoders", None),
    ]  # fmt: skip
    assert all(parameter.kind is parameter.KEYWORD_ONLY for parameter in parameters[len(positional) :])


# ------------------------------------------------------------------------------------------------ positions
def test_positions(tmp_path: Path):
    dataset = fastfeed.open(pack_photos(tmp_path), transform=lambda image: image.tobytes())
    assert dataset[-1] == dataset[5] == dataset[np.int64(5)] == dataset[torch.tensor(5)]  # type: ignore[index]
    assert dataset.__getitems__([-1, 0, 0]) == [dataset[5], dataset[0], dataset[0]]
    assert dataset.__getitems__(torch.tensor([3, 1])) == [dataset[3], dataset[1]]  # type: ignore[arg-type]
    assert dataset.__getitems__([]) == []
    for outside in (6, -7, 10**30):
        with pytest.raises(IndexError, match=f"position {outside} is outside of a dataset of 6 samples"):
            dataset[outside]
        with pytest.raises(IndexError, match=f"position {outside} is outside"):
            dataset.__getitems__([0, outside])
        with pytest.raises(IndexError, match=f"position {outside} is outside"):
            dataset.identity(outside)
    for wrong in (1.0, "1", None, slice(2)):
        with pytest.raises(TypeError, match="cannot be interpreted as an integer"):
            dataset[wrong]  # type: ignore[index]


def test_an_index_error_of_the_users_code_is_not_the_end(tmp_path: Path):
    path = pack_photos(tmp_path)

    def fails(image: Image.Image) -> Image.Image:
        if image.tobytes() == bad:
            msg = "the user's own"
            raise IndexError(msg)
        return image

    bad = fastfeed.open(path)[3][0].tobytes()
    dataset = fastfeed.open(path, transform=fails)
    seen: list[object] = []
    with pytest.raises(IndexError, match="the user's own"):
        seen.extend(dataset)
    assert len(seen) == 3


def test_identity(tmp_path: Path):
    make_captioned(tmp_path / "src")
    os.rename(tmp_path / "src" / "001.jpg", tmp_path / "src" / "a b.jpg")
    packed(tmp_path / "src", tmp_path / "packed")
    dataset = fastfeed.open(tmp_path / "packed")
    found = [dataset.identity(position) for position in range(len(dataset))]
    assert [identity.position for identity in found] == list(range(5))
    sources = {identity.source: identity.key for identity in found}
    assert set(sources) == {b"000.jpg", b"001.txt", b"002.jpg", b"003.jpg", b"a b.jpg"}
    assert (sources[b"000.jpg"], sources[b"001.txt"]) == ("000", "001")
    assert sources[b"a b.jpg"].startswith("a_b-")
    assert dataset.identity(-1) == found[-1]


# ------------------------------------------------------------------------------------------------ the recorder
class Heard:
    """Notes each span."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, int]] = []

    def span(self, stage: str, position: int) -> AbstractContextManager[None]:
        self.spans.append((stage, position))
        return nullcontext()


def test_the_recorder_hears_each_stage_of_each_sample(tmp_path: Path):
    heard = Heard()
    dataset = PackedDataset(pack_photos(tmp_path), recorder=heard)
    dataset[-1]
    assert heard.spans == [("read", 5), ("decode", 5), ("transform", 5)]
    heard.spans.clear()
    dataset.__getitems__([4, 2])
    assert heard.spans == [("read", 4), ("decode", 4), ("transform", 4), ("decode", 2), ("transform", 2)]
    heard.spans.clear()
    dataset.__getitems__([])
    assert {position for _, position in heard.spans} <= {0}


# ------------------------------------------------------------------------------------------------ damage and refusals
def test_a_damaged_member_is_found_when_it_is_read(tmp_path: Path):
    path = pack_photos(tmp_path)
    dataset = fastfeed.open(path)
    place = next(iter(place for place in dataset._archive.places(4) if place.field == "jpg"))
    flip_bit(path / place.shard, place.start + 300, 3)
    where = rf"shard {place.shard}, sample 4, key 'dog/001', source 'dog/001\.jpg', member 'dog/001\.jpg', "
    where += rf"bytes \[{place.start}, {place.stop}\)"
    for read in (lambda: dataset[4], lambda: dataset.__getitems__([0, 4]), lambda: fastfeed.open(path)[4]):
        with pytest.raises(ShardDamaged, match=f"differ from their checksum.*{where}"):
            read()
    assert dataset[3][1] == 1


@pytest.mark.parametrize(
    ("field", "words"), [("jpg", "Pillow knows no image that begins with b'no picture'"), ("txt", "not UTF-8: byte 0")]
)
def test_what_cannot_be_decoded_has_a_name(tmp_path: Path, field: str, words: str):
    source = make_captioned(tmp_path / "src")
    (source / f"002.{field}").write_bytes(b"no picture" if field == "jpg" else b"\xff")
    packed(source, tmp_path / "packed")
    dataset = fastfeed.open(tmp_path / "packed")
    for read in (lambda: dataset[2], lambda: dataset.__getitems__([2])):
        where = rf"shard src-000000\.tar, sample 2, key '002', source '002\.{field}', member '002\.{field}', bytes"
        with pytest.raises(DecodeError, match=rf"{words}.*{where}") as caught:
            read()
        assert caught.value.source == f"002.{field}"
        line = '(a line of the skip list: {"source": "002.jpg", "kind": "undecodable"})'
        assert str(caught.value).endswith(line) == (field == "jpg")


def test_the_hint_of_what_cannot_be_decoded_is_a_line_for_the_skip_list(tmp_path: Path):
    """Also where key and source differ, and where the source is no UTF-8."""
    source = make_photos(tmp_path / "src", ["cat"])
    name = os.fsencode(source / "cat") + b"/no \xff.jpg"
    with open(name, "wb") as file:
        file.write(b"no picture")
    packed(source, tmp_path / "packed")
    with pytest.raises(DecodeError) as caught:
        list(fastfeed.open(tmp_path / "packed"))
    assert (caught.value.source, caught.value.sample) == ("cat/no \udcff.jpg", 3)
    _, _, line = str(caught.value).partition("(a line of the skip list: ")
    (tmp_path / "skip.jsonl").write_text(line.removesuffix(")") + "\n")
    packed(source, tmp_path / "clean", exclude=str(tmp_path / "skip.jsonl"))
    assert len(list(fastfeed.open(tmp_path / "clean"))) == 3


def test_a_users_decoder_that_fails_has_a_name(tmp_path: Path):
    dataset = fastfeed.open(pack_photos(tmp_path), decoders={"jpg": lambda data: data.nothing})
    with pytest.raises(
        DecodeError, match=r"AttributeError: 'bytes' object has no attribute 'nothing'.*sample 1, key 'cat/001'"
    ):
        dataset[1]


def test_a_missing_and_a_cut_shard_are_found_at_opening(tmp_path: Path):
    path = pack_photos(tmp_path, shards=2)
    shard = path / "photos-000001.tar"
    raw = shard.read_bytes()
    shard.write_bytes(raw[:-512])
    with pytest.raises(
        ShardDamaged, match=rf"a shard has the wrong size .*expected {len(raw)} bytes, got {len(raw) - 512} bytes"
    ):
        fastfeed.open(path)
    shard.unlink()
    with pytest.raises(ShardDamaged, match=r"a shard cannot be found: No such file .*photos-000001\.tar"):
        fastfeed.open(path)


def test_a_lost_home_is_told(tmp_path: Path):
    path = pack_photos(tmp_path)
    (path / ".fastfeed").rename(tmp_path / "lost")
    with pytest.raises(NotADataset, match=r"here are shards \(photos-000000\.tar \.\.\.\) but no \.fastfeed folder"):
        fastfeed.open(path)
    (tmp_path / "lost").rename(path / ".fastfeed")
    (path / ".fastfeed" / "index").unlink()
    with pytest.raises(IndexDamaged, match="the index cannot be opened: No such file"):
        fastfeed.open(path)


# ------------------------------------------------------------------------------------------------ open
def test_a_group_is_not_one_dataset(tmp_path: Path):
    for split in ("train", "val"):
        make_photos(tmp_path / "src" / split, each=1)
    packed(tmp_path / "src", tmp_path / "packed")
    words = r"this folder holds the splits train, val, not one dataset .*Open one of them: fastfeed\.open\('.*/train'\)"
    with pytest.raises(NotADataset, match=words):
        fastfeed.open(tmp_path / "packed")
    with pytest.raises(NotADataset, match="holds the splits train, val"):
        PackedDataset(tmp_path / "packed")
    assert fastfeed.open(str(tmp_path / "packed" / "val"))[0][1] == 0


def test_a_group_of_one_split_is_opened(tmp_path: Path):
    make_photos(tmp_path / "src" / "train")
    packed(tmp_path / "src", tmp_path / "packed")
    assert len(fastfeed.open(tmp_path / "packed")) == 6
    assert fastfeed.open(os.fsencode(tmp_path / "packed")).path == str(tmp_path / "packed" / "train")  # type: ignore[arg-type]


def test_a_relative_path_survives_a_change_of_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pack_photos(tmp_path)
    monkeypatch.chdir(tmp_path)
    dataset = fastfeed.open("packed")
    monkeypatch.chdir("/")
    assert dataset[0][1] == 0
    assert repr(dataset) == f"PackedDataset('{tmp_path}/packed': 6 samples of cls+jpg, 2 classes, 1 shard)"
