"""What a file is, told from its first bytes: codec, width, height, EXIF orientation. Nothing is decoded, nothing raises.

Width and height are as stored, before any orientation is applied; 0 says unknown (a codec whose header this module does
not read, or a damaged header). Orientation is 1 to 8 as in EXIF tag 274 (from XMP where EXIF has none, as Pillow does),
0 where neither says it.

Sources: ITU-T T.81 annex B (JPEG markers), EXIF 2.32 / TIFF 6.0 (IFDs), PNG 3rd edition §5 and §11, GIF89a §18,
RFC 9649 (WebP container), ISO/IEC 23008-12 (HEIF ispe), ISO/IEC 15444-1 annex A and I (JPEG 2000), Netpbm's pnm(5).
"""

import re
import struct
from collections.abc import Iterator
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

HEAD_BYTES = 256 << 10
"""How much of a file's start probe() wants; a header that ends later is read as far as it goes."""

IMAGE_EXTENSIONS = frozenset({
    "jpg", "jpeg", "jpe", "jfif", "png", "apng", "gif", "bmp", "dib", "webp", "tif", "tiff", "avif", "heic", "heif", "hif",
    "jp2", "j2k", "jpf", "jpx", "j2c", "jpc", "jxl", "ppm", "pgm", "pbm", "pnm", "mpo", "ico", "icns", "tga", "dds", "psd",
    "pcx", "sgi", "qoi",
})  # fmt: skip
"""Extensions by which a file or a field is taken for an image."""


@lru_cache(maxsize=1 << 12)
def is_image_field(field: str) -> bool:
    """Whether a field ("jpg", "mask.png") holds an image by its last part."""
    return field.rpartition(".")[2] in IMAGE_EXTENSIONS


class Codec(IntEnum):
    """Stored in the index as these numbers; a number is never reused."""

    UNKNOWN = 0
    JPEG = 1
    PNG = 2
    GIF = 3
    BMP = 4
    WEBP = 5
    TIFF = 6
    AVIF = 7
    HEIF = 8
    JPEG2000 = 9
    JPEGXL = 10
    PNM = 11
    ICO = 12


class Probe(NamedTuple):
    """What the header says."""

    codec: Codec
    width: int
    height: int
    orientation: int


NOT_AN_IMAGE = Probe(Codec.UNKNOWN, 0, 0, 0)

FIRST_BYTES = frozenset(b"\xff\x89GIMRBP\0")
"""First bytes that an image of a known codec can have: a test that is cheap enough for every text."""
_HEIF_BRANDS = {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"}
_SIMPLE_MAGICS = (
    (b"\xff\xd8\xff", Codec.JPEG), (b"\x89PNG\r\n\x1a\n", Codec.PNG), (b"GIF87a", Codec.GIF), (b"GIF89a", Codec.GIF),
    (b"II*\0", Codec.TIFF), (b"MM\0*", Codec.TIFF), (b"II+\0", Codec.TIFF), (b"MM\0+", Codec.TIFF),
    (b"\xff\x4f\xff\x51", Codec.JPEG2000),
    (b"\0\0\0\x0cjP  \r\n\x87\n", Codec.JPEG2000), (b"\xff\x0a", Codec.JPEGXL), (b"\0\0\0\x0cJXL \r\n\x87\n", Codec.JPEGXL),
)  # fmt: skip
_BLANKS = rb"(?:\s|#[^\n]*+\n)++"  # possessive: a text of "P6" and blanks must not cost 2**blanks
_PNM = re.compile(rb"P[1-6]%b(\d{1,9})%b(\d{1,9})\s" % (_BLANKS, _BLANKS))
_XMP_ORIENTATION = re.compile(rb'tiff:Orientation(?:="|>)([1-8])')


def sniff(head: bytes) -> Codec:
    """The image codec by magic bytes, UNKNOWN for anything else."""
    if not head or head[0] not in FIRST_BYTES:  # most texts end here
        return Codec.UNKNOWN
    for magic, codec in _SIMPLE_MAGICS:
        if head.startswith(magic):
            return codec
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return Codec.WEBP
    if head[4:8] == b"ftyp":
        brands = {head[8:12], *(head[at : at + 4] for at in range(16, min(len(head), 64), 4))}
        return Codec.AVIF if brands & {b"avif", b"avis"} else Codec.HEIF if brands & _HEIF_BRANDS else Codec.UNKNOWN
    return _sniff_weak(head)


def _sniff_weak(head: bytes) -> Codec:
    """Codecs whose magic is short enough to meet by chance, so the header must make sense as well."""
    if head[:2] == b"BM" and len(head) >= 26 and 12 <= int.from_bytes(head[14:18], "little") <= 124:  # noqa: PLR2004
        return Codec.BMP
    if head[:1] == b"P" and _PNM.match(head):
        return Codec.PNM
    if head[:4] == b"\0\0\1\0" and 0 < int.from_bytes(head[4:6], "little") < 256 and head[9:10] == b"\0":  # noqa: PLR2004
        return Codec.ICO
    return Codec.UNKNOWN


def probe(head: bytes) -> Probe:
    """Codec, size and orientation from a file's first HEAD_BYTES.

    Args:
        head: The start of the file, HEAD_BYTES of it or more.
    """
    codec = sniff(head)
    if codec is Codec.UNKNOWN:
        return NOT_AN_IMAGE
    try:
        width, height, orientation = _READERS[codec](head)
    except (struct.error, IndexError, ValueError, TypeError):
        return Probe(codec, 0, 0, 0)  # cut or damaged header: the codec is known, the rest is not
    sane = 0 < width < 1 << 31 and 0 < height < 1 << 31
    return Probe(codec, width if sane else 0, height if sane else 0, orientation if 1 <= orientation <= 8 else 0)  # noqa: PLR2004


def _jpeg_segments(head: bytes) -> Iterator[tuple[int, int, int]]:
    """(marker, start of its body, end of its body) of each segment before the start of scan."""
    at = 2
    while at + 4 <= len(head):
        if head[at] != 0xFF:  # noqa: PLR2004 - garbage between segments: decoders skip to the next marker, and so do we
            at = head.find(b"\xff", at)
            if at < 0:
                return
            continue
        marker = head[at + 1]
        if marker in _JPEG_ALONE:
            at += 1 if marker == 0xFF else 2  # noqa: PLR2004 - fill byte
            continue
        if marker in {0xDA, 0xD9}:
            return
        size = (head[at + 2] << 8) | head[at + 3]
        yield marker, at + 4, at + 2 + size
        at += 2 + size


def _jpeg(head: bytes) -> tuple[int, int, int]:
    """Size from the frame header, orientation from APP1."""
    width = height = orientation = xmp = 0
    for marker, start, stop in _jpeg_segments(head):
        if marker in _JPEG_FRAMES:
            height, width = struct.unpack_from(">HH", head, start + 1)
        elif marker == 0xE1:  # noqa: PLR2004 - APP1
            body = head[start:stop]
            if body.startswith(b"Exif\0"):
                orientation = orientation or _exif_orientation(body[6:])
            elif body.startswith(b"http://ns.adobe.com/xap/1.0/"):
                xmp = xmp or _xmp_orientation(body)
    return width, height, orientation or xmp


_JPEG_FRAMES = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})
_JPEG_ALONE = frozenset({0x00, 0x01, 0xFF, *range(0xD0, 0xD9)})
_IFD_KINDS = {3: "H", 4: "I", 9: "i"}  # SHORT, LONG, SLONG


def _ifd(data: bytes, wanted: tuple[int, ...]) -> dict[int, int]:
    """Values of the wanted tags of the first directory of a TIFF structure; only whole numbers of 16 or 32 bits, one value."""
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(data[:4])
    if order is None:
        return {}  # BigTIFF too: its size stays unknown
    (start,) = struct.unpack_from(order + "I", data, 4)
    (count,) = struct.unpack_from(order + "H", data, start)
    found: dict[int, int] = {}
    for entry in range(start + 2, min(start + 2 + 12 * count, len(data) - 11), 12):
        tag, kind, values = struct.unpack_from(order + "HHI", data, entry)
        if tag in wanted and kind in _IFD_KINDS and values == 1:
            (found[tag],) = struct.unpack_from(order + _IFD_KINDS[kind], data, entry + 8)
    return found


def _exif_orientation(data: bytes) -> int:
    try:
        return _ifd(data, (274,)).get(274, 0)
    except struct.error:
        return 0  # a damaged EXIF block never costs the picture its size


def _xmp_orientation(data: bytes) -> int:
    match = _XMP_ORIENTATION.search(data)
    return int(match[1]) if match else 0


def _tiff(head: bytes) -> tuple[int, int, int]:
    tags = _ifd(head, (256, 257, 274))
    return tags.get(256, 0), tags.get(257, 0), tags.get(274, 0)


def _png(head: bytes) -> tuple[int, int, int]:
    width, height = struct.unpack_from(">II", head, 16)
    at, orientation, xmp = 33, 0, 0
    while at + 8 <= len(head) and not orientation:
        size, kind = struct.unpack_from(">I4s", head, at)
        body = head[at + 8 : at + 8 + size]
        if kind == b"eXIf":
            orientation = _exif_orientation(body.removeprefix(b"Exif\0\0"))
        elif kind == b"iTXt" and body.startswith(b"XML:com.adobe.xmp\0"):
            xmp = _xmp_orientation(body)
        at += 12 + size
    return width, height, orientation or xmp


def _gif(head: bytes) -> tuple[int, int, int]:
    return *struct.unpack_from("<HH", head, 6), 0


def _bmp(head: bytes) -> tuple[int, int, int]:
    if head[14] == 12:  # noqa: PLR2004 - the OS/2 header
        return *struct.unpack_from("<HH", head, 18), 0
    width, height = struct.unpack_from("<ii", head, 18)
    return width, abs(height), 0


def is_lossless_webp(data: bytes) -> bool:
    """Whether a WebP file's pixels are kept exactly: those of a picture, not those of an animation's frames."""
    at = 12
    while at + 8 <= len(data):
        kind, size = data[at : at + 4], int.from_bytes(data[at + 4 : at + 8], "little")
        if kind in {b"VP8 ", b"VP8L"}:
            return kind == b"VP8L"
        at += 8 + size + size % 2
    return False


def is_lossless_jpeg2000(data: bytes) -> bool:
    """Whether a JPEG 2000 file may keep its pixels exactly: its wavelet is the reversible one, or is not stated.

    ITU-T T.800, A.6.1: the transformation is the last of the parameters that each COD segment has.
    """
    at = data.find(b"\xff\x4f\xff\x51")  # SOC, SIZ: what follows are marker segments until the first tile (SOT)
    at += 2
    while at >= 2 and data[at : at + 1] == b"\xff" and data[at + 1 : at + 2] != b"\x90":  # noqa: PLR2004 - behind a SOC
        if data[at + 1] == 0x52 and at + 13 < len(data):  # noqa: PLR2004 - COD
            return data[at + 13] != 0
        at += 2 + int.from_bytes(data[at + 2 : at + 4])
    return True


def _webp(head: bytes) -> tuple[int, int, int]:
    at, width, height, orientation, xmp = 12, 0, 0, 0, 0
    while at + 8 <= len(head):
        kind, size = struct.unpack_from("<4sI", head, at)
        body = head[at + 8 : at + 8 + size]
        if kind == b"VP8X":
            width, height = (int.from_bytes(body[start : start + 3], "little") + 1 for start in (4, 7))
        elif kind == b"VP8 " and not width:
            width, height = (value & 0x3FFF for value in struct.unpack_from("<HH", body, 6))
        elif kind == b"VP8L" and not width:
            (bits,) = struct.unpack_from("<I", body, 1)
            width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        elif kind == b"EXIF":
            orientation = _exif_orientation(body.removeprefix(b"Exif\0\0"))
        elif kind == b"XMP ":
            xmp = _xmp_orientation(body)
        at += 8 + size + (size & 1)
    return width, height, orientation or xmp


def _heif(head: bytes) -> tuple[int, int, int]:
    """The largest spatial extent: of a picture made of tiles, the whole; its own rotation (irot) is not read."""
    sizes = [struct.unpack_from(">II", head, match.end() + 4) for match in re.finditer(b"ispe", head[: len(head) - 11])]
    return *max(sizes, key=lambda size: size[0] * size[1], default=(0, 0)), 0


def _jpeg2000(head: bytes) -> tuple[int, int, int]:
    box = head.find(b"ihdr", 0, 4096)
    if box >= 0:
        height, width = struct.unpack_from(">II", head, box + 4)
        return width, height, 0
    x1, y1, x0, y0 = struct.unpack_from(">IIII", head, head.index(b"\xff\x51") + 6)
    return x1 - x0, y1 - y0, 0


def _pnm(head: bytes) -> tuple[int, int, int]:
    match = _PNM.match(head)
    return (int(match[1]), int(match[2]), 0) if match else (0, 0, 0)


def _unread(head: bytes) -> tuple[int, int, int]:  # noqa: ARG001 - one signature for all
    return 0, 0, 0


_READERS = {
    Codec.JPEG: _jpeg, Codec.PNG: _png, Codec.GIF: _gif, Codec.BMP: _bmp, Codec.WEBP: _webp, Codec.TIFF: _tiff,
    Codec.AVIF: _heif, Codec.HEIF: _heif, Codec.JPEG2000: _jpeg2000, Codec.PNM: _pnm, Codec.JPEGXL: _unread,
    Codec.ICO: _unread,
}  # fmt: skip
