"""Other numbers of workers in the middle of a pass: the same batches, in the same order, and nothing left behind."""

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from multiprocessing.context import ForkContext
from multiprocessing.resource_tracker import ensure_running
from typing import Any

import numpy as np
import pytest
import torch
from loading import (
    TORCHS_NOISE,
    At,
    Calls,
    NoCollector,
    Numbers,
    Raise,
    Raises,
    children,
    equal,
    own_temporary_folder,
    remains,
    settled,
)  # fmt: skip

from fastfeed.feed.faults import ErrorCaps
from fastfeed.feed.loader import DataLoader
from fastfeed.feed.shifts import Resized

pytestmark = TORCHS_NOISE


@pytest.fixture(autouse=True)
def temporary_folder() -> Iterator[None]:
    with own_temporary_folder():
        yield


def numbers(batch: Any) -> Any:
    """Without the worker's seed."""
    return batch[:4]


def loader(workers: int, size: int = 101, batch: int | None = 2, **options: Any) -> DataLoader:
    return DataLoader(Numbers(size), batch, num_workers=workers, **{"seed": 4, "shuffle": True, **options})


class Told:
    """What resizes came to."""

    def __init__(self) -> None:
        self.results: list[Resized] = []

    def __call__(self, resized: Resized) -> None:
        self.results.append(resized)


def read(passed: Any, resizes: dict[int, int], told: Told | None = None, take: Callable[[Any], Any] = numbers) -> list[Any]:
    """All batches; after so many of them go on with so many workers."""
    found, then = [], told or Told()
    if 0 in resizes:
        passed.resize(resizes[0], then)
    for batch in passed:
        found.append(take(batch))
        if len(found) in resizes:
            passed.resize(resizes[len(found)], then)
    return found


@pytest.fixture(scope="module")
def wanted() -> list[Any]:
    return [numbers(batch) for batch in loader(0)]


@pytest.mark.parametrize("seed", range(8))
def test_any_resizes_give_the_batches_of_no_workers(seed, wanted):
    draw, before = random.Random(seed), remains()
    resizes = {at: draw.choice([0, 1, 2, 3]) for at in draw.sample(range(len(wanted)), draw.choice([1, 3, 12]))}
    told = Told()
    one = loader(draw.choice([0, 1, 2]), persistent_workers=None)
    assert equal(read(iter(one), resizes, told), wanted)
    assert all(result.error is None for result in told.results)
    assert any(result.workers == wish for result, wish in zip(told.results, resizes.values(), strict=False))
    del one
    assert settled(before) == {}


@pytest.mark.parametrize(
    "way",
    [{"batch": None}, {"prefetch_factor": 1}, {"shuffle_mode": "block"}, {"sampler": range(100, -1, -1), "shuffle": None}],
    ids=str,
)
def test_with_any_order(way):
    reference = [
        numbers(batch) for batch in loader(0, **{name: value for name, value in way.items() if name != "prefetch_factor"})
    ]
    assert equal(read(iter(loader(2, **way)), {3: 1, 9: 3}), reference)


@pytest.mark.long
def test_with_spawned_workers(wanted):
    """They start for seconds: those before go on until the new ones are there."""
    told, passed = Told(), iter(loader(1, size=1000, multiprocessing_context="spawn"))
    reference, before = iter(loader(0, size=1000)), children()
    for number in range(500):
        if number == 5:
            passed.resize(2, told)
        assert equal(numbers(next(passed)), numbers(next(reference)))
        if passed._shifts.coming is not None:
            assert len(passed._shifts.crews) == 1
            time.sleep(0.1)
    assert next(passed, None) is None
    assert [result.workers for result in told.results] == [2]
    del passed
    assert children() <= before


@pytest.mark.long
def test_workers_that_come_too_late_are_dismissed(wanted):
    ensure_running()
    before, told = remains(), Told()
    assert equal(read(iter(loader(1, multiprocessing_context="spawn")), {5: 2}, told), wanted)
    assert [result.workers for result in told.results] == [1]
    assert settled(before) == {}


@pytest.mark.long
def test_nothing_is_left_of_workers_that_are_starting():
    ensure_running()  # Python's own process beside spawned ones, which stays
    before = remains()
    passed = iter(loader(1, multiprocessing_context="spawn"))
    next(passed)
    passed.resize(2, Told())
    next(passed)
    assert passed._shifts.coming is not None
    del passed
    assert settled(before) == {}


def test_taken_as_they_come_none_is_lost():
    one = loader(2, in_order=False)
    found = read(iter(one), {4: 1, 10: 3, 30: 0}, take=lambda batch: batch[0].tolist())
    assert sorted(index for batch in found for index in batch) == list(range(101))


def test_several_wishes_at_one_batch_the_last_one_counts(wanted):
    told, passed = Told(), iter(loader(1))
    next(passed)
    passed.resize(5, told)
    passed.resize(2, told)
    assert len([next(passed) for _ in range(40)]) == 40
    assert [result.workers for result in told.results] == [2]
    assert passed.made.options.num_workers == 2


def test_the_old_crew_leaves_once_it_has_given_what_it_had():
    before = children()
    passed = iter(loader(2, size=400))
    next(passed)
    old = children() - before
    passed.resize(1, Told())
    while len(passed._shifts.crews) == 1:
        next(passed)
    assert passed._shifts.front.until == passed._pass.number - 2  # all that the new one has was drawn for it
    for _ in range(60):
        next(passed)
    deadline = time.monotonic() + 10
    while old & children() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert old & children() == set()
    assert len(children() - before) == 1


@pytest.mark.parametrize("end", ["break", "exhausted", "never begun"])
def test_nothing_is_left_in_the_middle_of_a_change(end):
    before = remains()
    with NoCollector():
        passed = iter(loader(2))
        next(passed)
        passed.resize(3, Told())
        if end != "never begun":
            for number, _ in enumerate(passed):
                if end == "break" and number == 1:
                    break
        del passed
        assert settled(before) == {}


def test_persistent_workers_of_the_new_crew_persist(wanted):
    before = remains()
    with NoCollector():
        one = loader(1, persistent_workers=True)
        assert equal(read(iter(one), {6: 2}), wanted)
        one.num_workers = 2
        kept = children() - before["children"]
        following = [numbers(batch) for batch in loader(0)], [numbers(batch) for batch in one]
        assert len(kept & children()) == 2
        one.set_epoch(0)
        assert equal(read(iter(one), {}), following[0])
        passed = iter(one)
        next(passed)
        passed.resize(1, Told())
        next(passed)
        one.set_epoch(0)
        one.num_workers = 1
        assert equal([numbers(batch) for batch in one], wanted)  # the pass before was left in the middle of the change
        del one, passed
        assert settled(before) == {}


@pytest.mark.parametrize("to", [0, 1, 3])
def test_the_position_is_that_of_the_batches_handed_out(to, wanted):
    one = loader(2)
    passed = iter(one)
    for _ in range(7):
        next(passed)
    passed.resize(to, Told())
    for stop in range(8, 13):
        next(passed)
        again = loader(1)
        again.load_state_dict(one.state_dict())
        assert equal(numbers(next(iter(again))), wanted[stop])


def test_faults_keep_their_names_and_counts():
    """Left-out samples before, while and after the crews change, among them one whose batch comes late."""
    get = At({3, 21, 30, 77}, Raise(ValueError("no")))
    options: dict[str, Any] = {"on_error": "skip", "force_on_error": True, "error_caps": ErrorCaps(rate=1.0), "seed": 1}
    plain = iter(DataLoader(Calls(get, 101), 2, num_workers=0, **options))
    reference = list(plain)
    passed = iter(DataLoader(Calls(get, 101), 2, num_workers=2, **options))
    assert equal(read(passed, {9: 1, 14: 0, 30: 2}, take=lambda batch: batch), reference)
    assert (passed.faults.seen, passed.faults.failed) == (plain.faults.seen, plain.faults.failed) == (101, 4)


@pytest.mark.parametrize("at", [5, 40])
def test_a_failing_sample_has_its_name(at):
    for before, after in ((2, 1), (1, 0), (0, 2)):
        passed = iter(DataLoader(Calls(At(at, Raise(KeyError("gone"))), 64), 2, num_workers=before, seed=1))
        next(passed)
        passed.resize(after, Told())
        with Raises(KeyError, match=f"sample {at} of batch {at // 2}"):
            list(passed)


class Slow:
    """Sample i is i; from a number on it takes a while."""

    def __init__(self, first: int, seconds: float) -> None:
        self.first, self.seconds = first, seconds

    def __call__(self, index: int) -> int:
        time.sleep(self.seconds if index >= self.first else 0)
        return index


def test_a_dead_worker_of_either_crew_is_named():
    for new in (False, True):
        passed, told = iter(DataLoader(Calls(Slow(2, 0.3), 64), 1, num_workers=2, prefetch_factor=2, rng="sample")), Told()
        next(passed)
        before = children()
        passed.resize(1, told)
        while not told.results:
            next(passed)
        born = children() - before
        assert len(born) == 1
        old = passed._shifts.front.made.crew.workers
        assert old.count == 2
        busy = [old.pid_of(worker) for worker in range(2) if old.busy_seconds(worker) is not None]
        os.kill(born.pop() if new else busy[0], signal.SIGKILL)  # one that is done may end as it likes
        with Raises(
            RuntimeError, match=r"DataLoader worker \(pid.*(killed by signal: Killed|exited unexpectedly).* worker . was "
        ):
            list(passed)
        with Raises(RuntimeError, match="killed by signal|exited unexpectedly"):
            next(passed)


class HangAt:
    def __init__(self, index: int) -> None:
        self.index = index

    def __call__(self, index: int) -> int:
        time.sleep(30 if index == self.index else 0)
        return index


@pytest.mark.long
@pytest.mark.parametrize("at", [3, 40])
def test_a_hanging_worker_of_either_crew_is_reported_and_timed_out(at, caplog):
    one = DataLoader(Calls(HangAt(at), 64), 1, num_workers=2, rng="sample", timeout=2.0, hang_seconds=0.5)
    passed = iter(one)
    next(passed)
    passed.resize(1, Told())
    with Raises(RuntimeError, match=f"timed out after 2.0 seconds: .*sample {at}"):
        list(passed)
    assert any(f"at sample {at}" in record.getMessage() for record in caplog.records)


class TwoAtMost(ForkContext):
    """Starts two processes."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error, self.started = error, 0

    @property
    def Process(self) -> Any:  # type: ignore[override]  # noqa: N802 - as it is called
        self.started += 1
        if self.started > 2:
            raise type(self.error)(*self.error.args)  # its own would keep this test's frames, and so its workers
        return ForkContext.Process


@pytest.mark.parametrize(
    "error",
    [BlockingIOError(11, "Resource temporarily unavailable"), RuntimeError("unable to allocate shared memory")],
    ids=repr,
)
def test_where_no_worker_can_be_started_the_old_ones_go_on(error, wanted):
    told = Told()
    passed = iter(loader(1, multiprocessing_context=TwoAtMost(error)))
    assert equal(read(passed, {5: 3}, told), wanted)
    assert [(result.workers, result.error) for result in told.results] == [(1, str(error))]


def test_at_the_end_no_crew_is_started_for_nothing():
    told, passed = Told(), iter(loader(2, size=12))
    for _ in range(4):
        next(passed)
    before = children()
    passed.resize(3, told)
    assert len(list(passed)) == 2
    assert [result.workers for result in told.results] == [2]
    assert children() <= before


def test_torch_mode_never_resizes():
    for distributed in (None, (0, 1)):  # the second draws an order of ours
        passed = iter(DataLoader(Numbers(), 2, num_workers=0, distributed=distributed))
        with pytest.raises(RuntimeError, match="only in sample mode"):
            passed.resize(1, Told())


class Heavy:
    def __call__(self, index: int) -> torch.Tensor:
        return torch.from_numpy(np.full(1 << 18, index % 256, dtype=np.uint8))


def test_memory_ahead_is_bounded_while_crews_change():
    """Both crews together hold at most what each was given."""
    passed = iter(DataLoader(Calls(Heavy(), 300), 2, num_workers=2, prefetch_factor=2, rng="sample"))
    most = 0
    for number, _ in enumerate(passed):
        if number % 20 == 10:
            passed.resize(2 + number // 20 % 2, Told())
        most = max(most, len(passed._pass.pending))
    assert most <= 2 * 3 * 2 + passed._shifts.back.ahead.most
