"""fastfeed's loaders under Hugging Face Accelerate, on one process and on real ranks.

Long, and whole: real ranks repeat what one process shows, with the same loaders and the same plain ones to compare with.
"""

import inspect
import subprocess
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from loading import At, Calls, NoCollector, Raise
from ranked import noted, run_ranks
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import IterableDataset, RandomSampler, Sampler, WeightedRandomSampler

import fastfeed.accelerate
from fastfeed.accelerate import AcceleratedLoader, prepare, skip_first_batches
from fastfeed.errors import FastfeedWarning, UsageError
from fastfeed.feed.loader import DataLoader

accelerate: Any = pytest.importorskip("accelerate", reason="accelerate is not installed: pip install 'fastfeed[accelerate]'")

SIZE = 23


def reset() -> None:
    """Accelerate's state is one for the whole process."""
    accelerate.state.GradientState._reset_state()
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)


@pytest.fixture(autouse=True)
def _no_state() -> Iterator[None]:
    reset()
    yield
    reset()


def accelerator(**options: Any) -> Any:
    config = accelerate.DataLoaderConfiguration(**options.pop("config", {}))
    return accelerate.Accelerator(cpu=True, dataloader_config=config, **options)


def numbers(size: int = SIZE) -> Calls:
    return Calls(float, size)


def loader(size: int = SIZE, batch: int | None = 4, **options: Any) -> DataLoader:
    return DataLoader(numbers(size), batch, **{"num_workers": 0, **options})


def seen(host: Any, one: Any) -> list[float]:
    """One pass, gathered for metrics."""
    found: list[float] = []
    for batch in one:
        found += host.gather_for_metrics(torch.as_tensor(batch).reshape(-1)).tolist()
    return found


# ---------------------------------------------------------------------------------------------------- one process
@pytest.mark.parametrize(
    "options",
    [{}, {"shuffle": True}, {"shuffle": True, "seed": 3}, {"batch": None}, {"seed": 3, "num_workers": 2}, {"drop_last": True},
     {"sampler": range(SIZE)}, {"distributed": True}, {"distributed": "exact", "shuffle": True}, {"distributed": False}],
    ids=str,
)  # fmt: skip
def test_one_process_sees_every_sample_once(options):
    host = accelerator()
    one = prepare(host, loader(**options))
    assert isinstance(one, AcceleratedLoader) and host._dataloaders == [one]
    for _ in range(2):
        found = seen(host, one)
        assert sorted(found) == (found if options.get("drop_last") else list(range(SIZE)))
        assert len(found) == (20 if options.get("drop_last") else SIZE)
    assert not host.gradient_state.in_dataloader


def test_objects_come_back_in_their_order():
    host = accelerator()
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    plain = TorchDataLoader(numbers(), 4)
    found = prepare(host, loader(), model, plain, scheduler, optimizer, "else", loader())
    assert [type(one).__name__ for one in found] == [
        "AcceleratedLoader", "Linear", "DataLoaderShard", "AcceleratedScheduler", "AcceleratedOptimizer", "str",
        "AcceleratedLoader",
    ]  # fmt: skip
    assert prepare(host, found[0]) is found[0]
    assert host.prepare(found[0]) is found[0]
    assert len(host._dataloaders) == 3
    host.free_memory()
    assert host._dataloaders == []


@pytest.mark.parametrize(("steps", "batches"), [(2, 6), (4, 6), (3, 6), (4, 5)])
@pytest.mark.parametrize("options", [{}, {"seed": 2, "shuffle": True}], ids=["torch's order", "own order"])
def test_accumulation_ends_with_the_epoch(steps, batches, options):
    def stepped(make: Callable[[Any, Any], Any], one: Any) -> list[bool]:
        reset()
        host = accelerator(gradient_accumulation_steps=steps)
        model = torch.nn.Linear(1, 1)
        model, optimizer, one = make(host, [model, torch.optim.SGD(model.parameters(), 0.1), one])
        found = []
        for _ in range(2):
            for batch in one:
                with host.accumulate(model):
                    host.backward(model(batch.float()[:, None]).sum())
                    optimizer.step()
                    found.append(host.sync_gradients)
                    optimizer.zero_grad()
        return found

    size = batches * 4 - 1
    plain = stepped(lambda host, objects: host.prepare(*objects), TorchDataLoader(numbers(size), 4))
    assert stepped(lambda host, objects: prepare(host, *objects), loader(size, **options)) == plain
    assert plain.count(True) == 2 * -(-batches // steps)


def test_an_evaluation_inside_of_training():
    host = accelerator()
    train, evaluation = prepare(host, loader(9, 3), loader(8, 3))
    found = []
    for _ in train:
        assert sorted(seen(host, evaluation)) == list(range(8))
        for _ in evaluation:
            break
        assert host.gradient_state.active_dataloader is train
        found.append(host.gradient_state.end_of_dataloader)
    assert found == [False, False, True]


def test_abilities_stay():
    host = accelerator()
    bad = Calls(At(7, Raise(ValueError("bad"))), SIZE)
    one = prepare(host, DataLoader(bad, 4, seed=1, shuffle=True, num_workers=0))
    assert one.plan.num_workers >= 0 and one.seed == 1 and one.rng == "sample"
    with pytest.raises(ValueError, match="sample 7"):
        list(one)
    left = prepare(host, DataLoader(bad, 4, seed=1, shuffle=True, num_workers=0, on_error="skip", with_index=True))
    assert sorted(i for batch in left for i in batch.batch.tolist()) == [i for i in range(SIZE) if i != 7]


def test_samples_stand_in():
    bad = Calls(At(7, Raise(ValueError("bad"))), SIZE)
    one = prepare(accelerator(), DataLoader(bad, 4, seed=1, shuffle=True, num_workers=0, on_error="replace"))
    found = [i for batch in one for i in batch.tolist()]
    assert len(found) == SIZE and set(found) == set(range(SIZE)) - {7}


def test_nothing_but_the_accelerator_keeps_a_loader():
    """Its workers would live until a circle is collected."""
    host = accelerator()
    one = prepare(host, loader(seed=1, num_workers=1))
    with NoCollector():
        passed = iter(one)
        next(passed)
        kept = weakref.ref(one)
        host._dataloaders.clear()
        del one, passed
        assert kept() is None and not host.gradient_state.in_dataloader


def test_batches_are_on_the_device():
    host = accelerator(config={"non_blocking": True})
    one = prepare(host, loader(with_index=True))
    assert one.host.device == host.device and one.host.non_blocking is True
    one.host.device = torch.device("meta")
    batch = next(iter(one))
    assert batch.batch.is_meta and batch.index.is_meta and type(batch).__name__ == "Indexed"
    left = prepare(host, loader(), loader(), device_placement=[False, True])
    assert [one.host.device for one in left] == [None, host.device]
    assert prepare(accelerator(device_placement=False), loader()).host.device is None


@pytest.mark.parametrize("config", [{"use_seedable_sampler": True, "data_seed": 5}, {"use_seedable_sampler": True}], ids=str)
def test_a_seedable_order_gets_the_seed(config):
    torch.manual_seed(9)
    one = prepare(accelerator(config=config), loader(shuffle=True))
    assert one.seed == config.get("data_seed", 9)
    assert prepare(accelerator(config=config), loader(shuffle=True, seed=3)).seed == 3


def test_one_process_takes_all_options():
    """What is refused for several processes has no meaning for one."""
    host = accelerator(config={"even_batches": False, "dispatch_batches": True, "split_batches": True})
    assert sorted(seen(host, prepare(host, loader(shuffle=True)))) == list(range(SIZE))


def test_an_accelerate_that_is_too_old_is_told(monkeypatch):
    host = accelerator()
    monkeypatch.delattr(accelerate.Accelerator, "parallelism_config")
    with pytest.raises(UsageError, match=r"needs Accelerate 1\.10 or later"):
        prepare(host, loader())


def test_a_kind_of_processes_with_loaders_of_its_own_is_refused(monkeypatch):
    host = accelerator()
    monkeypatch.setattr(accelerate.Accelerator, "distributed_type", accelerate.DistributedType.XLA)
    with pytest.raises(UsageError, match="cannot do what Accelerate's loaders do under XLA"):
        prepare(host, loader())


def test_random_numbers_are_synchronized_as_asked():
    host = accelerator(rng_types=["torch", "generator"])
    one = prepare(host, loader(shuffle=True))
    assert one.host._rng_types == ["torch"]
    assert sorted(seen(host, one)) == list(range(SIZE))


# ---------------------------------------------------------------------------------------------------- positions
def test_save_state_carries_the_position(tmp_path):
    host = accelerator()
    first, other, third = prepare(host, loader(seed=3, shuffle=True), loader(), loader(seed=1))
    before = [next(passed := iter(first)).tolist(), next(passed).tolist()]
    host.save_state(str(tmp_path))
    whole = seen(host, prepare(accelerator(), loader(seed=3, shuffle=True)))
    reset()
    host = accelerator()
    first, other, third = prepare(host, loader(seed=3, shuffle=True), loader(), loader(seed=1))
    host.load_state(str(tmp_path))
    assert [i for batch in before for i in batch] + seen(host, first) == whole
    assert seen(host, other) == seen(host, third) == list(range(SIZE))


def test_a_stateful_loader_is_one_with_a_position():
    host = accelerator(config={"use_stateful_dataloader": True}) if HAS_TORCHDATA else None
    if host is None:
        host = accelerator()
        host.dataloader_config.use_stateful_dataloader = True  # Accelerate's own check asks for torchdata
    assert prepare(host, loader(seed=1)).use_stateful_dataloader
    with pytest.raises(UsageError, match="use_stateful_dataloader=True asks for a loader with a position"):
        prepare(host, loader())


HAS_TORCHDATA = accelerate.utils.is_torchdata_stateful_dataloader_available()


@pytest.mark.parametrize("options", [{"seed": 3, "shuffle": True}, {}], ids=str)
def test_first_batches_can_be_left_out(options):
    host = accelerator()
    one = prepare(host, loader(**options))
    whole = seen(host, prepare(host, loader(**options)))
    assert skip_first_batches(one, 2) is one
    assert seen(host, one) == whole[8:]
    assert len(seen(host, one)) == SIZE


@pytest.mark.parametrize("options", [{"seed": 3}, {}, {"sampler": range(SIZE)}], ids=str)
def test_accelerates_own_way_to_leave_them_out_is_refused(options):
    host = accelerator()
    one = prepare(host, loader(**options))
    with pytest.raises(UsageError, match="makes a plain torch loader, without the device") as caught:
        host.skip_first_batches(one, 2)
    assert "fastfeed.accelerate.skip_first_batches(loader, batches)" in str(caught.value)


# ---------------------------------------------------------------------------------------------------- a swap
SWAPPED = r"accelerator\.prepare\(\) puts a plain torch DataLoader in the place of this fastfeed\.DataLoader"


@pytest.mark.parametrize("call", ["prepare", "prepare_data_loader"])
def test_a_swap_is_told_at_the_users_line(call):
    with pytest.warns(FastfeedWarning, match=SWAPPED) as caught:
        swapped = getattr(accelerator(), call)(loader(seed=1, shuffle=True, distributed=False))
    assert [entry.filename for entry in caught] == [__file__]
    assert not isinstance(swapped, DataLoader) and swapped.dataset.size == SIZE


def test_nothing_is_told_where_nothing_is_swapped():
    one: Any = loader()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert one._is_accelerate_prepared is False
        assert getattr(one, "_is_accelerate_prepared", True) is False
        host = accelerator()
        host.prepare(prepare(host, one))
        host.prepare(torch.nn.Linear(1, 1))


def test_nothing_is_told_where_accelerate_makes_loaders_of_fastfeed(monkeypatch):
    monkeypatch.setattr(accelerate.data_loader, "DataLoader", DataLoader)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert isinstance(accelerator().prepare(loader(seed=1)).base_dataloader, DataLoader)


def test_what_survives_a_swap():
    given: Any = loader(seed=1, shuffle=True)
    with pytest.warns(FastfeedWarning, match=SWAPPED):
        swapped = accelerator().prepare(given)
    assert swapped.dataset is given.dataset and swapped.collate_fn is given.collate_fn
    assert swapped.batch_sampler is given.batch_sampler and swapped.num_workers == given.num_workers
    assert [i for batch in swapped for i in batch.tolist()] == [
        i for batch in loader(seed=1, shuffle=True) for i in batch.tolist()
    ]


# ---------------------------------------------------------------------------------------------------- contract
@pytest.mark.long
def test_the_modules_are_there_without_accelerate_and_transformers():
    script = "import sys, fastfeed.trainer\nprint(sorted({'accelerate', 'transformers'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_names_of_accelerates_that_are_relied_on():
    """What is not documented and used in fastfeed/accelerate.py; the other tests use each of them as well."""
    assert inspect.isfunction(accelerate.state.GradientState._add_dataloader)
    assert inspect.isfunction(accelerate.state.GradientState._remove_dataloader)
    assert isinstance(accelerate.state.GradientState.initialized, property)
    assert list(inspect.signature(accelerate.data_loader.BatchSamplerShard).parameters) == [
        "batch_sampler", "num_processes", "process_index", "split_batches", "even_batches",
    ]  # fmt: skip
    assert (accelerate.skip_first_batches.__module__, accelerate.skip_first_batches.__name__) == fastfeed.accelerate._SKIP
    config = accelerate.DataLoaderConfiguration()
    assert (config.even_batches, config.dispatch_batches, config.data_seed) == (True, None, None)
    assert {"XLA", "MEGATRON_LM"} <= {kind.name for kind in accelerate.DistributedType}
    assert isinstance(inspect.getattr_static(accelerate.Accelerator, "parallelism_config"), property)
    assert isinstance(
        inspect.getattr_static(accelerate.parallelism_config.ParallelismConfig, "non_data_parallel_size"), property
    )


# ---------------------------------------------------------------------------------------------------- real ranks
class Stream(IterableDataset[float]):
    def __iter__(self) -> Iterator[float]:
        return iter(map(float, range(SIZE)))


class Halves(Sampler[int]):
    """The first and the last samples, in turn; no generator."""

    def __len__(self) -> int:
        return 11

    def __iter__(self) -> Iterator[int]:
        return (i if i % 2 else SIZE - 1 - i for i in range(11))


def refused(make: Callable[[], Any]) -> str:
    try:
        make()
    except UsageError as error:
        return str(error)
    return "nothing was refused"


def as_plain(host: Any, **options: Any) -> list[list[float]]:
    """This rank's batches, of Accelerate's own loader."""
    plain = host.prepare(TorchDataLoader(numbers(), **options))
    return [batch.tolist() for batch in plain]


def in_rank(world: int, folder: Path) -> dict[str, Any]:
    """What one of several processes finds."""
    host = accelerator()
    found: dict[str, Any] = {"metrics": {}, "refused": {}}
    for size, batch in [(SIZE, 4), (SIZE, None), (3, 4), (1, 2), (16, 4), (17, 4), (8 * world + 1, 8)]:
        found["metrics"][size, batch] = seen(host, prepare(host, loader(size, batch))), list(map(float, range(size)))
    torch.manual_seed(100 + host.process_index)
    shuffled = prepare(host, loader(shuffle=True))
    found["shuffled"] = [seen(host, shuffled) for _ in range(2)]
    found["seed"] = shuffled.seed
    found["full steps"] = [batch.tolist() for batch in prepare(host, loader(drop_last=True))]
    found["full steps plain"] = as_plain(host, batch_size=4, drop_last=True)
    found["workers"] = seen(host, prepare(host, loader(num_workers=1, seed=4, shuffle=True, distributed="exact")))
    found["everything"] = [i for batch in prepare(host, loader(distributed=False)) for i in batch.tolist()]
    found["stream"] = [i for batch in prepare(host, DataLoader(Stream(), 4, distributed=False, num_workers=0)) for i in batch]
    found["sampler"] = [batch.tolist() for batch in prepare(host, loader(sampler=Halves()))]
    found["sampler plain"] = as_plain(host, batch_size=4, sampler=Halves())
    found["sampler metrics"] = seen(host, prepare(host, loader(sampler=Halves())))
    found["random sampler"] = seen(host, prepare(host, loader(sampler=RandomSampler(range(SIZE)))))
    found["weighted"] = seen(host, prepare(host, loader(sampler=WeightedRandomSampler([1.0] * SIZE, 9))))
    resumed = prepare(host, loader(seed=6, shuffle=True))
    before = host.gather(next(iter(resumed))).tolist()
    host.save_state(str(folder / "state"))
    host.wait_for_everyone()
    host.load_state(str(folder / "state"))
    found["resumed"] = before + seen(host, resumed)
    found["whole"] = [i for batch in loader(seed=6, shuffle=True, distributed=False) for i in batch.tolist()]
    resumed.set_epoch(0)
    found["skipped"] = seen(host, skip_first_batches(resumed, 2))
    found["twice"] = refused(lambda: host.prepare(loader(distributed=True)))
    found["stream refused"] = refused(lambda: prepare(host, DataLoader(Stream(), 4, num_workers=0)))
    for name, value in (("dispatch_batches", True), ("even_batches", False)):
        setattr(host.dataloader_config, name, value)
        found["refused"][name] = refused(lambda: prepare(host, loader()))
        setattr(host.dataloader_config, name, {"dispatch_batches": None, "even_batches": True}[name])
    host.state.parallelism_config = accelerate.parallelism_config.ParallelismConfig(cp_size=world)
    found["one model"] = refused(lambda: prepare(host, loader()))
    found["one model said"] = [i for batch in AcceleratedLoader(loader(distributed=(0, 1)), host) for i in batch.tolist()]
    return found


def run_rank(rank: int, world: int, folder: Path) -> None:
    """One of several processes."""
    with noted(folder / f"rank{rank}.txt"), pytest.MonkeyPatch.context() as patch:
        for name, value in {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world}.items():
            patch.setenv(name, str(value))
        patch.setenv("OMP_NUM_THREADS", "1")  # Accelerate warns where nothing is said
        dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=world)
        reset()
        torch.save(in_rank(world, folder), folder / f"rank{rank}.pt")
        dist.destroy_process_group()


@pytest.mark.long
@pytest.mark.parametrize("world", [2, 3])
def test_real_ranks(tmp_path, world):
    run_ranks(run_rank, world, world, tmp_path, folder=tmp_path)
    found = [torch.load(tmp_path / f"rank{rank}.pt", weights_only=True) for rank in range(world)]
    everything = list(map(float, range(SIZE)))
    for one in found:
        for case, (metrics, wanted) in one["metrics"].items():
            assert metrics == wanted, case
        assert [sorted(epoch) for epoch in one["shuffled"]] == [everything] * 2 and one["shuffled"][0] != one["shuffled"][1]
        assert one["seed"] == found[0]["seed"] and one["shuffled"] == found[0]["shuffled"]
        assert one["full steps"] == one["full steps plain"]
        assert one["sampler"] == one["sampler plain"]
        assert one["sampler metrics"] == list(map(float, Halves()))
        assert sorted(one["random sampler"]) == everything and len(one["weighted"]) == 9
        assert sorted(one["workers"]) == one["everything"] == one["stream"] == everything
        assert one["resumed"] == one["whole"] and one["skipped"] == one["whole"][8 * world :]
        assert one["twice"].startswith(
            f"this loader gives each of {world} ranks its part (distributed=), and accelerator.prepare()"
        )
        assert "IterableDataset" in one["stream refused"] and "distributed=False" in one["stream refused"]
        assert one["refused"]["dispatch_batches"].startswith("dispatch_batches=True has one process read for all")
        assert one["refused"]["even_batches"].startswith("even_batches=False asks for ranks with unequal batches")
        assert one["one model"].startswith("some of the processes hold one model together")
        assert one["one model said"] == everything
