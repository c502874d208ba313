"""Selections: positions proven, and small when they travel."""

from multiprocessing.reduction import ForkingPickler

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fastfeed.errors import NoSuchPosition, UsageError
from fastfeed.feed.select import Selection, chosen, indices, packed, position


def travelled(selection: Selection) -> Selection:
    found: Selection = ForkingPickler.loads(ForkingPickler.dumps(selection))
    return found


rising = st.sets(st.integers(0, 3000)).map(sorted)
strided = st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(1, 9)).map(
    lambda p: list(range(p[0], p[0] + p[1], p[2]))
)


@settings(deadline=None)
@given(rising | strided | strided.map(lambda rows: rows[::-1]) | st.lists(st.integers(0, 1 << 40)) | st.lists(st.just(7)))
def test_any_selection_travels(positions: list[int]):
    selection = Selection(np.array(positions, dtype=np.int64))
    found = travelled(selection)
    assert found.positions.tolist() == positions
    assert found.positions.dtype == np.int64
    assert not found.positions.flags.writeable
    assert len(found) == len(positions)


def test_a_range_a_choice_and_a_mix_are_small():
    rng = np.random.default_rng(0)
    assert len(ForkingPickler.dumps(Selection(np.arange(5, 1_000_000, 3)))) < 200
    choice = np.flatnonzero(rng.random(1_000_000) < 0.1)
    assert len(ForkingPickler.dumps(Selection(choice))) < 1_000_000 / 8 + 1000
    few = np.sort(rng.choice(1_000_000, 50, replace=False))
    assert len(ForkingPickler.dumps(Selection(few))) < 50 * 4 + 1000
    assert len(ForkingPickler.dumps(Selection(rng.permutation(60_000)))) < 60_000 * 2 + 1000
    assert packed(rng.permutation(60_000))[0] == "<u2"


def test_a_selection_that_was_given_is_not_changed_from_outside():
    mine = np.array([3, 1])
    selection = Selection(mine)
    with pytest.raises(ValueError, match="read-only"):
        selection.positions[0] = 2


@pytest.mark.parametrize(
    "given", [[2, -1, 0, 2], (2, -1, 0, 2), np.array([2, -1, 0, 2], dtype=np.int8), torch.tensor([2, -1, 0, 2])], ids=type
)
def test_indices_of_all_kinds(given):
    assert indices(given, 5).tolist() == [2, 4, 0, 2]
    assert chosen(given, 5).tolist() == [2, 4, 0, 2]


def test_ranges_and_nothing():
    assert indices(range(4, 0, -2), 5).tolist() == [4, 2]
    assert indices([], 5).tolist() == [] == chosen([], 5).tolist() == indices([], 0).tolist()
    assert indices(np.array([3], dtype=np.uint64), 5).tolist() == [3]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([True, False], r"positions are a flat sequence of whole numbers: got bool of shape \(2,\)\. A mask .* is for where"),
        ([0.5], r"got float64 of shape \(1,\)"),
        ([[0]], r"got int64 of shape \(1, 1\)"),
        (3, r"got int64 of shape \(\)"),
        (["a"], "positions are a flat sequence"),
    ],
)
def test_indices_that_are_none(given, words: str):
    with pytest.raises(UsageError, match=words):
        indices(given, 2)


@pytest.mark.parametrize("given", [[0, 5], [-6], np.array([2**63], dtype=np.uint64)])
def test_indices_outside(given):
    with pytest.raises(IndexError, match=f"position {int(given[-1])} is outside of a dataset of 5 samples"):
        indices(given, 5)


def test_masks():
    assert chosen([True, False, True], 3).tolist() == [0, 2]
    assert chosen(np.zeros(3, dtype=bool), 3).tolist() == []
    assert chosen(torch.tensor([False, True]), 2).tolist() == [1]
    with pytest.raises(
        UsageError, match=r"a mask has one truth value for each sample: expected shape \(3,\), got shape \(2,\)"
    ):
        chosen([True, False], 3)


@pytest.mark.parametrize("given", [np.ones(4, dtype=np.int8), [0, 1, 1, 0], torch.tensor([0, 0, 0, 1]), [0, 0, 0, 0]])
def test_a_mask_of_numbers_is_no_positions(given):
    with pytest.raises(UsageError, match=r"look like a mask, and a mask is of true and false: expected bool, .*astype\(bool\)"):
        chosen(given, 4)


def test_positions_that_look_like_no_mask():
    assert chosen([1, 0], 2).tolist() == [1, 0]
    assert chosen([0], 1).tolist() == [0]
    assert chosen([1, 1, 1], 4).tolist() == [1, 1, 1]
    assert chosen([2, 1, 1, 0], 4).tolist() == [2, 1, 1, 0]
    assert chosen([], 0).tolist() == []


def test_a_position_outside_is_an_error_of_ours():
    with pytest.raises(NoSuchPosition, match="position 99 is outside of a dataset of 5 samples"):
        chosen([0, 1, 99], 5)


def test_one_position():
    assert [position(at, 3, "p") for at in (0, 2, -1, -3, int(np.int64(1)))] == [0, 2, 2, 0, 1]
    for outside in (3, -4):
        with pytest.raises(IndexError, match=rf"position {outside} is outside of a dataset of 3 samples \(p\)"):
            position(outside, 3, "p")
    with pytest.raises(TypeError):
        position(1.0, 3, "p")  # type: ignore[arg-type]
