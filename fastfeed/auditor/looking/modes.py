"""How an image stores its colours, and what becomes of them where a loader converts without thinking."""

import struct
from typing import cast

from PIL import Image

from fastfeed.auditor.finding import Code, Finding
from fastfeed.auditor.looking import imagecodes
from fastfeed.media import Codec

_CODES: dict[str, Code] = {
    "CMYK": imagecodes.CMYK, "F": imagecodes.FLOAT_PIXELS, "I": imagecodes.DEEP_GREY, "P": imagecodes.PALETTE,
    "1": imagecodes.ONE_BIT, "L": imagecodes.ONE_CHANNEL, "YCbCr": imagecodes.OTHER_COLOURS, "LAB": imagecodes.OTHER_COLOURS,
    "HSV": imagecodes.OTHER_COLOURS,
}  # fmt: skip
_ALPHA = {"RGBA": 3, "LA": 1, "PA": 1}
"""Mode -> number of its alpha channel."""
_OPAQUE = 255
_EIGHT_BITS = 8
_SHORT = 3
"""TIFF's number for a whole number of 16 bits."""
_TRANSPARENT_COLOUR = frozenset({"1", "L", "RGB", "P"})
"""Modes in which one colour may be named that is not to be seen."""


def findings_of(image: Image.Image, stored_bits: int) -> list[Finding]:
    """What there is to say about an image's mode.

    Args:
        image: Loaded.
        stored_bits: A channel, as the file states it; 0 where that is unknown.
    """
    mode, found = image.mode, list[Finding]()
    code = imagecodes.DEEP_GREY if mode.startswith("I;16") else _CODES.get(mode)
    if code is imagecodes.PALETTE and isinstance(image.info.get("transparency"), bytes):
        code = imagecodes.PALETTE_ALPHA
    if code is imagecodes.DEEP_GREY:
        found.append(Finding(code, _deep(image)))
    elif code is not None:
        found.append(Finding(code, f"mode {mode}"))
    if mode in _ALPHA:
        found.append(_alpha(image.getchannel(_ALPHA[mode]), f"mode {mode}"))
    colour = image.info.get("transparency")
    if mode in _TRANSPARENT_COLOUR and colour is not None and code is not imagecodes.PALETTE_ALPHA:
        found.append(_alpha(image.convert("RGBA").getchannel(3), f"mode {mode}, colour {colour} is transparent"))
    if stored_bits > _EIGHT_BITS and mode in {"RGB", "RGBA", "LA"}:
        found.append(Finding(imagecodes.DEEP_COLOUR, f"{stored_bits} bits a channel are stored, mode {mode} keeps 8"))
    return found


def _deep(image: Image.Image) -> str:
    whole = image if image.mode == "I" else image.convert("I")  # Pillow tells the range of few 16-bit modes
    low, high = _range(whole)
    return f"mode {image.mode}, values from {low} to {high}: convert('RGB') keeps those up to 255"


def _range(image: Image.Image) -> tuple[int, int]:
    """Lowest and highest value of an image of one channel."""
    low, high = image.getextrema()
    return int(cast("float", low)), int(cast("float", high))


def _alpha(opacity: Image.Image, text: str) -> Finding:
    low, _ = _range(opacity)
    if low == _OPAQUE:
        return Finding(imagecodes.ALPHA, f"{text}; all that is there is opaque")
    return Finding(imagecodes.ALPHA_HIDES, f"{text}; opacity from {low} of 255 on")


def stored_bits(codec: Codec, data: bytes) -> int:
    """Bits a channel as the header states them; 0 for formats whose header this module does not read.

    Args:
        codec: Of the file.
        data: The whole file.
    """
    if codec is Codec.PNG:
        return data[24] if len(data) > 24 else 0  # noqa: PLR2004 - of IHDR
    if codec is Codec.TIFF:
        return _tiff_bits(data)
    return 0


def _tiff_bits(data: bytes) -> int:
    """The first value of tag 258."""
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(data[:4])
    if order is None:
        return 0
    try:
        (at,) = struct.unpack_from(order + "I", data, 4)
        (count,) = struct.unpack_from(order + "H", data, at)
        for entry in range(at + 2, at + 2 + 12 * count, 12):
            tag, kind, values = struct.unpack_from(order + "HHI", data, entry)
            if tag == 258 and kind == _SHORT:  # noqa: PLR2004 - BitsPerSample, as SHORT
                place = entry + 8 if values <= 2 else struct.unpack_from(order + "I", data, entry + 8)[0]  # noqa: PLR2004
                return int(struct.unpack_from(order + "H", data, place)[0])
    except struct.error:
        return 0  # a damaged directory: decoding tells of it
    return 0
