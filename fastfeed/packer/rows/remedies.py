"""What is done about the files of a folder that an audit has flagged: left out, made smaller, re-encoded, or left alone.

Errors are left out. Oversize images are made smaller where a side is given, formats that are slow by their kind become
baseline JPEGs. Whatever may be a label, a mask or lossless on purpose stays as it is, with the reason. So does what packing
has no remedy for, and a file that is not as it was when it was audited: what was found need not hold any more.
"""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from fastfeed.config import ImageConfig
from fastfeed.errors import UsageError
from fastfeed.media import HEAD_BYTES, Codec, is_image_field, is_lossless_jpeg2000, sniff
from fastfeed.packer.rows.auditreport import ERROR, WARNING, Audited, read_report
from fastfeed.packer.rows.folder import Folder, Place
from fastfeed.packer.rows.images import HARMLESS, PHOTOGRAPHIC
from fastfeed.packer.worker import InputFailed, read_small
from fastfeed.sample import SkipEntry, printable
from fastfeed.source.lister import UNREADABLE
from fastfeed.units import format_count

SMALLER, BASELINE = "smaller", "baseline"
"""What is done to an image: its longer side is cut to max_side; it becomes a baseline JPEG."""
_OVERSIZE, _FRAMES = "oversize", "many-frames"
_SLOW_BY_KIND = ("scan-bomb", "arithmetic-jpeg", "heavy-format", "slow-format")
"""Codes of what is slow because of how it is coded, and not because of what it shows."""
ACTED_ON = frozenset({_OVERSIZE, *_SLOW_BY_KIND})
"""What packing can do something about, beside leaving out errors."""
_COPIES = frozenset({"duplicate", "duplicate-across-splits"})
_COPIES_WHY = "a skip list of those not wanted leaves copies out (--exclude)"
_JPEG_MODES = frozenset({"L", "RGB", "CMYK"})
_SHOWN = 3


class LeftAlone(NamedTuple):
    """Files that were flagged and stay as they are, for one reason."""

    code: str
    why: str
    paths: list[str]


class Change(NamedTuple):
    """What is done to an image, and the code because of which."""

    what: str
    """SMALLER or BASELINE."""
    code: str


@dataclass(slots=True)
class Remedies:
    """What is to be done with a folder."""

    excluded: dict[str, str] = field(default_factory=dict)
    """By path of a sample's first file, which names it: the code of an error of one of its files."""
    changes: dict[str, Change] = field(default_factory=dict)
    """By path."""
    left: dict[tuple[str, str], LeftAlone] = field(default_factory=dict)
    differing: list[str] = field(default_factory=list)
    """Paths with another size than when they were audited, and both sizes."""
    missing: list[str] = field(default_factory=list)
    """Paths of the report that are not there any more."""

    def codes(self, what: str) -> list[str]:
        """The codes of all files to which this is done."""
        return [change.code for change in self.changes.values() if change.what == what]

    def entries(self) -> Iterator[SkipEntry]:
        """What is left out, as a skip list names it."""
        return (SkipEntry(source=path, kind=f"audit: {code}") for path, code in sorted(self.excluded.items()))

    def record(self) -> dict[str, object]:
        """As a manifest keeps it: equal for reports that lead to the same."""
        decided = json.dumps([sorted(self.excluded.items()), sorted(self.changes.items())])
        return {
            "digest": hashlib.sha256(decided.encode()).hexdigest()[:16], "excluded": len(self.excluded),
            SMALLER: len(self.codes(SMALLER)), BASELINE: len(self.codes(BASELINE)),
        }  # fmt: skip

    def why(self, images: ImageConfig) -> Iterator[str]:
        """The plan in words.

        Args:
            images: What was asked for.
        """
        if self.excluded:
            what = f"{format_count(len(self.excluded), 'sample')} with an error left out"
            yield f"audit: {what} ({_counted(self.excluded.values())})"
        told = {
            SMALLER: f"made smaller, the longer side at most {images.max_side}",
            BASELINE: "re-encoded as baseline JPEG",
        }
        for what, words in told.items():
            codes = self.codes(what)
            if codes:
                yield f"audit: {format_count(len(codes), 'image')} {words} ({_counted(codes)})"
        is_idle = not self.codes(SMALLER) and all(one.code != _OVERSIZE for one in self.left.values())
        if images.max_side is not None and is_idle:
            yield "audit: --max-side: the report names no oversize image that is packed, so nothing is made smaller"
        for code, why, paths in self.left.values():
            are = "it is" if len(paths) == 1 else "they are"
            yield f"audit: {format_count(len(paths), 'file')} ({code}) left as {are}: {why} ({_named(paths)})"
        if not (self.excluded or self.changes or self.left):
            yield "audit: nothing is wrong with what is packed"

    def notes(self) -> Iterator[str]:
        """What of the report does not hold any more."""
        if self.differing:
            what = format_count(len(self.differing), "file")
            yield f"{what} changed since the audit, and packed without regard to it: {_named(self.differing)}"
        if self.missing:
            yield f"{format_count(len(self.missing), 'file')} of the audit report not there any more: {_named(self.missing)}"


def _named(paths: Sequence[str]) -> str:
    return ", ".join(map(printable, paths[:_SHOWN])) + (", ..." if len(paths) > _SHOWN else "")


def _counted(codes: Iterable[str]) -> str:
    return ", ".join(f"{code} {count:,}" for code, count in sorted(Counter(codes).items()))


def find_remedies(folder: Folder, report: str, images: ImageConfig) -> Remedies:
    """Read a report, and decide about each file that it flags.

    Args:
        folder: What is packed.
        report: JSONL file of an audit of the same folder.
        images: What was asked for.

    Raises:
        UsageError: The report cannot be read, or is one of something else.
    """
    found = Remedies()
    flagged = _flagged(folder, report, found)
    places = folder.places(flagged)
    paths = set(folder.listing.paths) if any(not audited.is_jpeg for audited in flagged.values()) else set()
    for number, audited in flagged.items():
        place = places.get(number)
        error = audited.code_of(ERROR)
        if place is None:  # packing leaves it out anyway
            continue
        if error is not None:
            found.excluded[place.sample] = error
        else:
            decide(found, Case(folder.listing.paths[number], audited, place, partial(_data, folder, number)), images, paths)
    for path in [path for path in found.changes if path in found.excluded]:
        del found.changes[path]
    return found


def concerns(audited: Audited) -> bool:
    """Whether packing has to do with what was found: errors, warnings, and what is slow by its kind."""
    return bool({ERROR, WARNING} & set(audited.codes.values()) or set(_SLOW_BY_KIND) & set(audited.codes))


def _flagged(folder: Folder, report: str, found: Remedies) -> dict[int, Audited]:
    """What the report flags, by file number; and in found what of it does not hold any more."""
    listing = folder.listing
    numbers = {path: number for number, path in enumerate(listing.paths)}
    flagged: dict[int, Audited] = {}
    known = 0
    for audited in read_report(report):
        if audited.path is None:  # about classes or tars
            continue
        number = numbers.get(audited.path)
        if number is None:
            if not os.path.lexists(os.path.join(folder.root, audited.path)):
                found.missing.append(audited.path)
            continue
        known += 1
        size = listing.sizes[number]
        if audited.size_bytes not in {None, size} and listing.codecs[number] != UNREADABLE:
            found.differing.append(f"{audited.path} ({audited.size_bytes:,} bytes then, {size:,} now)")
        elif concerns(audited):
            flagged[number] = audited
    if not known:
        msg = "the audit report has no sample of this folder"
        hint = (
            "Its paths are relative to the folder that was audited: audit the one that is packed."
            if found.missing
            else "None of its samples is known by a path, as where a Python dataset was audited: audit the folder itself."
        )
        raise UsageError(msg, path=report, expected=f"such as {printable(listing.paths[0])}", hint=hint)
    return flagged


@dataclass(frozen=True, slots=True)
class Case:
    """A file that was flagged, and where it stands."""

    path: str
    audited: Audited
    place: Place
    data: Callable[[], bytes]
    """Reads it; empty where it cannot be read: packing will say so."""


def _data(folder: Folder, number: int) -> bytes:
    listing = folder.listing
    path, size, stamp = listing.paths[number], listing.sizes[number], listing.mtimes_ns[number]
    try:
        return read_small(os.path.join(folder.root, path), path, size, stamp)
    except InputFailed:
        return b""


def decide(found: Remedies, case: Case, images: ImageConfig, paths: set[str]) -> None:
    """Smaller, baseline, or left alone and why.

    Args:
        found: Gets it.
        case: A file that has no error.
        images: What was asked for.
        paths: Of all files, among which a new name must not be.
    """
    codes = case.audited.codes
    slow = next((code for code in _SLOW_BY_KIND if code in codes), None)
    code = _OVERSIZE if _OVERSIZE in codes else slow
    if code is None:
        warned = case.audited.code_of(WARNING) or ""
        _leave(found, case, warned, _COPIES_WHY if warned in _COPIES else "packing has no remedy")
        return
    why = _protection(case, images)
    if not why and code == _OVERSIZE:
        why = _not_smaller(case, images)
        if not why:
            _change(found, case, code, SMALLER)
            return
        if slow is not None:  # it stays as large as it is, but need not stay slow
            _leave(found, case, code, why)
            code, why = slow, ""
    why = why or _not_baseline(case, paths)
    if why:
        _leave(found, case, code, why)
    else:
        _change(found, case, code, BASELINE)


def _change(found: Remedies, case: Case, code: str, what: str) -> None:
    found.changes[case.path] = Change(what, code)


def _leave(found: Remedies, case: Case, code: str, why: str) -> None:
    found.left.setdefault((code, why), LeftAlone(code, why, [])).paths.append(case.path)


def _protection(case: Case, images: ImageConfig) -> str:
    """Why a file must not be written anew; empty where it may be."""
    field, mode = case.place.field, case.audited.mode
    if not is_image_field(field) or case.audited.width is None:
        return "it is no image"
    if _FRAMES in case.audited.codes:
        return "it has several frames, and one of them would be kept"
    if field in images.only_field:
        return ""
    if images.only_field:
        return "--only-field names other fields"
    others = [name for name in case.place.others if name not in HARMLESS]
    if others:
        named = ", ".join(others)
        return f"{named} beside it may speak of its pixels; --only-field {field} changes it all the same"
    if mode not in PHOTOGRAPHIC:
        return f"pixels of mode {mode} may be labels, depths or a mask; --only-field {field} changes it all the same"
    return ""


def _not_smaller(case: Case, images: ImageConfig) -> str:
    if images.max_side is None:
        return "--max-side N would make it smaller"
    if max(case.audited.width or 0, case.audited.height or 0) <= images.max_side:
        return f"its longer side is at most {images.max_side} already"
    return ""


def _not_baseline(case: Case, paths: set[str]) -> str:
    """Why it does not become a baseline JPEG. A JPEG does; a JPEG 2000 whose pixels are not kept exactly does as well."""
    if case.audited.mode not in _JPEG_MODES:
        return f"JPEG has no mode {case.audited.mode}"
    if case.audited.is_jpeg:
        return ""
    data = case.data()
    if sniff(data[:HEAD_BYTES]) is not Codec.JPEG2000:
        return "only JPEG and JPEG 2000 become baseline JPEGs"
    if is_lossless_jpeg2000(data):
        return "it keeps its pixels exactly, and a JPEG would not"
    return "a JPEG of that name is there already" if jpeg_name(case.path) in paths else ""


def jpeg_name(name: str) -> str:
    """Name of a file once it is a JPEG.

    Args:
        name: What it is called as another image: it has an extension.
    """
    return f"{name.rpartition('.')[0]}.jpg"
