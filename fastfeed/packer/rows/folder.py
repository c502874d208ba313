"""A folder of files as rows, for what the byte-exact plan of a folder cannot do: change members while they are packed."""

import os
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fastfeed.config import PackConfig
from fastfeed.packer.plan import sample_keys
from fastfeed.packer.rows.source import Row, RowFacts, RowFailed, RowMember
from fastfeed.packer.worker import InputFailed, read_small
from fastfeed.source.layout import Draft, read_layout
from fastfeed.source.lister import UNREADABLE
from fastfeed.source.scan import LeftOut, Listing


class Place(NamedTuple):
    """Where a file stands among the samples."""

    sample: str
    """Path of the sample's first file, which names it."""
    field: str
    others: tuple[str, ...]
    """Fields of the sample's other files."""


@dataclass(frozen=True, slots=True)
class Folder:
    """A scanned folder and the datasets in it."""

    root: str
    listing: Listing
    drafts: tuple[Draft, ...]
    keys: tuple[list[str], ...]
    """Of each draft's samples, unique over all of them."""

    @classmethod
    def read(cls, root: str, listing: Listing, config: PackConfig) -> "Folder":
        """Find the datasets.

        Raises:
            SourceAmbiguous: Two readings are possible.
            SourceUnreadable: There is no file to pack.
        """
        drafts = read_layout(listing, config)
        return cls(root, listing, tuple(drafts), tuple(sample_keys(drafts, listing.paths)))

    def places(self, files: Collection[int]) -> dict[int, Place]:
        """Places of some files, by file number; one that is in no sample has none.

        Args:
            files: Their numbers in the listing.
        """
        found = {}
        for draft in self.drafts if files else ():
            for at, file in enumerate(draft.files):
                if file in files:
                    sample = bisect_right(draft.starts, at) - 1
                    first = draft.starts[sample]
                    others = draft.fields_of(sample)
                    del others[at - first]
                    found[file] = Place(self.listing.paths[draft.files[first]], draft.fields[at], tuple(others))
        return found

    def sources(self) -> "dict[str, FolderRows]":
        """The rows of each split ("" without splits)."""
        return {draft.split: FolderRows(self, number) for number, draft in enumerate(self.drafts)}


class FolderRows:
    """The samples of one dataset in a folder.

    Args:
        folder: What was scanned.
        number: Of the dataset in it.
    """

    def __init__(self, folder: Folder, number: int) -> None:
        self.folder, self.draft, self.keys = folder, folder.drafts[number], folder.keys[number]
        self._first = number == 0

    def facts(self) -> RowFacts:
        """What is known beforehand."""
        draft, listing = self.draft, self.folder.listing
        names = [listing.paths[draft.files[draft.starts[at]]] for at in range(len(draft))]
        fields = {*draft.fields, *(["cls"] if draft.classes is not None else [])}
        return RowFacts(
            count=len(draft), source_bytes=sum(listing.sizes[file] for file in draft.files), exact=True,
            files=len(draft.files), starts=draft.starts, layout=draft.layout,
            order="imagefolder" if draft.as_imagefolder else "source",
            identity={"files": listing.digest(), "split": draft.split}, names=names, keys=self.keys,
            classes=None if draft.classes is None else tuple(draft.classes), columns=(), failed=self._broken(names),
            left_out=tuple(self._left_out()), fields=tuple(sorted(fields)), max_field_bytes=max(map(len, fields)),
            why=tuple(draft.why),
        )  # fmt: skip

    def _left_out(self) -> Iterator[LeftOut]:
        """What the scan left out below this split, and what is beside all splits with the first."""
        yield from self.draft.left_out
        splits = {draft.split for draft in self.folder.drafts}
        for item in self.folder.listing.left_out:
            top = item.source.partition("/")[0]
            if (top if top in splits else "") == self.draft.split or (self._first and top not in splits):
                yield item

    def _broken(self, names: Sequence[str]) -> dict[int, LeftOut]:
        listing, draft = self.folder.listing, self.draft
        why = {item.source: item.why for item in listing.unreadable}
        found = {}
        for at, name in enumerate(names) if why else ():
            gone = next((file for file in draft.files_of(at) if listing.codecs[file] == UNREADABLE), None)
            if gone is not None:
                path = listing.paths[gone]
                found[at] = LeftOut(name, "unreadable", why[path] if path == name else f"its sample needs {path}: {why[path]}")
        return found

    def rows(self, numbers: Sequence[int]) -> Iterator[Row | RowFailed]:
        """Samples in the order asked for."""
        draft, listing = self.draft, self.folder.listing
        for number in numbers:
            try:
                members = []
                for at in range(draft.starts[number], draft.starts[number + 1]):
                    file = draft.files[at]
                    path = listing.paths[file]
                    full = os.path.join(self.folder.root, path)
                    data = read_small(full, path, listing.sizes[file], listing.mtimes_ns[file])
                    members.append(RowMember(draft.fields[at], data, path))
                yield Row(tuple(members), draft.labels[number] if draft.classes is not None else None)
            except InputFailed as error:
                yield RowFailed(number, error.path, error.kind, error.why)

    def spec(self) -> None:
        """None: the listing stays in memory, and a fork shares it."""
        return
