"""Samplers: what each rank draws, epochs, torch's rules, and the criteria of the frameworks that hold a sampler."""

import copy
import json
import subprocess
import sys
import tracemalloc
import warnings
from itertools import chain
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, RandomSampler, Sampler

from fastfeed.errors import UsageError
from fastfeed.feed.order import FeedSampler, OrderSampler
from fastfeed.feed.permutation import Permutation


def ranks(size: int, world: int, **options: Any) -> list[FeedSampler]:
    """A sampler for each rank of a world."""
    return [FeedSampler(size, distributed=(rank, world), **options) for rank in range(world)]


# ---------------------------------------------------------------------------------------------------- what is drawn
def test_one_process_draws_every_sample_once_an_epoch():
    sampler = OrderSampler(1000, seed=7)
    epochs = [list(sampler) for _ in range(3)]
    assert epochs == [Permutation(1000, 7, epoch)[:].tolist() for epoch in range(3)]
    assert len(sampler) == 1000
    assert all(isinstance(position, int) for position in epochs[0])


def test_ranks_draw_in_turn():
    order = Permutation(1000, 3, 0)[:].tolist()
    for world in (1, 2, 3, 8):
        parts = [list(sampler) for sampler in ranks(1000, world, seed=3)]
        padded = order + order[: -1000 % world]
        assert parts == [padded[rank::world] for rank in range(world)]


@pytest.mark.parametrize("options", [{}, {"shuffle": False}, {"mode": "block", "block": 30, "lanes": 6}, {"skip": [0, 5, 99]}])
@pytest.mark.parametrize("size", [0, 1, 7, 100, 4096, 9001])
def test_padding_is_the_beginning_of_the_order(size, options):
    """As torch's DistributedSampler: indices += indices[:padding]."""
    options = {**options, "skip": [p for p in options.get("skip", []) if p < size]}
    order = list(FeedSampler(size, distributed=(0, 1), **options))
    for world in (3, 8):
        drawn = [list(sampler) for sampler in ranks(size, world, **options)]
        assert len({len(part) for part in drawn}) == 1
        together = list(chain.from_iterable(zip(*drawn, strict=True)))
        padding = len(together) - len(order)
        assert together == order + [order[place % len(order)] for place in range(padding)]
        assert padding == -len(order) % world
        assert [sampler.share.padding for sampler in ranks(size, world, **options)] == [padding] * world


@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("size", [1, 7, 8, 100])
def test_unshuffled_it_draws_what_torch_does(size, drop_last):
    for world in (1, 3, 8):
        for rank in range(world):
            ours = FeedSampler(size, distributed=(rank, world), shuffle=False, drop_last=drop_last)
            theirs: DistributedSampler[Any] = DistributedSampler(
                range(size),  # type: ignore[arg-type]
                world, rank, shuffle=False, drop_last=drop_last,
            )  # fmt: skip
            assert list(ours) == list(theirs)
            for name in (
                "rank",
                "num_replicas",
                "num_samples",
                "total_size",
                "drop_last",
                "shuffle",
                "seed",
                "epoch",
                "dataset",
            ):
                assert getattr(ours, name) == getattr(theirs, name), name


@given(size=st.integers(0, 300), world=st.sampled_from([1, 3, 8]), seed=st.integers(0, 9), batch=st.integers(1, 40))
def test_exact_draws_each_sample_once_by_its_mask(size, world, seed, batch):
    """A metric over valid samples is the same on 1, 3 and 8 ranks, and ranks have as many batches of as many samples."""
    total, shapes = 0.0, set()
    for sampler in ranks(size, world, seed=seed, exact=True):
        at, shape = 0, []
        for positions in BatchSampler(sampler, batch, drop_last=False):
            valid = sampler.share.valid(at, at + len(positions))
            total += float((np.array(positions) ** 2)[valid].sum())
            at += len(positions)
            shape.append(len(positions))
        shapes.add(tuple(shape))
    assert total == float((np.arange(size) ** 2).sum())
    assert len(shapes) == 1


def test_exact_and_drop_last_exclude_each_other():
    for options in ({"exact": True}, {"distributed": "exact"}):
        with pytest.raises(UsageError, match="exact draws each sample, and drop_last leaves some out"):
            FeedSampler(10, drop_last=True, **options)
    assert FeedSampler(10, distributed="exact").exact
    assert not FeedSampler(10).exact


def test_the_same_global_batch_draws_the_same_samples_on_any_world():
    steps = {}
    for world, batch in ((1, 24), (2, 12), (3, 8), (8, 3)):
        parts = [list(sampler) for sampler in ranks(240, world)]
        steps[world] = [{p for part in parts for p in part[at : at + batch]} for at in range(0, 240 // world, batch)]
    assert steps[1] == steps[2] == steps[3] == steps[8]


def test_ranks_of_a_block_order_read_forward():
    """By default there are 16 lanes a rank, and each lane belongs to one rank."""
    for sampler in ranks(40_000, 3, mode="block", block=100):
        drawn = np.fromiter(sampler, dtype=np.int64)
        assert sampler.lanes == 48
        lanes = [drawn[lane::16] for lane in range(16)]
        assert np.mean([np.mean(np.diff(lane) == 1) for lane in lanes]) > 0.98


# ---------------------------------------------------------------------------------------------------- epochs
def test_set_epoch_and_epochs_by_themselves_draw_the_same():
    by_itself, told = FeedSampler(50), FeedSampler(50)
    for epoch in range(4):
        told.set_epoch(epoch)
        assert list(told) == list(by_itself)
        assert told.epoch == by_itself.epoch == epoch


def test_set_epoch_repeats_an_epoch():
    sampler = FeedSampler(50)
    first = list(sampler)
    list(sampler)
    sampler.epoch = 0
    assert list(sampler) == first


def test_an_epoch_left_early_counts_and_iterations_do_not_mix():
    sampler = FeedSampler(9000)
    orders = [Permutation(9000, 0, epoch)[:].tolist() for epoch in range(2)]
    first, second = iter(sampler), iter(sampler)
    drawn = [next(first), next(second), next(first)]
    sampler.set_epoch(17)
    assert [*drawn, *first] == [orders[0][0], orders[1][0], *orders[0][1:]]
    assert list(second) == orders[1][1:]


def test_the_epoch_is_settled_when_the_iteration_begins():
    sampler = FeedSampler(50, seed=1)
    drawing = iter(sampler)
    assert sampler.epoch == 0
    sampler.set_epoch(3)
    assert list(drawing) == Permutation(50, 1, 0)[:].tolist()


# ---------------------------------------------------------------------------------------------------- torch's rules
def test_it_is_a_distributed_sampler_and_the_other_one_is_none():
    """Lightning gives a loader another sampler unless isinstance(loader.sampler, DistributedSampler)."""
    assert isinstance(FeedSampler(3), DistributedSampler)
    assert isinstance(OrderSampler(3), Sampler) and not isinstance(OrderSampler(3), DistributedSampler | RandomSampler)


def test_a_loader_takes_it_and_torchs_batch_sampler_suffices():
    dataset = torch.utils.data.TensorDataset(torch.arange(103))
    for drop_last in (True, False):
        sampler = FeedSampler(dataset, distributed=(1, 2), seed=5)
        loader = DataLoader(dataset, batch_size=8, sampler=sampler, drop_last=drop_last)
        assert type(loader.batch_sampler) is BatchSampler
        epochs = [[batch.tolist() for (batch,) in loader] for _ in range(2)]
        padded = [[*order, order[0]][1::2] for order in (Permutation(103, 5, epoch)[:].tolist() for epoch in range(2))]
        assert [len(epoch) for epoch in epochs] == [len(loader)] * 2 == [6 if drop_last else 7] * 2
        assert [list(chain.from_iterable(epoch)) for epoch in epochs] == [
            order[:48] if drop_last else order for order in padded
        ]
        assert loader.sampler is sampler and sampler.dataset is dataset


def test_a_length_or_a_dataset():
    assert list(OrderSampler(5, shuffle=False)) == list(OrderSampler("abcde", shuffle=False)) == [0, 1, 2, 3, 4]
    assert OrderSampler(np.int64(5)).size == 5  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"object of type 'object' has no len\(\)"):
        OrderSampler(object())  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"an order has 0 to 2\^40 samples: got -3"):
        OrderSampler(-3)
    with pytest.raises(TypeError, match="a sampler has no option num_replicas, rank: of ranks, FeedSampler takes distributed="):
        FeedSampler(5, num_replicas=2, rank=0)  # type: ignore[call-arg]


@pytest.mark.parametrize("sampler", [OrderSampler(5), FeedSampler(5)], ids=lambda sampler: type(sampler).__name__)
def test_what_makes_the_order_is_fixed(sampler):
    """Setting it would not change the order: it is refused rather than ignored."""
    for name in ("seed", "shuffle", "mode", "size", "lanes"):
        with pytest.raises(AttributeError, match=f"property '{name}' of .* has no setter"):
            setattr(sampler, name, 1)


def test_a_dataset_that_grows_is_noticed():
    dataset = [1, 2, 3]
    sampler = FeedSampler(dataset)
    dataset.append(4)
    with pytest.raises(UsageError, match="the dataset's length has changed since the sampler was made: expected 3, got 4"):
        iter(sampler)


def test_a_rank_outside_is_refused_when_it_is_made():
    with pytest.raises(ValueError, match=r"Invalid rank 3, rank should be in the interval \[0, 2\]"):
        FeedSampler(5, distributed=(3, 3))


def test_it_pickles_and_copies_with_its_place():
    sampler = FeedSampler(range(50), distributed=(1, 3), seed=2, skip=[4], mode="block", lanes=6)
    list(sampler)
    for twin in (ForkingPickler.loads(ForkingPickler.dumps(sampler)), copy.deepcopy(sampler)):
        assert twin.epoch == 0
        assert list(twin) == list(copy.deepcopy(sampler))
        assert twin.epoch == 1


def test_a_billion_samples_take_no_memory():
    tracemalloc.start()
    for options in ({}, {"mode": "block"}, {"shuffle": False}):
        sampler = FeedSampler(10**9, distributed=(5, 8), **options)
        drawing = iter(sampler)
        assert len({next(drawing) for _ in range(10_000)}) == 10_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 << 20


# ---------------------------------------------------------------------------------------------------- process groups
def test_false_is_meant_and_none_without_ranks_is_silent():
    for distributed in (False, None):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert sorted(FeedSampler(20, distributed=distributed)) == list(range(20))


TWO_PROCESSES = """
import json, sys, warnings
import torch.distributed as dist
from fastfeed.feed.order import FeedSampler
rank, meet = int(sys.argv[1]), sys.argv[2]
made = {name: FeedSampler(11, distributed=given, seed=1)
        for name, given in (("true", True), ("exact", "exact"), ("false", False), ("none", None))}
early = ""
try:
    len(made["true"])
except ValueError as error:
    early = str(error)
dist.init_process_group("gloo", init_method="file://" + meet, rank=rank, world_size=2)
alone = [dist.new_group([0]), dist.new_group([1])][rank]
made["group"] = FeedSampler(11, distributed=alone, seed=1)
found = {"early": early}
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    for name, sampler in made.items():
        found[name] = {"length": len(sampler), "rank": sampler.rank, "world": sampler.num_replicas, "drawn": list(sampler)}
        found[name]["valid"] = sampler.share.valid(0, 99).tolist()
    list(made["none"])
found["said"] = [str(warning.message) for warning in said]
found["state"] = made["exact"].state(2)
dist.destroy_process_group()
print(json.dumps(found))
"""


@pytest.mark.long
def test_two_processes_find_their_ranks_when_they_draw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Samplers made before the process group is; real processes over gloo."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    children = [
        subprocess.Popen(
            [sys.executable, "-c", TWO_PROCESSES, str(rank), str(tmp_path / "meet")], stdout=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    outputs = [child.communicate(timeout=120)[0] for child in children]
    assert [child.returncode for child in children] == [0, 0]
    found = [json.loads(output) for output in outputs]
    order = Permutation(11, 1, 0)[:].tolist()
    for rank in range(2):
        assert "no process group yet, but WORLD_SIZE=2" in found[rank]["early"]
        for name in ("true", "exact"):
            assert (found[rank][name]["rank"], found[rank][name]["world"], found[rank][name]["length"]) == (rank, 2, 6)
            assert found[rank][name]["drawn"] == [*order, order[0]][rank::2]
        assert found[rank]["exact"]["valid"] == [True] * 5 + [rank == 0]
        for name in ("false", "none", "group"):
            assert (found[rank][name]["rank"], found[rank][name]["world"], found[rank][name]["drawn"]) == (0, 1, order)
        assert len(found[rank]["said"]) == 1, "None says it once, False and a group of one nothing"
        assert "torch.distributed has 2 ranks, and each of them draws every sample: distributed=True" in found[rank]["said"][0]
    assert found[0]["state"] == found[1]["state"] == FeedSampler(11, distributed=(0, 2), seed=1, exact=True).state(2)


# ---------------------------------------------------------------------------------------------------- one order, other ranks
def test_sharing_keeps_order_and_position():
    one = OrderSampler(23, seed=3, skip=[4, 5])
    list(one)
    shares = [one.sharing((rank, 2), drop_last=False, run=4) for rank in range(2)]
    found = [list(share) for share in shares]
    assert [share.epoch for share in shares] == [1, 1]
    whole = list(one)
    assert [i for at in (0, 4, 8) for part in found for i in part[at : at + 4]] == [*whole, whole[0]]
    assert 4 not in whole and one.recipe is shares[0].recipe


def test_sharing_leaves_the_original_where_it_is():
    one = OrderSampler(23, seed=3)
    one.load({**one.state(), "consumed": 8})
    other = one.sharing(False, drop_last=False, run=1)
    assert len(list(other)) == len(list(one)) == 15
    assert len(list(other)) == 23


@pytest.mark.parametrize("run", [0, -1, 1.5, True])
def test_a_run_is_a_number(run):
    with pytest.raises(UsageError, match="run is a whole number from 1"):
        FeedSampler(23, run=run)


def test_another_epoch_may_be_named_once_an_iteration_has_begun():
    sampler = OrderSampler(5, seed=1)
    found = [sampler.moved]
    next(iter(sampler))
    found.append(sampler.moved)
    for epoch in (0, 3):
        sampler.set_epoch(epoch)
        found.append(sampler.moved)
    next(iter(sampler))
    assert [*found, sampler.moved] == [False, False, False, True, False]
