"""What the cache's tests share: a place, caches in it, processes that use one and can be killed."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from fastfeed.store.base import Range
from fastfeed.store.memory import MemoryStore

NAME = "0123456789abcdef" * 2
OTHER = "fedcba9876543210" * 2


def folder_of(place: Path) -> Path:
    """Where this user's caches lie at a place."""
    return place / f"fastfeed-cache-{os.geteuid()}"


def caches_in(place: Path) -> list[str]:
    """The names of the caches at a place."""
    folder = folder_of(place)
    return sorted(entry.name for entry in folder.iterdir()) if folder.exists() else []


class Counted(MemoryStore):
    """Files in memory that remember what was read of them."""

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(files)
        self.asked: list[tuple[str, int, int]] = []
        self._lock = threading.Lock()

    def read_many(self, ranges: Sequence[Range]) -> None:
        """As a store's."""
        with self._lock:
            self.asked += [(wish.name, wish.start, wish.stop) for wish in ranges]
        super().read_many(ranges)


@contextmanager
def other_process(script: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Another Python process that has printed a line, such as "ready"; it is killed at the end if it still runs.

    Args:
        script: What it runs; it finds tests' modules.
        *arguments: For sys.argv.
    """
    path = os.pathsep.join([os.path.dirname(__file__), os.path.dirname(os.path.dirname(__file__))])
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", script, *map(str, arguments)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    with process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline()
            yield process
        finally:
            process.kill()


@contextmanager
def memory_group(limit_bytes: int) -> Iterator[list[str]]:
    """The folders of a control group with so much memory; where none may be made the test is skipped."""
    name, top = f"fastfeed-cache-test-{os.getpid()}", "/sys/fs/cgroup"
    first = os.path.exists(f"{top}/cgroup.controllers")
    folder, file = (f"{top}/{name}", "memory.max") if first else (f"{top}/memory/{name}", "memory.limit_in_bytes")
    try:
        os.mkdir(folder)
    except OSError as error:
        pytest.skip(f"this process may not make a control group: {error}")
    try:
        try:
            with open(f"{folder}/{file}", "w", encoding="ascii") as stream:
                stream.write(str(limit_bytes))
        except OSError as error:
            pytest.skip(f"this process may not limit a control group: {error}")
        yield [folder]
    finally:
        os.rmdir(folder)
