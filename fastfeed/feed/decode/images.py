"""What a dataset does with an image field: its transform read once, and done for each image, alone or into a batch."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from fastfeed.feed.decode import fuse, steps
from fastfeed.feed.decode.box import Box, around
from fastfeed.feed.decode.checked import why_pillow
from fastfeed.feed.decode.draws import States
from fastfeed.feed.decode.fuse import Recipe
from fastfeed.feed.decode.header import Odd, read_header
from fastfeed.feed.decode.known import TIMM, name_of, path_of
from fastfeed.feed.decode.levels import Levels
from fastfeed.feed.decode.many import Sketch
from fastfeed.feed.decode.picture import HAS_SIMD, Picture
from fastfeed.feed.decode.whole import WRITTEN
from fastfeed.jpegrows import Edges

DECODES = ("auto", "exact", "close")


class Begun(NamedTuple):
    """An image on which the first steps of a transform are done."""

    image: Any
    """What the first of the others takes."""
    rest: tuple[Callable[[Any], Any], ...]
    """The others."""

    def finished(self) -> Any:  # noqa: ANN401 - what the transform gives
        """With the others done as well.

        Raises:
            Exception: What they raise.
        """
        found: Any = self.image
        for own in self.rest:
            found = own(found)
        return found


def is_colour_jpeg(data: bytes | memoryview) -> bool:
    """Whether it is a JPEG that has colours: of a sample that is a dict, one of gray stays so, as it may be a label."""
    try:
        return data[:3] == b"\xff\xd8\xff" and not read_header(data).gray
    except Odd:
        return False


class Images:
    """Images of one field under one transform.

    Args:
        transform: The user's; None for none.
        decode: "exact", "close" or "auto".
    """

    def __init__(self, transform: Callable[[Any], Any] | None, decode: str) -> None:
        self.recipe = fuse.read(transform)
        self.fuses = bool(self.recipe.names)
        """Whether anything of the transform is done while decoding. If not, it is not for here."""
        self.close = decode == "close" or (decode == "auto" and self.recipe.random)
        self._decode = decode
        self._levels: NDArray[Any] | None = None
        self._as_levels: Levels | None = None
        """The same, once somebody has asked."""
        self._dtype: torch.dtype | None = None
        self._default = torch.get_default_dtype()
        self._python = any(path.startswith(TIMM) for path in _paths(self.recipe))
        if (self.recipe.to_tensor or self.recipe.moved) and not self.recipe.tail and self.recipe.shape is not None:
            self._learn_levels()

    def is_of(self, transform: object) -> bool:
        """Whether it is of this transform, as it is now."""
        known = self.recipe.whole is transform and self.recipe.is_current()
        return known and torch.get_default_dtype() is self._default

    # ------------------------------------------------------------------------------------------------ step by step
    def states(self) -> States:
        """The states of the random numbers that its steps draw from, now; a context that goes back to them where it raises."""
        return States(python=self._python)

    def done_on(self, picture: steps.Picture) -> bool:
        """Do the fused steps to a picture; whether all of them fit it."""
        return _done(self.recipe, picture) == len(self.recipe.fused)

    def pixels(self, data: bytes | memoryview, rows: Edges | None = None) -> NDArray[np.uint8]:
        """What the transform makes of a file before it becomes a tensor; uint8, shape (height, width, 3).

        Args:
            data: The file.
            rows: Where its restart intervals begin, where that is known.

        Raises:
            Exception: What Pillow raises, or a step that does not fit the image.
        """
        with self.states():
            picture = Picture.of(data, rows, close=self.close, pillow=why_pillow())
            number = _done(self.recipe, picture)
            if number == len(self.recipe.fused):
                return picture.array()
            found: Any = picture.image()
            for one in self.recipe.fused[number:]:
                found = found if one.moved else one.own(found)
            return np.array(found)

    # ------------------------------------------------------------------------------------------------ one by one
    def decoded(self, data: bytes | memoryview, rows: Edges | None = None) -> "Begun":
        """The image of a file, with what is done while decoding.

        Where it raises, no random number was drawn, as if the image had been decoded first; except of albumentations' own.

        Raises:
            Exception: What Pillow raises.
        """
        with States(python=self._python) as states:
            picture = Picture.of(data, rows, close=self.close, pillow=why_pillow())
            if self.recipe.views:
                return self._views(picture, states)
            if self.recipe.arrays is not None:
                pixels, rest = self.recipe.arrays.begun(picture)
                return Begun(pixels, (rest,))
            return _begun(self.recipe, picture, _done(self.recipe, picture))

    def _views(self, picture: Picture, states: States) -> "Begun":
        """Views of a picture, which is decoded now; what they are made of is copied from it."""
        recipes = self.recipe.views
        if not any(recipe.tail for recipe in recipes):
            sketches = [Sketch(picture.height, picture.width) for _ in recipes]
            numbers = [_done(recipe, sketch) for recipe, sketch in zip(recipes, sketches, strict=True)]
            if all(number == len(recipe.fused) for number, recipe in zip(numbers, recipes, strict=True)):
                picture.shared(around([sketch.part for sketch in sketches]))
                return Begun(picture, (partial(_finished, recipes, sketches),))
            states.restore()
        picture.shared(Box(0, 0, picture.height, picture.width))
        return Begun(picture, (partial(_each, recipes),))

    # ------------------------------------------------------------------------------------------------ batches
    @property
    def batch(self) -> tuple[tuple[int, int, int], torch.dtype] | None:
        """Shape (3, height, width) and dtype of every image, where they can be written into a batch; else None."""
        if self._dtype is None:
            return None
        assert self.recipe.shape is not None
        return (3, *self.recipe.shape), self._dtype

    @property
    def levels(self) -> Levels | None:
        """What is made of the bytes of a batch; None where they stay bytes."""
        if self._as_levels is None and self._levels is not None:
            own = (*self.recipe.moved, *self.recipe.to_tensor)
            self._as_levels = Levels.found(self._levels, own, tuple(map(name_of, own)))
        return self._as_levels

    def put(self, out: NDArray[Any], data: bytes | memoryview, rows: Edges | None = None, *, raw: bool = False) -> Any:  # noqa: ANN401
        """Write the transformed image of a file into a batch.

        Args:
            out: As the property batch says, contiguous.
            data: The file.
            rows: Where its restart intervals begin, where that is known.
            raw: Leave it bytes: out is uint8, and the property levels says what is to be made of it.

        Returns:
            WRITTEN; or an image on which steps are to be done that do not fit it, as Begun, which belongs there as well.

        Raises:
            Exception: What Pillow raises.
        """
        with States(python=self._python):
            picture = Picture.of(data, rows, close=self.close, pillow=why_pillow())
            number = _done(self.recipe, picture)
            if number == len(self.recipe.fused):
                picture.write(out, None if raw else self._levels)
                return WRITTEN
            return _begun(self.recipe, picture, number)

    def _learn_levels(self) -> None:
        """What the steps behind the picture make of each level of each channel, by asking them.

        They work value by value, so a table of 3 x 256 says all, whatever formula they use.
        """
        ramp = np.repeat(np.arange(256, dtype=np.uint8)[None, :, None], 3, axis=2)
        found: Any = Image.fromarray(ramp)
        try:
            for own in (*self.recipe.moved, *self.recipe.to_tensor):
                found = own(found)
            levels = found.numpy()[:, 0, :]
        except Exception:  # noqa: BLE001 - the user's own steps: whatever they raise, they raise when a sample is made
            return
        if levels.shape != (3, 256) or found.requires_grad:
            return
        self._dtype = found.dtype
        plain = found.dtype is torch.uint8 and np.array_equal(levels, ramp[0].T)
        self._levels = None if plain else np.ascontiguousarray(levels)

    # ------------------------------------------------------------------------------------------------ why
    def told(self) -> tuple[str, ...]:
        """What is done while decoding, what is not, and why; sentences for the plan."""
        recipe = self.recipe
        if not self.fuses:
            nothing = recipe.why_not or "there is no transform"
            return (f"images are decoded by Pillow, whole: {nothing}",)
        pillow = why_pillow()
        lines = [
            f"decoding: {' + '.join(recipe.names)} done while decoding" + ("" if pillow is None else f", by Pillow: {pillow}")
        ]
        if self.batch is not None:
            lines[0] += ", straight into the batch"
        if recipe.why_not is not None:
            lines.append(f"decoding: {recipe.why_not}, and so is all behind it")
        lines.append(self._kernel())
        return tuple(lines)

    def _kernel(self) -> str:
        """What resizes."""
        recipes = self.recipe.views or (self.recipe,)
        if self.recipe.arrays is not None:
            return "decoding: albumentations resizes"
        if all(recipe.moved for recipe in recipes):
            return "decoding: exact; torchvision's kernel for tensors resizes"
        mode = "close" if self.close else "exact"
        reason = f'decode="{self._decode}"'
        if self._decode == "auto":
            reason += ": the transform draws random numbers" if self.close else ": no step is known to draw random numbers"
        if HAS_SIMD:
            return f"decoding: {mode} ({reason}); Pillow-SIMD resizes"
        if self.close:
            return f"decoding: {mode} ({reason}); torch's antialiased kernel resizes where bilinear is asked for, else Pillow"
        return f"decoding: {mode} ({reason}); Pillow resizes"


def _paths(recipe: Recipe) -> Iterator[str]:
    """Of all that is fused."""
    for one in recipe.fused:
        yield path_of(one.own)
    for view in recipe.views:
        yield from _paths(view)


def _done(recipe: Recipe, picture: steps.Picture) -> int:
    """Do the fused steps; how many were done until one does not fit."""
    for number, one in enumerate(recipe.fused):
        if not one.step.fits(picture):
            return number
        one.step(picture)
    return len(recipe.fused)


def _begun(recipe: Recipe, picture: Picture, number: int) -> Begun:
    """Of a picture on which so many of the fused steps were done: others do not fit it, and are the user's own to do."""
    image = picture.image()
    if recipe.shows_image and not image.info:
        image.info = picture.info()
    return Begun(image, recipe.behind(number))


def _finished(recipes: Sequence[Recipe], sketches: Sequence[Sketch], picture: Picture) -> list[Any]:
    """The views whose random numbers have been drawn."""
    views = []
    for recipe, sketch in zip(recipes, sketches, strict=True):
        part = picture.again()
        sketch.draw_on(part)
        views.append(_begun(recipe, part, len(recipe.fused)).finished())
    return views


def _each(recipes: Sequence[Recipe], picture: Picture) -> list[Any]:
    """The views, each with its random numbers."""
    views = []
    for recipe in recipes:
        part = picture.again()
        views.append(_begun(recipe, part, _done(recipe, part)).finished())
    return views
