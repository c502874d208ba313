"""Encoded: the same places and random numbers as decoding, the files' bytes, and what is decoded before."""

import pickle
from typing import Any

import numpy as np
import pytest
import torch
import torchvision.transforms as v1
from fusing import counted, jpeg, levels, noisy
from helpers import encoded
from loading import equal, seed_all, states
from torchvision.transforms import v2

import fastfeed
from fastfeed.feed.decode import encoded as module
from fastfeed.feed.decode.encoded import FIRST, HEIGHT, INDEX, SIZE, WIDTH, Encoded, Encoder, why_not
from fastfeed.feed.decode.images import Images
from fastfeed.feed.decode.placed import decoded_by_pillow
from fastfeed.feed.decode.whole import WRITTEN
from fastfeed.jpegrows import scan_rows

TRAIN = v1.Compose([v1.RandomResizedCrop(24, (0.1, 0.6)), v1.RandomHorizontalFlip(), v1.PILToTensor()])
FLOATS = v1.Compose([
    v1.RandomResizedCrop(24), v1.RandomVerticalFlip(), v1.ToTensor(), v1.Normalize([0.4] * 3, [0.2] * 3),
])  # fmt: skip
TENSORS = v2.Compose([
    v2.ToImage(), v2.RandomResizedCrop(24, antialias=True), v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True),
])  # fmt: skip
EVALUATE = v1.Compose([v1.Resize(40), v1.CenterCrop(24), v1.PILToTensor()])
PLACES = v1.Compose([v1.RandomCrop(40), v1.RandomHorizontalFlip(), v1.Resize((24, 24)), v1.PILToTensor()])
ROWED = {"restart_marker_rows": 1}


def memory(shape, dtype):
    return torch.empty(shape, dtype=dtype)


def made(images: Images, files: list[bytes], rows: list[Any] | None = None, most_bytes: int = 1 << 30) -> Encoded:
    encoder = Encoder(images, most_bytes)
    for number, data in enumerate(files):
        assert encoder.put(number, data, None if rows is None else rows[number]) is WRITTEN
    return encoder.made(memory)


def pixels_of(images: Images, files: list[bytes]) -> np.ndarray:
    """What decoding each file makes of it, before it is a tensor."""
    return np.stack([images.pixels(data) for data in files])


@pytest.mark.parametrize("transform", [TRAIN, FLOATS, TENSORS, EVALUATE, PLACES], ids=range(5))
@pytest.mark.parametrize("rowed", [False, True])
def test_places_are_those_of_decoding_and_numbers_too(transform, rowed):
    images = Images(transform, "close")
    files = [jpeg((90, 70), seed=seed, mode="L" if seed == 2 else "RGB", subsampling=seed % 3, **ROWED) for seed in range(8)]
    seed_all(3)
    expected = pixels_of(images, files)
    ends = states()
    seed_all(3)
    batch = made(images, files, [scan_rows(data) for data in files] if rowed else None)
    assert equal(states(), ends)
    assert len(batch.pixels) == 0 and batch.where[:, INDEX].tolist() == list(range(8))
    most, mean = levels(decoded_by_pillow(batch), expected)
    assert most <= 2 and mean < 0.1
    assert rowed == (batch.data.numel() < sum(map(len, files)))


def test_what_others_do_not_take_is_decoded_and_keeps_its_place():
    images = Images(TRAIN, "close")
    files = [
        encoded(noisy(), "PNG"), jpeg(), jpeg(progressive=True), jpeg(mode="CMYK"), jpeg(), encoded(noisy(mode="P"), "GIF"),
    ]  # fmt: skip
    seed_all(1)
    expected = pixels_of(images, files)
    seed_all(1)
    with counted() as counts:
        batch = made(images, files)
    assert batch.where[:, SIZE].gt(0).tolist() == [False, True, False, False, True, False]
    assert batch.where[:, HEIGHT].gt(0).all() and batch.where[:, WIDTH].gt(0).all()
    assert levels(decoded_by_pillow(batch), expected)[0] <= 2
    assert np.array_equal(batch.pixels, expected[[0, 2, 3, 5]].reshape(4, -1))
    said = {name.rpartition(": ")[2]: count for name, count in counts.items() if name.startswith("images decoded by workers")}
    assert said == {"no JPEG": 2, "not baseline": 1, "CMYK or other colours": 1}


def test_a_step_that_does_not_fit_is_done_by_itself():
    images = Images(v1.Compose([v1.RandomCrop(60, pad_if_needed=True), v1.PILToTensor()]), "close")
    files = [jpeg((70, 80)), jpeg((50, 80)), jpeg((70, 80))]
    seed_all(5)
    expected = pixels_of(images, files)
    ends = states()
    seed_all(5)
    batch = made(images, files)
    assert equal(states(), ends)
    assert batch.where[:, SIZE].gt(0).tolist() == [True, False, True]
    assert np.array_equal(decoded_by_pillow(batch), expected)


def test_of_pixels_beyond_a_batch_s_bytes_workers_take_care():
    """Each part has 40 x 40 pixels of 3 bytes: two fit."""
    images = Images(PLACES, "close")
    files = [*(jpeg((90, 70), seed=seed) for seed in range(3)), jpeg((40, 40), seed=3)]
    most_bytes = 3 * 40 * 40 * 3 - 1
    with counted() as counts:
        seed_all(3)
        expected = pixels_of(images, files)
        ends = states()
        seed_all(3)
        batch = made(images, files, most_bytes=most_bytes)
    assert equal(states(), ends)
    assert batch.where[:, SIZE].gt(0).tolist() == [True, True, False, False]
    assert (batch.where[:, HEIGHT] * batch.where[:, WIDTH] * 3)[:2].sum() <= most_bytes
    assert levels(decoded_by_pillow(batch), expected)[0] <= 2
    assert counts == {"images decoded by workers, not by DALI: more pixels than a batch may have (batch_bytes)": 2}


def test_of_files_beyond_what_dali_can_address_workers_take_care(monkeypatch):
    images, files = Images(TRAIN, "close"), [jpeg((90, 70), seed=seed) for seed in range(4)]
    monkeypatch.setattr(module, "_MOST_BYTES", sum(map(len, files[:3])) - 1)
    assert len(files[0]) + len(files[1]) < module._MOST_BYTES
    with counted() as counts:
        seed_all(3)
        expected = pixels_of(images, files)
        seed_all(3)
        batch = made(images, files)
    assert batch.where[:, SIZE].gt(0).tolist() == [True, True, False, False]
    assert levels(decoded_by_pillow(batch), expected)[0] <= 2
    assert counts == {"images decoded by workers, not by DALI: more bytes than a batch may have (2 GiB)": 2}


def test_a_file_that_is_cut_off_raises_before_anything_is_drawn():
    encoder = Encoder(Images(TRAIN, "close"), 1 << 30)
    before = states()
    with pytest.raises(OSError, match="truncated"):
        encoder.put(0, jpeg()[:-40])
    assert equal(states(), before)


def test_rows_of_another_file_are_noticed():
    images = Images(TRAIN, "close")
    one, other = jpeg((90, 70), **ROWED), jpeg((90, 70), seed=1, **ROWED)
    seed_all(0)
    batch = made(images, [one], [scan_rows(other)])
    seed_all(0)
    assert len(batch.pixels) == 1 and levels(batch.pixels, pixels_of(images, [one]).reshape(1, -1))[0] <= 2


def test_its_parts_are_one_memory_and_pass_a_pipe():
    asked = []

    def noted(shape, dtype):
        asked.append(torch.zeros(shape, dtype=dtype))
        return asked[-1]

    encoder = Encoder(Images(TRAIN, "close"), 1 << 30)
    files = [jpeg(), encoded(noisy(), "PNG"), jpeg(seed=1)]
    for number, data in enumerate(files):
        encoder.put(number, data)
    batch = encoder.made(noted)
    (whole,) = asked
    parts = [batch.data, batch.where, batch.place, batch.pixels]
    assert all(part.untyped_storage().data_ptr() == whole.data_ptr() for part in parts) and batch.size == (24, 24)
    assert [part.dtype for part in parts] == [torch.uint8, torch.int64, torch.float32, torch.uint8]
    assert [part.shape for part in parts[1:]] == [(3, 7), (3, 4), (1, 24 * 24 * 3)]
    assert all(part.data_ptr() % 64 == whole.data_ptr() % 64 for part in parts)
    first = batch.where[2, FIRST]
    assert bytes(batch.data[first:].tolist()) == files[2]
    assert equal(pickle.loads(pickle.dumps(batch)), batch)


def test_batches_of_similar_size_ask_for_equal_memory():
    sizes: list[tuple[int, ...]] = []

    def noted(shape, dtype):
        sizes.append(shape)
        return torch.empty(shape, dtype=dtype)

    for length in range(20):
        encoder = Encoder(Images(TRAIN, "close"), 1 << 30)
        encoder.put(0, with_comment(jpeg(), 60_000 + 20 * length))
        encoder.made(noted)
    assert len(sizes) == 20 and len(set(sizes)) == 1


def with_comment(data: bytes, size_bytes: int) -> bytes:
    return data[:2] + b"\xff\xfe" + (size_bytes + 2).to_bytes(2, "big") + bytes(size_bytes) + data[2:]


@pytest.mark.parametrize(
    ("transform", "reason"),
    [
        (TRAIN, None), (FLOATS, None), (TENSORS, None), (EVALUATE, None), (PLACES, None),
        (fastfeed.Views(TRAIN, TRAIN), "Views makes several pictures of an image"),
        (v1.Compose([v1.RandomResizedCrop(24), v1.ColorJitter(), v1.ToTensor()]),
         "ColorJitter (torchvision.transforms.transforms.ColorJitter) is called as it is"),
        (v1.Compose([v1.RandomResizedCrop(24)]), "its results have no one size and dtype"),
        (v1.Compose([v1.Resize(24), v1.ToTensor()]), "its results have no one size and dtype"),
        (v1.Compose([v1.RandomResizedCrop(24, interpolation=v1.InterpolationMode.BICUBIC), v1.ToTensor()]),
         "RandomResizedCrop resizes with another filter than antialiased bilinear"),
        (v2.Compose([v2.ToImage(), v2.Resize((24, 24), antialias=False), v2.ToDtype(torch.float32)]),
         "Resize resizes with another filter than antialiased bilinear"),
        (v1.Compose([v1.Resize(50), v1.RandomResizedCrop(24), v1.ToTensor()]), "RandomResizedCrop resizes a second time"),
    ],
    ids=range(12),
)  # fmt: skip
def test_what_cannot_be_left_to_another_decoder_is_named(transform, reason):
    assert why_not(Images(transform, "auto")) == reason


def test_timms_crop_of_a_drawn_filter_is_named():
    timm = pytest.importorskip("timm.data.transforms")
    crop = timm.RandomResizedCropAndInterpolation(24, interpolation="random")
    named = why_not(Images(v1.Compose([crop, v1.PILToTensor()]), "auto"))
    assert named == "RandomResizedCropAndInterpolation draws its filter"
    crop = timm.RandomResizedCropAndInterpolation(24, interpolation="bilinear")
    assert why_not(Images(v1.Compose([crop, v1.PILToTensor()]), "auto")) is None
