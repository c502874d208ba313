"""A tar behind gzip: read once with zlib, which proves every byte, and at random through the seek points of indexed_gzip.

Sources: RFC 1952 (members may follow one another; each ends with CRC-32 and size), zlib's examples/zran.c, whose method
indexed_gzip follows: a seek point is the 32 KiB before a place, with which decompression can begin there.
"""

import os
import zlib
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from fastfeed.archive.regular import open_regular
from fastfeed.optional import load
from fastfeed.store.blocks import StreamDamaged, StreamedBlocks

MAGIC = b"\x1f\x8b"
SPACING_BYTES = 4 << 20
"""Of the tar between two seek points: they take 0.8 % of it, and a read at random decompresses 2 MiB on average."""
_STEP_BYTES, _SMALL_STEP_BYTES = 64 << 10, 64
_WITH_HEADER = 31  # zlib's window bits for a gzip member, checksum checked
_PACKAGE = "indexed_gzip", "gz", "reading a .tar.gz at random"


def chunks(descriptor: int) -> Iterator[bytes]:
    """Decompress a file from its start to its end, one gzip member after the other.

    Raises:
        OSError: The file cannot be read.
        StreamDamaged: It ends within a member, a member is damaged, or what follows is none.
    """
    at, decoder, began = 0, zlib.decompressobj(_WITH_HEADER), 0
    while data := os.pread(descriptor, _STEP_BYTES, at):
        if decoder.eof:
            if not data.strip(b"\0"):  # zeros behind the last member: tapes and some writers leave them
                at += len(data)
                continue
            decoder, began = zlib.decompressobj(_WITH_HEADER), at
        before = decoder.copy()
        try:
            out = decoder.decompress(data)
        except zlib.error as error:
            yield from _up_to_the_damage(before, data)
            stream = f"the gzip stream that begins at byte {began} of the compressed file"
            if "data check" in str(error) or "length check" in str(error):
                msg = f"the bytes of {stream} do not fit its checksum: some are damaged, and nobody can say which ({error})"
            else:
                msg = f"{stream} is damaged near byte {at} ({error})"
            raise StreamDamaged(msg) from error
        at += len(data) - len(decoder.unused_data)
        if out:
            yield out
    if not decoder.eof:
        msg = f"the compressed file ends at byte {at}, within the gzip stream that begins at byte {began}"
        raise StreamDamaged(msg)


def _up_to_the_damage(decoder: "zlib._Decompress", data: bytes) -> Iterator[bytes]:
    """What comes out before the decoder fails: in one piece it gives nothing then."""
    for at in range(0, len(data), _SMALL_STEP_BYTES):
        try:
            out = decoder.decompress(data[at : at + _SMALL_STEP_BYTES])
        except zlib.error:
            return  # the caller tells of it
        if out:
            yield out


def write_seek_points(path: str, target: str) -> None:
    """Find the seek points of a file and write them in indexed_gzip's own format; of a damaged one those before the damage.

    Raises:
        UsageError: indexed_gzip is not installed.
        OSError: The file cannot be read, or the target not be written.
    """
    package = load(*_PACKAGE)
    with package.IndexedGzipFile(path, spacing=SPACING_BYTES, skip_crc_check=True, drop_handles=False) as file:
        with suppress(package.ZranError):  # chunks() has told of the damage
            file.build_full_index()
        with open(target, "wb") as out:
            file.export_index(fileobj=out)
            out.flush()
            os.fsync(out.fileno())


class GzipTar:
    """Reads ranges of a tar from the nearest seek point before them. For one thread.

    In front of damage that does not do: the package reads ahead, and fails. Then the file is read from its start.

    Args:
        path: The compressed file.
        seek_points: What write_seek_points wrote.

    Raises:
        UsageError: indexed_gzip is not installed.
        OSError: A file cannot be opened.
        StreamDamaged: The seek points do not fit the file.
    """

    def __init__(self, path: str, seek_points: str) -> None:
        package = load(*_PACKAGE)
        self._path, self._descriptor, self._blocks = path, -1, StreamedBlocks(iter(()))
        try:
            with open(seek_points, "rb") as points:
                # It opens the file anew for each call: an open one would share its place with the processes that a fork makes.
                self._file = package.IndexedGzipFile(path, skip_crc_check=True, drop_handles=True)
                self._file.import_index(fileobj=points)
        except package.ZranError as error:
            msg = f"the seek points in {seek_points} do not fit ({error})"
            raise StreamDamaged(msg) from error
        # Unbuffered: each call of it begins anew at a seek point, so a buffer that is filled in two calls costs double.
        self._raw: Any = self._file.raw
        self._error: type[Exception] = package.ZranError

    def read(self, start: int, stop: int) -> bytes:
        """Bytes [start, stop) of the tar, fewer where it ends before.

        Raises:
            OSError: The file cannot be read.
            StreamDamaged: It does not decompress.
        """
        try:
            self._raw.seek(start)
            return bytes(self._raw.read(stop - start))
        except self._error:
            return self._from_the_start(start, stop)

    def _from_the_start(self, start: int, stop: int) -> bytes:
        if self._descriptor < 0:
            self._descriptor = open_regular(self._path)
            self._blocks = StreamedBlocks(chunks(self._descriptor))
        elif start < self._blocks.at:
            self._blocks = StreamedBlocks(chunks(self._descriptor))
        return self._blocks.read(start, stop - start)

    def __del__(self) -> None:
        if getattr(self, "_descriptor", -1) >= 0:
            os.close(self._descriptor)
