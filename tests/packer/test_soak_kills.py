"""The long version of test_writing's kills: 20 in a row, at moments of the clock, over splits, captions and wild names."""

import os
import random
import signal
import time

import pytest
from helpers import files_below, packed
from packing import children_of, is_running, packing_process, tree, wait_for

import fastfeed

KILLS = 20


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5))
def test_killed_20_times_in_a_row_it_ends_with_the_same_bytes(tmp_path, seed):
    chance = random.Random(seed)
    files = {
        f"{split}/{at % 4} class/{at:04d}.{field}": chance.randbytes(chance.randrange(150_000))
        for split, count in (("train", 500), ("val", 100))
        for at in range(count)
        for field in ("jpg", "txt")
    }
    source = tree(tmp_path / "s", files)
    options = {"samples_per_shard": 3, "shuffle": seed}
    began = time.monotonic()
    packed(source, tmp_path / "straight", workers=2, **options)
    whole = time.monotonic() - began
    kills, orphans = 0, []
    for _ in range(KILLS * 50):
        if kills == KILLS:
            break
        with packing_process(source, tmp_path / "out", workers=chance.choice([1, 2, 5]), **options) as process:
            time.sleep(chance.uniform(0.05, 0.1 + whole / KILLS))  # the moment of the kill: this is what is random
            workers = children_of(process.pid)
            victim = process.pid if chance.random() < 0.5 or not workers else chance.choice(workers)
            alive = process.poll() is None and is_running(victim)
            if alive:
                os.kill(victim, signal.SIGKILL)
            process.communicate(timeout=120)
        kills += alive
        orphans = workers
        if not alive:  # it was done: begin anew, so that all 20 hit a run
            assert files_below(tmp_path / "out") == files_below(tmp_path / "straight")
            (tmp_path / "out").rename(tmp_path / f"done-{kills}-{time.monotonic_ns()}")
    assert kills == KILLS
    wait_for(lambda: not any(map(is_running, orphans)), "orphans to die")
    packed(source, tmp_path / "out", workers=2, **options)
    assert files_below(tmp_path / "out") == files_below(tmp_path / "straight")
    assert fastfeed.verify(tmp_path / "out").ok
