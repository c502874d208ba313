"""Steps on anything that has a size: what they do to it, whether they fit, and the size afterwards."""

import pytest
import torch
from PIL.Image import Resampling, Transpose

from fastfeed.feed.decode.box import Box
from fastfeed.feed.decode.steps import Crop, Flip, Nothing, Part, Resize, Resized, ResizedCrop

FLIP = Transpose.FLIP_LEFT_RIGHT


class Noted:
    """A picture that only notes what is done to it."""

    def __init__(self, height=100, width=80):
        self.height, self.width = height, width
        self.done = []

    def crop(self, box):
        self.done.append(box)
        self.height, self.width = box.height, box.width

    def resize(self, height, width, kernel):
        self.done.append((height, width, kernel))
        self.height, self.width = height, width

    def flip(self, way):
        self.done.append(way)


def done(step, *size):
    picture = Noted(*size)
    assert step.fits(picture)
    step(picture)
    return picture.done


def test_nothing_is_nothing():
    assert done(Nothing()) == []
    assert Nothing().shape((3, 4)) == (3, 4) and Nothing().shape(None) is None and not Nothing().random


def test_the_kernel_is_asked_for_after_the_part_was_drawn():
    order = []

    def draw(height, width):
        order.append("part")
        return Box(1, 2, 30, 40)

    def kernel():
        order.append("kernel")
        return Resampling.BOX

    step = ResizedCrop(draw, (5, 6), kernel)
    assert done(step) == [Box(1, 2, 30, 40), (5, 6, Resampling.BOX)]
    assert order == ["part", "kernel"]
    assert step.random and step.shape(None) == (5, 6)


def test_a_part_is_resized_later():
    step = Part(lambda height, width: Box(1, 2, height - 1, width - 2))
    assert done(step) == [Box(1, 2, 99, 78)]
    assert step.random and step.shape((3, 4)) is None
    assert Resized(lambda: lambda tensor, size: (tensor, size), (3, 4))("tensor") == ("tensor", [3, 4])


@pytest.mark.parametrize(("size", "before", "after"), [
    (50, (100, 80), (62, 50)), (50, (80, 100), (50, 62)), (80, (80, 80), (80, 80)), ((7, 9), (100, 80), (7, 9)),
    (3, (1, 1000), (3, 3000)), (10, (333, 111), (30, 10)),
])  # fmt: skip
def test_resize_rounds_the_longer_edge_down(size, before, after):
    step = Resize(size, Resampling.BICUBIC)
    assert done(step, *before) == [(*after, Resampling.BICUBIC)]
    assert step.shape(before) == after
    assert step.shape(None) == (after if isinstance(size, tuple) else None)


def test_crop_fits_where_it_lies_inside():
    step = Crop(lambda height, width: Box(height - 30, width - 20, 30, 20), (30, 20))
    assert done(step) == [Box(70, 60, 30, 20)]
    assert not step.fits(Noted(29, 20)) and not step.fits(Noted(30, 19)) and step.fits(Noted(30, 20))
    assert step.shape(None) == (30, 20)


def test_flips_draw_also_where_they_are_certain():
    for probability, flips in ((0.0, []), (1.0, [FLIP])):
        before = torch.get_rng_state()
        assert done(Flip(probability, FLIP)) == flips
        assert not torch.equal(torch.get_rng_state(), before)
        assert not Flip(probability, FLIP).random
    assert Flip(0.5, FLIP).random and Flip(0.5, FLIP).shape((1, 2)) == (1, 2)
