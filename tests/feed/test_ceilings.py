"""fastfeed/feed/ceilings.py: how many workers a machine bears, one ceiling at a time."""

from dataclasses import replace

import pytest
from machines import GIB, machine

from fastfeed.feed.ceilings import Ceiling, Setting, SizingFacts, ceilings, shared_memory_needed, worker_bytes

MIB = 1 << 20
USUAL = Setting(prefetch_factor=2, sharing="file_descriptor", soft_descriptors=1024, pin_memory=False)


def ceiling(name: str, facts: SizingFacts, setting: Setting = USUAL, batches: int | None = None) -> Ceiling | None:
    """One ceiling; None where it is not known."""
    return next((each for each in ceilings(facts, setting, batches) if each.name == name), None)


def workers(name: str, facts: SizingFacts, setting: Setting = USUAL) -> int:
    found = ceiling(name, facts, setting)
    assert found is not None and found.why
    return found.workers


@pytest.mark.parametrize(
    ("given", "computing", "waiting"),
    [
        ({"processors": 16}, 15, 64),
        ({"processors": 8}, 7, 64),
        ({"processors": 7}, 7, 56),
        ({"processors": 2}, 2, 16),
        ({"processors": 1}, 1, 16),
        ({"processors": 64, "quota": 3.9}, 3, 24),
        ({"processors": 16, "quota": 0.5}, 1, 16),
        ({"processors": 128, "ranks": 8}, 15, 64),
        ({"processors": 4, "ranks": 8}, 1, 16),
    ],
)
def test_processors_of_a_rank(given, computing, waiting):
    facts = SizingFacts(machine=machine(**given))
    assert workers("processors", facts) == computing
    assert workers("waiting", facts) == waiting


def test_memory_is_what_workers_and_their_batches_take():
    # a fifth stays with training: 8 GiB; a worker 64 MiB, and two batches ahead and one being made
    facts = SizingFacts(machine=machine(memory=10 * GIB), batch_bytes=64 * MIB)
    assert workers("memory", facts) == 8 * GIB // (64 * MIB + 3 * 64 * MIB)
    assert workers("memory", facts, replace(USUAL, prefetch_factor=1)) == 8 * GIB // (64 * MIB + 2 * 64 * MIB)
    assert workers("memory", facts, replace(USUAL, pin_memory=True)) == 8 * GIB // (64 * MIB + 5 * 64 * MIB)
    assert workers("memory", replace(facts, machine=machine(memory=10 * GIB, ranks=4))) == 2 * GIB // (4 * 64 * MIB)


def test_memory_of_a_worker_is_measured_or_assumed():
    facts = SizingFacts(machine=machine())
    assert worker_bytes(facts) == (64 * MIB, "64.0 MiB (assumed for fork)")
    spawned = replace(facts, start_method="spawn", dataset_bytes=GIB)
    assert worker_bytes(spawned) == (GIB + 320 * MIB, "1.3 GiB (assumed for spawn)")
    assert worker_bytes(replace(spawned, worker_bytes=7 * MIB)) == (7 * MIB, "7.0 MiB (measured)")


def test_memory_that_nothing_tells_is_no_ceiling():
    silent = machine(memory=0)
    silent = replace(silent, memory=replace(silent.memory, limit_bytes=0, used_bytes=0))
    assert ceiling("memory", SizingFacts(machine=silent)) is None


def test_unknown_batches_are_said_to_be_unknown():
    facts = SizingFacts(machine=machine())
    memory = ceiling("memory", facts)
    assert memory is not None and "not known yet" in memory.why
    assert ceiling("shared memory", facts) is None


def test_shared_memory_of_docker():
    facts = SizingFacts(machine=machine(shared=64 * MIB), batch_bytes=4 * MIB, batch_tensors=0)
    # nine tenths, less two batches in the consumer's hands
    assert workers("shared memory", facts) == (64 * MIB * 9 // 10 - 8 * MIB) // (8 * MIB)
    assert workers("shared memory", facts, replace(USUAL, prefetch_factor=1)) == (64 * MIB * 9 // 10 - 8 * MIB) // (4 * MIB)
    assert workers("shared memory", replace(facts, machine=machine(shared=64 * MIB, ranks=8))) == 0
    assert ceiling("shared memory", facts, replace(USUAL, sharing="pipe")) is None


def test_what_so_many_workers_need_fits_where_the_ceiling_says_so():
    facts = SizingFacts(machine=machine(shared=640 * MIB), batch_bytes=5_000_000, batch_tensors=3)
    most = workers("shared memory", facts)
    assert shared_memory_needed(facts, USUAL, most) <= 640 * MIB * 9 // 10 < shared_memory_needed(facts, USUAL, most + 1)


def test_no_shared_memory_no_workers():
    found = ceiling("shared memory", SizingFacts(machine=machine(shared=0)))
    assert found is not None and found.workers == 0
    assert found.why.endswith("workers cannot hand over tensors")


def test_descriptors():
    facts = SizingFacts(machine=machine(used=20), batch_tensors=4)
    few = replace(USUAL, soft_descriptors=256)
    # 256 less 20 in use, 32 spare and 2 batches of 4 tensors held; a worker: 7, and 2 batches of 4 tensors
    assert workers("descriptors", facts, few) == (256 - 20 - 32 - 8) // (7 + 8)
    assert workers("descriptors", facts, replace(few, sharing="file_system")) == (256 - 20 - 32) // 7
    assert workers("descriptors", facts, replace(few, soft_descriptors=40)) == 0


def test_batches_of_an_epoch():
    found = ceiling("batches", SizingFacts(machine=machine()), batches=3)
    assert found is not None
    assert (found.workers, found.why) == (3, "3 batches an epoch: a worker without one is started for nothing")
    assert ceiling("batches", SizingFacts(machine=machine())) is None


def test_a_full_dev_shm_allows_no_workers_however_batches_go():
    facts = SizingFacts(machine=machine(shared=4096))
    assert workers("shared memory", facts, replace(USUAL, sharing="pipe")) == 0
