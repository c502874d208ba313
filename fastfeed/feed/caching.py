"""Caches of datasets: decided when one is opened, joined by each process that reads it."""

import logging
import multiprocessing
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfeed.archive.catalog import Catalog
from fastfeed.archive.dataset import Archive
from fastfeed.archive.index import MEMBER
from fastfeed.archive.tars import TarSet
from fastfeed.config import Cache
from fastfeed.errors import UsageError
from fastfeed.feed.splitting import wanted_of
from fastfeed.store.cached import BLOCK_BYTES, CachedStore, block_count
from fastfeed.store.cachedfiles import CachedFileReader
from fastfeed.store.cachefolder import CacheUnusable
from fastfeed.store.cacheplan import CachePlan, cache_name, facts_of, plan_cache
from fastfeed.store.files import FileReader
from fastfeed.store.filling import Filled, Filling
from fastfeed.store.lease import Lease
from fastfeed.store.members import MemberReader, Reader
from fastfeed.store.shelf import Shelf
from fastfeed.units import format_size

CacheWish = Cache | str | int | bool | None
"""What a call takes as cache=."""
LOG = logging.getLogger("fastfeed.cache")


class KeepsReads:
    """A dataset whose reads may be kept."""

    cache: CachePlan | None
    """What is kept of the data, where, and why; None where nothing was asked for."""
    _archive: Catalog
    _reader: Reader
    _wanted: frozenset[str]
    """Fields that are read."""

    @property
    def home(self) -> str | None:
        """The folder in which all is the dataset's own, so that no cache may lie there; None where files are named singly."""
        raise NotImplementedError

    @property
    def positions(self) -> NDArray[np.int64]:
        """Position in the packed dataset of each sample; int64, shape (samples,)."""
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    def use_cache(self, asked: Cache) -> CachePlan:
        """Have what is read from now on kept, if nothing is kept yet.

        Args:
            asked: How much, and where.

        Returns:
            What was decided. Where there is a cache already, it is that one; another wish is told to come too late.

        Raises:
            UsageError: The place lies in the dataset.
        """
        prove_place(asked, self.home)
        known = self.cache
        if known is None or (known.folder is None and known.asked != asked):
            self._reader, self.cache = joined(self._reader, self._archive, plan_for(self._archive, asked))
        elif known.asked != asked:
            LOG.warning(
                "this dataset has a cache already, of %s, and keeps it: open the data anew for one of %s", known.asked, asked
            )
        assert self.cache is not None
        return self.cache

    def fill_cache(self, view: Any) -> None:  # noqa: ANN401 - of torch's Subset
        """Begin to fetch in the background what is not kept yet; nothing where there is no cache, or that was begun.

        Args:
            view: This dataset, or Subsets of it: of plain files only those of such samples are fetched, of shards all blocks.
        """
        behind = _cached_behind(self._reader)
        if behind is None or behind.filling is not None:
            return
        if isinstance(behind, CachedFileReader):
            behind.want(np.unique(self.positions[wanted_of(self, view)]).tolist(), self._wanted)
        behind.filling = Filling(behind)

    @property
    def filled(self) -> Filled | None:
        """What was fetched in the background; None where that was not begun."""
        filling = getattr(_cached_behind(self._reader), "filling", None)
        return filling.filled if isinstance(filling, Filling) else None


def _cached_behind(reader: Reader) -> CachedStore | CachedFileReader | None:
    """What keeps what is read; None where nothing does."""
    behind = reader.store if isinstance(reader, MemberReader) else reader
    return behind if isinstance(behind, CachedStore | CachedFileReader) else None


def prove_place(asked: Cache, home: str | None) -> None:
    """Whether a cache may lie where it was asked for.

    Args:
        asked: How much, and where.
        home: The folder in which all is the dataset's own; None where there is none.

    Raises:
        UsageError: It would lie in that: whoever lists the dataset's files would find those of the cache among them.
    """
    if asked.place is None or home is None:
        return
    place, folder = os.path.realpath(asked.place), os.path.realpath(home)
    if os.path.commonpath([place, folder]) == folder:
        msg = "the cache would lie in the folder of the dataset, among its files"
        hint = "Give another folder, or leave cache_dir out: then it is /dev/shm, $SLURM_TMPDIR or $TMPDIR."
        raise UsageError(msg, expected=f"cache_dir outside of {home}", got=asked.place, hint=hint)


def plan_for(catalog: Catalog, asked: Cache) -> CachePlan:
    """Decide whether a dataset is cached, where, and how much of it.

    Args:
        catalog: What is read.
        asked: What the user asked for.
    """
    packed = isinstance(catalog, Archive)
    # What pack wrote is known by its content, so that copies share a cache; other data by where it lies, too.
    place = () if packed else (os.path.realpath(catalog.path),)
    sizes = _sizes(catalog)
    kind = ("files",) if sizes is None else ("blocks", BLOCK_BYTES)
    name = cache_name(*kind, catalog.digest, *place)
    compressed = isinstance(catalog, Archive) and catalog.manifest.compression is not None
    plan = plan_cache(asked, facts_of(catalog.path, _data_bytes(catalog), asked, name, compressed=compressed), name)
    if plan.folder is None and asked.budget_bytes is not None:
        LOG.warning("%s; the data is read without it, with the same results", "; ".join(plan.why))
    return plan


def _sizes(catalog: Catalog) -> Mapping[str, int] | None:
    """Bytes of each tar, decompressed, by name; None for plain files."""
    if isinstance(catalog, Archive):
        return {entry.file: entry.stream_bytes for entry in catalog.manifest.shards}
    if isinstance(catalog, TarSet):
        return {entry.file: entry.tar_bytes for entry in catalog.tars}
    return None


def _data_bytes(catalog: Catalog) -> int:
    sizes = _sizes(catalog)
    return int(catalog.index.array(MEMBER, "size").sum()) if sizes is None else sum(sizes.values())


def joined(reader: Reader, catalog: Catalog, plan: CachePlan | None) -> tuple[Reader, CachePlan | None]:
    """What reads through the cache, in this process, and the plan; what read before, where there is none after all.

    Args:
        reader: What reads without it.
        catalog: What is read.
        plan: The decision, of this process or of the one whose worker this is; None where nothing was asked for.
    """
    if plan is None or plan.folder is None:
        return reader, plan
    sizes = _sizes(catalog)
    entries = len(catalog.index.array(MEMBER, "size")) if sizes is None else block_count(sizes)
    about = {"path": catalog.path, "digest": catalog.digest, "of": f"{format_size(_data_bytes(catalog))} in {catalog.parts()}"}
    lease, plan = lease_of(plan, entries, about)
    if lease is None:
        return reader, plan
    if isinstance(reader, FileReader):
        return CachedFileReader(reader.files, Shelf(lease), plan.room), plan
    assert isinstance(reader, MemberReader)
    assert sizes is not None
    unread = not catalog.index.has(MEMBER, "xxh3")  # tars that were indexed without reading what is in them
    store = CachedStore(reader.store, Shelf(lease), sizes, plan.room, proves=unread)
    return MemberReader(reader.archive, store), plan


def lease_of(plan: CachePlan, entries: int, about: Mapping[str, object]) -> tuple[Lease | None, CachePlan]:
    """The cache of a plan that has a place, joined by this process; None, and a plan that says why, where it cannot be.

    Args:
        plan: It.
        entries: How many there can be.
        about: What the cache is of.
    """
    assert plan.folder is not None
    guest = _is_worker_of(plan.holder)
    try:
        return Lease(plan.folder, plan.name, entries, about=about, keep=plan.asked.keep, guest=guest), plan
    except CacheUnusable as error:
        LOG.warning("no cache: %s; the data is read without it, with the same results", error)
        return None, plan.refused(str(error))


def _is_worker_of(process: int) -> bool:
    """Whether this process was started by that one, which has a lease: then it needs none, and outlives that one by little.

    While a spawned process is given what it is started with, it does not know its parent yet, only that it is being started.
    """
    if process == os.getpid():
        return False
    parent = multiprocessing.parent_process()
    if parent is None:
        return bool(getattr(multiprocessing.current_process(), "_inheriting", False))
    return parent.pid == process
