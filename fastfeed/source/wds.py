"""Which members of a tar make a sample: webdataset's rules, and what is left to decide where it would lose or break one.

Key and field: directory and base name up to the first dot of the base name are the key, the rest in lower case is the
field (webdataset 1.0.2, tariterators.base_plus_ext and group_by_keys). Not files, names without a field, hidden names and
names of webdataset's metadata are no members of any sample. Where webdataset breaks a sample or stops, this module does
not: members of one key that do not stand together are joined, and a field that a sample has already begins a new sample.
"""

import os
import re
from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from fastfeed.archive.shard import CLASS_FIELD
from fastfeed.archive.tars import LOST, NO_LABEL
from fastfeed.sample import printable
from fastfeed.source.tarheader import BLOCK_BYTES
from fastfeed.source.tarwalk import Finding, Member

_META = re.compile(rb"__[^/]*__(?:$|/)")
_DIGITS = re.compile(rb"\s*[+-]?\d{1,18}\s*")
_MAY_BE_CUT = LOST | {"open-end"}


@dataclass(slots=True)
class TarRows:
    """The samples of one tar, in columns; members of a sample stand together, in the tar's order."""

    keys: list[bytes] = field(default_factory=list)
    labels: "array[int]" = field(default_factory=lambda: array("q"))
    """Class number a sample, NO_LABEL where it has none."""
    counts: "array[int]" = field(default_factory=lambda: array("Q"))
    """Members a sample."""
    fields: list[str] = field(default_factory=list)
    """Names by number, in the order in which they were met."""
    member_fields: "array[int]" = field(default_factory=lambda: array("Q"))
    """Number into fields, a member each."""
    offsets: "array[int]" = field(default_factory=lambda: array("Q"))
    sizes: "array[int]" = field(default_factory=lambda: array("Q"))
    digests: "array[int]" = field(default_factory=lambda: array("Q"))
    """xxh3 of each payload, 0 where checksums were not asked for."""
    names: dict[int, bytes] = field(default_factory=dict)
    """By member row: names that are not KEY.FIELD, for their case."""
    findings: list[Finding] = field(default_factory=list)
    dropped: int = 0
    """Samples that are known to be lost or broken, and are left out."""


def key_and_extension(name: bytes) -> tuple[bytes, bytes]:
    """("a.b/c.seg.PNG") -> ("a.b/c", "seg.PNG"); the extension is empty where the name has none."""
    head, slash, base = name.rpartition(b"/")
    stem, _, extension = base.partition(b".")
    return head + slash + stem, extension


def why_none(name: bytes) -> tuple[str, str] | None:
    """Kind and reason of a name that is a member of no sample."""
    base = name.rpartition(b"/")[2]
    if _META.match(name) or (b"/" not in name and name.startswith(b"__") and name.endswith(b"__")):
        return "meta", "its name is one of webdataset's metadata"
    if base.startswith(b"."):
        return "hidden", "its name begins with a dot"
    if not base.partition(b".")[2]:
        return "no-field", "its name has no extension"
    return None


class Grouper:
    """Takes a tar's members in its order and gives its samples."""

    def __init__(self) -> None:
        self._rows = TarRows()
        self._numbers: dict[bytes, int] = {}
        """Extension as written -> field number."""
        self._fields: dict[str, int] = {}
        self._plain: list[bool] = []
        """By number of the extension as written: whether it is the field, letter for letter."""
        self._sample_of = array("Q")
        """Sample number a member, in the tar's order."""
        self._latest: dict[bytes, int] = {}
        """Key -> its latest sample."""
        self._masks: list[int] = []
        """Fields of each sample, a bit each."""
        self._labels = array("q")
        self._firsts = array("Q")
        """Row of the first member of each sample."""
        self._key, self._sample = b"", -1
        self._joined = False
        self._gaps: list[int] = []
        """Rows before which something was lost."""
        self._lost: set[bytes] = set()
        """Keys of members that are known to be lost."""

    def take(self, found: Iterable[Member | Finding]) -> TarRows:
        """All of a walk, as samples."""
        for item in found:
            if isinstance(item, Member):
                self._member(item)
            else:
                self._finding(item)
        return self._settle()

    def _finding(self, found: Finding) -> None:
        self._rows.findings.append(found)
        if found.kind in _MAY_BE_CUT:
            self._gaps.append(len(self._sample_of))
        if found.member and why_none(found.member) is None:
            self._lost.add(key_and_extension(found.member)[0])

    def _member(self, member: Member) -> None:
        rows, name = self._rows, member.name
        key, extension = key_and_extension(name)
        number = self._numbers.get(extension)
        if number is None or name.startswith(b"__") or key[-1:] in {b"", b"/"}:
            none = why_none(name)
            if none is not None:
                start = member.start - BLOCK_BYTES
                text = f"{_shown(name)} is part of no sample: {none[1]}"
                rows.findings.append(Finding(none[0], start, member.start + member.size, text))
                return
            number = self._new_extension(extension) if number is None else number
        bit = 1 << number
        if key != self._key or self._sample < 0 or self._masks[self._sample] & bit:
            self._sample, self._key = self._sample_for(key, bit, member), key
        self._masks[self._sample] |= bit
        if not self._plain[number] and extension != os.fsencode(rows.fields[number]):
            rows.names[len(self._sample_of)] = name
        if rows.fields[number] == CLASS_FIELD and _DIGITS.fullmatch(member.head):
            self._labels[self._sample] = int(member.head)
        self._sample_of.append(self._sample)
        rows.member_fields.append(number)
        rows.offsets.append(member.start)
        rows.sizes.append(member.size)
        rows.digests.append(member.xxh3)

    def _new_extension(self, extension: bytes) -> int:
        name = os.fsdecode(extension).lower()
        number = self._fields.setdefault(name, len(self._fields))
        if number == len(self._rows.fields):
            self._rows.fields.append(name)
            self._plain.append(True)
        self._plain[number] = self._plain[number] and os.fsencode(name) == extension
        self._numbers[extension] = number
        return number

    def _sample_for(self, key: bytes, bit: int, member: Member) -> int:
        """The sample that a member belongs to, which is not the one before it."""
        start, stop = member.start - BLOCK_BYTES, member.start + member.size
        known = self._latest.get(key)
        if known is not None:
            first = self._rows.offsets[self._firsts[known]] - BLOCK_BYTES
            if not self._masks[known] & bit:
                self._joined = True
                text = f"members of {_shown(key)} do not stand together: joined with those from byte {first} on"
                self._rows.findings.append(Finding("joined", start, stop, text))
                return known
            text = f"{_shown(member.name)} comes again, as at byte {first}: the key has two samples"
            self._rows.findings.append(Finding("repeated-key", start, stop, text))
        self._latest[key] = sample = len(self._masks)
        self._masks.append(0)
        self._labels.append(NO_LABEL)
        self._rows.keys.append(key)
        self._firsts.append(len(self._sample_of))
        return sample

    def _settle(self) -> TarRows:
        rows = self._rows
        kept = self._whole()
        rows.labels = array("q", [self._labels[sample] for sample in kept])
        if self._joined or len(kept) < len(self._masks):
            rows.keys = [rows.keys[sample] for sample in kept]
            self._reorder(kept)
        counts = Counter(self._sample_of)
        rows.counts = array("Q", [counts[sample] for sample in kept])
        return rows

    def _reorder(self, kept: list[int]) -> None:
        """Members of the samples that stay, sample by sample."""
        rows, staying = self._rows, set(kept)
        order = sorted(
            (row for row, sample in enumerate(self._sample_of) if sample in staying), key=self._sample_of.__getitem__
        )
        for name in ("member_fields", "offsets", "sizes", "digests"):
            column = getattr(rows, name)
            setattr(rows, name, array("Q", [column[row] for row in order]))
        rows.names = {at: rows.names[row] for at, row in enumerate(order) if row in rows.names} if rows.names else {}
        self._sample_of = array("Q", [self._sample_of[row] for row in order])

    def _whole(self) -> list[int]:
        """Numbers of the samples that stay: not those that damage beside them has taken members of."""
        everything = range(len(self._masks))
        if not self._gaps and not self._lost:
            return list(everything)
        beside = {self._sample_of[row] for gap in self._gaps for row in (gap - 1, gap) if 0 <= row < len(self._sample_of)}
        beside |= {sample for sample in everything if self._rows.keys[sample] in self._lost}
        if self._joined:  # what was lost may belong to any sample
            beside, usual = set(everything), {mask for mask, _ in Counter(self._masks).most_common(1)}
        else:
            usual = {self._masks[sample] for sample in everything if sample not in beside}
        broken = {
            sample for sample in beside if self._rows.keys[sample] in self._lost or (usual and self._masks[sample] not in usual)
        }
        for sample in sorted(broken):
            self._drop(sample, usual)
        gone = self._lost - {self._rows.keys[sample] for sample in broken}
        self._rows.dropped = len(broken) + len(gone)
        return [sample for sample in everything if sample not in broken]

    def _drop(self, sample: int, usual: set[int]) -> None:
        rows, first = self._rows, self._firsts[sample]
        own, others = self._named(self._masks[sample]), " or ".join(sorted(map(self._named, usual))[:3])
        text = (
            f"sample {_shown(rows.keys[sample])} is left out: what is damaged beside it took members of it; it still has {own}"
        )
        start = rows.offsets[first] - BLOCK_BYTES
        finding = Finding(
            "dropped", start, rows.offsets[first] + rows.sizes[first], text + (f", others have {others}" if others else "")
        )
        rows.findings.append(finding)

    def _named(self, mask: int) -> str:
        return "+".join(sorted(name for number, name in enumerate(self._rows.fields) if mask >> number & 1))


def _shown(name: bytes) -> str:
    return printable(os.fsdecode(name))
