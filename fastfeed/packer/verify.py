"""Every promise of the format, re-read from the disk: each byte of each file, each row of the index, each name.

A shard's sha256 proves that it is what pack wrote; walking it member by member proves that index and shard agree, and
says which sample a flipped bit has hit.
"""

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice

import xxhash

from fastfeed.archive import tar
from fastfeed.archive.dataset import Archive, Place, read_record
from fastfeed.archive.index import MEMBER, SAMPLE
from fastfeed.archive.manifest import FOLDER, GROUP, INDEX, LEFT_OUT, MANIFEST, Group, Manifest, OwnedFile, ShardEntry
from fastfeed.archive.regular import open_regular
from fastfeed.archive.shard import CLASS_FIELD, check_header
from fastfeed.archive.sidecars import RECORD
from fastfeed.errors import FastfeedError, IndexDamaged, ManifestDamaged, NotADataset, ShardDamaged, UsageError
from fastfeed.machine import processors
from fastfeed.packer.pixels import row_findings
from fastfeed.packer.rules import damaged_columns, index_rules
from fastfeed.packer.sidecars import sidecar_findings, vouched
from fastfeed.packer.tape import CHUNK_BYTES, Tape, open_tape
from fastfeed.trace import QUIET, Progress

_MAX_FINDINGS = 100
_RESTORE = "Restore it from a copy, or pack again."
_OWN = {MANIFEST, INDEX, LEFT_OUT, RECORD}


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken promise."""

    kind: str
    """Name of the error class: ShardDamaged, IndexDamaged, ManifestDamaged, NotADataset, SidecarDamaged."""
    text: str
    """One readable paragraph."""
    path: str | None = None
    shard: str | None = None
    sample: int | None = None
    key: str | None = None
    source: str | None = None
    member: str | None = None
    start: int | None = None
    stop: int | None = None

    @classmethod
    def of(cls, error: FastfeedError) -> "Finding":
        """From an error's facts."""
        names = ("path", "shard", "sample", "key", "source", "member", "start", "stop")
        return cls(type(error).__name__, str(error), **{name: getattr(error, name) for name in names})


@dataclass(slots=True)
class VerifyResult:
    """What verify read and found."""

    path: str
    datasets: int = 0
    shards: int = 0
    samples: int = 0
    members: int = 0
    size_bytes: int = 0
    """Bytes read."""
    findings: list[Finding] = field(default_factory=list)
    """At most 100 a shard."""
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether every promise holds."""
        return not self.findings


def verify(path: str | os.PathLike[str], *, workers: int | None = None, progress: Progress = QUIET) -> VerifyResult:
    """Prove a packed dataset, or all splits of one pack call.

    Args:
        path: The folder.
        workers: Threads, by default the usable processors.
        progress: Hears how far it is.

    Returns:
        A record with a finding for each broken promise; damage does not raise.

    Raises:
        NotADataset: Nothing packed is there.
        UsageError: workers is less than 1.
    """
    if workers is not None and workers < 1:
        msg = "workers counts from 1"
        raise UsageError(msg, got=workers)
    began = time.monotonic()
    result = VerifyResult(os.fsdecode(path))
    tasks: list[Callable[[], None]] = []
    checks = [_Dataset(folder, result) for folder in _datasets(result)]
    for check in checks:
        tasks += check.prepare()
    tasks.append(lambda: result.findings.extend(map(Finding.of, sidecar_findings(result.path))))
    progress.start("verify", sum(check.samples for check in checks), sum(check.size_bytes for check in checks))
    stop = threading.Event()
    for check in checks:
        check.progress, check.stop = progress, stop
    with ThreadPoolExecutor(workers or processors().count) as pool:
        try:
            for done in [pool.submit(task) for task in tasks]:
                done.result()
        finally:
            stop.set()  # after Ctrl-C no thread reads on
    progress.finish()
    result.findings.sort(key=_rank)
    result.seconds = time.monotonic() - began
    return result


def _rank(found: Finding) -> tuple[str, int, str, str]:
    """Shard by shard, behind what is of no shard; what is said of a whole shard stands before what is said of bytes in it."""
    return found.shard or "", -1 if found.start is None else found.start, found.path or "", found.text


def _datasets(result: VerifyResult) -> list[str]:
    """The datasets at the path; what is wrong with the group that holds them is found here."""
    path = result.path
    try:
        record = read_record(path)
    except NotADataset:
        raise
    except FastfeedError as error:
        result.findings.append(Finding.of(error))
        return []
    if not isinstance(record, Group):
        return [path]
    return _splits(path, record, result)


def _splits(path: str, record: Group, result: VerifyResult) -> list[str]:
    """The datasets of a group that can be opened."""
    folders = []
    for split, digest in sorted(record.splits.items()):
        folder = os.path.join(path, split)
        try:
            below = read_record(folder)
        except FastfeedError as error:
            result.findings.append(Finding.of(error))
            continue
        folders.append(folder)
        if below.digest != digest:
            msg = f"split {split} is not the one that was packed together with the others"
            wrong = ManifestDamaged(msg, path=folder, expected=digest, got=below.digest, hint=_RESTORE)
            result.findings.append(Finding.of(wrong))
    for name in sorted(os.listdir(path)):
        if os.path.isdir(os.path.join(path, name, FOLDER)) and name not in record.splits:
            msg = f"folder {name} is packed, but does not belong to this group"
            result.findings.append(Finding.of(ManifestDamaged(msg, path=os.path.join(path, name), hint="Move it away.")))
    _foreign_in_home(path, {GROUP, RECORD}, result)
    return folders


def _foreign_in_home(folder: str, own: set[str], result: VerifyResult) -> None:
    for name in sorted(set(os.listdir(os.path.join(folder, FOLDER))) - own):
        msg = f"{FOLDER}/{name} belongs to no dataset"
        result.findings.append(Finding.of(ManifestDamaged(msg, path=os.path.join(folder, FOLDER, name), hint="Move it away.")))


class _Dataset:
    """Checks one dataset; what it finds goes into the result."""

    def __init__(self, folder: str, result: VerifyResult) -> None:
        self.folder, self.result = folder, result
        self.archive: Archive | None = None
        self.samples = self.size_bytes = 0
        self.progress: Progress = QUIET
        self.stop = threading.Event()
        self._lock = threading.Lock()

    def found(self, error: FastfeedError) -> None:
        """Add a finding."""
        with self._lock:
            self.result.findings.append(Finding.of(error))

    def prepare(self) -> list[Callable[[], None]]:
        """Check names, manifest and index; give a task a shard."""
        record = read_record(self.folder)
        if isinstance(record, Group):
            self.found(ManifestDamaged("a group lies where a dataset should be", path=self.folder, hint=_RESTORE))
            return []
        self.result.datasets += 1
        whole = self._owned(record.index)
        listed = self._owned(record.left_out)
        try:
            self.archive = Archive(self.folder) if whole is not None else None
        except FastfeedError as error:
            self.found(error)
        if self.archive is not None and not whole:
            for wrong in damaged_columns(self.archive):
                self.found(wrong)
        self._strangers({entry.file for entry in record.shards} | vouched(self.folder))
        _foreign_in_home(self.folder, _OWN, self.result)
        self.samples, self.size_bytes = record.samples, sum(entry.stream_bytes for entry in record.shards)
        self.result.samples += record.samples
        tasks: list[Callable[[], None]] = [partial(self._shard, record, entry, walk=bool(whole)) for entry in record.shards]
        if self.archive is not None and whole and listed:
            tasks.append(self._rules)
        return tasks

    def _owned(self, owned: OwnedFile) -> bool | None:
        """Whether a file of .fastfeed is as the manifest says; None where it cannot be read at all."""
        path = os.path.join(self.folder, FOLDER, owned.file)
        try:
            with open(path, "rb", opener=open_regular) as file:
                got = hashlib.file_digest(file, "sha256").hexdigest()
                size = file.tell()
        except OSError as error:
            self.found(IndexDamaged(f"{FOLDER}/{owned.file} cannot be read: {error.strerror}", path=path, hint=_RESTORE))
            return None
        self.result.size_bytes += size
        if (size, got) == (owned.size_bytes, owned.sha256):
            return True
        expected, now = f"{owned.size_bytes} bytes, sha256 {owned.sha256}", f"{size} bytes, {got}"
        self.found(IndexDamaged(f"{FOLDER}/{owned.file} is damaged", path=path, expected=expected, got=now, hint=_RESTORE))
        return False

    def _strangers(self, own: set[str]) -> None:
        for name in sorted(os.listdir(self.folder)):
            if (name.endswith(".tar") or ".tar." in name) and name not in own:
                msg = "a shard is here that does not belong to the dataset; other readers would take it"
                self.found(ShardDamaged(msg, path=os.path.join(self.folder, name), shard=name, hint="Move it away."))

    def _shard(self, record: Manifest, entry: ShardEntry, *, walk: bool) -> None:
        path = os.path.join(self.folder, entry.file)
        try:
            with open(path, "rb", buffering=0, opener=open_regular) as file:
                size = os.fstat(file.fileno()).st_size
                if size != entry.size_bytes:
                    msg = "a shard has the wrong size"
                    expected, got = f"{entry.size_bytes} bytes", f"{size} bytes"
                    self.found(ShardDamaged(msg, path=path, shard=entry.file, expected=expected, got=got, hint=_RESTORE))
                framed = record.framed(entry)
                tape = open_tape(file.fileno(), self.stop, framed and framed._replace(size_bytes=size))
                errors: list[FastfeedError] = [tape.problem] if tape.problem is not None else []
                errors += self._walked(entry, tape) if walk and self.archive is not None else []
                sha256 = tape.finish()
        except OSError as error:
            msg = f"a shard cannot be read: {error.strerror}"
            self.found(ShardDamaged(msg, path=path, shard=entry.file, hint=_RESTORE))
            return
        for found in errors:
            self.found(found)
        if sha256 != entry.sha256 and not errors and size == entry.size_bytes and not self.stop.is_set():
            msg = "a shard's sha256 differs from the manifest's"
            self.found(ShardDamaged(msg, path=path, shard=entry.file, expected=entry.sha256, got=sha256, hint=_RESTORE))
        with self._lock:
            self.result.shards += 1
            self.result.size_bytes += size

    def _walked(self, entry: ShardEntry, tape: Tape) -> list[FastfeedError]:
        """The first findings of a walk, and what ended it: an index that leads out of its shard lets nobody walk on."""
        errors: list[FastfeedError] = []
        try:
            for error in self._walk(entry, tape):
                if len(errors) < _MAX_FINDINGS:
                    errors.append(error)
        except FastfeedError as error:
            errors.append(error)
        assert self.archive is not None
        return [*(lost.told(self.archive) for lost in tape.lost[:_MAX_FINDINGS]), *errors]

    def _walk(self, entry: ShardEntry, tape: Tape) -> Iterator[FastfeedError]:
        """Each member's header, payload and padding, then the trailer."""
        archive = self.archive
        assert archive is not None
        number = archive.manifest.shards.index(entry)
        labels = archive.index.array(SAMPLE, "label") if archive.index.has(SAMPLE, "label") else None
        made = archive.index.strings(MEMBER, "source") if archive.index.has(MEMBER, "source") else None
        for position in range(archive.firsts[number], archive.firsts[number + 1]):
            count = 0
            for place in archive.places(position):
                if self.stop.is_set():
                    return
                yield from _member(archive, position, place, tape)
                if tape.at < place.stop + tar.padding_bytes(place.stop - place.start):
                    yield from _cut(archive, entry, (position, place), tape.at)
                    return
                is_class = place.field == CLASS_FIELD and labels is not None and made is not None and not made[place.row]
                wrong_class = is_class and labels is not None and tape.payload != str(labels[position]).encode()
                if wrong_class and labels is not None and tape.payload is not None:
                    msg = "a class member holds another number than the index"
                    wrong = ShardDamaged(msg, expected=int(labels[position]), got=tape.payload[:20], hint=_RESTORE)
                    yield archive.at(wrong, position, place)
                count += 1
            with self._lock:
                self.result.members += count
            self.progress.advance(1, tape.passed())
        start = tape.at
        right = tar.trailer_bytes(start)  # no more is taken: a hostile manifest may claim gigabytes
        if entry.stream_bytes - start != right or tape.take(right).strip(b"\0"):
            msg = "the end of a shard is not zeros up to a whole record"
            yield ShardDamaged(msg, shard=entry.file, start=start, stop=entry.stream_bytes, hint=_RESTORE)

    def _rules(self) -> None:
        """What index and left-out list promise by themselves."""
        assert self.archive is not None
        for error in islice(chain(damaged_columns(self.archive), index_rules(self.archive)), _MAX_FINDINGS):
            self.found(error)


def _cut(archive: Archive, entry: ShardEntry, first: tuple[int, Place], end: int) -> Iterator[FastfeedError]:
    """One finding for all that is lost behind the end of a shard; none where it is the index that leads beyond the end."""
    if end < entry.stream_bytes:
        last = archive.firsts[archive.manifest.shards.index(entry) + 1] - 1
        msg = f"a shard was cut: this member and all behind it, to sample {last}, are lost"
        located = archive.at(ShardDamaged(msg, hint=_RESTORE), *first)
        located.start, located.stop = end, entry.stream_bytes
        yield located


def _found_at(archive: Archive, position: int, place: Place, tape: Tape) -> Iterator[FastfeedError]:
    """Where a member begins, by the index, which the tape then goes to."""
    if place.start != tape.at + tar.BLOCK_BYTES:
        msg = "index and shard disagree where a member begins"
        moved = IndexDamaged(msg, expected=tape.at + tar.BLOCK_BYTES, got=place.start, hint=_RESTORE)
        yield archive.at(moved, position, place)
        tape.skip(place.start - tape.at - tar.BLOCK_BYTES)


def _member(archive: Archive, position: int, place: Place, tape: Tape) -> Iterator[FastfeedError]:
    """Header, payload and padding of one member."""
    size = place.stop - place.start
    yield from _found_at(archive, position, place, tape)
    begin = tape.at
    rows = archive.index.jpeg_rows
    header, problem = tape.take(tar.BLOCK_BYTES), _payload(place, tape, whole=rows is not None and rows.has(place.row))
    padding = tape.take(tar.padding_bytes(size))
    if tape.at < begin + tar.span_bytes(size):
        return  # the shard ends here
    lost = tape.lost_in(begin, tape.at) if tape.lost else []
    if lost:  # what was taken is not what is there: one finding a frame tells of all that is lost with it
        for frame in lost:
            frame.members.append((position, place))
        tape.payload = None
        return
    try:
        check_header(header, archive.member_name(position, place.field), size)
    except ShardDamaged as error:
        located = archive.at(error, position, place)
        located.start, located.stop = begin, begin + tar.BLOCK_BYTES
        yield located
    if problem is not None:
        yield archive.at(problem, position, place)
    elif rows is not None and tape.payload is not None:
        yield from row_findings(archive, position, place, tape.payload)
    if padding.strip(b"\0"):
        located = archive.at(ShardDamaged("the padding behind a member is not zeros", hint=_RESTORE), position, place)
        located.start, located.stop = place.stop, place.stop + tar.padding_bytes(size)
        yield located


def _payload(place: Place, tape: Tape, *, whole: bool) -> ShardDamaged | None:
    """A payload against its checksum; it is kept on the tape where it is small or wanted whole."""
    digest, size = xxhash.xxh3_64(), place.stop - place.start
    left, tape.payload, pieces = size, b"" if size == 0 else None, list[bytes]()
    while left:
        piece = tape.take(min(left, CHUNK_BYTES))
        if not piece:
            return None  # the shard ends here
        digest.update(piece)
        left -= len(piece)
        tape.payload = piece if len(piece) == size else None
        if whole and len(piece) < size:
            pieces.append(piece)
    if pieces:
        tape.payload = b"".join(pieces)
    if digest.intdigest() != place.xxh3:
        msg = "the bytes of a member differ from their checksum"
        return ShardDamaged(msg, expected=f"xxh3 {place.xxh3:016x}", got=digest.hexdigest(), hint=_RESTORE)
    return None
