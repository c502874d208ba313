"""fastfeed/config.py: a configuration proves itself; the environment of workers."""

import os
from dataclasses import FrozenInstanceError, fields

import pytest

from fastfeed.config import (
    DEFAULT_SHARD_BYTES,
    PackConfig,
    PackOptions,
    cache_folders,
    launch_config,
    launched_processes,
    pack_config,
    package_folder,
)
from fastfeed.errors import UsageError


def test_the_defaults_are_legal():
    config = PackConfig()
    assert (config.shard_bytes, config.layout, config.write_cls) == (DEFAULT_SHARD_BYTES, "auto", True)


def test_options_are_the_fields():
    assert set(PackOptions.__annotations__) == {field.name for field in fields(PackConfig)}


def test_it_is_frozen():
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'shards'"):
        PackConfig().shards = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"layout": "tree"}, "layout is one of auto, splits, classes, files: got 'tree'"),
        ({"group": "all"}, "group is one of auto, stem, none: got 'all'"),
        ({"class_map": "both"}, "class_map is one of equal, union: got 'both'"),
        ({"on_error": "ignore"}, "on_error is one of stop, skip: got 'ignore'"),
        ({"shard_bytes": 0}, "shard_bytes is a whole number from 1: got 0"),
        ({"shards": -1}, "shards is a whole number from 1: got -1"),
        ({"samples_per_shard": 0}, "samples_per_shard is a whole number from 1: got 0"),
        ({"limit": 0}, "limit is a whole number from 1: got 0"),
        ({"limit": 2.0}, "limit is a whole number from 1: got 2.0"),
        ({"shard_bytes": "1MiB"}, "shard_bytes is a whole number from 1: got 1MiB"),
        ({"shards": 2, "samples_per_shard": 2}, "shards and samples_per_shard exclude each other"),
        ({"name": "a.b"}, "a shard name is 1 to 60 letters, digits, - and _: got 'a.b'"),
        ({"name": ""}, "a shard name is 1 to 60"),
        ({"name": "x" * 61}, "a shard name is 1 to 60"),
        ({"name": "ünder"}, "a shard name is 1 to 60"),
        ({"name": "a\n"}, "a shard name is 1 to 60"),
    ],
)
def test_what_is_wrong_is_refused_by_name(options, text):
    with pytest.raises(UsageError, match=text):
        PackConfig(**options)


def test_a_configuration_from_options():
    assert pack_config({}) == PackConfig()
    assert pack_config({"shards": 3, "write_cls": False}) == PackConfig(shards=3, write_cls=False)


@pytest.mark.parametrize(("given", "size"), [("1MiB", 1 << 20), ("1.5GB", 1_500_000_000), ("4096", 4096), (7, 7)])
def test_a_size_may_be_a_text(given, size):
    options = {"shard_bytes": given}
    assert pack_config(options).shard_bytes == size
    assert options == {"shard_bytes": given}, "the caller's mapping is the caller's"


NAMES = ", ".join(field.name for field in fields(PackConfig))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"shard_size": 5}, f"pack has no option shard_size: expected among {NAMES}, got shard_size"),
        ({"b": 1, "shards": 1, "a": 2}, f"pack has no option a, b: expected among {NAMES}, got a, b"),
        ({"shard_bytes": "0"}, "shard_bytes is a whole number from 1: got 0"),
        ({"shards": "3"}, "shards is a whole number from 1: got 3"),
    ],
)
def test_options_that_are_wrong_are_refused(options, text):
    with pytest.raises(UsageError) as caught:
        pack_config(options)
    assert str(caught.value) == text


@pytest.mark.parametrize("text", ["big", "", "-1MiB", "5 parsecs"])
def test_a_size_that_is_none_is_refused_by_name(text):
    with pytest.raises(UsageError, match=r"^shard_bytes: .*size"):
        pack_config({"shard_bytes": text})


def test_the_folder_that_this_very_package_is_in():
    import fastfeed

    assert os.path.dirname(os.path.dirname(fastfeed.__file__)) == package_folder()


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
