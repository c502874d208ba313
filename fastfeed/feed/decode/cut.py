"""A smaller JPEG of the part of one that a crop needs: some of its rows of MCUs, and of each some of its restart intervals.

pack --jpeg-rows divides each row of MCUs into equal restart intervals and keeps where they begin. What lies in one is coded by
itself, so header, the intervals that are needed with their markers numbered anew, and an end marker are a JPEG, of whose
pixels those that are asked for equal the whole file's, bit for bit.

A pixel may need the one beside it as well, because subsampled colours are interpolated: see needed().

Source: ITU-T T.81 B.2.4.4 (restart intervals) and F.1.2.1.3 (the numbers of their markers).
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastfeed.feed.decode.box import Box
from fastfeed.feed.decode.header import Header, Odd
from fastfeed.jpegrows import Edges

_BLOCK = 8
_MARK, _RST0, _EOI = 0xFF, 0xD0, 0xD9
_LAST_NUMBER = 7
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

    @property
    def lies_together(self) -> bool:
        """Whether nothing is between them in the file."""
        return self.last - self.first == self.parts

    def of(self, each: NDArray[np.int64]) -> NDArray[np.int64]:
        """Theirs of something that each interval of the file has; shape (rows, intervals of each): a view."""
        return each.reshape(-1, self.parts)[self.above : self.below, self.first : self.last]


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
    head = bytearray(data[: header.scan])
    size = part.height.to_bytes(2, "big") + part.width.to_bytes(2, "big")
    head[header.height_at : header.height_at + len(size)] = size
    starts, stops = grid.of(edges[:-1]), grid.of(edges[1:])
    view = memoryview(data)
    if grid.lies_together:
        pieces = [view[starts[0, 0] : stops[-1, -1]]]
    else:
        pieces = [view[start:stop] for start, stop in zip(starts[:, 0].tolist(), stops[:, -1].tolist(), strict=True)]
    made = bytearray().join([head, *pieces])
    ends = header.scan + np.cumsum(stops - starts)
    np.frombuffer(made, dtype=np.uint8)[ends - 1] = _markers(len(ends))
    return Cut(made, part)


def _grid(data: bytes | memoryview, header: Header, wanted: Box, edges: NDArray[np.int64]) -> _Grid:
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
    before = max(0, grid.above * parts + first - 1)  # the first one begins behind the marker of the one before it
    stop = (grid.below - 1) * parts + last
    ends = edges[before + 1 : stop + 1]
    raw = np.frombuffer(data, dtype=np.uint8)
    marked = (raw[ends - 2] == _MARK) & (raw[ends - 1] == _markers(len(edges) - 1)[before:stop])
    if not marked.all():
        raise Odd(_OTHER)
    return grid


@lru_cache(maxsize=1 << 10)
def _markers(count: int) -> NDArray[np.uint8]:
    """The second bytes of the markers behind so many intervals: RST0 to RST7 in turn, at last EOI."""
    found = (_RST0 + (np.arange(count) & _LAST_NUMBER)).astype(np.uint8)
    found[-1] = _EOI
    found.flags.writeable = False  # all who ask get the same one
    return found
