"""What file names say: extensions, fields, which files make a sample, and the legal key of each. Pure functions."""

import hashlib
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import islice
from operator import lt
from typing import NamedTuple

from fastfeed.archive.shard import LEGAL_FIELD, LEGAL_KEY, MAX_FIELD_BYTES, all_legal_keys
from fastfeed.archive.tar import MAX_NAME_BYTES
from fastfeed.media import is_image_field

IMAGEFOLDER_EXTENSIONS = frozenset({"jpg", "jpeg", "png", "ppm", "bmp", "pgm", "tif", "tiff", "webp"})
"""torchvision.datasets.folder.IMG_EXTENSIONS without their dots."""
_CANONICAL = {"jpeg": "jpg", "jpe": "jpg", "jfif": "jpg", "tif": "tiff"}
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_+-]*")
_HASH_DIGITS = 10


@lru_cache(maxsize=1 << 16)
def _legal_extension(raw: str) -> str:
    """Lower-case, or empty where it is no legal field."""
    extension = raw.lower()
    return extension if len(extension) <= MAX_FIELD_BYTES and LEGAL_FIELD.fullmatch(extension) else ""


def split_name(name: str) -> tuple[str, str]:
    """("a.b.JPG") -> ("a.b", "jpg"); the extension is empty where there is none or where it is no legal field."""
    dot = name.rfind(".")
    extension = _legal_extension(name[dot + 1 :]) if dot > 0 else ""
    return (name[:dot], extension) if extension else (name, "")


def split_names(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Bases and extensions of many names, as split_name gives them; fast where all have the same, as most folders do."""
    first = split_name(names[0])[1] if names else ""
    if first:
        ending = names[0][-len(first) - 1 :] + "/"  # no file name holds a slash
        bases = ("/".join(names) + "/").split(ending)  # one more than there are names exactly if each name ends so
        if len(bases) == len(names) + 1 and "" not in bases[:-1]:
            return bases[:-1], [first] * len(names)
    pairs = [split_name(name) for name in names]
    return [base for base, _ in pairs], [extension for _, extension in pairs]


def has_extension(name: str) -> bool:
    """Whether the name tells what the file is; if not, only its content can."""
    dot = name.rfind(".")
    return dot > 0 and _legal_extension(name[dot + 1 :]) != ""


def counted(names: Sequence[str]) -> Counter[str]:
    """How often each is there; fast where all are the same, as the fields of most folders are."""
    return Counter({names[0]: len(names)}) if names and names.count(names[0]) == len(names) else Counter(names)


def all_differ(bases: Sequence[str]) -> bool:
    """Whether no two are equal. They are sorted by name in most folders, so they need not be hashed."""
    return all(map(lt, bases, islice(bases, 1, None))) or len(set(bases)) == len(bases)


def has_dots(bases: Sequence[str]) -> bool:
    """Whether a dot is in any: looked for once in all of them, for this runs over every file."""
    return "." in "".join(bases)


def canonical(extension: str) -> str:
    """jpeg, jpe, jfif -> jpg; tif -> tiff; others unchanged."""
    return _CANONICAL.get(extension, extension)


class Grouped(NamedTuple):
    """A sample within a folder."""

    anchor: str
    """The file name by which the sample is sorted: its image's, or its first."""
    stem: str
    members: list[tuple[str, int]]
    """(field, file number), sorted by field."""


class FileName(NamedTuple):
    """A file before grouping."""

    name: str
    number: int
    field: str
    """Its field if nothing in its stem belongs to it: the canonical extension, or what the content says."""


def compound_field(name: str) -> str:
    """Of "0001.mask.png": "mask.png"; empty where nothing but words stands between the first dot and the extension."""
    base, extension = split_name(name)
    if not extension or "." not in base:
        return ""
    words = base.split(".")[1:]
    compound = ".".join([*words, extension]).lower()
    return compound if len(compound) <= MAX_FIELD_BYTES and all(map(_WORD.fullmatch, words)) else ""


def group(
    files: Sequence[FileName], compounds: frozenset[str], *, by_stem: bool, merge_images: bool
) -> tuple[list[Grouped], int]:
    """Which files of one folder make a sample.

    Args:
        files: Of one folder, sorted by name.
        compounds: Compound fields that the dataset has. "0001.mask.png" is field mask.png of stem 0001 if mask.png is
            among them and another file begins with "0001."; otherwise it is field png of stem 0001.mask.
        by_stem: Files that share a stem make one sample; otherwise each its own.
        merge_images: Two images may be fields of one sample. Without it each image is a sample, as ImageFolder reads it.

    Returns:
        The samples sorted by anchor, and how many files became a sample of their own because their field was taken.
    """
    if not by_stem:
        return [_alone(file) for file in files], 0
    prefixes = Counter(file.name.partition(".")[0] for file in files)
    samples: dict[str, Grouped] = {}
    taken: list[Grouped] = []
    for file in files:
        stem, field = _stem_and_field(file, prefixes, compounds, merge_images=merge_images)
        sample = samples.get(stem)
        if sample is None:
            samples[stem] = Grouped(file.name, stem, [(field, file.number)])
            continue
        image = is_image_field(field)
        has_image = any(is_image_field(other) for other, _ in sample.members)
        if any(other == field for other, _ in sample.members) or (image and has_image and not merge_images):
            taken.append(_alone(file))
            continue
        anchor = file.name if image and not has_image else sample.anchor
        samples[stem] = Grouped(anchor, stem, sorted([*sample.members, (field, file.number)]))
    found = sorted([*samples.values(), *taken], key=lambda sample: sample.anchor)
    return found, len(taken)


def _alone(file: FileName) -> Grouped:
    return Grouped(file.name, split_name(file.name)[0], [(file.field, file.number)])


def _stem_and_field(
    file: FileName, prefixes: Counter[str], compounds: frozenset[str], *, merge_images: bool
) -> tuple[str, str]:
    base = split_name(file.name)[0]
    if "." not in base or (not merge_images and is_image_field(file.field)):
        return base, file.field
    prefix, compound = base.partition(".")[0], compound_field(file.name)
    return (prefix, compound) if prefix and compound in compounds and prefixes[prefix] > 1 else (base, file.field)


def _all_lower(keys: Sequence[str]) -> Sequence[str]:
    """Legal keys in lower case: all at once, for in ASCII no letter's lower case depends on its neighbours."""
    text = "\n".join(keys)
    lower = text.lower()
    return keys if lower == text else lower.split("\n")


class KeyMaker:
    """Gives every sample a key that is legal and unique, also when case is folded.

    A stem that is legal is the key. One that is not, that is too long, or that another equals when case is folded,
    becomes a slug and ten hex digits of the sha256 of its source path; so keys do not depend on the order.

    Args:
        stems: Of all samples: paths below the source, without extension.
    """

    def __init__(self, stems: Sequence[str]) -> None:
        legal = all_legal_keys(stems)
        folded = _all_lower(stems) if legal else [stem.lower() for stem in stems]
        rising = all(map(lt, folded, islice(folded, 1, None)))  # then all differ; most sources are sorted
        different = len(folded) if rising else len(set(folded))
        self._repeated = {stem for stem, count in Counter(folded).items() if count > 1} if different < len(folded) else set()
        self._plain = legal and not self._repeated
        self._count = len(folded)
        self._used: set[str] = set()

    def keys(self, stems: Sequence[str], source_of: Callable[[int], str], room: int) -> list[str]:
        """The keys of some of the samples.

        Args:
            stems: Their paths below the source without extension.
            source_of: Path below the source of the first file of one of them, by its place in stems: what the hash is of.
            room: Bytes that the longest of all fields and the dot before it take of the member name.
        """
        if self._plain and max(map(len, stems), default=0) + room <= MAX_NAME_BYTES:
            if len(stems) == self._count:  # all there are, and all different: no other can be met
                return list(stems)
            folded = [stem.lower() for stem in stems]
            if self._used.isdisjoint(folded):
                self._used.update(folded)
                return list(stems)
        return [self._key(stem, source_of(number), room) for number, stem in enumerate(stems)]

    def _key(self, stem: str, source: str, room: int) -> str:
        folded, digits = stem.lower(), _HASH_DIGITS
        if len(stem) + room <= MAX_NAME_BYTES and LEGAL_KEY.fullmatch(stem) and folded not in self._repeated:
            key = stem
        else:
            key = safe_key(stem, source, MAX_NAME_BYTES - room, digits)
            folded = key.lower()
        while folded in self._used:  # a legal stem that looks like another's slug and hash
            digits += 6
            key = safe_key(stem, source, MAX_NAME_BYTES - room, digits)
            folded = key.lower()
        self._used.add(folded)
        return key


def safe_key(stem: str, source: str, room: int, digits: int) -> str:
    """A legal key of at most room bytes: the stem as far as it can be kept, "-", and digits hex of the source's sha256."""
    tail = "-" + hashlib.sha256(os.fsencode(source)).hexdigest()[:digits]
    plain = unicodedata.normalize("NFKD", stem).encode("ascii", "ignore").decode()
    parts = [re.sub(r"[^A-Za-z0-9_+@=,~%^!#()-]+", "_", part).lstrip("_") for part in plain.split("/")]
    slug = "/".join(part or "x" for part in parts)
    if len(slug) + len(tail) > room:  # too deep: the end of the path says most
        slug = slug[-(room - len(tail)) :].lstrip("/_") or "x"
        slug = "/".join(part.lstrip("_") or "x" for part in slug.split("/"))
    return slug[: room - len(tail)].rstrip("/") + tail
