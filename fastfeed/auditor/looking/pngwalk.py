"""The chunks of a PNG: checksums, order, end, and what is hidden in compressed texts.

Source: PNG specification, third edition, §5 (chunks), §11 (what they hold); APNG's acTL and fdAT are part of it.
"""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

SIGNATURE = b"\x89PNG\r\n\x1a\n"
MAX_TEXT_BYTES = 1 << 20
"""Pillow refuses a compressed text or profile that becomes more (PngImagePlugin.MAX_TEXT_CHUNK)."""
_HEADER_BYTES = 13
_COMPRESSED = frozenset({b"zTXt", b"iTXt", b"iCCP"})
_OVERHEAD, _PIECE_BYTES = 12, 1 << 20
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
"""By colour type."""
_PIXELS = frozenset({b"IDAT", b"fdAT"})
_NOT_METADATA = frozenset({b"IHDR", b"PLTE", b"IDAT", b"IEND", b"fdAT", b"fcTL", b"acTL", b"tRNS"})


class Chunk(NamedTuple):
    """One chunk that is there whole."""

    at: int
    """Of its length field."""
    kind: bytes
    size: int
    body: bytes
    """Not of chunks of pixels: they may be large, and nobody reads them here."""
    crc_holds: bool


class Fault(NamedTuple):
    """A chunk that breaks a rule."""

    critical: bool
    """Whether pixels depend on it."""
    text: str


@dataclass(slots=True)
class PngStructure:
    """What the chunks say."""

    width: int = 0
    height: int = 0
    depth: int = 0
    colour: int = 0
    """2 RGB, 3 palette, 6 RGBA, 0 grey, 4 grey and alpha."""
    interlaced: bool = False
    frames: int = 0
    """Of an animation; 0 where it is none."""
    end: int = -1
    """Behind IEND; -1 where the file ends before it."""
    cut: str = ""
    """How the file ends within a chunk; empty where it does not."""
    pixels: list[tuple[int, int]] = field(default_factory=list)
    """[start, stop) of what each IDAT chunk holds, of one that is cut as far as it goes."""
    metadata_bytes: int = 0
    faults: list[Fault] = field(default_factory=list)
    texts: list[tuple[str, int]] = field(default_factory=list)
    """Compressed texts and profiles that become more than MAX_TEXT_BYTES: name of the chunk, how much at least."""


def walk(data: bytes) -> PngStructure:
    """Read the chunks of a PNG.

    Args:
        data: The whole file, beginning with the signature.
    """
    found = PngStructure()
    for chunk in _chunks(data, found):
        if not chunk.crc_holds:
            found.faults.append(Fault(chunk.kind[:1].isupper(), f"the checksum of {_name(chunk)} does not hold"))
        if chunk.kind == b"IHDR" and len(chunk.body) == _HEADER_BYTES:
            found.width, found.height, found.depth, found.colour = struct.unpack_from(">IIBB", chunk.body)
            found.interlaced = chunk.body[12] == 1
        elif chunk.kind == b"IDAT":
            found.pixels.append((chunk.at + 8, chunk.at + 8 + chunk.size))
        elif chunk.kind == b"acTL" and len(chunk.body) == 8:  # noqa: PLR2004 - frames, plays
            (found.frames,) = struct.unpack_from(">I", chunk.body)
        elif chunk.kind == b"IEND":
            found.end = chunk.at + _OVERHEAD + chunk.size
        _rules(found, chunk)
    return found


def _chunks(data: bytes, found: PngStructure) -> Iterator[Chunk]:
    """Each whole chunk up to IEND; how the file ends where that is missing."""
    at, view = len(SIGNATURE), memoryview(data)
    while at + 8 <= len(data):
        size, kind = struct.unpack_from(">I4s", data, at)
        stop = at + _OVERHEAD + size
        if stop > len(data):
            have = len(data) - at - 8
            name = kind.decode("latin-1")
            found.cut = f"the file ends within {name!r} at byte {at}, behind {min(have, size)} of {size} bytes"
            found.pixels += [(at + 8, at + 8 + min(have, size))] if kind == b"IDAT" else []
            return
        body = b"" if kind in _PIXELS else data[at + 8 : at + 8 + size]
        yield Chunk(at, kind, size, body, zlib.crc32(view[at + 4 : stop - 4]) == int.from_bytes(view[stop - 4 : stop]))
        if kind == b"IEND":
            return
        at = stop
    found.cut = f"the file ends at byte {len(data)} without IEND"


def real_rows(data: bytes, found: PngStructure) -> int | None:
    """How many rows of pixels are there whole; None where that cannot be told: interlaced, or no header.

    Args:
        data: The whole file.
        found: From walk().
    """
    if found.interlaced or found.colour not in _CHANNELS or not found.width:
        return None
    row_bytes = 1 + (found.width * _CHANNELS[found.colour] * found.depth + 7) // 8
    inflater, size = zlib.decompressobj(), 0
    try:
        for start, stop in found.pixels:
            packed = data[start:stop]
            while packed and size < row_bytes * found.height:
                size += len(inflater.decompress(packed, _PIECE_BYTES))
                packed = inflater.unconsumed_tail
    except zlib.error:
        return size // row_bytes  # damaged from there on
    return min(size // row_bytes, found.height)


def _rules(found: PngStructure, chunk: Chunk) -> None:
    """What is odd about one chunk that the pixels do not need."""
    if chunk.kind not in _NOT_METADATA:
        found.metadata_bytes += chunk.size
    if chunk.kind == b"tRNS" and not chunk.body:
        found.faults.append(Fault(critical=False, text=f"{_name(chunk)} is empty"))
    if chunk.kind == b"tEXt" and chunk.body.count(b"\0") != 1:
        found.faults.append(Fault(critical=False, text=f"{_name(chunk)} does not hold one keyword and one text"))
    if chunk.kind in _COMPRESSED:
        size = _inflated_bytes(chunk)
        if size > MAX_TEXT_BYTES:
            found.texts.append((chunk.kind.decode("ascii"), size))


def _inflated_bytes(chunk: Chunk) -> int:
    """Bytes that a compressed text becomes, counted up to a little over MAX_TEXT_BYTES; 0 where it is not compressed."""
    packed = chunk.body.partition(b"\0")[2]
    if chunk.kind == b"iTXt":
        if packed[:1] != b"\1":
            return 0
        packed = packed[2:].split(b"\0", 2)[-1]
    else:
        packed = packed[1:]
    try:
        return len(zlib.decompressobj().decompress(packed, MAX_TEXT_BYTES + 1))
    except zlib.error:
        return 0  # Pillow ignores a damaged text, and the chunk's checksum tells of it


def _name(chunk: Chunk) -> str:
    return f"{chunk.kind.decode('latin-1')} at byte {chunk.at}"
