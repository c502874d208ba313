"""Where a shard's bytes go: under a temporary name, hashed as they pass, flushed to the disk, and only then renamed.

Whatever fails or is killed in between, the shard is there whole or not at all.
"""

import hashlib
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from fastfeed.archive import tar
from fastfeed.disk import remove, sync_folder

if TYPE_CHECKING:
    from fastfeed.archive.frame import FrameWriter

FLUSH_BYTES = 1 << 19
"""Pieces are joined to at least so many bytes before they are hashed and written."""
_WRITEBACK_BYTES = 8 << 20
"""As soon as so many bytes are written, the disk is asked to begin with them."""


@dataclass(frozen=True, slots=True)
class Finished:
    """What is known of a shard once it is whole."""

    sha256: str
    """Of the file."""
    size_bytes: int
    """Of the file."""
    tar_bytes: int
    """Of the tar stream in it; the file itself where that is a plain tar."""


class ShardFile:
    """Writes one shard, a plain tar or a compressed one. Leaving the context before finish() leaves nothing on the disk.

    Args:
        part: Temporary name, in a folder of the same file system.
        target: Where the shard goes.
        framing: Level and frame_bytes of a compressed shard.

    Raises:
        OSError: The disk refuses; so do all methods.
    """

    def __init__(self, part: str, target: str, framing: Sequence[int] | None = None) -> None:
        self.part, self.target = part, target
        self._sha256 = hashlib.sha256()
        self._tar_bytes = self._size_bytes = self._begun_bytes = self._waiting_bytes = 0
        self._waiting: list[bytes] = []
        self._frames = None if framing is None else self._framed(*framing)
        self._descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._descriptor >= 0:
            self._close()
            remove(self.part)

    def _framed(self, level: int, frame_bytes: int) -> "FrameWriter":
        from fastfeed.archive.frame import FrameWriter  # noqa: PLC0415 - plain tars need no zstandard

        return FrameWriter(self._put, level=level, frame_bytes=frame_bytes)

    def begin_sample(self) -> None:
        """What is written next begins a new sample: frames are cut there. In a plain tar nothing marks that."""
        if self._frames is not None:
            self._frames.begin_sample()

    def write(self, *pieces: bytes) -> None:
        """The next bytes of the tar stream; of one sample where the shard is compressed."""
        if self._frames is not None:
            self._frames.write(*pieces)
            return
        self._waiting += pieces
        for piece in pieces:
            self._waiting_bytes += len(piece)
        if self._waiting_bytes >= FLUSH_BYTES:
            self._flush()

    def finish(self, save: Callable[[Finished], object], *, trailer: bool = True) -> Finished:
        """Trailer, flush to the disk, rename.

        Args:
            save: Called when all bytes are on the disk and before they have their name: what must be known of a shard
                that is there is kept now.
            trailer: False where it was written already, as the end of a tar that is only carried over.
        """
        if trailer:
            self.begin_sample()
            self.write(tar.trailer(self.tar_bytes))
        tar_bytes = self.tar_bytes
        if self._frames is None:
            self._flush()
        else:
            self._frames.finish()
        os.fsync(self._descriptor)
        self._close()
        done = Finished(self._sha256.hexdigest(), self._size_bytes, tar_bytes)
        try:
            save(done)
            os.rename(self.part, self.target)
        except BaseException:  # Ctrl-C too: whatever it is, it goes on, and no temporary file stays
            remove(self.part)
            raise
        sync_folder(os.path.dirname(self.target))
        return done

    @property
    def tar_bytes(self) -> int:
        """Of the tar stream so far."""
        return self._tar_bytes + self._waiting_bytes if self._frames is None else self._frames.tar_bytes

    def _flush(self) -> None:
        """Join what waits and pass it on."""
        data = b"".join(self._waiting)
        self._waiting.clear()
        self._waiting_bytes = 0
        self._tar_bytes += len(data)
        self._put(data)

    def _put(self, data: bytes) -> None:
        """Bytes of the file."""
        self._sha256.update(data)
        self._size_bytes += len(data)
        view = memoryview(data)
        while view:
            view = view[os.write(self._descriptor, view) :]
        if self._size_bytes - self._begun_bytes >= _WRITEBACK_BYTES:
            self._begin_writeback()

    def _begin_writeback(self) -> None:
        """Let the disk write while the next bytes are gathered, so that the flush at the end has little left to wait for.

        Linux begins with dirty pages that it is told are not needed, and keeps them in the page cache, being dirty.
        """
        start, size = self._begun_bytes, self._size_bytes - self._begun_bytes
        with suppress(OSError):  # where there is no such call, all of it is left to the flush, which alone is relied on
            os.posix_fadvise(self._descriptor, start, size, os.POSIX_FADV_DONTNEED)
        self._begun_bytes = self._size_bytes

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        os.close(descriptor)
