"""One tar as rows of an index, walked or taken over from an older index; and the rows of all tars put together."""

import os
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from fastfeed.archive.index import MEMBER, SAMPLE, repeated
from fastfeed.archive.regular import open_regular
from fastfeed.archive.tars import (
    GZIP,
    LOST,
    MAX_FIELDS,
    MAX_FINDINGS,
    NO_LABEL,
    PLAIN,
    ZSTD,
    TarFile,
    TarFinding,
    TarsData,
    TarSet,
)  # fmt: skip
from fastfeed.errors import SourceAmbiguous, SourceChanged, SourceUnreadable
from fastfeed.sample import printable
from fastfeed.source.tarheader import BLOCK_BYTES
from fastfeed.source.tarwalk import Finding, Walk
from fastfeed.source.wds import Grouper, TarRows
from fastfeed.store import gzip_stream, zstd_stream
from fastfeed.store.blocks import Blocks, PlainBlocks, StreamedBlocks
from fastfeed.store.tars import frames_of
from fastfeed.store.zstd_stream import Frames
from fastfeed.units import format_count, format_size

LARGE_FRAME_BYTES = 16 << 20
"""From this size on a frame makes reading at random slow enough to say so: about 10 ms each."""
_FOREIGN = {b"BZh": "bzip2", b"\xfd7zXZ\0": "xz", b"\x04\x22\x4d\x18": "lz4", b"PK\x03\x04": "zip", b"7z\xbc\xaf": "7z"}


@dataclass(slots=True)
class Indexed:
    """One tar with its rows."""

    entry: TarFile
    rows: TarRows
    frames: Frames = field(default_factory=Frames)
    checksums: bool = False


def form_of(head: bytes, path: str) -> int:
    """What a file with these first bytes is stored as.

    Raises:
        SourceUnreadable: As something that cannot be read in place.
    """
    if head.startswith(gzip_stream.MAGIC):
        return GZIP
    if head.startswith(zstd_stream.MAGIC) or zstd_stream.is_skippable(head):
        return ZSTD
    for magic, name in _FOREIGN.items():
        if head.startswith(magic):
            msg = f"{os.path.basename(path)} is compressed with {name}, which cannot be read in place"
            raise SourceUnreadable(msg, path=path, hint="Decompress it, or extract it and pack the files.")
    return PLAIN


class TarWalk:
    """Walks one tar; may be asked from another thread how far it is.

    Args:
        base: The folder below which the tar lies.
        file: Its path below that.
        checksums: Read each payload and keep its xxh3.
    """

    def __init__(self, base: str, file: str, *, checksums: bool) -> None:
        self._path, self._file, self._checksums = os.path.join(base, file), file, checksums
        self._walk: Walk | None = None
        self._frames = Frames()

    @property
    def at(self) -> int:
        """How far it is in the tar."""
        return 0 if self._walk is None else self._walk.at

    def run(self) -> Indexed:
        """Walk it.

        Raises:
            SourceUnreadable: It cannot be opened, or is compressed in another way than gzip and Zstandard.
            SourceChanged: Somebody writes it.
        """
        try:
            descriptor = open_regular(self._path)
        except OSError as error:
            msg = f"a tar cannot be opened: {error.strerror}"
            raise SourceUnreadable(msg, path=self._path) from error
        try:
            before = os.fstat(descriptor)
            form = form_of(os.pread(descriptor, 8, 0), self._path)
            blocks = self._blocks(descriptor, form)
            self._walk = Walk(blocks, checksums=self._checksums)
            rows = Grouper().take(self._walk.run())
            after = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
            msg = "a tar changed while it was indexed: somebody is writing it"
            raise SourceChanged(msg, path=self._path, hint="Index it when it is finished.")
        tar_bytes = blocks.length()
        if form == ZSTD and self._frames.largest_bytes(tar_bytes) > LARGE_FRAME_BYTES:
            rows.findings.append(self._large_frame(tar_bytes))
        entry = TarFile(
            self._file, before.st_size, before.st_mtime_ns, form, tar_bytes, len(rows.keys), rows.dropped,
        )  # fmt: skip
        return Indexed(entry, rows, self._frames, self._checksums)

    def _blocks(self, descriptor: int, form: int) -> Blocks:
        if form == PLAIN:
            return PlainBlocks(descriptor)
        if form == GZIP:
            return StreamedBlocks(gzip_stream.chunks(descriptor))
        blocks: StreamedBlocks

        def on_frame(at: int) -> None:
            self._frames.ats.append(at)
            self._frames.starts.append(blocks.length())

        blocks = StreamedBlocks(zstd_stream.chunks(descriptor, on_frame=on_frame))
        return blocks

    def _large_frame(self, tar_bytes: int) -> Finding:
        largest = format_size(self._frames.largest_bytes(tar_bytes))
        text = f"its largest Zstandard frame holds {largest}, and reading begins at a frame's start: reading onwards is fast, "
        return Finding("large-frame", 0, tar_bytes, text + "reading at random is not; fastfeed pack makes it so")


class Older:
    """An older index, from which rows of tars that have not changed are taken over.

    Args:
        tars: The set that it is of.
    """

    def __init__(self, tars: TarSet) -> None:
        self.tars = tars
        self.checksums = tars.index.has(MEMBER, "xxh3")
        self._findings: dict[int, list[Finding]] = {}
        for found in tars.index.findings():
            if found.kind != "shared-key":  # that depends on the other tars
                own = self._findings.setdefault(found.tar, [])
                own.append(Finding(found.kind, found.start, found.stop, found.text))
        self.complete = all(count <= MAX_FINDINGS for count in tars.found.values())
        """Whether all its findings are told, so that none is lost with the taking over."""

    def take(self, number: int) -> Indexed:
        """The rows of a tar."""
        index, entry = self.tars.index, self.tars.tars[number]
        first, stop = self.tars.firsts[number], self.tars.firsts[number + 1]
        starts = index.sample_starts()
        low, high = int(starts[first]), int(starts[stop])
        labels = next((name for name in ("label", "some_label") if index.has(SAMPLE, name)), None)
        names = index.strings(MEMBER, "name") if index.has(MEMBER, "name") else None

        def members(name: str) -> "array[int]":
            return array("Q", index.array(MEMBER, name)[low:high].tolist())

        rows = TarRows(
            keys=index.keys[first:stop],
            labels=array("q", index.array(SAMPLE, labels)[first:stop].tolist() if labels else [NO_LABEL] * (stop - first)),
            counts=array("Q", (starts[first + 1 : stop + 1] - starts[first:stop]).tolist()),
            fields=list(self.tars.fields), member_fields=members("field"), offsets=members("offset"), sizes=members("size"),
            digests=members("xxh3") if self.checksums else array("Q", [0]) * (high - low),
            names={row - low: names[row] for row in range(low, high) if names[row]} if names is not None else {},
            findings=self._findings.get(number, []), dropped=entry.dropped,
        )  # fmt: skip
        return Indexed(entry, rows, frames_of(self.tars, number), self.checksums)


def put_together(found: Sequence[Indexed]) -> TarsData:
    """One index of many tars.

    Raises:
        SourceUnreadable: There is no sample in any of them.
        SourceAmbiguous: The members' names have more than 65,536 different extensions.
    """
    fields = sorted({item.rows.fields[number] for item in found for number in set(item.rows.member_fields)})
    _refuse_fields(fields)
    numbers = {name: number for number, name in enumerate(fields)}
    keys: list[bytes] = []
    labels, counts = array("q"), array("Q")
    member_fields, offsets, sizes, digests = (array("Q") for _ in range(4))
    names: dict[int, bytes] = {}
    frames: list[tuple[int, int, int]] = []
    for at, item in enumerate(found):
        rows = item.rows
        names.update({len(offsets) + row: name for row, name in rows.names.items()})
        table = [numbers.get(name, 0) for name in rows.fields]
        member_fields.extend([table[number] for number in rows.member_fields])
        for all_of_them, own in ((keys, rows.keys), (labels, rows.labels), (counts, rows.counts), (offsets, rows.offsets),
                                 (sizes, rows.sizes), (digests, rows.digests)):  # fmt: skip
            all_of_them.extend(own)  # type: ignore[arg-type]
        frames.extend((at, *frame) for frame in zip(item.frames.ats, item.frames.starts, strict=True))
    if not keys:
        raise _no_sample(found)
    findings, told = _findings(found, keys, offsets, counts)
    return TarsData(
        tars=[item.entry for item in found], fields=fields, keys=keys, labels=labels, counts=counts,
        member_fields=member_fields, offsets=offsets, sizes=sizes,
        digests=digests if all(item.checksums for item in found) else None, names=names, frames=frames,
        findings=findings, found=told,
    )  # fmt: skip


def _refuse_fields(fields: Sequence[str]) -> None:
    if len(fields) > MAX_FIELDS:
        msg = f"the members' names have {format_count(len(fields), 'different extension')}, such as {printable(fields[0])}"
        hint = (
            "A name's extension begins at its first dot: the names in these tars have dots elsewhere. Pack the extracted files."
        )
        raise SourceAmbiguous(msg, expected=f"at most {MAX_FIELDS:,}", hint=hint)


def _no_sample(found: Sequence[Indexed]) -> SourceUnreadable:
    told = [finding for item in found for finding in item.rows.findings]
    told.sort(key=lambda finding: (finding.kind not in LOST, finding.kind != "no-field"))
    first = told[0].text if told else "they are empty"
    tars = f"{format_count(len(found), 'tar')}, the first of which is {printable(found[0].entry.file)}"
    msg = f"there is no sample in {tars}: {first}"
    return SourceUnreadable(msg, hint="A sample's members are regular files with an extension.")


def _findings(
    found: Sequence[Indexed], keys: Sequence[bytes], offsets: Sequence[int], counts: "array[int]"
) -> tuple[list[TarFinding], dict[str, int]]:
    """What is told one by one, and how many there are of each kind."""
    told: Counter[str] = Counter()
    listed: list[TarFinding] = []
    for at, item in enumerate(found):
        for finding in item.rows.findings:
            told[finding.kind] += 1
            if told[finding.kind] <= MAX_FINDINGS:
                listed.append(TarFinding(finding.kind, at, finding.start, finding.stop, finding.text))
    firsts = [0, *accumulate(len(item.rows.keys) for item in found)]
    starts: array[int] | None = None
    for first, later in repeated(keys):
        one, other = (bisect_right(firsts, sample) - 1 for sample in (first, later))
        if one == other:
            continue  # the walk has said so
        told["shared-key"] += 1
        if told["shared-key"] <= MAX_FINDINGS:
            starts = starts or array("Q", accumulate(counts, initial=0))
            where, here = (offsets[starts[sample]] - BLOCK_BYTES for sample in (first, later))
            text = f"key {printable(os.fsdecode(keys[later]))} is also in {printable(found[one].entry.file)}, at byte {where}"
            listed.append(TarFinding("shared-key", other, here, here + BLOCK_BYTES, text))
    return listed, dict(sorted(told.items()))
