"""A smaller JPEG of the part of one that a crop needs: some of its rows of MCUs, and of each some of its restart intervals.

pack --jpeg-rows divides each row of MCUs into equal restart intervals and keeps where they begin. What lies in one is coded by
itself, so header, the intervals that are needed with their markers numbered anew, and an end marker are a JPEG, of whose
pixels those that are asked for equal the whole file's, bit for bit.

A pixel may need the one beside it as well, because subsampled colours are interpolated: see needed().

Source: ITU-T T.81 B.2.4.4 (restart intervals) and F.1.2.1.3 (the numbers of their markers).
"""

from typing import NamedTuple

import numpy as np

from fastfeed.feed.decode.box import Box
from fastfeed.feed.decode.header import Header, Odd
from fastfeed.jpegrows import Edges, markers

_BLOCK = 8
_MARK = b"\xff"
_OTHER = "rows of another file"


class Cut(NamedTuple):
    """A JPEG of a part."""

    data: bytes | bytearray | memoryview
    part: Box
    """The part of the image that it holds."""


class _Grid(NamedTuple):
    """The restart intervals that are needed: of MCU rows [above, below) the intervals [first, last)."""

    above: int
    below: int
    first: int
    last: int
    parts: int
    """How many there are in a row, needed or not."""


def needed(header: Header, box: Box) -> Box:
    """The pixels whose data those of a part are made of.

    Of colours at half the rows libjpeg's "fancy" upsampling takes the nearest row, which a row of pixels shares with its
    partner in the pair, and of the two beside it the nearer: above for the upper of a pair, below for the lower. Likewise of
    columns. Colours at all rows need no other one; at a quarter (none are interpolated today) an MCU on either side is always
    enough.

    Args:
        header: Of the file.
        box: The part.
    """
    top, bottom = _beside(box.top, box.bottom, header.height, header.mcu_height)
    left, right = _beside(box.left, box.right, header.width, header.mcu_width)
    return Box(top, left, bottom - top, right - left)


def _beside(start: int, stop: int, end: int, mcu: int) -> tuple[int, int]:
    if mcu <= _BLOCK:
        before = behind = 0
    elif mcu == 2 * _BLOCK:
        before, behind = 1 - start % 2, 1 - stop % 2
    else:
        before = behind = mcu
    return max(0, start - before), min(end, stop + behind)


def cut(data: bytes | memoryview, header: Header, box: Box, edges: Edges) -> Cut:
    """The smallest JPEG that holds the pixels of a part as they are in the whole.

    Args:
        data: The file.
        header: Its header.
        box: The part, at least a pixel, inside.
        edges: Where its restart intervals begin.

    Raises:
        Odd: They are those of another file.
    """
    wanted = needed(header, box)
    grid = _grid(data, header, wanted, edges)
    across = header.interval * header.mcu_width
    part = Box(
        grid.above * header.mcu_height, grid.first * across,
        wanted.bottom - grid.above * header.mcu_height, min(header.width, grid.last * across) - grid.first * across,
    )  # fmt: skip
    lies = edges[grid.above * grid.parts : grid.below * grid.parts + 1]
    made = bytearray().join([*_head(data, header, part), *_pieces(data, grid, lies)])
    sizes = (lies[1:] - lies[:-1]).reshape(-1, grid.parts)[:, grid.first : grid.last]
    last_bytes = sizes.cumsum() + (header.scan - 1)
    np.frombuffer(made, dtype=np.uint8)[last_bytes] = np.frombuffer(markers(len(last_bytes)), dtype=np.uint8)
    return Cut(made, part)


def _head(data: bytes | memoryview, header: Header, part: Box) -> list[bytes | memoryview]:
    """The header, in pieces, that says the size of a part."""
    size = part.height.to_bytes(2, "big") + part.width.to_bytes(2, "big")
    return [data[: header.height_at], size, data[header.height_at + len(size) : header.scan]]


def _pieces(data: bytes | memoryview, grid: _Grid, lies: Edges) -> list[bytes | memoryview]:
    """The intervals that are needed, those of a row together.

    Args:
        data: The file.
        grid: Which they are.
        lies: Where the intervals of these rows begin, needed or not, and where the last one ends.
    """
    if grid.last - grid.first == grid.parts:  # nothing is between the rows
        return [data[lies[0] : lies[-1]]]
    starts, stops = lies[grid.first : -1 : grid.parts], lies[grid.last :: grid.parts]
    return [data[start:stop] for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]


def _grid(data: bytes | memoryview, header: Header, wanted: Box, edges: Edges) -> _Grid:
    """Which intervals hold a part, proven to be where the index says, as far as the part goes.

    Checksums prove the file, not the index: between wrong places there may be other intervals, decoded without a warning.
    """
    tall, wide = -(-header.height // header.mcu_height), -(-header.width // header.mcu_width)
    parts, left_over = divmod(len(edges) - 1, tall)
    if left_over or not parts or parts * header.interval != wide or edges[0] != header.scan or edges[-1] > len(data):
        raise Odd(_OTHER)
    across = header.interval * header.mcu_width
    first, last = wanted.left // across, -(-wanted.right // across)
    if header.width - first * across < header.mcu_width and first:
        first -= 1  # libjpeg interpolates no colours of an image of up to 4 columns: the part shall not be one
    grid = _Grid(wanted.top // header.mcu_height, -(-wanted.bottom // header.mcu_height), first, last, parts)
    before = max(0, grid.above * parts - 1)  # the first one begins behind the marker of the one before it
    stop = grid.below * parts  # all of these rows: that is faster than choosing those that are needed
    ends, numbers = edges[before + 1 : stop + 1], markers(len(edges) - 1)[before:stop]
    raw = np.frombuffer(data, dtype=np.uint8)
    if raw[ends - 1].tobytes() != numbers or raw[ends - 2].tobytes() != _MARK * len(numbers):
        raise Odd(_OTHER)
    return grid
