"""Positions: any stop, any other number of ranks and batch size, and together every sample comes once."""

import json
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import BatchSampler

from fastfeed.errors import UsageError
from fastfeed.feed.order import FeedSampler, OrderSampler
from fastfeed.feed.ranks import Share

MODES: list[dict[str, Any]] = [{}, {"shuffle": False}, {"mode": "block", "block": 7}, {"mode": "block", "block": 5, "lanes": 6}]


class Run:
    """All ranks of a run, stepping together, as DDP makes them."""

    def __init__(self, size: int, world: int, batch: int, *, drop_batch: bool = False, **options: Any) -> None:
        self.samplers = [FeedSampler(size, distributed=(rank, world), **options) for rank in range(world)]
        self.batches = [BatchSampler(sampler, batch, drop_last=drop_batch) for sampler in self.samplers]
        self.handed_out = 0

    def begin(self) -> Iterator[list[list[int]]]:
        """Steps of an epoch: a batch of each rank; it fails if one rank has fewer."""
        self.handed_out = 0
        for step in zip(*self.batches, strict=True):
            assert len({len(batch) for batch in step}) == 1
            self.handed_out += len(step[0])
            yield list(step)

    def shares(self) -> list[Share]:
        return [sampler.share for sampler in self.samplers]

    def state(self) -> dict[str, Any]:
        """The same on each rank, and it survives JSON."""
        states = [sampler.state(self.handed_out) for sampler in self.samplers]
        assert all(state == states[0] for state in states)
        found: dict[str, Any] = json.loads(json.dumps(states[0]))
        return found

    def load(self, state: dict[str, Any]) -> None:
        for sampler in self.samplers:
            sampler.load(state)


def counted(steps: list[list[list[int]]]) -> Counter[int]:
    return Counter(position for step in steps for batch in step for position in batch)


def counted_valid(run: Run, steps: list[list[list[int]]]) -> Counter[int]:
    """Of the steps of one iteration, those that their masks call samples."""
    found: Counter[int] = Counter()
    for rank, share in enumerate(run.shares()):
        drawn = [position for step in steps for position in step[rank]]
        found.update(position for position, valid in zip(drawn, share.valid(0, len(drawn)), strict=True) if valid)
    return found


@st.composite
def legs(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    """(ranks, batch size, steps before the stop) of up to four runs, each going on where the one before stopped."""
    return draw(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 13), st.integers(0, 12)), min_size=1, max_size=4))


@settings(max_examples=150)
@given(size=st.integers(1, 250), legs=legs(), options=st.sampled_from(MODES), epoch=st.integers(0, 3), data=st.data())
def test_exact_every_sample_once_over_all_stops(size, legs, options, epoch, data):
    skip = data.draw(st.lists(st.integers(0, size - 1), max_size=5))
    delivered: Counter[int] = Counter()
    state = None
    for number, (world, batch, stop) in enumerate(legs):
        run = Run(size, world, batch, exact=True, skip=skip, seed=3, **options)
        if state is None:
            for sampler in run.samplers:
                sampler.set_epoch(epoch)
        else:
            run.load(state)
        steps = []
        for step in run.begin():
            steps.append(step)
            if len(steps) == stop and number < len(legs) - 1:
                break
        delivered += counted_valid(run, steps)
        state = run.state()
        if state["consumed"] == state["size"] - len(set(skip)):
            break
    assert delivered == Counter(set(range(size)) - set(skip))
    assert state is not None and state["epoch"] == epoch


@settings(max_examples=100)
@given(size=st.integers(1, 250), legs=legs(), options=st.sampled_from(MODES), drop_last=st.booleans())
def test_otherwise_every_sample_and_the_padding_of_the_last_run(size, legs, options, drop_last):
    """Padding: the first samples of the epoch's order once more. drop_last: the last of the order are left out."""
    delivered: Counter[int] = Counter()
    run = Run(size, 1, 1, drop_last=drop_last, **options)
    order = [step[0][0] for step in run.begin()]
    state = None
    for number, (world, batch, stop) in enumerate(legs):
        run = Run(size, world, batch, drop_last=drop_last, **{**options, "lanes": 16} if options.get("block") == 7 else options)
        if state is not None:
            run.load(state)
        steps = []
        for step in run.begin():
            steps.append(step)
            if len(steps) == stop and number < len(legs) - 1:
                break
        delivered += counted(steps)
        state = run.state()
        if state["consumed"] == size:
            break
    rest = run.shares()[0].rest % world
    if drop_last:
        assert delivered == Counter(order[: size - rest])
    else:
        assert delivered == Counter(order + [order[place % size] for place in range(-rest % world)])


@given(size=st.integers(1, 120), world=st.integers(1, 5), batch=st.integers(1, 9), options=st.sampled_from(MODES))
def test_a_resumed_run_is_the_run_that_was_not_stopped(size, world, batch, options):
    """With as many ranks and the same batches: the same batches from there on, this epoch and the next."""
    whole = Run(size, world, batch, **options)
    epochs = [list(whole.begin()) for _ in range(2)]
    run = Run(size, world, batch, **options)
    stops = [run.state()]
    stops += [run.state() for _ in run.begin()]
    for stop, state in enumerate(stops):
        resumed = Run(size, world, batch, **options)
        resumed.load(state)
        rest = list(resumed.begin())
        if stop < len(epochs[0]):
            assert rest == epochs[0][stop:]
            rest = list(resumed.begin())
        assert rest == epochs[1]


@given(size=st.integers(1, 120), world=st.integers(1, 5), batch=st.integers(1, 9))
def test_a_position_after_every_batch_also_where_the_last_is_dropped(size, world, batch):
    """The loader's drop_last leaves samples of the share: who hands out the last batch says that all is handed out."""
    run = Run(size, world, batch, drop_batch=True)
    list(run.begin())
    share = run.shares()[0]
    state = run.samplers[0].state(share.length)
    assert state["consumed"] == size
    run.load(state)
    list(run.begin())
    assert run.samplers[0].epoch == 1


def test_a_position_is_a_few_numbers():
    sampler = FeedSampler(10**12, mode="block", skip=[5], distributed=(3, 8))
    iter(sampler)
    state = sampler.state(1000)
    assert state == {
        "version": 1, "size": 10**12, "skip": state["skip"], "seed": 0, "mode": "block", "block": 256, "lanes": 128,
        "epoch": 0, "consumed": 8000,
    }  # fmt: skip
    assert len(json.dumps(state)) < 200


def test_torch_saves_it(tmp_path: Path):
    sampler = FeedSampler(100, mode="block", block=[0, 50, 100])
    drawing = iter(sampler)
    torch.save(sampler.state(30), tmp_path / "position")
    loaded = torch.load(tmp_path / "position", weights_only=True)
    other = FeedSampler(100, mode="block", block=[0, 50, 100])
    other.load(loaded)
    assert list(other) == list(drawing)[30:]


def test_before_the_first_iteration_the_position_is_the_beginning():
    sampler = FeedSampler(100)
    assert (sampler.state()["epoch"], sampler.state()["consumed"]) == (0, 0)
    sampler.set_epoch(4)
    assert (sampler.state()["epoch"], sampler.state()["consumed"]) == (4, 0)


def test_a_loaded_position_is_the_position_until_something_is_drawn():
    sampler = FeedSampler(100, distributed=(0, 2))
    iter(sampler)
    state = sampler.state(10)
    sampler.load(state)
    assert sampler.state() == state
    assert sampler.share.length == 40
    assert len(sampler) == 50, "frameworks add what came before themselves"
    iter(sampler)
    assert sampler.state() == state
    assert sampler.state(3)["consumed"] == 26


def test_a_finished_epoch_stays_the_position_when_the_next_is_named():
    """set_epoch between the last batch and the next iteration does not make the next epoch a finished one."""
    sampler = FeedSampler(10)
    list(sampler)
    sampler.set_epoch(1)
    assert (sampler.state(10)["epoch"], sampler.state(10)["consumed"]) == (0, 10)
    other = FeedSampler(10)
    other.load(sampler.state(10))
    assert (other.state()["epoch"], other.state()["consumed"]) == (1, 0)
    assert list(other) == list(sampler)
    assert other.epoch == 1


def test_trainers_that_set_the_epoch_again_keep_the_position():
    sampler = FeedSampler(100)
    order = list(sampler)
    sampler.load(sampler.state(60))
    sampler.set_epoch(0)
    assert list(sampler) == order[60:]
    sampler.load({**sampler.state(), "consumed": 100})
    sampler.set_epoch(0)
    assert list(sampler) == [], "all of it was handed out"
    sampler.load({**sampler.state(), "consumed": 100})
    sampler.set_epoch(1)
    assert len(list(sampler)) == 100


def test_a_position_that_set_epoch_drops_is_told():
    sampler = FeedSampler(100)
    iter(sampler)
    sampler.load(sampler.state(60))
    with pytest.warns(
        UserWarning, match=r"set_epoch\(5\) drops the position that was loaded, 60 samples into epoch 0: load it"
    ):
        sampler.set_epoch(5)
    assert len(list(sampler)) == 100
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sampler.set_epoch(6)
        sampler.load(sampler.state(100))
        sampler.set_epoch(7)


def test_a_position_of_one_iteration_can_be_named():
    """Two iterations at a time: each has its share."""
    sampler = FeedSampler(100)
    iter(sampler)
    first = sampler.share
    iter(sampler)
    assert [sampler.state(7, share)["epoch"] for share in (first, None)] == [0, 1]


@pytest.mark.parametrize("handed_out", [-1, 51])
def test_positions_that_there_are_not(handed_out):
    with pytest.raises(
        UsageError, match=f"a rank hands out at most the samples of its share: expected 0 to 50, got {handed_out}"
    ):
        FeedSampler(100, distributed=(0, 2)).state(handed_out)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"size": 101}, "this position belongs to another order, by size: expected size 101, got size 100"),
        ({"seed": 1}, "by seed: expected seed 1, got seed 0"),
        ({"shuffle": False}, "by mode: expected mode none, got mode full"),
        ({"mode": "block"}, "by mode and block: expected mode block, block 256, got mode full, block None"),
        ({"skip": [1]}, "by skip: expected skip [0-9a-f]{16}, got skip None"),
        ({"size": 50, "seed": 3}, "by size and seed: expected size 50, seed 3, got size 100, seed 0"),
    ],
)
def test_a_position_of_another_order_is_refused(options, text):
    state = FeedSampler(100).state(10)
    with pytest.raises(UsageError, match=text) as raised:
        FeedSampler(options.pop("size", 100), **options).load(state)
    assert str(raised.value).endswith("Make the loader as it was when the position was taken.")


def test_lanes_come_with_the_position_or_are_compared():
    state = FeedSampler(100, mode="block", distributed=(0, 2), lanes=6).state(10)
    for lanes in (None, 6):
        sampler = FeedSampler(100, mode="block", distributed=(0, 5), lanes=lanes)
        sampler.load(state)
        list(sampler)
        assert sampler.lanes == 6
    with pytest.raises(UsageError, match="belongs to another order, by lanes: expected lanes 8, got lanes 6"):
        FeedSampler(100, mode="block", lanes=8).load(state)
    unsettled = FeedSampler(100, mode="block")
    unsettled.load(FeedSampler(100, mode="block", distributed=(0, 2)).state())
    list(unsettled)
    assert unsettled.lanes == 16


def test_what_is_no_position():
    sampler = FeedSampler(100)
    with pytest.raises(UsageError, match="this is no position of a sampler: it lacks block, consumed, epoch, lanes, mode"):
        sampler.load({"seed": 1})
    with pytest.raises(UsageError, match="this position is outside of its epoch: expected consumed from 0 to 100, got 101"):
        sampler.load({**sampler.state(), "consumed": 101})
    with pytest.raises(UsageError, match="by version: expected version 1, got version 2"):
        sampler.load({**sampler.state(), "version": 2})
    with pytest.raises(TypeError, match="cannot be interpreted as an integer"):
        sampler.load({**sampler.state(), "epoch": "1"})
    assert (sampler.epoch, sampler.state()["consumed"]) == (0, 0), "a refused position changes nothing"


def test_the_sampler_without_ranks_has_positions_too():
    sampler = OrderSampler(100, seed=3)
    order = list(sampler)
    other = FeedSampler(100, seed=3, distributed=(1, 2))
    other.load(sampler.state(40))
    assert list(other) == order[41::2]
