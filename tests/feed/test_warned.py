"""Several ranks are in test_loader_ranks.py, where there are some."""

import random
import warnings

import numpy as np
import pytest
from torch.utils.data import Dataset, SequentialSampler

from fastfeed.feed.loader import DataLoader
from fastfeed.feed.warned import tell_of_generators, tell_of_ranks


class Keeps(Dataset[int]):
    def __init__(self) -> None:
        self.rng, self.other = np.random.default_rng(0), random.Random(0)

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        return index


def test_generators_of_the_datasets_own():
    with pytest.warns(UserWarning, match=r"random generators of its own \(other .*rng .*\).*for each worker\."):
        tell_of_generators(Keeps(), each_sample=False)
    with pytest.warns(UserWarning, match="for each worker and each sample"):
        tell_of_generators(Keeps(), each_sample=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tell_of_generators(None, each_sample=True)
        tell_of_generators([1, 2], each_sample=True)


def test_a_single_process_is_told_nothing_of_ranks():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tell_of_ranks(None, SequentialSampler([1]), None)


def test_the_warning_points_at_the_loop():
    loader = DataLoader(Keeps(), num_workers=1)
    with pytest.warns(UserWarning, match="generators of its own") as caught:
        iter(loader)
    about_forks = "use of fork"  # Python's own, where a thread runs
    assert {one.filename for one in caught if about_forks not in str(one.message)} == {__file__}
