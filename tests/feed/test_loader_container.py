"""A real control group, where this process may make one: what the loader plans in it, and that it reads within it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from machines import GIB

SCRIPT = """
import json
import torch
from loading import Large
from fastfeed.feed.loader import DataLoader

loader = DataLoader(Large(24, 2), 8, seed=1)
before = loader.plan
total = sum(int(batch["number"].sum()) for batch in loader)
print(json.dumps([before.num_workers, before.processors, list(before.why), total, str(loader.plan)]))
"""
TOP = "/sys/fs/cgroup"


@contextmanager
def small_group() -> Iterator[list[str]]:
    """Groups of half a processor and 1 GiB; the folders of their files. Version 1 has one for each controller."""
    name = f"fastfeed-test-{os.getpid()}"
    if os.path.exists(f"{TOP}/cgroup.controllers"):
        limits = {f"{TOP}/{name}": {"cpu.max": "50000 100000", "memory.max": str(GIB)}}
    else:
        limits = {
            f"{TOP}/cpu/{name}": {"cpu.cfs_quota_us": "50000"},
            f"{TOP}/memory/{name}": {"memory.limit_in_bytes": str(GIB)},
        }
    made: list[str] = []
    try:
        for folder, files in limits.items():
            os.mkdir(folder)
            made.append(folder)
            for file, text in files.items():
                with open(f"{folder}/{file}", "w", encoding="ascii") as stream:
                    stream.write(text)
    except OSError as error:
        for folder in made:
            os.rmdir(folder)
        pytest.skip(f"this process may not make a control group: {error}")
    try:
        yield made
    finally:
        for folder in made:
            os.rmdir(folder)


@pytest.mark.long
def test_half_a_processor_and_1_gib():
    enter = "import os, sys\nfor folder in sys.argv[1:]:\n    open(folder + '/cgroup.procs', 'w').write(str(os.getpid()))\n"
    path = os.pathsep.join([os.path.dirname(os.path.dirname(__file__)), *sys.path])
    with small_group() as folders:
        command = [sys.executable, "-W", "ignore", "-c", enter + SCRIPT, *folders]
        out = subprocess.run(
            command, capture_output=True, text=True, timeout=240, env={**os.environ, "PYTHONPATH": path}, check=False
        )
    assert out.returncode == 0, out.stderr
    workers, processors, why, total, after = json.loads(out.stdout.splitlines()[-1])
    assert (workers, processors, total) == (1, 0.5, sum(range(24)))
    assert "cgroup quota of 0.5" in why[0] and "known with the first one" not in after
