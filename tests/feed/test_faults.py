import pickle
from typing import Any

import numpy as np
import pytest
from torch.utils.data import BatchSampler, DistributedSampler, RandomSampler, Sampler, SequentialSampler, SubsetRandomSampler

from fastfeed.errors import DecodeError, UsageError
from fastfeed.feed.faults import ErrorCaps, FaultCounter, Replacement, pool_of, prove_policy
from fastfeed.feed.order import FeedSampler, OrderSampler


class Named(BatchSampler):
    """Draws as torch's."""


class Others(BatchSampler):
    """Draws what it likes."""

    def __iter__(self) -> Any:
        return iter([[7]])


def test_replacements_are_a_function_of_base_epoch_index_and_attempt():
    pool = range(100, 200)
    replace = Replacement(pool, 7)
    found = [replace(index, epoch, attempt) for index in range(10) for epoch in range(3) for attempt in range(3)]
    again = [Replacement(pool, 7)(index, epoch, attempt) for index in range(10) for epoch in range(3) for attempt in range(3)]
    assert found == again and set(found) <= set(pool) and len(set(found)) > 40
    assert replace("a", 0, 0) == replace("a", 0, 0)


def test_only_samples_that_the_sampler_draws_stand_in():
    assert pool_of(SubsetRandomSampler([3, 5]), 10, forced=False) == [3, 5]
    assert pool_of(BatchSampler(SubsetRandomSampler([3, 5]), 2, drop_last=False), 10, forced=False) == [3, 5]
    assert pool_of(Named(SubsetRandomSampler([3, 5]), 2, drop_last=False), 10, forced=False) == [3, 5]
    with pytest.raises(UsageError, match="Others does not tell"):
        pool_of(Others(SubsetRandomSampler([3, 5]), 2, drop_last=False), 10, forced=False)
    data: Any = range(10)
    samplers: list[Any] = [RandomSampler(data), SequentialSampler(data), DistributedSampler(data, 2, 0)]
    for sampler in samplers:
        assert pool_of(sampler, 10, forced=False) == range(10)

    class Own(Sampler[int]):
        """Does not tell."""

    with pytest.raises(UsageError, match="Own does not tell"):
        pool_of(Own(), 10, forced=False)
    assert pool_of(Own(), 10, forced=True) == range(10)


def test_what_an_order_skips_does_not_stand_in():
    """Workers get the pool, not the sampler with its dataset."""
    for sampler in (OrderSampler(10, skip=[0, 3, 9]), FeedSampler(10, skip=[0, 3, 9])):
        pool = pickle.loads(pickle.dumps(pool_of(sampler, 10, forced=False)))
        assert [pool[number] for number in range(len(pool))] == [1, 2, 4, 5, 6, 7, 8]


def test_every_sample_of_the_pool_stands_in_about_as_often():
    counts = np.bincount([Replacement(range(10), 0)(index, 0, 0) for index in range(5000)])
    assert counts.min() > 400 and counts.max() < 600


def test_too_many_in_a_row():
    counter = FaultCounter(ErrorCaps(consecutive=3, rate=1.0))
    counter.batch(4, {2: "x", 3: "y"})
    counter.batch(4, {1: "z"})  # the first of this batch was well
    counter.batch(2, {0: "a", 1: "b"})
    with pytest.raises(DecodeError, match=r"3 samples failed one after another.*a; b; c"):
        counter.batch(1, {0: "c"})


def test_too_large_a_share():
    counter = FaultCounter(ErrorCaps(consecutive=50, rate=0.1))
    for _ in range(19):
        counter.batch(10, {0: "x", 1: "y"})  # 20 %, but of fewer than 200
    with pytest.raises(DecodeError, match=r"40 of 200 samples failed \(20.0%\)"):
        counter.batch(10, {0: "x", 1: "y"})


def test_policies():
    prove_policy("raise", shuffles=False, forced=False)
    prove_policy("skip", shuffles=True, forced=False)
    prove_policy("skip", shuffles=False, forced=True)
    with pytest.raises(UsageError, match="on_error is one of raise, skip, replace"):
        prove_policy("ignore", shuffles=True, forced=True)
    with pytest.raises(UsageError, match="would change what an evaluation is over"):
        prove_policy("replace", shuffles=False, forced=False)
