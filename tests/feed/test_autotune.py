"""fastfeed/feed/autotune.py: real passes; what a batch took is made up where the decision itself is looked at."""

import gc
import logging
import time
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from helpers import pack_photos
from loading import NoCollector, Numbers, children, own_temporary_folder, remains, settled
from machines import machine
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset

import fastfeed
from fastfeed.feed.autotune import Autotune, Ear, all_tensors
from fastfeed.feed.ceilings import SizingFacts, WorkerRequest
from fastfeed.feed.dataset import PackedDataset
from fastfeed.feed.engine import EpochIterator
from fastfeed.feed.loader import DataLoader
from fastfeed.feed.planning import Planner
from fastfeed.feed.shifts import Resized
from fastfeed.feed.timing import BatchTimes, Delivery


@pytest.fixture(autouse=True)
def temporary_folder() -> Iterator[None]:
    with own_temporary_folder():
        yield


class Sleeping(Dataset[int]):
    """Sample i is i, and takes a while in which it needs no processor."""

    def __init__(self, size: int, seconds: float) -> None:
        self.size, self.seconds = size, seconds

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        time.sleep(self.seconds)
        return index


def planned(one: DataLoader, batches: int | None = None, *, own: bool = False, **of_machine: Any) -> DataLoader:
    """The loader, as it would plan on another machine."""
    facts = SizingFacts(machine=machine(**{"processors": 2, **of_machine}), own_dataset=own, batch_bytes=None)
    one._planner = Planner(WorkerRequest(batches=batches), facts)
    one.plan = one._planner.plan()
    one.num_workers = one.plan.num_workers
    return one


@pytest.mark.long
def test_a_consumer_that_waits_gets_more_workers(caplog):
    caplog.set_level(logging.INFO, "fastfeed.loader")
    one = planned(DataLoader(Sleeping(400, 0.03), 2))
    assert one.num_workers == 2
    seen = [index for batch in one for index in batch.tolist()]
    assert seen == list(range(400))
    assert 4 <= one.num_workers <= 16
    assert one.plan.num_workers == one.num_workers
    assert one.plan.why[0].startswith(f"tuned from 2 to {one.num_workers} workers")
    assert "with 2 the consumer waits" in "\n".join(one.tuning)
    logged = [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]
    assert set(one.tuning) <= set(logged)
    before = children()
    passed = iter(one)
    next(passed)
    assert len(children() - before) == one.num_workers  # the next epoch begins with them
    del passed


def test_where_the_number_is_given_nothing_is_tuned():
    for options in ({"num_workers": 1}, {"num_workers": 1, "seed": 1}, {"num_workers": 0, "seed": 1}, {"rng": "torch"}):
        one = DataLoader(Sleeping(60, 0.005), 2, **options)
        workers, why = one.num_workers, one.plan.why[0]
        list(one)
        assert (one.num_workers, one.plan.num_workers, one.plan.why[0], one.tuning) == (workers, workers, why, ())


def test_nothing_is_kept_or_left():
    before = remains()
    with NoCollector():
        one = planned(DataLoader(Sleeping(60, 0.01), 2))
        seen = weakref.ref(one)
        for number, _ in enumerate(one):
            if number == 20:
                break
        del one
        assert seen() is None
        assert settled(before) == {}
    gc.collect()


def test_tensors_are_read_here_and_no_worker_is_started():
    numbers = torch.arange(64)
    one, before = planned(DataLoader(Subset(TensorDataset(numbers), range(60)), 4)), children()
    for _ in range(2):
        assert torch.equal(torch.cat([batch for (batch,) in one]), numbers[:60])
    assert children() <= before
    assert (one.num_workers, one.plan.num_workers) == (0, 0)
    assert one.plan.gate in {"cheap", "short"}
    assert one.plan.why[0].startswith("no workers: ")
    assert one.tuning == (one.plan.why[0],)


def slow(samples: Any) -> Any:
    time.sleep(0.02)
    return torch.utils.data.default_collate(samples)


def test_tensors_that_take_long_get_their_workers():
    numbers, before = torch.arange(200), children()
    one = planned(DataLoader(TensorDataset(numbers), 2, collate_fn=slow))
    passed, found = iter(one), []
    assert (one.num_workers, one.plan.num_workers) == (0, 0)
    for (batch,) in passed:
        found.append(batch)
        if len(found) == 4:
            assert len(children() - before) == 2
            assert (one.num_workers, one.plan.num_workers) == (2, 2)
    assert torch.equal(torch.cat(found), numbers)


def nothing(worker: int) -> None:
    """A worker_init_fn."""


def test_what_workers_are_prepared_for_stays_in_workers():
    one = planned(DataLoader(TensorDataset(torch.arange(64)), 4, worker_init_fn=nothing))
    list(one)
    list(one)
    assert one.num_workers >= 1


def test_without_workers_there_is_no_timeout():
    one = planned(DataLoader(TensorDataset(torch.arange(64)), 4, timeout=60))
    assert len(list(one)) == len(list(one)) == 16
    assert (one.num_workers, one.timeout) == (0, 60)


def test_which_datasets_are_tensors():
    tensors = TensorDataset(torch.arange(3))

    class Other(TensorDataset):
        pass

    assert all_tensors(Subset(ConcatDataset([tensors, Subset(tensors, [1])]), [0, 2]))
    others: list[Any] = [Numbers(), Other(torch.arange(3)), ConcatDataset([tensors, Numbers()]), Subset(Numbers(), [1])]
    for dataset in others:
        assert not all_tensors(dataset)


# ------------------------------------------------------------------------------------------- decisions, with times made up
def begun(one: DataLoader) -> tuple[Autotune, Ear, EpochIterator]:
    passed = iter(one)
    assert one._autotune is not None and one._autotune._ear is not None
    return one._autotune, one._autotune._ear, passed


def delivery(number: int, make: float, wait: float, step: float = 0.01, **more: Any) -> Delivery:
    given = {"workers": 2, "remaining": 1000, "worker": number % 2, "late": 0.0, "work": make, **more}
    times = BatchTimes(given["worker"], 0.0, make, given["work"], 1000, 1)
    return Delivery(number, wait, step, given["late"], given["workers"], 4, given["remaining"], times)


def hear(one: DataLoader, batches: int, *, make: float, wait: float, last: int | None = None, **more: Any) -> EpochIterator:
    """A pass of which the tuner hears of made-up batches; none is taken."""
    autotune, ear, passed = begun(one)
    for number in range(batches):
        remaining = {} if last is None else {"remaining": last - number - 1}
        autotune.hear(ear, delivery(number, make, wait, **remaining, **more), passed)
    return passed


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> PackedDataset:
    """A dataset that is at home in the main process."""
    return fastfeed.open(pack_photos(tmp_path_factory.mktemp("packed"), each=100))


def targets(samples: list[Any]) -> list[int]:
    return [target for _, target in samples]


def test_a_cheap_dataset_of_ours_goes_on_in_the_main_process(ours):
    one = planned(DataLoader(ours, 2, collate_fn=targets))
    passed = hear(one, 20, make=0.0002, wait=0.0004)
    assert one.num_workers == 0
    assert one.plan.gate == "cheap"
    assert (one.plan.prefetch_factor, one.plan.persistent_workers) == (None, False)
    assert one.plan.why[0] == "no workers: a worker makes a batch in 0.2 ms; taking it from the worker costs 0.4 ms"
    assert list(passed) == [[0, 0]] * 50 + [[1, 1]] * 50
    assert passed.made.options.num_workers == 0
    before = children()
    hear(one, 300, make=0.5, wait=0.5)  # it stays
    assert (one.num_workers, children()) == (0, before)


def test_a_cheap_foreign_dataset_is_not_touched_here():
    one = planned(DataLoader(Numbers(64), 2), processors=16)
    hear(one, 20, make=0.0002, wait=0.0004, workers=8)
    assert one.num_workers == 8
    assert "is not opened in the main process unasked" in one.tuning[-1]
    passed = iter(one)
    assert one.num_workers == passed.made.options.num_workers == 1
    assert one.plan.why[0].startswith("1 worker: a worker makes a batch in 0.2 ms")


def test_short_epochs_get_one_worker():
    one = planned(DataLoader(Numbers(64), 2), processors=16)
    hear(one, 1, make=0.002, wait=0.1, last=10)  # a look at the first batch says nothing about the epoch
    hear(one, 10, make=0.002, wait=0.1, last=10)
    assert one.num_workers == 8
    passed = iter(one)
    assert one.num_workers == passed.made.options.num_workers == 1
    assert one.plan.gate == "short"
    assert "an epoch is 10 batches, made in 20.0 ms in all" in one.plan.why[0]


def test_workers_that_persist_are_started_once(ours):
    one = planned(DataLoader(ours, 2, collate_fn=targets), own=True)
    assert one.plan.persistent_workers
    hear(one, 10, make=0.002, wait=0.1, last=10)
    iter(one)
    assert one.num_workers == 2


def test_why_it_stopped():
    one = planned(DataLoader(Numbers(64), 2))
    hear(one, 100, make=0.005, wait=0.0)
    assert one.plan.why[0] == "2 workers, as at the start: the consumer no longer waits (0.0% of its time)"
    assert one.tuning[-1] == "stopped at 2 workers: the consumer no longer waits (0.0% of its time)"


def test_a_change_that_comes_with_the_next_epoch():
    """Both crews together would not fit, for as long as one follows the other."""
    one = planned(DataLoader(Numbers(64), 2), processors=16, soft=250, hard=250)
    assert one.num_workers == 8
    passed = hear(one, 200, make=0.4, wait=0.04, late=0.04, workers=8)
    assert passed.made.options.num_workers == one.num_workers == 8
    assert any(line.startswith("from the next epoch on: until the 8 have ended") for line in one.tuning)
    passed = iter(one)
    assert passed.made.options.num_workers == one.num_workers > 8


def test_a_number_set_by_hand_stays():
    one = planned(DataLoader(Numbers(64), 2))
    iter(one)
    one.num_workers = 1
    passed = iter(one)
    assert passed.made.options.num_workers == 1
    assert one.plan.why[0] == "1 worker: num_workers was set to 1"


def test_where_no_more_can_be_started_it_stays():
    one = planned(DataLoader(Numbers(64), 2))
    autotune, _, _ = begun(one)
    autotune._resized(Resized(2, 0.1, "Cannot allocate memory"))
    assert one.plan.why[0] == "2 workers: no other number of workers can be started (Cannot allocate memory)"
    hear(one, 300, make=0.5, wait=0.5, late=0.5)
    assert one.num_workers == 2


def test_what_a_start_takes_is_told_to_the_tuner():
    one = planned(DataLoader(Numbers(64), 2))
    autotune, _, passed = begun(one)
    assert autotune._tuner.start_seconds == passed.start_seconds > 0
    autotune._resized(Resized(2, 0.7, None))
    assert autotune._tuner.start_seconds == 0.7


def test_of_two_passes_at_once_the_later_one_is_tuned():
    one = planned(DataLoader(Numbers(64), 2))
    autotune, first, passed = begun(one)
    iter(one)
    for number in range(100):
        autotune.hear(first, delivery(number, 0.5, 0.5, late=0.5), passed)
    assert one.tuning == ()
