"""fastfeed/cgroups.py: quotas, memory and throttling, from trees as Docker, Kubernetes, Slurm and systemd lay them out."""

import machines
import pytest
from machines import GIB, lay_out

from fastfeed.cgroups import cpu_quota, cpu_set, groups, memory_limit, throttling

QUOTAS = [
    (machines.bare, None),
    (machines.systemd_v2, 3.5),
    (machines.docker_v2, 1.5),
    (machines.docker_v1, 2.5),
    (machines.kubernetes_v1, None),
    (machines.slurm_v1, None),
    (machines.slurm_v2, None),
    (machines.hybrid, 6.0),
]
MEMORY = [
    (machines.bare, None),
    (
        machines.systemd_v2,
        (24 * GIB, 8 * GIB, "/user.slice/user-1000.slice"),
    ),  # memory.high of a parent; file cache not counted
    (machines.docker_v2, (4 * GIB, 3 * GIB // 2, "/")),
    (machines.docker_v1, (8 * GIB, 3 * GIB, "/")),
    (machines.kubernetes_v1, (2 * GIB, GIB, "/")),
    (machines.slurm_v1, (40 * GIB, 10 * GIB, "/slurm/uid_2687/job_13759490")),
    (machines.slurm_v2, (4 * GIB, 3 * GIB, "/system.slice/node17_slurmstepd.scope/job_4749/step_0/user")),
    (machines.hybrid, (16 * GIB, GIB, "/batch")),
]


def name_of(case):
    return getattr(case, "__name__", None)


@pytest.mark.parametrize(("machine", "expected"), QUOTAS, ids=name_of)
def test_cpu_quota(tmp_path, machine, expected):
    found = cpu_quota(lay_out(tmp_path, machine()))
    assert (found.processors if found else None) == expected


@pytest.mark.parametrize(("machine", "expected"), MEMORY, ids=name_of)
def test_memory_limit(tmp_path, machine, expected):
    found = memory_limit(lay_out(tmp_path, machine()))
    assert ((found.limit_bytes, found.used_bytes, found.group) if found else None) == expected


def test_what_is_left_is_never_negative(tmp_path):
    files = machines.docker_v2() | {"sys/fs/cgroup/memory.current": f"{9 * GIB}\n"}
    found = memory_limit(lay_out(tmp_path, files))
    assert found is not None and found.free_bytes == 0


def test_the_tightest_quota_of_the_path_counts(tmp_path):
    files = {
        "proc/self/mountinfo": machines.ROOT + machines.V2,
        "proc/self/cgroup": "12:cpuset:/x\n0::/a/b/c\n",
        "sys/fs/cgroup/a/b/c/cpu.max": "max 100000",
        "sys/fs/cgroup/a/b/cpu.max": "70000 100000",
        "sys/fs/cgroup/a/cpu.max": "60000 100000",
        "sys/fs/cgroup/cpu.max": "90000 100000",
        "sys/fs/cgroup/other/cpu.max": "1000 100000",
    }
    found = cpu_quota(lay_out(tmp_path, files))
    assert found is not None and (found.processors, found.group) == (0.6, "/a")


@pytest.mark.parametrize("text", ["max 100000", "", "garbage", "1000 0", "1000", "-5 100000", "a b"])
def test_what_is_no_quota_is_none(tmp_path, text):
    files = {"proc/self/mountinfo": machines.V2, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": text}
    assert cpu_quota(lay_out(tmp_path, files)) is None


def test_a_deep_group_whose_folder_is_not_shown_still_has_parents(tmp_path):
    files = machines.slurm_v2()
    files = {name: text for name, text in files.items() if "task_0" not in name}  # hidden by a namespace
    found = memory_limit(lay_out(tmp_path, files))
    assert found is not None and found.limit_bytes == 4 * GIB


def test_a_group_outside_of_what_is_mounted_is_stood_for_by_the_mounted_one(tmp_path):
    files = machines.docker_v2() | {"proc/self/cgroup": "0::/../../sibling\n"}
    found = cpu_quota(lay_out(tmp_path, files))
    assert found is not None and found.processors == 1.5


def test_a_mount_that_shows_more_of_the_path_is_preferred(tmp_path):
    inner = "50 23 0:26 /job/step /inner rw - cgroup2 cgroup2 rw\n"
    files = {
        "proc/self/mountinfo": machines.V2 + inner,
        "proc/self/cgroup": "0::/job/step\n",
        "inner/cpu.max": "max 100000\n",
        "sys/fs/cgroup/job/cpu.max": "200000 100000\n",
    }
    root = lay_out(tmp_path, files)
    assert [group.name for group in groups("cpu", root)] == ["/job/step", "/job", "/"]
    found = cpu_quota(root)
    assert found is not None and found.processors == 2.0


def test_throttling_of_version_2_and_1(tmp_path):
    found = throttling(lay_out(tmp_path / "v2", machines.systemd_v2()))
    assert found is not None
    assert (found.periods, found.throttled, found.throttled_seconds) == (1000, 250, 12.5)
    found = throttling(lay_out(tmp_path / "v1", machines.docker_v1()))
    assert found is not None
    assert (found.periods, found.throttled, found.throttled_seconds) == (400, 40, 8.0)
    assert throttling(lay_out(tmp_path / "no", machines.bare())) is None


def test_on_this_machine_it_reads_without_complaint():
    quota, memory = cpu_quota(), memory_limit()
    assert quota is None or quota.processors > 0
    assert memory is None or memory.limit_bytes > 0
    assert all(group.folder.startswith("/") for group in groups("memory"))


def test_cpu_set(tmp_path):
    assert cpu_set(lay_out(tmp_path / "one", machines.docker_v2() | {"sys/fs/cgroup/cpuset.cpus.effective": "0-3\n"})) == "0-3"
    job = "sys/fs/cgroup/cpuset/slurm/uid_2687/job_13759490"
    files = machines.slurm_v1() | {f"{job}/cpuset.effective_cpus": "2,4\n", f"{job}/step_0/cpuset.effective_cpus": "\n"}
    assert cpu_set(lay_out(tmp_path / "two", files)) == "2,4"
    assert cpu_set(lay_out(tmp_path / "three", machines.bare())) is None
