"""One image through Pillow: opened, loaded, verified, with whatever it raises and warns of."""

import io
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field

from PIL import Image

from fastfeed.units import format_count

NOT_LOADED = frozenset({"EPS"})
"""Formats for which Pillow starts another program (Ghostscript): an audit does not."""


class Refused(Exception):
    """An image that is not decoded here, and why."""


@dataclass(slots=True)
class Decoded:
    """What came of it."""

    image: Image.Image | None = None
    """Loaded; None where that failed."""
    format: str = ""
    """As Pillow names it; empty where it knows none."""
    width: int = 0
    height: int = 0
    mode: str = ""
    error: Exception | None = None
    stage: str = ""
    """Where it failed: open or load."""
    warnings: list[str] = field(default_factory=list)

    @property
    def refused(self) -> bool:
        """Whether it was this module that would not decode it."""
        return isinstance(self.error, Refused)


def decode(data: bytes, max_pixels: int, around: AbstractContextManager[object] | None = None) -> Decoded:
    """Open and load an image.

    Args:
        data: The whole file.
        max_pixels: One with more is not loaded.
        around: Entered for the time of opening and loading: a clock.

    Raises:
        MemoryError: There is not enough; that is the caller's affair.
    """
    found = Decoded(stage="open")
    with heard(found.warnings), nullcontext() if around is None else around:
        try:
            image = Image.open(io.BytesIO(data))
            found.format, (found.width, found.height), found.mode, found.stage = (
                image.format or "",
                image.size,
                image.mode,
                "load",
            )
            _agree(image, max_pixels)
            image.load()
            found.image, found.mode, (found.width, found.height) = image, image.mode, image.size
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - decoders of damaged bytes raise what they like: that is what is asked
            found.error = error
    return found


def _agree(image: Image.Image, max_pixels: int) -> None:
    """Whether it may be loaded.

    Raises:
        Refused: It may not.
    """
    if image.width * image.height > max_pixels:
        msg = f"{format_count(image.width * image.height, 'pixel')}: at most {max_pixels:,} are decoded here"
        raise Refused(msg)
    if image.format in NOT_LOADED:
        msg = f"{image.format}: Pillow would start another program to draw it"
        raise Refused(msg)


def verify_error(data: bytes) -> Exception | None:
    """What Pillow's verify() raises; None where it is content."""
    try:
        with heard([]), Image.open(io.BytesIO(data)) as image:
            image.verify()
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - as above
        return error
    return None


def told(error: BaseException) -> str:
    """An exception in one line; objects in memory are not named by their address."""
    text = " ".join(str(error).split())
    if "cannot identify image file" in text:
        text = "no plugin of Pillow's knows it"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


@contextmanager
def heard(into: list[str]) -> Iterator[None]:
    """Collect warnings as text, each once.

    Args:
        into: Gets them at the end.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield
        finally:
            texts = [f"{warning.category.__name__}: {' '.join(str(warning.message).split())}" for warning in caught]
            into.extend(dict.fromkeys(texts))
