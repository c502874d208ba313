"""DataLoader(cache=): a cache for the dataset that is read, where that is one of ours; and its filling in the background."""

import logging
import multiprocessing
import os
from typing import Any, Protocol

from torch.utils.data import Dataset

from fastfeed.config import cache_config
from fastfeed.errors import UsageError
from fastfeed.feed.caching import CacheWish
from fastfeed.feed.dataset import PackedDataset
from fastfeed.feed.keeping import CachedDataset
from fastfeed.feed.splitting import behind_views

LOG = logging.getLogger("fastfeed.cache")
_OTHERS = "Open the data with fastfeed.open, or keep samples of this dataset with fastfeed.cached(dataset, ...)."


def use_cache(dataset: Dataset[Any], cache: CacheWish, folder: str | os.PathLike[str] | None) -> None:
    """Have a loader's dataset cached, as DataLoader's cache and cache_dir say; one that has a cache keeps it.

    Args:
        dataset: Any; of Subsets, that behind them.
        cache: How much.
        folder: Where.

    Raises:
        UsageError: The values do not fit, or the dataset is none of ours and a size is given.
    """
    asked = cache_config(cache, folder)
    if asked is None:
        return
    base, _ = behind_views(dataset)
    if isinstance(base, PackedDataset):
        base.use_cache(asked)
        return
    msg = "cache keeps the bytes of datasets that fastfeed.open opens"
    error = UsageError(msg, got=f"a dataset of type {type(base).__name__}", hint=_OTHERS)
    if asked.budget_bytes is not None:
        raise error
    LOG.info("no cache: %s", error)


class Reading(Protocol):
    """What is asked of a loader."""

    @property
    def dataset(self) -> Any:  # noqa: ANN401
        """Any; of Subsets, that behind them is filled."""

    num_workers: int

    @property
    def multiprocessing_context(self) -> Any:  # noqa: ANN401
        """How workers are started; None for the usual way."""


def fill_behind(loader: Reading) -> None:
    """Begin to fill the cache of a loader's dataset in the background, where there is one; once for each dataset opened.

    Samples of fastfeed.cached are made in a process of their own: without worker processes, reads alone fill their cache.
    """
    base, _ = behind_views(loader.dataset)
    if isinstance(base, PackedDataset):
        base.fill_cache(loader.dataset)
    elif isinstance(base, CachedDataset) and loader.num_workers:
        base.fill_cache(loader.multiprocessing_context or multiprocessing, loader.dataset)
