"""Where a cache is put, how large it is, and why: one table of facts after the other."""

import os
from pathlib import Path

import pytest
from caching import NAME, folder_of
from machines import GIB

from fastfeed.config import Cache
from fastfeed.machine import Memory
from fastfeed.mounts import FileSystem
from fastfeed.store.cacheplan import CacheFacts, CachePlan, Spot, cache_name, facts_of, plan_cache, spot_of
from fastfeed.store.lease import Lease

MIB = 1 << 20
NFS = FileSystem("nfs4", "network", "/data", "/data is NFS, a network file system")
DISK = FileSystem("ext4", "local", "/", "/ is ext4, a disk of this machine")
MEMORY = FileSystem("tmpfs", "memory", "/dev/shm", "/dev/shm is tmpfs, memory")
LARGE = Memory(256 * GIB, 56 * GIB, "200.0 GiB of memory left of 256.0 GiB (the machine's)")
SHM = Spot(folder="/dev/shm", system=MEMORY, size_bytes=128 * GIB, free_bytes=128 * GIB)
NVME = Spot(folder="/scratch/7", system=DISK, size_bytes=1000 * GIB, free_bytes=800 * GIB)


def planned(budget: int | str = "auto", *, folder: str | None = None, **facts) -> CachePlan:
    known = {"source": NFS, "data_bytes": 40 * GIB, "compressed": False, "memory": LARGE, "spots": [SHM, NVME], **facts}
    return plan_cache(Cache(budget, folder), CacheFacts(**known), NAME)


def with_(spot: Spot, **facts) -> Spot:
    from dataclasses import replace

    return replace(spot, **facts)


def test_data_across_a_network_goes_to_shared_memory():
    plan = planned()
    assert (plan.folder, plan.room.is_memory) == ("/dev/shm", True)
    assert plan.room.budget_bytes >= plan.data_bytes
    assert str(plan).startswith("cache in /dev/shm (memory): all 40.0 GiB of the data")


def test_as_much_as_asked_for_and_the_share_of_reads_is_told():
    plan = planned("10GiB")
    assert plan.room.budget_bytes == 10 * GIB
    assert str(plan) == (
        "cache in /dev/shm (memory): up to 10.0 GiB of 40.0 GiB, so about 25% of the reads from the second epoch on "
        "(10.0 GiB were asked for)"
    )


@pytest.mark.parametrize("source", [DISK, FileSystem("overlay", "overlay", "/", "/ is overlay, the layers of a container")])
def test_on_a_local_disk_with_free_memory_it_is_not_worth_it(source):
    plan = planned(source=source)
    assert plan.folder is None
    assert str(plan).startswith("no cache: / is ") and "page cache keeps all 40.0 GiB of the data already" in str(plan)
    asked = planned("60GiB", source=source)
    assert asked.folder == "/dev/shm" and asked.why[-1].startswith("costs: a cache gains nothing here: / is ")


def test_data_in_memory_is_not_cached():
    assert str(planned(source=MEMORY)) == "no cache: the data is in memory already (/dev/shm is tmpfs, memory)"


def test_compressed_shards_are_kept_decoded_and_data_beyond_memory_in_part():
    assert planned(source=DISK, compressed=True).folder == "/dev/shm"
    plan = planned(source=DISK, data_bytes=400 * GIB)
    assert plan.folder == "/dev/shm" and "so about 24% of the reads" in str(plan)


def test_others_need_of_shared_memory_and_of_memory_comes_first():
    assert planned(data_bytes=400 * GIB).room.budget_bytes == 96 * GIB  # a quarter of it is left
    group = Memory(32 * GIB, 12 * GIB, "20.0 GiB of memory left of 32.0 GiB (cgroup /job)")
    plan = planned(memory=group)
    assert plan.room.budget_bytes == 10 * GIB and plan.room.memory_bytes == 5 * GIB
    assert "half of 20.0 GiB of memory left of 32.0 GiB (cgroup /job), which what lies in /dev/shm is counted as" in str(plan)
    assert planned("100GiB", memory=group).room.budget_bytes == 10 * GIB


def test_shared_memory_of_64_mib_is_too_small_and_the_disk_takes_over():
    small = with_(SHM, size_bytes=64 * MIB, free_bytes=64 * MIB)
    plan = planned(spots=[small, NVME])
    assert plan.folder == "/scratch/7" and not plan.room.is_memory
    assert plan.why[1] == (
        "64.0 MiB free of 64.0 MiB in /dev/shm, 256.0 MiB of it for batches and others (docker run --shm-size makes it "
        "larger): too little room for a cache"
    )
    for budget in ("auto", "8GiB"):
        alone = planned(budget, spots=[small])
        assert alone.folder is None and "--shm-size" in str(alone) and str(alone).startswith("no cache: 64.0 MiB free")
    assert "--shm-size" not in str(planned(spots=[with_(small, folder="/mnt/small")]))


def test_a_tight_control_group_makes_the_disk_take_over():
    tight = Memory(GIB, GIB - 20 * MIB, "20.0 MiB of memory left of 1.0 GiB (cgroup /job)")
    assert planned(memory=tight).folder == "/scratch/7"


def test_disks_that_are_none_do_not_serve():
    for spot, words in (
        (with_(NVME, holds_data=True), "/scratch/7 is on the disk that holds the data"),
        (with_(NVME, system=NFS), "/scratch/7 is no place for a cache: /data is NFS, a network file system"),
        (with_(NVME, problem="/scratch/7 may not be written to"), "/scratch/7 may not be written to"),
        (with_(NVME, free_bytes=9 * GIB), "9.0 GiB free of 1000.0 GiB in /scratch/7, 10.0 GiB of it for others: too"),
    ):
        plan = planned(spots=[spot])
        assert plan.folder is None and words in str(plan)
    assert planned(spots=[]).why == ("no cache: there is no place for it",)


def test_a_place_that_was_named_is_used_if_it_can_be():
    named = planned("8GiB", folder="/scratch/7", spots=[with_(NVME, holds_data=True)])
    assert named.folder == "/scratch/7"
    assert planned("8GiB", folder="/data", spots=[with_(NVME, system=NFS)]).folder is None


def test_of_a_disk_a_tenth_within_bounds_is_left_and_the_least_where_a_size_was_named():
    for size, reserve in ((5 * GIB, GIB), (50 * GIB, 5 * GIB), (252 * GIB, 10 * GIB)):
        assert planned(spots=[with_(NVME, size_bytes=size, free_bytes=reserve + 8 * MIB)]).folder is None
        assert planned(spots=[with_(NVME, size_bytes=size, free_bytes=reserve + 20 * MIB)]).folder == "/scratch/7"
        named = planned("8MiB", spots=[with_(NVME, size_bytes=size, free_bytes=GIB + 20 * MIB)])
        assert (named.room.budget_bytes, named.room.reserve_bytes) == (8 * MIB, GIB)


def test_what_is_there_already_counts_and_is_joined_however_full_it_is():
    full = with_(SHM, free_bytes=GIB, taken_bytes=40 * GIB, own_bytes=40 * GIB, is_there=True)
    assert planned(spots=[full]).folder == "/dev/shm" and planned(spots=[full]).room.budget_bytes == 40 * GIB
    assert planned(spots=[with_(full, is_there=False)]).folder is None


def test_what_other_caches_take_of_a_size_is_told_and_is_not_promised():
    others = with_(SHM, taken_bytes=30 * GIB)
    assert str(planned("50GiB", spots=[others])) == (
        "cache in /dev/shm (memory): up to 20.0 GiB of 40.0 GiB, so about 50% of the reads from the second epoch on "
        "(50.0 GiB were asked for, of which other caches of yours in /dev/shm take 30.0 GiB; "
        "fastfeed info --clear-cache removes those that nobody uses)"
    )
    joined = with_(SHM, taken_bytes=30 * GIB, own_bytes=30 * GIB, is_there=True)
    assert ": all 40.0 GiB of the data (50.0 GiB were asked for)" in str(planned("50GiB", spots=[joined]))
    none = planned("30GiB", spots=[others])
    assert none.folder is None and "no cache: 30.0 GiB were asked for, of which other caches" in str(none)


@pytest.mark.parametrize("budget", [8, "1000kB"])
def test_a_size_without_its_unit_is_no_cache(budget):
    assert str(planned(budget)).endswith(" were asked for: too little for a cache") and planned("1MiB").folder
    assert planned(budget, data_bytes=8).folder


def test_names_tell_data_and_kinds_apart_and_nothing_else():
    names = {
        cache_name(*parts) for parts in (("blocks", 1, "ab"), ("blocks", 1, "ac"), ("blocks", 2, "ab"), ("files", 1, "ab"))
    }
    assert len(names) == 4 and cache_name("blocks", 1, "ab") in names
    assert all(len(name) == 32 and int(name, 16) >= 0 for name in names)


def test_a_refusal_keeps_the_wish():
    plan = planned("8GiB").refused("the disk is full")
    assert (plan.folder, str(plan), plan.asked.budget) == (None, "no cache: the disk is full", 8 * GIB)


def test_a_real_place(tmp_path: Path):
    spot = spot_of(str(tmp_path), NAME, os.stat(tmp_path).st_dev)
    assert (spot.taken_bytes, spot.is_there, spot.holds_data, spot.problem) == (0, False, True, None)
    lease = Lease(str(tmp_path), NAME, 8, about={})
    os.pwrite(lease.data, bytes(5000), 0)
    spot = spot_of(str(tmp_path), NAME, None)
    assert spot.taken_bytes == spot.own_bytes >= 5000 and spot.is_there and not spot.holds_data
    assert spot_of(str(tmp_path), "0" * 32, None).own_bytes == 0
    lease.close()
    folder_of(tmp_path).mkdir(mode=0o755)
    assert "may be entered by others" in (spot_of(str(tmp_path), NAME, None).problem or "")
    assert "cannot be used" in (spot_of(str(tmp_path / "nowhere"), NAME, None).problem or "")


def test_facts_of_this_machine(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("SLURM_TMPDIR", "relative/is/ignored")
    facts = facts_of(str(tmp_path), 5, Cache(), NAME, compressed=False)
    assert [spot.folder for spot in facts.spots] == ["/dev/shm", str(tmp_path)]
    assert facts.memory.limit_bytes > 0 and facts.source.point
    named = facts_of(str(tmp_path / "gone"), 5, Cache("1GiB", tmp_path), NAME, compressed=False)
    assert [spot.folder for spot in named.spots] == [str(tmp_path)] and not named.spots[0].holds_data
