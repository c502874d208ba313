"""A packed dataset as a map-style torch Dataset that stands where ImageFolder stood."""

import io
import operator
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset

from fastfeed.archive.catalog import Catalog, Place
from fastfeed.archive.dataset import Archive
from fastfeed.archive.index import MEMBER, SAMPLE, column_names
from fastfeed.errors import DecodeError, ManifestDamaged, UsageError
from fastfeed.feed import fields as registry
from fastfeed.feed.fields import Decoder
from fastfeed.feed.skipping import NOTHING, Skip, Skipped, kept_of, positions_to_skip
from fastfeed.feed.views import MemberFile, PickedStrings, Samples
from fastfeed.media import is_image_field
from fastfeed.sample import SampleId, SkipEntry
from fastfeed.store.local import LocalStore
from fastfeed.store.members import MemberReader, Reader
from fastfeed.trace import NULL, Recorder
from fastfeed.units import format_count

CLASS_FIELD = "cls"


class PackedDataset(Dataset[Any]):
    """Samples of a packed dataset by position.

    A dataset whose fields are one image and its class gives tuples (image, target), the image RGB as ImageFolder gives
    it. Any other gives a dict by field: see feed/fields.py for the values; single-channel, palette and 16-bit images
    stay as stored there, since they may be labels.

    It pickles to its path (with transforms and decoders, which must pickle themselves), opens files when they are first
    used in a process, and keeps no Python object per sample: its memory does not grow with use.

    Args:
        path: The folder of one dataset: the destination of pack, or the split's folder in it.
        transform: Called with the image of a pair, or with the dict of a sample; or a mapping field -> function for dicts.
        target_transform: Called with the target of a pair, or with the class of a dict.
        decode: "exact": pixels as the installed Pillow decodes them.
        fields: Only these fields are read; others cost nothing.
        decoders: Field (or its last part) -> a function of bytes, or the name of a decoder.
        recorder: Hears of each sample's stages read, decode, transform.
        skip: A skip list (JSONL file): its samples are left out, and the positions of the others close up.

    Raises:
        NotADataset: No packed dataset there.
        ManifestDamaged: Its manifest.
        IndexDamaged: Its index.
        ShardDamaged: A shard is missing or has the wrong size.
        UsageError: A field or decoder that there is not, a transform that fits no sample, or a skip list that names none.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - ImageFolder's order, then ours
        self,
        path: str | os.PathLike[str],
        transform: Callable[[Any], Any] | Mapping[str, Callable[[Any], Any]] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
        decode: str = "exact",
        fields: Sequence[str] | None = None,
        decoders: Mapping[str, str | Decoder] | None = None,
        *,
        recorder: Recorder = NULL,
        skip: Skip | None = None,
    ) -> None:
        if decode != "exact":
            msg = f"decode={decode!r} is not known"
            raise UsageError(msg, expected="'exact'", got=repr(decode))
        self.path = os.path.abspath(os.fsdecode(path))
        self.transform, self.target_transform = transform, target_transform
        if isinstance(fields, str):
            msg = "fields is a list of names"
            raise UsageError(msg, expected=f"[{fields!r}]", got=repr(fields))
        self.decode, self.decoders = decode, dict(decoders or {})
        self.fields: tuple[str, ...] | None = None if fields is None else tuple(fields)
        """The fields that are read: those asked for, else all that the dataset has."""
        self.recorder = recorder
        self.skipped: NDArray[np.int64] = NOTHING
        """Positions that the skip list took out, by the numbers that they had; int64, ascending."""
        self.notes: tuple[str, ...] = ()
        """What was decided or found at opening, in sentences."""
        self._open()
        self._archive.prove()
        if skip is not None:
            self.skipped, told = positions_to_skip(skip, self._archive)
            self.notes += told
            self._open()
        self._check_arguments()
        self.fields = tuple(name for name in self._known if name in self._wanted)

    _made_anew = "the dataset was packed anew"

    def _load(self) -> tuple[Catalog, Callable[[Catalog], Reader]]:
        """What the samples are, and what makes a reader of them; by path, in every process anew."""
        return Archive(self.path), lambda catalog: MemberReader(catalog, LocalStore(self.path))

    def _open(self) -> None:
        catalog, reader_of = self._load()
        if len(self.skipped):
            catalog = Skipped(catalog, self.skipped)
        self._archive, self._reader = catalog, reader_of(catalog)
        self.digest = catalog.digest
        """Of the dataset: changes with any byte of it."""
        self._unwritten_class = catalog.classes is not None and CLASS_FIELD not in catalog.fields
        """The class of a sample is in the index alone: packed with --no-cls, or the name of a folder of plain files."""
        self._known = sorted({*catalog.fields, *([CLASS_FIELD] if self._unwritten_class else [])})
        chosen = self._known if self.fields is None else [name for name in self._known if name in set(self.fields)]
        self._wanted = frozenset(chosen)
        images = [name for name in chosen if is_image_field(name)]
        self._pair_image = images[0] if len(chosen) == len({*images, CLASS_FIELD}) == 2 and CLASS_FIELD in chosen else None  # noqa: PLR2004
        self._decoders = {name: registry.decoder_of(name, self.decoders, alone=name == self._pair_image) for name in chosen}

    def _check_arguments(self) -> None:
        names = self._known
        for what, given in (("fields", self.fields or ()), ("decoders", self.decoders)):
            known = {*names, *(name.rpartition(".")[2] for name in names)} if what == "decoders" else set(names)
            unknown = sorted(set(given) - known)
            if unknown:
                msg = f"{what} names {', '.join(unknown)}, which the dataset has not"
                raise UsageError(msg, path=self.path, expected=f"among {', '.join(names)}", got=", ".join(unknown))
        if isinstance(self.transform, Mapping):
            if self._pair_image is not None:
                msg = "samples here are pairs (image, target), so transform is one function of the image"
                raise UsageError(msg, path=self.path, got="a mapping by field, which is for samples that are dicts")
            unknown = sorted(set(self.transform) - self._wanted)
            if unknown:
                msg = f"transform names {', '.join(unknown)}, which the samples have not"
                expected = f"among {', '.join(sorted(self._wanted))}"
                raise UsageError(msg, path=self.path, expected=expected, got=", ".join(self.transform))
        if self._unwritten_class and CLASS_FIELD in self.decoders:
            msg = "the class of these samples is a number in the index, not a member of their own: there are no bytes to decode"
            raise UsageError(msg, path=self.path, got=f"decoders for {CLASS_FIELD}")
        if self.target_transform is not None and CLASS_FIELD not in self._wanted:
            msg = "target_transform needs a class, and the samples have none"
            raise UsageError(msg, path=self.path, expected=f"a field {CLASS_FIELD}", got=", ".join(sorted(self._wanted)))

    # ------------------------------------------------------------------------------------------------ pickling
    def __getstate__(self) -> dict[str, Any]:
        """Path and arguments: no file, no map, no index travels."""
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        digest = state["digest"]
        self.__dict__.update(state)
        self._open()
        if self.digest != digest:
            msg = f"{self._made_anew} since this object was made"
            raise ManifestDamaged(msg, path=self.path, expected=digest, got=self.digest, hint="Open it again.")

    # ------------------------------------------------------------------------------------------------ samples
    def __len__(self) -> int:
        return len(self._archive)

    def __iter__(self) -> Iterator[Any]:
        """By position. Without it, Python would iterate until an IndexError, also one from the user's transform."""
        return (self[position] for position in range(len(self)))

    def __getitem__(self, index: int) -> Any:  # noqa: ANN401 - what the transform gives
        """The sample at a position; negative positions count from the end.

        Raises:
            IndexError: No such position.
            ShardDamaged: Bytes differ from their checksum, or a shard is cut or missing.
            DecodeError: The bytes are as packed, but cannot be decoded.
        """
        position = self._position(index)
        places = self._places(position)
        with self.recorder.span("read", position):
            payloads = [self._reader.read(position, place) for place in places]
        return self._sample(position, places, payloads)

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Samples at many positions, in the order asked for, their bytes read in storage order.

        Raises:
            IndexError: No such position.
            ShardDamaged: As __getitem__.
            DecodeError: As __getitem__.
        """
        positions = [self._position(index) for index in indices]
        wanted = [(position, self._places(position)) for position in positions]
        with self.recorder.span("read", positions[0] if positions else 0):
            payloads = self._reader.read_batch(wanted)
        return [self._sample(position, places, data) for (position, places), data in zip(wanted, payloads, strict=True)]

    def _position(self, index: int) -> int:
        position, size = operator.index(index), len(self)
        if not -size <= position < size:
            msg = f"position {position} is outside of a dataset of {size} samples ({self.path})"
            raise IndexError(msg)
        return position + size if position < 0 else position

    def _places(self, position: int) -> list[Place]:
        return [place for place in self._archive.places(position) if place.field in self._wanted]

    def _sample(self, position: int, places: Sequence[Place], payloads: Sequence[bytes | memoryview]) -> Any:  # noqa: ANN401
        with self.recorder.span("decode", position):
            values = {place.field: self._value(position, place, data) for place, data in zip(places, payloads, strict=True)}
            if self._unwritten_class and CLASS_FIELD in self._wanted:
                values = dict(sorted([*values.items(), (CLASS_FIELD, self._archive.label(position))]))
        with self.recorder.span("transform", position):
            return self._transformed(values)

    def _value(self, position: int, place: Place, data: bytes | memoryview) -> Any:  # noqa: ANN401
        try:
            return self._decoders[place.field](data)  # type: ignore[arg-type]
        except Exception as error:
            if isinstance(error, DecodeError):
                raise self._reader.located(error, position, place) from error
            given = self.decoders.get(place.field, self.decoders.get(place.field.rpartition(".")[2]))
            explained = registry.explain(error, place.field, data, self._archive.undecodable, own=not callable(given))
            located = self._reader.located(explained, position, place)
            if located.source is not None and located.hint == self._archive.undecodable:
                located.hint += f" (a line of the skip list: {SkipEntry(source=located.source, kind='undecodable').to_json()})"
            raise located from error

    def _transformed(self, values: dict[str, Any]) -> Any:  # noqa: ANN401
        if self.target_transform is not None and CLASS_FIELD in values:
            values[CLASS_FIELD] = self.target_transform(values[CLASS_FIELD])
        transform = self.transform
        if isinstance(transform, Mapping):
            return {name: transform[name](value) if name in transform else value for name, value in values.items()}
        if self._pair_image is not None and len(values) == 2:  # noqa: PLR2004 - an image and its class
            image = values[self._pair_image]
            return (image if transform is None else transform(image)), values[CLASS_FIELD]
        return values if transform is None else transform(values)

    def open(self, index: int, field: str) -> BinaryIO:
        """A seekable file over one member; nothing is read before it is asked for, and no checksum is checked.

        Raises:
            IndexError: No such position.
            UsageError: The sample has no such field.
        """
        position = self._position(index)
        for place in self._archive.places(position):
            if place.field == field:
                return io.BufferedReader(MemberFile(self._reader, position, place))
        msg = f"sample {position} has no member of field {field!r}"
        raise UsageError(msg, path=self.path, sample=position, key=self._archive.key(position), got=field)

    # ------------------------------------------------------------------------------------------------ facts
    @property
    def classes(self) -> list[str]:
        """Class names by number.

        Raises:
            UsageError: The dataset has no classes.
        """
        names = self._archive.classes
        if names is None:
            raise UsageError(self._no_classes(), path=self.path)
        return list(names)

    def _no_classes(self) -> str:
        return "this dataset has no classes: it was not packed from class folders"

    @property
    def class_to_idx(self) -> dict[str, int]:
        """Class number by name, as ImageFolder has it."""
        return {name: number for number, name in enumerate(self.classes)}

    @property
    def targets(self) -> NDArray[np.int64]:
        """Class number of each sample; int64, shape (samples,). A read-only view of the index."""
        if not self._archive.index.has(SAMPLE, "label"):
            self.classes  # noqa: B018 - its error says why there are none
        return kept_of(self._archive.index.array(SAMPLE, "label"), self.skipped)

    @property
    def samples(self) -> Samples:
        """(original path below the source, class number) by position, looked up when used; None without classes."""
        return Samples(self._archive)

    imgs = samples

    def identity(self, index: int) -> SampleId:
        """Position, key and source path of a sample.

        Raises:
            IndexError: No such position.
        """
        position = self._position(index)
        return SampleId(position, self._archive.key(position), self._archive.source(position))

    @property
    def columns(self) -> list[str]:
        """Names that column() takes."""
        return column_names(self._archive.index)

    def column(self, name: str, field: str | None = None) -> Any:  # noqa: ANN401 - an array or a sequence of bytes
        """A column of the index, a sample a row.

        Args:
            name: label, key; or of a member: size, offset, xxh3, codec, width, height, orientation, source.
            field: Whose member; by default the only image field, else the only field beside cls.

        Returns:
            A read-only numpy array of shape (samples,), a view where every sample has the same fields; 0 where a sample
            has no such member. key and source give a sequence of bytes.

        Raises:
            UsageError: No such column, or the field must be named.
        """
        index = self._archive.index
        if index.has(SAMPLE, name) and name != "members":
            if name != "key":
                return kept_of(index.array(SAMPLE, name), self.skipped)
            keys = index.strings(SAMPLE, name)
            return PickedStrings(keys, kept_of(np.arange(len(keys)), self.skipped)) if len(self.skipped) else keys
        if not index.has(MEMBER, name) or name == "field":
            msg = f"there is no column {name!r}"
            raise UsageError(msg, path=self.path, expected=f"one of {', '.join(self.columns)}", got=repr(name))
        rows = self._rows_of(self._field(field))
        if name == "source":
            return PickedStrings(index.strings(MEMBER, name), rows)
        values = index.array(MEMBER, name)
        if isinstance(rows, slice):
            return values[rows]
        picked = values[np.maximum(rows, 0)]
        picked[rows < 0] = 0
        picked.flags.writeable = False
        return picked

    def _field(self, field: str | None) -> int:
        names = self._archive.fields
        if field is None:
            images = [name for name in names if is_image_field(name)]
            others = [name for name in names if name != CLASS_FIELD]
            found = images if len(images) == 1 else others
            if len(found) != 1:
                msg = "samples have several fields: say of which"
                raise UsageError(msg, path=self.path, expected=f"field= one of {', '.join(names)}")
            field = found[0]
        if field not in names:
            msg = f"there is no field {field!r}"
            raise UsageError(msg, path=self.path, expected=f"one of {', '.join(names)}", got=repr(field))
        return names.index(field)

    def _rows_of(self, number: int) -> "slice | NDArray[np.int64]":
        """Member row of a field in each sample: a slice where all samples are alike, else an array with -1 for none."""
        index = self._archive.index
        numbers, starts = index.field_numbers(), index.sample_starts()
        each = len(numbers) // max(1, index.samples)
        if each and len(numbers) == each * index.samples and not len(self.skipped):
            slot = int(np.argmax(numbers[:each] == number))
            if bool((numbers[slot::each] == number).all()):
                return slice(slot, None, each)
        rows = np.full(index.samples, -1, dtype=np.int64)
        hits = np.flatnonzero(numbers == number)
        rows[np.searchsorted(starts, hits, side="right") - 1] = hits
        return kept_of(rows, self.skipped)

    def __repr__(self) -> str:
        archive = self._archive
        classes = "" if archive.classes is None else f", {len(archive.classes)} classes"
        skipped = f", {len(self.skipped)} skipped" if len(self.skipped) else ""
        name, samples = type(self).__name__, format_count(len(self), "sample")
        return f"{name}({self.path!r}: {samples} of {'+'.join(self.fields or ())}{classes}, {archive.parts()}{skipped})"
