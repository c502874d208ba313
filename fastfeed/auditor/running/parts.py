"""Datasets whose bytes we read ourselves (packed, tars in place, plain files), by descriptions that pass a pipe."""

import os
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import Any, Self

from fastfeed.archive.catalog import Catalog, Place, source_of_sample
from fastfeed.archive.dataset import Archive
from fastfeed.archive.index import SAMPLE
from fastfeed.archive.regular import open_regular
from fastfeed.archive.tars import TarSet
from fastfeed.sample import escape
from fastfeed.source import tarindex
from fastfeed.source.plain import PlainFiles
from fastfeed.store.files import FileReader
from fastfeed.store.members import MemberReader, Reader, store_of

PACKED, TARS, FILES = "packed", "tars", "files"
_PAGE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class PartSpec:
    """One dataset among those that are audited together."""

    kind: str
    """PACKED, TARS or FILES."""
    path: str
    """The folder below which its shards or files lie."""
    index: str = ""
    """Of tars the file with their index, of plain files the one with their columns."""
    split: str | None = None
    splits: tuple[str, ...] = ()
    """Of plain files: folders directly below path that are splits."""

    def to_json(self) -> dict[str, Any]:
        """As it passes a pipe."""
        return asdict(self)

    @classmethod
    def from_json(cls, spec: dict[str, Any]) -> Self:
        """Back from the pipe."""
        return cls(**{**spec, "splits": tuple(spec["splits"])})


class Part:
    """One dataset, opened.

    Raises:
        FastfeedError: It cannot be opened.
    """

    def __init__(self, spec: PartSpec) -> None:
        self.spec = spec
        self.catalog: Catalog
        self.reader: Reader
        if spec.kind == PACKED:
            archive = Archive(spec.path)
            self.catalog, self.reader = archive, MemberReader(archive, store_of(archive))
        elif spec.kind == TARS:
            tars = TarSet(spec.index, spec.path)
            self.catalog, self.reader = tars, MemberReader(tars, tarindex.store_of(tars))
        else:
            files = PlainFiles(spec.path, spec.index)
            self.catalog, self.reader = files, FileReader(files)
        self._labels = self.catalog.index.array(SAMPLE, "label") if self.catalog.index.has(SAMPLE, "label") else None

    def __len__(self) -> int:
        return len(self.catalog)

    def source(self, position: int, places: Iterable[Place] | None = None) -> str | None:
        """Path below the source of a sample's image, else of its first file; surrogate-escaped."""
        found = source_of_sample(self.catalog, position, places)
        return escape(found) if found else None

    def label(self, position: int) -> str | None:
        """The name of a sample's class, else its number."""
        number = -1 if self._labels is None else int(self._labels[position])
        if number < 0:
            return None
        names = self.catalog.classes
        return names[number] if names is not None and number < len(names) else str(number)

    def split(self, source: str | None) -> str | None:
        """The split that a sample is of."""
        if self.spec.split is not None or not self.spec.splits or source is None:
            return self.spec.split
        top = source.partition("/")[0]
        return top if top in self.spec.splits else None

    def forget(self, places: Sequence[Place]) -> None:
        """Ask the kernel to drop what it has cached of these members: the next read comes from the disk."""
        for place in places:
            descriptor = open_regular(os.path.join(self.spec.path, place.shard))
            try:
                start = place.start // _PAGE_BYTES * _PAGE_BYTES
                stop = -(-place.stop // _PAGE_BYTES) * _PAGE_BYTES
                os.posix_fadvise(descriptor, start, stop - start, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


class Parts:
    """Datasets one behind the other."""

    def __init__(self, specs: Sequence[PartSpec]) -> None:
        self.parts = [Part(spec) for spec in specs]
        self._firsts = [0, *accumulate(map(len, self.parts))]

    def __len__(self) -> int:
        return self._firsts[-1]

    def find(self, index: int) -> tuple[Part, int]:
        """The dataset that holds a sample, and its position there."""
        number = bisect_right(self._firsts, index) - 1
        return self.parts[number], index - self._firsts[number]
