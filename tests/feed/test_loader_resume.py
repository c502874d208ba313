"""state_dict and load_state_dict: exact at every batch, for other workers, worlds and batch sizes."""

import json
from collections import Counter
from typing import Any

import pytest
import torch
from loading import Numbers, equal, indices, seed_all
from torch.utils.data import IterableDataset

from fastfeed.errors import UsageError
from fastfeed.feed.loader import DataLoader

SIZE = 23


def loader(workers: int = 0, batch: int | None = 5, **options: Any) -> DataLoader:
    return DataLoader(Numbers(SIZE), batch, num_workers=workers, **{"seed": 3, "shuffle": True, **options})


def numbers(batches: Any) -> Any:
    """Without the worker seeds."""
    return [batch[:4] for batch in batches]


def taken(passed: Any, count: int) -> list[Any]:
    return [next(passed) for _ in range(count)]


WAYS: list[dict[str, Any]] = [
    {}, {"shuffle": False}, {"drop_last": True}, {"shuffle_mode": "block"}, {"batch": None}, {"distributed": (1, 2)},
    {"distributed": "exact"}, {"distributed": (0, 3), "drop_last": True}, {"batch": SIZE},
]  # fmt: skip


@pytest.mark.parametrize("options", WAYS, ids=str)
def test_every_batch_of_two_epochs_can_be_gone_on_from(options):
    """At each stop, also the last one, and after a break: the next batches are those of the loader that went on."""
    reference = loader(**options)
    steps: list[tuple[Any, Any]] = []
    for _ in range(2):
        steps += [(batch, json.loads(json.dumps(reference.state_dict()))) for batch in reference]
    each = len(steps) // 2
    for stop, (_, state) in enumerate(steps, 1):
        again = loader(**options)
        again.load_state_dict(state)
        if stop % each:
            assert again.state_dict() == state
        else:  # the end of an epoch is the beginning of the next one
            beginning = {**state["order"], "epoch": state["order"]["epoch"] + 1, "consumed": 0}
            assert again.state_dict()["order"] == beginning
        rest = list(again)
        wanted = [batch for batch, _ in (steps[stop:each] if stop < each else steps[stop : 2 * each])]
        if stop < 2 * each:
            assert equal(numbers(rest), numbers(wanted)), stop
        assert again.epoch == stop // each
        following = list(again)
        if stop < each:
            assert equal(numbers(following), numbers([batch for batch, _ in steps[each:]]))
        assert len(following) == len(again) == each


@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize("after", [0, 2])
def test_workers_may_be_others(before, after):
    """What workers have fetched ahead is not counted."""
    wanted = list(loader())
    for stop in (0, 1, 3, 5):
        first = loader(before)
        passed = iter(first)
        taken(passed, stop)
        state = first.state_dict()
        del passed
        again = loader(after, persistent_workers=after > 0)
        again.load_state_dict(state)
        rest = numbers(again)
        assert equal(rest, numbers(wanted[stop:] if stop < 5 else list(again_epoch(1))))


def again_epoch(epoch: int) -> DataLoader:
    found = loader()
    found.set_epoch(epoch)
    return found


def test_the_same_loader_goes_on_after_a_break():
    wanted = list(loader())
    for workers in (0, 1):
        one = loader(workers)
        for at, _ in enumerate(one):
            if at == 1:
                break
        one.load_state_dict(one.state_dict())
        assert equal(numbers(one), numbers(wanted[2:]))
        assert one.epoch == 0


def test_without_a_load_a_break_is_the_end_of_the_epoch():
    one = loader()
    next(iter(one))
    assert indices(one) == indices(again_epoch(1))


def test_before_the_first_batch():
    one = loader()
    fresh = one.state_dict()
    passed = iter(one)
    assert one.state_dict() == fresh
    list(passed)
    second = iter(one)  # begun, and nothing was taken
    again = loader()
    again.load_state_dict(one.state_dict())
    assert again.epoch == 1
    assert indices(again) == indices(second)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_set_epoch_before_the_pass_is_told(workers):
    one = loader(workers)
    one.set_epoch(4)
    next(iter(one))
    state = one.state_dict()
    assert (state["order"]["epoch"], state["order"]["consumed"]) == (4, 5)


@pytest.mark.parametrize("world", [1, 2, 3, 8])
def test_another_number_of_ranks_goes_on_with_what_is_left(world):
    """Two ranks stop after two batches each; all ranks of the new world together draw the rest, padding aside."""
    ranks = [loader(batch=3, distributed=(rank, 2)) for rank in range(2)]
    passes = [iter(rank) for rank in ranks]
    seen = Counter(i for passed in passes for batch in taken(passed, 2) for i in batch[0].tolist())
    states = [rank.state_dict() for rank in ranks]
    assert states[0] == states[1]
    found: Counter[int] = Counter()
    for rank in range(world):
        again = loader(batch=2, distributed=(rank, world) if world > 1 else None)
        again.load_state_dict(states[0])
        for batch in again:
            found.update(i for i, valid in zip(batch[0].tolist(), again.valid.tolist(), strict=True) if valid)
    assert set(found.values()) == {1}
    assert seen + found == Counter(range(SIZE))


def test_block_order_keeps_its_lanes_in_another_world():
    """Sixteen lanes a rank of the first iteration: of two ranks 32, which one rank goes on with."""
    ranks = [loader(batch=2, distributed=(rank, 2), shuffle_mode="block") for rank in range(2)]
    wanted = [{i for batch in step for i in batch[0].tolist()} for step in zip(*ranks, strict=True)]
    ranks = [loader(batch=2, distributed=(rank, 2), shuffle_mode="block") for rank in range(2)]
    for rank in ranks:
        taken(iter(rank), 2)
    state = ranks[0].state_dict()
    assert state["order"]["lanes"] == 32
    alone = loader(batch=4, shuffle_mode="block", distributed=(0, 1))
    alone.load_state_dict(state)
    assert [set(batch[0].tolist()) for batch in alone][:3] == wanted[2:5]


def test_a_state_is_a_few_numbers_whatever_the_size():
    class Huge:
        def __len__(self) -> int:
            return 10**12

        def __getitem__(self, index: int) -> int:
            return index

    dataset: Any = Huge()
    big = DataLoader(dataset, 4, shuffle=True, seed=1, num_workers=0)
    taken(iter(big), 3)
    assert len(json.dumps(big.state_dict())) < 300
    assert big.state_dict()["order"]["consumed"] == 12


def test_a_failed_batch_counts_as_handed_out():
    class Bad(Numbers):
        def __getitem__(self, index: int) -> Any:
            if index == 7:
                raise ValueError("x")
            return index

    one = DataLoader(Bad(), 5, num_workers=0, seed=1)
    passed = iter(one)
    next(passed)
    with pytest.raises(ValueError, match="sample 7 of batch 1"):
        next(passed)
    again = DataLoader(Bad(), 5, num_workers=0, seed=1)
    again.load_state_dict(one.state_dict())
    assert next(iter(again)).tolist() == [10, 11, 12, 13, 14]


# ---------------------------------------------------------------------------------------------------- refusals
class Flow(IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(3))


@pytest.mark.parametrize(
    "options",
    [{"seed": None}, {"seed": None, "distributed": False}, {"seed": 1, "shuffle": None, "sampler": [1]},
     {"seed": 1, "shuffle": None, "batch": 1, "batch_sampler": [[1]]}],
    ids=str,
)  # fmt: skip
def test_without_an_order_of_its_own_it_says_what_is_missing(options):
    one = loader(**options)
    for call in ("state_dict", "load_state_dict"):
        with pytest.raises(UsageError, match=r"only an order of the loader's own can be gone on with\. Give seed="):
            getattr(one, call)({})
    with pytest.raises(UsageError, match="Give seed="):
        DataLoader(Flow(), num_workers=0).state_dict()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 4}, "belongs to another order, by seed"),
        ({"shuffle": False}, "belongs to another order, by mode"),
        ({"size": 24}, "belongs to another order, by size"),
    ],
    ids=str,
)
def test_a_state_of_another_order_is_refused(change, message):
    size = change.pop("size", SIZE)
    other = DataLoader(Numbers(size), 5, num_workers=0, **{"seed": 3, "shuffle": True, **change})
    with pytest.raises(UsageError, match=message):
        other.load_state_dict(loader().state_dict())


@pytest.mark.parametrize("state", [{}, {"version": 2, "order": {}}, {"version": 1}, {"version": 1, "order": 3}], ids=str)
def test_something_else_is_no_state(state):
    with pytest.raises(UsageError, match=r"this is no state of a fastfeed.DataLoader"):
        loader().load_state_dict(state)


def test_batches_out_of_order_have_no_position():
    one = loader(1, in_order=False)
    next(iter(one))
    with pytest.raises(UsageError, match="in_order=False"):
        one.state_dict()
    assert loader(0, in_order=False).state_dict()["order"]["consumed"] == 0


def test_torch_mode_resumes_the_order():
    """Random numbers of torch mode are its workers'; the order is the loader's own."""
    one = DataLoader(Numbers(), 4, num_workers=0, shuffle=True, distributed=(0, 1))
    assert one.rng == "torch"
    wanted = indices(one)
    again = DataLoader(Numbers(), 4, num_workers=0, shuffle=True, distributed=(0, 1))
    taken(iter(again), 2)
    third = DataLoader(Numbers(), 4, num_workers=1, shuffle=True, distributed=(0, 1))
    third.load_state_dict(again.state_dict())
    assert indices(third) == wanted[2:]


def test_torch_save_carries_it(tmp_path):
    one = loader()
    taken(iter(one), 2)
    torch.save(one.state_dict(), tmp_path / "state.pt")
    again = loader()
    again.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    seed_all(0)
    assert indices(again) == indices(loader())[2:]


def test_a_position_that_was_reached_from_a_position_is_one_as_well():
    wanted = list(loader())
    state = None
    for at in range(5):
        one = loader(batch=5)
        if state is not None:
            one.load_state_dict(state)
        assert equal(numbers(taken(iter(one), 1)), numbers(wanted[at : at + 1]))
        state = one.state_dict()
    assert state is not None and state["order"]["consumed"] == SIZE
