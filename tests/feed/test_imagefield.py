"""Which images of a dataset are transformed while they are decoded, and what the others are."""

from typing import Any

import numpy as np
import pytest
import torch
from fusing import levels
from helpers import encoded, packed, photo
from packing import tree
from torchvision import transforms

import fastfeed
from fastfeed.feed.dataset import PackedDataset
from fastfeed.feed.decode.encoded import INDEX
from fastfeed.feed.decode.placed import decoded_by_pillow

CROP = transforms.Compose([transforms.RandomResizedCrop(12), transforms.PILToTensor()])


@pytest.fixture
def captioned(tmp_path):
    files: dict[str, Any] = {}
    for number in range(4):
        image = photo(number, (40, 30)).convert("L" if number == 2 else "RGB")
        files |= {f"{number}.jpg": encoded(image), f"{number}.txt": f"photo {number}"}
    packed(tree(tmp_path / "source", files), tmp_path / "packed")
    return tmp_path / "packed"


def test_a_field_of_dicts_is_transformed_while_it_is_decoded_but_gray_stays_gray(captioned):
    dataset = fastfeed.open(captioned, {"jpg": CROP, "txt": len}, decode="exact")
    assert "RandomResizedCrop + PILToTensor done while decoding" in dataset.decoding[0]
    plain = fastfeed.open(captioned)
    for at in range(4):
        torch.manual_seed(at)
        expected = CROP(plain[at]["jpg"])
        torch.manual_seed(at)
        sample = dataset[at]
        assert torch.equal(sample["jpg"], expected) and sample["txt"] == len(f"photo {at}")
    assert dataset[2]["jpg"].shape == (1, 12, 12)


def test_dicts_are_batched_where_they_lie(captioned):
    dataset = fastfeed.open(captioned, {"jpg": CROP})
    batch = next(iter(fastfeed.DataLoader(fastfeed.open(captioned, {"jpg": CROP}).select([0, 1, 3]), 3, num_workers=0, seed=1)))
    assert list(batch) == ["jpg", "txt"] and batch["jpg"].shape == (3, 3, 12, 12)
    assert batch["txt"] == ["photo 0", "photo 1", "photo 3"]
    with pytest.raises(RuntimeError, match="stack expects each tensor to be equal size"):  # as torch says it of gray and RGB
        list(fastfeed.DataLoader(dataset, 4, num_workers=0))


def test_the_image_of_a_dict_draws_before_other_fields_and_the_target(tmp_path):
    files: dict[str, Any] = {}
    for number in range(2):  # a gray one is not transformed while it is decoded
        image = photo(number, (40, 30)).convert("L" if number else "RGB")
        files |= {f"a/{number}.jpg": encoded(image), f"a/{number}.caption.txt": "words"}
    packed(tree(tmp_path / "source", files), tmp_path / "packed")
    image = transforms.Compose([transforms.RandomResizedCrop(12), transforms.ColorJitter(0.5), transforms.PILToTensor()])

    def drawn(_: object) -> float:
        return torch.rand(1).item()

    plain = fastfeed.open(tmp_path / "packed")
    dataset = fastfeed.open(tmp_path / "packed", {"caption.txt": drawn, "jpg": image}, target_transform=drawn, decode="exact")
    for at in range(2):
        torch.manual_seed(at)
        expected, target, caption = image(plain[at]["jpg"]), drawn(0), drawn("words")
        torch.manual_seed(at)
        sample = dataset[at]
        assert list(sample) == ["caption.txt", "cls", "jpg"] and torch.equal(sample["jpg"], expected)
        assert (sample["cls"], sample["caption.txt"]) == (target, caption)


@pytest.mark.parametrize(("options", "why"), [
    ({"transform": len}, "a function of whole samples"), ({}, "they have no transform"),
    ({"transform": {"txt": len}}, "they have no transform"),
    ({"transform": {"jpg": CROP}, "decoders": {"jpg": "rgb"}}, "decoders= names a decoder"),
    ({"transform": {"jpg": np.asarray}}, "is called as it is"),
])  # fmt: skip
def test_why_nothing_is_done_while_decoding(captioned, options, why):
    assert why in fastfeed.open(captioned, **options).decoding[0]
    assert fastfeed.open(captioned, fields=["txt"]).decoding == ()


def test_what_makes_a_sample_may_read_another_batch(tmp_path):
    crop = transforms.Compose([transforms.CenterCrop(12), transforms.PILToTensor()])
    for name, first in (("one", 0), ("other", 5)):
        files = {f"a/{number}.jpg": encoded(photo(first + number, (40, 30))) for number in range(3)}
        packed(tree(tmp_path / name, files), tmp_path / f"{name} packed")
    other = fastfeed.DataLoader(fastfeed.open(tmp_path / "other packed", crop), 3, num_workers=0)

    def target(given: int) -> int:
        next(iter(other))
        return given

    path = tmp_path / "one packed"
    images, targets = next(iter(fastfeed.DataLoader(fastfeed.open(path, crop, target_transform=target), 3, num_workers=0)))
    assert torch.equal(images, torch.stack([image for image, _ in fastfeed.open(path, crop)])) and targets.tolist() == [0] * 3


def test_two_images_of_a_sample_may_have_to_fit_each_other(tmp_path):
    files: dict[str, Any] = {}
    for number in range(2):
        files |= {f"{number}.jpg": encoded(photo(number)), f"{number}.mask.png": encoded(photo(number).convert("P"), "PNG")}
    packed(tree(tmp_path / "source", files), tmp_path / "packed")
    dataset = fastfeed.open(tmp_path / "packed", {"jpg": CROP})
    assert "jpg, mask.png is one of several images of a sample" in dataset.decoding[0]
    assert dataset[0]["mask.png"].mode == "P"


def test_the_image_is_transformed_before_its_target_as_image_folder_does(tmp_path):
    source = tree(tmp_path / "photos", {f"{name}/0.jpg": encoded(photo(1, (30, 20))) for name in "ab"})
    packed(source, tmp_path / "packed")
    calls: list[str] = []

    def image(given: Any) -> Any:
        calls.append("image")
        return given

    def target(given: int) -> int:
        calls.append("target")
        return given

    fastfeed.open(tmp_path / "packed", image, target_transform=target)[0]
    assert calls == ["image", "target"]


def test_raw_batches_are_bytes_where_something_is_made_of_them(captioned):
    floats = transforms.Compose([transforms.RandomResizedCrop(12), transforms.ToTensor()])
    for transform, unfinished in ((floats, True), (CROP, False)):
        dataset = fastfeed.open(captioned, {"jpg": transform})
        made = dataset.make_batch([0, 1, 3], lambda _: None, lambda shape, dtype: torch.empty(shape, dtype=dtype), raw=True)
        assert made is not None and made.images.dtype is torch.uint8
        made.collated()
        assert (made.unfinished is not None) == unfinished


# ------------------------------------------------------------------------------------------------ for another decoder
def memory(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype)


def begin(number: int) -> None:
    torch.manual_seed(number)


def both(dataset: Any, indices: list[int]) -> tuple[Any, Any]:
    """A batch that is decoded, and one whose images are Encoded and then decoded by Pillow."""
    one = dataset.make_batch(indices, begin, memory).collated()
    other = dataset.make_encoded(indices, begin, memory, 1 << 30).collated()
    return one, other


def test_a_batch_for_another_decoder_has_the_same_samples(tmp_path):
    files = {f"{name}/{number}.jpg": encoded(photo(number, (40, 30))) for name in "ab" for number in range(3)}
    packed(tree(tmp_path / "source", files), tmp_path / "packed")
    dataset = fastfeed.open(tmp_path / "packed", CROP, target_transform=lambda target: target + 10).select([5, 1, 0, 3])
    (images, targets), (left, others) = both(dataset, [3, 0, 2, 1])
    assert torch.equal(targets, others) and targets.tolist() == [11, 11, 10, 10]
    assert left.where[:, INDEX].tolist() == [3, 0, 2, 1]
    assert levels(decoded_by_pillow(left).permute(0, 3, 1, 2), images)[0] <= 2


def test_a_batch_of_dicts_too_but_not_with_gray_ones(captioned):
    dataset = fastfeed.open(captioned, {"jpg": CROP, "txt": len})
    one, other = both(dataset, [0, 1, 3])
    assert list(other) == ["jpg", "txt"] and torch.equal(one["txt"], other["txt"])
    assert levels(decoded_by_pillow(other["jpg"]).permute(0, 3, 1, 2), one["jpg"])[0] <= 2
    before = torch.get_rng_state()
    assert dataset.make_encoded([0, 2], begin, memory, 1 << 30) is None and torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "images are decoded by Pillow, whole: they have no transform"),
        ({"transform": {"jpg": CROP}, "decode": "exact"}, 'decode="exact" asks for Pillow\'s own pixels'),
        ({"fields": ["txt"]}, "samples have no images"),
        ({"transform": {"jpg": transforms.Resize((5, 5))}}, "its results have no one size and dtype"),
        ({"transform": {"jpg": CROP}}, None),
    ],
    ids=range(5),
)
def test_what_is_not_for_another_decoder_says_why(captioned, options, reason):
    dataset = fastfeed.open(captioned, **options)
    assert dataset.why_not_encoded == reason
    if reason is not None:
        assert dataset.make_encoded([0, 1], begin, memory, 1 << 30) is None


def test_who_makes_samples_itself_is_left_alone(captioned):
    class Own(PackedDataset):
        def __getitem__(self, index: int) -> Any:
            return super().__getitem__(index)

    assert Own(captioned, {"jpg": CROP}).why_not_encoded == "Own makes its samples itself"
