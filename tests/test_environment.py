"""fastfeed/environment.py: what launchers say, and where things may be kept."""

import os
import sys
import types

import pytest

from fastfeed.environment import (
    OVERRIDABLE,
    cache_folders,
    is_disabled,
    launch_config,
    launched_processes,
    limit_library_threads,
    local_rank,
    overrides,
    temporary_folders,
    workers_begin,
)
from fastfeed.errors import UsageError


def test_what_can_be_made_again_lies_in_the_users_cache_or_the_temporary_folder(monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", "/scratch")
    monkeypatch.setenv("HOME", "/home/me")
    last = f"/scratch/fastfeed-{os.getuid()}"
    for value, first in (
        ("/cache", "/cache/fastfeed"),
        ("relative", "/home/me/.cache/fastfeed"),
        ("", "/home/me/.cache/fastfeed"),
    ):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert cache_folders() == [first, last]
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folders() == ["/home/me/.cache/fastfeed", last]


# ---------------------------------------------------------------------------------------------------- switches
@pytest.mark.parametrize(
    ("text", "names"),
    [(None, []), ("", []), (" , ", []), ("num_workers", ["num_workers"]), (",".join(sorted(OVERRIDABLE)), OVERRIDABLE),
     (" prefetch_factor , num_workers,", ["num_workers", "prefetch_factor"])],
)  # fmt: skip
def test_options_that_give_way(text, names):
    assert overrides({} if text is None else {"FASTFEED_OVERRIDE": text}) == set(names)


def test_an_option_that_cannot_give_way():
    with pytest.raises(UsageError) as caught:
        overrides({"FASTFEED_OVERRIDE": "num_workers,batch_size, workers"})
    assert str(caught.value) == (
        "the environment variable FASTFEED_OVERRIDE names batch_size, workers, about which a loader decides nothing: expected "
        "some of num_workers,persistent_workers,pin_memory,prefetch_factor, got 'num_workers,batch_size, workers'"
    )


@pytest.mark.parametrize(("text", "is_on"), [(None, False), ("", False), ("0", False), ("1", True), (" 1 ", True)])
def test_the_switch(text, is_on):
    assert is_disabled({} if text is None else {"FASTFEED_DISABLE": text}) is is_on


def test_a_switch_that_says_something_else():
    with pytest.raises(UsageError, match="FASTFEED_DISABLE is a switch: expected 1, 0 or nothing, got 'yes'"):
        is_disabled({"FASTFEED_DISABLE": "yes"})


# ---------------------------------------------------------------------------------------------------- launchers
@pytest.fixture
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment that no launcher has written to."""
    for name in LAUNCHERS:
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


LAUNCHERS = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")


@pytest.mark.parametrize("name", LAUNCHERS)
def test_a_launcher_says_how_many_processes(no_launcher, name):
    assert launched_processes() is None
    no_launcher.setenv(name, "8")
    assert launched_processes() == (name, 8)


@pytest.mark.parametrize("text", ["", "1", "0"])
def test_one_process_is_no_launch(no_launcher, text):
    no_launcher.setenv("WORLD_SIZE", text)
    assert launched_processes() is None
    no_launcher.setenv("SLURM_STEP_NUM_TASKS", "4")
    assert launched_processes() == ("SLURM_STEP_NUM_TASKS", 4)


@pytest.mark.parametrize("text", ["two", "-1", "2.0", "\u0663"])
def test_a_launcher_that_says_no_number(no_launcher, text):
    no_launcher.setenv("WORLD_SIZE", text)
    with pytest.raises(UsageError, match="the environment variable WORLD_SIZE should hold the number of processes: got"):
        launched_processes()


@pytest.mark.parametrize(
    ("environment", "ranks", "why"),
    [
        ({}, None, "nothing in the environment tells of other ranks"),
        ({"LOCAL_WORLD_SIZE": "8"}, 8, "LOCAL_WORLD_SIZE=8, set by torchrun, torchelastic, Accelerate"),
        ({"LOCAL_SIZE": "4"}, 4, "LOCAL_SIZE=4, set by DeepSpeed"),
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, 2, "OMPI_COMM_WORLD_LOCAL_SIZE=2, set by Open MPI"),
        ({"MPI_LOCALNRANKS": "2"}, 2, "MPI_LOCALNRANKS=2, set by MPICH, Intel MPI"),
        ({"SLURM_STEP_TASKS_PER_NODE": "4"}, 4, "SLURM_STEP_TASKS_PER_NODE=4, set by srun"),
        ({"SLURM_STEP_TASKS_PER_NODE": "5,4(x3)", "SLURM_NODEID": "0"}, 5, "SLURM_STEP_TASKS_PER_NODE=5,4(x3), set by srun"),
        ({"SLURM_STEP_TASKS_PER_NODE": "5,4(x3)", "SLURM_NODEID": "3"}, 4, "SLURM_STEP_TASKS_PER_NODE=5,4(x3), set by srun"),
        ({"SLURM_NTASKS_PER_NODE": "8"}, None, "nothing in the environment tells of other ranks"),  # a batch script, no srun
        (
            {"LOCAL_WORLD_SIZE": "8", "SLURM_STEP_TASKS_PER_NODE": "1"},
            8,
            "LOCAL_WORLD_SIZE=8, set by torchrun, torchelastic, Accelerate",
        ),
    ],
)
def test_local_ranks_of_launchers(environment, ranks, why):
    found = launch_config(environment)
    assert (found.local_ranks, found.local_ranks_why, found.ignored) == (ranks, why, ())


@pytest.mark.parametrize(
    ("environment", "ignored"),
    [
        ({"LOCAL_WORLD_SIZE": "many"}, "LOCAL_WORLD_SIZE='many' is not a number from 1 and is ignored"),
        ({"LOCAL_WORLD_SIZE": "0"}, "LOCAL_WORLD_SIZE='0' is not a number from 1 and is ignored"),
        ({"WORLD_SIZE": "-1"}, "WORLD_SIZE='-1' is not a number from 1 and is ignored"),
        ({"SLURM_STEP_TASKS_PER_NODE": "x"}, "SLURM_STEP_TASKS_PER_NODE='x' does not tell of node 0 and is ignored"),
        (
            {"SLURM_STEP_TASKS_PER_NODE": "2", "SLURM_NODEID": "1"},
            "SLURM_STEP_TASKS_PER_NODE='2' does not tell of node 1 and is ignored",
        ),
    ],
)
def test_variables_that_make_no_sense_are_named(environment, ignored):
    found = launch_config(environment)
    assert (found.local_ranks, found.ignored) == (None, (ignored,))


def test_what_slurm_gives_a_task_counts_where_tasks_are_ranks():
    step = {"SLURM_STEP_TASKS_PER_NODE": "4", "SLURM_CPUS_PER_TASK": "8"}
    assert launch_config(step).cpus_per_task == 8
    assert launch_config(step | {"LOCAL_WORLD_SIZE": "4"}).cpus_per_task is None


def test_devices_are_handed_on_as_they_are():
    found = launch_config({"CUDA_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": "all", "WORLD_SIZE": "16"})
    assert (found.cuda_visible, found.nvidia_visible, found.world_ranks) == ("", "all", 16)
    assert launch_config({}).cuda_visible is None


def test_the_environment_of_now_is_read(monkeypatch):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    assert launch_config().local_ranks == 3


def test_threads_of_libraries_are_limited_where_the_user_has_not(monkeypatch):
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OPENCV_FOR_THREADS_NUM", "TOKENIZERS_PARALLELISM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MKL_NUM_THREADS", "7")
    monkeypatch.setattr(os, "environ", {"MKL_NUM_THREADS": "7"})
    assert limit_library_threads(2, exact=False) == {"openmp"}
    assert os.environ == {"MKL_NUM_THREADS": "7", "OPENCV_FOR_THREADS_NUM": "2", "TOKENIZERS_PARALLELISM": "true"}
    assert limit_library_threads(1, exact=True) == {"openmp", "opencv", "tokenizers"}
    monkeypatch.setattr(os, "environ", {})
    assert limit_library_threads(1, exact=True) == set() and "OMP_NUM_THREADS" not in os.environ
    monkeypatch.setattr(os, "environ", {})
    limit_library_threads(1, exact=False)
    assert os.environ["OMP_NUM_THREADS"] == "1" and os.environ["TOKENIZERS_PARALLELISM"] == "false"


def test_tokenizers_variable_is_set_only_while_workers_begin(monkeypatch):
    monkeypatch.setattr(os, "environ", {})
    monkeypatch.setitem(sys.modules, "tokenizers", types.ModuleType("tokenizers"))
    with workers_begin():
        assert os.environ == {"TOKENIZERS_PARALLELISM": "false"}
    assert not os.environ
    monkeypatch.setattr(os, "environ", {"TOKENIZERS_PARALLELISM": "true"})
    with workers_begin():
        assert os.environ == {"TOKENIZERS_PARALLELISM": "true"}
    assert os.environ == {"TOKENIZERS_PARALLELISM": "true"}


def test_folders_for_temporary_files_the_schedulers_first():
    assert temporary_folders({"TMPDIR": "/tmp/mine", "SLURM_TMPDIR": "/scratch/1"}) == [
        ("SLURM_TMPDIR", "/scratch/1"),
        ("TMPDIR", "/tmp/mine"),
    ]
    assert temporary_folders({"TMPDIR": "relative", "SLURM_TMPDIR": ""}) == []


@pytest.mark.parametrize(("text", "rank"), [("0", 0), ("3", 3), ("", None), ("x", None), ("-1", None)])
def test_which_process_of_this_machine_it_is(text, rank):
    assert local_rank({"LOCAL_RANK": text}) == rank and local_rank({}) is None
