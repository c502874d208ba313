"""What a cache was good for, from what was counted in the processes that read."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastfeed.feed.splitting import behind_views
from fastfeed.store import cached
from fastfeed.store.filling import Filled
from fastfeed.units import format_count, format_seconds, format_size

_NS = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheStats:
    """Reads through a cache, summed over workers. A read is a sample's members that lie together."""

    hits: int
    """Reads of which all bytes were in the cache."""
    hit_bytes: int
    hit_seconds: float
    """That they took."""
    misses: int
    miss_bytes: int
    fetched_bytes: int
    """Of the data itself, for misses: whole blocks while there is room in the cache."""
    fetch_seconds: float
    """That reading these took."""
    damaged: int
    """Blocks that were not what they should be, and were read again from the data."""
    rechecks: int
    """Samples of fastfeed.cached that were made again to compare them with what is kept."""
    purges: int
    """How often one of them differed, and the cache was emptied."""
    filled: Filled | None
    """What this process fetched in the background, for all loaders of the dataset and in all epochs; None where it did not."""
    saved_seconds: float | None
    """What hits would have taken at the pace at which fetched bytes came, for reads, or else in the background, less what they
    took. None where nothing was fetched (a cache that was full from the beginning), so that the pace is not known."""

    @property
    def hit_rate(self) -> float:
        """Hits among reads, 0 to 1."""
        reads = self.hits + self.misses
        return self.hits / reads if reads else 0.0

    def __str__(self) -> str:
        reads = format_count(self.hits + self.misses, "read")
        text = f"{self.hits:,} of {reads} were hits ({self.hit_rate:.1%}), {format_size(self.hit_bytes)} from the cache"
        parts = [
            text if self.hits or self.misses else "nothing was read through it so far",
            f"{format_size(self.fetched_bytes)} from the data in {format_seconds(self.fetch_seconds)}"
            if self.fetched_bytes
            else "",
            self._saved() if self.hits else "",
            f"{format_count(self.damaged, 'damaged block')} read again" if self.damaged else "",
            f"{format_count(self.rechecks, 'sample')} made again to compare" if self.rechecks else "",
            f"emptied {format_count(self.purges, 'time')}, since samples have changed" if self.purges else "",
            "" if self.filled is None else str(self.filled),
        ]
        return f"cache: {'; '.join(filter(None, parts))}"

    def _saved(self) -> str:
        if self.saved_seconds is None:
            return ""
        saved = f"about {format_seconds(self.saved_seconds)} saved (summed over workers)"
        return saved if self.saved_seconds else "no time saved: the data itself came as fast"


def filled_behind(dataset: Any) -> Filled | None:  # noqa: ANN401 - any dataset
    """What was fetched in the background for a dataset, or that behind Subsets; None where nothing is."""
    base, _ = behind_views(dataset)
    found = getattr(base, "filled", None)
    return found if isinstance(found, Filled) else None


def cache_stats(counters: Mapping[str, int], filled: Filled | None = None) -> tuple[CacheStats | None, dict[str, int]]:
    """What was counted of a cache, None where nothing was; and the other counters.

    Args:
        counters: By name, of all processes.
        filled: What was fetched in the background.
    """
    others = {name: count for name, count in counters.items() if name not in cached.COUNTERS}
    if len(others) == len(counters) and filled is None:
        return None, others
    hits, hit_bytes, hit_ns, misses, miss_bytes, fetched, fetch_ns, damaged, rechecks, purges = (
        counters.get(name, 0) for name in cached.COUNTERS
    )
    saved = None
    if fetched:
        saved = hit_bytes / fetched * fetch_ns - hit_ns
    elif filled is not None and filled.fetched_bytes:
        saved = hit_bytes / filled.fetched_bytes * filled.fetch_seconds / _NS - hit_ns
    return CacheStats(
        hits=hits, hit_bytes=hit_bytes, hit_seconds=hit_ns * _NS, misses=misses, miss_bytes=miss_bytes, fetched_bytes=fetched,
        fetch_seconds=fetch_ns * _NS, damaged=damaged, rechecks=rechecks, purges=purges, filled=filled,
        saved_seconds=None if saved is None else max(0.0, saved * _NS),
    ), others  # fmt: skip
