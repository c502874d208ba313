"""The markers of a JPEG, walked as a forgiving decoder does: what is there, what is missing, what stands where nothing should.

Source: ITU-T T.81 annex B. jpegrows.segments() is strict and ends at the first fault; this walk notes it and goes on.
"""

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from fastfeed.jpegrows import EOI, SOI, SOS

_DHT, _DQT, _DNL, _APP0, _APP1, _APP2, _COM, _FF = 0xC4, 0xDB, 0xDC, 0xE0, 0xE1, 0xE2, 0xFE, 0xFF
_METADATA = frozenset({*range(_APP0, _APP0 + 16), _COM})
_FRAMES = frozenset({*range(0xC0, 0xD0)} - {_DHT, 0xC8, 0xCC})
_ALONE = frozenset({0x01, *range(0xD0, 0xD8)})
"""TEM and RST0 to RST7: a marker without a segment."""
_RESERVED = frozenset(range(0x02, 0xC0))
_NEXT = re.compile(rb"\xff[^\x00\xff]")  # not \xff+: millions of fill bytes, tried from each, take hours
_SCAN_END = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")
_EOI_BYTES = b"\xff\xd9"
_SEQUENTIAL = frozenset({0xC0, 0xC1})
_PROGRESSIVE = frozenset({0xC2, 0xC6, 0xCA, 0xCE})
_ARITHMETIC = frozenset(range(0xC9, 0xD0))
_LOSSLESS = frozenset({0xC3, 0xC7, 0xCB, 0xCF})


class Span(NamedTuple):
    """Bytes [start, stop) of the file."""

    start: int
    stop: int


@dataclass(slots=True)
class JpegStructure:
    """What the markers of a JPEG say."""

    frame: int = 0
    """The second byte of SOF; 0 where there is none."""
    precision: int = 0
    width: int = 0
    height: int = 0
    components: int = 0
    scans: int = 0
    first_scan: int = -1
    """Where the entropy-coded data begin; -1 without any."""
    eoi: int = -1
    """Where EOI stands; -1 where the file ends before."""
    lost_at: int = -1
    """Where something stands that decoders stop at; -1 where the walk met nothing of the kind."""
    cut_segment: bool = False
    """The file ends within a segment."""
    stray: list[Span] = field(default_factory=list)
    """Bytes between two segments that belong to neither."""
    icc: list[Span] = field(default_factory=list)
    """Segments of the colour profile."""
    icc_broken: bool = False
    """They do not number from 1 to as many as there are."""
    metadata_bytes: int = 0
    """Of application segments and comments."""
    has_exif: bool = False
    """There is an APP1 segment: EXIF and XMP lie there, and nowhere else."""
    has_pictures: bool = False
    """It states where other pictures of the file lie (MPF, CIPA DC-007)."""
    has_huffman: bool = False
    has_quantisation: bool = False
    has_late_height: bool = False
    """A marker behind the first scan states the height (DNL)."""

    @property
    def progressive(self) -> bool:
        """Each scan refines the picture, so that its end alone may be missing."""
        return self.frame in _PROGRESSIVE

    @property
    def arithmetic(self) -> bool:
        """Of the two ways of coding, the one that few decoders read."""
        return self.frame in _ARITHMETIC

    @property
    def lossless(self) -> bool:
        """Prediction in place of transformed blocks."""
        return self.frame in _LOSSLESS

    def plain(self, data: bytes) -> bytes:
        """The file without stray bytes and colour profile, so that a strict decoder tells of what else there is."""
        spans = sorted([*self.stray, *self.icc])
        if not spans:
            return data
        starts = [0, *(span.stop for span in spans)]
        stops = [*(span.start for span in spans), len(data)]
        return b"".join(data[start:stop] for start, stop in zip(starts, stops, strict=True))


def walk(data: bytes, *, thorough: bool = True) -> JpegStructure:
    """Read the markers of a JPEG.

    Args:
        data: The whole file, beginning with SOI.
        thorough: Look for markers in all of the data of a scan, be it the only one by the file's header and followed by an
            end marker at the end of the file.
    """
    found, at = JpegStructure(), 2
    while (at := _behind_marker(found, data, at)) > 0:
        marker = data[at - 1]
        if marker in _ALONE:
            continue
        if marker == EOI:
            found.eoi = at - 2
            break
        if marker == SOI or marker in _RESERVED:
            found.lost_at = at - 2
            break
        stop = at + (data[at] << 8 | data[at + 1]) if at + 2 <= len(data) else len(data) + 1
        if stop > len(data) or stop < at + 2:
            found.cut_segment = stop > len(data)
            found.lost_at = -1 if found.cut_segment else at - 2
            break
        if marker == SOS:
            at = _behind_scan(found, data, stop, to_end=not thorough and _is_all(found, data, at))
        else:
            _segment(found, marker, Span(at - 2, stop), data)
            at = stop
    found.icc_broken = bool(found.icc) and _is_icc_broken(found.icc, data)
    return found


def _behind_marker(found: JpegStructure, data: bytes, at: int) -> int:
    """Where the next marker ends; 0 where there is none. What stands before it is stray, but for fill bytes (FF)."""
    if data[at : at + 1] == b"\xff" and at + 1 < len(data) and 0 < data[at + 1] < _FF:  # nearly always
        return at + 2
    match = _NEXT.search(data, at)
    if match is None:
        return 0
    strays = len(data[at : match.start()].rstrip(b"\xff"))  # a marker may have any number of FF before it
    if strays:
        found.stray.append(Span(at, at + strays))
    return match.end()


def _segment(found: JpegStructure, marker: int, span: Span, data: bytes) -> None:
    if marker == _DHT:
        found.has_huffman = True
    elif marker == _DQT:
        found.has_quantisation = True
    elif marker == _DNL:
        found.has_late_height = True
    elif marker in _FRAMES:
        _frame(found, marker, data[span.start + 4 : span.stop])
    elif marker in _METADATA:
        found.metadata_bytes += span.stop - span.start
        found.has_exif |= marker == _APP1
        if marker == _APP2:
            found.has_pictures |= data.startswith(b"MPF\0", span.start + 4, span.stop)
            if data.startswith(b"ICC_PROFILE\0", span.start + 4, span.stop):
                found.icc.append(span)


def _frame(found: JpegStructure, marker: int, body: bytes) -> None:
    """The first frame header counts."""
    if not found.frame and len(body) >= 6:  # noqa: PLR2004 - precision, height, width, components
        found.frame, found.precision, found.components = marker, body[0], body[5]
        found.height, found.width = int.from_bytes(body[1:3]), int.from_bytes(body[3:5])


def _is_all(found: JpegStructure, data: bytes, at: int) -> bool:
    """Whether a scan is all of the file by its headers and its last bytes, as in nearly all JPEGs.

    Args:
        found: What the segments before it say.
        data: The whole file.
        at: Where the scan's own segment states its length; then follows of how many components the scan is.
    """
    one = found.frame in _SEQUENTIAL and not found.scans and not found.has_pictures
    return one and data[at + 2 : at + 3] == bytes([found.components]) and data.endswith(_EOI_BYTES)


def _behind_scan(found: JpegStructure, data: bytes, at: int, *, to_end: bool) -> int:
    """Count a scan, and give where its data end: at the end marker of the file, where that is believed."""
    found.scans += 1
    if found.first_scan < 0:
        found.first_scan = at
    if to_end:
        return max(at, len(data) - len(_EOI_BYTES))
    match = _SCAN_END.search(data, at)
    return len(data) if match is None else match.start()


def _is_icc_broken(spans: list[Span], data: bytes) -> bool:
    """Each piece states its number, from 1 on, and how many there are."""
    numbers = [(data[span.start + 16], data[span.start + 17]) for span in spans if span.stop - span.start >= 18]  # noqa: PLR2004
    return len(numbers) != len(spans) or sorted(numbers) != [(number, len(spans)) for number in range(1, len(spans) + 1)]
