"""Torch mode: what torch.utils.data.DataLoader gives, number for number."""

import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from loading import Bunches, Calls, Eager, Numbers, Offset, Together, equal, indices, mixed_up, set_start, states, three_epochs
from torch.utils.data import (
    BatchSampler, DistributedSampler, IterableDataset, RandomSampler, SequentialSampler, SubsetRandomSampler, TensorDataset,
    WeightedRandomSampler, get_worker_info,
)  # fmt: skip
from torch.utils.data import DataLoader as TorchDataLoader

from fastfeed.feed.loader import DataLoader

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

SIZE = 23
LOADERS = (TorchDataLoader, DataLoader)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(9)


KINDS: dict[str, Callable[[], dict[str, Any]]] = {
    "sequential": lambda: {"batch_size": 7},
    "sequential sampler": lambda: {"batch_size": 7, "sampler": SequentialSampler(range(SIZE))},
    "shuffled": lambda: {"batch_size": 7, "shuffle": True},
    "shuffled, generator": lambda: {"batch_size": 7, "shuffle": True, "generator": generator()},
    "random, generator of its own": lambda: {"batch_size": 7, "sampler": RandomSampler(range(SIZE), generator=generator())},
    "random, replacement": lambda: {"sampler": RandomSampler(range(SIZE), replacement=True, num_samples=30), "batch_size": 9},
    "weighted": lambda: {"batch_size": 7, "sampler": WeightedRandomSampler([0.1, 0.4, 0.5] * 7, 20)},
    "subset": lambda: {"batch_size": 4, "sampler": SubsetRandomSampler([3, 1, 4, 15, 9, 2, 6])},
    "distributed": lambda: {"batch_size": 3, "sampler": DistributedSampler(range(SIZE), 3, 1)},  # type: ignore[arg-type]
    "eager": lambda: {"batch_size": 7, "sampler": Eager(SIZE)},
    "eager, unbatched": lambda: {"batch_size": None, "sampler": Eager(SIZE)},
    "a list": lambda: {"batch_size": 2, "sampler": [5, 3, 5]},
    "batch sampler": lambda: {"batch_sampler": BatchSampler(RandomSampler(range(SIZE)), 4, drop_last=False)},
    "batches of their own": lambda: {"batch_sampler": Bunches(SIZE)},
    "unbatched": lambda: {"batch_size": None, "shuffle": True},
    "drop_last": lambda: {"batch_size": 7, "shuffle": True, "drop_last": True},
    "collate_fn": lambda: {"batch_size": 7, "shuffle": True, "collate_fn": mixed_up},
    "few batches": lambda: {"batch_size": 23},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("workers", [0, 1, 4])
def test_three_epochs_are_torchs(kind, workers):
    theirs, ours = (
        three_epochs(lambda cls=cls: cls(Numbers(SIZE), num_workers=workers, **KINDS[kind]())) for cls in LOADERS
    )  # batches with order, worker seeds and random numbers; and the main process's random states afterwards
    assert equal(theirs, ours)
    assert len(theirs[0][0]) > 0
