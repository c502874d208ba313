"""A JPEG on which the first steps of a transform are done: it is decoded when its pixels are needed, and only as far.

Two kernels resize. Pillow's own: what torchvision does to a Pillow image, bit for bit. And, for decode="close" and bilinear,
torch's antialiased one for bytes, in a quarter of the time; it rounds its weights otherwise, by at most 2 levels. Pillow-SIMD's
is faster than both: where that is installed, it is used for both. Transforms that resize tensors bring torchvision's kernel.

Memory of one image of n pixels while it is decoded: its file, 3 bytes for each pixel that has to be decoded (at most 3n),
and 4 for each pixel of the part where Pillow resizes it; results besides. Through Pillow, which decodes all: 4n, and as much
again for converting it to RGB, and for a crop 4 for each of its pixels.
"""

import io
from collections.abc import Callable
from typing import Any, Self

import numpy as np
import PIL
import torch
from numpy.typing import NDArray
from PIL import Image
from PIL.Image import Resampling, Transpose

from fastfeed.feed.decode import jpeg
from fastfeed.feed.decode.box import Box
from fastfeed.feed.decode.header import Header, Odd, read_header
from fastfeed.feed.fields import decode_rgb
from fastfeed.jpegrows import Edges
from fastfeed.trace import count

Pixels = NDArray[np.uint8]
"""uint8, shape (height, width, 3 or 4)."""
TensorKernel = Callable[[torch.Tensor, list[int]], torch.Tensor]
"""Resizes uint8 of shape (3, height, width) to [height, width]."""
Kernel = Resampling | TensorKernel

HAS_SIMD = ".post" in PIL.__version__
"""Whether Pillow is Pillow-SIMD, whose versions are Pillow's with a number of its own behind them."""
_FOR_PILLOW: jpeg.Colours = "RGBX" if HAS_SIMD else "RGB"
"""Pillow-SIMD resizes four channels as fast as three, and takes memory of four as it is. Pillow takes longer for four."""
_PLANES = "RGB"
_MODES = {3: "RGB", 4: "RGBX"}
_ANY = 1 << 62
_NO_PIXELS: Pixels = np.empty((0, 0, 3), dtype=np.uint8)


class Picture:
    """One image. What is not for the fast decoder becomes Pillow's image, and all steps are done by Pillow.

    Args:
        data: The file.
        header: Its header.
        rows: Where its restart intervals begin, where that is known.
        close: Whether torch may resize.

    Attributes:
        height: Of the picture as it is now, in pixels.
        width: Likewise.
    """

    __slots__ = ("_box", "_close", "_data", "_found", "_given", "_header", "_image", "_pixels", "_rows", "height", "width")

    def __init__(self, data: bytes | memoryview, header: Header, rows: Edges | None, *, close: bool) -> None:
        self._data, self._header, self._rows, self._close = data, header, rows, close
        self.height, self.width = header.height, header.width
        self._box: Box | None = Box(0, 0, header.height, header.width)
        """The part that is left, until it is decoded. Then the picture is one of the next two."""
        self._image: Image.Image | None = None
        self._pixels: Pixels = _NO_PIXELS
        self._found: tuple[jpeg.Decoded, Box] | None = None
        """What was decoded, and the part of it that the pixels are; None where they are others since."""
        self._given: jpeg.Decoded | None = None
        """The rows that it needs, where they were decoded before."""

    @classmethod
    def of(cls, data: bytes | memoryview, rows: Edges | None = None, *, close: bool, pillow: str | None = None) -> Self:
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
            header = read_header(data)
        except Odd as odd:
            return cls._of_pillow(data, odd)
        if header.peculiar or header.width * header.height > (Image.MAX_IMAGE_PIXELS or _ANY):
            with Image.open(io.BytesIO(data)):
                """Pillow may refuse it, or warn of its size."""
        return cls(data, header, rows, close=close)

    @classmethod
    def _of_pillow(cls, data: bytes | memoryview, odd: Odd) -> Self:
        image = _by_pillow(data, odd)
        width, height = image.size
        picture = cls(
            b"", Header(width, height, 8, 8, 0, 0, gray=False, cuttable=False, interval=0, peculiar=False), None, close=False
        )
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
            self._now(self._pixels[top : top + height, left : left + width])
        self.height, self.width = height, width

    def resize(self, height: int, width: int, kernel: Kernel) -> None:
        """Make it this size; nothing is done to one that has it, as in torchvision."""
        if (height, width) == (self.height, self.width):
            return
        if not isinstance(kernel, Resampling):
            self._resize_tensor(height, width, kernel)
        else:
            by_torch = self._close and kernel is Resampling.BILINEAR and not HAS_SIMD
            image = self._decoded("RGB" if by_torch else _FOR_PILLOW)
            if by_torch and image is None:
                self._now(_resized_by_torch(self._pixels, height, width))
            else:
                self._image = (image or self._lent()).resize((width, height), kernel)
        self.height, self.width = height, width

    def _resize_tensor(self, height: int, width: int, kernel: TensorKernel) -> None:
        image = self._decoded("RGB")
        pixels = self._pixels if image is None else np.array(image)[:, :, :3]
        if min(pixels.strides) < 0:
            pixels = np.ascontiguousarray(pixels)
        self._image = None
        self._now(kernel(torch.from_numpy(pixels).permute(2, 0, 1), [height, width]).permute(1, 2, 0).numpy())

    def flip(self, way: Transpose) -> None:
        """Mirror it: left and right, or top and bottom."""
        image = self._decoded("RGB")
        if image is not None:
            self._image = image.transpose(way)
        else:
            self._now(self._pixels[:, ::-1] if way is Transpose.FLIP_LEFT_RIGHT else self._pixels[::-1])

    def _now(self, pixels: Pixels) -> None:
        self._pixels, self._found = pixels, None

    # ------------------------------------------------------------------------------------------------ pixels
    def shared(self, box: Box) -> None:
        """Decode a part now, into memory of its own, for the copies that are made of it: see again().

        Raises:
            Exception: What Pillow raises.
        """
        if self._image is not None:
            return
        try:
            self._given = jpeg.decode(self._data, self._header, box, "RGB", self._rows)
            jpeg.keep(self._given)
        except Odd as odd:
            self._box, self._image = None, _by_pillow(self._data, odd)

    def again(self) -> "Picture":
        """A copy, on which nothing is done yet, of a picture that was only decoded."""
        copy = Picture(self._data, self._header, self._rows, close=self._close and self._image is None)
        copy._given = self._given
        if self._image is not None:
            copy._box, copy._image = None, self._image
        return copy

    def _decoded(self, colours: jpeg.Colours) -> Image.Image | None:
        """Decode what is left of it, unless that was done. The image, where Pillow has it; else it is in _pixels."""
        if self._box is None:
            return self._image
        box, self._box = self._box, None
        try:
            if min(box.height, box.width) < 1:
                raise Odd("a part without pixels")
            found = self._given or jpeg.decode(self._data, self._header, box, colours, self._rows)
        except Odd as odd:
            self._image, self._close = _by_pillow(self._data, odd), False
            self.crop(box)
            return self._image
        self._pixels, self._found = found.of(box), (found, box)
        return None

    def _lent(self) -> Image.Image:
        """An image of the pixels for one call of Pillow's: of four channels, it lies in memory that is overwritten."""
        if self._found is None:
            return Image.fromarray(np.ascontiguousarray(self._pixels))
        found, box = self._found
        mode = _MODES[found.channels]
        view: Any = memoryview(found.lines_of(box))  # type: ignore[arg-type]  # numpy's arrays are buffers
        return Image.frombuffer(mode, (self.width, self.height), view, "raw", mode, found.line_bytes, 1)

    # ------------------------------------------------------------------------------------------------ results
    def info(self) -> dict[Any, Any]:
        """What Pillow tells about the file in an image's attribute info, the image converted to RGB."""
        if not self._data:
            return {} if self._image is None else self._image.info
        with Image.open(io.BytesIO(self._data)) as opened:
            return opened.info

    def array(self) -> Pixels:
        """As an array of its own, RGB."""
        image = self._decoded("RGB")
        return np.array(self._pixels if image is None else np.asarray(image)[:, :, :3], order="C")

    def image(self) -> Image.Image:
        """As a Pillow image of its own, RGB."""
        image = self._decoded("RGB")
        if image is None:
            return self._lent()
        return image if image.mode == "RGB" else image.convert("RGB")

    def write(self, out: NDArray[Any], levels: NDArray[Any] | None) -> None:
        """Put the picture into a batch.

        Args:
            out: Shape (3, height, width), contiguous or with channels last; uint8 without levels, else of their dtype.
            levels: The value of each level of each channel; shape (3, 256).
        """
        image = self._decoded("RGB")
        if out.strides[0] < out.strides[2]:
            _put_last(self._pixels if image is None else _bytes_of(image), out.transpose(1, 2, 0), levels)
        elif image is not None:
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


def _bytes_of(image: Image.Image) -> Pixels:
    return np.frombuffer(image.tobytes("raw", "RGB"), dtype=np.uint8).reshape(image.height, image.width, 3)


def _put_last(pixels: Pixels, out: NDArray[Any], levels: NDArray[Any] | None) -> None:
    """Into memory of shape (height, width, 3)."""
    if levels is not None:
        for channel in range(3):
            _put(pixels[:, :, channel], out[:, :, channel], levels, channel)
    elif pixels.strides[1] < 0:  # numpy mirrors pixels of three bytes one by one, torch in a twentieth of the time
        out[...] = torch.from_numpy(pixels[:, ::-1]).flip(1).numpy()
    else:
        out[...] = pixels


def _resized_by_torch(pixels: Pixels, height: int, width: int) -> Pixels:
    """As torch's antialiased bilinear kernel for bytes does it.

    It takes half the time where it can see by the strides that the pixels are a batch of one with channels last. The axes are
    numpy's to change: where other work fills the caches in between, torch takes 0.02 ms longer, a hundredth of an image.
    """
    tall, wide, _ = pixels.shape
    whole = torch.from_numpy(np.ascontiguousarray(pixels).reshape(1, tall, wide, 3).transpose(0, 3, 1, 2))
    found = torch.nn.functional.interpolate(whole, size=(height, width), mode="bilinear", antialias=True)
    made: Pixels = found.numpy()[0].transpose(1, 2, 0)
    return made
