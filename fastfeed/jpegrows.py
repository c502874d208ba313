"""Where the restart intervals of a JPEG begin that divide its rows of MCUs evenly. Markers are read, nothing is decoded.

ITU-T T.81: a restart interval (DRI, B.2.4.4) puts a marker RST0 to RST7, in turn, behind so many MCUs (F.1.1.5.2), and the
predictions begin anew behind it: each interval can be decoded by itself. Where a row of MCUs is one interval, or several
whole ones, rows and columns of intervals can be cut out. In entropy-coded data a byte FF is always followed by 00 (F.1.2.3),
so a marker is found without decoding.
"""

import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

SOI, EOI, SOS, DRI = 0xD8, 0xD9, 0xDA, 0xDD
_BASELINE, _EXTENDED = 0xC0, 0xC1
_FRAMES = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})
_ALONE = frozenset({0x01, *range(0xD0, 0xD8)})
"""Markers without a segment, which must not stand between segments."""
_RESTARTS, _END = bytes(range(0xD0, 0xD8)), b"\xd9"
_BLOCK = 8
_MOST_SAMPLING = 4
_MARKER_BYTES = 2
_FIRST_BYTES = 4
_MOST_FIRST, _MOST_SIZE = 0xFFFFFFFF, 0xFFFF
_LEAST_INTERVALS = 2
Edges = NDArray[np.int64]
"""Where the restart intervals of a JPEG begin: int64 of shape (intervals + 1,), rising. The first byte of the entropy-coded
data of each, behind the marker that ends the one before it, and last the byte behind the marker that ends the scan (EOI)."""
_MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")
"""What ends entropy-coded data: a marker that is no restart; the fill bytes before it do not count."""


class Segment(NamedTuple):
    """One marker segment of a JPEG."""

    marker: int
    """Its second byte, behind FF."""
    start: int
    """Of the FF."""
    stop: int
    """Behind its last byte; the entropy-coded data behind a scan's header are not part of it."""


class Component(NamedTuple):
    """One component of a frame: its sampling factors."""

    horizontal: int
    vertical: int


class Frame(NamedTuple):
    """What the headers of a JPEG say, up to its first scan."""

    marker: int
    """The second byte of SOF: C0 baseline, C1 extended sequential, C2 progressive, C3 lossless, from C9 on arithmetic."""
    precision: int
    """Bits a sample."""
    width: int
    height: int
    """0 where only a marker behind the first scan says it (DNL)."""
    components: tuple[Component, ...]
    size_at: int
    """Where the height stands, two bytes, and behind it the width, two bytes."""
    interval: int
    """MCUs between two restart markers, 0 without any."""
    is_whole: bool
    """Whether the first scan holds all components, all their coefficients and all their bits."""
    scan: int
    """First entropy-coded byte, right behind the header of the first scan."""

    @property
    def mcu(self) -> tuple[int, int]:
        """Width and height of an MCU in pixels; of one component alone it is a block."""
        if len(self.components) == 1:
            return _BLOCK, _BLOCK
        across = max(component.horizontal for component in self.components)
        return _BLOCK * across, _BLOCK * max(component.vertical for component in self.components)

    @property
    def mcus_per_row(self) -> int:
        """MCUs in a row."""
        return -(-self.width // self.mcu[0])

    @property
    def rows(self) -> int:
        """Rows of MCUs."""
        return -(-self.height // self.mcu[1])

    @property
    def is_sequential(self) -> bool:
        """Whether it is of 8 bits, in Huffman coding, in one scan that tells a row whole before the next begins."""
        return self.marker in {_BASELINE, _EXTENDED} and self.precision == 8 and self.is_whole and self.height > 0  # noqa: PLR2004

    @property
    def parts(self) -> int:
        """Restart intervals in a row of MCUs; 0 where rows do not end where intervals do, or there is a single row."""
        if not self.is_sequential or not self.interval or self.mcus_per_row % self.interval or self.rows == 1:
            return 0
        return self.mcus_per_row // self.interval


def segments(data: bytes) -> Iterator[Segment]:
    """Each marker segment of a JPEG in order, SOI and EOI included; what is behind EOI is not looked at.

    Args:
        data: The whole file.

    Raises:
        ValueError: It is no JPEG, or is cut or broken: there is something else where a marker should be.
    """
    if data[:2] != b"\xff\xd8":
        msg = "it does not begin with SOI"
        raise ValueError(msg)
    yield Segment(SOI, 0, 2)
    at = 2
    while True:
        while data[at : at + 2] == b"\xff\xff":  # fill bytes
            at += 1
        marker = data[at + 1] if at + 1 < len(data) else 0
        if data[at : at + 1] != b"\xff" or marker in _ALONE or marker in {0, SOI}:
            msg = f"there is no marker at byte {at}"
            raise ValueError(msg)
        if marker == EOI:
            yield Segment(EOI, at, at + 2)
            return
        stop = at + 2 + int.from_bytes(data[at + 2 : at + 4])
        if stop < at + 4 or stop > len(data):
            msg = f"the segment at byte {at} has no such length"
            raise ValueError(msg)
        yield Segment(marker, at, stop)
        at = _scan_end(data, stop) if marker == SOS else stop


def _scan_end(data: bytes, at: int) -> int:
    """Where the marker stands that ends entropy-coded data."""
    found = _MARKER.search(data, at)
    if found is None:
        msg = "it ends in the midst of a scan"
        raise ValueError(msg)
    return found.start()


def read_frame(data: bytes) -> Frame | None:
    """What the headers of a JPEG say; None where they are no headers of a JPEG.

    Args:
        data: The file, or a part of it from its start that holds the header of the first scan.
    """
    frame, interval = None, 0
    try:
        for marker, start, stop in segments(data):
            if marker in _FRAMES:
                frame = _frame(data[start:stop], marker, start)
            elif marker == DRI:
                (interval,) = struct.unpack(">H", data[start + 4 : stop])
            elif marker == SOS:
                return _with_scan(frame, data[start:stop], interval, stop) if frame is not None else None
    except (ValueError, struct.error, IndexError):
        return None
    return None


def _frame(segment: bytes, marker: int, start: int) -> Frame:
    """From SOF: FF C0, length, precision, height, width, number of components; three bytes each."""
    precision, height, width, count = struct.unpack_from(">BHHB", segment, 4)
    factors = segment[10:][1::3]
    components = tuple(Component(value >> 4, value & 15) for value in factors)
    sane = all(1 <= factor <= _MOST_SAMPLING for component in components for factor in component)
    if len(segment) != 10 + 3 * count or not components or width == 0 or not sane:
        msg = "the frame header breaks a rule"
        raise ValueError(msg)
    return Frame(marker, precision, width, height, components, start + 5, 0, is_whole=False, scan=0)


def _with_scan(frame: Frame, segment: bytes, interval: int, stop: int) -> Frame:
    """With SOS: FF DA, length, number of components; two bytes each; first and last coefficient, bits."""
    count = segment[4]
    if len(segment) != 8 + 2 * count:
        msg = "the scan header breaks a rule"
        raise ValueError(msg)
    is_whole = count == len(frame.components) and segment[-3:] == b"\x00\x3f\x00"
    return frame._replace(interval=interval, is_whole=is_whole, scan=stop)


def scan_rows(data: bytes) -> Edges | None:
    """Where the rows of a JPEG begin, and the parts that restart markers divide them into.

    Args:
        data: The whole file.

    Returns:
        Where restart intervals begin, of each row parts. None where rows of MCUs do not end where restart intervals do, the
        file has a single row, is not of 8 bits in Huffman coding in one scan, or anything is not where it should be.
    """
    frame = read_frame(data)
    return rows_of(data, frame) if frame is not None else None


def rows_of(data: bytes, frame: Frame) -> Edges | None:
    """As scan_rows(), of a file whose headers have been read.

    Args:
        data: The whole file.
        frame: From read_frame().
    """
    count = frame.rows * frame.parts
    if not count:
        return None
    raw = np.frombuffer(data, dtype=np.uint8, offset=frame.scan)
    at = np.flatnonzero(raw[:-1] == 0xFF)  # noqa: PLR2004 - of these, only markers are not followed by a zero
    kinds = raw[at + 1]
    found = at[kinds != 0][:count]
    if kinds[kinds != 0][:count].tobytes() != markers(count):
        return None
    return np.concatenate(([frame.scan], found + (frame.scan + _MARKER_BYTES)))


def to_column(edges: Edges) -> bytes:
    """What the column jpeg_intervals of the index keeps (archive/README.md, section 4.4).

    Args:
        edges: From scan_rows().

    Returns:
        The first of them as uint32, then the bytes of each interval as uint16; nothing where they are too large for that.
    """
    sizes = np.diff(edges)
    if edges[0] > _MOST_FIRST or sizes.max() > _MOST_SIZE:
        return b""
    return int(edges[0]).to_bytes(_FIRST_BYTES, "little") + sizes.astype("<u2").tobytes()


def from_column(raw: bytes) -> Edges | None:
    """Where the restart intervals of a member begin, as the column says; None where it says no such thing.

    Args:
        raw: A row of the column, which is not empty.
    """
    if len(raw) < _FIRST_BYTES + _LEAST_INTERVALS * 2 or len(raw) % 2:
        return None
    edges = np.frombuffer(raw, dtype="<u2", offset=_FIRST_BYTES - 2).astype(np.int64)  # the first gets its value below
    if edges[1:].min() <= _MARKER_BYTES:
        return None
    edges[0] = int.from_bytes(raw[:_FIRST_BYTES], "little")
    return np.add.accumulate(edges, out=edges)  # of one dtype and in place: in half the time of cumsum() of 16-bit numbers


def markers(count: int) -> bytes:
    """The second bytes of the markers behind so many intervals: RST0 to RST7 in turn, at last EOI."""
    return (_RESTARTS * (count // len(_RESTARTS) + 1))[: count - 1] + _END
