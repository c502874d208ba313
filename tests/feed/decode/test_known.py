"""Which steps are known: by exact class, untouched; functions by their compiled code."""

import functools
import random

import pytest
import torch
import torchvision.transforms as v1
from PIL.Image import Resampling
from torch import nn
from torchvision.transforms import v2

from fastfeed.feed.decode.box import Box
from fastfeed.feed.decode.draws import RandomBox
from fastfeed.feed.decode.known import as_it_is, is_untouched, may_draw, name_of, passed_on, path_of, step_of
from fastfeed.feed.decode.steps import Crop, Flip, Nothing, Resize, ResizedCrop


class Sub(v1.RandomResizedCrop):
    pass


def converts(image):
    return image.convert("RGB")


def converts_with_words(picture):
    """As a named function has them."""
    return picture.convert("RGB")


def to_gray(image):
    return image.convert("L")


def draft(image):
    return image.draft("RGB")


def test_names_and_paths():
    crop = v1.CenterCrop(3)
    assert (name_of(crop), path_of(crop)) == ("CenterCrop", "torchvision.transforms.transforms.CenterCrop")
    assert (name_of(converts), path_of(converts)) == ("converts", f"{__name__}.converts")
    assert as_it_is(converts) == f"converts ({__name__}.converts) is called as it is"


@pytest.mark.parametrize(("own", "kind"), [
    (v1.RandomResizedCrop(9), ResizedCrop), (v2.RandomResizedCrop((9, 8)), ResizedCrop), (v1.Resize(9), Resize),
    (v2.Resize([9]), Resize), (v1.CenterCrop(9), Crop), (v2.RandomCrop((9, 8)), Crop), (v1.RandomHorizontalFlip(), Flip),
    (v2.RandomVerticalFlip(0.2), Flip), (v2.RGB(), Nothing), (converts, Nothing), (lambda x: x.convert("RGB"), Nothing),
], ids=range(11))  # fmt: skip
def test_known_steps(own, kind):
    assert type(step_of(own, tensors=False)) is kind


@pytest.mark.parametrize("own", [
    Sub(9), to_gray, draft, functools.partial(converts), v1.Resize(9, max_size=12), v2.Resize(None, max_size=12),
    v1.RandomCrop(9, padding=2), v1.Pad(2), print, v1.Grayscale(3),
], ids=range(10))  # fmt: skip
def test_steps_that_are_called_as_they_are(own):
    why = step_of(own, tensors=False)
    assert isinstance(why, str) and why.startswith(name_of(own)) and "called as it is" in why


def test_a_scale_the_wrong_way_round_is_torchvisions_business():
    own = v1.RandomResizedCrop(9)
    own.scale = (1.0, 0.5)
    why = step_of(own, tensors=False)
    assert isinstance(why, str) and "RuntimeError" in why


def test_arguments():
    crop = step_of(v2.RandomResizedCrop(9, interpolation=3), tensors=False)
    assert isinstance(crop, ResizedCrop) and crop.size == (9, 9) and crop.kernel() is Resampling.BICUBIC
    assert isinstance(crop.draw, RandomBox) and crop.random
    assert step_of(v1.Resize((7, 9), v1.InterpolationMode.NEAREST_EXACT), tensors=False) == Resize((7, 9), Resampling.NEAREST)
    assert step_of(v2.Resize([7]), tensors=False) == Resize(7, Resampling.BILINEAR)
    crop = step_of(v1.CenterCrop([4]), tensors=False)
    assert isinstance(crop, Crop) and crop.place(7, 6) == Box(2, 1, 4, 4) and not crop.random
    flip = step_of(v1.RandomHorizontalFlip(0.1), tensors=False)
    assert isinstance(flip, Flip) and flip.probability == float(torch.tensor(0.1))


@pytest.mark.parametrize("kit", [v1, v2])
def test_a_probability_is_rounded_as_tensors_are(kit):
    torch.set_default_dtype(torch.float64)
    try:
        flip = step_of(kit.RandomHorizontalFlip(0.1), tensors=False)
    finally:
        torch.set_default_dtype(torch.float32)
    assert isinstance(flip, Flip) and flip.probability == 0.1


@pytest.mark.parametrize("kit", [v1, v2])
def test_a_crop_whose_ratio_was_changed_later_draws_as_torchvision_does(kit):
    """v2 computes its logarithm once."""
    own = kit.RandomResizedCrop(9)
    own.ratio = (0.2, 0.3)
    step = step_of(own, tensors=False)
    assert isinstance(step, ResizedCrop)
    torch.manual_seed(1)
    found = step.draw(300, 200)
    torch.manual_seed(1)
    image = torch.zeros(3, 300, 200)
    if kit is v1:
        assert found == Box(*own.get_params(image, own.scale, own.ratio))
    else:
        assert found == Box(**own.make_params([image]))


@pytest.mark.parametrize(("kit", "size", "image"), [
    (v1, 9, (9, 9)), (v2, 9, (9, 9)), (v1, 9, (9, 12)), (v2, 9, (9, 12)), (v1, (3, 4), (30, 20)), (v2, (3, 4), (30, 20)),
])  # fmt: skip
def test_random_crops_draw_as_torchvision_does(kit, size, image):
    own = kit.RandomCrop(size)
    step = step_of(own, tensors=False)
    assert isinstance(step, Crop) and step.random
    pixels = torch.arange(image[0] * image[1]).reshape(1, *image)
    for seed in range(5):
        torch.manual_seed(seed)
        top, left, height, width = step.place(*image)
        after = torch.get_rng_state()
        torch.manual_seed(seed)
        assert torch.equal(own(pixels), pixels[:, top : top + height, left : left + width])
        assert torch.equal(torch.get_rng_state(), after)


def test_timms_random_interpolation_is_drawn_behind_its_part():
    data = pytest.importorskip("timm.data.transforms", reason="timm is not installed")
    own = data.RandomResizedCropAndInterpolation(9, interpolation="random")
    step = step_of(own, tensors=False)
    assert isinstance(step, ResizedCrop)
    random.seed(4)
    kernels = {step.kernel() for _ in range(50)}
    assert kernels == {Resampling.BILINEAR, Resampling.BICUBIC}
    assert isinstance(step_of(own, tensors=True), str)


@pytest.mark.parametrize("kit", [v1, v2])
def test_of_tensors_the_step_brings_its_own_kernel(kit):
    image = torch.randint(0, 255, (3, 40, 50), dtype=torch.uint8)
    for own in (kit.Resize((9, 11), antialias=False), kit.Resize((9, 11)), kit.Resize((9, 11), v1.InterpolationMode.BICUBIC)):
        step = step_of(own, tensors=True)
        assert isinstance(step, Resize)
        assert torch.equal(step.kernel(image, [9, 11]), own(image))
    assert isinstance(step_of(kit.Resize(9, v1.InterpolationMode.BOX), tensors=True), str)
    assert isinstance(step_of(converts, tensors=True), str), "a tensor has no convert"


def nothing(*_):
    return None


def test_touched_steps():
    for touch in (
        lambda step: step.register_forward_hook(nothing),
        lambda step: step.register_forward_pre_hook(nothing),
        lambda step: setattr(step, "forward", nothing),
        lambda step: setattr(step, "get_params", nothing),
    ):
        step = v1.RandomResizedCrop(9)
        assert is_untouched(step)
        touch(step)
        assert not is_untouched(step)
        assert "hooks or methods of its own" in str(step_of(step, tensors=False))


def test_a_method_put_into_the_class_is_seen(monkeypatch):
    monkeypatch.setattr(v1.CenterCrop, "forward", nothing)
    assert not is_untouched(v1.CenterCrop(3))
    assert is_untouched(v1.Resize(3))


def test_steps_that_draw():
    assert may_draw(v1.ColorJitter()) and may_draw(v2.RandomErasing()) and may_draw(v1.RandomApply([nn.Identity()]))
    assert not may_draw(v1.Resize(3)) and not may_draw(nn.Dropout()) and not may_draw(random.Random())


class Hands:
    def __init__(self, inner):
        self.steps = inner

    def __call__(self, picture):
        return self.steps(picture)


class HandsTwice(Hands):
    pass


class Keeps(Hands):
    def __call__(self, picture):
        self.last = picture
        return self.steps(picture)


class Calls:
    def __init__(self, inner):
        self.steps = inner

    def __call__(self, picture):
        return self.steps.inverse(picture)


class Listens:
    def __init__(self, inner):
        self.steps = inner

    def __getattribute__(self, name):
        return object.__getattribute__(self, name)

    def __call__(self, picture):
        return self.steps(picture)


def test_objects_that_hand_their_image_on():
    inner = v1.CenterCrop(3)
    assert passed_on(Hands(inner)) is inner
    assert passed_on(v1.Lambda(converts)) is converts
    for other in (HandsTwice(inner), Keeps(inner), Calls(inner), Listens(inner), Hands(None), inner, converts, Hands):
        assert passed_on(other) is None
