"""The demo's parts: the photo set, the judgement of samples, the loop."""

from pathlib import Path

import pytest
import torch
from helpers import files_below
from PIL import Image

import fastfeed
from fastfeed.demo import BATCH, CLASSES, PHOTOS_PER_CLASS, SIDE, DemoResult, crop, make_photos, run
from fastfeed.errors import DestinationOccupied
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


def test_broken_and_slow_have_names(story: tuple[Path, list[str], DemoResult]):
    _, said, result = story
    assert sorted(result.broken) == ["circle/cut-download.jpg", "ellipse/error-page.jpg", "rectangle/empty.jpg"]
    assert set(result.slow) >= {"triangle/huge-panorama.jpg", "circle/lossless-scan.png"}
    assert result.flipped_bit_found
    text = "\n".join(said)
    assert all(name in text for name in (*result.broken, *result.slow))


def test_all_that_is_left_decodes(story: tuple[Path, list[str], DemoResult]):
    clean = fastfeed.open(story[0] / "packed-clean", transform=crop)
    assert clean.classes == sorted(CLASSES)
    shapes = {tuple(image.shape) for image, _ in clean}
    assert shapes == {(3, SIDE, SIDE)}


def test_a_folder_that_is_used_is_refused(story: tuple[Path, list[str], DemoResult]):
    with pytest.raises(DestinationOccupied, match=r"the demo's folder is not empty .* Name a new one"):
        run(str(story[0]), print, QUIET)


@pytest.mark.soak
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
