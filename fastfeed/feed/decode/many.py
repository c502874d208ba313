"""Several transforms of one image, and their images decoded once."""

from collections.abc import Callable
from typing import Any

from PIL.Image import Transpose

from fastfeed.feed.decode.arrays import as_function
from fastfeed.feed.decode.box import Box
from fastfeed.feed.decode.steps import Kernel, Picture


class Views:
    """A transform that gives the results of several transforms of an image as a list: SimCLR's two crops, DINO's ten.

    ``fastfeed.Views(crop, crop)``, ``fastfeed.Views(*[large] * 2, *[small] * 8)``. Each draws its random numbers when its turn
    comes, in the order given. As the transform of a packed dataset (or of a field of it) the image is decoded once for all,
    and of it only the part around all crops, where nothing is left to do behind what is done while decoding;
    else all rows, since what stands between two crops may draw too.

    Args:
        *transforms: Called with the image; a view each.
    """

    def __init__(self, *transforms: Callable[[Any], Any]) -> None:
        self.transforms = transforms

    def __call__(self, image: Any) -> list[Any]:  # noqa: ANN401 - whatever the transforms take
        """The views of an image."""
        return [as_function(transform)(image) for transform in self.transforms]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.transforms))})"


class Sketch:
    """What shall be done to a picture, its random numbers drawn, nothing decoded.

    Args:
        height: Of the picture, in pixels.
        width: Likewise.
    """

    def __init__(self, height: int, width: int) -> None:
        self.height, self.width = height, width
        self.part = Box(0, 0, height, width)
        """What of the picture is needed."""
        self._moves = True
        self._done: list[Callable[[Picture], None]] = []

    def crop(self, box: Box) -> None:
        """Keep a part."""
        if self._moves:
            self.part = Box(self.part.top + box.top, self.part.left + box.left, box.height, box.width)
        self.height, self.width = box.height, box.width
        self._done.append(lambda picture: picture.crop(box))

    def resize(self, height: int, width: int, kernel: Kernel) -> None:
        """Make it this size."""
        self.height, self.width, self._moves = height, width, False
        self._done.append(lambda picture: picture.resize(height, width, kernel))

    def flip(self, way: Transpose) -> None:
        """Mirror it."""
        self._moves = False
        self._done.append(lambda picture: picture.flip(way))

    def draw_on(self, picture: Picture) -> None:
        """Do it."""
        for do in self._done:
            do(picture)
