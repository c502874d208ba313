"""The writing of one shard, in a worker process.

A shard's record is there before the shard has its real name (packer/shardfile.py). Whatever kills the process, the shard is
there whole or not at all.
"""

import hashlib
import json
import os
import stat
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import ne
from typing import Self

import xxhash

from fastfeed.archive import tar
from fastfeed.archive.shard import digest
from fastfeed.disk import publish
from fastfeed.media import FIRST_BYTES, NOT_AN_IMAGE, probe
from fastfeed.packer.record import Record, write_record
from fastfeed.packer.shardfile import FLUSH_BYTES, Finished, ShardFile
from fastfeed.source import wire
from fastfeed.units import format_count

CHUNK_BYTES = 4 << 20
"""Members larger than this are streamed in pieces of this size, so memory stays flat."""
_REPORT_SECONDS = 0.2
_PADDINGS = [tar.padding(size) for size in range(tar.BLOCK_BYTES)]
_MAX_FAILURES = 1000
_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # never waits at a FIFO that has taken a file's place


@dataclass(frozen=True, slots=True)
class Order:
    """What one shard is made of: everything that decides its bytes, its columns in the form in which they pass the pipe."""

    number: int
    """Of the order within the job."""
    root: str
    target: str
    """Where the shard goes."""
    part: str
    """Temporary name, in the job's folder."""
    record: str
    """Where its checksums go."""
    columns: tuple[bytes, bytes, bytes, bytes]
    """A member a row: names, source paths below root (empty for a class member), both cut by NULs; sizes; mtimes of the
    source files in ns (of a class member its number), both 64 bits in this machine's order."""
    framing: tuple[int, int] | None = None
    """Level and frame_bytes of a compressed shard."""

    @classmethod
    def columns_of(
        cls, names: Sequence[str], paths: Sequence[str], sizes: "array[int]", stamps: "array[int]"
    ) -> tuple[bytes, bytes, bytes, bytes]:
        """The columns."""
        return "\0".join(names).encode("ascii"), os.fsencode("\0".join(paths)), sizes.tobytes(), stamps.tobytes()

    @property
    def digest(self) -> str:
        """Of what decides the shard's bytes and what it is read from: a finished shard counts only for an equal order."""
        digest = hashlib.sha256(json.dumps(self.framing).encode())
        for column in self.columns:
            digest.update(b"%d:" % len(column))
            digest.update(column)
        return digest.hexdigest()

    @property
    def paths(self) -> list[str]:
        """Source paths, empty for a class member."""
        return os.fsdecode(self.columns[1]).split("\0")

    def members(self) -> "Iterator[tuple[bytes, str, int, int]]":
        """Name, path, size and stamp of each."""
        names, _, sizes, stamps = self.columns
        return zip(names.split(b"\0"), self.paths, array("Q", sizes), array("q", stamps), strict=True)

    def begins(self) -> "Iterator[bool]":
        """Whether a sample begins with a member, where that matters. A key has no dot: it is what stands before the first."""
        if self.framing is None:
            return repeat(False, len(self.columns[2]) // 8)  # noqa: FBT003 - nobody asks
        keys = [name.partition(b".")[0] for name in self.columns[0].split(b"\0")]
        return map(ne, keys, [b"", *keys[:-1]])

    @property
    def doing(self) -> str:
        """What a worker did when it died."""
        files = [path for path in self.paths if path]
        if not files:
            return "packed no inputs"
        return f"packed {format_count(len(files), 'input')} from {files[0]!r} to {files[-1]!r}"

    @property
    def shard(self) -> str:
        """File name of the shard."""
        return os.path.basename(self.target)

    def encode(self) -> bytes:
        """The order as it passes the pipe."""
        head = {
            "number": self.number,
            "root": self.root,
            "target": self.target,
            "part": self.part,
            "record": self.record,
            "framing": self.framing,
        }
        return wire.encode({"order": "write", **head}, self.columns)

    @classmethod
    def decode(cls, message: wire.Message) -> Self:
        """Back from the pipe."""
        head = message.head
        names, paths, sizes, stamps = message.columns
        return cls(
            head["number"], head["root"], head["target"], head["part"], head["record"], (names, paths, sizes, stamps),
            head["framing"] and tuple(head["framing"]),
        )  # fmt: skip


class InputFailed(Exception):
    """A source file that cannot be packed as planned."""

    def __init__(self, path: str, kind: str, why: str) -> None:
        super().__init__(path, kind, why)
        self.path, self.kind, self.why = path, kind, why


class DiskFailed(Exception):
    """The shard cannot be written."""


class ShardWriter:
    """Writes one shard.

    Args:
        order: What to write.
        report: Called with (files, bytes) done since the last call, now and then.
    """

    def __init__(self, order: Order, report: Callable[[int, int], None]) -> None:
        self.order, self.report = order, report
        self.record = Record()
        self._files = self._bytes = 0
        self._due = time.monotonic() + _REPORT_SECONDS

    def run(self) -> Finished:
        """Write, flush, rename.

        Raises:
            InputFailed: A source file is not as planned; nothing is left of the shard.
            DiskFailed: The disk refused; nothing is left of the shard.
        """
        try:
            with ShardFile(self.order.part, self.order.target, self.order.framing) as out:
                self._members(out)
                done = out.finish(self._save_record)
        except OSError as error:
            raise DiskFailed(f"{error.filename or self.order.target}: {error.strerror}", error.errno) from error
        self.report(self._files, self._bytes)
        return done

    def _save_record(self, done: Finished) -> None:
        body = (self.record, done, self.order.digest)
        publish(self.order.part + ".record.part", self.order.record, lambda file: write_record(file, *body))

    def _members(self, out: ShardFile) -> None:
        """Header, payload and padding of each member. One loop without calls to spare: it runs once a file."""
        order, sums, probes, pieces = self.order, self.record.xxh3, self.record.probes, list[bytes]()
        waiting = 0
        for (name, path, size, stamp), first in zip(order.members(), order.begins(), strict=True):
            if first:
                _hand_over(pieces, out)
                out.begin_sample()
            pieces.append(tar.header(name, size))
            if not path:
                payload = b"%d" % stamp
                probes.append(NOT_AN_IMAGE)
            elif size <= CHUNK_BYTES:
                payload = read_small(order.root + path, path, size, stamp)
                probes.append(probe(payload) if payload and payload[0] in FIRST_BYTES else NOT_AN_IMAGE)
                self._files += 1
                self._bytes += size
            else:
                _hand_over(pieces, out)
                self._stream(out, path, size, stamp)
                continue
            sums.append(digest(payload))
            pieces.append(payload)
            pieces.append(_PADDINGS[size % tar.BLOCK_BYTES])
            waiting += size + tar.BLOCK_BYTES
            if waiting >= FLUSH_BYTES:
                _hand_over(pieces, out)
                waiting = 0
                self._tell()
        _hand_over(pieces, out)

    def _stream(self, out: ShardFile, path: str, size: int, stamp: int) -> None:
        """A large member in pieces."""
        checksum, left, head = xxhash.xxh3_64(), size, b""
        with Source(self.order.root + path, path, size, stamp) as source:
            while left:
                piece = source.read(min(left, CHUNK_BYTES))
                if not piece:
                    raise InputFailed(path, "changed", f"it ended {left} bytes early")
                head = head or piece
                checksum.update(piece)
                out.write(piece)
                self._bytes += len(piece)
                self._tell()
                left -= len(piece)
            source.prove()  # again: what was written into it meanwhile must not pass
        self.record.xxh3.append(checksum.intdigest())
        self.record.probes.append(probe(head))
        out.write(_PADDINGS[size % tar.BLOCK_BYTES])
        self._files += 1

    def _tell(self) -> None:
        now = time.monotonic()
        if now >= self._due:
            self.report(self._files, self._bytes)
            self._files = self._bytes = 0
            self._due = now + _REPORT_SECONDS


def _hand_over(pieces: list[bytes], out: ShardFile) -> None:
    out.write(*pieces)
    pieces.clear()


class Source:
    """An open source file, proven to be the one that was planned.

    Raises:
        InputFailed: It vanished, may not be read, is no regular file, or has another size or mtime.
    """

    def __init__(self, full: str, path: str, size: int, stamp: int) -> None:
        self.path, self._size, self._stamp = path, size, stamp
        try:
            self._fd = os.open(full, _OPEN)
        except OSError as error:
            raise InputFailed(path, "unreadable", error.strerror or "cannot be opened") from error
        try:
            self.prove()
        except InputFailed:
            os.close(self._fd)
            raise

    def prove(self) -> None:
        """Prove size and mtime, before and after reading.

        Raises:
            InputFailed: It is another file, or it was written to.
        """
        facts = os.fstat(self._fd)
        if facts.st_size != self._size or facts.st_mtime_ns != self._stamp or not stat.S_ISREG(facts.st_mode):
            raise _changed(self.path, self._size, self._stamp, facts)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        os.close(self._fd)

    def read(self, size: int) -> bytes:
        """At most size bytes; empty at the end.

        Raises:
            InputFailed: An I/O error.
        """
        try:
            return os.read(self._fd, size)
        except OSError as error:
            raise InputFailed(self.path, "unreadable", error.strerror or "cannot be read") from error


def read_small(full: str, path: str, size: int, stamp: int) -> bytes:
    """All of a file: Source, open-coded for the system giving it in one read, since this runs once a file.

    It is proven after it was read, so that what is written into it meanwhile is noticed as well.
    """
    try:
        descriptor = os.open(full, _OPEN)
        try:
            data = os.read(descriptor, size + 1)
            while 0 < len(data) < size:
                more = os.read(descriptor, size + 1 - len(data))
                if not more:
                    break
                data += more
            facts = os.fstat(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise InputFailed(path, "unreadable", error.strerror or "cannot be read") from error
    if facts.st_size != size or facts.st_mtime_ns != stamp or len(data) != size or not stat.S_ISREG(facts.st_mode):
        raise _changed(path, size, stamp, facts)
    return data


def _changed(path: str, size: int, stamp: int, facts: os.stat_result) -> InputFailed:
    now = f"now {facts.st_size} and {facts.st_mtime_ns}" if stat.S_ISREG(facts.st_mode) else "now no regular file"
    return InputFailed(path, "changed", f"planned with {size} bytes and mtime {stamp}, {now}")


def _check_rest(order: Order) -> list[InputFailed]:
    """All files of an order that cannot be packed as planned, so that one run names them all."""
    failed: list[InputFailed] = []
    for _, path, size, stamp in order.members():
        if not path or len(failed) >= _MAX_FAILURES:
            continue
        try:
            with Source(order.root + path, path, size, stamp):
                pass
        except InputFailed as error:
            failed.append(error)
    return failed


def carry_out(order: Order, say: Callable[[dict[str, object]], None]) -> None:
    """Write a shard and tell of it: progress now and then, and at last done, inputs (that failed) or disk (that refused)."""
    try:
        ShardWriter(order, lambda files, size: say({"event": "progress", "files": files, "bytes": size})).run()
        say({"event": "done", "shard": order.number})
    except InputFailed as error:
        found = {failure.path: failure for failure in (error, *_check_rest(order))}
        failed = [[failure.path, failure.kind, failure.why] for failure in found.values()]
        say({"event": "inputs", "shard": order.number, "failed": failed})
    except DiskFailed as error:
        say({"event": "disk", "shard": order.number, "what": str(error.args[0]), "errno": error.args[1]})
