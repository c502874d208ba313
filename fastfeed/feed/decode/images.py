"""What a dataset does with an image field: its transform read once, and done for each image, alone or into a batch."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from fastfeed.feed.decode import fuse
from fastfeed.feed.decode.checked import why_pillow
from fastfeed.feed.decode.jpeg import Odd, Rows, read_header
from fastfeed.feed.decode.picture import HAS_SIMD, Picture
from fastfeed.feed.decode.whole import WRITTEN

DECODES = ("auto", "exact", "close")


class Begun(NamedTuple):
    """An image on which the first steps of a transform are done."""

    image: Image.Image
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
        self._dtype: torch.dtype | None = None
        self._default = torch.get_default_dtype()
        if self.recipe.to_tensor and not self.recipe.tail and self.recipe.shape is not None:
            self._learn_levels()

    def is_of(self, transform: object) -> bool:
        """Whether it is of this transform, as it is now."""
        known = self.recipe.whole is transform and self.recipe.is_current()
        return known and (self._dtype is None or torch.get_default_dtype() is self._default)

    # ------------------------------------------------------------------------------------------------ one by one
    def decoded(self, data: bytes | memoryview, rows: Rows | None = None) -> "Begun":
        """The image of a file, with what is done while decoding.

        Raises:
            Exception: What Pillow raises.
        """
        picture, number = self._fused(data, rows)
        return Begun(picture.image(), (*(one.own for one in self.recipe.fused[number:]), *self.recipe.rest))

    def _fused(self, data: bytes | memoryview, rows: Rows | None) -> tuple[Picture, int]:
        """The picture, and how many of the fused steps were done: others do not fit it, and are the user's own to do."""
        picture = Picture.of(data, rows, close=self.close, pillow=why_pillow())
        for number, one in enumerate(self.recipe.fused):
            if not one.step.fits(picture):
                return picture, number
            one.step(picture)
        return picture, len(self.recipe.fused)

    # ------------------------------------------------------------------------------------------------ batches
    @property
    def batch(self) -> tuple[tuple[int, int, int], torch.dtype] | None:
        """Shape (3, height, width) and dtype of every image, where they can be written into a batch; else None."""
        if self._dtype is None:
            return None
        assert self.recipe.shape is not None
        return (3, *self.recipe.shape), self._dtype

    def put(self, out: NDArray[Any], data: bytes | memoryview, rows: Rows | None = None) -> Any:  # noqa: ANN401
        """Write the transformed image of a file into a batch.

        Args:
            out: As the property batch says, contiguous.
            data: The file.
            rows: Where its MCU rows begin, where that is known.

        Returns:
            WRITTEN; or an image on which steps are to be done that do not fit it, as Begun, which belongs there as well.

        Raises:
            Exception: What Pillow raises.
        """
        picture, number = self._fused(data, rows)
        if number == len(self.recipe.fused):
            picture.write(out, self._levels)
            return WRITTEN
        return Begun(picture.image(), (*(one.own for one in self.recipe.fused[number:]), *self.recipe.rest))

    def _learn_levels(self) -> None:
        """What the steps behind the picture make of each level of each channel, by asking them.

        They work value by value, so a table of 3 x 256 says all, whatever formula they use.
        """
        ramp = np.repeat(np.arange(256, dtype=np.uint8)[None, :, None], 3, axis=2)
        found: Any = Image.fromarray(ramp)
        try:
            for own in self.recipe.to_tensor:
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
        mode = "close" if self.close else "exact"
        reason = f'decode="{self._decode}"'
        if self._decode == "auto":
            reason += ": the transform draws random numbers" if self.close else ": no step is known to draw random numbers"
        if HAS_SIMD:
            return f"decoding: {mode} ({reason}); Pillow-SIMD resizes"
        if self.close:
            return f"decoding: {mode} ({reason}); torch's antialiased kernel resizes where bilinear is asked for, else Pillow"
        return f"decoding: {mode} ({reason}); Pillow resizes"
