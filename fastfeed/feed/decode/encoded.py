"""A batch of images that others decode: their JPEGs one behind another, and of each which place becomes its result.

The random numbers are drawn here, as for decoding: by the same steps, from the same states, in the same order. Of a file of
pack --jpeg-rows only the restart intervals that are needed are there. What not every decoder takes (plain.py), and what a step
does not fit, is decoded here, and is there as pixels.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL.Image import Resampling

from fastfeed.feed.decode.box import Box
from fastfeed.feed.decode.cut import Cut, cut
from fastfeed.feed.decode.header import Odd
from fastfeed.feed.decode.images import Images
from fastfeed.feed.decode.picture import Pixels
from fastfeed.feed.decode.placing import Placing
from fastfeed.feed.decode.plain import plain_header
from fastfeed.feed.decode.steps import Crop, Flip, Fused, Nothing, Resize, ResizedCrop
from fastfeed.feed.decode.whole import WRITTEN, Memory
from fastfeed.jpegrows import Edges
from fastfeed.trace import count

FIRST, SIZE, TOP, LEFT, HEIGHT, WIDTH, INDEX = range(7)
"""Columns of Encoded.where."""
_CHANNELS = 3
_CORNERS = 4
"""Columns of Encoded.place."""
_MOST_BYTES = (1 << 31) - 1
"""Of the JPEGs of a batch: where each begins has to fit into 32 bits for DALI."""
_ALIGNED_BYTES = 64
_STEPS_OF_MEMORY = 16
"""Memory is asked for in so many sizes between two powers of two, so that batches find that of others (slots.py)."""
_DECODED = "images decoded by workers, not by DALI: "


class Encoded(NamedTuple):
    """The images of a batch. It is one tensor: each that is received takes time of the process that trains."""

    whole: torch.Tensor
    """All of it; uint8, shape (bytes,)."""
    counts: tuple[int, int, int]
    """Bytes of JPEGs, images, and those of them that are decoded already."""
    size: tuple[int, int]
    """Height and width that each becomes, in pixels."""

    @property
    def images(self) -> int:
        """How many."""
        return self.counts[1]

    @property
    def data(self) -> torch.Tensor:
        """The JPEGs; uint8, shape (bytes,)."""
        return self._part(0)

    @property
    def where(self) -> torch.Tensor:
        """Of each image a row; int64, shape (images, 7).

        Where its JPEG lies in data, and how long it is, 0 for one that is decoded already; top, left, height and width of the
        part that is needed, in pixels of that JPEG; its position in the dataset.
        """
        return self._part(1).view(torch.int64).view(-1, INDEX + 1)

    @property
    def place(self) -> torch.Tensor:
        """Of each image the corners of its part that become the result's first and last one; float32, shape (images, 4).

        (row, column, row, column) from the beginning of that part, mirrored where the first are larger.
        """
        return self._part(2).view(torch.float32).view(-1, _CORNERS)

    @property
    def pixels(self) -> torch.Tensor:
        """Those that are decoded already, in order; uint8, shape (some of the images, height * width * 3), channels last."""
        return self._part(3).view(self.counts[2], -1) if self.counts[2] else self._part(3).view(0, 1)

    def _part(self, number: int) -> torch.Tensor:
        sizes = _sizes_bytes(self.counts, self.size)
        start = sum(map(_aligned, sizes[:number]))
        return self.whole[start : start + sizes[number]]


def _sizes_bytes(counts: tuple[int, int, int], size: tuple[int, int]) -> tuple[int, int, int, int]:
    """Of the parts of an Encoded with these counts and this size, in order; each begins at a multiple of 64 bytes."""
    data_bytes, images, decoded = counts
    return data_bytes, 8 * images * (INDEX + 1), 4 * images * _CORNERS, decoded * math.prod(size) * _CHANNELS


class Encoder:
    """Makes one Encoded.

    Args:
        images: How images are read. It has to be possible: why_not() says None.
        most_bytes: Of pixels, before they are resized, that are left to be decoded: images beyond are decoded here.
    """

    def __init__(self, images: Images, most_bytes: int) -> None:
        self._images, self._left_bytes = images, most_bytes
        self._parts: list[bytes | memoryview | bytearray] = []
        self._where: list[tuple[int, ...]] = []
        self._places: list[tuple[float, ...]] = []
        self._pixels: list[Pixels] = []
        self._size_bytes = 0

    def put(self, index: int, data: bytes | memoryview, rows: Edges | None = None) -> Any:  # noqa: ANN401
        """Take the next image.

        Args:
            index: Its position in the dataset.
            data: Its file; it has to stay until the batch is made.
            rows: Where its restart intervals begin, where that is known.

        Returns:
            WRITTEN.

        Raises:
            Exception: What Pillow raises of files that are decoded here.
        """
        try:
            self._take(index, data, rows)
        except Odd as odd:
            self._keep(index, self._images.pixels(data, rows))
            count(_DECODED + str(odd))
        return WRITTEN

    def _keep(self, index: int, pixels: Pixels) -> None:
        self._pixels.append(pixels)
        self._where.append((self._size_bytes, 0, 0, 0, *pixels.shape[:2], index))
        self._places.append((0.0, 0.0, 0.0, 0.0))

    def _take(self, index: int, data: bytes | memoryview, rows: Edges | None) -> None:
        header = plain_header(data)
        with self._images.states():  # goes back where it raises: then they are drawn anew
            placing = Placing(header.height, header.width)
            if not self._images.done_on(placing):
                raise Odd("a step does not fit it")
            box, start, stop = placing.place
            pixel_bytes = box.height * box.width * _CHANNELS
            if pixel_bytes > self._left_bytes:
                raise Odd("more pixels than a batch may have (batch_bytes)")
            whole = Cut(data, Box(0, 0, header.height, header.width))
            part, (top, left, _, _) = whole if rows is None else cut(data, header, box, rows)
            if self._size_bytes + len(part) > _MOST_BYTES:
                raise Odd("more bytes than a batch may have (2 GiB)")
        self._left_bytes -= pixel_bytes
        self._where.append((self._size_bytes, len(part), box.top - top, box.left - left, box.height, box.width, index))
        self._places.append((*start, *stop))
        self._parts.append(part)
        self._size_bytes += len(part)

    def made(self, memory: Memory) -> Encoded:
        """The batch.

        Args:
            memory: Gives the memory of it.
        """
        assert self._images.batch is not None
        (_, height, width), _ = self._images.batch
        counts, size = (self._size_bytes, len(self._where), len(self._pixels)), (height, width)
        end = sum(map(_aligned, _sizes_bytes(counts, size)))
        made = Encoded(memory((_rounded(end),), torch.uint8), counts, size)
        np.concatenate([np.frombuffer(part, dtype=np.uint8) for part in (b"", *self._parts)], out=made.data.numpy())
        made.where.numpy()[:], made.place.numpy()[:] = self._where, self._places
        for one, target in zip(self._pixels, made.pixels.numpy(), strict=True):
            target[:] = one.reshape(-1)
        return made


def _aligned(size_bytes: int) -> int:
    return -(-size_bytes // _ALIGNED_BYTES) * _ALIGNED_BYTES


def _rounded(size_bytes: int) -> int:
    unit = max(_ALIGNED_BYTES, (1 << size_bytes.bit_length()) // _STEPS_OF_MEMORY)
    return -(-size_bytes // unit) * unit


# ------------------------------------------------------------------------------------------------ what can be done so
def why_not(images: Images) -> str | None:
    """Why images of a transform cannot be left to another decoder; None where they can."""
    recipe = images.recipe
    if recipe.views:
        return "Views makes several pictures of an image"
    if recipe.arrays is not None:
        return "a Compose of albumentations does its own work"
    if recipe.why_not is not None:
        return recipe.why_not
    if images.batch is None:
        return "its results have no one size and dtype"
    found = next((why for why in map(_against, recipe.fused) if why is not None), None)
    resizings = [one.name for one in recipe.fused if isinstance(one.step, ResizedCrop | Resize)]
    if found is None and len(resizings) > 1:
        return f"{resizings[1]} resizes a second time"
    return found


def _against(one: Fused) -> str | None:
    """Why a step cannot be left to another decoder."""
    step = one.step
    if isinstance(step, Nothing | Crop | Flip):
        return None
    if isinstance(step, ResizedCrop) and isinstance(step.kernel, partial):
        return f"{one.name} draws its filter"
    if isinstance(step, ResizedCrop | Resize):
        kernel = step.kernel() if isinstance(step, ResizedCrop) else step.kernel
        return None if _is_bilinear(kernel) else f"{one.name} resizes with another filter than antialiased bilinear"
    return f"{one.name} is not known there"


def _is_bilinear(kernel: Resampling | Callable[..., Any]) -> bool:
    """Whether it is the antialiased triangle, of Pillow's images or of tensors."""
    if not isinstance(kernel, partial):
        return kernel is Resampling.BILINEAR
    mode = kernel.keywords["interpolation"]
    return getattr(mode, "value", mode) == "bilinear" and kernel.keywords["antialias"] in {True, "warn"}
