"""Prefix and rest of a dataset: random prefixes are found however they draw, and parts that are not the whole."""

import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import make_photos, pack_photos
from torchvision.datasets import ImageFolder
from torchvision.transforms import CenterCrop, Compose, Lambda, RandomCrop, Resize, ToTensor

import fastfeed
from fastfeed.errors import UsageError
from fastfeed.feed.prefix import Parts, made, parts_of, prove


class Made:
    """Samples that a function makes, and then a transform."""

    def __init__(self, make: Callable[[int], Any], transform: Callable[[Any], Any] | None = None, count: int = 100) -> None:
        self.make, self.transform, self.count = make, transform, count
        self.asked: list[int] = []

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        self.asked.append(index)
        sample = self.make(index)
        return sample if self.transform is None else self.transform(sample)


def noisy(value: torch.Tensor) -> torch.Tensor:
    return value + torch.rand(3) + float(np.random.rand()) + random.random()


def test_random_transforms_are_the_rest():
    dataset = Made(lambda index: torch.full((3,), index), noisy)
    parts = parts_of(dataset, "transform")
    states = torch.get_rng_state(), random.getstate()
    sizes = prove(dataset, parts)
    assert len(sizes) == 64 and min(sizes) > 12
    assert torch.equal(states[0], torch.get_rng_state()) and states[1] == random.getstate()
    torch.manual_seed(1)
    whole = [dataset[7] for _ in range(1)]
    torch.manual_seed(1)
    assert parts.finished(parts.prefix[7]).dtype == whole[0].dtype
    assert sorted(set(dataset.asked)) == sorted({at * 100 // 64 for at in range(64)})


OWN = np.random.default_rng(1)
COUNTER = itertools.count()


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        (lambda: torch.rand(1).item(), r"draws random numbers \(torch\)"),
        (lambda: float(np.random.rand()), r"draws random numbers \(numpy\)"),
        (random.random, r"draws random numbers \(random\)"),
        (lambda: torch.rand(1).item() + random.random(), r"draws random numbers \(torch, random\)"),
        (lambda: float(OWN.random()), "is another one each time"),
        (lambda: next(COUNTER), "is another one each time"),
    ],
    ids=["torch", "numpy", "random", "two", "own", "counter"],
)
def test_random_prefixes_are_refused(draw, words):
    for dataset, upto in ((Made(lambda _: draw(), noisy), "transform"), (Made(lambda _: 1.0, lambda _: draw()), "sample")):
        state = random.getstate()
        with pytest.raises(UsageError, match=words):
            prove(dataset, parts_of(dataset, upto))
        assert random.getstate() == state


def test_one_random_sample_among_many_is_found():
    dataset = Made(lambda index: random.random() if index == 50 else 1.0, float)
    with pytest.raises(UsageError, match="sample 50"):
        prove(dataset, parts_of(dataset, "transform"))


class More(Made):
    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index) * 2


def test_a_sample_is_made_and_what_is_drawn_for_it_is_told():
    dataset = Made(lambda index: index if index < 5 else torch.rand(1).item())
    assert made(dataset, 3) == (3, "") and made(dataset, 5)[1] == "torch"


def test_parts_that_are_not_the_whole_are_refused():
    dataset = More(lambda index: index + 1, lambda value: value + 1)
    with pytest.raises(UsageError, match="do not give what the dataset gives"):
        prove(dataset, parts_of(dataset, "transform"))
    assert prove(dataset, parts_of(dataset, "sample"))


class Named(Made):
    """Calls its transform by names, as albumentations wants it."""

    def __getitem__(self, index: int) -> Any:
        sample: Any = {"image": index, "mask": 1}
        transform: Any = self.transform
        return sample if transform is None else transform(**sample)


class Always(Made):
    """Calls its transform without looking whether there is one."""

    def __getitem__(self, index: int) -> Any:
        assert self.transform is not None
        return self.transform(index)


@pytest.mark.parametrize(("kind", "transform"), [(Named, lambda image, mask: image + mask), (Always, lambda value: value)])
def test_a_dataset_that_cannot_be_taken_apart_is_told(kind, transform):
    dataset = kind(int, transform)
    with pytest.raises(UsageError, match=r"cannot be taken apart at its transform: there is (TypeError|AssertionError)"):
        prove(dataset, parts_of(dataset, "transform"))
    assert len(prove(dataset, parts_of(dataset, "sample"))) == 64


def test_errors_of_the_dataset_are_its_own():
    dataset = Made(lambda index: 1 // (index - 50), lambda value: value)
    with pytest.raises(ZeroDivisionError):
        prove(dataset, parts_of(dataset, "transform"))


def test_what_cannot_be_kept_is_named():
    dataset = Made(lambda _: {1, 2}, None)
    with pytest.raises(UsageError, match=r"samples hold a builtins\.set"):
        prove(dataset, parts_of(dataset, "sample"))


def test_folders_of_torchvision_up_to_steps_of_a_compose(tmp_path: Path):
    make_photos(tmp_path / "photos", each=4)
    transform = Compose([Resize(14), CenterCrop(12), RandomCrop(8), ToTensor()])
    dataset = ImageFolder(str(tmp_path / "photos"), transform)
    for upto in ("transform", 0, 1, 2):
        assert len(prove(dataset, parts_of(dataset, upto))) == 8
    with pytest.raises(UsageError, match=r"draws random numbers \(torch\)"):
        prove(dataset, parts_of(dataset, 3))
    parts = parts_of(dataset, 2)
    image, label = parts.prefix[5]
    assert (image.size, label) == ((12, 12), 1)
    for upto in (5, -1):
        with pytest.raises(UsageError, match="has no such"):
            parts_of(dataset, upto)


def test_all_steps_of_a_compose():
    dataset = Made(lambda index: index, Compose([Lambda(lambda value: value + 1)]))
    parts = parts_of(dataset, 1)
    assert parts == Parts(parts.prefix, None) and prove(dataset, parts)


def test_packed_photos(tmp_path: Path):
    path = pack_photos(tmp_path)
    transform = Compose([RandomCrop(8), ToTensor()])
    dataset = fastfeed.open(path, transform, decode="exact")
    assert len(prove(dataset, parts_of(dataset, "transform"))) == 6
    assert dataset.transform is transform


@pytest.mark.parametrize("upto", ["nothing", None, 1.5, True])
def test_what_is_no_part(upto):
    with pytest.raises(UsageError, match="upto is"):
        parts_of(Made(float, float), upto)


def test_without_a_transform_only_whole_samples():
    with pytest.raises(UsageError, match="has no transform"):
        parts_of([1, 2], "transform")
    assert prove([1, 2], parts_of([1, 2], "sample")) and prove([], parts_of([], "sample")) == []
