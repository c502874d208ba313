"""Plain files as members: each read opens one, and proves that it is still the file that was listed."""

import os
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from fastfeed.archive.catalog import Catalog, Place
from fastfeed.archive.regular import open_regular
from fastfeed.errors import FastfeedError, SourceChanged, SourceUnreadable


class Listed(NamedTuple):
    """What a file was when it was listed."""

    size_bytes: int
    mtime_ns: int


class FileCatalog(Catalog, Protocol):
    """Samples that are made of plain files."""

    @property
    def root(self) -> str:
        """The folder below which they lie."""

    def facts(self, place: Place) -> Listed:
        """What a file was when it was listed."""


class FileReader:
    """Reads the files of samples.

    Args:
        files: What they are.
    """

    def __init__(self, files: FileCatalog) -> None:
        self.files = files

    def read(self, position: int, place: Place) -> bytes:
        """One file.

        Raises:
            SourceUnreadable: It is gone, or cannot be read.
            SourceChanged: It has another size or modification time than when it was listed.
        """
        return self.read_part(position, place, place.start, place.stop)

    def read_batch(self, wanted: Sequence[tuple[int, Sequence[Place]]], *, fleeting: bool = False) -> list[list[bytes]]:  # noqa: ARG002
        """The files of many samples, in memory of their own.

        Raises:
            SourceUnreadable: As read().
            SourceChanged: As read().
        """
        return [[self.read(position, place) for place in places] for position, places in wanted]

    def read_part(self, position: int, place: Place, start: int, stop: int) -> bytes:
        """Bytes [start, stop) of a file.

        Raises:
            SourceUnreadable: As read().
            SourceChanged: As read().
        """
        try:
            descriptor = open_regular(os.path.join(self.files.root, place.shard))
            try:
                data = _pread(descriptor, start, stop)
                after = os.fstat(descriptor)  # behind the read, so that a change during it is seen as well
            finally:
                os.close(descriptor)
        except OSError as error:
            msg = f"a file cannot be read: {error.strerror}"
            raise self.located(SourceUnreadable(msg, hint=self.files.remedy), position, place) from error
        listed = self.files.facts(place)
        if (after.st_size, after.st_mtime_ns) != (listed.size_bytes, listed.mtime_ns):
            msg = "a file has changed since it was listed"
            expected = f"{listed.size_bytes} bytes, modified at {listed.mtime_ns} ns"
            got = f"{after.st_size} bytes, modified at {after.st_mtime_ns} ns"
            raise self.located(SourceChanged(msg, expected=expected, got=got, hint=self.files.remedy), position, place)
        return data

    def located(self, error: FastfeedError, position: int, place: Place) -> FastfeedError:
        """The same error, with its place filled in."""
        return self.files.at(error, position, place)


def _pread(descriptor: int, start: int, stop: int) -> bytes:
    data = os.pread(descriptor, stop - start, start)
    while len(data) < stop - start:  # a signal or a network file system may give less
        more = os.pread(descriptor, stop - start - len(data), start + len(data))
        if not more:
            break  # the file is shorter than it was: its size will tell
        data += more
    return data
