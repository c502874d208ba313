"""What is wrong or odd about a tar of samples: damage, order, names, and an index that does not fit."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice

import numpy as np

from fastfeed.auditor.finding import Code, Finding
from fastfeed.auditor.looking import naming, setcodes
from fastfeed.media import is_image_field
from fastfeed.sample import printable
from fastfeed.source import tarwalk
from fastfeed.source.tarwalk import Member, Walk
from fastfeed.source.wds import Grouper, TarRows, key_and_extension, why_none
from fastfeed.store.blocks import Blocks
from fastfeed.units import format_count, format_size

_CODES: Mapping[str, Code] = {
    "cut": setcodes.TAR_CUT, "damaged": setcodes.TAR_DAMAGED, "dropped": setcodes.TAR_DROPPED, "sparse": setcodes.TAR_SPARSE,
    "stream": setcodes.TAR_STREAM, "unreadable": setcodes.TAR_UNREADABLE, "end-mark": setcodes.TAR_END_MARK,
    "open-end": setcodes.TAR_OPEN_END, "joined": setcodes.TAR_ORDER, "repeated-key": setcodes.TAR_REPEATED,
    "hidden": setcodes.TAR_NOT_A_SAMPLE, "meta": setcodes.TAR_NOT_A_SAMPLE, "no-field": setcodes.TAR_NOT_A_SAMPLE,
    "link": setcodes.TAR_NOT_A_SAMPLE, "special": setcodes.TAR_NOT_A_SAMPLE,
}  # fmt: skip
"""By the kinds of source.tarwalk and source.wds."""
HEADER_BYTES = 512
MAX_OF_A_CODE = 20
"""Findings of one code that are told one by one; the others are counted."""


class TarLook:
    """One tar, looked at.

    Args:
        blocks: Its bytes.
    """

    def __init__(self, blocks: Blocks) -> None:
        self._names: list[str] = []
        self.rows: TarRows = Grouper().take(self._noted(Walk(blocks).run()))
        """Its samples, as webdataset should read them."""
        self.findings: list[Finding] = _few([*map(_finding, self.rows.findings), *self._of_names(), *_uneven(self.rows)])
        """What there is to say, in the tar's order, names last."""

    def _noted(self, items: Iterator[Member | tarwalk.Finding]) -> Iterator[Member | tarwalk.Finding]:
        for item in items:
            if isinstance(item, Member):
                self._names.append(os.fsdecode(item.name))
            yield item

    def _of_names(self) -> Iterator[Finding]:
        for _, finding in naming.clashes(list(dict.fromkeys(self._names))):
            yield finding
        for name in self._names:
            raw = os.fsencode(name)
            key, extension = key_and_extension(raw)
            if why_none(raw) is None and _is_cut(extension):
                parts = f"key {printable(os.fsdecode(key))}, suffix {printable(os.fsdecode(extension))}"
                yield Finding(setcodes.TAR_DOTTED_KEY, f"{printable(name)}: webdataset makes it {parts}")


def _uneven(rows: TarRows) -> list[Finding]:
    """Samples that lack a member which most have, or have one more; one image is as good as another."""
    kinds = ["image" if is_image_field(field) else field for field in rows.fields()]
    stop, members = 0, list[frozenset[str]]()
    for count in rows.counts:
        start, stop = stop, stop + count
        members.append(frozenset(kinds[number] for number in rows.written[start:stop]))
    ((usual, often),) = Counter(members).most_common(1) or [(frozenset[str](), 0)]
    if often == len(members) or 2 * often < len(members):  # all alike, or a tar of anything
        return []
    first = next(number for number, own in enumerate(members) if own != usual)
    key, own = printable(os.fsdecode(rows.keys[first])), "+".join(sorted(members[first]))
    most = f"{often:,} of {format_count(len(members), 'sample')} have {'+'.join(sorted(usual))}"
    return [Finding(setcodes.TAR_UNEVEN, f"{most}; the first other, {key}, has {own}")]


def _is_cut(extension: bytes) -> bool:
    """Whether what webdataset takes for the extension is the end of a name: its first part is no word."""
    first, dot, _ = extension.partition(b".")
    return bool(dot) and (not first[:1].isalpha() or not first.replace(b"_", b"").replace(b"-", b"").isalnum())


def _finding(found: tarwalk.Finding) -> Finding:
    return Finding(_CODES[found.kind], f"bytes {found.start:,} to {found.stop:,}: {found.text}")


def _few(findings: list[Finding]) -> list[Finding]:
    """At most MAX_OF_A_CODE of each code, and behind them how many more there are."""
    counts: dict[Code, int] = {}
    kept = list[Finding]()
    for finding in findings:
        counts[finding.code] = counts.get(finding.code, 0) + 1
        if counts[finding.code] <= MAX_OF_A_CODE:
            kept.append(finding)
    more = [(code, count - MAX_OF_A_CODE) for code, count in counts.items() if count > MAX_OF_A_CODE]
    return [*kept, *(Finding(code, f"{format_count(count, 'more', 'more')} of the kind") for code, count in more)]


def count_disagreement(stated: int, found: int, what: str) -> list[Finding]:
    """Whether an index states another number of samples than a tar has.

    Args:
        stated: By the index.
        found: In the tar.
        what: The index, in words: "the shard list shards.json".
    """
    if stated == found:
        return []
    return [Finding(setcodes.INDEX_DISAGREES, f"{what} states {format_count(stated, 'sample')}, the tar has {found:,}")]


def dali_disagreement(index: bytes, rows: TarRows) -> list[Finding]:
    """Whether an index of DALI's (wds2idx: "v1.2 N", then a line a sample) fits a tar.

    Args:
        index: Its content.
        rows: What the tar has.
    """
    head, *lines = index.decode("utf-8", "surrogateescape").split("\n")
    version, _, stated = head.partition(" ")
    if not version.startswith("v1.") or not stated.strip().isdigit():
        return [Finding(setcodes.INDEX_DISAGREES, f"its first line is {head[:60]!r}, not a version and a number of samples")]
    lines = [line for line in lines if line.strip()]
    found = count_disagreement(int(stated), len(rows.keys), "the DALI index") or count_disagreement(
        len(lines), int(stated), "the lines of the DALI index"
    )
    if found:
        return found
    places = set(zip(rows.offsets, rows.sizes, strict=True))
    stride = 4 if version == "v1.2" else 3  # from 1.2 on each member's name stands behind its place
    wrong = (number for number, line in enumerate(lines, 2) if not _fits(line.split(), stride, places))
    text = "line {} of the DALI index names no members of the tar"
    return [Finding(setcodes.INDEX_DISAGREES, text.format(number)) for number in islice(wrong, 1)]


def energon_disagreement(index: bytes, rows: TarRows) -> list[Finding]:
    """Whether an index of Energon's (NAME.tar.idx: where each sample begins, and where the last ends, as uint64) fits a tar.

    Args:
        index: Its content.
        rows: What the tar has.
    """
    if not index or len(index) % 8:
        return [Finding(setcodes.INDEX_DISAGREES, f"{format_size(len(index))} are no list of numbers of eight bytes")]
    places = np.frombuffer(index, "<u8")
    found = count_disagreement(len(places) - 1, len(rows.keys), "the Energon index")
    if found or not len(rows.keys):
        return found
    first_of = np.cumsum(np.frombuffer(rows.counts, np.uint32)) - np.frombuffer(rows.counts, np.uint32)
    firsts = np.sort(np.frombuffer(rows.offsets, np.uint64)[first_of])
    wrong = np.flatnonzero((firsts < places[:-1] + np.uint64(HEADER_BYTES)) | (firsts >= places[1:]))
    text = "by the Energon index sample {} lies from byte {:,} to {:,}, and its first member begins at {:,}"
    return [
        Finding(setcodes.INDEX_DISAGREES, text.format(at, int(places[at]), int(places[at + 1]), int(firsts[at])))
        for at in wrong[:1].tolist()
    ]


def _fits(words: list[str], stride: int, places: set[tuple[int, int]]) -> bool:
    """Whether a line's members lie where it says: extension, offset, size of each."""
    members = [words[at : at + stride] for at in range(0, len(words), stride)]
    return all(
        len(member) == stride and member[1].isdigit() and member[2].isdigit() and (int(member[1]), int(member[2])) in places
        for member in members
    )
