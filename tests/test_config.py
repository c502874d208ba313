"""fastfeed/config.py: a configuration proves itself; the environment of workers."""

import os
import subprocess
import sys
from dataclasses import FrozenInstanceError, fields

import pytest

from fastfeed.config import DEFAULT_SHARD_BYTES, PackConfig, PackOptions, worker_environment
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
        ({"shard_bytes": 0}, "shard_bytes counts from 1: got 0"),
        ({"shards": -1}, "shards counts from 1: got -1"),
        ({"samples_per_shard": 0}, "samples_per_shard counts from 1: got 0"),
        ({"limit": 0}, "limit counts from 1: got 0"),
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


def test_a_worker_finds_this_very_package(tmp_path):
    code = "import fastfeed, os; print(os.path.dirname(fastfeed.__file__))"
    done = subprocess.run(
        [sys.executable, "-c", code], env=worker_environment(), cwd=tmp_path, capture_output=True, text=True, check=True
    )
    import fastfeed

    assert done.stdout.strip() == os.path.dirname(fastfeed.__file__)


def test_a_worker_keeps_what_the_user_put_on_the_path(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    monkeypatch.setenv("COLOUR", "green")
    environment = worker_environment()
    assert environment["PYTHONPATH"].split(os.pathsep)[1:] == ["/somewhere"]
    assert environment["COLOUR"] == "green"
    monkeypatch.delenv("PYTHONPATH")
    assert os.pathsep not in worker_environment()["PYTHONPATH"]
