"""What a dataset does with its image field: read once, done for each image, told in sentences."""

import random

import numpy as np
import pytest
import torch
import torchvision.transforms as v1
from fusing import assert_same, fused, jpeg, levels, noisy, unfused, written
from helpers import encoded
from PIL import Image
from torchvision.transforms import v2

import fastfeed
from fastfeed.feed.decode import checked, images
from fastfeed.feed.decode.images import Begun, Images, is_colour_jpeg
from fastfeed.feed.decode.picture import HAS_SIMD
from fastfeed.feed.decode.whole import WRITTEN

TRAIN = v1.Compose([v1.RandomResizedCrop(24), v1.RandomHorizontalFlip(), v1.ToTensor(), v1.Normalize([0.5] * 3, [0.2] * 3)])
EVALUATE = v1.Compose([v1.Resize(30), v1.CenterCrop(24), v1.PILToTensor()])


def test_colour_jpegs():
    assert is_colour_jpeg(jpeg()) and is_colour_jpeg(memoryview(jpeg(progressive=True)))
    for data in (jpeg(mode="L"), jpeg(mode="CMYK"), encoded(noisy(), "PNG"), b"", jpeg()[:30]):
        assert not is_colour_jpeg(data)


@pytest.mark.parametrize(("transform", "decode", "close"), [
    (TRAIN, "auto", True), (EVALUATE, "auto", False), (TRAIN, "exact", False), (EVALUATE, "close", True),
    (v1.Compose([v1.Resize(30), v1.ColorJitter()]), "auto", True),
    (v1.Compose([v1.Resize(30), v1.RandomHorizontalFlip(1.0)]), "auto", False),
], ids=range(6))  # fmt: skip
def test_auto_is_close_where_numbers_are_drawn(transform, decode, close):
    assert Images(transform, decode).close is close
    told = Images(transform, decode).told()[-1]
    assert ("close" if close else "exact") in told and f'decode="{decode}"' in told


@pytest.mark.parametrize(("transform", "batch"), [
    (TRAIN, ((3, 24, 24), torch.float32)), (EVALUATE, ((3, 24, 24), torch.uint8)),
    (v1.Compose([v1.CenterCrop((3, 4)), v1.PILToTensor(), v1.ConvertImageDtype(torch.float64)]), ((3, 3, 4), torch.float64)),
    (v1.Compose([v1.CenterCrop((3, 4)), v1.PILToTensor(), v1.ConvertImageDtype(torch.int16)]), ((3, 3, 4), torch.int16)),
    (v2.Compose([v2.CenterCrop((3, 4)), v2.ToImage(), v2.ToDtype(torch.float16, scale=True)]), ((3, 3, 4), torch.float16)),
    (v1.Compose([v1.Resize(30), v1.PILToTensor()]), None), (v1.Compose([v1.CenterCrop(4)]), None),
    (v1.Compose([v1.CenterCrop(4), v1.ToTensor(), v1.RandomErasing()]), None),
    (v2.Compose([v2.CenterCrop(4), v2.ToImage(), v2.Normalize([0.5], [0.5])]), None),
    (v2.Compose([v2.CenterCrop(4), v2.ToImage(), v2.ToDtype(torch.bfloat16)]), None),
], ids=range(10))  # fmt: skip
def test_what_can_be_written_into_a_batch(transform, batch):
    found = Images(transform, "exact")
    assert found.batch == batch
    if batch is not None:
        for seed in range(3):
            assert_same(found, jpeg((50, 60)), seed)


def test_an_image_that_does_not_fit_is_given_back():
    transform = v1.Compose([v1.RandomCrop(40, pad_if_needed=True), v1.PILToTensor()])
    found = Images(transform, "exact")
    out = np.zeros((3, 40, 40), dtype=np.uint8)
    assert found.put(out, jpeg((50, 60))) is WRITTEN
    begun = found.put(out, jpeg((30, 60)))
    assert type(begun) is Begun and begun.finished().shape == (3, 40, 40)
    for size in ((50, 60), (30, 60), (60, 30), (40, 40)):
        assert_same(found, jpeg(size), 7)


def test_close_is_written_as_it_is_given():
    found = Images(v1.Compose([v1.RandomResizedCrop(24), v1.PILToTensor()]), "auto")
    one, other = fused(found, jpeg())[0], written(found, jpeg())[0]
    assert torch.equal(one, other)
    most, _ = levels(one, unfused(found.recipe.whole, jpeg())[0])
    assert most <= 2 and (most == 0) == HAS_SIMD


def test_a_broken_file_uses_up_no_number():
    timm = pytest.importorskip("timm.data", reason="timm is not installed")
    for transform in (TRAIN, timm.create_transform(24, is_training=True, color_jitter=None)):
        found = Images(transform, "exact")
        random.seed(1)
        before = torch.get_rng_state(), random.getstate()
        for data in (jpeg()[:-50], encoded(noisy(), "PNG")[:-50], b"nothing"):
            with pytest.raises(OSError, match=r"truncated|identify"):
                found.decoded(data)
            with pytest.raises(OSError, match=r"truncated|identify"):
                found.put(np.empty((3, 24, 24), dtype=np.float32), data)
        assert torch.equal(before[0], torch.get_rng_state()) and before[1] == random.getstate()


def seen(image):
    return image.info


@pytest.mark.parametrize("steps", [[], [v1.RandomResizedCrop(9)], [v1.CenterCrop(9), v1.ColorJitter()]], ids=range(3))
def test_the_users_own_steps_see_what_pillow_tells_of_the_file(steps):
    data = jpeg(comment=b"words", icc_profile=b"a profile", dpi=(72, 72))
    transform = v1.Compose([*steps, v1.RandomHorizontalFlip(), seen])
    info = fused(Images(transform, "exact"), data)[0]
    assert info == unfused(transform, data)[0] and info["comment"] == b"words"
    image = fused(Images(v1.Compose([v1.CenterCrop(9)]), "exact"), data)[0]
    assert type(image) is Image.Image and image.info == info


def test_the_image_is_the_users_own():
    found = Images(v1.CenterCrop(9), "exact")
    one = found.decoded(jpeg(seed=1)).finished()
    before = np.array(one)
    found.decoded(jpeg(seed=2)).finished()
    assert np.array_equal(one, before)


def test_it_is_of_a_transform_as_it_is_now():
    transform = v1.Compose([v1.RandomResizedCrop(24), v1.ToTensor()])
    found = Images(transform, "exact")
    assert found.is_of(transform) and not found.is_of(v1.Compose([v1.RandomResizedCrop(24), v1.ToTensor()]))
    transform.transforms[0].size = (160, 160)
    assert not found.is_of(transform)
    found = Images(transform, "exact")
    torch.set_default_dtype(torch.float64)
    try:
        assert not found.is_of(transform)
        assert Images(transform, "exact").batch == ((3, 160, 160), torch.float64)
    finally:
        torch.set_default_dtype(torch.float32)
    assert found.is_of(transform)


@pytest.mark.parametrize(("transform", "lines"), [
    (TRAIN, ["RandomResizedCrop + RandomHorizontalFlip + ToTensor + Normalize done while decoding, straight into the batch"]),
    (v1.Compose([v1.RandomCrop(9), seen]),
     ["RandomCrop done while decoding", "seen (", "SIMD resizes" if HAS_SIMD else "torch's antialiased"]),
    (v1.Compose([seen, v1.RandomCrop(9)]), ["images are decoded by Pillow, whole: seen ("]),
    (None, ["there is no transform"]),
    (v2.Compose([v2.ToImage(), v2.Resize((8, 9))]), ["", "torchvision's kernel for tensors"]),
    (fastfeed.Views(v1.RandomCrop(9), v1.CenterCrop(8)), ["[RandomCrop] + [CenterCrop] done while decoding"]),
], ids=range(6))  # fmt: skip
def test_what_is_told(transform, lines):
    told = Images(transform, "auto").told()
    assert len(told) >= len(lines)
    assert all(line in sentence for line, sentence in zip(lines, told, strict=False))


def test_without_simplejpegs_pixels_pillow_decodes_and_that_is_told(monkeypatch):
    monkeypatch.setattr(images, "why_pillow", lambda: "its pixels differ")
    found = Images(TRAIN, "exact")
    assert "by Pillow: its pixels differ" in found.told()[0]
    for seed in range(3):
        assert_same(found, jpeg(), seed)
    assert checked.why_pillow() is None


def test_a_step_that_fails_fails_as_it_would():
    wrong = v1.Compose([v1.CenterCrop(9), v1.ToTensor(), v1.Normalize([0.5] * 4, [0.5] * 4)])
    found = Images(wrong, "exact")
    assert found.batch is None
    assert fused(found, jpeg())[0] is unfused(wrong, jpeg())[0] is RuntimeError
    small = v1.Compose([v1.RandomCrop(90), v1.ToTensor()])
    assert fused(Images(small, "exact"), jpeg())[0] is unfused(small, jpeg())[0] is ValueError


def test_raw_is_written_as_bytes_of_which_its_levels_make_the_rest():
    found = Images(v1.Compose([v1.RandomResizedCrop((9, 7)), v1.ToTensor(), v1.Normalize([0.5], [0.25])]), "auto")
    assert found.levels is not None and found.levels is found.levels
    raw, whole = np.zeros((3, 9, 7), dtype=np.uint8), np.zeros((3, 9, 7), dtype=np.float32)
    torch.manual_seed(4)
    assert found.put(raw, jpeg((50, 60)), raw=True) is WRITTEN
    torch.manual_seed(4)
    assert found.put(whole, jpeg((50, 60))) is WRITTEN
    assert np.array_equal(found.levels.applied(torch.from_numpy(raw)[None])[0].numpy(), whole) and raw.any()
