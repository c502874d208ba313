"""The manifest of a dataset and of a group of datasets (splits): what belongs to it, with a digest of every file.

Canonical JSON: parsed and written again it gives the same bytes, and its last promise is a sha256 over the rest. So no
flipped bit in it goes unseen, white space included. README.md §5.
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, TypeVar

from fastfeed.archive import shard
from fastfeed.archive.seektable import Framed
from fastfeed.config import MAX_FRAME_BYTES, MIN_FRAME_BYTES
from fastfeed.errors import ManifestDamaged, VersionUnsupported

FOLDER = ".fastfeed"
MANIFEST, INDEX, LEFT_OUT, GROUP = "manifest.json", "index", "left-out.jsonl", "pack.json"
VERSION = 1
"""Of the format: what README.md describes. It stays readable by every later release."""
ZSTD = "zstd"
STREAM = "stream"
"""The order of samples that came one by one, so that shards could not be made equal."""
LAYOUTS = ("classes", "files", "list", "table", "lines", "dataset", "tars", STREAM)
ORDERS = ("imagefolder", "source", "shuffled", STREAM)
WRITER = 1
"""Of the rules by which pack lays out bytes: the same source, options and writer give the same bytes."""

_Entry = TypeVar("_Entry", "OwnedFile", "ShardEntry")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_RESTORE = "Restore the .fastfeed folder from a copy, or pack again."


@dataclass(frozen=True, slots=True)
class OwnedFile:
    """A file that the dataset answers for."""

    file: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class ShardEntry:
    """One shard."""

    file: str
    samples: int
    size_bytes: int
    """Of the file."""
    sha256: str
    tar_bytes: int | None = None
    """Of the tar in a compressed shard; None where the file is the tar."""

    @property
    def stream_bytes(self) -> int:
        """Of the tar: offsets of members count in it."""
        return self.size_bytes if self.tar_bytes is None else self.tar_bytes


@dataclass(frozen=True, slots=True)
class Compression:
    """How the shards of a dataset are compressed."""

    codec: str
    """zstd, the only one."""
    encoder: str
    """The library that wrote them, with its version."""
    frame_bytes: int
    """The most that a frame holds of the tar."""
    level: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Everything that is O(shards) about one dataset."""

    name: str
    split: str
    """Folder of the split below the packed source; empty where the source had no splits."""
    samples: int
    members: int
    source_files: int
    source_bytes: int
    source_digest: str
    """sha256 over the source's list of (path, size, mtime): how a rerun knows that the source is the same."""
    layout: str
    """One of LAYOUTS: how the source was read."""
    order: str
    """imagefolder: position i is ImageFolder's i; source: as in the source, a folder's sorted by path; shuffled: by a
    seed; stream: as the samples came, and shards may differ in their counts."""
    fields: tuple[str, ...]
    """Of all samples together, sorted; a sample need not have all."""
    classes: tuple[str, ...] | None
    """Class names by number (undecodable bytes as surrogate escapes); None without classes."""
    options: Mapping[str, object]
    """What pack was told and what decides bytes."""
    left_out_count: int
    index: OwnedFile
    left_out: OwnedFile
    shards: tuple[ShardEntry, ...]
    compression: Compression | None = None
    """None for plain tars, which have no such line."""
    version: int = VERSION
    writer: int = WRITER
    kind: str = "dataset"
    digest: str = field(default="", compare=False)
    """sha256 of the canonical JSON without this line: the dataset's digest."""

    @property
    def size_bytes(self) -> int:
        """Of all shards."""
        return sum(entry.size_bytes for entry in self.shards)

    @property
    def tar_bytes(self) -> int | None:
        """Of the tars in compressed shards; None where the shards are the tars."""
        return None if self.compression is None else sum(entry.stream_bytes for entry in self.shards)

    def framed(self, entry: ShardEntry) -> Framed | None:
        """What is said of a compressed shard; None for a plain tar."""
        if self.compression is None:
            return None
        return Framed(entry.file, entry.size_bytes, entry.stream_bytes, self.compression.frame_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The splits of one pack call."""

    splits: Mapping[str, str]
    """Folder of each split -> digest of its manifest."""
    version: int = VERSION
    kind: str = "group"
    digest: str = field(default="", compare=False)


def encode(record: Manifest | Group) -> bytes:
    """The canonical bytes, with their digest filled in."""
    body = asdict(record)
    del body["digest"]
    if isinstance(record, Manifest) and record.compression is None:
        del body["compression"]
        for entry in body["shards"]:
            del entry["tar_bytes"]
    digest = hashlib.sha256(canonical(body)).hexdigest()
    return canonical({**body, "digest": digest})


def canonical(body: Mapping[str, object]) -> bytes:
    """Canonical JSON: README.md §5.1."""
    return (json.dumps(body, sort_keys=True, indent=1, allow_nan=False) + "\n").encode("ascii")


def decode(raw: bytes, path: str) -> Manifest | Group:
    """Prove and read a manifest.

    Args:
        raw: All bytes of the file.
        path: For messages.

    Raises:
        ManifestDamaged: Not canonical, digest differs, or a field breaks its rule.
        VersionUnsupported: A later version of the format.
    """
    try:
        body = json.loads(raw)
        version = body["version"]
        digest = body.pop("digest", None)
        rest, whole = canonical(body), canonical({**body, "digest": digest})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        msg = f"the manifest is not the JSON that it should be: {error}"
        raise ManifestDamaged(msg, path=path, hint=_RESTORE) from error
    if version != VERSION or not isinstance(version, int) or isinstance(version, bool):
        msg = f"the dataset has format version {version!r}, this release reads {VERSION}"
        raise VersionUnsupported(msg, path=path, expected=VERSION, got=version, hint="Install a newer fastfeed.")
    right = hashlib.sha256(rest).hexdigest()
    if digest != right or whole != raw:
        msg = "the manifest is damaged: its own digest does not fit"
        raise ManifestDamaged(msg, path=path, start=0, stop=len(raw), expected=right, got=digest, hint=_RESTORE)
    try:
        return _record(body, right)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        msg = f"the manifest breaks a rule: {error}"
        raise ManifestDamaged(msg, path=path, hint=_RESTORE) from error


def _record(body: dict[str, Any], digest: str) -> Manifest | Group:
    if body["kind"] == "group":
        splits = {_split(name): _sha256(value) for name, value in body["splits"].items()}
        if not splits:
            msg = "a group without splits"
            raise ValueError(msg)
        _exactly(body, Group)
        return Group(**{**body, "splits": splits}, digest=digest)
    if body["kind"] != "dataset":
        msg = f"kind is {body['kind']!r}"
        raise ValueError(msg)
    _exactly(body, Manifest)
    compression = _compression(body)
    shards = tuple(_checked(ShardEntry(**entry)) for entry in body["shards"])
    classes = body["classes"]
    if classes is not None and (not _texts(classes) or len(set(classes)) != len(classes)):
        msg = "classes are not a list of distinct names"
        raise ValueError(msg)
    manifest = Manifest(
        **{
            **body, "shards": shards, "index": _checked(OwnedFile(**body["index"])),
            "left_out": _checked(OwnedFile(**body["left_out"])), "fields": _fields(body["fields"]),
            "classes": None if classes is None else tuple(classes), "compression": compression,
        },
        digest=digest,
    )  # fmt: skip
    _prove(manifest)
    return manifest


def _exactly(body: Mapping[str, object], kind: type[Manifest | Group]) -> None:
    known = {entry.name for entry in fields(kind)} - {"digest"}
    differing = (body.keys() | known & {"compression"}) ^ known
    if differing:
        msg = f"fields that lack or that nobody knows: {', '.join(sorted(differing))}"
        raise ValueError(msg)


def _prove(manifest: Manifest) -> None:
    for name in ("samples", "members", "source_files", "source_bytes", "left_out_count", "writer"):
        _count(getattr(manifest, name), name)
    _sha256(manifest.source_digest)
    _prove_words(manifest)
    counts = [entry.samples for entry in manifest.shards]
    if not counts or min(counts) < 1 or (max(counts) - min(counts) > 1 and manifest.order != STREAM):
        msg = f"the shards hold {sorted(set(counts))} samples: none may be empty, and they may differ by one"
        raise ValueError(msg)
    if manifest.samples != sum(entry.samples for entry in manifest.shards):
        msg = f"{manifest.samples} samples, but the shards sum up to {sum(e.samples for e in manifest.shards)}"
        raise ValueError(msg)
    compressed = manifest.compression is not None
    names = [shard.shard_file(manifest.name, number, compressed=compressed) for number in range(len(manifest.shards))]
    if [entry.file for entry in manifest.shards] != names or not all(map(shard.SHARD_NAME.fullmatch, names)):
        msg = f"the shards are not called {shard.shard_file(manifest.name, 0, compressed=compressed)} and so on"
        raise ValueError(msg)
    if (manifest.index.file, manifest.left_out.file) != (INDEX, LEFT_OUT):
        msg = f"index and list of left-out files are not called {INDEX} and {LEFT_OUT}"
        raise ValueError(msg)


def _prove_words(manifest: Manifest) -> None:
    if not _texts([manifest.name, manifest.split, manifest.layout, manifest.order]):
        msg = "name, split, layout and order are not all strings"
        raise ValueError(msg)
    if manifest.split:
        _split(manifest.split)
    options: object = manifest.options
    if not isinstance(options, Mapping) or manifest.layout not in LAYOUTS or manifest.order not in ORDERS:
        msg = f"options, layout or order is {(options, manifest.layout, manifest.order)!r}"
        raise ValueError(msg)
    folders = (
        (manifest.classes or ()) if manifest.layout == "classes" else ()
    )  # unpack makes a folder of each, and of no others
    if any(not name or "/" in name or "\0" in name or name in {".", ".."} for name in folders):
        msg = "a class has a name that no folder can have"
        raise ValueError(msg)


def _compression(body: Mapping[str, Any]) -> Compression | None:
    entries: Sequence[Mapping[str, object]] = body["shards"]
    if "compression" not in body:
        if any("tar_bytes" in entry for entry in entries):
            msg = "a shard has tar_bytes, but there is no compression"
            raise ValueError(msg)
        return None
    said = body["compression"]
    found = Compression(**said)
    for name in ("frame_bytes", "level"):
        _count(getattr(found, name), name)
    encoder: object = found.encoder
    if found.codec != ZSTD or not isinstance(encoder, str) or not MIN_FRAME_BYTES <= found.frame_bytes <= MAX_FRAME_BYTES:
        msg = f"compression is {said!r}: expected codec zstd and frame_bytes from {MIN_FRAME_BYTES} to {MAX_FRAME_BYTES}"
        raise ValueError(msg)
    for entry in entries:
        _count(entry.get("tar_bytes"), f"tar_bytes of {entry.get('file')!r}")
    return found


def _checked(entry: _Entry) -> _Entry:
    _sha256(entry.sha256)
    _count(entry.size_bytes, f"size_bytes of {entry.file!r}")
    if isinstance(entry, ShardEntry):
        _count(entry.samples, f"samples of {entry.file!r}")
    return entry


def _count(value: object, what: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        msg = f"{what} is {value!r}"
        raise ValueError(msg)


def _texts(names: object) -> bool:
    return isinstance(names, list) and all(isinstance(name, str) for name in names)


def _fields(names: Sequence[str]) -> tuple[str, ...]:
    legal = _texts(names) and all(shard.LEGAL_FIELD.fullmatch(n) and len(n) <= shard.MAX_FIELD_BYTES for n in names)
    if not legal or not names or sorted(set(names)) != names:
        msg = f"fields are {names!r}"
        raise ValueError(msg)
    return tuple(names)


def _split(name: str) -> str:
    # A folder directly below the group's, called as in the source: any name but one that leads elsewhere.
    os.fsencode(name)  # a lone surrogate is no name of a folder: its UnicodeEncodeError is a ValueError
    if not name or name.startswith(".") or "/" in name or "\0" in name:
        msg = f"a split is called {name!r}"
        raise ValueError(msg)
    return name


def _sha256(value: object) -> str:
    if not isinstance(value, str) or not _SHA256.fullmatch(value):
        msg = f"{value!r} is not a sha256"
        raise ValueError(msg)
    return value
