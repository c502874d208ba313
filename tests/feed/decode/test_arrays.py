"""albumentations as the transform of an image: called with an array, its first crop decoded alone."""

import copy
import random
from functools import partial
from typing import Any

import numpy as np
import pytest
from fusing import jpeg, noisy
from helpers import encoded, photo

import fastfeed
from fastfeed.feed.decode import jpeg as decoder
from fastfeed.feed.decode.arrays import Arrays, as_function, is_of_arrays
from fastfeed.feed.decode.images import Images
from fastfeed.feed.fields import decode_rgb

A = pytest.importorskip("albumentations", reason="albumentations is not installed (with opencv-python-headless)")
TO_TENSOR = A.pytorch.ToTensorV2()
CROP = "RandomResizedCrop"
COMPOSES = {
    "train": (partial(A.Compose, [A.RandomResizedCrop((48, 40)), A.HorizontalFlip(), A.Normalize(), TO_TENSOR]), CROP),
    "sometimes": (partial(A.Compose, [A.RandomResizedCrop((48, 40), p=0.5), A.RandomBrightnessContrast()], p=0.7), CROP),
    "area": (partial(A.Compose, [A.RandomResizedCrop((24, 24), area_for_downscale="image")]), "RandomResizedCrop"),
    "random crop": (partial(A.Compose, [A.RandomCrop(40, 30), A.GaussNoise()]), "RandomCrop"),
    "centre": (partial(A.Compose, [A.CenterCrop(40, 30), TO_TENSOR]), "CenterCrop"),
    "padded": (partial(A.Compose, [A.CenterCrop(40, 300, pad_if_needed=True)]), "CenterCrop"),
    "too small": (partial(A.Compose, [A.CenterCrop(400, 300)]), "CenterCrop"),
    "too small, sometimes": (partial(A.Compose, [A.RandomCrop(400, 300, p=0.5), A.HorizontalFlip()], p=0.8), "RandomCrop"),
    "evaluation": (partial(A.Compose, [A.SmallestMaxSize(64), A.CenterCrop(56, 56), A.Normalize(), TO_TENSOR]), None),
    "resized": (partial(A.Compose, [A.Resize(56, 56), A.HorizontalFlip()]), None),
    "one of": (partial(A.Compose, [A.OneOf([A.RandomCrop(9, 9), A.CenterCrop(9, 9)])]), None),
    "boxes": (partial(A.Compose, [A.RandomCrop(40, 30)], bbox_params=A.BboxParams("coco")), None),
    "nothing": (partial(A.Compose, []), None),
}  # fmt: skip


def states(compose):
    return [
        (step.py_random.getstate(), str(step.random_generator.bit_generator.state)) for step in (compose, *compose.transforms)
    ]


def result(do, compose, seed):
    compose.set_random_seed(seed)
    try:
        found = do()
    except Exception as error:  # noqa: BLE001 - whatever albumentations raises
        return type(error), None
    return np.asarray(found), states(compose)


@pytest.mark.parametrize("name", COMPOSES)
def test_they_are_equal(name):
    make, first = COMPOSES[name]
    compose = make()
    images = Images(compose, "auto")
    assert images.fuses and images.recipe.random
    assert images.recipe.names == ("albumentations" if first is None else f"albumentations, {first}",)
    assert (images.recipe.why_not is None) == (first is not None)
    files = [jpeg((90, 120)), jpeg((64, 50), "L"), encoded(photo(1, (70, 80)), "PNG"), jpeg((200, 300), progressive=True)]
    for seed, data in enumerate(files * 3):
        expected, ends = result(lambda data=data: as_function(compose)(decode_rgb(data)), compose, seed)
        found, others = result(lambda data=data: images.decoded(data).finished(), compose, seed)
        assert np.array_equal(found, expected) if isinstance(found, np.ndarray) else found is expected
        assert ends == others
        assert images.is_of(compose)


def test_only_the_crop_is_decoded(monkeypatch):
    seen = []
    decode = decoder.decode

    def noted(*what):
        seen.append(what[2])
        return decode(*what)

    monkeypatch.setattr(decoder, "decode", noted)
    images = Images(COMPOSES["centre"][0](), "auto")
    images.decoded(jpeg((90, 120)))
    assert (seen[-1].top, seen[-1].bottom) == (40, 80)


def test_reading_one_uses_up_no_number_and_no_state_is_shared():
    compose = COMPOSES["train"][0]()
    python, before = random.getstate(), copy.deepcopy(states(compose))
    assert Arrays(compose).why_not is None
    assert states(compose) == before and random.getstate() == python


def test_another_first_step_is_seen_and_its_attributes_are_those_of_the_moment():
    compose = COMPOSES["train"][0]()
    images = Images(compose, "auto")
    compose.transforms[0].size = (20, 30)
    assert images.is_of(compose)
    assert images.decoded(jpeg()).finished().shape == (3, 20, 30)
    compose.transforms[0] = A.Resize(9, 9)
    assert not images.is_of(compose)


def test_a_crop_of_another_version_is_called_as_it_is(monkeypatch):
    monkeypatch.setattr(A.RandomCrop, "apply", lambda self, img, **_: img[:1, :1] + 1)
    assert "crops otherwise" in str(Arrays(A.Compose([A.RandomCrop(4, 4)])).why_not)
    monkeypatch.delattr(A.CenterCrop, "get_params_dependent_on_data")
    assert "called as it is" in str(Arrays(A.Compose([A.CenterCrop(4, 4)])).why_not)


def test_what_is_told():
    told = Images(COMPOSES["evaluation"][0](), "auto").told()
    assert "SmallestMaxSize" in told[1] and told[-1] == "decoding: albumentations resizes"


def test_as_functions():
    compose: Any = COMPOSES["centre"][0]()
    assert is_of_arrays(compose) and not is_of_arrays(photo) and as_function(photo) is photo
    assert as_function(compose)(noisy((50, 60))).shape == (3, 40, 30)
    views = fastfeed.Views(compose, compose)
    assert [view.shape for view in views(noisy((50, 60)))] == [(3, 40, 30)] * 2
