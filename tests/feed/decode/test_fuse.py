"""A transform is read: its first known steps, those behind that make a tensor of it, the rest, and what has changed since."""

import pytest
import torch
import torchvision.transforms as v1
from torch import nn
from torchvision.transforms import v2

import fastfeed
from fastfeed.feed.decode.fuse import read
from fastfeed.feed.decode.known import name_of


def names(steps):
    return [name_of(step) for step in steps]


def test_no_transform():
    recipe = read(None)
    assert recipe.names == () and recipe.tail == () and recipe.why_not is None and recipe.shape is None and not recipe.random
    assert recipe.is_current()


def test_parts():
    recipe = read(v1.Compose([v1.Resize(20), v1.CenterCrop((8, 9)), v1.ToTensor(), v1.Normalize(0.5, 0.5), v1.RandomErasing()]))
    assert names(one.own for one in recipe.fused) == ["Resize", "CenterCrop"]
    assert names(recipe.to_tensor) == ["ToTensor", "Normalize"]
    assert names(recipe.tail) == ["RandomErasing"]
    assert recipe.shape == (8, 9) and recipe.random
    assert recipe.why_not is not None and recipe.why_not.startswith("RandomErasing")
    assert names(recipe.behind(0)) == ["Resize", "CenterCrop", "ToTensor", "Normalize", "RandomErasing"]
    assert names(recipe.behind(2)) == ["ToTensor", "Normalize", "RandomErasing"]


def test_what_makes_a_tensor_is_done_behind_the_steps_that_are_fused():
    recipe = read(v2.Compose([v2.ToImage(), v2.CenterCrop(8), v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32)]))
    assert names(recipe.moved) == ["ToImage"]
    assert names(recipe.behind(3)) == ["ToImage", "ToDtype"]
    assert names(recipe.behind(1)) == ["ToImage", "CenterCrop", "RandomHorizontalFlip", "ToDtype"]
    assert names(recipe.behind(0)) == ["ToImage", "CenterCrop", "RandomHorizontalFlip", "ToDtype"]
    assert not recipe.shows_image


def test_it_stays_where_it_is_with_nothing_behind_that_is_fused():
    for last in ([], [v2.ToDtype(torch.uint8)], [v2.GaussianBlur(3)]):
        recipe = read(v2.Compose([v2.CenterCrop(8), v2.ToImage(), *last]))
        assert names(one.own for one in recipe.fused) == ["CenterCrop"] and recipe.moved == ()
        assert recipe.to_tensor[0].__class__ is v2.ToImage


def test_floats_are_cropped_while_decoding_and_resized_behind():
    transform = v2.Compose(
        [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.RandomResizedCrop((8, 9)), v2.RandomRotation(3)]
    )
    recipe = read(transform)
    assert names(one.own for one in recipe.fused) == ["ToImage", "ToDtype", "RandomResizedCrop"]
    assert names(recipe.behind(3)) == ["ToImage", "ToDtype", "Resized", "RandomRotation"]
    assert recipe.shape is None and recipe.random and "but for its resizing" in str(recipe.why_not)
    tensor = torch.rand(3, 20, 30)
    expected = v2.functional.resize(tensor, [8, 9])
    assert torch.equal(recipe.tail[0](tensor), expected) and torch.equal(recipe.tail[0](expected), expected)
    assert recipe.is_current()
    transform.transforms[2].size = (7, 7)
    assert not recipe.is_current()


def test_floats_are_not_resized_whole():
    recipe = read(v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Resize((8, 8))]))
    assert recipe.fused == () and names(recipe.to_tensor) == ["ToImage", "ToDtype"] and names(recipe.tail) == ["Resize"]


def keep(image):
    return image


@pytest.mark.parametrize(("steps", "shown"), [
    ([v1.CenterCrop(3)], True), ([v1.CenterCrop(3), v1.ToTensor()], False), ([v1.CenterCrop(3), keep, v1.ToTensor()], True),
    ([v1.CenterCrop(3), v1.ColorJitter(), v1.ToTensor(), keep], False), ([v1.CenterCrop(3), v1.ColorJitter()], True),
])  # fmt: skip
def test_who_sees_pillows_image(steps, shown):
    assert read(v1.Compose(steps)).shows_image is shown


CHANGES = [
    lambda transform: setattr(transform.transforms[0], "size", (5, 5)),
    lambda transform: setattr(transform.transforms[0], "scale", (0.5, 1.0)),
    lambda transform: setattr(transform.transforms[0], "interpolation", v1.InterpolationMode.BICUBIC),
    lambda transform: setattr(transform.transforms[1], "p", 0.9),
    lambda transform: transform.transforms.append(v1.RandomErasing()),
    lambda transform: transform.transforms.pop(),
    lambda transform: transform.transforms.__setitem__(1, v1.RandomVerticalFlip()),
    lambda transform: setattr(transform, "transforms", [v1.ToTensor()]),
    lambda transform: transform.transforms[0].register_forward_hook(keep),
    lambda transform: transform.transforms[1].register_forward_pre_hook(keep),
    lambda transform: setattr(transform.transforms[1], "forward", keep),
]


@pytest.mark.parametrize("change", CHANGES, ids=range(len(CHANGES)))
@pytest.mark.parametrize("kit", [v1, v2], ids=["v1", "v2"])
def test_what_is_changed_in_place_is_seen(kit, change):
    transform = kit.Compose([kit.RandomResizedCrop(9), kit.RandomHorizontalFlip(), kit.PILToTensor()])
    recipe = read(transform)
    assert recipe.is_current()
    change(transform)
    assert not recipe.is_current()
    assert read(transform).is_current()


def test_lists_and_tensors_that_change_in_place_are_seen():
    size = [9]
    transform = v1.Compose([v1.Resize(size), v1.ToTensor(), v1.Normalize([0.5] * 3, [0.5] * 3)])
    recipe = read(transform)
    transform.transforms[2].mean[0] = 0.1
    assert not recipe.is_current()
    recipe = read(transform)
    size[0] = 10
    assert not recipe.is_current()
    crop = v2.RandomResizedCrop(9)
    recipe = read(crop)
    assert recipe.is_current()
    crop._log_ratio = torch.zeros(2)
    assert not recipe.is_current()


def test_containers_that_change_in_place_are_seen():
    sequential = nn.Sequential(v2.CenterCrop(9))
    recipe = read(sequential)
    sequential.append(v2.RandomHorizontalFlip())
    assert not recipe.is_current() and len(read(sequential).fused) == 2
    inner = v1.Compose([v1.CenterCrop(9)])
    recipe = read(v1.Compose([inner]))
    inner.transforms[0] = v1.CenterCrop(8)
    assert not recipe.is_current()


def test_views():
    crop = v1.RandomResizedCrop(9)
    recipe = read(fastfeed.Views(crop, v1.Compose([crop, v1.ToTensor(), v1.RandomErasing()]), fastfeed.Views(crop)))
    assert [view.names for view in recipe.views] == [("RandomResizedCrop",), ("RandomResizedCrop", "ToTensor"), ()]
    assert recipe.random and recipe.why_not is not None and recipe.fused == () and recipe.is_current()
    crop.size = (8, 8)
    assert not recipe.is_current()


def test_a_view_of_which_nothing_is_known():
    assert read(fastfeed.Views(keep, keep)).names == ()
