"""Placing: crops, a resizing and flips as one rectangle; Pillow's own steps give the same pixels as that rectangle."""

import random

import numpy as np
import pytest
from fusing import levels, noisy
from PIL import Image
from PIL.Image import Resampling, Transpose

from fastfeed.feed.decode.box import Box
from fastfeed.feed.decode.placing import Place, Placing

LEFT_RIGHT, TOP_BOTTOM = Transpose.FLIP_LEFT_RIGHT, Transpose.FLIP_TOP_BOTTOM


class Real:
    """The same steps, done by Pillow."""

    def __init__(self, image: Image.Image) -> None:
        self.image = image

    @property
    def height(self) -> int:
        return self.image.height

    @property
    def width(self) -> int:
        return self.image.width

    def crop(self, box: Box) -> None:
        self.image = self.image.crop((box.left, box.top, box.right, box.bottom))

    def resize(self, height: int, width: int, kernel: Resampling) -> None:
        self.image = self.image.resize((width, height), kernel)

    def flip(self, way: Transpose) -> None:
        self.image = self.image.transpose(way)


def done_by(place: Place, image: Image.Image, size: tuple[int, int]) -> np.ndarray:
    """What a rectangle becomes."""
    box, (above, before), (below, behind) = place
    part = image.crop((box.left, box.top, box.right, box.bottom))
    edges = min(before, behind), min(above, below), max(before, behind), max(above, below)
    made = np.asarray(part.resize((size[1], size[0]), Resampling.BILINEAR, box=edges))
    made = made[::-1] if above > below else made
    return made[:, ::-1] if before > behind else made


def crop_somewhere(random_: random.Random, height: int, width: int) -> Box:
    tall, wide = random_.randint(2, height), random_.randint(2, width)
    return Box(random_.randint(0, height - tall), random_.randint(0, width - wide), tall, wide)


def steps_of(random_: random.Random) -> list[str]:
    steps = [random_.choice(["crop", "rows", "columns"]) for _ in range(random_.randint(0, 5))]
    steps.insert(random_.randint(0, len(steps)), "resize")
    return steps


@pytest.mark.parametrize("seed", range(60))
def test_any_order_of_steps_is_one_rectangle(seed):
    chosen = random.Random(seed)
    image = noisy((chosen.randint(40, 90), chosen.randint(40, 90)), seed=seed)
    real, placing = Real(image), Placing(image.height, image.width)
    for step in steps_of(chosen):
        if step == "crop":
            box = crop_somewhere(chosen, real.height, real.width)
            real.crop(box)
            placing.crop(box)
        elif step == "resize":
            size = chosen.randint(20, 120), chosen.randint(20, 120)
            real.resize(*size, Resampling.BILINEAR)
            placing.resize(*size, Resampling.BILINEAR)
        else:
            way = TOP_BOTTOM if step == "rows" else LEFT_RIGHT
            real.flip(way)
            placing.flip(way)
    assert (placing.height, placing.width) == (real.height, real.width)
    box = placing.place.box
    assert box.top >= 0 and box.left >= 0 and box.bottom <= image.height and box.right <= image.width
    most, mean = levels(done_by(placing.place, image, (real.height, real.width)), real.image)
    assert most <= 2 and mean < 0.5


def test_a_window_of_a_resized_picture_needs_little_of_the_image():
    placing = Placing(1000, 1000)
    placing.resize(500, 500, Resampling.BILINEAR)
    placing.crop(Box(100, 200, 50, 60))
    assert placing.place == (Box(197, 397, 106, 126), (3.0, 3.0), (103.0, 123.0))


def test_the_same_size_is_no_resizing_and_two_are_not_one_place():
    placing = Placing(10, 20)
    placing.resize(10, 20, Resampling.BILINEAR)
    placing.resize(5, 5, Resampling.BILINEAR)
    placing.resize(5, 5, Resampling.BILINEAR)
    with pytest.raises(ValueError, match="twice"):
        placing.resize(6, 6, Resampling.BILINEAR)
    assert placing.place == (Box(0, 0, 10, 20), (0.0, 0.0), (10.0, 20.0))
