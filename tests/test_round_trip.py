"""Real files, broken and odd ones among them: packed, proven, and back, byte for byte, but for those listed as left out."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from helpers import SHARED_DATA, packed
from PIL import Image

import fastfeed
from fastfeed.errors import DecodeError
from fastfeed.feed.dataset import PackedDataset
from fastfeed.media import is_image_field

SETS = ["small-photos", "wds-real", "edge-images", *(f"text/{name}" for name in (
    "captions", "encodings", "imdb", "peps", "spdx-json", "tldr"))]  # fmt: skip


def source_of(name: str) -> Path:
    folder: Path = SHARED_DATA / name
    if not folder.is_dir():
        pytest.skip(f"{folder} is missing: real data is not part of the tree")
    return folder


def contents(folder: Path) -> dict[bytes, bytes]:
    """Every file below a folder by its raw path, links by content."""
    root = os.fsencode(folder)
    found = {}
    for below, _, names in os.walk(root, followlinks=True):
        for name in names:
            path = os.path.join(below, name)
            with open(path, "rb") as file:
                found[os.path.relpath(path, root)] = file.read()
    return found


def left_out(dataset: Path) -> set[bytes]:
    found = set()
    for listing in dataset.rglob("left-out.jsonl"):
        found |= {os.fsencode(json.loads(line)["source"]) for line in listing.read_text().splitlines()}
    return found


def round_trip(name: str, tmp_path: Path, **options: object) -> Path:
    source = source_of(name)
    result = packed(source, tmp_path / "packed", **options)
    assert fastfeed.verify(tmp_path / "packed").findings == []
    fastfeed.unpack(tmp_path / "packed", tmp_path / "out")
    wanted, out = contents(source), left_out(tmp_path / "packed")
    assert out == {os.fsencode(item.source) for item in result.left_out}
    assert out <= set(wanted)
    assert contents(tmp_path / "out") == {path: raw for path, raw in wanted.items() if path not in out}
    assert result.datasets[0].source_files == len(wanted) - len(out)
    return tmp_path / "packed"


@pytest.mark.parametrize("name", SETS)
def test_every_file_comes_back(name: str, tmp_path: Path):
    round_trip(name, tmp_path, shards=3)


@pytest.mark.parametrize("name", SETS)
def test_every_file_comes_back_from_compressed_shards(name: str, tmp_path: Path):
    dataset = round_trip(name, tmp_path, shards=3, compress="zstd")
    fastfeed.unpack(dataset, tmp_path / "tars", shards=True)
    packed(source_of(name), tmp_path / "plain", shards=3)
    assert contents(tmp_path / "tars") == contents(tmp_path / "plain")


@pytest.mark.soak
@pytest.mark.parametrize("name", ["imagenet-sample", "text"])
def test_every_file_of_the_large_ones_comes_back(name: str, tmp_path: Path):
    round_trip(name, tmp_path, shards=4, workers=2, shuffle=7)


@pytest.mark.soak
@pytest.mark.parametrize("name", ["imagenet-sample", "small-photos"])
def test_real_photos_are_imagefolders(name: str, tmp_path: Path):
    from torchvision.datasets import ImageFolder

    theirs = ImageFolder(str(source_of(name)))
    packed(theirs.root, tmp_path / "packed", shards=3)
    ours = fastfeed.open(tmp_path / "packed")
    assert (ours.classes, ours.targets.tolist()) == (theirs.classes, theirs.targets)
    assert [os.path.join(theirs.root, path) for path, _ in ours.samples] == [path for path, _ in theirs.samples]
    for position, (wanted, target) in enumerate(theirs):
        image, number = ours[position]
        assert (number, image.mode, image.size, image.info) == (target, wanted.mode, wanted.size, wanted.info)
        assert dict(image.getexif()) == dict(wanted.getexif())
        assert np.array_equal(np.asarray(image), np.asarray(wanted))


def pillow_decodes(path: Path) -> bool:
    try:
        with Image.open(path) as image:
            image.load()
    except Exception:  # noqa: BLE001 - whatever Pillow refuses with
        return False
    return True


def refusal(dataset: PackedDataset, position: int) -> DecodeError | None:
    try:
        dataset[position]
    except DecodeError as error:
        return error
    return None


@pytest.mark.filterwarnings("ignore")
def test_broken_images_are_refused_by_name_exactly_where_pillow_refuses(tmp_path: Path):
    source = source_of("edge-images")
    packed(source, tmp_path / "packed", layout="files", group="none")
    dataset = fastfeed.open(tmp_path / "packed")
    refused = images = 0
    for position in range(len(dataset)):
        (field,) = [place.field for place in dataset._archive.places(position)]
        error = refusal(dataset, position)
        if is_image_field(field):
            images += 1
            assert (error is None) == pillow_decodes(source / dataset.samples[position][0]), dataset.samples[position]
        if error is not None:
            refused += 1
            assert (error.sample, error.key) == (position, dataset.identity(position).key)
    assert 10 < refused < images
