"""A walk over the headers of a tar that somebody else wrote: every member, and every byte that belongs to none.

Python's tarfile, and with it webdataset, stops without a word at the first header that does not hold. This walk names
the place, looks for the next header that holds, and goes on.
"""

import os
from collections.abc import Iterator
from typing import NamedTuple

import xxhash

from fastfeed.sample import printable
from fastfeed.source import tarheader
from fastfeed.source.tarheader import BLOCK_BYTES, ZEROS, BadHeader, Header
from fastfeed.store.blocks import Blocks, StreamDamaged
from fastfeed.units import format_count

_CHUNK_BYTES = 1 << 20
_HEAD_BYTES = 20
"""Payloads up to this size are handed out with their member: a class number lies beside its header."""


class Member(NamedTuple):
    """A regular file in the tar."""

    name: bytes
    start: int
    """First payload byte."""
    size: int
    xxh3: int
    """Of the payload; 0 where checksums were not asked for."""
    head: bytes
    """The payload where it is tiny, else nothing."""


class Finding(NamedTuple):
    """Something in a tar that is no sample, or that readers differ about."""

    kind: str
    """A word of archive/README.md §11.4."""
    start: int
    """First byte of the tar that it is about."""
    stop: int
    text: str
    """What it is, in words."""
    member: bytes = b""
    """Name of the member that is lost, where it is known."""


class Walk:
    """One walk.

    Args:
        blocks: The tar's bytes.
        checksums: Read each payload and give its xxh3.
    """

    def __init__(self, blocks: Blocks, *, checksums: bool = False) -> None:
        self._blocks, self._checksums = blocks, checksums
        self.at = 0
        """How far it is."""
        self._from = 0
        """Where the headers of the member at hand begin."""
        self._pax_of_all: dict[bytes, bytes] = {}
        self._pending: dict[bytes, bytes] = {}
        """PAX records of the next member alone; a GNU long name counts as its path."""
        self._found: list[Member | Finding] = []

    def run(self) -> Iterator[Member | Finding]:
        """Each member, and each finding where it lies, in the tar's order."""
        more = True
        while more:
            try:
                more = self._step_or_damage()
            except StreamDamaged as error:
                self._find("stream", self.at, self.at, f"{error}; reading ended at byte {self.at} of the tar")
                more = False
            except OSError as error:
                self._find("unreadable", self.at, self.at, f"the file cannot be read from here on: {error.strerror}")
                more = False
            yield from self._found
            self._found.clear()

    def _step_or_damage(self) -> bool:
        try:
            return self._step()
        except BadHeader as error:
            return self._damaged(str(error))

    def _find(self, kind: str, start: int, stop: int, text: str, member: bytes = b"") -> None:  # noqa: PLR0917 - a record
        self._found.append(Finding(kind, start, stop, text, member))

    def _step(self) -> bool:
        """One header and what belongs to it; whether there may be more."""
        block = self._blocks.read(self.at, BLOCK_BYTES)
        if len(block) < BLOCK_BYTES:
            self._end(block)
            return False
        if block == ZEROS:
            return self._zeros()
        if not self._pending:
            self._from = self.at
        header = tarheader.parse(block)
        if header.kind in tarheader.REGULAR and not self._pending and not self._pax_of_all:
            return self._member(header)
        return self._special(header, block)

    def _member(self, header: Header) -> bool:
        """A regular file, or the finding that it reaches beyond the tar's end."""
        blocks, start, size = self._blocks, self.at + BLOCK_BYTES, header.size
        if blocks.seekable and not blocks.reaches(start + size):
            return self._cut(header)
        head = blocks.read(start, size) if 0 < size <= _HEAD_BYTES else b""
        xxh3 = self._digest(start, size) if self._checksums else 0
        if not blocks.seekable and not blocks.reaches(start + size):
            return self._cut(header)
        self._pending = {}
        self.at = start + size + -size % BLOCK_BYTES
        self._found.append(Member(header.name, start, size, xxh3, head))
        return True

    def _digest(self, start: int, size: int) -> int:
        digest = xxhash.xxh3_64()
        for begin in range(start, start + size, _CHUNK_BYTES):
            digest.update(self._blocks.read(begin, min(_CHUNK_BYTES, start + size - begin)))
        return digest.intdigest()

    def _cut(self, header: Header) -> bool:
        """A member that states more bytes than there are: the end of the file was lost, or the number is absurd."""
        name = _shown(header.name)
        text = f"{name} states {format_count(header.size, 'byte')}, and the tar ends before that"
        return self._go_on("cut", text, header.name)

    def _damaged(self, why: str) -> bool:
        """Bytes that are no header."""
        return self._go_on("damaged", why if self._from or self.at else f"{why}: this is no tar, or its beginning is damaged")

    def _go_on(self, kind: str, text: str, member: bytes = b"") -> bool:
        """Look for the next header that holds, and say what lies before it; whether there is one."""
        begin, self._pending = self._from, {}
        passed = kind == "cut" and not self._blocks.seekable  # the stream has been read to its end
        found = None if passed else self._next_header(self.at + BLOCK_BYTES)
        self.at = self._blocks.length() if found is None else found
        rest = "no header holds behind it" if found is None else f"the next header that holds is at byte {found}"
        self._find(kind, begin, max(begin, self.at), f"{text}; {rest}", member)
        return found is not None

    def _next_header(self, at: int) -> int | None:
        """The first block from a place on that is a header, None where there is none."""
        while True:
            chunk = self._blocks.read(at, self._chunk_bytes())
            for begin in range(0, len(chunk) - BLOCK_BYTES + 1, BLOCK_BYTES):
                checksum = chunk[begin + 148 : begin + 154].strip(b" \0")
                if checksum.isdigit() and tarheader.holds(chunk[begin : begin + BLOCK_BYTES]):
                    return at + begin
            if len(chunk) < self._chunk_bytes():
                return None
            at += len(chunk)

    def _chunk_bytes(self) -> int:
        """How much is looked at together: of a stream a block, since what has passed does not come back."""
        return _CHUNK_BYTES if self._blocks.seekable else BLOCK_BYTES

    def _special(self, header: Header, block: bytes) -> bool:
        """Whatever is not a plain regular file."""
        if header.kind in tarheader.ABOUT_OTHERS:
            self._extended(header)
            return True
        records = {**self._pax_of_all, **self._pending}
        header = tarheader.apply_pax(header, records)
        if header.kind == tarheader.SPARSE or tarheader.is_sparse(records):
            return self._sparse(header, block)
        if header.kind in tarheader.REGULAR:
            return self._member(header)
        size = 0 if header.kind in tarheader.BODILESS else header.size
        if not self._passes(header, size):
            return False
        if header.kind != tarheader.FOLDER:
            what = tarheader.KINDS.get(header.kind, f"a member of the unknown type {header.kind!r}")
            kind = "link" if header.kind in tarheader.LINKS else "special"
            self._find(kind, self._from, self.at, f"{_shown(header.name)} is no file: {what}")
        self._pending = {}
        return True

    def _passes(self, header: Header, size: int) -> bool:
        """Go behind a member that is not used, if the tar reaches so far; else that is a finding."""
        stop = self.at + BLOCK_BYTES + size
        if not self._blocks.reaches(stop):
            return self._cut(header)
        self.at = stop + -size % BLOCK_BYTES
        return True

    def _extended(self, header: Header) -> None:
        """A header about the next one, or about all that follow."""
        start, size = self.at + BLOCK_BYTES, header.size
        if size > tarheader.MAX_EXTENDED_BYTES:
            msg = f"a header about the next member states {format_count(size, 'byte')}"
            raise BadHeader(msg)
        raw = self._blocks.read(start, size)
        if len(raw) < size:
            msg = f"the tar ends within a header about the next member, behind {len(raw)} of {size} bytes"
            raise BadHeader(msg)
        if header.kind == tarheader.LONG_NAME:
            self._pending[b"path"] = raw.partition(b"\0")[0]
        elif header.kind == tarheader.PAX_OF_ALL:
            self._pax_of_all.update(tarheader.pax_records(raw))
        elif header.kind != tarheader.LONG_LINK:
            self._pending.update(tarheader.pax_records(raw))
        self._pending[b""] = b""  # something is pending, whatever it says: the member begins here
        self.at = start + size + -size % BLOCK_BYTES

    def _sparse(self, header: Header, block: bytes) -> bool:
        more = header.kind == tarheader.SPARSE and block[tarheader.MORE_IN_HEADER] != 0
        while more:
            self.at += BLOCK_BYTES
            extension = self._blocks.read(self.at, BLOCK_BYTES)
            more = len(extension) == BLOCK_BYTES and extension[tarheader.MORE_IN_EXTENSION] != 0
        if not self._passes(header, header.size):
            return False
        text = f"{_shown(header.name)} is stored as a sparse file, a map of pieces, so its bytes do not lie together"
        self._find("sparse", self._from, self.at, f"{text}: make the tar without --sparse", header.name)
        self._pending = {}
        return True

    def _end(self, rest: bytes) -> None:
        """The tar's end without an end mark before it."""
        self.at = min(self.at, self._blocks.length())  # the padding of the last member may be missing
        begin, stop = (self._from if self._pending else self.at), self.at + len(rest)
        if rest.strip(b"\0"):
            self._find("cut", begin, stop, f"the tar ends within a header, of which there are {len(rest)} bytes")
        elif self._pending:
            self._find("cut", begin, stop, "the tar ends behind a header that is about the next member")
        elif not self.at:
            self._find("damaged", 0, stop, f"this is no tar: it has {format_count(len(rest), 'byte')}")
        else:
            text = "the tar ends without the zeros that mark its end: it may have been cut between two members"
            self._find("open-end", begin, stop, text)
        self.at = stop

    def _zeros(self) -> bool:
        """An end mark; whether something follows it."""
        begin = self.at
        following = self._after_zeros(begin)
        if following is None:
            self.at = self._blocks.length()
            if self._pending:
                self._find("cut", self._from, begin, "the tar ends behind a header that is about the next member")
            return False
        zeros = following - begin
        if self._pending or not tarheader.holds(self._blocks.read(following, BLOCK_BYTES)):
            self.at, self._from = following, self._from if self._pending else begin
            return self._damaged(f"where a header should be there are {zeros} zeros, and no header behind them")
        text = f"an end mark stands here, and members follow from byte {following} on: tar and webdataset do not read them"
        self._find("end-mark", begin, following, text)
        self.at = following
        return True

    def _after_zeros(self, at: int) -> int | None:
        """The first whole block from a place on that is not all zeros, None where there is none."""
        while True:
            chunk = self._blocks.read(at, self._chunk_bytes())
            kept = chunk.lstrip(b"\0")
            if kept:
                at += (len(chunk) - len(kept)) // BLOCK_BYTES * BLOCK_BYTES
                return at if len(self._blocks.read(at, BLOCK_BYTES)) == BLOCK_BYTES else None
            if len(chunk) < self._chunk_bytes():
                return None
            at += len(chunk)


def _shown(name: bytes) -> str:
    return printable(os.fsdecode(name))
