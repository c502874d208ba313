"""A packed dataset where ImageFolder stood: the same samples, values by field, errors with a place."""

import os
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import encoded, flip_bit, make_captioned, make_photos, pack_photos, packed, photo
from PIL import Image
from torchvision.datasets import ImageFolder

import fastfeed
from fastfeed.errors import DecodeError, IndexDamaged, NotADataset, ShardDamaged, UsageError
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


# ------------------------------------------------------------------------------------------------ values by field
@pytest.fixture
def rich(tmp_path: Path) -> Path:
    """Two samples of nine fields."""
    source = tmp_path / "src"
    source.mkdir()
    for number in range(2):
        stem = str(source / str(number))
        Path(stem + ".jpg").write_bytes(encoded(photo(number, mode="CMYK")))
        Path(stem + ".mask.png").write_bytes(encoded(photo(number, mode="P"), "PNG"))
        depth = Image.fromarray(np.full((12, 16), 40_000 + number, dtype=np.uint16))
        Path(stem + ".depth.png").write_bytes(encoded(depth, "PNG"))
        Path(stem + ".txt").write_text(f"caf\u00e9 {number}")
        Path(stem + ".json").write_text(f'{{"boxes": [[0, 1, 2, {number}]]}}')
        Path(stem + ".cls").write_text(f"{number + 7}\n")
        Path(stem + ".wav").write_bytes(b"RIFF" + bytes([number]))
        np.save(stem + ".npy", np.arange(3) + number)
        np.savez(stem + ".npz", a=np.ones(2) * number)
    packed(source, tmp_path / "packed")
    return tmp_path / "packed"


def test_a_sample_of_many_fields_is_a_dict(rich: Path):
    for sample in (fastfeed.open(rich)[1], fastfeed.open(rich).__getitems__([1])[0]):
        assert list(sample) == ["cls", "depth.png", "jpg", "json", "mask.png", "npy", "npz", "txt", "wav"]
        assert sample["cls"] == 8
        assert (sample["depth.png"].mode, sample["depth.png"].getpixel((0, 0))) == ("I;16", 40_001)
        assert (sample["mask.png"].mode, sample["mask.png"].tobytes()) == ("P", photo(1, mode="P").tobytes())
        assert sample["jpg"].mode == "RGB"
        assert sample["json"] == {"boxes": [[0, 1, 2, 1]]}
        assert sample["npy"].tolist() == [1, 2, 3]
        assert sample["npz"]["a"].tolist() == [1, 1]
        assert (sample["txt"], sample["wav"]) == ("caf\u00e9 1", b"RIFF\1")


def test_only_the_fields_asked_for(rich: Path):
    dataset = fastfeed.open(rich, fields=["txt", "cls"])
    assert dataset[0] == {"cls": 7, "txt": "caf\u00e9 0"}
    assert "cls+txt" in repr(dataset)
    image, target = fastfeed.open(rich, fields=["jpg", "cls"])[1]
    assert (image.mode, target) == ("RGB", 8)
    mask, _ = fastfeed.open(rich, fields=["mask.png", "cls"])[1]
    assert mask.mode == "RGB", "an image and its class are ImageFolder's pair"
    assert fastfeed.open(rich, fields=["mask.png"])[1]["mask.png"].mode == "P"
    assert fastfeed.open(rich, fields=[])[0] == {}


def test_what_is_not_asked_for_is_not_decoded(tmp_path: Path):
    make_captioned(tmp_path / "src", 1)
    (tmp_path / "src" / "000.jpg").write_bytes(b"broken")
    packed(tmp_path / "src", tmp_path / "packed")
    assert fastfeed.open(tmp_path / "packed", fields=["txt"])[0] == {"txt": "picture 0\n"}


def test_decoders_by_function_and_by_name(rich: Path):
    dataset = fastfeed.open(rich, decoders={"wav": len, "mask.png": "raw", "png": "rgb", "txt": lambda raw: raw.decode()[0]})
    sample = dataset[0]
    assert (sample["wav"], sample["txt"]) == (5, "c")
    assert sample["mask.png"].startswith(b"\x89PNG")
    assert sample["depth.png"].mode == "RGB"
    assert dataset.__getitems__([0])[0]["wav"] == 5


def test_a_mapping_of_transforms(rich: Path):
    dataset = fastfeed.open(
        rich, transform={"txt": str.upper, "mask.png": np.asarray}, target_transform=lambda number: number * 10
    )
    sample = dataset[0]
    assert (sample["txt"], sample["cls"], sample["mask.png"].shape) == ("CAF\u00c9 0", 70, (12, 16))
    assert sample["wav"] == b"RIFF\0"


def test_a_function_gets_the_whole_dict(rich: Path):
    dataset = fastfeed.open(rich, transform=sorted, fields=["txt", "cls"])
    assert dataset[0] == ["cls", "txt"]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"fields": ["txt", "wave"]}, r"fields names wave, which the dataset has not .*among cls, depth\.png, .*got wave"),
    ({"fields": ["png"]}, "fields names png, which the dataset has not"),
    ({"decoders": {"mp3": "raw"}}, "decoders names mp3, which the dataset has not"),
    ({"decoders": {"wav": "sound"}}, r"there is no decoder 'sound': expected a function, or one of image, rgb"),
    ({"transform": {"wave": str}}, r"transform names wave, which the samples have not .*among cls, depth\.png, .*got wave"),
    ({"transform": {"wav": str}, "fields": ["txt"]}, r"transform names wav, which .* have not .*: expected among txt, got wav"),
    (
        {"transform": {"jpg": str}, "fields": ["jpg", "cls"]},
        r"samples here are pairs \(image, target\), so transform is one function of the image .*: got a mapping by field",
    ),
    ({"fields": "jpg"}, r"^fields is a list of names: expected \['jpg'\], got 'jpg'$"),
    ({"target_transform": str, "fields": ["txt"]}, "target_transform needs a class, and the samples have none"),
    ({"decode": "fast"}, r"decode='fast' is not known: expected 'exact', got 'fast'"),
]


@pytest.mark.parametrize(("options", "words"), WRONG)
def test_arguments_that_fit_no_sample(rich: Path, options: dict[str, Any], words: str):
    with pytest.raises(UsageError, match=words):
        PackedDataset(rich, **options)


# ------------------------------------------------------------------------------------------------ classes in the index alone
@pytest.fixture
def unwritten(tmp_path: Path) -> tuple[PackedDataset, PackedDataset]:
    """The same photos packed with and without class members."""
    with_members = fastfeed.open(pack_photos(tmp_path, shards=2))
    packed(tmp_path / "photos", tmp_path / "without", shards=2, write_cls=False)
    return with_members, fastfeed.open(tmp_path / "without")


def test_without_class_members_samples_are_pairs_all_the_same(unwritten: tuple[PackedDataset, PackedDataset]):
    there, here = unwritten
    theirs = ImageFolder(os.path.join(os.path.dirname(here.path), "photos"))
    assert not [path for path in Path(here.path).glob("*.tar") if b".cls" in path.read_bytes()]
    assert here.fields == there.fields == ("cls", "jpg")
    assert here.targets.tolist() == there.targets.tolist() == [0, 0, 0, 1, 1, 1]
    for samples in (list(here), here.__getitems__(range(6)), here.__getitems__([0, 1, 2, -3, -2, -1])):
        assert [type(sample) for sample in samples] == [tuple] * 6
        assert [(image.mode, image.tobytes(), target) for image, target in samples] == [
            (image.mode, image.tobytes(), target) for image, target in there
        ]
        assert [(image.tobytes(), target) for image, target in samples] == [
            (image.tobytes(), target) for image, target in theirs
        ]
        assert {type(target) for _, target in samples} == {int}
    assert [here[position][1] for position in (5, 0, 3, 2, -1, -6)] == [1, 0, 1, 0, 1, 0]
    assert here.__getitems__([4, 0])[0][1] == 1


def test_without_class_members_transforms_are_called_as_with_them(unwritten: tuple[PackedDataset, PackedDataset]):
    there, here = (
        PackedDataset(dataset.path, transform=lambda image: image.tobytes(), target_transform=lambda number: f"<{number}>")
        for dataset in unwritten
    )
    assert list(here) == list(there)
    assert here[4][1] == "<1>"
    assert here.__getitems__([5, 0]) == [there[5], there[0]]
    with pytest.raises(
        UsageError, match=r"samples here are pairs \(image, target\), so transform is one function of the image"
    ):
        PackedDataset(unwritten[1].path, transform={"jpg": str})


def test_without_class_members_fields_are_chosen_as_with_them(unwritten: tuple[PackedDataset, PackedDataset]):
    path = unwritten[1].path
    image, target = fastfeed.open(path, fields=["cls", "jpg"])[3]
    assert (image.mode, target) == ("RGB", 1)
    numbers = fastfeed.open(path, fields=["cls"], target_transform=str)
    assert (numbers.fields, list(numbers)) == (("cls",), [{"cls": "0"}] * 3 + [{"cls": "1"}] * 3)
    assert numbers.__getitems__([5, 0]) == [{"cls": "1"}, {"cls": "0"}]
    pictures = fastfeed.open(path, fields=["jpg"])
    assert (pictures.fields, list(pictures[3])) == (("jpg",), ["jpg"])
    assert [list(sample) for sample in pictures.__getitems__([0, 5])] == [["jpg"], ["jpg"]]
    with pytest.raises(UsageError, match="target_transform needs a class, and the samples have none"):
        fastfeed.open(path, fields=["jpg"], target_transform=str)
    with pytest.raises(
        UsageError,
        match=r"fields names txt, which the dataset has not .*expected among cls, jpg, or of the columns codec, .*got txt",
    ):
        fastfeed.open(path, fields=["txt"])


def test_without_class_members_dicts_have_the_class(tmp_path: Path):
    source = make_photos(tmp_path / "src")
    for name in ("cat", "dog"):
        for number in range(3):
            (source / name / f"{number:03d}.txt").write_text(name)
    packed(source, tmp_path / "packed", write_cls=False)
    dataset = fastfeed.open(tmp_path / "packed", transform={"cls": lambda number: number + 10})
    assert dataset.fields == ("cls", "jpg", "txt")
    sample = dataset[4]
    assert (set(sample), sample["cls"], sample["txt"]) == ({"cls", "jpg", "txt"}, 11, "dog")
    assert fastfeed.open(tmp_path / "packed", fields=["txt", "cls"])[0] == {"cls": 0, "txt": "cat"}


def test_the_fields_that_are_read(rich: Path):
    everything = ("cls", "depth.png", "jpg", "json", "mask.png", "npy", "npz", "txt", "wav")
    assert fastfeed.open(rich).fields == everything
    assert fastfeed.open(rich, fields=("txt", "cls")).fields == ("cls", "txt")
    assert fastfeed.open(rich, fields=iter(["txt", "cls", "txt"])).fields == ("cls", "txt")
    assert fastfeed.open(rich, fields=[]).fields == ()


def test_the_columns_are_what_column_takes(rich: Path):
    dataset = fastfeed.open(rich)
    assert dataset.columns == ["codec", "height", "key", "offset", "orientation", "size", "source", "width", "xxh3"]
    for name in dataset.columns:
        assert len(dataset.column(name, "txt")) == 2
    for name in ("members", "field", "colour"):
        with pytest.raises(
            UsageError, match=f"there is no column '{name}' .*expected one of {', '.join(dataset.columns)}, got"
        ):
            dataset.column(name)


def test_without_classes(tmp_path: Path):
    packed(make_captioned(tmp_path / "src"), tmp_path / "packed")
    dataset = fastfeed.open(tmp_path / "packed")
    for name in ("classes", "class_to_idx", "targets"):
        with pytest.raises(
            UsageError, match="this dataset has no classes: it was packed from neither class folders nor a column of"
        ):
            getattr(dataset, name)
    assert dataset[0]["txt"] == "picture 0\n"


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
