"""One tar as rows of an index, walked or taken over from an older index; and the rows of all tars put together."""

import os
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate

from fastfeed.archive.bytestrings import ByteStrings
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
from fastfeed.source.wds import Grouper, TarRows, field_of
from fastfeed.store import gzip_stream, zstd_stream
from fastfeed.store.blocks import Blocks, PlainBlocks, StreamedBlocks
from fastfeed.store.tars import frames_of
from fastfeed.store.zstd_stream import Frames
from fastfeed.units import format_count, format_size

_CHUNK_ROWS = 1 << 20
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


@contextmanager
def open_tar(path: str) -> Iterator[Blocks]:
    """The bytes of a tar, whatever it is stored as.

    Raises:
        SourceUnreadable: It cannot be opened, or is compressed in another way than gzip and Zstandard.
    """
    descriptor = _opened(path)
    try:
        form = form_of(os.pread(descriptor, 8, 0), path)
        unpacked = {GZIP: gzip_stream.chunks, ZSTD: zstd_stream.chunks}
        yield PlainBlocks(descriptor) if form == PLAIN else StreamedBlocks(unpacked[form](descriptor))
    finally:
        os.close(descriptor)


def _opened(path: str) -> int:
    try:
        return open_regular(path)
    except OSError as error:
        msg = f"a tar cannot be opened: {error.strerror}"
        raise SourceUnreadable(msg, path=path) from error


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
        descriptor = _opened(self._path)
        try:
            before = os.fstat(descriptor)
            form = form_of(os.pread(descriptor, 8, 0), self._path)
            blocks = self._blocks(descriptor, form)
            self._walk = Walk(blocks, checksums=self._checksums)
            rows = Grouper(checksums=self._checksums).take(self._walk.run())
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
        written = index.has(MEMBER, "written")
        rows = TarRows(
            keys=ByteStrings(index.keys[first:stop]),
            labels=array("q", index.array(SAMPLE, labels)[first:stop].tolist() if labels else [NO_LABEL] * (stop - first)),
            counts=array("I", (starts[first + 1 : stop + 1] - starts[first:stop]).tolist()),
            extensions=self.tars.extensions if written else [os.fsencode(name) for name in self.tars.fields],
            written=array("I", index.array(MEMBER, "written" if written else "field")[low:high].tolist()),
            offsets=array("Q", index.array(MEMBER, "offset")[low:high].tolist()),
            sizes=array("Q", index.array(MEMBER, "size")[low:high].tolist()),
            digests=array("Q", index.array(MEMBER, "xxh3")[low:high].tolist() if self.checksums else []),
            findings=self._findings.get(number, []), dropped=entry.dropped,
        )  # fmt: skip
        return Indexed(entry, rows, frames_of(self.tars, number), self.checksums)


def put_together(found: Iterable[Indexed]) -> TarsData:
    """One index of many tars.

    Args:
        found: Their rows, each used once: what has been taken can be forgotten.

    Raises:
        SourceUnreadable: There is no sample in any of them.
        SourceAmbiguous: The members' names have more than 65,536 different extensions.
    """
    whole = _Whole()
    for item in found:
        whole.add(item)
    return whole.data()


class _Whole:
    """The rows of all tars, as they come."""

    def __init__(self) -> None:
        self._entries: list[TarFile] = []
        self._keys, self._labels, self._counts = ByteStrings(), array("q"), array("I")
        self._numbers: dict[bytes, int] = {}
        """Extension -> its number, in the order in which they were met."""
        self._written, self._offsets, self._sizes, self._digests = array("H"), array("Q"), array("Q"), array("Q")
        self._frames: list[tuple[int, int, int]] = []
        self._told: Counter[str] = Counter()
        self._findings: list[TarFinding] = []
        self._checksums = True

    def add(self, item: Indexed) -> None:
        """The rows of the next tar."""
        rows, number = item.rows, len(self._entries)
        self._entries.append(item.entry)
        for at in sorted(set(rows.written)):
            self._numbers.setdefault(rows.extensions[at], len(self._numbers))
        _refuse_many(self._numbers)
        table = [self._numbers.get(extension, 0) for extension in rows.extensions]
        self._written.extend([table[at] for at in rows.written])
        self._keys.extend(rows.keys)
        for column, own in ((self._labels, rows.labels), (self._counts, rows.counts), (self._offsets, rows.offsets),
                            (self._sizes, rows.sizes), (self._digests, rows.digests)):  # fmt: skip
            column.extend(own)
        self._frames.extend((number, *frame) for frame in zip(item.frames.ats, item.frames.starts, strict=True))
        self._checksums = self._checksums and item.checksums
        for finding in rows.findings:
            self._tell(TarFinding(finding.kind, number, finding.start, finding.stop, finding.text))

    def _tell(self, finding: TarFinding) -> None:
        self._told[finding.kind] += 1
        if self._told[finding.kind] <= MAX_FINDINGS:
            self._findings.append(finding)

    def data(self) -> TarsData:
        """All of it.

        Raises:
            SourceUnreadable: There is no sample.
        """
        if not len(self._keys):
            raise self._no_sample()
        self._shared_keys()
        extensions = sorted(self._numbers)
        fields = sorted({field_of(extension) for extension in extensions})
        plain = all(os.fsencode(field_of(extension)) == extension for extension in extensions)
        by_field = [fields.index(field_of(extension)) for extension in self._numbers]
        as_written = [] if plain else [extensions.index(extension) for extension in self._numbers]
        return TarsData(
            tars=self._entries, fields=fields, keys=self._keys, labels=self._labels, counts=self._counts,
            member_fields=_mapped(self._written, by_field), offsets=self._offsets, sizes=self._sizes,
            digests=self._digests if self._checksums else None, extensions=[] if plain else extensions,
            written=array("H") if plain else _mapped(self._written, as_written), frames=self._frames,
            findings=self._findings, found=dict(sorted(self._told.items())),
        )  # fmt: skip

    def _shared_keys(self) -> None:
        """Keys that two tars have; what one tar has twice, its walk has told."""
        firsts = [0, *accumulate(entry.samples for entry in self._entries)]
        starts: array[int] | None = None
        for first, later in repeated(self._keys):
            one, other = (bisect_right(firsts, sample) - 1 for sample in (first, later))
            if one == other:
                continue
            starts = starts or array("Q", accumulate(self._counts, initial=0))
            where, here = (self._offsets[starts[sample]] - BLOCK_BYTES for sample in (first, later))
            key, file = printable(os.fsdecode(self._keys[later])), printable(self._entries[one].file)
            text = f"key {key} is also in {file}, at byte {where}"
            self._tell(TarFinding("shared-key", other, here, here + BLOCK_BYTES, text))

    def _no_sample(self) -> SourceUnreadable:
        self._findings.sort(key=lambda finding: (finding.kind not in LOST, finding.kind != "no-field"))
        first = self._findings[0].text if self._findings else "they are empty"
        tars = f"{format_count(len(self._entries), 'tar')}, the first of which is {printable(self._entries[0].file)}"
        msg = f"there is no sample in {tars}: {first}"
        return SourceUnreadable(msg, hint="A sample's members are regular files with an extension.")


def _mapped(numbers: "array[int]", table: Sequence[int]) -> "array[int]":
    """Each number by a table, in pieces: no list as long as the column."""
    found = array("H")
    for first in range(0, len(numbers), _CHUNK_ROWS):
        found.extend([table[number] for number in numbers[first : first + _CHUNK_ROWS]])
    return found


def _refuse_many(extensions: Collection[bytes]) -> None:
    if len(extensions) > MAX_FIELDS:
        such = printable(os.fsdecode(next(iter(extensions))))
        msg = f"the members' names have {format_count(len(extensions), 'different extension')}, such as {such}"
        hint = (
            "A name's extension begins at its first dot: the names in these tars have dots elsewhere. Pack the extracted files."
        )
        raise SourceAmbiguous(msg, expected=f"at most {MAX_FIELDS:,}", hint=hint)
