"""Where a shard's bytes go: under a temporary name, hashed as they pass, flushed to the disk, and only then renamed.

Whatever fails or is killed in between, the shard is there whole or not at all.
"""

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from fastfeed.archive import tar
from fastfeed.disk import remove, sync_folder

FLUSH_BYTES = 1 << 19
"""Pieces are joined to at least so many bytes before they are hashed and written."""


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
    """Writes one plain tar. Leaving the context before finish() leaves nothing on the disk.

    Args:
        part: Temporary name, in a folder of the same file system.
        target: Where the shard goes.

    Raises:
        OSError: The disk refuses; so do all methods.
    """

    def __init__(self, part: str, target: str) -> None:
        self.part, self.target = part, target
        self.tar_bytes = 0
        """Of the tar stream so far."""
        self._sha256 = hashlib.sha256()
        self._size_bytes = self._waiting_bytes = 0
        self._waiting: list[bytes] = []
        self._descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._descriptor >= 0:
            self._close()
            remove(self.part)

    def begin_sample(self) -> None:
        """What is written next begins a new sample. In a plain tar nothing marks that."""

    def write(self, *pieces: bytes) -> None:
        """The next bytes of the tar stream."""
        self._waiting += pieces
        for piece in pieces:
            self._waiting_bytes += len(piece)
        if self._waiting_bytes >= FLUSH_BYTES:
            self._flush()

    def finish(self, save: Callable[[Finished], object]) -> Finished:
        """Trailer, flush to the disk, rename.

        Args:
            save: Called when all bytes are on the disk and before they have their name: what must be known of a shard
                that is there is kept now.
        """
        self.write(tar.trailer(self.tar_bytes + self._waiting_bytes))
        self._flush()
        os.fsync(self._descriptor)
        self._close()
        done = Finished(self._sha256.hexdigest(), self._size_bytes, self.tar_bytes)
        try:
            save(done)
            os.rename(self.part, self.target)
        except BaseException:
            remove(self.part)
            raise
        sync_folder(os.path.dirname(self.target))
        return done

    def _flush(self) -> None:
        """Join what waits and pass it on."""
        data = b"".join(self._waiting)
        self._waiting.clear()
        self._waiting_bytes = 0
        self.tar_bytes += len(data)
        self._put(data)

    def _put(self, data: bytes) -> None:
        """Bytes of the file."""
        self._sha256.update(data)
        self._size_bytes += len(data)
        view = memoryview(data)
        while view:
            view = view[os.write(self._descriptor, view) :]

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        os.close(descriptor)
