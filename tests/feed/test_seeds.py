import random
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from loading import equal, states

from fastfeed.feed.seeds import Seeds, number_of, states_kept


@given(st.integers(0, 2**40), st.integers(0, 1000), st.integers(0, 2**40))
def test_seeds_depend_on_base_epoch_and_index(base, epoch, index):
    seed = Seeds(base, epoch).of(index)
    assert 0 <= seed < 2**63 and seed == Seeds(base, epoch).of(np.int64(index))
    assert (
        len({seed, Seeds(base + 1, epoch).of(index), Seeds(base, epoch + 1).of(index), Seeds(base, epoch).of(index + 1)}) == 4
    )


def test_seeds_never_change():
    """A resumed run relies on them."""
    assert [Seeds(0, 0).of(0), Seeds(7, 3).of(11), Seeds(7, 3).of("a")] == [
        287927208773501222, 5727694584259531438, 5027128126375404276,
    ]  # fmt: skip


def test_seeds_of_neighbours_have_no_bit_in_common_more_than_chance():
    bits = np.array([[Seeds(0, 0).of(index) >> bit & 1 for bit in range(63)] for index in range(4000)])
    assert np.abs(bits.mean(0) - 0.5).max() < 0.05
    assert np.abs((bits[1:] == bits[:-1]).mean(0) - 0.5).max() < 0.05


@pytest.mark.long
def test_texts_are_the_same_number_in_every_process():
    code = "from fastfeed.feed.seeds import number_of; print(number_of('a'), number_of(b'a'))"
    told = {subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout for _ in range(2)}
    assert told == {f"{number_of('a')} {number_of(b'a')}\n"}


def test_numbers_of_any_kind_stand_for_themselves():
    for index in (5, np.int64(5), np.uint8(5), torch.tensor(5), torch.tensor([5])):
        assert number_of(index) == 5
    assert number_of(True) == 1 and number_of(-1) == -1
    others = [number_of(index) for index in (("x", 1), 2.5, None, torch.tensor([1, 2]), "\udcff")]
    assert len(set(others)) == 5 and others[3] == number_of(torch.tensor([1, 2]))


def test_a_sample_draws_the_same_numbers():
    def drawn():
        Seeds(1, 2).apply(3)
        return torch.rand(2), np.random.rand(2), random.random()

    with states_kept():
        assert equal(drawn(), drawn())


def test_states_are_kept():
    before = states()
    with states_kept():
        Seeds(1, 2).apply(3)
        torch.rand(1)
    assert equal(before, states())
