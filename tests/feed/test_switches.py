"""FASTFEED_OVERRIDE lets the loader decide against explicit arguments; FASTFEED_DISABLE leaves plain torch."""

import os
import subprocess
import sys
import warnings
from typing import Any

import pytest
from loading import Numbers, equal, indices, seed_all, states, three_epochs
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import IterableDataset, RandomSampler

from fastfeed.errors import FastfeedWarning, UsageError
from fastfeed.feed.ceilings import WorkerRequest
from fastfeed.feed.loader import DataLoader
from fastfeed.feed.order import FeedSampler
from fastfeed.feed.switches import plain_plan, switches
from fastfeed.sample import SampleId, SkipEntry, SkipList


class Named(Numbers):
    def identity(self, index: int) -> SampleId:
        return SampleId(index, str(index), None)


# ---------------------------------------------------------------------------------------------------- override
@pytest.fixture
def override(monkeypatch: pytest.MonkeyPatch) -> Any:
    return lambda names: monkeypatch.setenv("FASTFEED_OVERRIDE", names)


@pytest.mark.filterwarnings("ignore:This DataLoader will create 17 worker")
def test_the_number_of_workers_is_ours_and_so_is_the_mode(override):
    asked = DataLoader(Numbers(), 4, num_workers=17)
    decided = DataLoader(Numbers(), 4)
    assert (asked.num_workers, asked.rng, asked.autotune) == (17, "torch", False)
    override("num_workers")
    loader = DataLoader(Numbers(), 4, num_workers=17)
    assert (loader.num_workers, loader.rng, loader.autotune) == (decided.num_workers, "sample", True)
    assert loader.plan.decided and loader.plan.num_workers == decided.num_workers
    assert "num_workers=17 was given and gives way to ours (FASTFEED_OVERRIDE)" in loader.plan.why
    assert "random numbers are drawn anew for each sample" in str(loader.plan)
    assert "17" not in " ".join(loader.plan.costs)


def test_results_do_not_depend_on_what_gave_way(override):
    override("num_workers,prefetch_factor")
    found = [
        three_epochs(lambda count=count, ahead=ahead: DataLoader(
            Numbers(), 4, shuffle=True, num_workers=count, prefetch_factor=ahead, seed=2
        ))
        for count, ahead in ((0, None), (1, 5), (9, 3))
    ]  # fmt: skip
    without_worker_seeds = [[[batch[:4] for batch in epoch] for epoch in epochs] for epochs, _ in found]
    assert equal(without_worker_seeds[0], without_worker_seeds[1]) and equal(without_worker_seeds[1], without_worker_seeds[2])


def test_torchs_numbers_where_they_are_asked_for(override):
    override("num_workers")
    loader = DataLoader(Numbers(), 4, num_workers=17, rng="torch")
    assert loader.rng == "torch" and loader.num_workers != 17
    assert "random numbers" not in str(loader.plan)


def test_other_options_give_way_one_by_one(override):
    given: dict[str, Any] = {"num_workers": 2, "prefetch_factor": 7, "pin_memory": True, "persistent_workers": True}
    override("prefetch_factor")
    loader = DataLoader(Numbers(), 4, **given)
    assert (loader.num_workers, loader.pin_memory, loader.persistent_workers, loader.rng) == (2, True, True, "torch")
    assert loader.prefetch_factor == loader.plan.prefetch_factor != 7
    assert "prefetch_factor=7 was given and gives way to ours (FASTFEED_OVERRIDE)" in loader.plan.why
    override("persistent_workers , pin_memory")
    loader = DataLoader(Numbers(), 4, **given)
    assert (loader.num_workers, loader.prefetch_factor, loader.persistent_workers) == (2, 7, False)
    assert loader.pin_memory == loader.plan.pin_memory
    assert "persistent_workers=True was given and gives way to ours (FASTFEED_OVERRIDE)" in loader.plan.why


def test_what_was_left_out_does_not_give_way(override):
    override("num_workers,prefetch_factor")
    assert "FASTFEED_OVERRIDE" not in str(DataLoader(Numbers(), 4).plan)


def test_a_loader_that_is_made_again_decides_again(override):
    override("num_workers")
    loader = DataLoader(Numbers(), 4, num_workers=17)
    again = DataLoader(Numbers(), 4, num_workers=loader.num_workers, autotune=loader.autotune, rng=loader.rng)
    assert (again.num_workers, again.rng, again.autotune) == (loader.num_workers, "sample", True)


def test_values_that_torch_refuses_do_not_give_way(override):
    override("num_workers")
    with pytest.raises(ValueError, match="num_workers option should be non-negative"):
        DataLoader(Numbers(), 4, num_workers=-1)


def test_an_unknown_name_is_told_where_a_loader_is_made(override):
    override("num_workers,batch_size")
    with pytest.raises(UsageError, match="FASTFEED_OVERRIDE names batch_size"):
        DataLoader(Numbers(), 4)


def test_auto_is_the_same_as_leaving_it_out():
    one, other = DataLoader(Numbers(), 4, num_workers="auto"), DataLoader(Numbers(), 4)
    assert (one.num_workers, one.rng, one.autotune, one.plan.why[0]) == (
        other.num_workers, "sample", True, other.plan.why[0],
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------------- disable
@pytest.fixture
def disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    """FASTFEED_DISABLE=1, told already."""
    monkeypatch.setenv("FASTFEED_DISABLE", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FastfeedWarning)
        DataLoader([])  # type: ignore[arg-type]


@pytest.mark.long
@pytest.mark.usefixtures("disabled")
@pytest.mark.parametrize(
    "options",
    [{}, {"shuffle": True}, {"shuffle": True, "num_workers": 2}, {"num_workers": "auto"},
     {"num_workers": 1, "batch_size": None}, {"num_workers": 2, "persistent_workers": True, "shuffle": True}],
    ids=str,
)  # fmt: skip
def test_it_is_torchs_loader(options):
    plain = {name: value for name, value in options.items() if value != "auto"}
    made: list[Any] = []

    def ours() -> Any:
        made.append(DataLoader(Numbers(), **options))
        return made[0]

    assert equal(three_epochs(ours), three_epochs(lambda: TorchDataLoader(Numbers(), **plain)))
    (loader,) = made
    assert isinstance(loader, DataLoader) and loader.disabled
    names = ("num_workers", "prefetch_factor", "pin_memory", "persistent_workers", "batch_size", "timeout", "in_order")
    reference: Any = TorchDataLoader(Numbers(), **plain)
    assert [getattr(loader, name) for name in names] == [getattr(reference, name) for name in names]
    assert type(iter(loader)) is type(iter(reference))
    assert (loader.plan.num_workers, loader.plan.prefetch_factor) == (loader.num_workers, loader.prefetch_factor)
    assert "FASTFEED_DISABLE=1: fastfeed's loaders are plain torch" in str(loader.plan)


@pytest.mark.usefixtures("disabled")
@pytest.mark.parametrize(
    "options",
    [{"prefetch_factor": 2}, {"persistent_workers": True}, {"num_workers": -1}, {"timeout": -1}, {"num_workers": 0.5}],
    ids=str,
)  # fmt: skip
def test_errors_are_torchs(options):
    outcomes: list[Any] = []
    for cls in (TorchDataLoader, DataLoader):
        try:
            outcomes.append(cls(Numbers(), **options).num_workers)
        except (TypeError, ValueError) as error:
            outcomes.append((type(error), str(error)))
    assert outcomes[0] == outcomes[1]


@pytest.mark.usefixtures("disabled")
def test_streams_too():
    class Stream(IterableDataset[int]):
        def __iter__(self) -> Any:
            return iter(range(5))

    assert [batch.tolist() for batch in DataLoader(Stream(), 2)] == [[0, 1], [2, 3], [4]]
    assert type(iter(DataLoader(Stream(), 2))) is type(iter(TorchDataLoader(Stream(), 2)))


ORDERS: list[dict[str, Any]] = [
    {"seed": 5, "shuffle": True}, {"distributed": (1, 2), "shuffle": True}, {"shuffle": True, "shuffle_mode": "block"},
    {"seed": 1, "shuffle": True, "skip": SkipList([SkipEntry(key="4")])}, {"skip": SkipList([SkipEntry(key="4")])},
]  # fmt: skip


@pytest.mark.parametrize("options", ORDERS, ids=str)
def test_orders_of_ours_stay(options, monkeypatch: pytest.MonkeyPatch):
    wanted = DataLoader(Named(), 4, num_workers=0, **options)
    epochs = [indices(wanted) for _ in range(2)]
    monkeypatch.setenv("FASTFEED_DISABLE", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FastfeedWarning)
        loader = DataLoader(Named(), 4, **options)
    assert (loader.num_workers, loader.rng) == (0, "torch")
    assert [indices(loader) for _ in range(2)] == epochs
    assert len(loader) == len(wanted)
    if "distributed" in options:
        assert type(loader.sampler) is FeedSampler
        loader.set_epoch(0)
        assert indices(loader) == epochs[0]


@pytest.mark.usefixtures("disabled")
@pytest.mark.parametrize(
    ("options", "name"),
    [({"on_error": "skip", "shuffle": True}, "on_error"), ({"with_index": True}, "with_index"),
     ({"rng": "sample"}, "rng='sample'"), ({"distributed": "exact"}, "distributed='exact'"),
     ({"distributed": "exact", "with_index": True}, "with_index, distributed='exact'")],
    ids=str,
)  # fmt: skip
def test_what_torch_cannot_do_is_refused(options, name):
    with pytest.raises(UsageError, match=f"^FASTFEED_DISABLE=1 leaves torch's own loader, which cannot do {name}"):
        DataLoader(Numbers(), 4, **options)


@pytest.mark.usefixtures("disabled")
def test_it_has_no_positions():
    loader = DataLoader(Numbers(), 4, seed=3)
    for name, arguments in (("state_dict", ()), ("load_state_dict", ({},))):
        with pytest.raises(UsageError, match="FASTFEED_DISABLE=1 leaves torch's own loader, which has no position"):
            getattr(loader, name)(*arguments)


@pytest.mark.usefixtures("disabled")
def test_the_override_is_disabled_as_well(override):
    override("num_workers,nonsense")
    assert DataLoader(Numbers(), 4, num_workers=1).num_workers == 1


@pytest.mark.long
def test_it_is_told_once_a_process():
    code = (
        "import warnings\n"
        "from fastfeed import DataLoader\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    for _ in range(3): list(DataLoader([1, 2, 3]))\n"
        "print(*[f'{each.category.__name__} {each.lineno}: {each.message}' for each in caught], sep='\\n')\n"
    )
    environment = {**os.environ, "FASTFEED_DISABLE": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == (
        "FastfeedWarning 5: FASTFEED_DISABLE=1: fastfeed's loaders are plain torch. "
        "Only the order of samples is still as asked for (seed, distributed, shuffle_mode, skip).\n"
    )


def test_neither_switch_changes_a_loader_that_is_made(monkeypatch: pytest.MonkeyPatch):
    loader = DataLoader(Numbers(), 4, shuffle=True, num_workers=0)
    seed_all(3)
    first = list(loader), states()
    monkeypatch.setenv("FASTFEED_DISABLE", "1")
    monkeypatch.setenv("FASTFEED_OVERRIDE", "num_workers")
    seed_all(3)
    assert equal(first, (list(loader), states()))
    assert type(loader.sampler) is RandomSampler


# ---------------------------------------------------------------------------------------------------- pure parts
def test_values_that_count(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FASTFEED_OVERRIDE", "num_workers,pin_memory")
    switch = switches({"on_error": True})
    given = {"prefetch_factor": 3, "pin_memory": True, "persistent_workers": None, "multiprocessing_context": "spawn"}
    plan = plain_plan(WorkerRequest(num_workers=2))
    kept = {"prefetch_factor": 3, "pin_memory": False, "persistent_workers": False, "multiprocessing_context": "spawn"}
    assert switch.settled(plan, None, given) == (2, kept)
    nothing = {"prefetch_factor": None, "pin_memory": False, "persistent_workers": False, "multiprocessing_context": None}
    assert switch.settled(plain_plan(WorkerRequest()), None, given) == (0, nothing)
    assert switch.settled(plan, 0, {**given, "persistent_workers": True})[1]["persistent_workers"] is True
    assert switch.workers(5, autotune=None) == (5, None)
    assert switch.workers(5, autotune=True) == switch.workers("auto", autotune=None) == (None, None)
    monkeypatch.delenv("FASTFEED_OVERRIDE")
    assert switches({}).workers(5, autotune=False) == (5, 5)
    assert [switches({}).rng(None, decided=d, seeded=s) for d, s in ((False, False), (True, False), (False, True))] == [
        "torch", "sample", "sample",
    ]  # fmt: skip


def test_the_plan_of_plain_torch():
    plan = plain_plan(WorkerRequest())
    assert (plan.num_workers, plan.prefetch_factor, plan.pin_memory, plan.persistent_workers) == (0, None, False, False)
    plan = plain_plan(WorkerRequest(num_workers=3, multiprocessing_context="spawn", pin_memory=True))
    assert (plan.num_workers, plan.prefetch_factor, plan.start_method, plan.decided) == (3, 2, "spawn", False)
    assert str(plan).startswith(
        "3 workers, prefetch_factor 2, pinned memory, workers are started each epoch\n  FASTFEED_DISABLE=1"
    )
