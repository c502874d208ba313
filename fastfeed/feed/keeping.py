"""fastfeed.cached: samples of any map-style dataset are kept after the part of their making that is the same each time."""

import copy
import logging
import operator
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from torch.utils.data import Dataset

from fastfeed.config import Cache, cache_config
from fastfeed.errors import UsageError
from fastfeed.feed.caching import CacheWish, KeepsReads, lease_of, prove_place
from fastfeed.feed.decode.whole import Tells
from fastfeed.feed.fillingapart import FillingApart
from fastfeed.feed.fingerprint import Fingerprint
from fastfeed.feed.inwords import dataset_text
from fastfeed.feed.keptahead import Ahead
from fastfeed.feed.origins import file_facts, named_facts, versions
from fastfeed.feed.prefix import made, parts_of, prove
from fastfeed.feed.samplecode import Unkeepable, decoded, encoded
from fastfeed.feed.splitting import folder_of
from fastfeed.store import cached as counters
from fastfeed.store.cachefolder import CacheUnusable
from fastfeed.store.cacheplan import CachePlan, cache_name, facts_of, no_cache, plan_cache
from fastfeed.store.filling import Filled
from fastfeed.store.shelf import Shelf
from fastfeed.trace import count, epoch_read
from fastfeed.units import format_count, format_size

LOG = logging.getLogger("fastfeed.cache")
RECHECK_EVERY, LEAST_RECHECKS = 199, 8
"""Each epoch one of so many samples is made again and compared with what is kept; of few samples at least so many."""


class CachedDataset(Tells, Dataset[Any]):
    """A dataset whose samples are kept up to a part of their making; see cached(), which makes it.

    What else the dataset has under a public name (classes, class_to_idx, targets) is read there.

    Args:
        dataset: Any map-style dataset.
        upto: As cached().
        plan: Where samples are kept.
    """

    def __init__(self, dataset: Any, upto: str | int, plan: CachePlan) -> None:  # noqa: ANN401 - any dataset
        self.dataset, self.upto, self.cache = dataset, upto, plan
        self._parts = parts_of(dataset, upto)
        self._hits = 0
        self._has_warned = False
        self._full_until = 0.0
        self._filling: FillingApart | None = None
        self._shelf: Shelf | None = None
        if plan.folder is not None:
            source, kind = _source(dataset), type(dataset).__qualname__
            what = f"about {format_size(plan.data_bytes)} of samples ({kind})"
            about = {"path": kind if source is None else os.path.abspath(source), "of": what}
            lease, self.cache = lease_of(plan, len(dataset), about)
            self._shelf = None if lease is None else Shelf(lease)

    @property
    def told(self) -> tuple[str, ...]:
        """What is kept of the samples, and why; sentences."""
        return self.cache.why

    def __len__(self) -> int:
        return len(self.dataset)

    def __repr__(self) -> str:
        if "_shelf" not in self.__dict__:  # its constructor has not ended: an error's traceback may show it
            return object.__repr__(self)
        kept = "nothing is kept" if self._shelf is None else f"{_told(self.upto)} are kept in {self.cache.folder!r}"
        return f"{type(self).__name__}({dataset_text(self.dataset)}, {kept})"

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any attribute
        """What the dataset has, for names that this object has not. Called by Python after it has looked here.

        Raises:
            AttributeError: The dataset has no such attribute either; or the name is private, or the dataset is not there yet,
                as while an object is copied or unpickled.
        """
        if name.startswith("_") or "dataset" not in self.__dict__:
            msg = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(msg, name=name, obj=self)
        return getattr(self.dataset, name)

    def __getstate__(self) -> dict[str, Any]:
        return {"dataset": self.dataset, "upto": self.upto, "cache": self.cache}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["dataset"], state["upto"], state["cache"])  # type: ignore[misc]

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 - any index and sample
        """The dataset's sample."""
        try:
            number = operator.index(index)
        except TypeError:
            return self.dataset[index]
        number += len(self) if number < 0 else 0
        if self._shelf is None or not 0 <= number < len(self):
            return self.dataset[index]
        try:
            sample = self._kept(self._shelf, number)
        except CacheUnusable as error:
            self._give_up(f"the cache cannot be used any more ({error})")
            return self.dataset[index]
        return self._parts.finished(sample)

    def _kept(self, shelf: Shelf, number: int) -> Any:  # noqa: ANN401
        """The part of a sample that is kept: it, or one that is made now."""
        began = time.perf_counter_ns()
        data = self._found(shelf, number)
        if data is not None:
            count(counters.HITS)
            count(counters.HIT_BYTES, len(data))
            count(counters.HIT_NS, time.perf_counter_ns() - began)
            return self._rechecked(shelf, number, data)
        count(counters.MISSES)
        if began * 1e-9 < self._full_until:
            return self._parts.prefix[number]
        with ExitStack() as locked:
            with _of_the_cache():
                alone = locked.enter_context(shelf.fetching(number, counters.WAIT_SECONDS))
            data = self._found(shelf, number)
            return decoded(data) if data is not None else self._made(shelf, number, keeps=alone)

    @staticmethod
    def _found(shelf: Shelf, number: int) -> bytearray | None:
        with _of_the_cache():
            entry = shelf.find(number)
            if entry is None:
                return None
            data = bytearray(entry.size)
            if shelf.read(entry, 0, memoryview(data)) and shelf.is_content(entry, data):
                return data
            count(counters.DAMAGED)
            shelf.drop(number)
            return None

    def _made(self, shelf: Shelf, number: int, *, keeps: bool) -> Any:  # noqa: ANN401
        began = time.perf_counter_ns()
        sample, drawn = made(self._parts.prefix, number)
        spent = time.perf_counter_ns() - began
        if drawn:
            self._warn(f"sample {number} is not kept: it draws random numbers ({drawn}), so it is another one each time")
        if drawn or not keeps:
            return sample
        try:
            data = encoded(sample)
        except Unkeepable as error:
            self._give_up(f"sample {number} cannot be kept: {error}")
            return sample
        count(counters.MISS_BYTES, len(data))
        count(counters.FETCHED_BYTES, len(data))
        count(counters.FETCH_NS, spent)
        with _of_the_cache():
            if not (shelf.has_room(len(data), self.cache.room) and shelf.put(number, data, self.cache.room)):
                self._full_until = time.perf_counter() + counters.FULL_SECONDS
        return decoded(data)  # as the next time, and as everybody else: the same type, without what was attached to it

    def _is_due(self, number: int) -> bool:
        """Whether a sample is one of those that are compared in this epoch: the same in every process, others in the next.

        Whoever reads by itself, or through another loader, names no epoch: then it is as often as all samples were hits, from
        a number on that differs between processes, since such a loader may start its workers anew each epoch.
        """
        epoch = epoch_read()
        if epoch is None:
            epoch = os.getpid() + self._hits // len(self)
        return (number - epoch) % max(1, min(RECHECK_EVERY, len(self) // LEAST_RECHECKS)) == 0

    def _rechecked(self, shelf: Shelf, number: int, data: bytearray) -> Any:  # noqa: ANN401
        """A kept sample; if it is due it is made again, and if it has changed, nothing that is kept is believed any more."""
        due, self._hits = self._is_due(number), self._hits + 1
        if not due:
            return decoded(data)
        count(counters.RECHECKS)
        sample, drawn = made(self._parts.prefix, number)
        if not drawn and _is_still(sample, data):
            return decoded(data)
        count(counters.PURGES)
        with _of_the_cache():
            shelf.purge()
        self._give_up(f"sample {number} is not what was kept of it: data or code have changed, and the cache was emptied")
        return sample

    def fill_cache(self, context: Any, view: Any) -> None:  # noqa: ANN401
        """Begin to make in the background what is not kept yet, in a process of lowest priority; one does it on a machine.

        Args:
            context: Of multiprocessing: how the process is started.
            view: This dataset, or Subsets of it: the samples that are wanted.
        """
        if self._shelf is None or self._filling is not None:
            return
        try:
            turn = self._shelf.take_turn()
        except OSError as error:
            self._give_up(f"the cache cannot be used any more ({error.strerror})")
            return
        if turn is not None:  # else another process does it, and when it has ended, the next pass finds that out
            Shelf.give_turn(turn)
            self._filling = FillingApart.begun(Ahead(self, view), context)

    @property
    def filled(self) -> Filled | None:
        """What was made in the background; None where that was not begun."""
        return None if self._filling is None else self._filling.filled

    @property
    def shelf(self) -> Shelf | None:
        """Where samples are kept; None where they are not, or not any more."""
        return self._shelf

    def made_to_keep(self, number: int) -> bytes | None:
        """A sample as it is kept; None where it cannot be kept, or made: whoever wants it is told why."""
        try:
            sample, drawn = made(self._parts.prefix, number)
            return None if drawn else encoded(sample)
        except Exception:  # noqa: BLE001 - of any dataset
            return None

    def _warn(self, what: str) -> None:
        """Once: what is so of one sample is so of many."""
        if not self._has_warned:
            self._has_warned = True
            LOG.warning("%s; neither are others of which that is so", what)

    def _give_up(self, why: str) -> None:
        self._shelf = None
        LOG.warning("%s; samples are made without it", why)


def _told(upto: str | int) -> str:
    """What is kept, in words."""
    if isinstance(upto, int):
        return f"samples after {format_count(upto, 'step')} of their transform"
    return "samples" if upto == "sample" else "samples before their transform"


def _is_still(sample: Any, data: bytearray) -> bool:  # noqa: ANN401
    try:
        return encoded(sample) == data
    except Unkeepable:
        return False  # it could be kept before


@contextmanager
def _of_the_cache() -> Iterator[None]:
    """What the system refuses here is the cache's fault, and not the dataset's, which may raise the same."""
    try:
        yield
    except OSError as error:
        raise CacheUnusable(error.strerror) from error


def cached(
    dataset: Any,  # noqa: ANN401 - any map-style dataset
    upto: str | int = "transform",
    *,
    cache: CacheWish = "auto",
    cache_dir: str | os.PathLike[str] | None = None,
    version: str = "",
) -> CachedDataset:
    """Keep samples of any map-style dataset between epochs and processes, as far as their making is the same each time.

    What is to be kept is proven first, on 64 samples: it draws no random numbers of torch, numpy or Python, is the same when
    it is made twice, and gives with the rest what the dataset gives. Each epoch some kept samples, others than before, are
    made again and compared; if one has changed, the cache is emptied, and a warning says so. Beside the workers of a loader
    of ours, one process of lowest priority on each machine makes the samples that nobody has asked for yet.

    Args:
        dataset: Any.
        upto: "transform": what the dataset has before it calls its transform, such as decoded images; a number: that, after
            so many steps of the transform (a Compose); "sample": samples as they are.
        cache: How much is kept: bytes ("8GiB"), "auto", or fastfeed.Cache; None: nothing.
        cache_dir: Where, as fastfeed.open.
        version: Samples that were kept with another version are not found: for what changes them and the fingerprint does not
            hold, such as files that are overwritten in place, or the environment. It holds attributes, the code that is reached
            from them and what that uses (of installed packages their versions), files that are named, and folders of listed
            files, in which a file that is replaced is seen.

    Raises:
        UsageError: There is no such part, or it cannot be kept, for the reason that it says; or it would be kept in the
            dataset's own folder.
    """
    asked = cache_config(cache, cache_dir)
    if asked is None:
        return CachedDataset(dataset, upto, no_cache(Cache(), "", "none was asked for"))
    if isinstance(dataset, str | bytes | os.PathLike) or not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        msg = "fastfeed.cached keeps samples of an object with a length and positions"
        raise UsageError(
            msg, got=f"a {type(dataset).__name__}", hint="Of a folder or packed data: fastfeed.open(path, cache=...)."
        )
    if isinstance(dataset, CachedDataset) and upto != "sample":
        msg = "the dataset keeps samples already: before its transform there is nothing left that takes time"
        raise UsageError(msg, got=repr(dataset), hint='Give upto="sample" to keep what comes behind the transform as well.')
    prove_place(asked, dataset.home if isinstance(dataset, KeepsReads) else folder_of(dataset))
    trial = _copied(dataset)
    sizes = prove(trial, parts_of(trial, upto))
    if not sizes:
        msg = "the dataset has no samples"
        raise UsageError(msg)
    source = _source(dataset)
    fingerprint = Fingerprint()
    fingerprint.add([version, str(upto), file_facts(source) if source else named_facts("./"), *versions()])
    fingerprint.add(parts_of(dataset, upto).prefix)
    name = cache_name("samples", fingerprint.digest())
    data_bytes = sum(sizes) * len(dataset) // len(sizes)
    plan = plan_cache(asked, facts_of(source or "/", data_bytes, asked, name, compressed=True), name)
    if fingerprint.unknown:
        what = ", ".join(sorted(set(fingerprint.unknown)))
        plan = replace(plan, why=(*plan.why, f"costs: only this process and its workers use it: nobody can look into {what}"))
    return CachedDataset(dataset, upto, plan)


def _copied(dataset: Any) -> Any:  # noqa: ANN401 - any dataset
    """A dataset to be tried: a file that it opens at its first sample must not be open when workers are forked."""
    try:
        return copy.copy(dataset)
    except Exception:  # noqa: BLE001 - its own code; one that cannot be copied is tried itself
        return dataset


def _source(dataset: Any) -> str | None:  # noqa: ANN401
    """Where a dataset says that its data is. Where it does not, data may lie in the folder that the program runs in."""
    named = (getattr(dataset, name, None) for name in ("path", "root"))
    return next((os.fspath(path) for path in named if isinstance(path, str | os.PathLike)), None)
