"""The image field of a dataset: its transform is read, and batches of it are written where they lie."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

from fastfeed.archive.catalog import Place
from fastfeed.feed import select
from fastfeed.feed.decode.encoded import Encoder, why_not
from fastfeed.feed.decode.images import Images, is_colour_jpeg
from fastfeed.feed.decode.whole import Begin, MakesBatches, Memory, WholeBatch
from fastfeed.media import is_image_field
from fastfeed.store.members import Reader
from fastfeed.trace import Recorder, count, listening

_LEFT = "batches decoded by workers, not by DALI: "
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
        images = self.images
        if images is None or images.batch is None:
            return None
        found = self._read_for_batch(indices)
        if found is None:
            return None
        shape, dtype = images.batch
        levels = images.levels if raw else None
        made = memory((len(found), *shape), dtype if levels is None else torch.uint8)
        batch, pixels = WholeBatch(made, self._image_of_sample, levels), made.numpy()
        for number, sample in enumerate(found):
            begin(number)
            batch.samples.append(self._of_read(sample, partial(images.put, pixels[number], raw=levels is not None)))
        return batch

    def make_encoded(self, indices: Sequence[int], begin: Begin, memory: Memory, most_bytes: int) -> WholeBatch | None:
        """As make_batch, the images as Encoded, for another decoder (feed/decode/encoded.py).

        Args:
            indices: Positions.
            begin: Is called before each sample, with its place in the batch.
            memory: Gives the memory of the batch.
            most_bytes: Of pixels that are left to be decoded; images beyond are decoded here.

        Raises:
            NoSuchPosition: As __getitems__.
            ShardDamaged: As __getitem__.
            DecodeError: As __getitem__, of images that are decoded here.
        """
        images, why = self.images, self.why_not_encoded
        if images is None or why is not None:
            count(f"{_LEFT}{why}")  # it could be done when the loader was made
            return None
        found = self._read_for_batch(indices)
        if found is None or not all(map(self._is_for_images, found)):
            count(f"{_LEFT}samples of several kinds, or gray images in dicts")
            return None
        encoder = Encoder(images, most_bytes)
        samples = []
        for number, sample in enumerate(found):
            begin(number)
            samples.append(self._of_read(sample, partial(encoder.put, sample.at)))
        batch = WholeBatch(encoder.made(memory), self._image_of_sample, images.levels)
        batch.samples = samples
        return batch

    @property
    def why_not_encoded(self) -> str | None:
        """Why images cannot be left to another decoder, as the transform is now; None where they can."""
        images = self.images
        if images is None:
            return self.decoding[0] if self.decoding else "samples have no images"
        if self.decode == "exact":
            return 'decode="exact" asks for Pillow\'s own pixels'
        return why_not(images) if self._samples_are_ours() else f"{type(self).__name__} makes its samples itself"

    @property
    def image_kind(self) -> str | None:
        """The last part of the image field's name, such as jpg; None where there is none, or several."""
        return None if self._fusible is None else self._fusible.rpartition(".")[2]

    @property
    def _image_of_sample(self) -> str | int:
        """Which part of a sample the image is, as WholeBatch has it."""
        return 0 if self._pair_image is not None else self._fusible or 0

    def _read_for_batch(self, indices: Sequence[int]) -> "list[_Read] | None":
        """The members of samples, all of one kind, with an image; None where they are not."""
        field, known = self._fusible, self._samples_are_ours()
        if field is None or not known:
            return None
        asked = [select.position(index, len(self), self.path) for index in indices]
        wanted = [(position, self._places(position)) for position in map(self._stored, asked)]
        if len({tuple(place.field for place in places) for _, places in wanted}) != 1 or not self._has(wanted[0][1], field):
            return None
        with listening(self.recorder).span("read", asked[0]):
            payloads = self._reader.read_batch(wanted, fleeting=True)
        return [_Read(at, *one, data) for at, one, data in zip(asked, wanted, payloads, strict=True)]

    def _is_for_images(self, sample: "_Read") -> bool:
        """Whether the transform's steps may be done while decoding: see is_colour_jpeg."""
        if self._pair_image is not None:
            return True
        members = zip(sample.places, sample.payloads, strict=True)
        return all(is_colour_jpeg(data) for place, data in members if place.field == self._fusible)

    def _of_read(self, sample: "_Read", decode: Decode) -> Any:  # noqa: ANN401 - any sample
        members = zip(sample.places, sample.payloads, strict=True)
        return self._sample(sample.at, sample.position, members, listening(self.recorder), decode)

    @staticmethod
    def _has(places: list[Place], field: str) -> bool:
        return any(place.field == field for place in places)


class _Read(NamedTuple):
    """A sample whose members were read."""

    at: int
    """Position in the view."""
    position: int
    """In the packed dataset."""
    places: list[Place]
    payloads: Sequence[bytes | memoryview]
    """Of each, until more is read."""
