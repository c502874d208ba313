"""The part of a JPEG that a crop needs, decoded by simplejpeg (libjpeg-turbo) into memory that is used again.

What is decoded equals that part of what a decoder of everything makes, bit for bit. Three ways, by what the file allows:

- **cut**: a file with restart markers whose places are known (pack --jpeg-rows). What a part needs is a smaller JPEG (cut.py).
- **top**: a file with one interleaved baseline scan. Its header is given a smaller height, and the decoder stops there.
- **whole**: any other (progressive, several scans).

What libjpeg-turbo would decode with a warning is not decoded here: Pillow decides about such files.
"""

import re
import threading
from typing import Literal, NamedTuple

import numpy as np
import simplejpeg
from numpy.typing import NDArray

from fastfeed.feed.decode.box import Box
from fastfeed.feed.decode.cut import cut, needed
from fastfeed.feed.decode.header import Header, Odd
from fastfeed.jpegrows import Edges

Colours = Literal["RGB", "RGBX"]
"""What a pixel is: three bytes, or four of which the last says nothing."""
CHANNELS = {"RGB": 3, "RGBX": 4}

KEPT_BYTES = 64 << 20
"""Memory for decoded pixels that a thread keeps for the next image; what a larger one took is given back."""
_END = b"\xff\xd9"
_HARMLESS = re.compile("extraneous bytes before marker 0xd[0-79]")
"""What the decoder says of the rows that a smaller height left over. It tells its first warning: there was none before."""
_OTHER_MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")
"""In a scan, a marker that is no restart."""


class _Scratch(threading.local):
    """This thread's memory for decoded pixels."""

    def __init__(self) -> None:
        self.memory: NDArray[np.uint8] = np.empty(0, dtype=np.uint8)

    def of(self, size_bytes: int) -> NDArray[np.uint8]:
        """Memory of at least this size; what was given before is overwritten."""
        if size_bytes > KEPT_BYTES:
            return np.empty(size_bytes, dtype=np.uint8)
        if self.memory.nbytes < size_bytes:
            self.memory = np.empty(min(KEPT_BYTES, size_bytes + size_bytes // 2), dtype=np.uint8)
        return self.memory

    def leave(self, memory: NDArray[np.uint8]) -> None:
        """This memory is somebody's now."""
        if memory is self.memory:
            self.memory = np.empty(0, dtype=np.uint8)


_SCRATCH = _Scratch()


class Decoded(NamedTuple):
    """A part of an image, at least the one that was asked for."""

    memory: NDArray[np.uint8]
    """Flat; the pixels are at its beginning. It is overwritten when this thread decodes the next image."""
    part: Box
    """Which part of the image it is."""
    channels: int

    def pixels(self) -> NDArray[np.uint8]:
        """uint8, shape (height, width, channels): a view."""
        _, _, height, width = self.part
        return self.memory[: height * width * self.channels].reshape(height, width, self.channels)

    def of(self, box: Box) -> NDArray[np.uint8]:
        """A part of the image that lies in this one; as pixels()."""
        top, left = box.top - self.part.top, box.left - self.part.left
        return self.pixels()[top : top + box.height, left : left + box.width]

    @property
    def line_bytes(self) -> int:
        """From a pixel to the one below it."""
        return self.part.width * self.channels

    def lines_of(self, box: Box) -> NDArray[np.uint8]:
        """As many lines as a part has, from its first pixel on, flat; the last may end behind the image, but in the memory."""
        start = (box.top - self.part.top) * self.line_bytes + (box.left - self.part.left) * self.channels
        return self.memory[start : start + box.height * self.line_bytes]


def decode(  # noqa: PLR0917
    data: bytes | memoryview, header: Header, box: Box, colours: Colours, rows: Edges | None = None
) -> Decoded:  # fmt: skip
    """Decode a part, and what is beside it.

    Args:
        data: The file.
        header: Its header.
        box: The part that is needed, at least a pixel.
        colours: What a pixel shall be; gray becomes three equal channels.
        rows: Where its restart intervals begin, if they are known.

    Raises:
        Odd: The decoder warns or refuses: Pillow decides about this file.
    """
    if rows is not None:
        return _run(*cut(data, header, box, rows), colours)
    height = needed(header, box).bottom
    if height == header.height or not header.cuttable or not _ends(data, header):
        return _run(data, Box(0, 0, header.height, header.width), colours)
    at = header.height_at
    part: memoryview | bytearray = data if isinstance(data, memoryview) and not data.readonly else bytearray(data)
    try:  # in place where that is allowed: copying a photo takes a hundredth of decoding it
        part[at : at + 2] = height.to_bytes(2, "big")
        return _run(part, Box(0, 0, height, header.width), colours, stops_early=True)
    finally:
        part[at : at + 2] = header.height.to_bytes(2, "big")


def keep(decoded: Decoded) -> None:
    """These pixels are not overwritten when this thread decodes the next image."""
    _SCRATCH.leave(decoded.memory)


def _ends(data: bytes | memoryview, header: Header) -> bool:
    """Whether the end marker is there. A file that was cut off is Pillow's to refuse, whichever rows are asked for.

    Of a marker that is no business of a scan the decoder tells, but not behind a restart that was left over.
    """
    if data[-2:] != _END:
        return False
    if not header.interval:
        return True
    found = _OTHER_MARKER.search(data, header.scan)
    return found is not None and found.start() == len(data) - 2


def _run(
    data: bytes | memoryview | bytearray, part: Box, colours: Colours, *, stops_early: bool = False
) -> Decoded:  # fmt: skip
    channels = CHANNELS[colours]
    memory = _SCRATCH.of(part.width * (part.height + 1) * channels)  # a row more: see Picture._lent
    try:
        # The exact inverse transform and upsampling, which are what Pillow asks for.
        found = simplejpeg.decode_jpeg(data, colours, fastdct=False, fastupsample=False, buffer=memory, strict=True)
    except ValueError as error:
        if not stops_early or not _HARMLESS.search(str(error)):
            raise Odd("the decoder warns") from error
    else:
        if found.shape[:2] != part[2:]:
            raise Odd("the decoder reads another size")
    return Decoded(memory, part, channels)
