"""The image field of a dataset: its transform is read, and batches of it are written where they lie."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from fastfeed.archive.catalog import Place
from fastfeed.feed import select
from fastfeed.feed.decode.images import Images
from fastfeed.feed.decode.whole import Begin, MakesBatches, Memory, WholeBatch
from fastfeed.media import is_image_field
from fastfeed.store.members import Reader
from fastfeed.trace import Recorder, listening

Decode = Callable[[bytes | memoryview, Any], Any]
"""From an image's bytes, and where the rows of a JPEG begin, to what becomes of it while decoding."""


class ImageField(MakesBatches):
    """What a dataset does with its images beyond decoding each: PackedDataset's part of feed/decode."""

    path: str
    transform: Any
    decode: str
    recorder: Recorder
    _wanted: frozenset[str]
    _pair_image: str | None
    """The field of the image of (image, target); None where samples are dicts."""
    _fusible: str | None
    """The field of images whose transform may be done while decoding: the only one, since two may have to fit."""
    _images: Images | None
    """Of the transform as it was when it was last asked for."""
    _reader: Reader

    def __len__(self) -> int:
        raise NotImplementedError

    def _stored(self, at: int) -> int:
        """Position in the packed dataset of a sample of this view."""
        raise NotImplementedError

    def _places(self, position: int) -> list[Place]:
        """The members of a sample that are read."""
        raise NotImplementedError

    def _sample(  # noqa: PLR0917
        self, at: int, position: int, members: Iterable[tuple[Place, Any]], recorder: Recorder, decode: Decode | None = None
    ) -> Any:  # noqa: ANN401 - any sample
        """A sample of members that were read."""
        raise NotImplementedError

    def _samples_are_ours(self) -> bool:
        """Whether no subclass makes its samples otherwise."""
        raise NotImplementedError

    @property
    def images(self) -> Images | None:
        """What is done while decoding, as the transform is now; None where nothing is."""
        field = self._fusible
        transform = self.transform
        if isinstance(transform, Mapping):
            transform = None if field is None else transform.get(field)
        elif field != self._pair_image:
            transform = None  # a function of whole samples
        if field is None or transform is None:
            self._images = None
            return None
        if self._images is None or not self._images.is_of(transform):
            self._images = Images(transform, self.decode)
        return self._images if self._images.fuses else None

    @property
    def decoding(self) -> tuple[str, ...]:
        """How images are decoded, and why so; sentences. Empty where there are none."""
        images = [name for name in sorted(self._wanted) if is_image_field(name)]
        if not images:
            return ()
        if self._fusible is None:
            why = "one of several images of a sample" if len(images) > 1 else "decoders= names a decoder"
            return (f"images are decoded by Pillow, whole: {', '.join(images)} is {why}",)
        if self._pair_image is None and self.transform is not None and not isinstance(self.transform, Mapping):
            return ("images are decoded by Pillow, whole: transform is a function of whole samples, not of their images",)
        known = self.images or self._images
        return ("images are decoded by Pillow, whole: they have no transform",) if known is None else known.told()

    def make_batch(self, indices: Sequence[int], begin: Begin, memory: Memory, *, raw: bool = False) -> WholeBatch | None:
        """Samples of a batch, each image written where the batch lies; for loaders of ours (feed/decode/whole.py).

        Args:
            indices: Positions.
            begin: Is called before each sample, with its place in the batch.
            memory: Gives the memory of the batch.
            raw: Leave images as bytes, as MakesBatches has it.

        Raises:
            NoSuchPosition: As __getitems__.
            ShardDamaged: As __getitem__.
            DecodeError: As __getitem__.
        """
        images, field = self.images, self._fusible
        known = self._samples_are_ours()
        if images is None or images.batch is None or field is None or not known:
            return None
        asked = [select.position(index, len(self), self.path) for index in indices]
        wanted = [(position, self._places(position)) for position in map(self._stored, asked)]
        if len({tuple(place.field for place in places) for _, places in wanted}) != 1 or not self._has(wanted[0][1], field):
            return None
        recorder = listening(self.recorder)
        with recorder.span("read", asked[0]):
            payloads = self._reader.read_batch(wanted, fleeting=True)
        shape, dtype = images.batch
        levels = images.levels if raw else None
        made = memory((len(asked), *shape), dtype if levels is None else torch.uint8)
        batch = WholeBatch(made, field if self._pair_image is None else 0, levels)
        pixels = made.numpy()
        for number, (at, (position, places), data) in enumerate(zip(asked, wanted, payloads, strict=True)):
            begin(number)
            put = partial(images.put, pixels[number], raw=levels is not None)
            batch.samples.append(self._sample(at, position, zip(places, data, strict=True), recorder, put))
        return batch

    @staticmethod
    def _has(places: list[Place], field: str) -> bool:
        return any(place.field == field for place in places)
