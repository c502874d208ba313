"""The demo's parts: the photo set, the audit of it, the loop."""

import json
from pathlib import Path

import pytest
import torch
from helpers import files_below
from PIL import Image

import fastfeed
from fastfeed.demo import BATCH, CLASSES, PHOTOS_PER_CLASS, SIDE, DemoResult, crop, make_photos, run
from fastfeed.errors import DestinationOccupied
from fastfeed.sample import SkipList
from fastfeed.trace import QUIET


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str], DemoResult]:
    folder = tmp_path_factory.mktemp("demo")
    said: list[str] = []
    return folder, said, run(str(folder), said.append, QUIET)


@pytest.mark.long
def test_counts_add_up(story: tuple[Path, list[str], DemoResult]):
    folder, _, result = story
    assert result.photos == len(files_below(folder / "photos"))
    assert result.packed == len(CLASSES) * PHOTOS_PER_CLASS + 2 + 3
    clean = fastfeed.open(folder / "packed-clean")
    assert len(clean) == result.packed - len(result.broken)
    assert result.batches == -(-len(clean) // BATCH)
    assert result.images_per_second > 0


@pytest.mark.long
def test_broken_and_slow_have_names(story: tuple[Path, list[str], DemoResult]):
    _, said, result = story
    assert list(result.broken) == ["circle/cut-download.jpg", "ellipse/error-page.jpg", "rectangle/empty.jpg"]
    assert set(result.slow) >= {"triangle/huge-panorama.jpg", "circle/many-scans.jpg"}
    assert result.flipped_bit_found
    text = "\n".join(said)
    assert all(name in text for name in (*result.broken, *result.slow))


@pytest.mark.long
def test_the_audit_writes_what_the_second_pack_excludes(story: tuple[Path, list[str], DemoResult]):
    folder, _, result = story
    assert sorted(entry.source or "" for entry in SkipList.read(str(folder / "skip.jsonl")).entries) == list(result.broken)
    left_out = [
        json.loads(line) for line in (folder / "packed-clean" / ".fastfeed" / "left-out.jsonl").read_text().splitlines()
    ]
    assert sorted(item["source"] for item in left_out if item["kind"] == "excluded") == list(result.broken)


@pytest.mark.long
def test_what_is_slow_is_no_error(story: tuple[Path, list[str], DemoResult]):
    """It loads, as other photos do: the many scans change no pixel."""
    folder, _, result = story
    for name in result.slow:
        with Image.open(folder / "photos" / name) as image:
            image.load()
    with Image.open(folder / "photos" / "circle" / "many-scans.jpg") as image:
        assert len(set(image.convert("L").tobytes())) > 50  # a photo, and not one colour


@pytest.mark.long
def test_all_that_is_left_decodes(story: tuple[Path, list[str], DemoResult]):
    clean = fastfeed.open(story[0] / "packed-clean", transform=crop)
    assert clean.classes == sorted(CLASSES)
    shapes = {tuple(image.shape) for image, _ in clean}
    assert shapes == {(3, SIDE, SIDE)}


@pytest.mark.long
def test_a_folder_that_is_used_is_refused(story: tuple[Path, list[str], DemoResult]):
    with pytest.raises(DestinationOccupied, match=r"the demo's folder is not empty .* Name a new one"):
        run(str(story[0]), print, QUIET)


@pytest.mark.soak
@pytest.mark.long
def test_the_photo_set_is_the_same_each_time(story: tuple[Path, list[str], DemoResult], tmp_path: Path):
    assert make_photos(str(tmp_path / "photos")) == story[2].photos
    assert files_below(tmp_path / "photos") == files_below(story[0] / "photos")


@pytest.mark.parametrize("size", [(SIDE, SIDE), (500, 300), (10, 10)])
def test_crops_have_one_shape(size: tuple[int, int]):
    torch.manual_seed(0)
    tensor = crop(Image.new("RGB", size, (1, 2, 3)))
    assert tuple(tensor.shape) == (3, SIDE, SIDE)
    assert tensor.dtype == torch.uint8
    assert tensor[:, 0, 0].tolist() == [1, 2, 3]
