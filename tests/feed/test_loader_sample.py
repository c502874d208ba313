"""Sample mode: random numbers of (base, epoch, index), whatever the workers are."""

import os
import resource
import time
from typing import Any

import pytest
import torch
from loading import Bunches, Calls, Eager, Numbers, Together, equal, indices, mixed_up, seed_all, states
from torch.utils.data import Dataset, WeightedRandomSampler

from fastfeed.feed.loader import DataLoader

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


def epochs(workers: int, count: int = 2, size: int = 23, **options: Any) -> Any:
    """Batches of some epochs, without the worker seeds, which there are only with workers."""
    seed_all(11)
    loader = DataLoader(options.pop("dataset", Numbers(size)), num_workers=workers, **{"batch_size": 4, **options})
    return [[batch[:4] for batch in loader] for _ in range(count)]


WAYS: list[dict[str, Any]] = [
    {"seed": 7, "shuffle": True},
    {"seed": 7},
    {"seed": 7, "shuffle": True, "shuffle_mode": "block"},
    {"seed": 7, "shuffle": True, "drop_last": True, "distributed": (1, 2)},
    {"rng": "sample", "shuffle": True},
    {"rng": "sample", "shuffle": True, "generator": 3},
    {"rng": "sample", "sampler": Eager(23)},
    {"seed": 3, "sampler": WeightedRandomSampler([1.0] * 23, 23)},
    {"rng": "sample", "batch_size": 1, "batch_sampler": Bunches(23)},
    {"seed": 7, "shuffle": True, "dataset": Together()},
]


@pytest.mark.parametrize("way", WAYS, ids="-".join)
def test_batches_do_not_depend_on_workers(way):
    def options() -> dict[str, Any]:
        given = way.get("generator")
        return {**way, "generator": torch.Generator().manual_seed(given)} if given else dict(way)

    without = epochs(0, **options())
    assert equal(without, epochs(1, **options()))
    assert equal(without, epochs(3, **options()))
    assert not equal(without[0], without[1])  # another epoch


def test_batches_do_not_depend_on_persistence_and_prefetching():
    without = epochs(0, 3, seed=7, shuffle=True)
    assert equal(without, epochs(2, 3, seed=7, shuffle=True, persistent_workers=True, prefetch_factor=5))
    unbatched = epochs(0, 3, seed=7, shuffle=True, batch_size=None)
    assert equal(unbatched, epochs(2, 3, seed=7, shuffle=True, batch_size=None))


@pytest.mark.long
def test_spawned_workers_draw_the_same():
    assert equal(epochs(0, 1, 6, seed=7, shuffle=True), epochs(1, 1, 6, seed=7, shuffle=True, multiprocessing_context="spawn"))


class Keyed(Dataset[Any]):
    """Indices are texts, or tensors."""

    def __getitem__(self, index: Any) -> Any:
        return str(index), torch.rand(1)


@pytest.mark.parametrize(
    "keys", [["a", "b", "c"], [("x", 1), ("x", 2)], list(torch.tensor([5, 7]))], ids=["text", "tuple", "tensor"]
)
def test_indices_of_any_kind_have_the_same_numbers_in_every_process(keys):
    """Python's hash of a text is another one in a spawned process, and a tensor's is a place in memory."""
    dataset: Any = Keyed()
    options: dict[str, Any] = {"sampler": keys, "seed": 5, "batch_size": 1}
    first = [list(DataLoader(dataset, num_workers=0, **options)) for _ in range(2)]
    assert equal(first[0], first[1])
    assert len({batch[1].item() for batch in first[0]}) == len(keys)
    if isinstance(keys[0], str):
        assert equal(first[0], list(DataLoader(dataset, num_workers=1, multiprocessing_context="spawn", **options)))


def test_a_seed_decides_order_and_numbers():
    first = epochs(0, seed=1, shuffle=True)
    assert equal(first, epochs(0, seed=1, shuffle=True))
    other = epochs(0, seed=2, shuffle=True)
    assert indices(first[0]) != indices(other[0])
    stored = epochs(0, seed=1), epochs(0, seed=2)
    assert indices(stored[0][0]) == indices(stored[1][0])
    assert not equal(stored[0], stored[1])


def test_without_a_seed_the_global_generator_decides():
    seed_all(1)
    first = list(DataLoader(Numbers(), 4, shuffle=True, num_workers=0, rng="sample"))
    second = list(DataLoader(Numbers(), 4, shuffle=True, num_workers=0, rng="sample"))
    seed_all(1)
    assert equal(first, list(DataLoader(Numbers(), 4, shuffle=True, num_workers=0, rng="sample")))
    assert not equal(first, second)


def test_a_sample_has_its_numbers_whatever_batch_it_is_in():
    def by_index(**options: Any) -> dict[int, Any]:
        found = {}
        for batch in DataLoader(Numbers(), num_workers=0, seed=7, **options):
            for at, index in enumerate(batch[0].tolist()):
                found[index] = batch[1][at].tolist(), batch[2][at].item(), batch[3][at].item()
        return found

    assert by_index(batch_size=1) == by_index(batch_size=7)
    ranks = {**by_index(batch_size=4, distributed=(0, 2)), **by_index(batch_size=4, distributed=(1, 2))}
    assert by_index(batch_size=1) == ranks


def test_the_main_process_keeps_its_random_numbers():
    seed_all(1)
    before = states()
    loader = DataLoader(Numbers(), 4, num_workers=0, seed=7, shuffle=True, collate_fn=mixed_up)
    list(loader)
    assert equal(states(), before)
    batches = iter(loader)
    next(batches)
    torch.rand(1)
    next(batches)
    after = states()
    torch.set_rng_state(before[0])
    torch.rand(1)
    assert equal(states(), after)


def test_a_sampler_draws_what_it_draws_in_torch_mode():
    """Sample mode takes one number of the global generator for its base, as torch does for the workers' seeds."""
    seed_all(4)
    torch_mode = indices(DataLoader(Numbers(), 4, shuffle=True, num_workers=0))
    seed_all(4)
    assert indices(DataLoader(Numbers(), 4, shuffle=True, num_workers=0, rng="sample")) == torch_mode


def test_set_epoch_says_which_epoch_is_next():
    three = epochs(0, 3, seed=7, shuffle=True)
    loader = DataLoader(Numbers(), 4, seed=7, shuffle=True, num_workers=0)
    assert loader.epoch == 0
    for epoch in (2, 0, 1):
        loader.set_epoch(epoch)
        assert equal([batch[:4] for batch in loader], three[epoch])
        assert loader.epoch == epoch
    foreign = DataLoader(Numbers(), 4, rng="sample", num_workers=0)
    assert foreign.epoch == -1
    foreign.set_epoch(5)
    list(foreign)
    assert foreign.epoch == 5
    list(foreign)
    assert foreign.epoch == 6


def test_two_passes_at_once_have_their_own_epochs():
    wanted = epochs(0, 2, seed=7, shuffle=True)
    for workers in (0, 1):
        loader = DataLoader(Numbers(), 4, seed=7, shuffle=True, num_workers=workers)
        pairs = list(zip(loader, loader, strict=True))
        assert equal([first[:4] for first, _ in pairs], wanted[0])
        assert equal([second[:4] for _, second in pairs], wanted[1])


class SlowOnce:
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self, index: int) -> int:
        time.sleep(self.seconds if index == 8 else 0.002)
        return index


@pytest.mark.long
def test_one_slow_sample_does_not_stall_the_others():
    """pytorch issue 105203: in torch mode the other workers stand still until the slow batch was taken."""
    waits = {}
    for rng in ("torch", "sample"):
        loader = DataLoader(Calls(SlowOnce(1.0), 80), 2, num_workers=3, rng=rng)
        seen, batches, slowest, behind = [], iter(loader), 0.0, 0.0
        for at in range(40):
            began = time.monotonic()
            seen += next(batches).tolist()
            waited = time.monotonic() - began
            slowest = max(slowest, waited)
            if 4 < at < 15:
                behind += waited
        assert seen == list(range(80))
        assert slowest > 0.5
        waits[rng] = behind
    assert waits["sample"] < 0.5, waits  # the ten batches behind the slow one were there


def test_behind_a_slow_batch_workers_go_on_within_bounds():
    calls = torch.zeros(1, dtype=torch.int64).share_memory_()
    used = len(os.listdir("/proc/self/fd"))
    limit = max(40, used // 2 + 32)  # a limit of which half is in use would be raised

    class Counting(SlowOnce):
        def __call__(self, index: int) -> int:
            calls.add_(1)
            return super().__call__(index)

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (4 * limit, hard))  # a quarter of the descriptors is for batches ahead
    try:
        batches = iter(DataLoader(Calls(Counting(1.5), 4000), 1, num_workers=2, rng="sample"))
        assert [next(batches).item() for _ in range(9)] == list(range(9))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert 9 + 30 <= calls.item() <= 9 + 2 * 2 + limit
