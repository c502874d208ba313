"""Torch mode: what torch.utils.data.DataLoader gives, number for number."""

import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from helpers import pack_photos
from loading import (
    Bunches,
    Calls,
    Eager,
    Numbers,
    Offset,
    Together,
    equal,
    indices,
    mixed_up,
    seed_all,
    set_start,
    states,
    three_epochs,
)
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    get_worker_info,
)  # fmt: skip
from torch.utils.data import DataLoader as TorchDataLoader

import fastfeed
from fastfeed.feed.loader import DataLoader

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

SIZE = 23
LOADERS = (TorchDataLoader, DataLoader)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(9)


KINDS: dict[str, Callable[[], dict[str, Any]]] = {
    "sequential": lambda: {"batch_size": 7},
    "sequential sampler": lambda: {"batch_size": 7, "sampler": SequentialSampler(range(SIZE))},
    "shuffled": lambda: {"batch_size": 7, "shuffle": True},
    "shuffled, generator": lambda: {"batch_size": 7, "shuffle": True, "generator": generator()},
    "random, generator of its own": lambda: {"batch_size": 7, "sampler": RandomSampler(range(SIZE), generator=generator())},
    "random, replacement": lambda: {"sampler": RandomSampler(range(SIZE), replacement=True, num_samples=30), "batch_size": 9},
    "weighted": lambda: {"batch_size": 7, "sampler": WeightedRandomSampler([0.1, 0.4, 0.5] * 7, 20)},
    "subset": lambda: {"batch_size": 4, "sampler": SubsetRandomSampler([3, 1, 4, 15, 9, 2, 6])},
    "distributed": lambda: {"batch_size": 3, "sampler": DistributedSampler(range(SIZE), 3, 1)},  # type: ignore[arg-type]
    "eager": lambda: {"batch_size": 7, "sampler": Eager(SIZE)},
    "eager, unbatched": lambda: {"batch_size": None, "sampler": Eager(SIZE)},
    "a list": lambda: {"batch_size": 2, "sampler": [5, 3, 5]},
    "batch sampler": lambda: {"batch_sampler": BatchSampler(RandomSampler(range(SIZE)), 4, drop_last=False)},
    "batches of their own": lambda: {"batch_sampler": Bunches(SIZE)},
    "unbatched": lambda: {"batch_size": None, "shuffle": True},
    "drop_last": lambda: {"batch_size": 7, "shuffle": True, "drop_last": True},
    "collate_fn": lambda: {"batch_size": 7, "shuffle": True, "collate_fn": mixed_up},
    "few batches": lambda: {"batch_size": 23},
}


FOUR = ["shuffled", "weighted", "eager", "batches of their own", "unbatched", "collate_fn"]
"""Four workers take their time to start: kinds that draw random numbers at different moments."""


def both(make: Callable[[Any], Any]) -> tuple[Any, Any]:
    """Three epochs of torch's loader and of ours: batches, and the main process's random states afterwards."""
    return three_epochs(lambda: make(TorchDataLoader)), three_epochs(lambda: make(DataLoader))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:the DistributedSampler was not told of a new epoch")
@pytest.mark.parametrize(("kind", "workers"), [(k, w) for k in KINDS for w in (0, 1)] + [(kind, 4) for kind in FOUR])
def test_three_epochs_are_torchs(kind, workers):
    theirs, ours = both(lambda cls: cls(Numbers(SIZE), num_workers=workers, **KINDS[kind]()))
    assert equal(theirs, ours)
    assert len(theirs[0][0]) > 0


@pytest.mark.parametrize("kind", ["shuffled", "eager", "shuffled, generator"])
def test_persistent_workers_are_torchs(kind):
    """Their random numbers go on from epoch to epoch, and no base seed is drawn for the second one."""
    theirs, ours = both(lambda cls: cls(Numbers(SIZE), num_workers=2, persistent_workers=True, **KINDS[kind]()))
    assert equal(theirs, ours)
    assert not equal(ours[0][0], ours[0][1])


@pytest.mark.long
def test_spawned_workers_are_torchs():
    def one_epoch(cls: Any) -> Any:
        torch.manual_seed(1)
        return list(cls(Numbers(5), 2, shuffle=True, num_workers=1, multiprocessing_context="spawn")), torch.get_rng_state()

    assert equal(one_epoch(TorchDataLoader), one_epoch(DataLoader))
    kept: dict[str, Any] = {"num_workers": 2, "multiprocessing_context": "spawn", "persistent_workers": True}
    theirs, ours = both(lambda cls: cls(Numbers(SIZE), 4, shuffle=True, **kept))
    assert equal(theirs, ours)


def test_a_context_may_be_an_object():
    context = torch.multiprocessing.get_context("fork")
    theirs, ours = both(lambda cls: cls(Numbers(5), 2, num_workers=1, multiprocessing_context=context))
    assert equal(theirs, ours)


def test_set_epoch_of_a_sampler_of_the_users():
    def epochs(cls: Any) -> list[Any]:
        sampler: Any = DistributedSampler(Numbers(SIZE), 3, 1)
        loader = cls(Numbers(SIZE), 4, sampler=sampler, num_workers=0)
        found = []
        for epoch in (0, 1, 2):
            sampler.set_epoch(epoch)
            found.append(indices(loader))
        return found

    assert epochs(TorchDataLoader) == epochs(DataLoader)
    assert epochs(DataLoader)[0] != epochs(DataLoader)[1]


@pytest.mark.parametrize("workers", [0, 2])
def test_getitems_is_asked_with_what_the_batch_sampler_gave(workers):
    theirs, ours = both(lambda cls: cls(Together(SIZE), batch_sampler=Bunches(SIZE), num_workers=workers))
    assert equal(theirs, ours)


class Given(Numbers):
    def __getitems__(self, indices: Any) -> Any:
        return type(indices).__name__, indices


def test_getitems_may_give_anything_to_a_collate_function_of_the_users():
    batches: Any = [[1, 2, 3], (4, 5), torch.tensor([6])]
    for cls in LOADERS:
        assert equal(
            list(cls(Given(), batch_sampler=batches, collate_fn=lambda data: data, num_workers=0)),
            [("list", [1, 2, 3]), ("tuple", (4, 5)), ("Tensor", torch.tensor([6]))],
        )


def test_batches_may_be_any_iterables():
    for cls in LOADERS:
        batches: Any = [iter([1, 2]), {3}, range(4, 6), torch.tensor([7])]
        assert [b.tolist() for b in cls(Calls(int), batch_sampler=batches, num_workers=0)] == [[1, 2], [3], [4, 5], [7]]


def test_keys_may_be_texts():
    data: Any = {"a": torch.tensor(1), "b": torch.tensor(2), "c": torch.tensor(3)}
    for cls in LOADERS:
        assert [b.tolist() for b in cls(data, 2, sampler=["b", "a", "c"], num_workers=0)] == [[2, 1], [3]]


def test_worker_init_fn_finds_the_dataset_of_the_user():
    theirs, ours = both(lambda cls: cls(Offset(6), 1, num_workers=2, worker_init_fn=set_start))
    assert equal(theirs, ours)
    assert [batch.item() for batch in ours[0][0]] == [100, 201, 102, 203, 104, 205]


class Info(Numbers):
    def __getitem__(self, index: int) -> Any:
        info: Any = get_worker_info()
        return info.id, info.num_workers, info.dataset is self


def test_the_dataset_itself_finds_itself():
    theirs, ours = both(lambda cls: cls(Info(4), 1, num_workers=2))
    assert equal(theirs, ours)
    assert ours[0][0][1] == [torch.tensor([1]), torch.tensor([2]), torch.tensor([True])]


# ---------------------------------------------------------------------------------------------------- streams
class Stream(IterableDataset[Any]):
    """Each worker gives its part."""

    def __init__(self, size: int = 11, length: int | None = None) -> None:
        self.size, self.length = size, length

    def __len__(self) -> int:
        if self.length is None:
            raise TypeError("no length")
        return self.length

    def __repr__(self) -> str:
        return "Stream()"

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        start, step = (0, 1) if info is None else (info.id, info.num_workers)
        assert info is None or info.dataset is self
        return ((i, torch.rand(1)) for i in range(start, self.size, step))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("options", [{"batch_size": 3}, {"batch_size": 3, "drop_last": True}, {"batch_size": None}], ids=str)
def test_iterable_datasets_are_torchs(options, workers):
    theirs, ours = both(lambda cls: cls(Stream(), num_workers=workers, **options))
    assert equal(theirs, ours)


def test_iterable_datasets_with_persistent_workers_are_torchs():
    theirs, ours = both(lambda cls: cls(Stream(), 2, num_workers=2, persistent_workers=True, worker_init_fn=print_nothing))
    assert equal(theirs, ours)


def print_nothing(worker: int) -> None:
    assert isinstance(get_worker_info().dataset, Stream)  # type: ignore[union-attr]


# ---------------------------------------------------------------------------------------------------- warnings
def told(make: Callable[[Any], Any], cls: Any) -> list[tuple[type, str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loader = make(cls)
        for _ in range(2):
            list(loader)
    return [(entry.category, str(entry.message)) for entry in caught if "use of fork" not in str(entry.message)]


def measured(loader: Any) -> Any:
    assert len(loader) == 2
    return loader


@pytest.mark.parametrize(
    ("make", "count"),
    [
        (lambda cls: cls(Numbers(3), num_workers=0, pin_memory=True), 2),
        (lambda cls: cls(Numbers(3), num_workers=1, pin_memory=True, pin_memory_device="cuda"), 4),
        (lambda cls: cls(Numbers(3), num_workers=2), 3),
        (lambda cls: measured(cls(Stream(length=2), num_workers=0)), 18),
        (lambda cls: measured(cls(Stream(length=2), num_workers=1)), 18),
        (lambda cls: cls(Numbers(3), num_workers=0), 0),
    ],
    ids=["pinning", "pinning device", "workers", "length", "length in a worker", "none"],
)
def test_warnings_are_torchs(make, count, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0})
    theirs, ours = (told(make, cls) for cls in LOADERS)
    assert theirs == ours
    assert len(ours) == count or torch.cuda.is_available()  # there is nothing wrong with pinning then


# ---------------------------------------------------------------------------------------------------- passes
@pytest.mark.parametrize("workers", [0, 1])
def test_two_passes_at_once_do_not_know_of_each_other(workers):
    def drawn(cls: Any) -> Any:
        seed_all(3)
        loader = cls(Numbers(9), 2, shuffle=True, num_workers=workers)
        pairs = list(zip(loader, loader, strict=True))
        return pairs, [(batch, list(loader)) for batch in loader]

    theirs, ours = map(drawn, LOADERS)
    assert equal(theirs, ours)


def test_a_loader_with_persistent_workers_has_one_iterator():
    for cls in LOADERS:
        loader = cls(Calls(int, 8), 2, num_workers=1, persistent_workers=True)
        outer, seen = iter(loader), []
        for batch in outer:
            seen += [(batch.tolist(), [inner.tolist() for inner in loader])]
        assert seen == [([0, 1], [[0, 1], [2, 3], [4, 5], [6, 7]])]
        assert iter(loader) is outer


def test_attributes_that_torch_leaves_free_may_change_between_epochs():
    for cls in LOADERS:
        loader = cls(Calls(int, 4), 2, num_workers=1)
        assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3]]
        loader.num_workers, loader.collate_fn = 0, sum
        assert list(loader) == [1, 5]


def test_a_pass_ends_and_stays_at_its_end():
    for cls in LOADERS:
        for workers in (0, 1):
            batches = iter(cls(Calls(int, 2), num_workers=workers))
            assert len(batches) == 2
            assert [batch.item() for batch in batches] == [0, 1]
            assert list(batches) == []


class SlowFirst:
    def __call__(self, index: int) -> int:
        time.sleep(0.5 * (index == 0))
        return index


@pytest.mark.long
def test_in_order_false_gives_batches_as_they_come():
    for cls in LOADERS:
        found = [batch.item() for batch in cls(Calls(SlowFirst(), 8), num_workers=2, in_order=False)]
        assert sorted(found) == list(range(8))
        assert found[0] != 0
        assert [batch.item() for batch in cls(Calls(SlowFirst(), 8), num_workers=2)] == list(range(8))


class Counted:
    def __init__(self) -> None:
        self.calls = torch.zeros(1, dtype=torch.int64).share_memory_()

    def __call__(self, index: int) -> int:
        self.calls += 1
        return index


@pytest.mark.parametrize(("options", "ahead"), [({}, 3), ({"prefetch_factor": 4}, 5)])
def test_a_worker_fetches_as_much_ahead_as_torchs(options, ahead):
    for cls in LOADERS:
        get = Counted()
        batches = iter(cls(Calls(get), num_workers=1, **options))
        next(batches)
        deadline = time.monotonic() + 10
        while get.calls.item() < ahead and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.1)
        assert get.calls.item() == ahead


def test_a_packed_dataset_is_read_with_torchs_numbers(tmp_path):
    """Workers of our own datasets persist where that is decided, but not where it would change what is drawn."""
    dataset = fastfeed.open(pack_photos(tmp_path, each=4), transform=noisy)
    theirs, ours = both(lambda cls: cls(dataset, 2, shuffle=True, num_workers=1, collate_fn=list))
    assert equal(theirs, ours)


def noisy(image: Any) -> Any:
    return image.size, torch.rand(1)


def test_samples_of_any_kind_are_collated_as_torchs():
    data = [{"x": torch.tensor([i, i]), "name": f"n{i}", "n": (i, [float(i)])} for i in range(5)]
    theirs, ours = both(lambda cls: cls(data, 2, num_workers=1))
    assert equal(theirs, ours)
    tensors = TensorDataset(torch.arange(10).reshape(5, 2), torch.arange(5))
    theirs, ours = both(lambda cls: cls(tensors, 2, shuffle=True, num_workers=0))
    assert equal(theirs, ours)


def test_a_list_of_all_batches_sees_no_memory_twice():
    loader = DataLoader(Numbers(12), 3, num_workers=2)
    kept = list(loader)
    assert [n for batch in kept for n in batch[0].tolist()] == list(range(12))
    assert len({batch[1].data_ptr() for batch in kept}) == 4


def test_random_states_after_a_pass_that_was_left_early_are_torchs():
    def left(cls: Any) -> Any:
        torch.manual_seed(2)
        for _ in cls(Numbers(SIZE), 2, shuffle=True, num_workers=1):
            break
        return states()

    assert equal(left(TorchDataLoader), left(DataLoader))
