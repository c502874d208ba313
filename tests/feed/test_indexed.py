from typing import Any

import pytest
import torch

from fastfeed.errors import UsageError
from fastfeed.feed.indexed import Indexed, indexed, positions
from fastfeed.feed.loader import DataLoader

NUMBERS: Any = [10, 11, 12, 13]


def test_positions_are_whole_numbers():
    found = positions([3, torch.tensor(1), True])
    assert found.tolist() == [3, 1, 1] and found.dtype == torch.int64
    with pytest.raises(UsageError, match="with_index gives whole numbers"):
        positions(["a"])


@pytest.mark.parametrize("batch_size", [3, None])
def test_a_batch_comes_with_its_positions(batch_size):
    loader = DataLoader(NUMBERS, batch_size)
    found = list(indexed(iter(loader), loader.dataset, batched=batch_size is not None, valid=None))
    assert all(isinstance(one, Indexed) for one in found)
    assert torch.cat([one.index for one in found]).tolist() == [0, 1, 2, 3]
    assert all(bool(one.valid.all()) and one.key is None and len(one.valid) == len(one.index) for one in found)


def test_padding_is_told_by_the_loader():
    loader = DataLoader(NUMBERS[:3], 4, distributed=(1, 2), seed=0)
    (one,) = indexed(iter(loader), loader.dataset, batched=True, valid=lambda: torch.tensor([True, False]))
    assert one.valid.tolist() == [True, False]
