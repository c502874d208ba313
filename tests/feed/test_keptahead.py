"""Samples that nobody has asked for yet: made at no reader's cost, and not once the dataset was found to have changed."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.utils.data import Dataset, Subset

import fastfeed
from fastfeed.feed.keeping import CachedDataset
from fastfeed.feed.keptahead import LEAP, Ahead
from fastfeed.store.shelf import Room, Shelf


class Multiples(Dataset[int]):
    """Sample i is i times a factor; what was made is remembered. One of them fails, one draws random numbers."""

    def __init__(self, size: int = 200, factor: int = 2) -> None:
        self.size, self.factor = size, factor
        self.made: list[int] = []
        self.strange = False

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        self.made.append(index)
        if self.strange and index == 7:
            raise KeyError(index)
        if self.strange and index == 8:
            torch.rand(1)
        return index * self.factor


@pytest.fixture
def kept(tmp_path: Path) -> CachedDataset:
    multiples = Multiples()
    dataset = fastfeed.cached(multiples, "sample", cache="8MiB", cache_dir=tmp_path)
    multiples.made.clear()
    return dataset


def shelf_of(dataset: CachedDataset) -> Shelf:
    assert dataset.shelf is not None
    return dataset.shelf


def kept_of(dataset: CachedDataset) -> list[int]:
    return [number for number in range(len(dataset)) if shelf_of(dataset).find(number) is not None]


def test_all_in_order_or_what_a_subset_wants(kept: CachedDataset):
    ahead = Ahead(kept, Subset(Subset(kept, [9, 5, -1, 5]), [3, 2, 0]))
    assert ahead.entries == 3
    assert [ahead.fill_from(number) for number in range(4)] == [1, 2, 3, None]
    assert kept_of(kept) == [5, 9, 199] and kept.dataset.made == [5, 9, 199]
    whole = Ahead(kept, kept)
    assert whole.entries == 200
    assert [whole.fill_from(number) for number in (4, 5, 6, 199, 200)] == [5, 6, 7, 200, None]
    assert kept.dataset.made == [5, 9, 199, 4, 6]
    assert [kept[number] for number in (4, 5, 6)] == [8, 10, 12]


def test_what_fails_or_draws_random_numbers_is_left_to_readers(kept: CachedDataset):
    kept.dataset.strange = True
    ahead = Ahead(kept, kept)
    state = torch.get_rng_state()
    assert [ahead.fill_from(number) for number in (6, 7, 8, 9)] == [7, 8, 9, 10]
    assert kept_of(kept) == [6, 9]
    torch.set_rng_state(state)
    with pytest.raises(KeyError):
        kept[7]


def test_it_leaps_ahead_of_readers(kept: CachedDataset):
    ahead = Ahead(kept, kept)
    with shelf_of(kept).fetching(3, 0):
        assert ahead.fill_from(3) == 3 + LEAP
    assert kept_of(kept) == []


def test_it_ends_where_the_cache_was_emptied(kept: CachedDataset):
    ahead = Ahead(kept, kept)
    assert ahead.fill_from(3) == 4 and ahead.fill_from(4) == 5
    shelf_of(kept).purge()
    kept.dataset.factor = 10
    assert [kept[number] for number in (3, 5)] == [30, 50]
    assert ahead.fill_from(6) is None and ahead.shelf is None and ahead.fill_from(7) is None
    assert kept_of(kept) == [3, 5]


def test_it_ends_where_there_is_no_room(tmp_path: Path):
    dataset = fastfeed.cached([bytes(4000)] * 50, "sample", cache="8MiB", cache_dir=tmp_path)
    dataset.cache = replace(dataset.cache, room=Room(60_000))
    ahead, number = Ahead(dataset, dataset), 0
    while (following := ahead.fill_from(number)) is not None:
        number = following
    assert 0 < number < 50 and kept_of(dataset) == list(range(number))
