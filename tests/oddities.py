"""What tests of the auditor share: images that are damaged, hostile or odd, made from nothing."""

import io
import struct
import zlib
from typing import Any

import numpy as np
import simplejpeg
from helpers import encoded
from PIL import Image

EOI = b"\xff\xd9"


def noisy(size: tuple[int, int] = (160, 120), mode: str = "RGB", seed: int = 0) -> Image.Image:
    """A picture with detail everywhere, so that no row of it is flat."""
    width, height = size
    values = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(values).convert(mode)


def jpeg(size: tuple[int, int] = (160, 120), mode: str = "RGB", seed: int = 0, **options: Any) -> bytes:
    """Such a picture as a JPEG."""
    return encoded(noisy(size, mode, seed), **{"quality": 85, **options})


def png(size: tuple[int, int] = (40, 30), mode: str = "RGB", **options: Any) -> bytes:
    """Such a picture as a PNG."""
    return encoded(noisy(size, mode), "PNG", **options)


def cut(data: bytes, share: float) -> bytes:
    """The first part of a file."""
    return data[: int(len(data) * share)]


def zeroed(data: bytes, start: int, count: int) -> bytes:
    """With a piece of zeros, as a lost block of a disk leaves it."""
    return data[:start] + bytes(count) + data[start + count :]


def laundered(data: bytes, size: tuple[int, int] = (100, 80)) -> bytes:
    """A cut JPEG decoded leniently, resized and stored again, as download scripts do."""
    pixels = simplejpeg.decode_jpeg(data, "RGB", strict=False)
    return encoded(Image.fromarray(pixels).resize(size), quality=95)


def segment(marker: int, body: bytes) -> bytes:
    """A marker segment of a JPEG."""
    return bytes((0xFF, marker)) + struct.pack(">H", len(body) + 2) + body


def with_segment(data: bytes, marker: int, body: bytes) -> bytes:
    """A JPEG with one segment more, right behind SOI."""
    return data[:2] + segment(marker, body) + data[2:]


def without_segments(data: bytes, marker: int) -> bytes:
    """A JPEG without the segments of one kind that stand before its scan."""
    kept, at = data[:2], 2
    while data[at + 1] != 0xDA:
        stop = at + 2 + int.from_bytes(data[at + 2 : at + 4])
        kept += b"" if data[at + 1] == marker else data[at:stop]
        at = stop
    return kept + data[at:]


def with_size(data: bytes, width: int, height: int) -> bytes:
    """A baseline JPEG whose frame header states another size."""
    at = data.index(b"\xff\xc0")
    return data[: at + 5] + struct.pack(">HH", height, width) + data[at + 9 :]


def scan_bomb(scans: int) -> bytes:
    """A progressive JPEG of 64x64 grey pixels with that many scans behind its first, each of a few bytes.

    Each of those scans is one run of 64 blocks without coefficients (EOB6), which costs a pass over all blocks.
    """
    table = bytes((1, *[0] * 15))  # one code of one bit
    head = b"\xff\xd8" + segment(0xDB, bytes(1) + bytes([1]) * 64)
    head += segment(0xC2, struct.pack(">BHHB3B", 8, 64, 64, 1, 1, 0x11, 0))
    head += segment(0xC4, b"\x00" + table + b"\x00") + segment(0xC4, b"\x10" + table + b"\x60")
    first = segment(0xDA, bytes((1, 1, 0x00, 0, 0, 0))) + bytes(8)  # 64 blocks, each a difference of 0
    return head + first + (segment(0xDA, bytes((1, 1, 0x00, 1, 63, 0))) + b"\x01") * scans + EOI


def chunk(kind: bytes, body: bytes) -> bytes:
    """A chunk of a PNG."""
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def with_chunk(data: bytes, kind: bytes, body: bytes) -> bytes:
    """A PNG with one chunk more, right before its pixels."""
    at = data.index(b"IDAT") - 4
    return data[:at] + chunk(kind, body) + data[at:]


def flat_png(width: int, height: int, depth: int = 8, colour: int = 2) -> bytes:
    """A black PNG of any size, made without holding its pixels."""
    row = bytes(1 + (width * {0: 1, 2: 3}[colour] * depth + 7) // 8)
    packer = zlib.compressobj(9)
    packed = [*(packer.compress(row) for _ in range(height)), packer.flush()]
    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", b"".join(packed)) + chunk(b"IEND", b"")


def animated(kind: str, frames: int = 5, size: tuple[int, int] = (40, 30)) -> bytes:
    """A GIF, PNG, WebP or TIFF of several frames."""
    first, *others = [noisy(size, "P" if kind == "GIF" else "RGB", seed) for seed in range(frames)]
    out = io.BytesIO()
    first.save(out, kind, save_all=True, append_images=others)
    return out.getvalue()
