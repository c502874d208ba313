"""Decoded pixels of JPEGs whose rows are indexed: their digest, and whether index, bytes and pixels agree. README.md §4.4."""

import struct
from collections.abc import Iterator
from typing import Any

import xxhash

from fastfeed.archive.dataset import Archive, Place
from fastfeed.archive.index import MEMBER
from fastfeed.errors import FastfeedError, IndexDamaged, ShardDamaged
from fastfeed.jpegrows import Frame, read_frame, scan_rows

MAX_PIXELS = 1 << 28
"""Larger images are not decoded: a header of a few bytes may claim gigabytes."""
_RESTORE = "Restore it from a copy, or pack again."
_HEAD = struct.Struct("<III")


def decode(data: bytes, frame: Frame) -> Any:  # noqa: ANN401 - a numpy array
    """The pixels of a JPEG of one or three components.

    Args:
        data: The file.
        frame: What its headers say.

    Returns:
        uint8 of shape (height, width, components): RGB or gray.

    Raises:
        ValueError: The decoder refuses it, or warns; or it has more than MAX_PIXELS.
    """
    if frame.width * frame.height > MAX_PIXELS:
        msg = f"its {frame.width} x {frame.height} pixels are more than {MAX_PIXELS}"
        raise ValueError(msg)
    from simplejpeg import decode_jpeg  # noqa: PLC0415 - packing bytes as they are needs no decoder

    return decode_jpeg(data, colorspace="GRAY" if len(frame.components) == 1 else "RGB", fastdct=False, fastupsample=False)


def digest(pixels: Any) -> int:  # noqa: ANN401 - a numpy array
    """The digest of decoded pixels, as the column pixels_xxh3 keeps it."""
    height, width, components = pixels.shape
    checksum = xxhash.xxh3_64(_HEAD.pack(width, height, components))
    checksum.update(pixels)
    return checksum.intdigest()


def row_findings(archive: Archive, position: int, place: Place, payload: bytes) -> Iterator[FastfeedError]:
    """What the index says wrongly of the rows and pixels of a member that is as it was packed.

    Args:
        archive: The dataset.
        position: Of the sample.
        place: Of the member.
        payload: Its bytes.
    """
    try:
        starts = archive.jpeg_rows(position, place)
    except IndexDamaged as error:
        yield error
        return
    if starts is None:
        return
    found = scan_rows(payload)
    if found is None or found.tolist() != starts.tolist():
        msg = "the index has other rows of a JPEG than the JPEG itself"
        got = "no rows" if found is None else f"{len(found) - 1} restart intervals from byte {found[0]} to {found[-1]}"
        expected = f"{len(starts) - 1} restart intervals from byte {starts[0]} to {starts[-1]}"
        yield archive.at(IndexDamaged(msg, expected=expected, got=got, hint=_RESTORE), position, place)
    elif archive.index.has(MEMBER, "pixels_xxh3"):
        yield from _pixel_finding(archive, position, place, payload)


def _pixel_finding(archive: Archive, position: int, place: Place, payload: bytes) -> Iterator[FastfeedError]:
    expected, frame = int(archive.index.array(MEMBER, "pixels_xxh3")[place.row]), read_frame(payload)
    assert frame is not None  # it has rows
    try:
        got = f"xxh3 {digest(decode(payload, frame)):016x}"
    except ValueError as error:
        got = str(error)
    if got != f"xxh3 {expected:016x}":
        msg = "the pixels of a JPEG are not those that were packed"
        hint = "Its bytes are as they were written, so index and decoder disagree: look at both, restore or pack again."
        wrong = ShardDamaged(msg, expected=f"xxh3 {expected:016x}", got=got, hint=hint)
        yield archive.at(wrong, position, place)
