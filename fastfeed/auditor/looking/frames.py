"""Pictures behind the first one of a file: how many, and whether they load."""

import io

from PIL import Image

from fastfeed.auditor.finding import Finding
from fastfeed.auditor.looking import imagecodes
from fastfeed.auditor.looking.decoding import heard, told
from fastfeed.units import format_count, format_size

MAX_TRIED = 200
"""Frames that are loaded to see whether they do."""
MAX_TRIED_PIXELS = 50_000_000
"""Of all frames together that are loaded."""


def findings_of(image: Image.Image, data: bytes, *, tried: bool) -> list[Finding]:
    """What there is to say about an image's frames.

    Args:
        image: Loaded; it stays at its first frame.
        data: The whole file.
        tried: Load later frames as well.

    Raises:
        MemoryError: There is not enough for a frame.
    """
    if image.format == "JPEG":  # one picture, else Pillow calls it MPO
        return []
    try:
        with heard([]):
            count = int(getattr(image, "n_frames", 1))
    except Exception as error:  # noqa: BLE001 - formats count frames by reading on, over damaged bytes
        return [Finding(imagecodes.FRAME_DAMAGED, f"frames cannot be counted: {told(error)}")]
    if count <= 1:
        return []
    text = f"{format_count(count, 'frame')} in {format_size(len(data))}; loaders hand out the first"
    found = [Finding(imagecodes.FRAMES, text)]
    damage = _first_damage(data, count) if tried else ""
    return [*found, Finding(imagecodes.FRAME_DAMAGED, damage)] if damage else found


def _first_damage(data: bytes, count: int) -> str:
    """The first later frame that does not load, and why; empty where all that were tried do."""
    number = 0
    try:
        with heard([]), Image.open(io.BytesIO(data)) as image:
            pixels = max(1, image.width * image.height)
            for number in range(1, min(count, MAX_TRIED, MAX_TRIED_PIXELS // pixels + 1)):
                image.seek(number)
                image.load()
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - decoders of damaged bytes raise what they like
        return f"frame {number} of {count} does not load: {told(error)}"
    return ""
