"""The recipe: options that prove themselves, skipped positions, and the warning about sorted classes."""

import warnings
from itertools import pairwise
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfeed.errors import UsageError
from fastfeed.feed.block import BlockOrder
from fastfeed.feed.permutation import Permutation
from fastfeed.feed.recipe import OrderOptions, Recipe, Stored


def drawn(recipe: Recipe, epoch: int = 0, world: int = 1) -> list[int]:
    """Positions of a whole epoch."""
    return [int(position) for position in recipe.positions(recipe.order(epoch, world).take(np.arange(recipe.size)))]


# ---------------------------------------------------------------------------------------------------- modes
def test_each_mode_has_its_order():
    assert isinstance(Recipe(10, {"shuffle": False}).order(0, 1), Stored)
    assert isinstance(Recipe(10, {}).order(0, 1), Permutation)
    assert isinstance(Recipe(10, {"mode": "block"}).order(0, 1), BlockOrder)
    assert drawn(Recipe(10, {"shuffle": False})) == list(range(10))
    assert drawn(Recipe(100, {"seed": 3}), 2) == Permutation(100, 3, 2)[:].tolist()


def test_lanes_are_settled_by_the_first_order():
    recipe = Recipe(1000, {"mode": "block"})
    lanes = [recipe.lanes]
    first = drawn(recipe, world=4)
    assert [*lanes, recipe.lanes] == [None, 64]
    assert drawn(recipe, world=2) == first
    assert drawn(Recipe(1000, {"mode": "block", "lanes": 64, "block": 256})) == first


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"mode": "blocks"}, "mode says how to shuffle, 'full' or 'block', and needs a shuffle: got mode='blocks'"),
        ({"mode": "none"}, "mode says how to shuffle, 'full' or 'block', and needs a shuffle: got mode='none'"),
        ({"mode": "block", "shuffle": False}, "needs a shuffle: got mode='block', shuffle=False"),
        ({"lanes": 4}, "only mode='block' has lanes: got mode='full'"),
        ({"block": 4, "lanes": 4}, "only mode='block' has block and lanes: got mode='full'"),
        ({"mode": "block", "lanes": 0}, "lanes is a whole number from 1: got 0"),
        ({"mode": "block", "block": 2.5}, "block is a whole number from 1: got 2.5"),
        ({"mode": "block", "block": True}, "block is a whole number from 1: got True"),
        (
            {"mode": "block", "block": [0, 5]},
            r"the edges of blocks .*: expected \[0, ..., 10\], got \[0, 5\] ... \[5\], 2 of them",
        ),
        ({"mode": "block", "labels": [1, 2]}, "labels has a label for each sample: expected 10, got 2"),
        ({"skip": [10]}, "skip names a position that the dataset has not: expected 0 to 9, got 10"),
        ({"skip": [3, -1]}, "skip names a position that the dataset has not: expected 0 to 9, got -1"),
        ({"skip": [0.5]}, r"skip is a list of positions: got float64 of shape \(1,\)"),
        ({"skip": [True, False]}, r"skip is a list of positions: got bool of shape \(2,\)"),
        ({"skip": [[1, 2]]}, r"skip is a list of positions: got int64 of shape \(1, 2\)"),
    ],
)
def test_options_that_do_not_fit(options, text):
    with pytest.raises(UsageError, match=text):
        Recipe(10, options)


@pytest.mark.parametrize("options", [{"seeds": 1}, {"num_replicas": 2, "rank": 0}])
def test_options_that_there_are_not(options):
    with pytest.raises(TypeError, match=f"a sampler has no option {', '.join(options)}: of ranks, FeedSampler takes"):
        Recipe(10, options)


@pytest.mark.parametrize("seed", [1.5, "1", None])
def test_a_seed_is_a_whole_number(seed):
    with pytest.raises(TypeError, match="cannot be interpreted as an integer"):
        Recipe(10, {"seed": seed})


@pytest.mark.parametrize("length", [-1, 2**40 + 1])
def test_no_such_length(length):
    with pytest.raises(UsageError, match=r"an order has 0 to 2\^40 samples: got"):
        Recipe(length, {})


# ---------------------------------------------------------------------------------------------------- skipped positions
@given(
    length=st.integers(0, 120),
    seed=st.integers(0, 9),
    options=st.sampled_from(
        [{}, {"shuffle": False}, {"mode": "block", "block": 7, "lanes": 3}, {"mode": "block", "lanes": 200}]
    ),
    data=st.data(),
)
def test_all_but_the_skipped_are_drawn_once(length, seed, options: dict[str, Any], data):
    skip = data.draw(st.lists(st.integers(0, length - 1), max_size=40)) if length else []
    found = drawn(Recipe(length, cast("OrderOptions", {**options, "seed": seed, "skip": skip})))
    assert sorted(found) == sorted(set(range(length)) - set(skip))
    if not options.get("shuffle", True):
        assert found == sorted(found)


@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=8), data=st.data())
def test_skipping_leaves_blocks_where_they_are(sizes, data):
    """A block has the samples between its edges that are not skipped; one that is skipped whole is gone."""
    edges = np.cumsum([0, *sizes])
    length = int(edges[-1])
    skip = set(data.draw(st.lists(st.integers(0, length - 1), max_size=length)))
    recipe = Recipe(length, {"mode": "block", "block": edges, "lanes": 1, "skip": sorted(skip)})
    blocks = [[p for p in range(a, b) if p not in skip] for a, b in pairwise(edges.tolist())]
    found, at = drawn(recipe), 0
    while at < len(found):
        block = next(block for block in blocks if block and block[0] == found[at])
        assert found[at : at + len(block)] == block
        at += len(block)
    assert sorted(found) == sorted(set(range(length)) - skip)


# ---------------------------------------------------------------------------------------------------- sorted classes
def test_sorted_classes_are_warned_about():
    text = (
        r"mode='block' draws together what lies together, and equal labels stand together in runs of 100.0 samples on average, "
        r"where random order would have 1.1 \(1,000 samples, 10 runs\): batches will hold few classes. Pack the data in random "
    )
    labels = np.repeat(np.arange(10), 100)
    with pytest.warns(UserWarning, match=text):
        Recipe(1000, {"mode": "block", "labels": labels})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Recipe(1000, {"labels": labels})
        Recipe(1000, {"mode": "block", "labels": np.random.default_rng(0).permutation(labels)})
        Recipe(1000, {"mode": "block", "labels": None})


# ---------------------------------------------------------------------------------------------------- identity
def test_what_makes_another_order_makes_another_identity():
    plain: OrderOptions = {"mode": "block", "block": 5}
    edges = np.array([0, 4, 10])
    others: list[OrderOptions] = [
        plain, {}, {"shuffle": False}, {"seed": 1}, {"mode": "block", "block": 6}, {"mode": "block", "block": edges},
        {"mode": "block", "block": np.array([0, 5, 10])}, {"skip": [1]}, {"skip": [2]}, {**plain, "skip": [1]},
    ]  # fmt: skip
    found = [Recipe(10, options).identity() for options in others]
    assert all(one != other for at, one in enumerate(found) for other in found[:at])
    assert Recipe(10, {"skip": [2, 1, 2]}).identity() == Recipe(10, {"skip": np.array([1, 2])}).identity()
    assert Recipe(10, {}).identity() == {"version": 1, "size": 10, "skip": None, "seed": 0, "mode": "full", "block": None}


def test_an_identity_is_small():
    recipe = Recipe(10**6, {"mode": "block", "block": np.arange(0, 10**6 + 1, 10), "skip": np.arange(0, 10**6, 7)})
    assert len(str(recipe.identity())) < 200
