"""fastfeed/machine.py: processors and space, told from fake cgroup folders."""

import os
from pathlib import Path

import pytest

from fastfeed.machine import free_bytes, processors

AFFINITY = len(os.sched_getaffinity(0))


@pytest.fixture
def cgroup(tmp_path):
    """Makes a cgroup file system: files by path, and the name of the own group; gives what processors() says of it."""

    def say(files: dict[str, str], own: str | None = None):
        for name, text in files.items():
            path = tmp_path / "cgroup" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        membership = tmp_path / "self"
        if own is not None:
            membership.write_text(own)
        return processors(str(tmp_path / "cgroup"), str(membership))

    return say


def test_without_cgroups_the_affinity_mask_counts(cgroup):
    found = cgroup({})
    assert found.count == AFFINITY
    assert found.why == f"{AFFINITY} processor{'s' if AFFINITY > 1 else ''} (affinity mask)"


def test_this_machine_has_at_least_one():
    assert 1 <= processors().count <= AFFINITY


def test_v2_quota_of_the_own_group(cgroup):
    found = cgroup({"job/cpu.max": "50000 100000\n"}, "0::/job\n")
    assert (found.count, found.why) == (1, "1 processor (cgroup quota of 0.5)")


def test_v2_the_tightest_of_own_group_and_parents_counts(cgroup):
    files = {
        "a/b/c/cpu.max": "max 100000",
        "a/b/cpu.max": "70000 100000",
        "a/cpu.max": "60000 100000",
        "cpu.max": "90000 100000",
    }
    assert cgroup(files, "12:cpuset:/x\n0::/a/b/c\n").why == "1 processor (cgroup quota of 0.6)"


def test_v2_quota_of_a_container_that_sees_itself_as_root(cgroup):
    assert cgroup({"cpu.max": "33000 100000"}, "0::/\n").why.endswith("(cgroup quota of 0.33)")


def test_v2_another_groups_quota_is_not_ours(cgroup):
    assert cgroup({"other/cpu.max": "1000 100000"}, "0::/job\n").count == AFFINITY


@pytest.mark.parametrize("text", ["max 100000", "", "garbage", "1000 0", "1000", "-5 100000"])
def test_v2_what_is_no_quota_is_none(cgroup, text):
    assert cgroup({"cpu.max": text}, "0::/\n").why.endswith("(affinity mask)")


def test_v1_quota(cgroup):
    found = cgroup({"cpu/cpu.cfs_quota_us": "25000\n", "cpu/cpu.cfs_period_us": "100000\n"}, "4:cpu,cpuacct:/docker/x\n")
    assert (found.count, found.why) == (1, "1 processor (cgroup quota of 0.25)")


def test_v1_minus_one_is_no_quota(cgroup):
    assert cgroup({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}).why.endswith("(affinity mask)")


def test_a_quota_above_the_affinity_mask_changes_nothing(cgroup):
    assert cgroup({"cpu.max": f"{(AFFINITY + 1) * 100000} 100000"}, "0::/\n").why.endswith("(affinity mask)")


@pytest.mark.skipif(AFFINITY < 2, reason="needs two processors")
def test_a_quota_is_cut_to_whole_processors(cgroup):
    assert cgroup({"cpu.max": "190000 100000"}, "0::/\n").count == 1


def test_free_bytes_of_a_folder_that_is_not_there_yet(tmp_path):
    here = os.statvfs(tmp_path)
    found = free_bytes(str(tmp_path / "a" / "b"))
    assert found == pytest.approx(here.f_bavail * here.f_frsize, rel=0.2)
    assert free_bytes("not-there") == pytest.approx(free_bytes(str(Path.cwd())), rel=0.2)
