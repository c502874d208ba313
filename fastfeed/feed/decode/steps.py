"""The steps of a transform that are done while decoding, on a picture that is not decoded yet.

Each knows the step of the user's transform that it stands for, so that the rest can always be left to the user's own.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from PIL.Image import Transpose

from fastfeed.feed.decode.box import Box
from fastfeed.feed.decode.draws import Draw, chance

Kernel = Any
"""What resizes (picture.py)."""


class Picture(Protocol):
    """What steps do their work on (picture.py)."""

    height: int
    width: int

    def crop(self, box: Box) -> None:
        """Keep a part."""

    def resize(self, height: int, width: int, kernel: Kernel) -> None:
        """Make it this size."""

    def flip(self, way: Transpose) -> None:
        """Mirror it."""


class Step(Protocol):
    """One step."""

    @property
    def random(self) -> bool:
        """Whether it draws random numbers."""

    def fits(self, picture: Picture) -> bool:
        """Whether it can be done for a picture of this size; asked before anything is drawn."""

    def __call__(self, picture: Picture) -> None:
        """Do it."""

    def shape(self, before: tuple[int, int] | None) -> tuple[int, int] | None:
        """Height and width afterwards, where they are the same for every picture.

        Args:
            before: The same, before it.
        """


@dataclass(frozen=True, slots=True)
class Nothing:
    """convert("RGB"), as pictures here are RGB; or what makes a tensor, which is done behind the other steps."""

    random: bool = False

    def fits(self, picture: Picture) -> bool:  # noqa: ARG002 - the protocol's
        """Always."""
        return True

    def __call__(self, picture: Picture) -> None:
        """Nothing."""

    def shape(self, before: tuple[int, int] | None) -> tuple[int, int] | None:
        """As before."""
        return before


@dataclass(frozen=True, slots=True)
class ResizedCrop:
    """A part, drawn, and made this size."""

    draw: Draw
    size: tuple[int, int]
    kernel: Callable[[], Kernel]
    """Asked after the part was drawn, since it may be drawn itself."""
    random: bool = True

    def fits(self, picture: Picture) -> bool:  # noqa: ARG002 - the protocol's
        """Always: the part lies inside."""
        return True

    def __call__(self, picture: Picture) -> None:
        """Draw, crop, resize."""
        picture.crop(self.draw(picture.height, picture.width))
        picture.resize(*self.size, self.kernel())

    def shape(self, before: tuple[int, int] | None) -> tuple[int, int] | None:  # noqa: ARG002 - the protocol's
        """Its size."""
        return self.size


@dataclass(frozen=True, slots=True)
class Part:
    """A part, drawn, of any size."""

    draw: Draw
    random: bool = True

    def fits(self, picture: Picture) -> bool:  # noqa: ARG002 - the protocol's
        """Always: the part lies inside."""
        return True

    def __call__(self, picture: Picture) -> None:
        """Draw, crop."""
        picture.crop(self.draw(picture.height, picture.width))

    def shape(self, before: tuple[int, int] | None) -> tuple[int, int] | None:  # noqa: ARG002 - the protocol's
        """Any."""
        return None


@dataclass(frozen=True, slots=True)
class Resized:
    """What is called on a tensor behind a Part: the rest of a step."""

    kernel: Callable[[], Kernel]
    size: tuple[int, int]

    def __call__(self, tensor: Any) -> Any:  # noqa: ANN401 - torch's or torchvision's
        """Resize it."""
        return self.kernel()(tensor, list(self.size))


@dataclass(frozen=True, slots=True)
class Resize:
    """Made this size, or its shorter edge."""

    size: tuple[int, int] | int
    kernel: Kernel
    random: bool = False

    def fits(self, picture: Picture) -> bool:
        """Unless an edge would vanish, which Pillow refuses."""
        return min(self._size(picture.height, picture.width)) > 0

    def __call__(self, picture: Picture) -> None:
        """Resize."""
        picture.resize(*self._size(picture.height, picture.width), self.kernel)

    def _size(self, height: int, width: int) -> tuple[int, int]:
        """As torchvision's resize has it: the longer edge is rounded down."""
        size = self.size
        if not isinstance(size, int):
            return size
        return (size, int(size * width / height)) if height <= width else (int(size * height / width), size)

    def shape(self, before: tuple[int, int] | None) -> tuple[int, int] | None:
        """Its size, if it says both edges."""
        if isinstance(self.size, int):
            return None if before is None else self._size(*before)
        return self.size


@dataclass(frozen=True, slots=True)
class Crop:
    """A part of this size, at a place that the image's size or a draw tells."""

    place: Draw
    size: tuple[int, int]
    random: bool = False

    def fits(self, picture: Picture) -> bool:
        """If it lies inside: else it is padded, or refused, by the step itself."""
        return picture.height >= self.size[0] and picture.width >= self.size[1]

    def __call__(self, picture: Picture) -> None:
        """Crop."""
        picture.crop(self.place(picture.height, picture.width))

    def shape(self, before: tuple[int, int] | None) -> tuple[int, int] | None:  # noqa: ARG002 - the protocol's
        """Its size."""
        return self.size


@dataclass(frozen=True, slots=True)
class Flip:
    """Mirrored, or not."""

    probability: float
    way: Transpose

    @property
    def random(self) -> bool:
        """Unless it is certain."""
        return 0 < self.probability < 1

    def fits(self, picture: Picture) -> bool:  # noqa: ARG002 - the protocol's
        """Always."""
        return True

    def __call__(self, picture: Picture) -> None:
        """Draw, and flip."""
        if chance(self.probability):
            picture.flip(self.way)

    def shape(self, before: tuple[int, int] | None) -> tuple[int, int] | None:
        """As before."""
        return before


@dataclass(frozen=True, slots=True)
class Fused:
    """A step of the user's, and what is done in its place."""

    own: Callable[[Any], Any]
    name: str
    step: Step
    moved: bool = False
    """Whether the user's own step is done, but behind all that are fused: it changes no value."""
