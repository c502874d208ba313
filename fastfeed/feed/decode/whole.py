"""A batch that was written where it lies: what a dataset of ours gives a loader of ours instead of a list of samples."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils.data import default_collate

from fastfeed.feed.decode.levels import Levels

Memory = Callable[[tuple[int, ...], torch.dtype], torch.Tensor]
"""From shape and dtype to a contiguous tensor, its values undefined, that nobody else has."""
Begin = Callable[[int], None]
"""Is called before each sample, with its place in the batch: it seeds the sample's random numbers."""
WRITTEN: Any = type("Written", (), {"__slots__": ()})()
"""Stands in a sample for an image that was written into its batch."""


class Unfinished(NamedTuple):
    """What is still to be done to a batch, on the device where it is used."""

    image: str | int
    """Which part of the batch it is done to: a name in a dict, else a number."""
    levels: Levels


class WholeBatch:
    """The samples of a batch, their images together.

    Args:
        images: A tensor of shape (samples, 3, height, width), or Encoded.
        image: Which part of a sample the image is: a name where samples are dicts, else a number.
        levels: What is still to be made of the tensor's bytes; None for nothing.
    """

    def __init__(self, images: Any, image: str | int, levels: Levels | None = None) -> None:  # noqa: ANN401
        self.images, self._image, self._levels = images, image, levels
        self.unfinished: Unfinished | None = None
        """What is still to be done to what collated() gave last."""
        self.samples: list[Any] = []
        """Tuples or dicts, WRITTEN standing for the image."""

    def __len__(self) -> int:
        return len(self.samples)

    def collated(self) -> Any:  # noqa: ANN401 - a list or a dict
        """What torch's default_collate makes of the samples.

        Raises:
            Exception: What default_collate raises, such as for images of unequal size.
        """
        image, self.unfinished = self._image, None
        if any(sample[image] is not WRITTEN for sample in self.samples):
            return default_collate(self.separate())
        if self._levels is not None:
            self.unfinished = Unfinished(image, self._levels)
        first = self.samples[0]
        if isinstance(first, dict):
            others = {name: default_collate([sample[name] for sample in self.samples]) for name in first if name != image}
            return {name: self.images if name == image else others[name] for name in first}
        return [self.images if part == image else default_collate([sample[part] for sample in self.samples])
                for part in range(len(first))]  # fmt: skip

    def separate(self) -> list[Any]:
        """As a list of samples, each with its image."""
        image, levels = self._image, self._levels
        images = self.images if levels is None else levels.applied(self.images)
        found: list[Any] = []
        for number, sample in enumerate(self.samples):
            mine = images[number] if sample[image] is WRITTEN else sample[image]
            if isinstance(sample, dict):
                found.append({**sample, image: mine})
            else:
                found.append(tuple(mine if part == image else value for part, value in enumerate(sample)))
        return found


class Tells:
    """A dataset that says how it makes samples."""

    @property
    def told(self) -> tuple[str, ...]:
        """How samples are made, and why so; sentences for the plan."""
        raise NotImplementedError


class MakesBatches(Tells):
    """A dataset that can write a batch where it shall lie."""

    def make_batch(self, indices: Sequence[int], begin: Begin, memory: Memory, *, raw: bool = False) -> WholeBatch | None:
        """The samples of a batch; None, before anything was drawn, where it cannot.

        Args:
            indices: Of the samples.
            begin: Called before each.
            memory: Gives the memory of the batch.
            raw: Leave images as bytes, a quarter of floats, where what is to be made of them can be told and done elsewhere.
        """
        raise NotImplementedError

    def make_encoded(self, indices: Sequence[int], begin: Begin, memory: Memory, most_bytes: int) -> WholeBatch | None:
        """As make_batch, the images as Encoded (feed/decode/encoded.py).

        Args:
            indices: Of the samples.
            begin: Called before each.
            memory: Gives the memory of the batch.
            most_bytes: Of pixels that are left to be decoded.
        """
        raise NotImplementedError

    @property
    def decoding(self) -> tuple[str, ...]:
        """How images are decoded, and why so; sentences."""
        raise NotImplementedError

    @property
    def told(self) -> tuple[str, ...]:
        """As decoding."""
        return self.decoding
