"""A part of an image."""

from collections.abc import Sequence
from typing import NamedTuple


class Box(NamedTuple):
    """A part of an image, in pixels."""

    top: int
    left: int
    height: int
    width: int

    @property
    def bottom(self) -> int:
        """The row behind the last one."""
        return self.top + self.height

    @property
    def right(self) -> int:
        """The column behind the last one."""
        return self.left + self.width


def around(boxes: Sequence[Box]) -> Box:
    """The smallest part that holds all of some, at least one."""
    top, left = min(box.top for box in boxes), min(box.left for box in boxes)
    return Box(top, left, max(box.bottom for box in boxes) - top, max(box.right for box in boxes) - left)
