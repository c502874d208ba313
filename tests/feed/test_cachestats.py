"""Figures of a cache, from counters."""

import pytest

from fastfeed.feed.cachestats import cache_stats
from fastfeed.store.filling import Filled

COUNTERS = {
    "cache hits": 30, "cache hit bytes": 3_000_000, "cache hit ns": 10_000_000, "cache misses": 10,
    "cache miss bytes": 1_000_000,    "cache fetched bytes": 2_000_000, "cache fetch ns": 400_000_000, "mine": 7,
}  # fmt: skip


def test_saved_is_what_hits_would_have_taken_less_what_they_took():
    stats, others = cache_stats(COUNTERS)
    assert stats is not None and others == {"mine": 7}
    assert (stats.hits, stats.misses, stats.hit_rate, stats.damaged, stats.rechecks, stats.purges) == (30, 10, 0.75, 0, 0, 0)
    assert stats.saved_seconds == pytest.approx(0.6 - 0.01)
    assert str(stats) == (
        "cache: 30 of 40 reads were hits (75.0%), 2.9 MiB from the cache; 1.9 MiB from the data in 400.0 ms; "
        "about 590.0 ms saved (summed over workers)"
    )


def test_where_nothing_was_fetched_the_pace_is_not_known():
    stats, _ = cache_stats({"cache hits": 3, "cache hit bytes": 10, "cache hit ns": 5, "cache damaged": 1})
    assert stats is not None and stats.saved_seconds is None
    assert str(stats) == "cache: 3 of 3 reads were hits (100.0%), 10 B from the cache; 1 damaged block read again"


def test_where_hits_took_longer_than_the_data_itself_no_time_was_saved():
    stats, _ = cache_stats({**COUNTERS, "cache hit ns": 10_000_000_000})
    assert stats is not None and stats.saved_seconds == 0.0
    assert str(stats).endswith("1.9 MiB from the data in 400.0 ms; no time saved: the data itself came as fast")


FILLED = Filled(pieces=4, fetched_bytes=4_000_000, fetch_seconds=0.4, state="it goes on")


def test_what_was_fetched_in_the_background_is_told_and_its_pace_counts_where_reads_fetched_nothing():
    stats, _ = cache_stats({"cache hits": 3, "cache hit bytes": 2_000_000, "cache hit ns": 10_000_000}, FILLED)
    assert stats is not None and stats.filled is FILLED and stats.saved_seconds == pytest.approx(0.2 - 0.01)
    assert str(stats).endswith(
        "saved (summed over workers); 4 pieces (3.8 MiB) fetched in the background in 400.0 ms (it goes on)"
    )
    alone, _ = cache_stats({"mine": 7}, FILLED)
    assert alone is not None and (alone.hits, alone.saved_seconds) == (0, 0.0)
    assert str(alone).startswith("cache: nothing was read through it so far; 4 pieces (3.8 MiB) fetched")


def test_what_was_compared_and_what_came_of_it():
    stats, _ = cache_stats({"cache hits": 3, "cache rechecks": 2, "cache purges": 1})
    assert stats is not None and (stats.rechecks, stats.purges) == (2, 1)
    assert str(stats).endswith("2 samples made again to compare; emptied 1 time, since samples have changed")


def test_without_a_cache_there_are_none():
    assert cache_stats({"mine": 7}) == (None, {"mine": 7})
