"""Text files of rows, plain or compressed, as UTF-8; what is wrong with their bytes is named by line and byte."""

import gzip
import io
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, TextIO

from fastfeed.archive.regular import open_regular
from fastfeed.errors import SourceError, SourceUnreadable
from fastfeed.units import format_size

COMPRESSED = (".gz", ".zst")
_READ_BYTES = 1 << 16
MAX_LINE_BYTES = 256 << 20
"""Of a compressed file. A line is held in memory whole, and a few hundred kilobytes can decompress to one of gigabytes. No
row that is meant is so long: a photo of 100 MB in base64 is half of it."""
_BUFFER_BYTES = 1 << 18
_BOM = b"\xef\xbb\xbf"
_WIDE = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}
_RESTORE = "The file is cut or damaged: copy it again."


@contextmanager
def open_bytes(path: str) -> Iterator[BinaryIO]:
    """A file's bytes, decompressed where the name ends in .gz or .zst.

    Raises:
        SourceUnreadable: It cannot be opened or read; raised also for errors inside the block.
        SourceError: It is no such compressed file, or cut, or a line of it is longer than MAX_LINE_BYTES.
    """
    damage: list[type[Exception]] = [gzip.BadGzipFile, zlib.error, EOFError]
    try:
        with open(path, "rb", opener=open_regular) as file:
            if path.endswith(".gz"):
                with gzip.GzipFile(fileobj=file) as plain:
                    yield io.BufferedReader(_Lines(plain, path), _BUFFER_BYTES)
            elif path.endswith(".zst"):
                import zstandard  # noqa: PLC0415 - tables that are not compressed so do not load it

                damage.append(zstandard.ZstdError)
                yield io.BufferedReader(_Lines(_Frames(file, zstandard.ZstdDecompressor()), path), _BUFFER_BYTES)
            else:
                yield file
    except OSError as error:
        if isinstance(error, gzip.BadGzipFile):
            raise _cut(path, error) from error
        msg = f"the table cannot be read: {error.strerror}"
        raise SourceUnreadable(msg, path=path) from error
    except tuple(damage) as error:
        raise _cut(path, error) from error


class _Lines(io.RawIOBase):
    """What a decompressor gives, as long as its lines end: whoever reads a line would else hold what never ends."""

    def __init__(self, plain: io.BufferedIOBase | io.RawIOBase, path: str) -> None:
        self._plain, self._path = plain, path
        self._line, self._length = 1, 0
        """Number of the line that has not ended yet, and its bytes so far."""

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any, /) -> int:  # noqa: ANN401 - anything with a buffer
        """Some bytes, 0 at the end.

        Raises:
            SourceError: A line is too long.
        """
        data = self._plain.read(len(buffer)) or b""
        buffer[: len(data)] = data
        end = data.rfind(b"\n")
        self._line += data.count(b"\n")
        self._length = len(data) - end - 1 if end >= 0 else self._length + len(data)
        if self._length > MAX_LINE_BYTES:
            msg = f"line {self._line} of {os.path.basename(self._path)} is too long when it is decompressed"
            hint = "Divide that line, or decompress the file if it is meant so."
            expected = f"at most {format_size(MAX_LINE_BYTES)}"
            raise SourceError(msg, path=self._path, expected=expected, got="more", hint=hint)
        return len(data)


class _Frames(io.RawIOBase):
    """The content of zstd frames. zstandard's own reader takes a frame that is cut for one that ends there."""

    def __init__(self, file: BinaryIO, decompressor: Any) -> None:  # noqa: ANN401 - of zstandard, which loads only when used
        self._file, self._decompressor = file, decompressor
        self._frame: Any = None
        self._plain = memoryview(b"")

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any, /) -> int:  # noqa: ANN401 - anything with a buffer
        """Some bytes, 0 at the end.

        Raises:
            EOFError: The file ends within a frame.
        """
        while not self._plain:
            data = self._file.read(_READ_BYTES)
            if not data:
                if self._frame is not None:
                    msg = "it ends within a frame"
                    raise EOFError(msg)
                return 0
            self._plain = memoryview(b"".join(self._pieces(data)))
        size = min(len(buffer), len(self._plain))
        buffer[:size], self._plain = self._plain[:size], self._plain[size:]
        return size

    def _pieces(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._frame is None:
                self._frame = self._decompressor.decompressobj()
            yield self._frame.decompress(data)
            if not self._frame.eof:
                return
            data, self._frame = self._frame.unused_data, None


def _cut(path: str, error: Exception) -> SourceError:
    return SourceError(f"the table cannot be decompressed ({error})", path=path, hint=_RESTORE)


@contextmanager
def open_text(path: str, newline: str) -> Iterator[TextIO]:
    r"""A file's text; a byte order mark at its start is left out.

    Args:
        path: The file.
        newline: As open()'s: "" splits lines at \n, \r\n and \r, "\n" at \n alone; nothing is translated.

    Raises:
        SourceError: It is not UTF-8; line and byte are named. Raised also for errors inside the block.
        SourceUnreadable: As open_bytes.
    """
    try:
        with open_bytes(path) as file:
            yield io.TextIOWrapper(file, encoding="utf-8-sig", newline=newline)
    except UnicodeDecodeError as error:
        raise _not_utf8(path) from error


def _not_utf8(path: str) -> SourceError:
    """Where the first wrong byte is: found by reading once more, since a stream's error knows only its own buffer."""
    hint = "Convert it, for instance with: iconv -f WINDOWS-1252 -t UTF-8."
    start = 0
    with open_bytes(path) as file:
        for number, line in enumerate(file, 1):
            wide = _WIDE.get(line[:2]) if number == 1 else None
            if wide is not None:
                msg = f"the table is {wide}, not UTF-8: it begins with the mark {line[:2].hex(' ')}"
                return SourceError(msg, path=path, start=0, stop=2, hint=f"Convert it: iconv -f {wide} -t UTF-8.")
            try:
                line.decode()
            except UnicodeDecodeError as error:
                at = start + error.start
                what = f"byte {error.start + 1} of it is 0x{line[error.start]:02x}"
                msg = f"line {number} of {os.path.basename(path)} is not UTF-8: {what}"
                return SourceError(msg, path=path, start=at, stop=at + 1, hint=hint)
            start += len(line)
    return SourceError("the table changed while it was read", path=path, hint="Read it again when nothing writes to it.")
