"""Where a file ends by what its own container states: bytes that are missing there, or that nobody reads.

Sources: RFC 9649 (WebP: RIFF), ISO/IEC 14496-12 (boxes of AVIF, HEIF, JPEG 2000), GIF89a §B (grammar).
"""

from fastfeed.media import Codec

_RIFF_HEAD = 8
_BOXED = frozenset({Codec.AVIF, Codec.HEIF, Codec.JPEG2000})
_GIF_TRAILER, _GIF_IMAGE, _GIF_EXTENSION = 0x3B, 0x2C, 0x21


def stated_end(codec: Codec, data: bytes) -> int | None:
    """Where the container ends by its own words; beyond the data where some are missing, None where it does not say.

    Args:
        codec: WEBP, AVIF, HEIF, JPEG2000 or GIF; JPEG and PNG have walks of their own.
        data: The whole file.
    """
    if codec is Codec.WEBP:
        return _RIFF_HEAD + int.from_bytes(data[4:8], "little")
    if codec is Codec.GIF:
        return _gif_end(data)
    if codec in _BOXED and data[4:8] in {b"ftyp", b"jP  "}:
        return _boxes_end(data)
    return None


def _boxes_end(data: bytes) -> int | None:
    at = 0
    while at + 8 <= len(data):
        size = int.from_bytes(data[at : at + 4])
        if not data[at + 4 : at + 8].isascii() or not data[at + 4 : at + 8].strip().isalnum():
            return at  # no box: whatever it is, it is behind the last one
        if size == 1:
            size = int.from_bytes(data[at + 8 : at + 16])
        if size == 0:
            return None  # up to the end of the file
        if size < 8:  # noqa: PLR2004 - a box holds its own head
            return at
        at += size
    return at


def _gif_end(data: bytes) -> int | None:
    if len(data) < 13:  # noqa: PLR2004 - signature and screen
        return 13
    at = 13 + _table_bytes(data[10])
    while at < len(data):
        if data[at] == _GIF_TRAILER:
            return at + 1
        if data[at] == _GIF_EXTENSION:
            at = _behind_blocks(data, at + 2)
        elif data[at] == _GIF_IMAGE and at + 9 < len(data):
            at = _behind_blocks(data, at + 10 + _table_bytes(data[at + 9]) + 1)
        else:
            return None if data[at] != _GIF_IMAGE else len(data) + 1
    return max(at, len(data) + 1)


def _table_bytes(flags: int) -> int:
    """Of a colour table that follows, if one does."""
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _behind_blocks(data: bytes, at: int) -> int:
    """Behind a row of sub-blocks, each of which begins with its length, up to one of none."""
    while at < len(data) and data[at]:
        at += 1 + data[at]
    return at + 1
