"""Samples that torch makes no batch of: the error says which part it is, of which samples, and what to do."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from helpers import pack_photos
from loading import Calls
from PIL import Image
from torch.utils.data import IterableDataset, default_collate

import fastfeed
from fastfeed.feed.loader import DataLoader
from fastfeed.feed.unlike import tell_unlike

NAME = "s{}".format


def told(samples: Any, collate: Any = default_collate) -> list[str]:
    """The notes on what a collate function raises."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - of any type: torch's
        collate(samples)
    tell_unlike(caught.value, samples, NAME)
    return getattr(caught.value, "__notes__", [])


def picture(width: int = 3) -> Any:
    return Image.new("RGB", (width, 4))


def cut(*sizes: int) -> list[Any]:
    """Pairs of an image and its class."""
    return [(torch.zeros(3, size, 2), 0) for size in sizes]


@pytest.mark.parametrize(
    ("samples", "what", "advice"),
    [
        (cut(5, 5, 4), "their part [0] is a tensor of shape (3, 5, 2) in s0 and 1 other; a tensor of shape (3, 4, 2) in s2. ",
         "Have the transform make images of one size: Resize((224, 224))"),
        (cut(1, 2, 3, 4, 5), "(3, 3, 2) in s2; and 2 further ones. ", "Have the transform make images of one size"),
        ([(picture(), 0), (picture(5), 1)], "their part [0] is a PIL image in s0 and 1 other. ", "Have the transform make t"),
        ([torch.zeros(3), torch.zeros(4)], "each is a tensor of shape (3,) in s0; a tensor of shape (4,) in s1. ", "Cut or"),
        ([{"a": 1, "b": {"x": np.zeros(2)}}, {"a": 1, "b": {"x": np.zeros(3)}}],
         "their part ['b']['x'] is an array of shape (2,) in s0; an array of shape (3,) in s1. ", "Cut or pad"),
        ([(0, torch.ones(2)), (1, None)], "their part [1] is a tensor of shape (2,) in s0; None in s1. ", "Have the dataset"),
        ([{"a": 1}, {"b": 2}], "each is a dict with the keys 'a' in s0; a dict with the keys 'b' in s1. ", "Have the dataset"),
        ([[1, 2], [1, 2, 3]], "each is a list of 2 in s0; a list of 3 in s1. ", "Have the dataset"),
        ([np.array(["a"], object)] * 2, "each is an array of shape (1,) and dtype object in s0 and 1 other. ", "Have the"),
        ([1, "text"], "each is a number in s0; a str in s1. ", "Have the dataset"),
    ],
    ids=["sizes", "many sizes", "pictures", "vectors", "nested", "None", "keys", "lengths", "objects", "kinds"],
)  # fmt: skip
def test_the_part_that_is_not_alike_is_told(samples, what, advice):
    (note,) = told(samples)
    assert note.startswith("torch makes no batch of these samples: ") and f"{what}{advice}" in note


def test_a_part_that_makes_a_batch_is_not_blamed():
    """Texts of one sample and None of another are collated as a list."""
    (note,) = told([("a", torch.zeros(1)), (None, torch.zeros(2))])
    assert "their part [1] is" in note


def test_nothing_is_told_of_what_was_not_given_to_torch():
    def padded(samples: list[Any]) -> Any:
        return default_collate([torch.zeros(3), torch.zeros(2)])

    def broken(samples: list[Any]) -> Any:
        raise ValueError

    assert not told(cut(1, 2), padded) and not told(cut(1, 2), broken)
    assert told(cut(1, 2), lambda samples: default_collate(samples)[0])  # MixUp behind it


def test_samples_that_cannot_be_looked_at_hide_no_fault():
    class Odd(dict[str, Any]):
        def keys(self) -> Any:
            raise LookupError("gone")

    (note,) = told([Odd(a=torch.zeros(1)), Odd(a=torch.zeros(2))])
    assert note == "which of these samples are not alike cannot be told: LookupError: gone"


# ---------------------------------------------------------------------------------------------------- through the loader
@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("device", [None, "cpu"])
def test_photos_without_a_transform(tmp_path, workers, device):
    with pytest.raises(TypeError, match="found <class 'PIL") as caught:
        list(DataLoader(fastfeed.open(pack_photos(tmp_path)), 4, num_workers=workers, device=device))
    last = str(caught.value).rstrip().splitlines()[-1]
    assert last.startswith("torch makes no batch of these samples: their part [0] is a PIL image in sample 0 (key '")


def test_who_is_named_where_samples_are_left_out_or_replaced():
    def get(index: int) -> Any:
        if index in {0, 2}:
            raise ValueError("broken")
        return torch.zeros(index)

    def told_by(policy: str) -> str:
        with pytest.raises(RuntimeError, match="stack expects") as caught:
            list(DataLoader(Calls(get, 4), 4, num_workers=0, on_error=policy, force_on_error=True, sampler=range(4)))
        return str(caught.value)

    assert "(1,) in sample 1; a tensor of shape (3,) in sample 3." in told_by("skip")
    shapes = {f"a tensor of shape ({index},) in sample {index}" for index in (1, 3)}
    assert all(shape in told_by("replace") for shape in shapes)


class Growing(IterableDataset[Any]):
    """Each sample is longer than that before."""

    def __iter__(self) -> Iterator[Any]:
        return map(torch.zeros, range(1, 5))


@pytest.mark.parametrize("workers", [0, 1])
def test_samples_of_a_stream_are_named_by_their_place_in_the_batch(workers):
    with pytest.raises(RuntimeError) as caught:
        list(DataLoader(Growing(), 2, num_workers=workers))
    told = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    assert "a tensor of shape (1,) in sample 0 of the batch; a tensor of shape (2,) in sample 1 of the batch. Cut or" in told
