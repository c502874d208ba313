"""Block order: every sample once, forward in each lane, lanes that belong to ranks, mixed batches."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fastfeed.errors import UsageError
from fastfeed.feed.block import BlockOrder, EdgedBlocks, EvenBlocks, proven_edges
from fastfeed.feed.mixing import randomness


def whole(size: int, block: "int | NDArray[np.int64]", lanes: int, *, seed: int = 0, epoch: int = 0) -> NDArray[np.int64]:
    """The order of one epoch."""
    return BlockOrder(size, seed, epoch, block=block, lanes=lanes).take(np.arange(size))


def jumps(positions: NDArray[np.int64]) -> int:
    """How often a reader of these positions does not go on with the next."""
    return int((np.diff(positions) != 1).sum())


@st.composite
def edges_of_blocks(draw: st.DrawFn) -> NDArray[np.int64]:
    """Edges of up to 20 blocks."""
    sizes = draw(st.lists(st.integers(1, 30), max_size=20))
    return np.cumsum([0, *sizes], dtype=np.int64)


@given(size=st.integers(0, 700), block=st.integers(1, 100), lanes=st.integers(1, 50), seed=st.integers(), epoch=st.integers(0))
def test_every_sample_once(size, block, lanes, seed, epoch):
    found = whole(size, block, lanes, seed=seed, epoch=epoch)
    assert found.dtype == np.int64
    assert sorted(found.tolist()) == list(range(size))


@given(edges=edges_of_blocks(), lanes=st.integers(1, 50), seed=st.integers())
def test_every_sample_once_between_edges(edges, lanes, seed):
    size = int(edges[-1])
    assert sorted(whole(size, edges, lanes, seed=seed).tolist()) == list(range(size))


@given(size=st.integers(1, 700), block=st.integers(1, 100), seed=st.integers(0, 99))
def test_a_tape_has_whole_blocks(size, block, seed):
    """One short block, last; and one that goes on at the first position behind the last."""
    tape = EvenBlocks(size, seed, 0, block).take(np.arange(size))
    assert jumps(tape) <= -(-size // block)
    for start in range(0, size, block):
        part = tape[start : start + block]
        assert ((np.diff(part) % size) == 1 % size).all()


@given(edges=edges_of_blocks(), seed=st.integers(0, 99))
def test_a_tape_has_the_given_blocks_whole(edges, seed):
    tape = EdgedBlocks(edges, seed, 0).take(np.arange(edges[-1]))
    at = 0
    while at < len(tape):
        block = int(np.searchsorted(edges, tape[at]))
        assert edges[block] == tape[at], "a block begins here"
        length = int(edges[block + 1] - edges[block])
        assert tape[at : at + length].tolist() == list(range(int(edges[block]), int(edges[block + 1])))
        at += length


@pytest.mark.parametrize("world", [1, 2, 4, 8])
def test_each_rank_reads_forward(world):
    size, block, lanes = 20_000, 100, 16
    order = whole(size, block, lanes)
    for rank in range(world):
        own = order[rank::world]
        each = lanes // world
        for lane in range(each):
            assert jumps(own[lane::each]) <= size / lanes / block + 3
        record = randomness(own, None, 64)
        assert record.sequential > 0.98
        assert record.sequential_shuffled < 0.05


def test_ranks_that_do_not_divide_the_lanes_still_draw_everything():
    order = whole(20_000, 100, 16)
    parts = [order[rank::3] for rank in range(3)]
    assert sorted(np.concatenate(parts).tolist()) == list(range(20_000))
    assert randomness(parts[0], None, 64).samples > 0
    lane = parts[0][::16]
    assert (np.diff(lane) == 3).mean() > 0.95, "it reads every third sample of a lane"


def test_a_batch_holds_a_block_of_each_lane():
    size, block, lanes = 25_600, 256, 16
    order = whole(size, block, lanes)
    blocks = EvenBlocks(size, 0, 0, block).take(np.arange(0, size, block))
    number = np.searchsorted(np.sort(blocks), order, side="right") % len(blocks)
    assert np.mean([len(set(batch.tolist())) for batch in number.reshape(-1, 256)]) >= lanes


def test_mixing_on_shuffled_storage_is_that_of_a_full_shuffle():
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(100), 200))
    record = randomness(whole(20_000, 256, 16), labels, 250)
    assert record.design_effect == pytest.approx(1, abs=0.1)
    assert record.classes == pytest.approx(record.classes_shuffled, rel=0.01)


@pytest.mark.parametrize("lanes", [4, 16, 64])
def test_mixing_on_sorted_storage_is_that_of_as_many_samples_as_lanes(lanes):
    record = randomness(whole(102_400, 256, lanes), np.repeat(np.arange(400), 256), 256)
    assert record.design_effect == pytest.approx(256 / lanes, rel=0.15)


def test_as_many_lanes_as_samples_is_a_full_shuffle():
    record = randomness(whole(2000, 256, 2000), np.repeat(np.arange(20), 100), 50)
    assert record.design_effect == pytest.approx(1, abs=0.25)
    assert record.sequential == pytest.approx(record.sequential_shuffled, abs=0.02)


def test_epochs_and_seeds_differ():
    orders = [whole(5000, 64, 8, seed=seed, epoch=epoch) for seed, epoch in ((0, 0), (0, 1), (1, 0))]
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert (orders[one] == orders[other]).mean() < 0.01


def test_edges_of_even_blocks_move():
    """Neighbours that a block edge parts in one epoch are together in others, and another block is the short one."""
    size, block = 1030, 100
    parted, last = set(), set()
    for epoch in range(50):
        tape = EvenBlocks(size, 3, epoch, block).take(np.arange(size))
        parted |= {int(position) for position in tape[block - 1 :: block]}
        last.add(int(tape[-1]))
    assert len(parted) > 300
    assert len(last) > 40


def test_the_first_sample_is_uniform():
    size, bins, epochs = 1000, 20, 8000
    for block in (64, np.arange(0, 1001, 50)):
        first = np.array(
            [int(BlockOrder(size, 1, epoch, block=block, lanes=4).take(np.array([0]))[0]) for epoch in range(epochs)]
        )
        counts = np.bincount(first * bins // size, minlength=bins)
        assert abs(((counts - epochs / bins) ** 2 / (epochs / bins)).sum() - (bins - 1)) < 4 * np.sqrt(2 * (bins - 1))


def test_any_slot_of_a_huge_order():
    size = 2**38 + 5
    order = BlockOrder(size, 0, 0, block=256, lanes=64)
    found = order.take(np.arange(size - 6400, size))
    assert len(np.unique(found)) == 6400
    assert found.min() >= 0 and found.max() < size
    assert jumps(found[::64]) <= 2


def test_the_numbers_never_change():
    assert whole(1000, 10, 4, seed=42, epoch=3)[:8].tolist() == [977, 487, 767, 807, 978, 488, 768, 808]
    assert whole(1000, np.arange(0, 1001, 100), 4, seed=42, epoch=3)[:8].tolist() == [800, 750, 500, 950, 801, 751, 501, 951]


@pytest.mark.parametrize(
    "edges", [[], [0, 5], [1, 10], [0, 5, 5, 10], [0, 6, 5, 10], [0.0, 10.0], [[0, 10]], [0, 3, 11], ["0", "10"]]
)
def test_edges_that_are_none(edges):
    with pytest.raises(
        UsageError, match=r"the edges of blocks are whole numbers that increase from 0 to the number of samples"
    ):
        proven_edges(edges, 10)


def test_edges_are_copied():
    edges = np.array([0, 5, 10])
    proven = proven_edges(edges, 10)
    edges[1] = 7
    assert proven.tolist() == [0, 5, 10]
    assert proven_edges([0], 0).tolist() == [0]
