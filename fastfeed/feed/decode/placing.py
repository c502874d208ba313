"""What the steps of a transform do to a picture, as one place: which part of the image becomes all of the result.

Crops, at most one resizing, and flips, in any order, take a rectangle of the image to all of the result. Where the resizing
comes before a crop, the rectangle has edges between pixels.
"""

import math
from typing import NamedTuple

from PIL.Image import Transpose

from fastfeed.feed.decode.box import Box
from fastfeed.feed.decode.steps import Kernel


class Place(NamedTuple):
    """What of an image becomes a result."""

    box: Box
    """The pixels that are needed: those of the rectangle, and those around it that an antialiased filter looks at."""
    start: tuple[float, float]
    """Row and column, in pixels of the box, of the corner that becomes the result's first; of a mirrored axis behind stop."""
    stop: tuple[float, float]
    """Likewise of the opposite corner."""


class Placing:
    """A picture on which steps are done, and nothing is decoded.

    Args:
        height: Of the image, in pixels.
        width: Likewise.

    Attributes:
        height: Of the picture as it is now, in pixels.
        width: Likewise.
    """

    def __init__(self, height: int, width: int) -> None:
        self.height, self.width = height, width
        self._part = Box(0, 0, height, width)
        """What is left of the image before it is resized."""
        self._resized: tuple[int, int] | None = None
        self._window = self._part
        """What is left of the resized picture, not mirrored."""
        self._mirrored = [False, False]
        """Rows, columns."""

    def crop(self, box: Box) -> None:
        """Keep a part."""
        top = self.height - box.bottom if self._mirrored[0] else box.top
        left = self.width - box.right if self._mirrored[1] else box.left
        if self._resized is None:
            self._part = Box(self._part.top + top, self._part.left + left, box.height, box.width)
        else:
            self._window = Box(self._window.top + top, self._window.left + left, box.height, box.width)
        self.height, self.width = box.height, box.width

    def resize(self, height: int, width: int, kernel: Kernel) -> None:  # noqa: ARG002 - who reads the transform knows it
        """Make it this size; nothing is done to one that has it.

        Raises:
            ValueError: It was resized before: two resizings are not one place.
        """
        if (height, width) == (self.height, self.width):
            return
        if self._resized is not None:
            msg = "resized twice"
            raise ValueError(msg)
        self._resized, self._window = (height, width), Box(0, 0, height, width)
        self.height, self.width = height, width

    def flip(self, way: Transpose) -> None:
        """Mirror it: left and right, or top and bottom."""
        axis = int(way is Transpose.FLIP_LEFT_RIGHT)
        self._mirrored[axis] = not self._mirrored[axis]

    @property
    def place(self) -> Place:
        """Where the result comes from."""
        part = self._part
        tall, wide = self._resized or part[2:]
        window = Box(0, 0, tall, wide) if self._resized is None else self._window
        above, below, top, bottom = _axis(window.top, window.bottom, part.height, tall)
        before, behind, left, right = _axis(window.left, window.right, part.width, wide)
        if self._mirrored[0]:
            top, bottom = bottom, top
        if self._mirrored[1]:
            left, right = right, left
        box = Box(part.top + above, part.left + before, below - above, behind - before)
        return Place(box, (top, left), (bottom, right))


def _axis(start: int, stop: int, size: int, resized: int) -> tuple[int, int, float, float]:
    """First pixel that is needed, the one behind the last, and in pixels from that first one the edges of a window.

    Args:
        start: Of the window, in pixels of the resized picture.
        stop: Behind it.
        size: Before resizing.
        resized: Behind it.
    """
    scale = size / resized
    around = max(1.0, scale) + 1  # a triangle's half width, and a pixel for what is rounded
    first = max(0, math.floor(start * scale - around)) if start else 0
    behind = min(size, math.ceil(stop * scale + around)) if stop < resized else size
    return first, behind, start * scale - first, stop * scale - first
