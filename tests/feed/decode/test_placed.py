"""decoded_by_pillow: what stands in for a decoder that failed; test_encoded compares its pixels with decoding's own."""

import pytest
import torch
import torchvision.transforms as v1
from fusing import jpeg

from fastfeed.errors import DecodeError
from fastfeed.feed.decode.encoded import FIRST, SIZE, Encoder
from fastfeed.feed.decode.images import Images
from fastfeed.feed.decode.placed import decoded_by_pillow


def test_a_damaged_file_is_named():
    encoder = Encoder(Images(v1.Compose([v1.Resize((8, 8)), v1.PILToTensor()]), "close"), 1 << 30)
    for number in range(3):
        encoder.put(100 + number, jpeg(seed=number))
    batch = encoder.made(lambda shape, dtype: torch.empty(shape, dtype=dtype))
    assert decoded_by_pillow(batch).shape == (3, 8, 8, 3)
    batch.where[1, SIZE] -= 200
    with pytest.raises(DecodeError, match="truncated") as failure:
        decoded_by_pillow(batch)
    assert failure.value.sample == 101
    batch.data[batch.where[2, FIRST] :] = 65
    batch.where[1, SIZE] += 200
    with pytest.raises(DecodeError, match="cannot identify") as failure:
        decoded_by_pillow(batch)
    assert failure.value.sample == 102
