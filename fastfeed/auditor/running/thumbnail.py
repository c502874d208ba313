"""A small picture of an image for a page, made in the children that load samples: they may die of it, the page does not."""

import base64
import io

from PIL import Image, ImageFile

from fastfeed.auditor.looking.decoding import NOT_LOADED, heard

SIDE = 144
"""Pixels of its longer side."""
MAX_PIXELS = 64_000_000
"""Larger images have none, but for JPEGs, which are decoded at an eighth of their size."""
_QUALITY = 60
_BEHIND = (128, 128, 128, 255)
"""Shows through what is transparent."""


def thumbnail(data: bytes) -> str | None:
    """A JPEG in base64 of at most SIDE x SIDE pixels, as loaders see the image; of a damaged one what can still be decoded.

    Args:
        data: The whole file.

    Returns:
        None where it is no image, or nothing of it can be decoded.

    Raises:
        MemoryError: There is not enough; that is the caller's affair.
    """
    lenient, ImageFile.LOAD_TRUNCATED_IMAGES = ImageFile.LOAD_TRUNCATED_IMAGES, True
    try:
        with heard([]), Image.open(io.BytesIO(data)) as image:
            return _encoded(image)
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - decoders of damaged bytes raise what they like: then there is nothing to show
        return None
    finally:
        ImageFile.LOAD_TRUNCATED_IMAGES = lenient


def _encoded(image: Image.Image) -> str | None:
    if image.format in NOT_LOADED:
        return None
    image.draft("RGB", (2 * SIDE, 2 * SIDE))
    if image.width * image.height > MAX_PIXELS:
        return None
    small = image.convert("RGBA" if image.has_transparency_data else "RGB")
    small.thumbnail((SIDE, SIDE))
    if small.mode == "RGBA":
        behind = Image.new("RGBA", small.size, _BEHIND)
        behind.alpha_composite(small)
        small = behind.convert("RGB")
    into = io.BytesIO()
    small.save(into, "JPEG", quality=_QUALITY, optimize=True)
    return base64.b64encode(into.getvalue()).decode()
