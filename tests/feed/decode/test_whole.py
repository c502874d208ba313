"""A batch whose images were written where they lie is what default_collate makes of its samples."""

import numpy as np
import pytest
import torch
from loading import equal
from torch.utils.data import default_collate

from fastfeed.feed.decode.levels import Levels, Step
from fastfeed.feed.decode.whole import WRITTEN, MakesBatches, Unfinished, WholeBatch

IMAGES = torch.arange(3 * 3 * 2 * 2).reshape(3, 3, 2, 2)


def batch(image, samples):
    made = WholeBatch(IMAGES, image)
    made.samples.extend(samples)
    return made


def test_pairs():
    made = batch(0, [(WRITTEN, 4), (WRITTEN, 5), (WRITTEN, 6)])
    assert len(made) == 3
    expected = [(image, number) for image, number in zip(IMAGES, (4, 5, 6), strict=True)]
    assert equal(made.separate(), expected)
    assert equal(made.collated(), default_collate(expected))
    assert made.collated()[0] is IMAGES


def test_dicts_keep_their_order():
    made = batch("jpg", [{"cls": number, "jpg": WRITTEN, "txt": str(number)} for number in range(3)])
    expected = [{"cls": number, "jpg": IMAGES[number], "txt": str(number)} for number in range(3)]
    assert equal(made.separate(), expected)
    assert equal(made.collated(), default_collate(expected))


def test_an_image_that_was_not_written_is_collated_with_the_others():
    other = torch.ones(3, 2, 2, dtype=torch.int64)
    made = batch(0, [(WRITTEN, 4), (other, 5), (WRITTEN, 6)])
    assert equal(made.collated(), default_collate([(IMAGES[0], 4), (other, 5), (IMAGES[2], 6)]))
    made = batch(0, [(WRITTEN, 4), (torch.ones(3, 1, 1, dtype=torch.int64), 5)])
    with pytest.raises(RuntimeError, match="equal size"):
        made.collated()


def test_who_makes_batches_says_how():
    with pytest.raises(NotImplementedError):
        MakesBatches().make_batch([0], lambda _: None, lambda shape, dtype: torch.empty(shape, dtype=dtype))
    with pytest.raises(NotImplementedError):
        MakesBatches().decoding  # noqa: B018 - it raises


def test_bytes_are_left_to_whoever_gets_them_unless_an_image_of_the_batch_is_none():
    levels = Levels(np.tile(np.arange(256, dtype=np.float32) / 2, (3, 1)), (Step("mul", (0.5,)),), ("Half",))
    made = WholeBatch(IMAGES.to(torch.uint8), 0, levels)
    made.samples += [(WRITTEN, number) for number in range(3)]
    assert made.collated()[0].dtype is torch.uint8 and made.unfinished == Unfinished(0, levels)
    other = torch.ones(3, 2, 2)
    made.samples[1] = (other, 1)
    expected = default_collate([(IMAGES[0] / 2, 0), (other, 1), (IMAGES[2] / 2, 2)])
    assert equal(made.collated(), expected) and made.unfinished is None
