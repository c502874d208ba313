"""fastfeed/feed/sizing.py: the plan, its gates and its ladder; and what holds for every plan."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import GIB, machine

from fastfeed.feed.ceilings import SizingFacts, WorkerRequest
from fastfeed.feed.sizing import plan_workers
from fastfeed.mounts import FileSystem

MIB = 1 << 20
NFS = FileSystem("nfs4", "network", "/data", "/data is NFS, a network file system")


def plan(request=None, facts=None, **of_machine):
    return plan_workers(WorkerRequest(**(request or {})), SizingFacts(machine=machine(**of_machine), **(facts or {})))


@pytest.mark.parametrize(
    ("of_machine", "workers", "why"),
    [
        ({"processors": 64, "cores": 32}, 16, "16 workers to start with: half of the physical cores"),
        ({"processors": 16, "cores": 16}, 8, "8 workers to start with: half of the physical cores"),
        ({"processors": 8, "cores": 4}, 4, "4 workers to start with, as is usual: half of the physical cores would be 2"),
        ({"processors": 2}, 2, "2 workers to start with, all that the processors bear"),
        ({"processors": 128, "cores": 64, "ranks": 8}, 4, "4 workers to start with: half of the physical cores"),
        ({"processors": 128, "ranks": 4}, 16, "16 workers to start with: half of the physical cores"),
        ({"processors": 64, "quota": 0.5}, 1, "1 worker to start with"),
        ({"processors": 16, "memory": GIB}, 8, "8 workers to start with"),
    ],
)
def test_where_it_starts(of_machine, workers, why):
    found = plan(**of_machine)
    assert found.num_workers == workers
    assert found.why[0].startswith(why)
    assert (found.decided, found.gate, found.threads_per_worker) == (True, None, 1)


def test_what_was_given_stays():
    request = {
        "num_workers": 3,
        "prefetch_factor": 7,
        "pin_memory": True,
        "persistent_workers": True,
        "multiprocessing_context": "spawn",
    }
    found = plan(request)
    for name, value in request.items():
        assert getattr(found, name) == value
    assert (found.decided, found.start_method) == (False, "spawn")
    assert found.why[0] == "3 workers: num_workers was given"


def test_an_override_gives_way_and_is_said():
    found = plan({"num_workers": 99, "prefetch_factor": 9, "override": frozenset({"num_workers"})})
    assert (found.num_workers, found.prefetch_factor, found.decided) == (8, 9, True)
    assert "num_workers=99 was given and gives way to ours (FASTFEED_OVERRIDE)" in found.why


@pytest.mark.parametrize(
    ("request_", "facts", "gate", "why"),
    [
        ({}, {"daemonic": True}, "daemonic", "this process is a daemonic child, which may have no children of its own"),
        ({}, {"cuda_tensors": "dataset.images"}, "cuda", "dataset.images holds CUDA tensors"),
        ({}, {"start_method": "spawn", "guarded_main": False}, "main", "spawn imports the main module anew in each worker"),
        ({}, {"start_method": "forkserver", "unpicklable": "a lambda"}, "pickle", "of what it needs, and a lambda"),
        ({"multiprocessing_context": "spawn"}, {"unpicklable": "a lambda"}, "pickle", "spawn gives each worker a pickle"),
        ({"batches": 0}, {}, "ceiling", "0 batches an epoch"),
    ],
)
def test_gates(request_, facts, gate, why):
    found = plan(request_, facts)
    assert (found.num_workers, found.gate) == (0, gate)
    assert found.why[0].startswith("no workers: ")
    assert why in found.why[0]
    assert (found.prefetch_factor, found.persistent_workers, found.multiprocessing_context) == (None, False, None)


@pytest.mark.parametrize(
    ("request_", "facts"),
    [
        ({}, {"unpicklable": "a lambda", "guarded_main": False}),  # fork needs neither
        ({}, {"start_method": "spawn", "guarded_main": True}),
    ],
)
def test_no_gate(request_, facts):
    found = plan(request_, facts)
    assert found.num_workers > 0
    assert found.gate is None


def test_64_mib_of_shared_memory_first_prefetch_less():
    found = plan(facts={"batch_bytes": 5 * MIB}, processors=8, shared=64 * MIB)
    assert (found.num_workers, found.prefetch_factor, found.sharing) == (4, 2, "file_descriptor")
    found = plan(facts={"batch_bytes": 8 * MIB}, processors=8, shared=64 * MIB)
    assert (found.num_workers, found.prefetch_factor) == (4, 1)
    assert "prefetch_factor 1 instead of 2: otherwise there is room for 2 workers" in found.why[1]


def test_64_mib_of_shared_memory_then_fewer_workers():
    found = plan(facts={"batch_bytes": 14 * MIB}, processors=8, shared=64 * MIB)
    assert (found.num_workers, found.prefetch_factor) == (2, 1)
    assert found.why[0].startswith("2 workers, not 4: 64 MiB free in /dev/shm")


def test_64_mib_of_shared_memory_then_past_it_if_the_engine_can():
    found = plan({"pipes": True}, {"batch_bytes": 40 * MIB}, processors=8, shared=64 * MIB)
    assert (found.num_workers, found.sharing, found.prefetch_factor) == (4, "pipe", 2)
    assert found.why[1].startswith("batches go past /dev/shm")


def test_64_mib_of_shared_memory_then_no_workers():
    found = plan(facts={"batch_bytes": 40 * MIB}, processors=8, shared=64 * MIB)
    assert (found.num_workers, found.gate) == (0, "ceiling")
    assert found.why[0].startswith("no workers: there is no room for one: 64 MiB free in /dev/shm")


def test_too_many_workers_that_were_asked_for_run_on_little():
    found = plan({"num_workers": 8}, {"batch_bytes": 40 * MIB}, shared=64 * MIB)
    assert (found.num_workers, found.prefetch_factor) == (8, 1)


def test_256_descriptors_first_raise_the_limit():
    found = plan(facts={"batch_tensors": 20}, soft=256, hard=4096, used=100)
    assert (found.num_workers, found.descriptor_limit, found.sharing, found.prefetch_factor) == (8, 4096, "file_descriptor", 2)
    assert found.why[1].startswith("the limit of descriptors is raised from 256 to 4,096")


def test_256_descriptors_that_are_all_there_are():
    found = plan(facts={"batch_tensors": 8}, soft=256, hard=256, used=40)
    assert (found.num_workers, found.descriptor_limit, found.prefetch_factor, found.sharing) == (8, None, 1, "file_descriptor")
    found = plan(facts={"batch_tensors": 20}, soft=256, hard=256, used=100)
    assert (found.num_workers, found.descriptor_limit, found.sharing) == (8, None, "file_system")
    assert any(line.startswith("tensors are shared by name (file_system)") for line in found.why)
    found = plan(soft=256, hard=256, used=240)
    assert (found.num_workers, found.gate) == (0, "ceiling")


def test_half_a_processor():
    found = plan(processors=16, quota=0.5)
    assert found.num_workers == 1
    assert found.lowest().workers == 1
    assert found.lowest(waiting=True).workers == 16  # a quota counts processor time; what waits takes none


def test_1_gib_of_memory():
    found = plan(facts={"batch_bytes": 38 * MIB}, memory=600 * MIB)
    assert (found.num_workers, found.prefetch_factor) == (3, 1)
    assert found.why[0].startswith("3 workers, not 8: 600 MiB of memory left")
    found = plan(facts={"batch_bytes": 38 * MIB, "start_method": "spawn"}, memory=600 * MIB)
    assert (found.num_workers, found.prefetch_factor) == (1, 2)
    found = plan(facts={"batch_bytes": 38 * MIB, "start_method": "spawn"}, memory=300 * MIB)
    assert (found.num_workers, found.gate) == (0, "ceiling")


def test_an_epoch_of_three_batches():
    assert plan({"batches": 3}).num_workers == 3


@pytest.mark.parametrize(("batches", "workers"), [(5, 4), (40, 4), (50, 5), (79, 7), (80, 8), (1000, 8)])
def test_a_short_epoch_is_not_worth_many_workers(batches, workers):
    found = plan({"batches": batches})
    assert found.num_workers == workers
    assert found.why[0].startswith(
        f"{workers} workers to start with: {'half' if workers == 8 else f'{batches} batches an epoch'}"
    )


@pytest.mark.parametrize(
    ("request_", "facts", "gpus", "pinned"),
    [({}, {}, 1, True), ({}, {}, 0, False), ({}, {"accelerator": False}, 1, False), ({}, {"accelerator": True}, 0, True),
     ({"pin_memory": False}, {}, 1, False), ({"moved": True}, {}, 1, False),
     ({"moved": True, "pin_memory": True}, {}, 1, True)],
)  # fmt: skip
def test_pinning(request_, facts, gpus, pinned):
    assert plan(request_, facts, gpus=gpus).pin_memory is pinned


def test_workers_persist_for_our_own_datasets_alone():
    assert plan(facts={"own_dataset": True}).persistent_workers
    assert not plan().persistent_workers
    assert plan({"persistent_workers": True}).persistent_workers
    assert not plan({"persistent_workers": False}, {"own_dataset": True}).persistent_workers


def test_network_file_systems():
    text = "/data is NFS, a network file system: "
    said = [line for line in plan(facts={"file_system": NFS}).why if line.startswith(text)]
    assert said == [
        text
        + 'shuffle_mode="block" reads one part after the other, and cache_dir= on a disk of this machine keeps what was read'
    ]
    said = [line for line in plan(facts={"file_system": NFS, "block_order": True}).why if line.startswith(text)]
    assert said == [text + "cache_dir= on a disk of this machine keeps what was read"]
    local = NFS._replace(type="ext4", family="local")
    assert not any(line.startswith("/data") for line in plan(facts={"file_system": local}).why)


def test_a_quota_that_is_used_up_and_busy_neighbours_are_said():
    assert any("more processes do not get more done" in line for line in plan(throttled=200).why)
    assert not any("more processes" in line for line in plan(throttled=50).why)
    assert "others are at work here (load 40.00 on 16 processors)" in plan(runnable=40.0).why


def test_a_plan_prints_itself():
    lines = str(plan({"num_workers": 40}, gpus=1)).splitlines()
    assert lines[0] == "40 workers, prefetch_factor 2, pinned memory, workers are started each epoch"
    assert "  40 workers: num_workers was given" in lines
    assert any(line.startswith("  costs: num_workers=40: on 16 usable processors") for line in lines)
    assert str(plan(facts={"daemonic": True})).startswith("0 workers, no pinned memory\n  no workers: this process")


OPTIONAL_COUNT = st.none() | st.integers(0, 64)
REQUESTS = st.builds(
    WorkerRequest,
    num_workers=OPTIONAL_COUNT,
    prefetch_factor=st.none() | st.integers(0, 8),
    pin_memory=st.none() | st.booleans(),
    persistent_workers=st.none() | st.booleans(),
    multiprocessing_context=st.sampled_from([None, "fork", "spawn", "forkserver"]),
    override=st.frozensets(st.sampled_from(["num_workers", "prefetch_factor", "pin_memory", "persistent_workers"]), max_size=2),
    batches=st.none() | st.integers(0, 10**6),
    pipes=st.booleans(),
)
MACHINES = st.builds(
    machine,
    processors=st.integers(1, 256),
    quota=st.none() | st.floats(0.1, 300),
    ranks=st.integers(1, 16),
    memory=st.integers(0, 1 << 42),
    shared=st.integers(0, 1 << 40),
    soft=st.integers(0, 1 << 20),
    hard=st.integers(1 << 10, 1 << 30),
    used=st.integers(0, 2000),
    gpus=st.integers(0, 8),
    throttled=st.integers(0, 1000),
    runnable=st.floats(0, 500),
)
FACTS = st.builds(
    SizingFacts,
    machine=MACHINES,
    start_method=st.sampled_from(["fork", "spawn", "forkserver"]),
    batch_bytes=st.none() | st.integers(0, 1 << 34),
    batch_tensors=st.integers(0, 64),
    worker_bytes=st.none() | st.integers(0, 1 << 36),
    dataset_bytes=st.integers(0, 1 << 36),
    own_dataset=st.booleans(),
    file_system=st.sampled_from([None, NFS]),
    block_order=st.booleans(),
    sharing=st.sampled_from(["file_descriptor", "file_system"]),
    accelerator=st.none() | st.booleans(),
    daemonic=st.booleans(),
    guarded_main=st.none() | st.booleans(),
    cuda_tensors=st.sampled_from([None, "dataset.x"]),
    unpicklable=st.sampled_from([None, "a lambda"]),
)


@given(REQUESTS, FACTS)
def test_what_was_given_wins(request, facts):
    """But where there are no workers, by our decision, for it to be about: torch refuses it then."""
    found = plan_workers(request, facts)
    asked = replace(request, **dict.fromkeys(request.override))
    about_workers = {"prefetch_factor", "persistent_workers", "multiprocessing_context"}
    for name in ("num_workers", "pin_memory", *about_workers):
        value = getattr(asked, name)
        if value is None:
            continue
        if name in about_workers and found.decided and not found.num_workers:
            assert not getattr(found, name)
        else:
            assert getattr(found, name) == value
    over = any(found.num_workers > each.workers for each in found.ceilings if each.name != "waiting")
    assert found.decided or not found.num_workers or not over or found.costs


@given(REQUESTS, FACTS)
def test_what_is_ours_stays_below_every_ceiling(request, facts):
    found = plan_workers(request, facts)
    if found.decided:
        assert all(found.num_workers <= each.workers for each in found.ceilings)
        assert (found.num_workers == 0) == (found.gate is not None)
    if request.prefetch_factor is None and found.num_workers:
        assert found.prefetch_factor in {1, 2}
    assert (found.sharing == "pipe") <= request.pipes
    limits = facts.machine.descriptors
    assert found.descriptor_limit is None or limits.soft < found.descriptor_limit <= limits.hard


@given(REQUESTS, FACTS)
def test_every_plan_says_why(request, facts):
    found = plan_workers(request, facts)
    assert found.why
    assert all(line.strip() for line in (*found.why, *found.costs))
    assert all(each.why and each.workers >= 0 for each in found.ceilings)
    assert str(found)


@given(REQUESTS, FACTS)
def test_the_same_facts_give_the_same_plan(request, facts):
    assert plan_workers(request, facts) == plan_workers(request, facts)


def test_a_process_bound_to_fewer_processors_than_there_are_is_told_how_to_free_itself():
    (line,) = (line for line in plan(processors=1, allowed=16).why if "1 of 16 processors" in line)
    assert "OMP_PROC_BIND" in line and "os.sched_setaffinity(0, range(16))" in line
    assert not any("of 16 processors" in line for line in plan(processors=12, allowed=16).why)


def test_a_small_dev_shm_is_told_before_the_first_batch():
    text = "64 MiB free in /dev/shm: batches for which that is too little go past it"
    assert any(line.startswith(text) for line in plan({"pipes": True}, shared=64 * MIB).why)
    assert not any("go past it" in line for line in plan({"pipes": True}).why)


def test_with_an_explicit_number_the_plan_says_what_going_past_dev_shm_costs():
    found = plan({"num_workers": 8, "pipes": True}, {"batch_bytes": 40 * MIB}, shared=64 * MIB)
    assert found.sharing == "pipe" and found.num_workers == 8
    assert any("batches go past /dev/shm" in line and "--shm-size" in line for line in found.costs)


def test_few_descriptors_and_batches_of_many_tensors_that_can_go_past_dev_shm():
    found = plan({"num_workers": 8, "pipes": True}, {"batch_bytes": MIB, "batch_tensors": 40}, soft=256, hard=256)
    assert (found.num_workers, found.sharing, found.descriptor_limit) == (8, "pipe", None)
