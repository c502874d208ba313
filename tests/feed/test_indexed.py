from typing import Any

import pytest
import torch
from loading import At, Calls, Raise, Raises

from fastfeed.errors import UsageError
from fastfeed.feed.indexed import Indexed, IndexedPass, positions
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
    found = list(IndexedPass(iter(loader), loader.dataset, batched=batch_size is not None, valid=None))
    assert all(isinstance(one, Indexed) for one in found)
    assert torch.cat([one.index for one in found]).tolist() == [0, 1, 2, 3]
    assert all(bool(one.valid.all()) and one.key is None and len(one.valid) == len(one.index) for one in found)


def test_padding_is_told_by_the_loader():
    loader = DataLoader(NUMBERS[:3], 4, distributed=(1, 2), seed=0)
    (one,) = IndexedPass(iter(loader), loader.dataset, batched=True, valid=lambda: torch.tensor([True, False]))
    assert one.valid.tolist() == [True, False]


def test_a_pass_has_a_length_and_goes_on_behind_a_batch_that_failed():
    loader = DataLoader(Calls(At(3, Raise(ValueError("no"))), 8), 2, num_workers=0, with_index=True)
    passed = iter(loader)
    assert len(passed) == 4
    assert next(passed).index.tolist() == [0, 1]
    with Raises(ValueError, match="sample 3 of batch 1"):
        next(passed)
    assert [one.index.tolist() for one in passed] == [[4, 5], [6, 7]]
