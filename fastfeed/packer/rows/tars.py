"""Tars that somebody else wrote as a source of rows: read where they are, through an index of them, and packed anew."""

import os
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from shutil import rmtree
from typing import Any

from fastfeed.archive.index import SAMPLE
from fastfeed.archive.shard import CLASS_FIELD
from fastfeed.archive.tars import TarSet
from fastfeed.config import RowConfig
from fastfeed.errors import FastfeedError, UsageError
from fastfeed.packer.rows.labels import MAX_NUMBERED_CLASSES
from fastfeed.packer.rows.source import Row, RowFacts, RowFailed, RowMember
from fastfeed.packer.rows.values import safe_path
from fastfeed.sample import printable
from fastfeed.source.scan import LeftOut
from fastfeed.source.tarfiles import find_tars
from fastfeed.source.tarindex import look_up, make, result_of, store_of
from fastfeed.store.members import MemberReader
from fastfeed.units import format_count


class TarRows:
    """The samples of tars.

    Args:
        tars: Their index.
        why: Where it comes from, in words; empty where it was there.
    """

    def __init__(self, tars: TarSet, why: str = "") -> None:
        self.tars, self.why = tars, why
        self._reader = MemberReader(tars, store_of(tars))
        self._no_class = self._why_no_class()
        self._labels = tars.index.has(SAMPLE, "label") and not self._no_class

    @classmethod
    def of_paths(cls, paths: Sequence[str], config: RowConfig) -> "TarRows":
        """Index tars, or find them indexed.

        Args:
            paths: Of the tars, or patterns.
            config: Has nothing to say here: fields and keys are the tars'.

        Raises:
            SourceError: No tar has a sample.
            UsageError: An option that is for lists and tables.
        """
        if config != RowConfig():
            msg = "label, key, column and the like are for lists and tables: fields and keys of tars are as they are"
            raise UsageError(msg)
        found = find_tars(paths)
        known, why = look_up(found, None, whole=True)  # what a wrong index tells would be permanent in the new shards
        if known is not None:
            return cls(known)
        folder = tempfile.mkdtemp(prefix="fastfeed-index-")  # packing changes nothing where its source lies
        made, _ = make(found, folder)
        rows = cls(made, f"{why}: one was made for this pack alone (fastfeed index makes one that is kept beside them)")
        weakref.finalize(rows, rmtree, folder, ignore_errors=True)
        return rows

    def facts(self) -> RowFacts:
        """What is known beforehand."""
        tars, result = self.tars, result_of(self.tars)
        keys = [tars.key(position) for position in range(len(tars))]
        names = [os.fsdecode(tars.source(position) or b"") for position in range(len(tars))]
        lost = tuple(
            LeftOut(tars.base, "unreadable", f"{kind.count} x {kind.kind}: {'; '.join(kind.examples)}")
            for kind in result.found if kind.lost
        )  # fmt: skip
        noted = [f"{format_count(kind.count, 'finding')} of kind {kind.kind}: {kind.examples[0]}" for kind in result.found]
        why = [f"{format_count(len(tars.tars), 'tar')} with {format_count(len(tars), 'sample')}, packed anew"]
        why += [self.why] if self.why else []
        why += ["the class of each sample is the number in its cls member, which is kept as it is"] if self._labels else []
        return RowFacts(
            count=len(tars), source_bytes=sum(place.stop - place.start for p in range(len(tars)) for place in tars.places(p)),
            exact=True, files=len(tars.tars), layout="tars", stems=keys, names=names, numbered_classes=self._labels,
            identity={"tars": [[entry.file, entry.size_bytes, entry.mtime_ns] for entry in tars.tars]},
            fields=tars.fields, holds_class=CLASS_FIELD in tars.fields, columns=(), left_out=lost,
            max_field_bytes=max(map(len, (*tars.fields, CLASS_FIELD))),
            why=tuple(why), notes=(*noted, *([self._no_class] if self._no_class else [])),
        )  # fmt: skip

    def _why_no_class(self) -> str:
        """Why the numbers in the cls members, though every sample has one, are no classes; empty where they may be."""
        if not self.tars.index.has(SAMPLE, "label"):
            return ""
        labels = self.tars.index.array(SAMPLE, "label")
        wrong = ((labels < 0) | (labels >= MAX_NUMBERED_CLASSES)).nonzero()[0]
        if not len(wrong):
            return ""
        first = int(wrong[0])
        name = printable(os.fsdecode(self.tars.source(first) or b""))
        return (
            f"no class is taken from the cls members, which are kept as they are: sample {first} ({name}) has the "
            f"number {int(labels[first])}, and classes are 0 to {MAX_NUMBERED_CLASSES - 1}"
        )

    def rows(self, numbers: Sequence[int]) -> Iterator[Row | RowFailed]:
        """Samples in the order asked for."""
        for number in numbers:
            try:
                yield self._row(number)
            except FastfeedError as error:
                name = os.fsdecode(self.tars.source(number) or b"") or f"sample {number}"
                yield RowFailed(number, name, "unreadable", str(error))

    def _row(self, number: int) -> Row:
        members, label = [], self.tars.label(number) if self._labels else None
        for place in self.tars.places(number):
            data = self._reader.read(number, place)
            members.append(RowMember(place.field, data, safe_path(os.fsdecode(self.tars.name_of(number, place)))))
        return Row(tuple(sorted(members)), label, holds_class=label is not None)

    def spec(self) -> Mapping[str, object]:
        """The index and the folder of the tars."""
        return {"kind": "tars", "index": self.tars.index.path, "base": self.tars.base}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> "TarRows":
        """In a worker."""
        return cls(TarSet(spec["index"], spec["base"]))
