"""A storm of kills over one cache: whatever is killed whenever, every byte that is read is right, and nothing is left."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from caching import NAME, caches_in, folder_of

from fastfeed.store.lease import Lease

READS = """
import random, sys
from caching import NAME, Counted
from fastfeed.store.cached import CachedStore, block_count
from fastfeed.store.filling import Filling
from fastfeed.store.lease import Lease
from fastfeed.store.shelf import Room, Shelf

files = {"a": random.Random(1).randbytes(9 << 20), "b": random.Random(2).randbytes((5 << 20) + 7)}
sizes = {name: len(data) for name, data in files.items()}
dice = random.Random(int(sys.argv[2]))
while True:
    shelf = Shelf(Lease(sys.argv[1], NAME, block_count(sizes), about={}))
    store = CachedStore(Counted(files), shelf, sizes, Room(int(sys.argv[3])))
    store.filling = Filling(store)
    for _ in range(dice.randrange(1, 60)):
        name = dice.choice("ab")
        start, length = dice.randrange(sizes[name]), dice.randrange(1 << 20)
        data = store.read(name, start, min(sizes[name], start + length))
        assert data == files[name][start : start + length], (name, start, length)
    assert store.shelf is shelf, "it gave up"
    store.filling.stop()
    shelf.close()
    if len(sys.argv) > 4:
        break
"""


def begun(place: Path, seed: int, budget: int, *once: str) -> "subprocess.Popen[str]":
    path = os.pathsep.join([str(Path(__file__).parent.parent), str(Path(__file__).parent.parent.parent)])
    command = [sys.executable, "-W", "ignore", "-c", READS, str(place), str(seed), str(budget), *once]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path})


def used_bytes(place: Path) -> int:
    """Memory of the cache; none where its last user has just removed it."""
    try:
        return os.stat(folder_of(place) / NAME / "data").st_blocks * 512
    except FileNotFoundError:
        return 0


def storm(place: Path, seconds: float, budget: int) -> None:
    dice, seed = random.Random(5), 0
    running = [begun(place, number, budget) for number in range(3)]
    ends = time.monotonic() + seconds
    try:
        while time.monotonic() < ends:
            time.sleep(dice.uniform(0.1, 0.5))
            victim = dice.randrange(len(running))
            running[victim].send_signal(signal.SIGKILL)
            _, said = running[victim].communicate()
            assert running[victim].returncode == -signal.SIGKILL and not said, said
            seed += 1
            running[victim] = begun(place, 100 + seed, budget)
            assert used_bytes(place) <= budget
    finally:
        for process in running:
            process.kill()
            process.wait()
            assert process.stderr is not None
            process.stderr.close()
    last = begun(place, 1, budget, "once")
    _, said = last.communicate(timeout=60)
    assert (last.returncode, said) == (0, "")
    assert not caches_in(place)
    Lease(str(place), NAME, 1, about={}).close()
    assert not list(place.iterdir())


@pytest.mark.long
@pytest.mark.parametrize("budget", [4 << 20, 64 << 20])
def test_a_short_storm(tmp_path: Path, budget):
    storm(tmp_path, 5.0, budget)


@pytest.mark.soak
@pytest.mark.parametrize("budget", [4 << 20, 64 << 20])
def test_a_long_storm(tmp_path: Path, budget):
    storm(tmp_path, 120.0, budget)
