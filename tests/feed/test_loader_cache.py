"""A loader with a cache, in processes that are killed, on a small or full /dev/shm, as several ranks: the same batches."""

import os
import signal
import sys
import tempfile
import time
from pathlib import Path

import pytest
from caching import caches_in, folder_of, memory_group, other_process
from helpers import make_captioned, pack_photos, packed
from loading import in_own_space, printed

import fastfeed

BEGIN = """
import json, os, sys
import torch
import fastfeed
from fastfeed import DataLoader

for name in ("TMPDIR", "SLURM_TMPDIR"):
    os.environ.pop(name, None)

def loader_of(path, **options):
    return DataLoader(fastfeed.open(path, transform=numbers), 4, shuffle=True, seed=3, **{"num_workers": 2, **options})

def numbers(image):
    return torch.tensor(list(image.tobytes()))

def batches(loader):
    loader.set_epoch(0)
    return [[image.tolist(), label.tolist()] for image, label in loader]

def fill():
    file = os.open("/dev/shm/other", os.O_CREAT | os.O_WRONLY)
    try:
        while os.write(file, bytes(1 << 20)):
            pass
    except OSError:
        os.close(file)
"""

SMALL = """
path = sys.argv[1]
expected = batches(loader_of(path))
loader = loader_of(path, cache="8GiB")
equal = batches(loader) == expected == batches(loader)
print(json.dumps([equal, str(loader.plan), loader.stats().cache, os.listdir("/dev/shm")]))
"""


@pytest.mark.long
def test_64_mib_of_shared_memory_are_left_to_batches(tmp_path: Path):
    equal, plan, stats, left = in_own_space(BEGIN + SMALL, 64, str(pack_photos(tmp_path, each=8)))
    assert equal and stats is None and left == []
    assert (
        "no cache: 64.0 MiB free of 64.0 MiB in /dev/shm, 256.0 MiB of it for batches and others (docker run --shm-size" in plan
    )


FILLED = """
path = sys.argv[1]
expected = batches(loader_of(path, num_workers=0))
loader = loader_of(path, num_workers=0, cache="8GiB")
where = str(loader.dataset.cache)
fill()
equal = batches(loader) == expected == batches(loader)
full = loader.stats().cache
os.unlink("/dev/shm/other")
import time
time.sleep(1.1)  # FULL_SECONDS
equal = equal and batches(loader) == expected == batches(loader)
later = loader.stats().cache
del loader
print(json.dumps([equal, where, full.hits, full.misses, later.hits - full.hits, os.listdir("/dev/shm")]))
"""


@pytest.mark.long
def test_others_fill_shared_memory_and_make_room_again(tmp_path: Path):
    equal, where, hits, misses, later, left = in_own_space(BEGIN + FILLED, 400, str(pack_photos(tmp_path, each=8)))
    assert equal and left == []
    assert where.startswith("cache in /dev/shm (memory): all ")
    assert (hits, misses) == (0, 64) and 32 <= later <= 64


KILLED = """
import sys, time
import torch
import fastfeed
from fastfeed import DataLoader

dataset = fastfeed.open(sys.argv[1], transform=lambda image: 0)
loader = DataLoader(dataset, 1, num_workers=2, cache="8MiB", cache_dir=sys.argv[2], persistent_workers=True)
batches = iter(loader)
next(batches)
print("ready", flush=True)
time.sleep(600)
"""


def children_of(process: int) -> list[int]:
    """The processes that a process has started and that live."""
    with open(f"/proc/{process}/task/{process}/children", encoding="ascii") as file:
        return [int(word) for word in file.read().split()]


@pytest.mark.long
def test_a_killed_run_with_living_workers_leaves_nothing_that_is_not_swept(tmp_path: Path):
    place = tmp_path / "place"
    place.mkdir()
    path = pack_photos(tmp_path, each=20)
    packed(make_captioned(tmp_path / "captioned"), tmp_path / "others")
    with other_process(KILLED, path, place) as process:
        workers = children_of(process.pid)
        (name,) = caches_in(place)
        for worker in workers:
            os.kill(worker, signal.SIGSTOP)  # they outlive their parent
        process.kill()
        process.wait()
    try:
        assert len(workers) >= 2 and caches_in(place) == [name]
        other = fastfeed.open(tmp_path / "others", cache="8MiB", cache_dir=place)
        assert name not in caches_in(place) and len(caches_in(place)) == 1
    finally:
        for worker in workers:
            os.kill(worker, signal.SIGCONT)
    deadline = time.monotonic() + 60
    while any(os.path.exists(f"/proc/{worker}") for worker in workers):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    del other
    assert not list(place.iterdir())


RANK = """
import hashlib, json, os, sys
import torch
import fastfeed
from fastfeed import DataLoader

path, place, rank, workers = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
options = {"cache": "64MiB", "cache_dir": place} if place else {}
dataset = fastfeed.open(path, transform=lambda image: torch.tensor(list(image.tobytes())))
loader = DataLoader(dataset, 4, shuffle=True, seed=3, distributed=(rank, 2), num_workers=workers, **options)
print("ready", flush=True)
sys.stdin.readline()
digest = hashlib.sha256()
for epoch in range(3):
    for image, label in loader:
        digest.update(image.numpy().tobytes() + label.numpy().tobytes())
print(digest.hexdigest(), flush=True)
sys.stdin.read()
"""


def read_by_ranks(path: Path, place: Path | str, workers: int) -> list[str]:
    with other_process(RANK, path, place, 0, workers) as one, other_process(RANK, path, place, 1, workers) as two:
        for process in (one, two):
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        found = [process.stdout.readline() for process in (one, two) if process.stdout is not None]
        if place:
            (name,) = caches_in(Path(place))
            kept = os.stat(folder_of(Path(place)) / name / "data").st_size
            assert kept == sum(shard.stat().st_size for shard in path.glob("*.tar")), "one copy, not one a rank"
        for process in (one, two):
            process.communicate()
    return found


@pytest.mark.long
def test_ranks_share_one_copy_and_read_the_same(tmp_path: Path):
    place = tmp_path / "place"
    place.mkdir()
    path = pack_photos(tmp_path, each=20, shards=3)
    expected = read_by_ranks(path, "", 0)
    assert expected[0] != expected[1]
    assert read_by_ranks(path, place, 0) == expected == read_by_ranks(path, place, 2)
    assert not list(place.iterdir())


CROWDED = """
import json, os, sys, time
for folder in sys.argv[3:]:
    with open(folder + "/cgroup.procs", "w", encoding="ascii") as file:
        file.write(str(os.getpid()))
import fastfeed
from fastfeed import DataLoader

dataset = fastfeed.open(sys.argv[1], decoders={"bin": "raw"})
loader = DataLoader(dataset, 4, num_workers=0, collate_fn=lambda samples: [len(sample["bin"]) for sample in samples],
                    cache="8GiB", cache_dir=sys.argv[2])
read = [sum(map(sum, loader)) for _ in range(2)]
store = dataset._reader.store
while store.filling.runs:
    time.sleep(0.05)
used = store.shelf.folder.used_bytes()
print(json.dumps([read, str(dataset.cache), store.room.budget_bytes, used, loader.stats().cache.hits]))
"""


@pytest.mark.long
def test_the_memory_of_a_control_group_is_not_used_up(tmp_path: Path):
    (tmp_path / "src").mkdir()
    for number in range(60):
        (tmp_path / "src" / f"{number:02d}.bin").write_bytes(os.urandom(8 << 20))  # 480 MiB
    packed(tmp_path / "src", tmp_path / "packed", shards=2)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place, memory_group(1 << 30) as folders:
        found = printed([sys.executable, "-W", "ignore", "-c", CROWDED, str(tmp_path / "packed"), place, *folders])
    read, plan, budget, used, hits = found
    assert read == [480 << 20] * 2
    assert budget < 480 << 20 and "(cgroup " in plan and "which what lies in" in plan
    assert 16 << 20 < used <= budget and hits > 0
