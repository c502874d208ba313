"""What the markers of a JPEG say before its first scan, read in 5 us, and what is not for the fast decoder.

Source: ITU-T T.81 annex B.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

_BASELINE, _EXTENDED, _PROGRESSIVE = 0xC0, 0xC1, 0xC2
_FRAMES = frozenset({_BASELINE, _EXTENDED, _PROGRESSIVE})
_OTHER_FRAMES = frozenset({0xC3, 0xC5, 0xC6, 0xC7, 0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF})
"""Lossless, hierarchical, arithmetic: Pillow decides about them."""
_SOS, _DRI = 0xDA, 0xDD
_READ_BY_PILLOW = {0xE0: 7, 0xE2: 14, 0xED: 0, 0xEE: 7}
"""JFIF, MPF and ICC, Photoshop, Adobe: bytes that Pillow wants in such a segment."""
_MPF, _PHOTOSHOP, _RESOURCE = b"MPF\0", b"Photoshop 3.0\0", b"8BIM"
_LEAST_RESOURCE = 12
_SAY_NOTHING = frozenset({0xC4, 0xDB, 0xFE, *range(0xE0, 0xF0)} - _READ_BY_PILLOW.keys())
"""Segments that may stand before a scan and say nothing here: Huffman and quantisation tables, comment, applications' own."""
_LEAST_SCAN = 6
_SEGMENT = struct.Struct(">BBH")
"""How each begins: FF, the marker, and the length of what is behind the marker."""
_MARK = 0xFF
_GRAY, _COLOUR = 1, 3
_BITS = _BLOCK = 8


class Header(NamedTuple):
    """What the markers before the first scan say."""

    width: int
    height: int
    mcu_height: int
    """Pixel rows in an MCU."""
    mcu_width: int
    """Pixel columns in an MCU."""
    height_at: int
    """Where the height is written, in two bytes; behind it the width."""
    scan: int
    """Where the entropy-coded data begin."""
    gray: bool
    """One channel."""
    cuttable: bool
    """One interleaved sequential scan, so that decoding can stop at any row."""
    interval: int
    """MCUs between two restart markers of the scan; 0 without any."""
    peculiar: bool
    """Pillow reads more of its markers than a decoder needs, and may refuse them."""


class Odd(Exception):
    """This is not for the fast decoder. Its text is a counter's name: few words, no numbers."""


def read_header(data: bytes | memoryview) -> Header:
    """Read the markers up to the first scan.

    Args:
        data: A file that begins as a JPEG.

    Raises:
        Odd: Other decoders know more of it: CMYK, 12 bits, arithmetic coding, lossless, a damaged header.
    """
    frame = kind = components = interval = 0
    mcu = (0, 0)
    peculiar = False
    for marker, body, length in _segments(data):
        if marker in _READ_BY_PILLOW:
            peculiar = peculiar or _is_peculiar(marker, bytes(data[body : body + length - 2]))
        elif marker in _FRAMES:
            frame, kind = body, marker
            components, mcu = _frame(data, body, length)
        elif marker == _SOS and frame and length > _LEAST_SCAN:
            height, width = (data[frame + 1] << 8) | data[frame + 2], (data[frame + 3] << 8) | data[frame + 4]
            if not height or not width:
                raise Odd("size not in the header")
            scan, gray, cuttable = body - 2 + length, components == _GRAY, kind != _PROGRESSIVE and data[body] == components
            return Header(width, height, *mcu, frame + 1, scan, gray, cuttable, interval, peculiar)
        elif marker == _DRI:
            interval = int.from_bytes(data[body : body + length - 2])
        else:
            raise Odd("coding that only Pillow knows" if marker in _OTHER_FRAMES else "damaged header")
    raise Odd("no scan")


def _is_peculiar(marker: int, body: bytes) -> bool:
    """Whether Pillow may refuse a segment that no decoder would: it is short, or Pillow looks further and may find a fault."""
    if len(body) < _READ_BY_PILLOW[marker] or body.startswith(_MPF):
        return True
    return body.startswith(_PHOTOSHOP) and not _are_whole(body)


def _are_whole(body: bytes) -> bool:
    """Whether Photoshop's resources lie one behind another up to the end: then there is no fault to find.

    Each is 8BIM, its number in two bytes, its name behind a byte that says how long that is, and its data behind four that say
    it; name and data are padded to an even end. Source: Adobe Photoshop File Formats Specification, Image Resource Blocks.
    """
    at = len(_PHOTOSHOP)
    while at + _LEAST_RESOURCE <= len(body) and body.startswith(_RESOURCE, at):
        at += len(_RESOURCE) + 2
        at += 1 + body[at]
        at += at % 2
        at += 4 + int.from_bytes(body[at : at + 4])
        at += at % 2
    return at == len(body)


def _segments(data: bytes | memoryview) -> Iterator[tuple[int, int, int]]:
    """Marker, start of its body, and the length that it says, of each segment that says something."""
    at, size = 2, len(data)
    while at + _SEGMENT.size <= size:
        mark, marker, length = _SEGMENT.unpack_from(data, at)
        if mark != _MARK:
            raise Odd("bytes between markers")
        if marker == _MARK:  # a fill byte
            at += 1
            continue
        body = at + 4
        at += 2 + length
        if at > size or length < 2:  # noqa: PLR2004 - the two bytes that say it
            raise Odd("damaged header")
        if marker not in _SAY_NOTHING:
            yield marker, body, length


def _frame(data: bytes | memoryview, body: int, length: int) -> tuple[int, tuple[int, int]]:
    """Components; height and width of an MCU in pixels."""
    if length < _BITS:
        raise Odd("damaged header")
    if data[body] != _BITS:
        raise Odd("not 8 bits a channel")
    components = data[body + 5]
    if components not in {_GRAY, _COLOUR}:
        raise Odd("CMYK or other colours")
    if length < 8 + 3 * components:
        raise Odd("damaged header")
    if components == _GRAY:  # not interleaved: its MCU is one block, whatever its factors say
        return components, (_BLOCK, _BLOCK)
    first, second, third = data[body + 7], data[body + 10], data[body + 13]
    tall, wide = max(first & 15, second & 15, third & 15), max(first >> 4, second >> 4, third >> 4)
    if not tall or not wide:
        raise Odd("damaged header")
    return components, (_BLOCK * tall, _BLOCK * wide)
