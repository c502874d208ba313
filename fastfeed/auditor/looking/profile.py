"""The colour profile of an image: loaders ignore it, so colours of another space than sRGB come out wrong.

Source: ICC.1:2010 §7.2 (header), §7.3 (tag table), §10.13 (multiLocalizedUnicodeType); ICC.1:2001 §6.5.17 (its forerunner).
"""

import struct

from PIL import Image

from fastfeed.auditor.finding import Finding
from fastfeed.auditor.looking import imagecodes

_SRGB = ("srgb", "iec61966-2", "iec 61966-2")
_RGB = b"RGB "
_HEADER_BYTES = 132
"""With the number of tags."""
_MOST_LETTERS, _MOST_TAGS = 80, 100


def findings_of(image: Image.Image) -> list[Finding]:
    """What there is to say about an image's profile.

    Args:
        image: Loaded.
    """
    profile = image.info.get("icc_profile")
    if not isinstance(profile, bytes) or not profile:
        return []
    if len(profile) < _HEADER_BYTES or profile[36:40] != b"acsp":
        return [Finding(imagecodes.ICC_BAD, f"{len(profile):,} bytes that are no profile")]
    name = description(profile)
    if profile[16:20] != _RGB or any(word in name.lower() for word in _SRGB):
        return []
    return [Finding(imagecodes.ICC_OTHER, f"the profile is {name!r}" if name else "the profile has no name")]


def description(profile: bytes) -> str:
    """The name that a profile gives itself; empty where it gives none.

    Args:
        profile: Header, number of tags, and what follows.
    """
    try:
        (count,) = struct.unpack_from(">I", profile, _HEADER_BYTES - 4)
        for entry in range(_HEADER_BYTES, _HEADER_BYTES + 12 * min(count, _MOST_TAGS), 12):
            kind, start, size = struct.unpack_from(">4sII", profile, entry)
            if kind == b"desc":
                return _text(profile[start : start + size])
    except struct.error:
        return ""  # the table is cut: whoever converts by this profile will be told
    return ""


def _text(tag: bytes) -> str:
    """Of a textDescriptionType, or the first of a multiLocalizedUnicodeType."""
    if tag[:4] == b"mluc":
        size, start = struct.unpack_from(">II", tag, 20)
        text = tag[start : start + size].decode("utf-16-be", "replace")
    else:
        (size,) = struct.unpack_from(">I", tag, 8)
        text = tag[12 : 12 + size].decode("latin-1")
    return text.strip("\0 ")[:_MOST_LETTERS]
