"""Frozen configurations that prove themselves."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Literal, TypedDict, get_args

from fastfeed.errors import UsageError
from fastfeed.units import format_size, parse_size

Layout = Literal["auto", "splits", "classes", "files"]
Group = Literal["auto", "stem", "none"]
ClassMap = Literal["equal", "union"]
OnError = Literal["stop", "skip"]
Codec = Literal["zstd"]

DEFAULT_SHARD_BYTES = 512 << 20
ENCODINGS = ("png", "npy")
"""Lossless ways to store a decoded image or an array."""
DEFAULT_LEVEL, MAX_LEVEL = 3, 22
DEFAULT_FRAME_BYTES = 256 << 10
"""Texts come out near 0.17 of their tar, and a sample read at random costs a decode of at most so much: 0.2 ms."""
MIN_FRAME_BYTES, MAX_FRAME_BYTES = 4 << 10, 64 << 20
_SIZES = ("shard_bytes", "frame_bytes")
OF_COMPRESSION = ("compress", "level", "frame_bytes")
"""Options that are there only where shards are compressed."""
_NAME = re.compile(r"[A-Za-z0-9_-]{1,60}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PackConfig:
    """What decides the bytes of a packed dataset, besides the source. The number of workers does not."""

    shard_bytes: int = DEFAULT_SHARD_BYTES
    """Target of source bytes a shard; shards = ceil(source bytes / target)."""
    shards: int | None = None
    """Exactly this many shards for each dataset, instead of a target."""
    samples_per_shard: int | None = None
    """At most this many samples a shard, instead of a target."""
    shuffle: int | None = None
    """Seed of the order in which samples are stored; None keeps the source's order."""
    layout: Layout = "auto"
    """How folders are read: splits (train/ val/), classes (ImageFolder), files (flat or nested, no classes)."""
    group: Group = "auto"
    """Which files make a sample: those that share a stem, or each its own."""
    class_map: ClassMap = "equal"
    """equal: splits must have the same classes; union: one map over all of them."""
    write_cls: bool = True
    """Write NAME.cls with the class number beside each sample, for readers that know no index."""
    name: str | None = None
    """Stem of the shard names; None takes it from the source folder or the split."""
    limit: int | None = None
    """Only the first N samples of each dataset."""
    hidden: bool = False
    """Take files and folders whose names begin with a dot as well (never AppleDouble notes and other system files)."""
    on_error: OnError = "stop"
    """What an unreadable source file does: stop the run, or leave its sample out and record it."""
    compress: Codec | None = None
    """Write shards that are compressed (.tar.zst), which fewer programs read; None writes plain tars."""
    level: int | None = None
    """Of the compression, 1 to 22: 3 by default, None without compression."""
    frame_bytes: int | None = None
    """What is compressed as a piece: as many samples as fit into it, 256 KiB by default; None without compression."""

    def __post_init__(self) -> None:
        self._settle_compression()
        for field, choices in (("layout", Layout), ("group", Group), ("class_map", ClassMap), ("on_error", OnError)):
            if getattr(self, field) not in get_args(choices):
                msg = f"{field} is one of {', '.join(get_args(choices))}"
                raise UsageError(msg, got=repr(getattr(self, field)))
        for field in ("shard_bytes", "shards", "samples_per_shard", "limit"):
            value = getattr(self, field)
            if value is not None and (not isinstance(value, int) or value < 1):
                msg = f"{field} is a whole number from 1"
                raise UsageError(msg, got=value)
        if self.shards is not None and self.samples_per_shard is not None:
            msg = "shards and samples_per_shard exclude each other"
            raise UsageError(msg, hint="Give one of them.")
        if self.name is not None and not _NAME.fullmatch(self.name):
            msg = "a shard name is 1 to 60 letters, digits, - and _"
            raise UsageError(msg, got=repr(self.name), hint="A dot or a blank in it breaks other readers.")

    def _settle_compression(self) -> None:
        if self.compress not in {None, *get_args(Codec)}:
            msg = f"compress is {' or '.join(get_args(Codec))}, or None"
            raise UsageError(msg, got=repr(self.compress))
        if self.compress is None:
            if self.level is not None or self.frame_bytes is not None:
                msg = "level and frame_bytes are for compressed shards"
                raise UsageError(msg, hint='Add --compress zstd (compress="zstd").')
            return
        level: object = DEFAULT_LEVEL if self.level is None else self.level
        if not isinstance(level, int) or not 1 <= level <= MAX_LEVEL:
            msg = f"level is a whole number from 1 to {MAX_LEVEL}"
            raise UsageError(msg, got=level)
        size: object = DEFAULT_FRAME_BYTES if self.frame_bytes is None else self.frame_bytes
        if not isinstance(size, int) or not MIN_FRAME_BYTES <= size <= MAX_FRAME_BYTES:
            msg = f"frame_bytes is from {format_size(MIN_FRAME_BYTES)} to {format_size(MAX_FRAME_BYTES)}"
            raise UsageError(msg, got=size, hint="Whoever reads one sample decodes its frame, and holds it in memory.")
        object.__setattr__(self, "level", level)
        object.__setattr__(self, "frame_bytes", size)

    @property
    def framing(self) -> tuple[int, int] | None:
        """Level and frame_bytes of compressed shards; None for plain tars."""
        return None if self.level is None or self.frame_bytes is None else (self.level, self.frame_bytes)

    def record(self) -> dict[str, object]:
        """All fields, as a manifest keeps them; those of the compression only where there is one."""
        return {name: value for name, value in asdict(self).items() if self.compress or name not in OF_COMPRESSION}


def pack_config(options: Mapping[str, object]) -> PackConfig:
    """A PackConfig from keyword arguments; shard_bytes and frame_bytes may be a text such as "256MiB".

    Raises:
        UsageError: An option that there is not, or a value that does not fit.
    """
    names = [entry.name for entry in fields(PackConfig)]
    unknown = sorted(set(options) - set(names))
    if unknown:
        msg = f"pack has no option {', '.join(unknown)}"
        raise UsageError(msg, expected=f"among {', '.join(names)}", got=", ".join(unknown))
    values = dict(options)
    for name in _SIZES:
        if isinstance(values.get(name), str):
            try:
                values[name] = parse_size(str(values[name]))
            except ValueError as error:
                msg = f"{name}: {error}"
                raise UsageError(msg) from error
    return PackConfig(**values)  # type: ignore[arg-type]


class PackOptions(TypedDict, total=False):
    """PackConfig's fields as keyword arguments."""

    shard_bytes: int | str
    shards: int | None
    samples_per_shard: int | None
    shuffle: int | None
    layout: Layout
    group: Group
    class_map: ClassMap
    write_cls: bool
    name: str | None
    limit: int | None
    hidden: bool
    on_error: OnError
    compress: Codec | None
    level: int | None
    frame_bytes: int | str | None


@dataclass(frozen=True, slots=True)
class Cache:
    """What is kept of data between epochs, and where. ``cache="8GiB"`` stands for ``Cache("8GiB")``."""

    budget: int | str = "auto"
    """Bytes (8 << 30, "8GiB") of all of the user's caches at the place together; "auto": whether and how much is decided."""
    folder: str | os.PathLike[str] | None = None
    """The place; None: /dev/shm, or a disk for temporary files ($SLURM_TMPDIR, $TMPDIR) where that is too small."""
    keep: bool = False
    """The cache stays there when the last process that uses it has ended (fastfeed info --clear-cache removes it)."""

    def __post_init__(self) -> None:
        if isinstance(self.budget, str) and self.budget != "auto":
            try:
                object.__setattr__(self, "budget", parse_size(self.budget))
            except ValueError as error:
                msg = f"cache: {error}"
                raise UsageError(msg) from error
        if self.budget != "auto" and (not isinstance(self.budget, int) or isinstance(self.budget, bool) or self.budget < 1):
            msg = 'cache is a number of bytes such as "8GiB", or "auto"'
            raise UsageError(msg, got=repr(self.budget))
        if self.folder is not None:
            try:
                path = os.fsdecode(self.folder)
            except TypeError:
                path = ""
            if not path:  # also of a variable that is not set: "" would be the folder that the program runs in
                msg = "cache_dir is a folder"
                raise UsageError(msg, got=repr(self.folder))
            object.__setattr__(self, "folder", os.path.abspath(os.path.expanduser(path)))

    def __str__(self) -> str:
        size = "as much as is decided" if isinstance(self.budget, str) else format_size(self.budget)
        return size + ("" if self.place is None else f" in {self.place}") + (", kept" if self.keep else "")

    @property
    def budget_bytes(self) -> int | None:
        """Bytes; None where they are decided."""
        return self.budget if isinstance(self.budget, int) else None

    @property
    def place(self) -> str | None:
        """The place that was named."""
        return None if self.folder is None else os.fsdecode(self.folder)


def cache_config(cache: object, folder: str | os.PathLike[str] | None = None) -> Cache | None:
    """A Cache from what a call was given as cache= and cache_dir=; None where nothing is asked for.

    Raises:
        UsageError: A value that does not fit.
    """
    if cache is None or cache is False:
        if folder is not None:
            msg = "cache_dir says where a cache is, and nothing says how large"
            raise UsageError(msg, hint='Add cache="auto", or a size such as cache="8GiB".')
        return None
    if isinstance(cache, Cache):
        if folder is not None and cache.folder is not None:
            msg = "the place of the cache is given twice"
            raise UsageError(msg, got=f"{cache.place} and {os.fsdecode(folder)}")
        return cache if folder is None else Cache(cache.budget, folder, cache.keep)
    return Cache("auto" if cache is True else cache, folder)  # type: ignore[arg-type]  # it proves itself


def package_folder() -> str:
    """The folder that this very fastfeed is imported from."""
    return str(Path(__file__).parent.parent)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowConfig:
    """What decides how rows (of a list, a table, a Python dataset) become samples."""

    field: tuple[tuple[str, str], ...] = ()
    """(field, template) of files that a list names: ("image", "train/{id}.jpg") with a column in braces."""
    label: str | None = None
    """The column that holds the class: whole numbers stay those numbers, texts are numbered in sorted order."""
    key: str | None = None
    """The column that names the samples; without it the first file does, or they are numbered."""
    column: tuple[str, ...] | None = None
    """Columns that become typed columns of the index; None: all of a table that can."""
    classes: tuple[str, ...] | None = None
    """Class names by number, where the source cannot tell them all beforehand."""
    encode: tuple[tuple[str, str], ...] = ()
    """(column, codec): lossless codecs, png or npy, for decoded images and arrays."""
    row_json: bool | None = None
    """Whether a sample gets what is no file and no bytes of its row as a JSON member, which every reader sees. None: yes for
    tables and Python datasets; for lists of files only where a row holds lists or objects, which no column can hold."""

    def __post_init__(self) -> None:
        wrong = next((codec for _, codec in self.encode if codec not in ENCODINGS), None)
        if wrong is not None:
            msg = f"encode names a lossless codec: {', '.join(ENCODINGS)}"
            raise UsageError(msg, got=repr(wrong))


class RowOptions(TypedDict, total=False):
    """RowConfig's fields as keyword arguments; mappings and single names are taken as well."""

    root: str | os.PathLike[str] | None
    field: Mapping[str, str]
    label: str | None
    key: str | None
    column: str | Sequence[str] | None
    classes: Sequence[str] | None
    encode: Mapping[str, str]
    row_json: bool | None


class ImageOptions(TypedDict, total=False):
    """ImageConfig's fields as keyword arguments."""

    max_side: int | None
    resize_short: int | None
    quality: int | None
    apply_exif: bool
    only_field: str | Sequence[str]
    jpeg_rows: bool


class AllOptions(PackOptions, RowOptions, ImageOptions, total=False):
    """All that pack takes."""


def row_config(options: Mapping[str, object]) -> RowConfig:
    """A RowConfig from keyword arguments.

    Raises:
        UsageError: A value that does not fit.
    """
    values: dict[str, object] = {}
    for name, value in options.items():
        if name in {"field", "encode"}:
            if not isinstance(value, Mapping) or not all(isinstance(part, str) for pair in value.items() for part in pair):
                msg = f"{name} maps names to texts"
                raise UsageError(msg, got=repr(value))
            values[name] = tuple(value.items())
        elif name in {"column", "classes"} and value is not None:
            named = [value] if isinstance(value, str) else list(value)  # type: ignore[call-overload]
            if not all(isinstance(part, str) for part in named) or len(set(named)) != len(named):
                msg = f"{name} is a list of different names"
                raise UsageError(msg, got=repr(value))
            values[name] = tuple(named)
        else:
            values[name] = value
    return RowConfig(**values)  # type: ignore[arg-type]


ROW_OPTIONS = frozenset(field.name for field in fields(RowConfig))
"""Options of pack that are about rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageConfig:
    """How images change while they are packed; the default leaves every byte as it is."""

    max_side: int | None = None
    """The longer side is at most this."""
    resize_short: int | None = None
    """The shorter side is at most this."""
    quality: int | None = None
    """Of JPEG and WebP, 1 to 100; without it, what must be written anew is written with 90."""
    apply_exif: bool = False
    """Turn pixels as EXIF says, and say so no more."""
    only_field: tuple[str, ...] = ()
    """The image fields that may change; needed where samples hold other things that may speak of pixels."""
    jpeg_rows: bool = False
    """Give JPEGs restart markers between their blocks, up to 32 in a row, without loss, and keep where they are."""

    def __post_init__(self) -> None:
        for name, most in (("max_side", 65535), ("resize_short", 65535), ("quality", 100)):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most):
                msg = f"{name} is a whole number from 1 to {most}"
                raise UsageError(msg, got=value)

    @property
    def changes(self) -> bool:
        """Whether anything is asked for."""
        return self.changes_pixels or self.jpeg_rows

    @property
    def changes_pixels(self) -> bool:
        """Whether images are made smaller, turned or re-encoded."""
        return any((self.max_side, self.resize_short, self.quality, self.apply_exif))

    def record(self) -> dict[str, object]:
        """All fields, as a manifest keeps them; jpeg_rows only where it is asked for."""
        return {name: value for name, value in asdict(self).items() if self.jpeg_rows or name != "jpeg_rows"}


IMAGE_OPTIONS = frozenset(field.name for field in fields(ImageConfig))
"""Options of pack that are about images."""


def image_config(options: Mapping[str, object], *, audited: bool = False) -> ImageConfig:
    """An ImageConfig from keyword arguments; only_field may be one name.

    Args:
        options: The keyword arguments.
        audited: Whether an audit's report says which images change.

    Raises:
        UsageError: A value that does not fit.
    """
    values = dict(options)
    given = values.get("only_field")
    if isinstance(given, str):
        values["only_field"] = (given,)
    elif isinstance(given, Sequence):
        values["only_field"] = tuple(given)
    config = ImageConfig(**values)  # type: ignore[arg-type]
    if audited and (config.resize_short or config.apply_exif):
        msg = "resize_short and apply_exif are for all images, and with from_audit only those change that the audit names"
        raise UsageError(msg, hint="Pack with them and with --exclude: fastfeed audit --skip-list writes the list.")
    if config.only_field and not config.changes and not audited:
        msg = "only_field says which images may change, and nothing says how"
        raise UsageError(msg, hint="Add max_side, resize_short, quality, apply_exif or jpeg_rows.")
    return config
