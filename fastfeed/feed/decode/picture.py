"""A JPEG on which the first steps of a transform are done: it is decoded when its pixels are needed, and only as far.

Two kernels resize. Pillow's own: what torchvision does to a Pillow image, bit for bit. And, for decode="close" and bilinear,
torch's antialiased one for bytes, in a quarter of the time; it rounds its weights otherwise, by at most 2 levels. Pillow-SIMD's
is faster than both: where that is installed, it is used for both.
"""

import io
from typing import Any, Self

import numpy as np
import PIL
import torch
from numpy.typing import NDArray
from PIL import Image
from PIL.Image import Resampling, Transpose

from fastfeed.feed.decode import jpeg
from fastfeed.feed.decode.draws import Box
from fastfeed.feed.decode.jpeg import Header, Odd, Rows
from fastfeed.feed.fields import decode_rgb
from fastfeed.trace import count

Pixels = NDArray[np.uint8]
"""uint8, shape (height, width, 3 or 4)."""

HAS_SIMD = ".post" in PIL.__version__
"""Whether Pillow is Pillow-SIMD, whose versions are Pillow's with a number of its own behind them."""
_FOR_PILLOW: jpeg.Colours = "RGBX" if HAS_SIMD else "RGB"
"""Pillow-SIMD resizes four channels as fast as three, and takes memory of four as it is. Pillow takes longer for four."""
_PLANES = "RGB"
_ANY = 1 << 62
_NO_PIXELS: Pixels = np.empty((0, 0, 3), dtype=np.uint8)


class Picture:
    """One image. What is not for the fast decoder becomes Pillow's image, and all steps are done by Pillow.

    Args:
        data: The file.
        header: Its header.
        rows: Where its MCU rows begin, where that is known.
        close: Whether torch may resize.

    Attributes:
        height: Of the picture as it is now, in pixels.
        width: Likewise.
    """

    __slots__ = ("_box", "_close", "_data", "_header", "_image", "_lines", "_pixels", "_rows", "height", "width")

    def __init__(self, data: bytes | memoryview, header: Header, rows: Rows | None, *, close: bool) -> None:
        self._data, self._header, self._rows, self._close = data, header, rows, close
        self.height, self.width = header.height, header.width
        self._box: Box | None = Box(0, 0, header.height, header.width)
        """The part that is left, until it is decoded. Then the picture is one of the next two."""
        self._image: Image.Image | None = None
        self._pixels: Pixels = _NO_PIXELS
        self._lines: NDArray[np.uint8] = _NO_PIXELS
        """Four channels as they were decoded: flat, from the first pixel on, whole lines of the decoded image."""

    @classmethod
    def of(cls, data: bytes | memoryview, rows: Rows | None = None, *, close: bool, pillow: str | None = None) -> Self:
        """A picture of any file that Pillow opens.

        Args:
            data: The file.
            rows: As the class's.
            close: As the class's.
            pillow: Why Pillow shall decode; None where it need not.

        Raises:
            Exception: What Pillow raises, here or when the pixels are needed.
        """
        try:
            if pillow is not None:
                raise Odd(pillow)
            if data[:3] != b"\xff\xd8\xff":
                raise Odd("no JPEG")
            header = jpeg.read_header(data)
        except Odd as odd:
            return cls._of_pillow(data, odd)
        if header.width * header.height > (Image.MAX_IMAGE_PIXELS or _ANY):
            with Image.open(io.BytesIO(data)):
                """Pillow warns of an image as large as this, or refuses it."""
        return cls(data, header, rows, close=close)

    @classmethod
    def _of_pillow(cls, data: bytes | memoryview, odd: Odd) -> Self:
        image = _by_pillow(data, odd)
        width, height = image.size
        picture = cls(b"", Header(width, height, 8, 0, 0, gray=False, cuttable=False), None, close=False)
        picture._box, picture._image = None, image
        return picture

    # ------------------------------------------------------------------------------------------------ steps
    def crop(self, box: Box) -> None:
        """Keep a part, which lies inside."""
        top, left, height, width = box
        if self._box is not None:
            self._box = Box(self._box.top + top, self._box.left + left, height, width)
        elif self._image is not None:
            self._image = self._image.crop((left, top, left + width, top + height))
        else:
            self._pixels = self._pixels[top : top + height, left : left + width]
        self.height, self.width = height, width

    def resize(self, height: int, width: int, resampling: Resampling) -> None:
        """Make it this size; nothing is done to one that has it, as in torchvision."""
        if (height, width) == (self.height, self.width):
            return
        by_torch = self._close and resampling is Resampling.BILINEAR and not HAS_SIMD
        image = self._decoded("RGB" if by_torch else _FOR_PILLOW)
        if by_torch and image is None:
            self._pixels = _resized_by_torch(self._pixels, height, width)
        else:
            self._image = (image or self._lent()).resize((width, height), resampling)
        self.height, self.width = height, width

    def flip(self, way: Transpose) -> None:
        """Mirror it: left and right, or top and bottom."""
        image = self._decoded("RGB")
        if image is not None:
            self._image = image.transpose(way)
        else:
            self._pixels = self._pixels[:, ::-1] if way is Transpose.FLIP_LEFT_RIGHT else self._pixels[::-1]

    # ------------------------------------------------------------------------------------------------ pixels
    def _decoded(self, colours: jpeg.Colours) -> Image.Image | None:
        """Decode what is left of it, unless that was done. The image, where Pillow has it; else it is in _pixels."""
        if self._box is None:
            return self._image
        (top, left, height, width), self._box = self._box, None
        try:
            found = jpeg.decode(self._data, self._header, top, top + height, colours, self._rows)
        except Odd as odd:
            self._image, self._close = _by_pillow(self._data, odd), False
            self.crop(Box(top, left, height, width))
            return self._image
        above, line = top - found.first, found.width * found.channels
        self._pixels = found.pixels()[above : above + height, left : left + width]
        if colours == "RGBX":  # whole lines: the last one ends behind the image, where the memory goes on
            start = above * line + left * found.channels
            self._lines = found.memory[start : start + height * line]
        return None

    def _lent(self) -> Image.Image:
        """An image of the pixels for one call of Pillow's: it may lie in memory that is overwritten."""
        if self._pixels.shape[2] == 3:  # noqa: PLR2004
            return Image.fromarray(np.ascontiguousarray(self._pixels))
        line = len(self._lines) // self.height
        view: Any = memoryview(self._lines)  # type: ignore[arg-type]  # numpy's arrays are buffers
        return Image.frombuffer("RGBX", (self.width, self.height), view, "raw", "RGBX", line, 1)

    # ------------------------------------------------------------------------------------------------ results
    def image(self) -> Image.Image:
        """As a Pillow image of its own, RGB."""
        image = self._decoded("RGB")
        if image is None:
            return Image.fromarray(np.ascontiguousarray(self._pixels))
        return image if image.mode == "RGB" else Image.fromarray(np.ascontiguousarray(np.asarray(image)[:, :, :3]))

    def write(self, out: NDArray[Any], levels: NDArray[Any] | None) -> None:
        """Put the picture into a batch.

        Args:
            out: Shape (3, height, width), contiguous; uint8 without levels, else of their dtype.
            levels: The value of each level of each channel; shape (3, 256).
        """
        image = self._decoded("RGB")
        if image is not None:
            flat = out.reshape(3, -1)
            for number, plane in enumerate(_PLANES):
                _put(np.frombuffer(image.tobytes("raw", plane), dtype=np.uint8), flat[number], levels, number)
        elif levels is None:
            out[...] = self._pixels.transpose(2, 0, 1)
        else:
            for number in range(3):
                _put(self._pixels[:, :, number], out[number], levels, number)


def _by_pillow(data: bytes | memoryview, odd: Odd) -> Image.Image:
    image = decode_rgb(data)
    count(f"images decoded by Pillow: {odd}")
    return image


def _put(values: Pixels, out: NDArray[Any], levels: NDArray[Any] | None, channel: int) -> None:
    if levels is None:
        out[...] = values
    else:
        np.take(levels[channel], values, out=out, mode="clip")  # with "raise", numpy makes a copy first


def _resized_by_torch(pixels: Pixels, height: int, width: int) -> Pixels:
    """As torch's antialiased bilinear kernel for bytes does it.

    It takes half the time where it can see by the strides that the pixels are a batch of one with channels last.
    """
    tall, wide, _ = pixels.shape
    whole = torch.from_numpy(np.ascontiguousarray(pixels)).as_strided((1, 3, tall, wide), (3 * tall * wide, 1, 3 * wide, 3))
    found = torch.nn.functional.interpolate(whole, size=(height, width), mode="bilinear", antialias=True)
    made: Pixels = found.permute(0, 2, 3, 1)[0].numpy()
    return made
