"""Which JPEGs every decoder takes, a GPU's too: whole, baseline, gray or YCbCr with colours at all pixels or at half of them.

A decoder on a GPU that meets something else may stop for good, or take the whole process with it: so it is told before. The
scan itself is not looked through, which would take longer than all the rest: damage there is for the decoder to find.
"""

import io
import re

from PIL import Image

from fastfeed.feed.decode.header import Header, Odd, read_header

_BASELINE = 0xC0
_NOT_YCBCR = re.compile(rb"\xff\xee..Adobe.{6}[^\x01]", re.DOTALL)
"""An Adobe segment, of whatever length, that says another way of coding colours. One in a thumbnail counts as well: it may be
before the one that counts."""
_FACTORS = frozenset({0x11, 0x12, 0x21, 0x22})
"""Sampling factors of brightness: colours at every pixel, or at every other row or column or both."""
_COLOUR_FACTOR = 0x11
_RGB_NAMES = (0x52, 0x47, 0x42)
"""Numbers of components that say "RGB": so libjpeg takes them for that."""
_END = b"\xff\xd9"
_ANY = 1 << 62


def plain_header(data: bytes | memoryview) -> Header:
    """The header of a JPEG that every decoder takes.

    Args:
        data: A file.

    Raises:
        Odd: It is none.
    """
    if data[:3] != b"\xff\xd8\xff":
        raise Odd("no JPEG")
    header = read_header(data)
    frame = header.height_at - 1
    if data[frame - 3] != _BASELINE or not header.cuttable:
        raise Odd("not baseline")
    if header.width * header.height > (Image.MAX_IMAGE_PIXELS or _ANY):
        raise Odd("larger than Pillow likes")
    if header.peculiar:
        _prove_taken(data)
    if not header.gray:
        _prove_colours(data, header, frame)
    if data[-len(_END) :] != _END:
        raise Odd("cut off, or bytes behind its end")
    return header


def _prove_taken(data: bytes | memoryview) -> None:
    """By Pillow, which reads more of the markers than a decoder does."""
    try:
        Image.open(io.BytesIO(data)).close()
    except Exception as error:  # whatever it is, it is raised where Pillow decodes the file
        raise Odd("Pillow refuses it") from error


def _prove_colours(data: bytes | memoryview, header: Header, frame: int) -> None:
    """YCbCr, of usual subsampling."""
    names = tuple(data[frame + 6 + 3 * number] for number in range(3))
    factors = [data[frame + 7 + 3 * number] for number in range(3)]
    if factors[0] not in _FACTORS or factors[1:] != [_COLOUR_FACTOR] * 2:
        raise Odd("unusual subsampling")
    if names == _RGB_NAMES or _NOT_YCBCR.search(bytes(data[: header.scan])):
        raise Odd("colours are not YCbCr")
