"""The images of an Encoded, decoded by Pillow: where the decoder that it was made for has failed, and to compare with."""

import io

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from PIL.Image import Resampling, Transpose

from fastfeed.errors import DecodeError
from fastfeed.feed.decode.encoded import FIRST, INDEX, SIZE, Encoded


def decoded_by_pillow(encoded: Encoded) -> torch.Tensor:
    """All images of a batch; uint8, shape (images, height, width, 3).

    Args:
        encoded: The batch.

    Raises:
        DecodeError: Pillow refuses one; the error names it.
    """
    shape = (*encoded.size, 3)
    made = np.empty((len(encoded.where), *shape), dtype=np.uint8)
    ready = iter(encoded.pixels.numpy())
    for number, (where, place) in enumerate(zip(encoded.where.tolist(), encoded.place.tolist(), strict=True)):
        if not where[SIZE]:
            made[number] = next(ready).reshape(shape)
            continue
        data = encoded.data[where[FIRST] : where[FIRST] + where[SIZE]].numpy()
        try:
            made[number] = _placed(data, tuple(where[2:6]), tuple(place), encoded.size)
        except OSError as error:
            msg = f"the image of {len(data)} bytes cannot be decoded ({type(error).__name__}: {error})"
            raise DecodeError(msg, sample=where[INDEX]) from error
    return torch.from_numpy(made)


def _placed(
    data: NDArray[np.uint8], box: tuple[int, ...], place: tuple[float, ...], size: tuple[int, int]
) -> NDArray[np.uint8]:  # fmt: skip
    """One image.

    Args:
        data: A JPEG.
        box: Top, left, height and width of the part that is needed.
        place: As Encoded.place has it.
        size: Height and width of the result.
    """
    top, left, height, width = box
    above, before, below, behind = place
    with Image.open(io.BytesIO(data.tobytes())) as whole:
        part = whole.convert("RGB").crop((left, top, left + width, top + height))
    edges = (min(before, behind), min(above, below), max(before, behind), max(above, below))
    made = part.resize((size[1], size[0]), Resampling.BILINEAR, box=edges)
    if above > below:
        made = made.transpose(Transpose.FLIP_TOP_BOTTOM)
    if before > behind:
        made = made.transpose(Transpose.FLIP_LEFT_RIGHT)
    return np.asarray(made)
