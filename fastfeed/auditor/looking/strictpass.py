"""A JPEG through a decoder that tells of damage, where Pillow drops libjpeg's warnings; and how much of a cut one is real."""

import numpy as np
import simplejpeg
from numpy.typing import NDArray

_GREY, _TOLERANCE = 128, 1
_CMYK_COMPONENTS = 4
_UNREADABLE = ("tjDecompressHeader", "Unsupported", "Could not determine", "Invalid image", "not supported")
"""Beginnings or parts of messages that say that this decoder does not read such files, whatever their state."""


def strict_warning(data: bytes, components: int) -> str:
    """What libjpeg-turbo warns of; empty where it is content, or does not read such files.

    The coefficients are all read, but the picture is made at an eighth of its size and in grey, which costs less.

    Args:
        data: The whole file.
        components: Of its frame: 1, 3 or 4.
    """
    space = "CMYK" if components == _CMYK_COMPONENTS else "GRAY"
    try:
        simplejpeg.decode_jpeg_header(data, strict=True)
        simplejpeg.decode_jpeg(data, space, min_height=1, min_width=1, min_factor=8, strict=True)
    except ValueError as error:
        text = str(error)
        return "" if any(part in text for part in _UNREADABLE) else text
    return ""


def real_rows(data: bytes) -> tuple[int, int] | None:
    """How many rows of pixels of a cut JPEG are real, and how many it should have; None where that cannot be told.

    What is missing is decoded as one flat grey, so rows at the bottom that are all of that grey are counted as missing. Of
    a progressive JPEG real rows may still lack detail.

    Args:
        data: The file as it is.
    """
    try:
        grey = simplejpeg.decode_jpeg(data, "GRAY", strict=False)
    except ValueError:
        return None
    rows = grey.reshape(grey.shape[0], -1)
    return rows.shape[0] - flat_rows(rows), rows.shape[0]


def flat_rows(rows: NDArray[np.uint8]) -> int:
    """Rows at the bottom that are all of the grey with which libjpeg fills.

    Args:
        rows: uint8 of shape (height, values a row).
    """
    near = np.asarray(((rows >= _GREY - _TOLERANCE) & (rows <= _GREY + _TOLERANCE)).all(axis=1))
    return int(len(near) if near.all() else np.argmin(near[::-1]))
