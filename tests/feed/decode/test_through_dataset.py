"""Decoding seen from a dataset: broken files have their place, transforms may change between epochs, any transform is taken."""

import io

import numpy as np
import pytest
import torch
import torchvision.transforms as v1
from fusing import jpeg, noisy, unfused
from helpers import encoded, packed
from loading import equal, seed_all
from PIL import Image
from torch.utils.data import Subset, default_collate

import fastfeed
from fastfeed.errors import DecodeError

TRAIN = v1.Compose([v1.RandomResizedCrop(24), v1.RandomHorizontalFlip(), v1.ToTensor()])


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A packed dataset of (file name -> bytes), some of which are not what they are called, some broken."""
    root = tmp_path_factory.mktemp("decoding")
    made = {
        "0.jpg": jpeg((60, 90)), "1.jpg": encoded(noisy((50, 40)), "PNG"), "2.jpg": jpeg((60, 90), "CMYK"),
        "3.jpg": jpeg((60, 90))[:-40], "4.jpg": encoded(noisy((50, 40), "P"), "GIF"), "5.jpg": jpeg((60, 90), progressive=True),
    }  # fmt: skip
    (root / "photos" / "a").mkdir(parents=True)
    for name, data in made.items():
        (root / "photos" / "a" / name).write_bytes(data)
    packed(root / "photos", root / "packed")
    return root / "packed", list(made.values())


def test_content_decides_and_a_broken_file_has_its_place(files):
    path, data = files
    dataset = fastfeed.open(path, TRAIN, decode="exact")
    for at, raw in enumerate(data):
        expected, ends = unfused(TRAIN, raw, at)
        seed_all(at)
        if isinstance(expected, type):
            with pytest.raises(DecodeError, match=r"OSError.*truncated") as failure:
                dataset[at]
            assert failure.value.source == "a/3.jpg" and failure.value.sample == at
        else:
            assert equal(dataset[at][0], expected)
        assert torch.equal(torch.get_rng_state(), ends[0])


def test_what_goes_through_pillow_is_counted(files):
    path, _ = files
    sound = Subset(fastfeed.open(path, TRAIN), [0, 1, 2, 4, 5])
    loader = fastfeed.DataLoader(sound, batch_size=2, num_workers=0)
    assert sum(len(target) for _, target in loader) == 5
    counters = {name: count for name, count in loader.stats().counters.items() if "Pillow" in name}
    assert counters == {"images decoded by Pillow: no JPEG": 2, "images decoded by Pillow: CMYK or other colours": 1}


def test_steps_that_change_in_place_and_transforms_that_are_given_anew(files):
    path, data = files
    transform = v1.Compose([v1.RandomResizedCrop(24), v1.RandomHorizontalFlip(), v1.PILToTensor()])
    dataset = fastfeed.open(path, transform, decode="exact")

    def check():
        seed_all(3)
        found = dataset[0][0]
        seed_all(3)
        with Image.open(io.BytesIO(data[0])) as image:
            assert equal(found, dataset.transform(image.convert("RGB")))
        loader = fastfeed.DataLoader(dataset, batch_size=1, num_workers=0)
        assert next(iter(loader))[0].shape[1:] == found.shape
        return found.shape

    assert check() == (3, 24, 24)
    dataset.transform.transforms[0].size = (16, 16)
    assert check() == (3, 16, 16)
    dataset.transform.transforms[0].scale = (0.9, 1.0)
    dataset.transform.transforms[1].p = 1.0
    assert check() == (3, 16, 16)
    dataset.transform.transforms.insert(0, v1.CenterCrop(30))
    assert check() == (3, 16, 16)
    dataset.transform.transforms[1].register_forward_hook(lambda *_: noisy((7, 9)))
    assert check() == (3, 9, 7)
    dataset.transform = v1.Compose([v1.CenterCrop(8), v1.PILToTensor()])
    assert check() == (3, 8, 8)


def test_views_through_a_loader(files):
    path, _ = files
    dataset = fastfeed.open(path, fastfeed.Views(TRAIN, TRAIN))
    (one, other), target = next(iter(fastfeed.DataLoader(dataset, batch_size=3, num_workers=0)))
    assert one.shape == other.shape == (3, 3, 24, 24) and not torch.equal(one, other) and len(target) == 3
    assert equal(default_collate([dataset[0]])[1], target[:1])


def test_albumentations_through_a_dataset(files):
    albumentations = pytest.importorskip("albumentations", reason="albumentations is not installed")
    path, data = files
    compose = albumentations.Compose([albumentations.RandomCrop(20, 20), albumentations.HorizontalFlip()])
    whole = albumentations.Compose([albumentations.Resize(20, 20)])
    for transform in (compose, whole):
        dataset = fastfeed.open(path, transform)
        for at in (0, 1, 2, 4, 5):
            transform.set_random_seed(5)
            found = dataset[at][0]
            transform.set_random_seed(5)
            assert np.array_equal(found, unfused(transform, data[at])[0])


def test_albumentations_of_a_field_of_a_dict(tmp_path):
    albumentations = pytest.importorskip("albumentations", reason="albumentations is not installed")
    (tmp_path / "set").mkdir()
    for name, data in (("0", jpeg()), ("1", jpeg(mode="L"))):
        (tmp_path / "set" / f"{name}.jpg").write_bytes(data)
        (tmp_path / "set" / f"{name}.txt").write_text("words")
    packed(tmp_path / "set", tmp_path / "packed")
    crop = albumentations.Compose([albumentations.CenterCrop(20, 10)])
    dataset = fastfeed.open(tmp_path / "packed", {"jpg": crop})
    assert dataset[0]["jpg"].shape == (20, 10, 3) and dataset[1]["jpg"].shape == (20, 10)
