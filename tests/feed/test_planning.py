import multiprocessing
import resource
import sys
from dataclasses import replace

import machines
import pytest
import torch
from helpers import pack_photos
from loading import printed
from machines import GIB, lay_out
from torch.utils.data import Dataset, IterableDataset, TensorDataset

import fastfeed
from fastfeed.feed.ceilings import SizingFacts, WorkerRequest
from fastfeed.feed.loader import DataLoader
from fastfeed.feed.passage import Passage
from fastfeed.feed.planning import Planner, planner_of, raise_descriptors
from fastfeed.machine import Descriptors, SharedMemory, survey


class Numbers(Dataset):  # type: ignore[type-arg]
    def __len__(self):
        return 1000

    def __getitem__(self, index):
        return index


class Stream(IterableDataset):  # type: ignore[type-arg]
    def __iter__(self):
        return iter(range(9))


def plan_of(dataset, request, *, own=False):
    return planner_of(dataset, request, own=own, block_order=False).plan()


def test_what_is_left_out_is_decided_with_reasons():
    plan = plan_of(Numbers(), WorkerRequest(batches=100))
    assert plan.decided and plan.num_workers >= 1 and plan.why and not plan.persistent_workers
    assert plan.start_method == multiprocessing.get_start_method()
    assert plan.pin_memory is False or torch.cuda.is_available()


def test_what_is_passed_wins_and_its_cost_is_told():
    plan = plan_of(Numbers(), WorkerRequest(num_workers=500, batches=1000))
    assert (plan.num_workers, plan.decided) == (500, False) and "num_workers=500" in plan.costs[0]


def test_a_stream_gets_no_workers_unasked():
    plan = plan_of(Stream(), WorkerRequest())
    assert plan.num_workers == 0 and plan.why[0].startswith("no workers: each would read all of a stream") and not plan.costs
    assert "was given" not in str(plan)
    assert plan_of(Stream(), WorkerRequest(num_workers=2)).num_workers == 2


def test_workers_of_our_own_datasets_persist(tmp_path):
    ds = fastfeed.open(pack_photos(tmp_path))
    plan = plan_of(ds, WorkerRequest(batches=100), own=True)
    assert plan.persistent_workers or plan.num_workers == 0


def test_descriptors_are_raised_only_where_the_plan_says_so():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    raise_descriptors(plan_of(Numbers(), WorkerRequest(num_workers=1, batches=9)))
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before


def small_container(tmp_path, version):
    """Half a processor, 1 GiB of memory, 64 MiB of /dev/shm, 256 descriptors."""
    if version == 2:
        groups = {
            "sys/fs/cgroup/cpu.max": "50000 100000\n",
            "sys/fs/cgroup/memory.max": f"{GIB}\n",
            "sys/fs/cgroup/memory.current": f"{400 << 20}\n",
            "sys/fs/cgroup/memory.high": "max\n",
            "sys/fs/cgroup/memory.stat": "inactive_file 0\n",
        }
        files = machines.docker_v2() | groups
    else:
        groups = {
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "50000\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{GIB}\n",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{400 << 20}\n",
            "sys/fs/cgroup/memory/memory.stat": f"hierarchical_memory_limit {GIB}\n",
        }
        files = machines.docker_v1() | groups
    return survey(lay_out(tmp_path, files))


@pytest.mark.parametrize("version", [1, 2])
def test_a_small_container_is_foreseen(tmp_path, version):
    found = small_container(tmp_path, version)
    found = replace(found, shared_memory=SharedMemory(True, 64 << 20, 64 << 20, "64.0 MiB free of 64.0 MiB in /dev/shm"))
    found = replace(found, descriptors=Descriptors(256, 256, 20, "20 of 256 descriptors in use"))
    planner = Planner(WorkerRequest(batches=1000, pipes=True), SizingFacts(machine=found))
    first = planner.plan()
    assert first.num_workers == 1 and "cgroup quota of 0.5" in first.why[0]
    assert any("batches for which that is too little go past it" in line for line in first.why)
    assert planner.learn(batch_bytes=16 << 20, batch_tensors=2)
    second = planner.plan()
    assert (second.num_workers, second.prefetch_factor, second.sharing) == (1, 1, "file_descriptor")
    assert any(line.startswith("prefetch_factor 1 instead of 2") for line in second.why)
    planner.learn(batch_bytes=80 << 20, batch_tensors=2)
    third = planner.plan()
    assert third.num_workers == 1 and third.sharing == "pipe"
    planner.learn(batch_bytes=900 << 20, batch_tensors=2)
    fourth = planner.plan()
    assert fourth.num_workers == 0 and fourth.gate == "ceiling" and "of memory left" in fourth.why[0]


def test_the_size_of_batches_of_a_tensor_dataset_is_known_before_the_start():
    data = TensorDataset(torch.zeros(100, 256), torch.zeros(100, dtype=torch.int64))
    planner = planner_of(data, WorkerRequest(batches=10), own=False, block_order=False)
    assert (planner.facts.batch_bytes, planner.facts.batch_tensors) == (10 * (1024 + 8), 2)
    assert not any("known with the first one" in line for line in planner.plan().why)


def test_what_the_first_batch_shows_makes_another_plan_once():
    facts = SizingFacts(machine=machines.machine(shared=64 << 20))
    planner = Planner(WorkerRequest(num_workers=2, batches=100, pipes=True), facts)
    passage, plan = Passage(), planner.plan()
    assert planner.replanned(plan, passage) is plan
    passage.arrived(40 << 20, 2, "")
    again = planner.replanned(plan, passage)
    assert again.sharing == "pipe" and planner.facts.batch_bytes == 40 << 20
    passage.said.append("something happened")
    assert planner.replanned(again, passage).why == (*again.why, "something happened")
    assert not planner.learn(batch_bytes=40 << 20, batch_tensors=2)


def test_memory_is_pinned_only_where_cuda_is_in_use():
    """The planner is told of a GPU, and this process has not begun with CUDA."""
    if torch.cuda.is_initialized():
        pytest.skip("another test has begun with CUDA in this process")
    loader = DataLoader(Numbers(), 4, num_workers=0, seed=1)
    loader._planner = Planner(WorkerRequest(num_workers=0, batches=3), SizingFacts(machine=machines.machine(gpus=1)))
    loader.plan, loader.pin_memory = loader._planner.plan(), True
    planned = [loader.plan.pin_memory]
    next(iter(loader))
    assert [*planned, loader.plan.pin_memory, loader.pin_memory] == [True, False, False]
    assert loader.plan.why[-1].startswith("no pinned memory so far: CUDA was not in use")
    before = loader.plan
    next(iter(loader))
    assert loader.plan == before
    passage = Passage()
    passage.arrived(1 << 20, 1, "")
    again = loader._planner.replanned(before, passage)
    assert not again.pin_memory and [line for line in again.why if "pinned" in line] == [before.why[-1]]


def test_pinning_that_was_asked_for_is_left():
    loader = DataLoader(Numbers(), 4, num_workers=0, pin_memory=False)
    loader._planner = Planner(WorkerRequest(num_workers=0, pin_memory=False), SizingFacts(machine=machines.machine(gpus=1)))
    next(iter(loader))
    assert loader.pin_memory is False


# ---------------------------------------------------------------------------------------------------- how workers start
@pytest.mark.parametrize("given", ["spawn", multiprocessing.get_context("spawn")], ids=["name", "context"])
def test_a_start_method_may_be_given_as_torch_takes_it(given):
    assert DataLoader(Numbers(), 4, multiprocessing_context=given).plan.start_method == "spawn"


LATER = """
import json, multiprocessing, sys
from loading import Numbers
from fastfeed.feed.loader import DataLoader
loader = DataLoader(Numbers(), 4)
before = loader.plan.start_method
multiprocessing.set_start_method("spawn")
print(json.dumps([before, len(list(loader)), loader.plan.start_method, loader.num_workers > 0]))
"""


@pytest.mark.long
@pytest.mark.parametrize("disabled", ["0", "1"])
def test_how_workers_start_may_be_set_once_a_loader_was_made(disabled, monkeypatch):
    monkeypatch.setenv("FASTFEED_DISABLE", disabled)
    found = printed([sys.executable, "-W", "ignore", "-c", LATER])
    usual = multiprocessing.get_all_start_methods()[0]
    assert found == ([usual, 6, usual, False] if disabled == "1" else [usual, 6, "spawn", True])
