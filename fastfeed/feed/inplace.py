"""Datasets that stand on what is there already: tars as somebody else wrote them, and plain files."""

import os
from typing import Any, Protocol

from fastfeed.archive.catalog import Catalog
from fastfeed.archive.tars import LOST, TarSet
from fastfeed.errors import DatasetError, SourceChanged, warn
from fastfeed.feed.dataset import PackedDataset
from fastfeed.source.plain import PlainFiles
from fastfeed.source.tarfiles import TarPaths
from fastfeed.source.tarindex import look_up, make, store_of
from fastfeed.store.files import FileReader
from fastfeed.store.members import MemberReader, Reader
from fastfeed.trace import QUIET, Progress
from fastfeed.units import format_count


class TarDataset(PackedDataset):
    """Samples of tars that stay where they are, at random positions; PackedDataset tells all else.

    Keys and fields are webdataset's. Class numbers are those of the members called cls; there are no class names.

    Args:
        tars: The tars.
        *args: As PackedDataset's.
        index_dir: A folder for the index; None for .fastfeed-index beside the tars.
        progress: Hears how far the index is, where it has to be made.
        **options: As PackedDataset's.

    Raises:
        NotADataset: A tar is gone.
        SourceError: A tar cannot be indexed.
        DestinationError: The index cannot be written.
        IndexDamaged: The index.
        UsageError: As PackedDataset.
    """

    def __init__(
        self, tars: TarPaths, *args: Any, index_dir: str | None = None, progress: Progress = QUIET, **options: Any  # noqa: ANN401
    ) -> None:  # fmt: skip
        self.index_path = tars.index_path(index_dir)
        """The file with the index."""
        found, why = look_up(tars, index_dir)
        if found is None:
            warn(f"{format_count(len(tars.files), 'tar')} in {tars.base}: {why}; their headers are read now, "
                      f"and the index is kept in {os.path.dirname(self.index_path)}")  # fmt: skip
            found, _ = make(tars, index_dir, progress=progress)
        super().__init__(tars.base, *args, **options)
        self.notes += _told(found)

    _made_anew = "the tars were indexed anew"
    _no_classes = "tars hold class numbers (.targets, where each sample has a cls), but no class names"

    @property
    def home(self) -> str | None:
        """None: what else lies beside tars is not looked at."""
        return None

    def _load(self) -> tuple[Catalog, Reader]:
        tars = TarSet(self.index_path, self.path)
        return tars, MemberReader(tars, store_of(tars))


def _told(tars: TarSet) -> tuple[str, ...]:
    """What is lost, and what is slow: a warning each time that the tars are opened."""
    told = []
    if tars.lost:
        first = next((tars.told(finding) for finding in tars.index.findings() if finding.kind in LOST), "")
        samples = f"{format_count(tars.dropped, 'sample')} left out, " if tars.dropped else ""
        told.append(
            f"these tars are damaged: {samples}{format_count(tars.lost, 'finding')}, the first: {first}. "
            "fastfeed index lists all"
        )
    large = next((finding for finding in tars.index.findings() if finding.kind == "large-frame"), None)
    if large is not None:
        told.append(f"{format_count(tars.found['large-frame'], 'tar')} cannot be read at random fast: {tars.told(large)}")
    for text in told:
        warn(text)
    return tuple(told)


class Recipe(Protocol):
    """How plain files became samples, so that a process that cannot map the columns can list the files again."""

    @property
    def root(self) -> str:
        """The folder below which they lie."""

    @property
    def home(self) -> str | None:
        """The same, where each file in it is looked at; None where they are named singly."""

    def files(self) -> PlainFiles:
        """List the files and read them as samples."""


class FileDataset(PackedDataset):
    """Samples of plain files; PackedDataset tells all else. The class of a sample is the number of its folder.

    Args:
        recipe: Where the files are, and how they are read as samples.
        *args: As PackedDataset's.
        **options: As PackedDataset's.

    Raises:
        SourceError: Files are unreadable, or can be read in two ways.
        UsageError: As PackedDataset.
    """

    def __init__(self, recipe: Recipe, *args: Any, **options: Any) -> None:  # noqa: ANN401 - PackedDataset's
        self.recipe = recipe
        self._files = recipe.files()
        super().__init__(recipe.root, *args, **options)
        kept = set(self.positions.tolist()) if self._files.unreadable() else set()
        self._files.refuse_unreadable(kept)
        self.notes += self._files.why

    _no_classes = "these files have no classes: they neither lie in class folders nor are listed with labels"

    @property
    def home(self) -> str | None:
        """The folder that is listed; None where a table names the files."""
        return self.recipe.home

    def _load(self) -> tuple[Catalog, Reader]:
        return self._files, FileReader(self._files)

    def __getstate__(self) -> dict[str, Any]:
        """Where the columns are, and how to make them anew: no column travels."""
        return {**super().__getstate__(), "columns": (self._files.index.path, self._files.digest)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        path, digest = state.pop("columns")
        try:
            files = PlainFiles(state["recipe"].root, path)
        except DatasetError:  # the process that listed the files has ended, or runs on another machine
            files = state["recipe"].files()
        if files.digest != digest:
            files = state["recipe"].files()
        if files.digest != digest:
            msg = "the files have changed since this object was made"
            raise SourceChanged(msg, path=files.root, expected=digest, got=files.digest, hint="Open them again.")
        self._files = files
        super().__setstate__(state)
