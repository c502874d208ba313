"""A packed dataset as a map-style torch Dataset that stands where ImageFolder stood."""

import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset

from fastfeed.archive.catalog import Catalog, Place
from fastfeed.archive.dataset import Archive
from fastfeed.archive.index import SAMPLE
from fastfeed.archive.shard import CLASS_FIELD
from fastfeed.config import cache_config
from fastfeed.errors import DecodeError, ManifestDamaged, NoClasses, UsageError
from fastfeed.feed import caching, select
from fastfeed.feed import fields as registry
from fastfeed.feed.caching import CacheWish, KeepsReads
from fastfeed.feed.columns import Columns
from fastfeed.feed.decode.arrays import as_function
from fastfeed.feed.decode.images import DECODES, Begun, is_colour_jpeg
from fastfeed.feed.decode.whole import WRITTEN
from fastfeed.feed.extra import Extra, join
from fastfeed.feed.fields import Decoder
from fastfeed.feed.imagefield import Decode, ImageField
from fastfeed.feed.selectable import Selectable
from fastfeed.feed.skipping import Skip, kept_positions, named
from fastfeed.feed.views import MemberFile, Samples
from fastfeed.media import is_image_field
from fastfeed.sample import SampleId, SkipEntry, SkipList
from fastfeed.store.members import MemberReader, Reader, store_of
from fastfeed.trace import NULL, Recorder, listening
from fastfeed.units import format_count


class PackedDataset(Selectable, ImageField, KeepsReads, Dataset[Any]):
    """Samples of a packed dataset by position.

    A dataset whose fields are one image and its class gives tuples (image, target), the image RGB as ImageFolder gives
    it. Any other gives a dict by field: see feed/fields.py for the values; single-channel, palette and 16-bit images
    stay as stored there, since they may be labels.

    It pickles to its path (with transforms and decoders, which must pickle themselves), opens files when they are first
    used in a process, and keeps no Python object per sample: its memory does not grow with use.

    Args:
        path: The folder of one dataset: the destination of pack, or the split's folder in it.
        transform: Called with the image of a pair, or with the dict of a sample; or a mapping field -> function for dicts,
            of which the function of the image is called first.
            For an image it may also be a Compose of albumentations, called with image=array, or fastfeed.Views.
        target_transform: Called with the target of a pair, or with the class of a dict.
        decode: How images are decoded where the first steps of the transform are known (feed/decode). "exact": each pixel as
            the installed Pillow and torchvision make it. "close": bilinear resizing by torch's antialiased kernel, at most 2
            levels from Pillow, 0.05 on average. "auto": close where a step of the transform draws random numbers, exact
            where none does. The random numbers are the same in all.
        fields: Only these fields are read; others cost nothing. Names of columns may be among them: their values (int,
            float, bool, str) are then in the dict of a sample. A field of the same name is meant first.
        decoders: Field (or its last part) -> a function of bytes, or the name of a decoder.
        extra: A table (.csv .tsv .jsonl .parquet) whose rows name samples by a column key, path or index; or a mapping name ->
            array, a value a sample; or a list of such. Their columns are joined to the dataset's (feed/extra.py).
        recorder: Hears of each sample's stages read, decode, transform, by its position in this very dataset or view.
        skip: A skip list (JSONL file): its samples are left out, and the positions of the others close up.
        cache: Keep what was read, for the next epochs and for all processes of this user on this machine: a number of bytes
            ("8GiB"), "auto" (whether and how much is decided, with the reasons in .cache), or fastfeed.Cache. Samples are the
            same with and without.
        cache_dir: Where it is kept; left out, /dev/shm, or $SLURM_TMPDIR or $TMPDIR where that is too small.

    Raises:
        NotADataset: No packed dataset there.
        ManifestDamaged: Its manifest.
        IndexDamaged: Its index.
        ShardDamaged: A shard is missing or has the wrong size.
        SourceError: A table in extra.
        UsageError: A field, column or decoder that there is not, a transform that fits no sample, a table that cannot be
            joined, a skip list that names no sample, or a cache in the dataset's own folder.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - ImageFolder's order, then ours
        self,
        path: str | os.PathLike[str],
        transform: Callable[[Any], Any] | Mapping[str, Callable[[Any], Any]] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
        decode: str = "auto",
        fields: Sequence[str] | None = None,
        decoders: Mapping[str, str | Decoder] | None = None,
        *,
        extra: Extra | Sequence[Extra] | None = None,
        recorder: Recorder = NULL,
        skip: Skip | None = None,
        cache: CacheWish = None,
        cache_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        if decode not in DECODES:
            msg = f"decode={decode!r} is not known"
            raise UsageError(msg, expected=" or ".join(map(repr, DECODES)), got=repr(decode))
        self.path = os.path.abspath(os.fsdecode(path))
        self.transform, self.target_transform = transform, target_transform
        if isinstance(fields, str):
            msg = "fields is a list of names"
            raise UsageError(msg, expected=f"[{fields!r}]", got=repr(fields))
        self.decode, self.decoders = decode, dict(decoders or {})
        self.fields: tuple[str, ...] | None = None if fields is None else tuple(fields)
        """The fields that are read: those asked for, else all that the dataset has."""
        self.recorder = recorder
        self.selection = None
        self.notes: tuple[str, ...] = ()
        """What was decided or found at opening, in sentences."""
        asked = cache_config(cache, cache_dir)
        if asked is not None:
            caching.prove_place(asked, self.home)
        catalog, reader = self._load()
        catalog.prove()
        self.cache = None if asked is None else caching.plan_for(catalog, asked)
        self.extras = join(catalog, extra)
        """The side tables; print one to see what came of joining it."""
        if skip is not None:
            positions, self.notes = kept_positions(skip, catalog)
            self.selection = select.Selection(positions)
        self._open(catalog, reader)
        self._check_arguments()
        self.fields = (*(name for name in self._known if name in self._wanted), *self._cells)

    makes_in_order = True
    """__getitems__ makes its samples one after another, in the order asked for."""
    _made_anew = "the dataset was packed anew"
    _no_classes = "this dataset has no classes: it was packed from neither class folders nor a column of labels"

    @property
    def home(self) -> str | None:
        """The folder in which all is the dataset's own; None where its files are named singly."""
        return self.path

    def _load(self) -> tuple[Catalog, Reader]:
        """What the samples are, and what reads them; by path, in every process anew."""
        archive = Archive(self.path)
        return archive, MemberReader(archive, store_of(archive))

    def _open(self, catalog: Catalog, reader: Reader) -> None:
        self._archive = catalog
        self._reader, self.cache = caching.joined(reader, catalog, self.cache)
        self._columns = Columns(catalog, [table.columns for table in self.extras])
        self.digest = catalog.digest
        """Of the dataset: changes with any byte of it."""
        self._targets: NDArray[np.int64] | None = None
        self._unwritten_class = catalog.classes is not None and CLASS_FIELD not in catalog.fields
        """The class of a sample is in the index alone: packed with --no-cls, or the number of a folder of plain files."""
        self._known = sorted({*catalog.fields, *([CLASS_FIELD] if self._unwritten_class else [])})
        chosen = self._known if self.fields is None else [name for name in self._known if name in set(self.fields)]
        self._wanted = frozenset(chosen)
        others = [name for name in dict.fromkeys(self.fields or ()) if name not in self._known]
        unknown = [name for name in others if not self._columns.has(name)]
        if unknown:
            msg = f"fields names {', '.join(unknown)}, which the dataset has not"
            expected = f"among {', '.join(self._known)}, or of the columns {', '.join(self.columns)}"
            raise UsageError(msg, path=self.path, expected=expected, got=", ".join(unknown))
        self._cells = self._columns.cells(others)
        images = [name for name in chosen if is_image_field(name)] if not self._cells else []
        self._pair_image = images[0] if len(chosen) == len({*images, CLASS_FIELD}) == 2 and CLASS_FIELD in chosen else None  # noqa: PLR2004
        self._decoders = {name: registry.decoder_of(name, self.decoders, alone=name == self._pair_image) for name in chosen}
        own = [name for name in images if not self._overridden(name)]
        self._fusible = own[0] if len(images) == len(own) == 1 else None
        self._images = None

    def _overridden(self, field: str) -> str | Decoder | None:
        """The user's decoder of a field."""
        return self.decoders.get(field, self.decoders.get(field.rpartition(".")[2]))

    def _check_arguments(self) -> None:
        names = self._known
        unknown = sorted(set(self.decoders) - {*names, *(name.rpartition(".")[2] for name in names)})
        if unknown:
            msg = f"decoders names {', '.join(unknown)}, which the dataset has not"
            raise UsageError(msg, path=self.path, expected=f"among {', '.join(names)}", got=", ".join(unknown))
        if isinstance(self.transform, Mapping):
            if self._pair_image is not None:
                msg = "samples here are pairs (image, target), so transform is one function of the image"
                raise UsageError(msg, path=self.path, got="a mapping by field, which is for samples that are dicts")
            unknown = sorted(set(self.transform) - self._wanted - self._cells.keys())
            if unknown:
                msg = f"transform names {', '.join(unknown)}, which the samples have not"
                expected = f"among {', '.join([*sorted(self._wanted), *self._cells])}"
                raise UsageError(msg, path=self.path, expected=expected, got=", ".join(self.transform))
        if self._unwritten_class and CLASS_FIELD in self.decoders:
            msg = "the class of these samples is a number in the index, not a member of their own: there are no bytes to decode"
            raise UsageError(msg, path=self.path, got=f"decoders for {CLASS_FIELD}")
        if self.target_transform is not None and CLASS_FIELD not in self._wanted:
            msg = "target_transform needs a class, and the samples have none"
            raise UsageError(msg, path=self.path, expected=f"a field {CLASS_FIELD}", got=", ".join(sorted(self._wanted)))

    @property
    def told(self) -> tuple[str, ...]:
        """How images are decoded, and what is kept of the data; sentences."""
        return (*self.decoding, *(() if self.cache is None else self.cache.why))

    # ------------------------------------------------------------------------------------------------ pickling
    def __getstate__(self) -> dict[str, Any]:
        """Path, arguments and selection: no file, no map, no index travels."""
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        digest = state["digest"]
        self.__dict__.update(state)
        self._open(*self._load())
        if self.digest != digest:
            msg = f"{self._made_anew} since this object was made"
            raise ManifestDamaged(msg, path=self.path, expected=digest, got=self.digest, hint="Open it again.")

    # ------------------------------------------------------------------------------------------------ samples
    def __len__(self) -> int:
        return len(self._archive if self.selection is None else self.selection)

    def __iter__(self) -> Iterator[Any]:
        """By position. Without it, Python would iterate until an IndexError, also one from the user's transform."""
        return (self[position] for position in range(len(self)))

    def __getitem__(self, index: int) -> Any:  # noqa: ANN401 - what the transform gives
        """The sample at a position; negative positions count from the end.

        Raises:
            NoSuchPosition: It is outside; also an IndexError.
            ShardDamaged: Bytes differ from their checksum, or a shard is cut or missing.
            DecodeError: The bytes are as packed, but cannot be decoded.
        """
        at = select.position(index, len(self), self.path)
        position = self._stored(at)
        places = self._places(position)
        recorder = listening(self.recorder)
        with recorder.span("read", at):
            payloads = [self._reader.read(position, place) for place in places]
        return self._sample(at, position, zip(places, payloads, strict=True), recorder)

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Samples at many positions, in the order asked for, their bytes read in storage order.

        Raises:
            NoSuchPosition: It is outside; also an IndexError.
            ShardDamaged: As __getitem__.
            DecodeError: As __getitem__.
        """
        asked = [select.position(index, len(self), self.path) for index in indices]
        wanted = [(position, self._places(position)) for position in map(self._stored, asked)]
        recorder = listening(self.recorder)
        with recorder.span("read", asked[0] if asked else 0):
            payloads = self._reader.read_batch(wanted)
        return [
            self._sample(at, position, zip(places, data, strict=True), recorder)
            for at, (position, places), data in zip(asked, wanted, payloads, strict=True)
        ]

    def _samples_are_ours(self) -> bool:
        kind = type(self)
        return kind.__getitem__ is PackedDataset.__getitem__ and kind.__getitems__ is PackedDataset.__getitems__

    def _position(self, index: int) -> int:
        return self._stored(select.position(index, len(self), self.path))

    def _places(self, position: int) -> list[Place]:
        return [place for place in self._archive.places(position) if place.field in self._wanted]

    def _sample(  # noqa: PLR0917
        self, at: int, position: int, members: Iterable[tuple[Place, Any]], recorder: Recorder, decode: Decode | None = None
    ) -> Any:  # noqa: ANN401 - any sample
        if decode is None:
            images = self.images
            decode = None if images is None else images.decoded
        with recorder.span("decode", at):
            values = {place.field: self._value(position, place, data, decode) for place, data in members}
            if self._unwritten_class and CLASS_FIELD in self._wanted:
                values = dict(sorted([*values.items(), (CLASS_FIELD, self._archive.label(position))]))
            for name, cell in self._cells.items():
                values[name] = cell(position)
        with recorder.span("transform", at):
            return self._transformed(values)

    def _value(self, position: int, place: Place, data: bytes | memoryview, decode: Decode | None) -> Any:  # noqa: ANN401
        if decode is not None and place.field == self._fusible and (self._pair_image is not None or is_colour_jpeg(data)):
            rows = self._archive.jpeg_rows(position, place)
            return self._guarded(position, place, data, partial(decode, data, rows))
        return self._guarded(position, place, data, partial(self._decoders[place.field], data))  # type: ignore[arg-type]

    def _guarded(self, position: int, place: Place, data: bytes | memoryview, decode: Callable[[], Any]) -> Any:  # noqa: ANN401
        """What decoding gives; what it raises gets the sample's name and place."""
        try:
            return decode()
        except Exception as error:  # a user's decoder may raise anything
            if isinstance(error, DecodeError):
                raise self._reader.located(error, position, place) from error
            given = self._overridden(place.field)
            explained = registry.explain(error, place.field, data, self._archive.undecodable, own=not callable(given))
            located = self._reader.located(explained, position, place)
            if located.source is not None and located.hint == self._archive.undecodable:
                located.hint += f" (a line of the skip list: {SkipEntry(source=located.source, kind='undecodable').to_json()})"
            raise located from error

    def _transformed(self, values: dict[str, Any]) -> Any:  # noqa: ANN401
        transform, of_target = self.transform, self.target_transform
        if self._pair_image is not None and len(values) == 2:  # noqa: PLR2004 - an image and its class
            image, target = values[self._pair_image], values[CLASS_FIELD]
            image = image if transform is None else _called(transform, image)  # first, as ImageFolder does
            return image, target if of_target is None else of_target(target)
        functions = dict(transform) if isinstance(transform, Mapping) else {}
        image_field = self._fusible
        if image_field in values and image_field in functions:
            # First, as in a pair: where its steps are known, some of its random numbers were drawn while it was decoded.
            values[image_field] = _called(functions.pop(image_field), values[image_field])
        if of_target is not None and CLASS_FIELD in values:
            values[CLASS_FIELD] = of_target(values[CLASS_FIELD])
        if isinstance(transform, Mapping):
            return {name: _called(functions[name], value) if name in functions else value for name, value in values.items()}
        return values if transform is None else transform(values)

    def open(self, index: int, field: str) -> BinaryIO:
        """A seekable file over one member; nothing is read before it is asked for, and no checksum is checked.

        Raises:
            NoSuchPosition: It is outside; also an IndexError.
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
            NoClasses: The dataset has none; also an AttributeError, so hasattr() is False.
        """
        names = self._archive.classes
        if names is None:
            raise NoClasses(self._no_classes, path=self.path)
        return list(names)

    @property
    def class_to_idx(self) -> dict[str, int]:
        """Class number by name, as ImageFolder has it."""
        return {name: number for number, name in enumerate(self.classes)}

    @property
    def targets(self) -> NDArray[np.int64]:
        """Class number of each sample; int64, shape (samples,). A read-only view of the index; of a view, a copy.

        Raises:
            NoClasses: The dataset has none; also an AttributeError, so hasattr() is False.
        """
        if not self._archive.index.has(SAMPLE, "label"):
            self.classes  # noqa: B018 - its error says why there are none
        if self._targets is None:
            self._targets = self.column("label")
        return self._targets

    @property
    def samples(self) -> Samples:
        """(original path below the source, class number) by position, looked up when used; None without classes."""
        return Samples(self._archive, None if self.selection is None else self.selection.positions)

    imgs = samples

    def identity(self, index: int) -> SampleId:
        """Position, key and source path of a sample; also of a view's sample the position in the packed dataset.

        Raises:
            NoSuchPosition: It is outside; also an IndexError.
        """
        position = self._position(index)
        return SampleId(position, self._archive.key(position), self._archive.source(position))

    def named_by(self, entries: SkipList) -> NDArray[np.bool_]:
        """Which samples a skip list names; bool, shape (samples,). Also a view asks it about the whole dataset."""
        found = named(entries, self._archive)
        return found if self.selection is None else found[self.selection.positions]

    def __repr__(self) -> str:
        archive = self._archive
        classes = "" if archive.classes is None else f", {format_count(len(archive.classes), 'class', 'classes')}"
        some = "" if self.selection is None else f"{len(self):,} of "
        extras = "".join(f"; {table.report}" for table in self.extras)
        samples = f"{some}{format_count(len(archive), 'sample')} of {'+'.join(self.fields or ())}"
        return f"{type(self).__name__}({self.path!r}: {samples}{classes}, {archive.parts()}{extras})"


def _called(transform: Any, value: Any) -> Any:  # noqa: ANN401 - any value
    """A transformed value; where its first steps were done while decoding, the others are done."""
    if value is WRITTEN:
        return value
    return value.finished() if type(value) is Begun else as_function(transform)(value)
