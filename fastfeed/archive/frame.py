"""Zstandard frames of a compressed shard. README.md §10.

A frame is a standard one with its content's size and checksum in it, so any zstd decoder reads a shard from its start to
its end. Whoever reads at random takes the frames that hold the wanted bytes from the seek table.

Two traps of python-zstandard: one-shot decompress() gives the first frame alone and says nothing of what lies behind it
(allow_extra_data=False), and it allocates what a frame's header claims, so the header is proven before it is believed.
"""

import struct
import threading
from array import array
from collections.abc import Callable, Iterator
from itertools import count

import zstandard

from fastfeed.archive import seektable
from fastfeed.archive.seektable import Frame, Framed
from fastfeed.archive.shard import RESTORE
from fastfeed.errors import ShardDamaged

_MAGIC = zstandard.MAGIC_NUMBER.to_bytes(4, "little")
_CHECKSUM = struct.Struct("<I")
_MAX_HEADER_BYTES = 18
_MAX_BLOCK_BYTES = 128 << 10
_RLE, _RESERVED = 1, 3
_LOCAL = threading.local()


def encoder() -> str:
    """The library that compresses: another version may make other bytes of the same content."""
    return f"zstd {'.'.join(map(str, zstandard.ZSTD_VERSION))}"


def compressor(level: int) -> Callable[[bytes], bytes]:
    """A function that makes a frame of its content."""
    return zstandard.ZstdCompressor(level=level, write_checksum=True, write_content_size=True, write_dict_id=False).compress


class FrameWriter:
    """Cuts a tar stream into frames: as many whole samples as fit into frame_bytes, a larger sample into several.

    So no frame holds more than frame_bytes, which bounds what a reader must decode for one sample and what it allocates.
    The frames depend on nothing but the stream, the edges, the arguments and encoder(): there is one context a shard, and
    how the stream comes in pieces changes nothing.

    Args:
        put: Takes the bytes of the file, in order.
        level: 1 to 22.
        frame_bytes: The most that a frame holds of the stream.
    """

    def __init__(self, put: Callable[[bytes], object], *, level: int, frame_bytes: int) -> None:
        self.tar_bytes = 0
        """Of the stream so far."""
        self._put, self._frame_bytes = put, frame_bytes
        self._compress = compressor(level)
        self._entries = array("I")
        self._waiting: list[bytes] = []
        self._waiting_bytes = self._edge = 0

    def begin_sample(self) -> None:
        """What is written next begins a new sample."""
        self._edge = self._waiting_bytes

    def write(self, *pieces: bytes) -> None:
        """The next bytes of the stream."""
        self._waiting += pieces
        for piece in pieces:
            self._waiting_bytes += len(piece)
            self.tar_bytes += len(piece)
        if self._waiting_bytes > self._frame_bytes:
            self._cut()

    def finish(self) -> None:
        """The last frame and the seek table."""
        if self._waiting_bytes:
            self._frame(b"".join(self._waiting))
            self._waiting.clear()
        self._put(seektable.encode(self._entries))

    def _cut(self) -> None:
        """More waits than one frame holds: it ends where the last sample began, or in the midst of that if it is alone."""
        waiting, at = b"".join(self._waiting), 0
        while len(waiting) - at > self._frame_bytes:
            stop = at + (self._edge or self._frame_bytes)
            self._frame(waiting[at:stop])
            at, self._edge = stop, 0
        self._waiting, self._waiting_bytes = [waiting[at:]], len(waiting) - at

    def _frame(self, content: bytes) -> None:
        frame = self._compress(content)
        self._entries.extend((len(frame), len(content), *_CHECKSUM.unpack(frame[-_CHECKSUM.size :])))
        self._put(frame)


def decode(raw: bytes | bytearray, frame: Frame, shard: str) -> bytes:
    """A frame's content, proven by its checksum.

    Args:
        raw: All bytes of the frame and no more.
        frame: What the seek table says of it.
        shard: For messages.

    Raises:
        ShardDamaged: They are not a frame of such content.
    """
    try:
        found = zstandard.get_frame_parameters(raw)
    except zstandard.ZstdError as error:
        raise _damaged("does not begin as one", frame, shard, raw[:4].hex()) from error
    content_bytes = frame.tar_stop - frame.tar_start
    if found.content_size != content_bytes:
        raise _damaged(f"says that it holds another size than {content_bytes} bytes", frame, shard, found.content_size)
    if not found.has_checksum or found.dict_id or found.window_size > max(content_bytes, 1024):
        got = f"checksum {bool(found.has_checksum)}, dictionary {found.dict_id}, window of {found.window_size} bytes"
        raise _damaged("is not written as the format says", frame, shard, got)
    stored = int(_CHECKSUM.unpack(raw[-_CHECKSUM.size :])[0])
    if frame.checksum not in {None, stored}:
        raise _damaged(f"has another checksum than the seek table's {frame.checksum:08x}", frame, shard, f"{stored:08x}")
    if not hasattr(_LOCAL, "decompress"):
        _LOCAL.decompress = zstandard.ZstdDecompressor().decompress  # a context belongs to one thread
    try:
        content: bytes = _LOCAL.decompress(raw, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise _damaged("cannot be decoded", frame, shard, str(error)) from error
    return content


def scan(pread: Callable[[int, int], bytes], facts: Framed) -> Iterator[Frame]:
    """The frames of a shard whose seek table is lost, one after another, as far as there are whole ones.

    Each says how much it holds, and its blocks say where it ends; nothing is decoded for that.

    Args:
        pread: Gives bytes [start, stop) of the file.
        facts: What the manifest says; size_bytes is the file's real size.
    """
    at = tar_at = 0
    for number in count():
        raw = pread(at, min(at + seektable.compressed_at_most(facts.frame_bytes), facts.size_bytes))
        if not raw.startswith(_MAGIC):
            return  # the seek table, or what is no frame any more
        try:
            found = zstandard.get_frame_parameters(raw)
            size = _frame_size(raw, zstandard.frame_header_size(raw[:_MAX_HEADER_BYTES]), has_checksum=found.has_checksum)
        except zstandard.ZstdError:
            return  # what is left of a frame
        if size is None or not 1 <= found.content_size <= facts.frame_bytes:
            return
        yield Frame(number, at, at + size, tar_at, tar_at + found.content_size, None)
        at, tar_at = at + size, tar_at + found.content_size


def _frame_size(raw: bytes, header_bytes: int, *, has_checksum: bool) -> int | None:
    """Bytes of the frame that raw begins with, None where it does not end there. Source: RFC 8878, 3.1.1.2."""
    at, last = header_bytes, False
    while not last:
        if at + 3 > len(raw):
            return None
        head = int.from_bytes(raw[at : at + 3], "little")
        last, kind, size = bool(head & 1), head >> 1 & 3, head >> 3
        if kind == _RESERVED or size > _MAX_BLOCK_BYTES:
            return None
        at += 3 + (1 if kind == _RLE else size)
    at += _CHECKSUM.size if has_checksum else 0
    return at if at <= len(raw) else None


def _damaged(what: str, frame: Frame, shard: str, got: object) -> ShardDamaged:
    msg = f"{frame} of a compressed shard {what}: the shard is damaged"
    return ShardDamaged(msg, shard=shard, start=frame.tar_start, stop=frame.tar_stop, got=got, hint=RESTORE)
