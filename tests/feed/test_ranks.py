"""Ranks and shares: who draws which slots, without torch.distributed and with it."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DistributedSampler

from fastfeed.errors import UsageError
from fastfeed.feed.ranks import Ranks, Share, checked, ranks_of, unsharded_ranks


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment that no launcher has written to."""
    for name in ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    """A process group of this one process."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'meet'}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def share(size: int, rank: int = 0, world: int = 1, *, start: int = 0, drop_last: bool = False) -> Share:
    return Share(size=size, epoch=0, start=start, ranks=Ranks(rank, world, ""), drop_last=drop_last)


# ---------------------------------------------------------------------------------------------------- what is given
@pytest.mark.parametrize("argument", [None, False, True, "exact", (0, 1), (7, 8)])
def test_what_is_taken(argument):
    assert checked(argument) == argument


def test_a_pair_may_be_a_list_of_any_integers():
    assert checked([np.int64(3), 4]) == (3, 4)


@pytest.mark.parametrize("argument", ["all", 1, 0, 2.5, (1,), (0, 1, 2), "01", object()])
def test_what_is_not_taken(argument):
    with pytest.raises(UsageError, match="distributed is True, False, None, 'exact', a process group or"):
        checked(argument)


@pytest.mark.parametrize(("rank", "world"), [(4, 4), (-1, 4), (1, 1), (9, 8)])
def test_a_rank_outside_is_refused_as_torch_does(rank, world):
    with pytest.raises(ValueError, match=rf"Invalid rank {rank}, rank should be in the interval \[0, {world - 1}\]"):
        checked((rank, world))
    with pytest.raises(ValueError, match=rf"Invalid rank {rank}, rank should be in the interval \[0, {world - 1}\]"):
        torchs(10, world, rank)


def torchs(size: int, world: int, rank: int, **options: Any) -> "DistributedSampler[int]":
    """torch's own sampler, for comparison."""
    return DistributedSampler(range(size), num_replicas=world, rank=rank, **options)  # type: ignore[arg-type]


def test_a_world_has_ranks():
    with pytest.raises(UsageError, match="a world has at least one rank: got 0"):
        checked((0, 0))


# ---------------------------------------------------------------------------------------------------- what it means
def test_without_ranks_there_is_one():
    for distributed in (None, False):
        found = ranks_of(distributed)
        assert (found.rank, found.world) == (0, 1)
        assert found.why == f"distributed={distributed}: every process draws every sample"
    found = ranks_of((3, 8))
    assert (found.rank, found.world, found.why) == (3, 8, "distributed=(3, 8)")


@pytest.mark.parametrize("argument", [True, "exact"])
def test_one_process_needs_no_group(argument):
    found = ranks_of(argument)
    assert (found.rank, found.world) == (0, 1)
    assert found.why == "no process group, and no launcher that started several processes: one rank"


@pytest.mark.parametrize("argument", [True, "exact"])
def test_several_processes_need_a_group(no_launcher, argument):
    no_launcher.setenv("WORLD_SIZE", "8")
    with pytest.raises(UsageError, match="has no process group yet, but WORLD_SIZE=8 says that there are several") as raised:
        ranks_of(argument)
    assert "init_process_group before the loader is used, or give distributed=(rank, world)" in str(raised.value)


@pytest.mark.usefixtures("group")
def test_a_group_is_asked():
    world = dist.group.WORLD
    assert world is not None
    for distributed in (True, "exact", world):
        found = ranks_of(checked(distributed))
        assert (found.rank, found.world) == (0, 1)
        assert "process group" in found.why
    assert unsharded_ranks() == 1


@pytest.mark.usefixtures("group")
def test_a_group_without_this_process():
    with pytest.raises(UsageError, match="this process is not in the process group that was given as distributed"):
        checked(dist.GroupMember.NON_GROUP_MEMBER)


def test_no_group_shares_nothing():
    assert unsharded_ranks() == 1
    assert "WORLD_SIZE" not in os.environ


# ---------------------------------------------------------------------------------------------------- shares
shares = {"size": st.integers(0, 200), "world": st.integers(1, 9), "start": st.integers(0, 200)}


@given(**shares)
def test_padded_shares_are_equal_and_wrap_around(size, world, start):
    start = min(start, size)
    parts = [share(size, rank, world, start=start) for rank in range(world)]
    length = -(-(size - start) // world)
    assert {part.length for part in parts} == {length}
    drawn = np.stack([part.slots(0, length) for part in parts], axis=1).ravel().tolist() if length else []
    wanted = list(range(start, size))
    padding = length * world - len(wanted)
    assert drawn == wanted + [slot % size for slot in range(size, size + padding)]
    assert {part.padding for part in parts} == {padding}
    valid = np.stack([part.valid(0, length) for part in parts], axis=1).ravel().tolist()
    assert valid == [True] * len(wanted) + [False] * padding


@given(**shares)
def test_shares_that_drop_are_equal_and_have_no_padding(size, world, start):
    start = min(start, size)
    parts = [share(size, rank, world, start=start, drop_last=True) for rank in range(world)]
    length = (size - start) // world
    assert {part.length for part in parts} == {length}
    drawn = np.stack([part.slots(0, length) for part in parts], axis=1).ravel().tolist() if length else []
    assert drawn == list(range(start, start + length * world))
    assert all(part.valid(0, length).all() and part.padding == 0 for part in parts)


@given(drop_last=st.booleans(), size=st.integers(1, 100), world=st.integers(1, 9))
def test_lengths_are_those_of_torch(drop_last, size, world):
    assert share(size, 0, world, drop_last=drop_last).length == len(torchs(size, world, 0, drop_last=drop_last))


@given(size=st.integers(1, 100), world=st.integers(1, 9), data=st.data())
def test_parts_of_a_share(size, world, data):
    part = share(size, data.draw(st.integers(0, world - 1)), world)
    cut = data.draw(st.integers(0, part.length))
    assert [*part.slots(0, cut), *part.slots(cut, part.length + 9)] == list(part.slots(0, part.length))
    assert [*part.valid(0, cut), *part.valid(cut, part.length + 9)] == list(part.valid(0, part.length))


@given(drop_last=st.booleans(), **shares)
def test_what_all_ranks_handed_out_is_the_beginning_of_the_order(drop_last, size, world, start):
    """If each has handed out as many, and nothing else is said of their batches."""
    start = min(start, size)
    parts = [share(size, rank, world, start=start, drop_last=drop_last) for rank in range(world)]
    for handed_out in range(parts[0].length + 1):
        slots = {int(slot) for part in parts for slot in part.slots(0, handed_out)}
        if handed_out < parts[0].length:
            assert slots == set(range(start, parts[0].consumed(handed_out)))
        else:
            assert parts[0].consumed(handed_out) == size


# ---------------------------------------------------------------------------------------------------- runs
@given(
    size=st.integers(1, 60), start=st.integers(0, 60), world=st.integers(1, 6), run=st.integers(1, 9), drop_last=st.booleans()
)
def test_ranks_that_take_runs_in_turn_have_the_order_in_a_row(size, start, world, run, drop_last):
    options: Any = {"size": size, "epoch": 0, "start": start, "drop_last": drop_last, "run": run}
    shares = [Share(**options, ranks=Ranks(rank, world, "")) for rank in range(world)]
    length = shares[0].length
    seen: list[int] = []
    valid: list[bool] = []
    for at in range(0, length, run):
        for one in shares:
            seen += one.slots(at, at + run).tolist()
            valid += one.valid(at, at + run).tolist()
        assert {one.consumed(min(at + run, length)) for one in shares} == {size if at + run >= length else start + len(seen)}
    wanted = list(range(start, start + length * world))
    assert seen == [slot % size for slot in wanted]
    assert valid == [slot < size for slot in wanted]
    assert valid.count(False) < world
    assert {one.consumed(length) for one in shares} == {size}


@given(size=st.integers(1, 60), world=st.integers(1, 6), run=st.integers(1, 9), cut=st.integers(0, 20))
def test_pieces_of_a_share_with_runs_are_the_share(size, world, run, cut):
    one = Share(size=size, epoch=0, start=0, ranks=Ranks(world - 1, world, ""), drop_last=False, run=run)
    assert [*one.slots(0, cut), *one.slots(cut, 99)] == one.slots(0, 99).tolist()
