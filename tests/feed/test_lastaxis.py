from typing import Any, NamedTuple

import torch

from fastfeed.feed.lastaxis import channels_last, memory_with_channels_last


class Pair(NamedTuple):
    image: Any
    label: Any


def is_last(tensor: torch.Tensor) -> bool:
    return tensor.is_contiguous(memory_format=torch.channels_last)


def test_images_wherever_they_are_in_a_batch():
    images, labels = torch.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5), torch.arange(2)
    found = channels_last([images, {"a": (images, labels)}, Pair(images, "x"), 7])
    for one in (found[0], found[1]["a"][0], found[2].image):
        assert is_last(one) and torch.equal(one, images) and one.shape == images.shape
    assert found[1]["a"][1] is labels and found[2].label == "x" and found[3] == 7
    assert type(found[2]) is Pair and type(found[1]["a"]) is tuple


def test_what_is_no_image_stays():
    video, sparse = torch.zeros(1, 2, 3, 4, 5), torch.zeros(1, 2, 3, 4).to_sparse()
    assert channels_last(video) is video
    assert channels_last(sparse) is sparse


def test_memory_that_is_laid_out_so():
    made = memory_with_channels_last(torch.empty, (2, 3, 4, 5), torch.float64)
    assert made.shape == (2, 3, 4, 5) and made.dtype is torch.float64 and is_last(made)
