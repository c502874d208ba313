"""on_error: what is left out or replaced is a function of the data, is told by name, and has caps."""

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from loading import At, Calls, Raise, Raises, children, equal, seed_all
from torch.utils.data import DistributedSampler, RandomSampler, Sampler, SubsetRandomSampler

from fastfeed.errors import DecodeError, UsageError
from fastfeed.feed.faults import ErrorCaps
from fastfeed.feed.loader import DataLoader

LOOSE = ErrorCaps(consecutive=1000, rate=1.0)
BAD = {3, 13, 23, 33, 43}


class Noisy(Calls):
    """Sample i with a random number; some fail."""

    def __getitem__(self, index: int) -> Any:
        return self.get(int(index)), torch.rand(1).item()


class Many(Noisy):
    def __getitems__(self, indices: list[int]) -> Any:
        return [self[index] for index in indices]


def noisy(bad: Any = frozenset(BAD), error: Exception | None = None, kind: type[Noisy] = Noisy, size: int = 50) -> Noisy:
    return kind(At(set(bad), Raise(error or ValueError("x"))), size)


def epochs(workers: int, dataset: Any, **options: Any) -> Any:
    seed_all(2)
    loader = DataLoader(dataset, num_workers=workers, **{"batch_size": 8, "shuffle": True, "error_caps": LOOSE, **options})
    return [list(loader) for _ in range(2)]


def drawn(batches: Any) -> list[int]:
    return [index for batch in batches for index in batch[0].tolist()]


@pytest.mark.parametrize("policy", ["skip", "replace"])
@pytest.mark.parametrize("kind", [Noisy, Many])
@pytest.mark.parametrize("options", [{"seed": 4}, {"rng": "sample"}], ids=str)
def test_a_policy_does_not_depend_on_workers(policy, kind, options):
    without = epochs(0, noisy(kind=kind), on_error=policy, **options)
    assert equal(without, epochs(2, noisy(kind=kind), on_error=policy, **options))
    assert not equal(without[0], without[1])


def test_a_skip_shortens_batches_but_not_their_number():
    (first, _) = epochs(0, noisy(), on_error="skip", seed=4)
    assert len(first) == 7
    assert sorted(drawn(first)) == sorted(set(range(50)) - BAD)
    assert sum(len(batch[0]) < 8 for batch in first[:-1]) >= 1


def test_a_replacement_keeps_the_size_and_depends_on_the_epoch():
    good: list[list[int]] = []
    for epoch in epochs(0, noisy(), on_error="replace", seed=4):
        assert [len(batch[0]) for batch in epoch] == [8] * 6 + [2]
        assert set(drawn(epoch)) == set(range(50)) - BAD
        good.append(sorted(drawn(epoch)))
    assert good[0] != good[1]  # other samples stand in


def test_torch_mode_has_policies_as_well():
    for policy, sizes in (("skip", 45), ("replace", 50)):
        (first, _) = epochs(1, noisy(), on_error=policy)
        assert len(drawn(first)) == sizes


def test_every_case_is_told_by_name(caplog):
    with caplog.at_level(logging.WARNING, logger="fastfeed.loader"):
        list(DataLoader(noisy(), 8, on_error="skip", force_on_error=True, num_workers=1, error_caps=LOOSE))
    assert [record.getMessage() for record in caplog.records] == [
        f"sample {i} was left out: ValueError: x" for i in sorted(BAD)
    ]
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="fastfeed.loader"):
        list(DataLoader(noisy({3}), 8, on_error="replace", force_on_error=True, num_workers=0, error_caps=LOOSE))
    assert [record.getMessage() for record in caplog.records] == ["sample 3 was replaced: ValueError: x"]


def test_a_batch_of_which_nothing_is_left_is_an_error():
    with Raises(ValueError, match=r"no sample of the batch is left; the last one: x"):
        list(DataLoader(noisy(range(8, 16)), 8, on_error="skip", force_on_error=True, num_workers=1, error_caps=LOOSE))
    with Raises(ValueError, match=r"sample 3 of batch 3: no sample of the batch is left"):
        list(DataLoader(noisy(), None, on_error="skip", force_on_error=True, num_workers=0))


def test_a_sample_for_which_nothing_can_stand_in_is_an_error():
    with Raises(ValueError, match=r"Caught ValueError in the main process, sample \d+ of batch 0: x"):
        list(DataLoader(noisy(range(50)), 8, on_error="replace", shuffle=True, num_workers=0, error_caps=LOOSE))


def test_faults_of_the_program_are_not_tolerated():
    for error in (MemoryError("full"), ImportError("no PIL")):
        with Raises(type(error), match="sample 3 of batch 0"):
            list(DataLoader(noisy(error=error), 8, on_error="skip", force_on_error=True, num_workers=0, error_caps=LOOSE))


# ---------------------------------------------------------------------------------------------------- caps
@pytest.mark.parametrize("workers", [0, 1])
def test_too_many_in_a_row_are_an_error(workers):
    def until(bad: Any) -> int:
        batches = iter(
            DataLoader(noisy(bad), 8, on_error="skip", force_on_error=True, num_workers=workers, error_caps=ErrorCaps(4, 1.0))
        )
        count = 0
        with Raises(DecodeError, match=r"4 samples failed one after another, which is more than on_error tolerates; the last:"):
            for _ in batches:
                count += 1
        return count

    assert until({14, 15, 16, 17}) == 2  # across the edge of two batches, of which none is empty
    assert until({16, 17, 18, 19, 20}) == 2


def test_failing_often_but_not_in_a_row_is_no_run():
    list(
        DataLoader(noisy(range(0, 50, 2)), 8, on_error="skip", force_on_error=True, num_workers=0, error_caps=ErrorCaps(2, 1.0))
    )


def test_too_large_a_share_is_an_error():
    dataset = noisy(range(0, 1000, 10), size=1000)
    with Raises(DecodeError, match=r"21 of 208 samples failed \(10\.1%\), which is more than on_error tolerates") as caught:
        list(DataLoader(dataset, 16, on_error="skip", force_on_error=True, num_workers=0))
    assert "fewer than 20 in a row, and at most 5.0%" in str(caught.value)
    assert "sample 200: ValueError: x" in str(caught.value)
    few = noisy(range(0, 1000, 40), size=1000)
    assert len(list(DataLoader(few, 16, on_error="skip", force_on_error=True, num_workers=0))) == 63


def test_caps_count_samples_not_attempts():
    """A replacement that fails as well is another attempt for the same sample."""
    dataset = noisy(range(40, 50))
    caps = ErrorCaps(11, 1.0)
    assert len(drawn(DataLoader(dataset, 10, on_error="replace", force_on_error=True, num_workers=0, error_caps=caps))) == 50


# ---------------------------------------------------------------------------------------------------- who may stand in
class Odd(Sampler[int]):
    def __iter__(self) -> Any:
        return iter(range(1, 50, 2))

    def __len__(self) -> int:
        return 25


def test_no_sample_from_outside_of_a_subset_stands_in():
    """A validation split in the same dataset must not leak into training."""
    train = list(range(0, 50, 2))
    for policy_epoch in epochs(0, noisy(range(0, 26, 2)), on_error="replace", shuffle=None, sampler=SubsetRandomSampler(train)):
        assert len(drawn(policy_epoch)) == 25
        assert set(drawn(policy_epoch)) <= set(train)


def test_a_sampler_that_does_not_tell_what_it_draws_is_refused():
    make: Callable[..., Any] = DataLoader
    for options in ({"sampler": Odd()}, {"batch_sampler": [[1, 3]]}):
        with pytest.raises(UsageError, match=r"has to know which samples may stand in, and (Odd|list) does not tell"):
            list(make(noisy(), on_error="replace", num_workers=0, **options))
    forced = make(noisy(), 5, on_error="replace", num_workers=0, sampler=Odd(), force_on_error=True, error_caps=LOOSE)
    assert len(drawn(forced)) == 25


def test_samplers_that_draw_everything_are_known():
    samplers: list[Any] = [RandomSampler(range(50)), DistributedSampler(noisy(), 2, 0)]
    for sampler in samplers:
        loader = DataLoader(noisy(), 5, on_error="replace", num_workers=0, sampler=sampler, error_caps=LOOSE)
        assert len(drawn(loader)) == len(sampler)


def test_ranks_replace_alike():
    """Which sample stands in does not depend on the rank, nor on the number of ranks."""
    whole = dict(asked_and_got(None))
    for rank in range(2):
        for index, got in asked_and_got((rank, 2)):
            assert whole[index] == got


def asked_and_got(distributed: Any) -> list[tuple[int, int]]:
    loader = DataLoader(
        noisy(), 1, shuffle=True, seed=4, distributed=distributed, on_error="replace", num_workers=0, error_caps=LOOSE,
        with_index=True,
    )  # fmt: skip
    return [(int(batch.index.item()), batch.batch[0].item()) for batch in loader]


@pytest.mark.parametrize(
    "options", [{"shuffle": True}, {"shuffle": True, "seed": 4}, {"sampler": SubsetRandomSampler(range(50))}], ids="-".join
)
def test_persistent_workers_persist_though_samples_are_replaced(options):
    loader = DataLoader(noisy(), 5, on_error="replace", num_workers=1, persistent_workers=True, error_caps=LOOSE, **options)
    before, pids = children(), []
    for _ in range(2):
        assert len(drawn(loader)) == 50
        pids.append(children() - before)
    assert len(pids[0]) == 1 and pids[0] == pids[1]


def test_with_index_tells_what_was_asked_for():
    loader = DataLoader(noisy(), 8, on_error="skip", force_on_error=True, num_workers=0, error_caps=LOOSE, with_index=True)
    first = next(iter(loader))
    assert first.index.tolist() == list(range(8))
    assert first.batch[0].tolist() == [0, 1, 2, 4, 5, 6, 7]
