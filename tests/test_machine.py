"""fastfeed/machine.py: what a computer grants, told from other machines laid out in a folder, and from this one."""

import os
from pathlib import Path

import machines
import pytest
from machines import GIB, lay_out, topology

from fastfeed.environment import LaunchConfig
from fastfeed.machine import (
    Gpus,
    Processors,
    Ranks,
    descriptors,
    free_bytes,
    gpus,
    load,
    memory,
    processors,
    ranks,
    share,
    shared_memory,
    survey,
)

SIXTEEN = range(16)
NO_GPU = Gpus(0, "none")


def space(blocks: int, available: int):
    """A file system of so many blocks of 4 KiB."""
    return lambda _: os.statvfs_result((4096, 4096, blocks, available, available, 0, 0, 0, 0, 255))


def test_without_cgroups_the_affinity_mask_counts(tmp_path):
    found = processors(lay_out(tmp_path, machines.bare()), SIXTEEN)
    assert (found.count, found.usable, found.quota) == (16, 16.0, None)
    assert found.why == "16 processors (affinity mask)"


def test_a_quota_below_the_mask_counts(tmp_path):
    found = processors(lay_out(tmp_path, machines.systemd_v2()), SIXTEEN)
    assert (found.count, found.usable, found.logical) == (3, 3.5, 16)
    assert found.why == "3 processors (cgroup quota of 3.5)"


def test_a_quota_above_the_mask_changes_nothing(tmp_path):
    found = processors(lay_out(tmp_path, machines.hybrid()), range(4))
    assert (found.count, found.why, found.quota) == (4, "4 processors (affinity mask)", 6.0)


def test_less_than_one_processor_is_one(tmp_path):
    files = machines.docker_v2() | {"sys/fs/cgroup/cpu.max": "50000 100000\n"}
    found = processors(lay_out(tmp_path, files), SIXTEEN)
    assert (found.count, found.usable, found.why) == (1, 0.5, "1 processor (cgroup quota of 0.5)")


@pytest.mark.parametrize(
    ("mask", "cores", "why"),
    [
        (range(16), 8, "8 cores (16 processors are hyper-threads of them)"),
        (range(8), 8, "8 cores (one thread each)"),
        ([0, 8, 1, 9], 2, "2 cores (4 processors are hyper-threads of them)"),
    ],
)
def test_hyper_threads_share_a_core(tmp_path, mask, cores, why):
    found = processors(lay_out(tmp_path, machines.bare() | topology(16, threads=2)), mask)
    assert (found.cores, found.cores_why) == (cores, why)


def test_old_kernels_show_thread_siblings_only(tmp_path):
    files = {name: text for name, text in topology(8, threads=2).items() if name.endswith("thread_siblings_list")}
    assert processors(lay_out(tmp_path, files), range(8)).cores == 4


def test_without_topology_each_processor_is_a_core(tmp_path):
    found = processors(lay_out(tmp_path, machines.bare()), range(2))
    assert (found.cores, found.cores_why) == (2, "2 cores (the kernel shows no topology: each processor counts as a core)")


@pytest.mark.parametrize(
    ("machine", "left", "why"),
    [
        (machines.bare, 98304000 << 10, "93.8 GiB of memory left of 125.0 GiB (the machine's)"),
        (machines.docker_v2, 4 * GIB - 3 * GIB // 2, "2.5 GiB of memory left of 4.0 GiB (cgroup /)"),
        (machines.kubernetes_v1, GIB, "1.0 GiB of memory left of 2.0 GiB (cgroup /)"),
        (machines.slurm_v2, GIB, None),
    ],
)
def test_memory(tmp_path, machine, left, why):
    found = memory(lay_out(tmp_path, machine()))
    assert found.free_bytes == left
    assert why is None or found.why == why


def test_a_limit_above_what_the_machine_has_left_changes_nothing(tmp_path):
    files = machines.docker_v2() | {"sys/fs/cgroup/memory.max": f"{900 * GIB}\n"}
    assert memory(lay_out(tmp_path, files)).why.endswith("(the machine's)")


def test_memory_that_nothing_tells(tmp_path):
    found = memory(str(tmp_path))
    assert found.limit_bytes == 0
    assert found.why.startswith("nothing tells how much memory is left")


def test_shared_memory_of_docker(tmp_path):
    root = lay_out(tmp_path, machines.docker_v2() | {"dev/shm/sem": ""})
    found = shared_memory(root, space(16384, 16000))
    assert (found.mounted, found.size_bytes, found.free_bytes) == (True, 64 << 20, 16000 * 4096)
    assert found.why == "62.5 MiB free of 64.0 MiB in /dev/shm"


def test_shared_memory_that_is_no_mount(tmp_path):
    root = lay_out(tmp_path, {"proc/self/mountinfo": machines.DOCKER_ROOT, "dev/shm/x": ""})
    found = shared_memory(root, space(1 << 20, 1 << 19))
    assert not found.mounted
    assert found.why == "2.0 GiB free of 4.0 GiB in /dev/shm, a plain folder on overlay"


def test_shared_memory_behind_a_link(tmp_path):
    mount = "25 27 0:23 / /run/shm rw,nosuid,nodev - tmpfs tmpfs rw\n"
    root = lay_out(tmp_path, {"proc/self/mountinfo": machines.ROOT + mount, "run/shm/x": "", "dev/null": ""})
    (tmp_path / "dev/shm").symlink_to("../run/shm")
    assert shared_memory(root, space(10, 5)).mounted


def test_no_shared_memory(tmp_path):
    found = shared_memory(lay_out(tmp_path, machines.bare()))
    assert (found.mounted, found.size_bytes, found.free_bytes) == (False, 0, 0)
    assert found.why == "no usable /dev/shm: No such file or directory"


def test_descriptors(tmp_path):
    limits = (
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max processes             unlimited            unlimited            processes \n"
        "Max open files            256                  4096                 files     \n"
    )
    root = lay_out(tmp_path, {"proc/self/limits": limits, **{f"proc/self/fd/{number}": "" for number in range(7)}})
    found = descriptors(root)
    assert (found.soft, found.hard, found.used) == (256, 4096, 7)
    assert found.why == "7 of 256 descriptors in use (ulimit -n; it may be raised to 4,096)"


def test_descriptors_that_are_not_told(tmp_path):
    assert descriptors(str(tmp_path)).soft > 1 << 60


GPU_NODES = {"dev/nvidia0": "", "dev/nvidia1": "", "dev/nvidiactl": "", "dev/nvidia-uvm": "", "dev/nvidia-caps/nvidia-cap1": ""}


@pytest.mark.parametrize(
    ("files", "launch", "count", "why"),
    [
        ({}, {}, 0, "no GPU (there is no /dev/nvidia0)"),
        ({}, {"nvidia_visible": "void"}, 0, "no GPU (there is no /dev/nvidia0, NVIDIA_VISIBLE_DEVICES=void)"),
        (GPU_NODES, {}, 2, "2 GPUs (/dev/nvidia*)"),
        (GPU_NODES, {"cuda_visible": "1"}, 1, "1 GPU (CUDA_VISIBLE_DEVICES=1)"),
        (GPU_NODES, {"cuda_visible": ""}, 0, "0 GPUs (CUDA_VISIBLE_DEVICES=)"),
        (GPU_NODES, {"cuda_visible": "0,-1,1"}, 1, "1 GPU (CUDA_VISIBLE_DEVICES=0,-1,1)"),
        (GPU_NODES, {"cuda_visible": "0,1,2,3"}, 2, "2 GPUs (CUDA_VISIBLE_DEVICES=0,1,2,3)"),
        (GPU_NODES, {"cuda_visible": "MIG-1,MIG-2,MIG-3"}, 3, "3 GPUs (CUDA_VISIBLE_DEVICES=MIG-1,MIG-2,MIG-3)"),
        (
            {"proc/driver/nvidia/gpus/0000:01:00.0/information": ""},
            {},
            0,
            "no GPU: the driver has 1 GPU, and none is passed to this container (/dev/nvidia0)",
        ),
        ({"usr/lib/wsl/lib/libcuda.so.1": ""}, {}, 1, "1 GPU (libcuda of WSL)"),
    ],
)
def test_gpus(tmp_path, files, launch, count, why):
    assert gpus(LaunchConfig(**launch), lay_out(tmp_path, files)) == Gpus(count, why)


def process(parent_mask: str) -> dict[str, str]:
    """A process with a parent that may use other processors."""
    return {
        "proc/self/status": "Name:\tpython\nPid:\t20\nPPid:\t7\nCpus_allowed_list:\t0-3\n",
        "proc/7/status": f"Name:\tlauncher\nPPid:\t1\nCpus_allowed:\tffff\nCpus_allowed_list:\t{parent_mask}\n",
    }


@pytest.mark.parametrize(
    ("launch", "parent", "count", "own"),
    [
        ({}, "0-3", 1, False),
        ({"local_ranks": 4}, "0-3", 4, False),  # taskset before torchrun: inherited, so shared
        ({"local_ranks": 4}, "0-15", 4, True),  # mpirun --bind-to, srun with task/affinity
        ({"local_ranks": 4, "cpus_per_task": 4}, "0-3", 4, True),
        ({"local_ranks": 4, "cpus_per_task": 2}, "0-3", 4, False),
        ({"local_ranks": 4}, "", 4, False),  # /proc hides other processes
        ({"local_ranks": 1, "cpus_per_task": 4}, "0-15", 1, False),
    ],
)
def test_ranks_and_whose_the_mask_is(tmp_path, launch, parent, count, own):
    found = ranks(LaunchConfig(**launch), NO_GPU, lay_out(tmp_path, process(parent)), range(4))
    assert (found.count, found.own_mask) == (count, own)


@pytest.mark.parametrize(
    ("visible", "count", "how"),
    [(4, 4, "as many as GPUs, 4"), (0, 16, "all of them are taken to be"), (32, 16, "all of them are taken to be")],
)
def test_ranks_where_only_the_world_is_told(tmp_path, visible, count, how):
    found = ranks(LaunchConfig(world_ranks=16), Gpus(visible, "x"), str(tmp_path), SIXTEEN)
    text = f"WORLD_SIZE=16 and nothing tells how many of them are on this machine: {how}"
    assert (found.count, found.why) == (count, f"{count} ranks on this machine ({text})")


def test_what_was_ignored_is_said(tmp_path):
    found = ranks(LaunchConfig(ignored=("LOCAL_SIZE='x' is not a number",)), NO_GPU, str(tmp_path), SIXTEEN)
    assert "LOCAL_SIZE='x' is not a number" in found.why


def granted(*, usable=16.0, logical=16, cores=8, quota=None):
    return Processors(int(usable), "16 processors (affinity mask)", usable, logical, cores, "8 cores", quota)


@pytest.mark.parametrize(
    ("processors_", "ranks_", "part", "cores"),
    [
        (granted(), Ranks(1, False, "r"), 16.0, 8.0),
        (granted(), Ranks(4, False, "r"), 4.0, 2.0),
        (granted(), Ranks(4, True, "r"), 16.0, 8.0),
        (granted(usable=6.0, quota=6.0), Ranks(4, False, "r"), 1.5, 1.5),
        (granted(usable=6.0, quota=6.0), Ranks(4, True, "r"), 1.5, 1.5),
        (granted(quota=32.0), Ranks(4, False, "r"), 4.0, 2.0),
        (granted(usable=0.5, quota=0.5), Ranks(1, False, "r"), 0.5, 0.5),
    ],
)
def test_share(processors_, ranks_, part, cores):
    found = share(processors_, ranks_)
    assert (found.processors, found.cores) == (part, cores)
    assert "8 cores" in found.why


def test_load(tmp_path):
    files = machines.systemd_v2() | {"proc/loadavg": "12.50 9.00 4.00 3/900 1234\n"}
    found = load(lay_out(tmp_path, files))
    assert (found.runnable, found.periods, found.throttled) == (12.5, 1000, 250)
    assert found.why == "load 12.50, stopped by its quota in 25% of the time so far (250 of 1,000 periods, 12.5 s in all)"
    assert load(lay_out(tmp_path / "other", machines.bare())).why == "load 0.00"


def test_survey_of_a_container(tmp_path):
    files = machines.docker_v2() | {"dev/shm/x": "", "proc/loadavg": "1.00 1 1 1/1 1\n"}
    found = survey(lay_out(tmp_path, files), LaunchConfig(local_ranks=2, local_ranks_why="LOCAL_WORLD_SIZE=2"))
    assert found.share.processors == min(1.5, len(os.sched_getaffinity(0))) / 2
    assert found.memory.limit_bytes == 4 * GIB
    assert found.ranks.count == 2


def test_survey_of_this_machine():
    found = survey()
    mask = len(os.sched_getaffinity(0))
    assert 1 <= found.processors.count <= mask
    assert 1 <= found.processors.cores <= mask
    assert 0 < found.share.processors <= mask
    assert 0 < found.memory.free_bytes <= found.memory.limit_bytes
    assert found.shared_memory.free_bytes <= found.shared_memory.size_bytes
    assert 3 <= found.descriptors.used < found.descriptors.soft <= found.descriptors.hard
    assert found.load.runnable >= 0
    reasons = (found.processors, found.ranks, found.memory, found.shared_memory, found.descriptors, found.gpus, found.load)
    assert all(record.why for record in reasons)


def test_free_bytes_of_a_folder_that_is_not_there_yet(tmp_path):
    here = os.statvfs(tmp_path)
    found = free_bytes(str(tmp_path / "a" / "b"))
    assert found == pytest.approx(here.f_bavail * here.f_frsize, rel=0.2)
    assert free_bytes("not-there") == pytest.approx(free_bytes(str(Path.cwd())), rel=0.2)


def test_how_many_processors_a_mask_might_be_widened_to(tmp_path):
    online = {"sys/devices/system/cpu/online": "0-15\n"}
    assert processors(lay_out(tmp_path / "one", machines.bare() | online), [3]).allowed == 16
    files = machines.docker_v2() | online | {"sys/fs/cgroup/cpuset.cpus.effective": "0-3\n"}
    assert processors(lay_out(tmp_path / "two", files), [3]).allowed == 4
    assert processors(lay_out(tmp_path / "three", machines.bare()), [3]).allowed == 0
