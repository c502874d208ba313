"""From a member's bytes to a value: the registry of decoders, by field name. Nothing is ever unpickled.

========================  ==================  =============================================================
last part of the field    decoder             value
========================  ==================  =============================================================
jpg png webp ... (image)  ``image``           PIL image; see image_decoder() for when it is converted to RGB
txt                       ``text``            str, UTF-8
json                      ``json``            what json.loads gives
cls                       ``int``             int, from ASCII digits
npy                       ``npy``             numpy array, allow_pickle=False
npz                       ``npz``             dict of numpy arrays, allow_pickle=False
anything else             ``raw``             bytes
========================  ==================  =============================================================

``decoders={"wav": function, "rst": "text", "mask.png": "raw"}`` overrides by the whole field or by its last part; a
function takes bytes.
"""

import io
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from fastfeed.errors import DecodeError, UsageError
from fastfeed.media import is_image_field

Data = bytes | memoryview
Decoder = Callable[[bytes], Any]

_LABEL_MODES = frozenset({"1", "L", "P", "PA", "LA", "I", "F", "I;16", "I;16L", "I;16B", "I;16N"})
_DIGITS = re.compile(rb"\s*[+-]?\d{1,18}\s*")


def decode_rgb(data: Data) -> Image.Image:
    """The image as torchvision's ImageFolder hands it out: opened from bytes, converted to RGB, .info and EXIF kept."""
    with Image.open(io.BytesIO(data)) as image:
        return image.convert("RGB")


def decode_image(data: Data) -> Image.Image:
    """The image in the mode that it is stored in."""
    with Image.open(io.BytesIO(data)) as image:
        image.load()
        return image


def decode_image_of_dict(data: Data) -> Image.Image:
    """RGB for colour images; palettes, single channels and depths beyond 8 bits stay as they are: they may be labels."""
    image = decode_image(data)
    return image if image.mode in _LABEL_MODES else image.convert("RGB")


def decode_text(data: Data) -> str:
    """UTF-8 text.

    Raises:
        UnicodeDecodeError: It is not; the error names the byte.
    """
    return str(data, "utf-8")


def decode_json(data: Data) -> Any:  # noqa: ANN401 - JSON has no one type
    """What json.loads gives."""
    return json.loads(bytes(data))


def decode_int(data: Data) -> int:
    """A whole number in ASCII digits.

    Raises:
        ValueError: It is none.
    """
    raw = bytes(data)
    if not _DIGITS.fullmatch(raw):
        msg = f"{raw[:40]!r} is no whole number"
        raise ValueError(msg)
    return int(raw)


def decode_npy(data: Data) -> "np.ndarray[Any, Any]":
    """An array from .npy bytes; object arrays are refused."""
    array: np.ndarray[Any, Any] = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    return array


def decode_npz(data: Data) -> "dict[str, np.ndarray[Any, Any]]":
    """All arrays of .npz bytes, read now; object arrays are refused."""
    with np.load(io.BytesIO(data), allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def decode_raw(data: Data) -> bytes:
    """The bytes."""
    return bytes(data)


NAMED: Mapping[str, Decoder] = {
    "image": decode_image_of_dict, "rgb": decode_rgb, "pil": decode_image, "text": decode_text, "json": decode_json,
    "int": decode_int, "npy": decode_npy, "npz": decode_npz, "raw": decode_raw,
}  # fmt: skip
"""Decoders that decoders={field: name} can ask for."""

BY_FIELD: Mapping[str, Decoder] = {
    "txt": decode_text, "json": decode_json, "cls": decode_int, "npy": decode_npy, "npz": decode_npz,
}  # fmt: skip


def decoder_of(field: str, overrides: Mapping[str, str | Decoder], *, alone: bool) -> Decoder:
    """The decoder of a field.

    Args:
        field: Such as "jpg" or "mask.png".
        overrides: The user's, by field or by last part.
        alone: The field is the image of an (image, class) pair: always RGB, as ImageFolder.

    Raises:
        UsageError: An override names a decoder that there is not.
    """
    last = field.rpartition(".")[2]
    chosen = overrides.get(field, overrides.get(last))
    if isinstance(chosen, str):
        if chosen not in NAMED:
            msg = f"there is no decoder {chosen!r}"
            raise UsageError(msg, expected=f"a function, or one of {', '.join(NAMED)}", got=repr(chosen))
        return NAMED[chosen]
    if chosen is not None:
        return lambda data: chosen(bytes(data))
    if is_image_field(field):
        return decode_rgb if alone else decode_image_of_dict
    return BY_FIELD.get(last, decode_raw)


def explain(error: Exception, field: str, data: Data, hint: str, *, own: bool = True) -> DecodeError:
    """A decoder's refusal in our words: the same fact whichever library refused.

    Args:
        error: What the decoder raised.
        field: Of the member.
        data: Its bytes.
        hint: What to do where no decoder takes them.
        own: Whether the decoder is one of ours; if not, the fault may be the decoder's.
    """
    head = bytes(data[:16])
    what = str(error) or type(error).__name__
    if isinstance(error, UnidentifiedImageError):
        what = f"Pillow knows no image that begins with {head!r}" if head else "it is empty"
    if isinstance(error, UnicodeDecodeError):
        what = f"not UTF-8: byte {error.start} is 0x{error.object[error.start]:02x}"
        hint = f"Read it as bytes with decoders={{'{field}': 'raw'}}, or convert the source."
    if not own:
        hint = (
            f"The function given in decoders= for {field} raised this: it does not take these bytes, or has a fault of its own."
        )
    msg = f"{field} of {len(data)} bytes cannot be decoded ({type(error).__name__}: {what})"
    return DecodeError(msg, hint=hint)
