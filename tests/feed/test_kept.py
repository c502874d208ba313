"""torch's order over what a skip list leaves: drawn as torch draws it from a Subset, told as positions in the whole."""

import pickle
from typing import Any

import pytest
import torch
from loading import Numbers
from torch.utils.data import RandomSampler, SequentialSampler, Subset

from fastfeed.errors import UsageError
from fastfeed.feed.kept import KeptSampler

SIZE, SKIP = 11, [3, 0, 10, 7]
KEPT = [1, 2, 4, 5, 6, 8, 9]


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("own", [False, True])
def test_it_draws_as_torch_from_a_subset(shuffle, own):
    def drawn(ours: bool) -> tuple[list[list[int]], int]:
        torch.manual_seed(4)
        generator = torch.Generator().manual_seed(9) if own else None
        if ours:
            sampler = KeptSampler(SIZE, SKIP, shuffle=shuffle, generator=generator)
            found = [list(sampler) for _ in range(3)]
        else:
            subset: Any = Subset(Numbers(SIZE), KEPT)
            plain = RandomSampler(subset, generator=generator) if shuffle else SequentialSampler(subset)
            found = [[KEPT[number] for number in plain] for _ in range(3)]
        return found, int(torch.randint(1 << 40, (), generator=generator))

    assert drawn(ours=True) == drawn(ours=False)


def test_what_it_is():
    sampler = KeptSampler(SIZE, SKIP)
    assert (len(sampler), list(sampler)) == (7, KEPT)
    assert {type(index) for index in sampler} == {int}
    assert not isinstance(sampler, RandomSampler | SequentialSampler)
    assert list(pickle.loads(pickle.dumps(sampler))) == KEPT


def test_random_numbers_are_drawn_when_the_first_index_is_asked_for():
    sampler = KeptSampler(SIZE, SKIP, shuffle=True)
    before = torch.get_rng_state()
    drawing = iter(sampler)
    assert torch.equal(torch.get_rng_state(), before)
    next(drawing)
    assert not torch.equal(torch.get_rng_state(), before)


def test_nothing_left_and_nothing_to_skip():
    assert list(KeptSampler(3, [0, 1, 2])) == []
    assert list(KeptSampler(3, [])) == [0, 1, 2]
    with pytest.raises(ValueError, match="num_samples"):
        KeptSampler(3, [0, 1, 2], shuffle=True)
    with pytest.raises(UsageError, match="skip names a position that the dataset has not"):
        KeptSampler(3, [3])
