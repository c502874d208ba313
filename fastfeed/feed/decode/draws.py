"""The random numbers of torchvision's and timm's crops and flips: theirs, drawn in a third of the time.

torchvision's RandomResizedCrop.get_params takes 24 us, most of it for tensors of one number. Here the same numbers come from
the same generator in the same order. Before it is used, it is compared with the installed torchvision, which may be another
version: where it draws otherwise, torchvision's own function is called (`drawn_box`).
"""

import math
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Self

import torch
from PIL import Image

from fastfeed.feed.decode.box import Box

_TRIES = 10


Draw = Callable[[int, int], Box]
"""From an image's height and width to a part of it."""


def below(stop: int) -> int:
    """A whole number from 0 to stop - 1: torch.randint(0, stop, (1,)).item(), in half the time."""
    return int(torch.empty(1, dtype=torch.int64).random_(0, stop).item())


def chance(probability: float) -> bool:
    """Whether a draw is below it: torch.rand(1) < probability."""
    return torch.empty(1).uniform_().item() < probability


class RandomBox:
    """torchvision's RandomResizedCrop.get_params, or make_params of its v2.

    Args:
        scale: Least and largest part of the area.
        ratio: Least and largest width by height.
    """

    def __init__(self, scale: Sequence[float], ratio: Sequence[float]) -> None:
        self.scale, self.ratio = tuple(scale), tuple(ratio)
        self._logs = torch.log(torch.tensor(self.ratio)).tolist()

    def __call__(self, height: int, width: int) -> Box:
        """Draw."""
        (least, most), (low, high) = self.scale, self._logs
        area, number = height * width, torch.empty(1)
        for _ in range(_TRIES):
            target = area * number.uniform_(least, most).item()
            ratio = number.uniform_(low, high).exp_().item()
            wide, tall = round(math.sqrt(target * ratio)), round(math.sqrt(target / ratio))
            if 0 < wide <= width and 0 < tall <= height:
                place = torch.empty(1, dtype=torch.int64)  # one for both: half of what they take is for memory
                top = int(place.random_(0, height - tall + 1).item())
                return Box(top, int(place.random_(0, width - wide + 1).item()), tall, wide)
        return self._central(height, width)

    def _central(self, height: int, width: int) -> Box:
        found, low, high = width / height, min(self.ratio), max(self.ratio)
        wide, tall = width, height
        if found < low:
            tall = round(wide / low)
        elif found > high:
            wide = round(tall * high)
        return Box((height - tall) // 2, (width - wide) // 2, tall, wide)


def stand_in(height: int, width: int) -> Image.Image:
    """An RGB image of this size without pixels, for functions that draw by an image's size."""
    image = Image.Image()
    image._size, image._mode = (width, height), "RGB"  # noqa: SLF001 # there is no other way to an image without pixels
    return image


def asked(get_params: Callable[[Any, Any, Any], Any], scale: Any, ratio: Any) -> Draw:  # noqa: ANN401 - as the step has them
    """A step's own get_params(img, scale, ratio), for a size."""
    return lambda height, width: Box(*get_params(stand_in(height, width), scale, ratio))


def drawn_box(theirs: Draw, scale: Sequence[float], ratio: Sequence[float]) -> Draw:
    """What draws as torchvision does: ours, where it draws the same from the same states; else theirs.

    Args:
        theirs: Asks the step itself.
        scale: As the step has it.
        ratio: As the step has it.

    Raises:
        Exception: What the step itself raises.
    """
    ours: Draw | None = None
    with suppress(TypeError, ValueError, RuntimeError):  # a scale or ratio that only its own function understands
        ours = RandomBox(scale, ratio)
    state = torch.get_rng_state()
    try:  # the user's own random numbers stay as they are
        same = [_drawn(theirs, *one) == (None if ours is None else _drawn(ours, *one)) for one in enumerate(_SIZES)]
    finally:
        torch.set_rng_state(state)
    return theirs if ours is None or not all(same) else ours


_SIZES = ((375, 500), (500, 375), (1, 1), (7, 900), (640, 3))


def _drawn(draw: Draw, seed: int, size: tuple[int, int]) -> tuple[Box, bytes]:
    """A part, and the state of the generator afterwards."""
    torch.default_generator.manual_seed(seed)
    return draw(*size), torch.get_rng_state().numpy().tobytes()


class States:
    """The random numbers' states, to go back to where what was drawn comes to nothing: as a context, where it raises.

    Args:
        python: Whether numbers of the module random may be drawn too.
    """

    __slots__ = ("_python", "_torch")

    def __init__(self, *, python: bool) -> None:
        self._torch = torch.get_rng_state()
        self._python = random.getstate() if python else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is not None:
            self.restore()

    def restore(self) -> None:
        """Go back."""
        torch.set_rng_state(self._torch)
        if self._python is not None:
            random.setstate(self._python)
