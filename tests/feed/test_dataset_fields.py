"""The values of a packed dataset by field: dicts, chosen fields, decoders, transforms, classes that no member holds."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import encoded, make_captioned, make_photos, pack_photos, packed, photo
from PIL import Image
from torchvision.datasets import ImageFolder

import fastfeed
from fastfeed.errors import UsageError
from fastfeed.feed.dataset import PackedDataset


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
    ({"decode": "fast"}, r"decode='fast' is not known: expected 'auto' or 'exact' or 'close', got 'fast'"),
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
