"""The rows of a JPEG that a crop needs, decoded by simplejpeg (libjpeg-turbo) into memory that is used again.

What is decoded equals those rows of a decoder that decodes everything, bit for bit. Three ways, by what the file allows:

- **rows**: a file with a restart marker at each MCU row, whose places are known (pack --jpeg-rows). Header, the rows that are
  needed, and an end marker are a smaller JPEG.
- **top**: a file with one interleaved baseline scan. Its header is given a smaller height, and the decoder stops there.
- **whole**: any other (progressive, several scans).

A row of pixels may need the one above or below as well, because subsampled colours are interpolated (see _needed).

What libjpeg-turbo would decode with a warning is not decoded here: Pillow decides about such files.

Source: ITU-T T.81 annex B (markers), B.2.4.4 (restart intervals) and F.1.2.1.3 (their numbers).
"""

import re
import threading
from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np
import simplejpeg
from numpy.typing import NDArray

Colours = Literal["RGB", "RGBX"]
"""What a pixel is: three bytes, or four of which the last says nothing."""
CHANNELS = {"RGB": 3, "RGBX": 4}
Rows = NDArray[np.uint32]
"""Where each MCU row of a member begins, and where the last ends: the column jpeg_rows of the index."""

KEPT_BYTES = 64 << 20
"""Memory for decoded pixels that a thread keeps for the next image; what a larger one took is given back."""
_BASELINE, _EXTENDED, _PROGRESSIVE = 0xC0, 0xC1, 0xC2
_FRAMES = frozenset({_BASELINE, _EXTENDED, _PROGRESSIVE})
_OTHER_FRAMES = frozenset({0xC3, 0xC5, 0xC6, 0xC7, 0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF})
"""Lossless, hierarchical, arithmetic: Pillow decides about them."""
_SOS, _EOI, _RST0, _DRI = 0xDA, 0xD9, 0xD0, 0xDD
_TABLES = frozenset({0xC4, 0xDB, 0xFE, *range(0xE0, 0xF0)})
"""Segments that may stand before a scan and say nothing here: Huffman and quantisation tables, comment, applications' own."""
_READ_BY_PILLOW: dict[int, tuple[int, tuple[bytes, ...]]] = {
    0xE0: (7, ()), 0xE2: (14, (b"MPF\0",)), 0xED: (0, (b"Photoshop 3.0\0",)), 0xEE: (7, ()),
}  # fmt: skip
"""JFIF, MPF and ICC, Photoshop, Adobe: bytes that Pillow wants in such a segment, and the beginning of those that it looks into
further, where it may find something wrong."""
_BEGINNING = 14
_LEAST_SCAN = 6
_MARK = 0xFF
_GRAY, _COLOUR = 1, 3
_BITS = _BLOCK = 8
_RESTARTS = 8
_END = b"\xff\xd9"
_BEHIND_ROWS = tuple(bytes((_MARK, _RST0 + number)) for number in range(_RESTARTS))
"""The markers between rows, in turn."""
_HARMLESS = re.compile("extraneous bytes before marker 0xd[0-79]")
"""What the decoder says of the rows that a smaller height left over. It tells its first warning: there was none before."""
_OTHER_MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")
"""In a scan, a marker that is no restart."""


class Header(NamedTuple):
    """What the markers before the first scan say."""

    width: int
    height: int
    mcu_rows: int
    """Pixel rows in a row of MCUs."""
    height_at: int
    """Where the height is written."""
    scan: int
    """Where the entropy-coded data begin."""
    gray: bool
    """One channel."""
    cuttable: bool
    """One interleaved sequential scan, so that decoding can stop at any row."""
    restarts: bool
    """There may be restart markers in the scan."""
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
    frame = kind = components = mcu_rows = interval = 0
    peculiar = False
    for marker, body, length in _segments(data):
        if marker in _READ_BY_PILLOW:
            peculiar = peculiar or _is_peculiar(marker, bytes(data[body : body + _BEGINNING]), length - 2)
        elif marker in _FRAMES:
            frame, kind = body, marker
            components, mcu_rows = _frame(data, body, length)
        elif marker == _SOS and frame and length > _LEAST_SCAN:
            height, width = (data[frame + 1] << 8) | data[frame + 2], (data[frame + 3] << 8) | data[frame + 4]
            if not height or not width:
                raise Odd("size not in the header")
            scan, gray, cuttable = body - 2 + length, components == _GRAY, kind != _PROGRESSIVE and data[body] == components
            return Header(width, height, mcu_rows, frame + 1, scan, gray, cuttable, interval > 0, peculiar)
        elif marker == _DRI:
            interval = int.from_bytes(data[body : body + length - 2])
        elif marker not in _TABLES:
            raise Odd("coding that only Pillow knows" if marker in _OTHER_FRAMES else "damaged header")
    raise Odd("no scan")


def _is_peculiar(marker: int, beginning: bytes, size_bytes: int) -> bool:
    """Whether it may be a segment that Pillow refuses, though no decoder would: a short one, or one that it looks into."""
    least_bytes, looked_into = _READ_BY_PILLOW[marker]
    return size_bytes < least_bytes or beginning.startswith(looked_into)


def _segments(data: bytes | memoryview) -> Iterator[tuple[int, int, int]]:
    """Marker, start of its body, and the length that it says, of each segment."""
    at, size = 2, len(data)
    while at + 4 <= size:
        if data[at] != _MARK:
            raise Odd("bytes between markers")
        marker = data[at + 1]
        if marker == _MARK:  # a fill byte
            at += 1
            continue
        length = (data[at + 2] << 8) | data[at + 3]
        if at + 2 + length > size or length < 2:  # noqa: PLR2004 - the two bytes that say it
            raise Odd("damaged header")
        yield marker, at + 4, length
        at += 2 + length


def _frame(data: bytes | memoryview, body: int, length: int) -> tuple[int, int]:
    """Components, and pixel rows in a row of MCUs."""
    if length < _BITS:
        raise Odd("damaged header")
    if data[body] != _BITS:
        raise Odd("not 8 bits a channel")
    components = data[body + 5]
    if components not in {_GRAY, _COLOUR}:
        raise Odd("CMYK or other colours")
    if length < 8 + 3 * components:
        raise Odd("damaged header")
    factors = [data[body + 7 + 3 * number] & 15 for number in range(components)]
    # A single component is not interleaved: its MCU is one block, whatever its factors say.
    return components, 8 * max(factors) if components > 1 else 8


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
    """Some rows of an image."""

    memory: NDArray[np.uint8]
    """Flat; the pixels are at its beginning. It is overwritten when this thread decodes the next image."""
    width: int
    height: int
    first: int
    """Which row of the image its first row is."""
    channels: int

    def pixels(self) -> NDArray[np.uint8]:
        """uint8, shape (height, width, channels): a view."""
        size = self.height * self.width * self.channels
        return self.memory[:size].reshape(self.height, self.width, self.channels)


def decode(  # noqa: PLR0917
    data: bytes | memoryview, header: Header, top: int, bottom: int, colours: Colours, rows: Rows | None = None
) -> Decoded:  # fmt: skip
    """Decode rows [top, bottom), and others beside them.

    Args:
        data: The file.
        header: Its header.
        top: First row that is needed.
        bottom: The row after the last one.
        colours: What a pixel shall be; gray becomes three equal channels.
        rows: Where its MCU rows begin, if they are known.

    Raises:
        Odd: The decoder warns or refuses: Pillow decides about this file.
    """
    if rows is not None:
        cut, first, height = _cut_rows(data, header, top, bottom, rows)
        return _run(cut, header.width, height, first, colours)
    _, height = _needed(header, top, bottom)
    if height == header.height or not header.cuttable or not _ends(data, header):
        return _run(data, header.width, header.height, 0, colours)
    at = header.height_at
    part: memoryview | bytearray = data if isinstance(data, memoryview) and not data.readonly else bytearray(data)
    try:  # in place where that is allowed: copying a photo takes a hundredth of decoding it
        part[at : at + 2] = height.to_bytes(2, "big")
        return _run(part, header.width, height, 0, colours, stops_early=True)
    finally:
        part[at : at + 2] = header.height.to_bytes(2, "big")


def keep(decoded: Decoded) -> None:
    """These rows are not overwritten when this thread decodes the next image."""
    _SCRATCH.leave(decoded.memory)


def _needed(header: Header, top: int, bottom: int) -> tuple[int, int]:
    """Rows [first, last) whose data the rows [top, bottom) are made of.

    Of colours at half the rows libjpeg's "fancy" upsampling takes the nearest row, which a row of pixels shares with its
    partner in the pair, and of the two beside it the nearer: above for the upper of a pair, below for the lower. Colours at all
    rows need no other row; at a quarter (none are interpolated today) a row of MCUs on either side is always enough.
    """
    if header.mcu_rows <= _BLOCK:
        above = below = 0
    elif header.mcu_rows == 2 * _BLOCK:
        above, below = 1 - top % 2, 1 - bottom % 2
    else:
        above = below = header.mcu_rows
    return max(0, top - above), min(header.height, bottom + below)


def _ends(data: bytes | memoryview, header: Header) -> bool:
    """Whether the end marker is there. A file that was cut off is Pillow's to refuse, whichever rows are asked for.

    Of a marker that is no business of a scan the decoder tells, but not behind a restart that was left over.
    """
    if data[-2:] != _END:
        return False
    if not header.restarts:
        return True
    found = _OTHER_MARKER.search(data, header.scan)
    return found is not None and found.start() == len(data) - 2


def _cut_rows(  # noqa: PLR0917
    data: bytes | memoryview, header: Header, top: int, bottom: int, rows: Rows
) -> tuple[bytearray, int, int]:  # fmt: skip
    """A JPEG of the rows that are needed, which row its first one is, and its height."""
    step, last = header.mcu_rows, len(rows) - 2
    if int(rows[0]) != header.scan or last + 1 != -(-header.height // step) or int(rows[-1]) + 2 > len(data):
        raise Odd("rows of another file")
    needed, end = _needed(header, top, bottom)
    above, below = needed // step, -(-end // step) - 1
    # Checksums prove the file, not the index: between wrong places there may be other rows, decoded without a warning.
    if not _is_marked(data, rows, below) or (above and not _is_marked(data, rows, above - 1)):
        raise Odd("rows of another file")
    start, stop = int(rows[above]), int(rows[below + 1])
    head = int(rows[0])
    first = above * step
    height = end - first
    part = bytearray(data[:head])
    part[header.height_at : header.height_at + 2] = height.to_bytes(2, "big")
    part += data[start:stop]
    if below == last:
        part += _END
    else:
        part[-1] = _EOI  # where the restart marker of the row behind it stood
    inner = rows[above + 1 : below + 1].astype(np.int64) - (start - head + 1)
    if len(inner) and above % _RESTARTS:
        np.frombuffer(part, dtype=np.uint8)[inner] = _RST0 + np.arange(len(inner), dtype=np.uint8) % _RESTARTS
    return part, first, height


def _is_marked(data: bytes | memoryview, rows: Rows, row: int) -> bool:
    """Whether a row ends with its marker where the next begins, or the last with the end marker."""
    end = int(rows[row + 1])
    if row == len(rows) - 2:
        return data[end : end + 2] == _END
    return data[end - 2 : end] == _BEHIND_ROWS[row % _RESTARTS]


def _run(  # noqa: PLR0917
    data: bytes | memoryview | bytearray, width: int, height: int, first: int, colours: Colours, *, stops_early: bool = False
) -> Decoded:  # fmt: skip
    channels = CHANNELS[colours]
    memory = _SCRATCH.of(width * (height + 1) * channels)  # a row more: see Picture._lent
    try:
        # The exact inverse transform and upsampling, which are what Pillow asks for.
        found = simplejpeg.decode_jpeg(data, colours, fastdct=False, fastupsample=False, buffer=memory, strict=True)
    except ValueError as error:
        if not stops_early or not _HARMLESS.search(str(error)):
            raise Odd("the decoder warns") from error
    else:
        if found.shape[:2] != (height, width):
            raise Odd("the decoder reads another size")
    return Decoded(memory, width, height, first, channels)
