import os
import random
import signal
from pathlib import Path

import pytest
from helpers import encoded, files_below, make_photos, packed, photo
from packing import (
    Hook,
    children_of,
    contents,
    is_running,
    pack_onto_a_full_disk,
    packing_process,
    read_back,
    tree,
    wait_for,
)

import fastfeed
from fastfeed.errors import DestinationFull, WorkerDied
from fastfeed.machine import free_bytes
from fastfeed.packer.writing import worker_count


def mixed(folder: Path) -> Path:
    """Splits with classes, captions, wild names and larger files."""
    chance = random.Random(7)
    files: dict[str, bytes] = {}
    for split, count in (("train", 24), ("val", 7)):
        for at in range(count):
            stem = f"{split}/{'ab'[at % 2]} class/{'é.' if at % 5 == 0 else ''}{at:03d}"
            files[f"{stem}.jpg"] = encoded(photo(at)) + chance.randbytes(chance.randrange(9000))
            if at % 3:
                files[f"{stem}.txt"] = f"caption {at}".encode()
    files["train/a class/large.jpg"] = chance.randbytes(5_000_000)
    files["train/.hidden"] = b"x"
    tree(folder, files)
    return folder


@pytest.mark.long
@pytest.mark.parametrize(
    "options", [{}, {"shuffle": 3, "samples_per_shard": 2}, {"shard_bytes": 30_000}], ids=["one", "two", "size"]
)
def test_the_same_bytes_for_any_number_of_workers(tmp_path, options):
    source = mixed(tmp_path / "s")
    for workers in (1, 2, 5):
        result = fastfeed.pack(source, tmp_path / str(workers), workers=workers, **options)
        assert sum(dataset.samples for dataset in result.datasets) == 32
    one = files_below(tmp_path / "1")
    assert files_below(tmp_path / "2") == one
    assert files_below(tmp_path / "5") == one
    assert set(one) > {".fastfeed/pack.json", "train/.fastfeed/index", "val/.fastfeed/manifest.json"}


def test_the_bytes_do_not_depend_on_where_or_when(tmp_path):
    for at, name in enumerate(("one", "two/three")):
        source = make_photos(tmp_path / name / "photos")
        for path in sorted(source.rglob("*"), reverse=bool(at)):
            os.utime(path, ns=(at, 5))
        packed(source, tmp_path / name / "out")
    assert files_below(tmp_path / "one" / "out") == files_below(tmp_path / "two" / "three" / "out")


def test_count_in_is_count_out(tmp_path):
    source = mixed(tmp_path / "s")
    hook = Hook()
    result = packed(source, tmp_path / "out", shards=3, progress=hook)
    found = {}
    for split in ("train", "val"):
        found.update(contents(read_back(tmp_path / "out" / split)))
    assert found == {path: raw for path, raw in files_below(source).items() if path != "train/.hidden"}
    assert hook.stages[1] == ("pack", len(found), sum(map(len, found.values())))
    assert (hook.items["pack"], hook.size_bytes["pack"]) == hook.stages[1][1:]
    assert sum(dataset.source_files for dataset in result.datasets) == len(found)


def test_workers_are_explained():
    assert worker_count(8, 3) == (3, "8 asked for, 3 shards to write")
    assert worker_count(2, 0)[0] == 1
    count, why = worker_count(None, 1000)
    assert count == len(os.sched_getaffinity(0)) or "cgroup" in why
    assert "1,000 shards to write" in why


# ------------------------------------------------------------------------------------------------------------- killed


def undisturbed(tmp_path: Path) -> tuple[Path, dict[str, bytes]]:
    chance = random.Random(1)
    source = tree(tmp_path / "s", {f"{at % 3}/{at:03d}.bin": chance.randbytes(30_000) for at in range(60)})
    packed(source, tmp_path / "straight", workers=2, samples_per_shard=1)
    return source, files_below(tmp_path / "straight")


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_pain_24_killed_at_random_moments_it_ends_with_the_same_bytes(tmp_path, seed):
    """Each round kills the parent or a worker when a few more shards are done, some rounds before the first."""
    chance = random.Random(seed)
    source, expected = undisturbed(tmp_path)
    goals = sorted(chance.sample(range(55), 4))
    for goal in [0, *goals]:
        with packing_process(source, tmp_path / "out", workers=chance.choice([1, 2, 5]), samples_per_shard=1) as process:
            wait_for(
                lambda goal=goal, process=process: (
                    len(list((tmp_path / "out").glob("*.tar"))) > goal or process.poll() is not None
                ),
                "shards",
            )
            workers = children_of(process.pid)
            victim = process.pid if chance.random() < 0.5 or not workers else chance.choice(workers)
            if is_running(victim):
                os.kill(victim, signal.SIGKILL)
            process.communicate(timeout=60)
        assert process.returncode != 0 or (tmp_path / "out" / ".fastfeed" / "manifest.json").exists()
    assert packed(source, tmp_path / "out", workers=2, samples_per_shard=1).shards_kept > 0
    assert files_below(tmp_path / "out") == expected


@pytest.mark.long
@pytest.mark.parametrize("name", ["scan", "job.json", "shards.json"])
def test_killed_before_the_first_shard(tmp_path, name):
    source, expected = undisturbed(tmp_path)
    with packing_process(source, tmp_path / "out", workers=2, samples_per_shard=1) as process:
        job = tmp_path / "out" / ".fastfeed" / "job"
        wait_for(lambda: (job / name).exists() or process.poll() is not None, name)
        process.kill()
        process.communicate(timeout=60)
    packed(source, tmp_path / "out", workers=5, samples_per_shard=1)
    assert files_below(tmp_path / "out") == expected


def test_a_shard_that_was_cut_after_it_was_finished_is_written_again(tmp_path):
    source = tree(tmp_path / "s", {f"{at:02d}.bin": bytes(9000) for at in range(40)})

    def kill(stage):
        for child in children_of(os.getpid()) if stage == "pack" else ():  # none, if it had told of two shards at once
            os.kill(child, signal.SIGKILL)

    with pytest.raises(WorkerDied, match="was killed by SIGKILL"):
        packed(source, tmp_path / "out", samples_per_shard=1, progress=Hook(on_advance=kill))
    shard = tmp_path / "out" / "s-000000.tar"
    os.truncate(shard, 10240)
    finished = len(list((tmp_path / "out").glob("*.tar")))
    result = packed(source, tmp_path / "out", samples_per_shard=1)
    assert (result.shards_kept, result.shards_written) == (finished - 1, 40 - finished + 1)
    assert fastfeed.verify(tmp_path / "out").ok


# --------------------------------------------------------------------------------------------------------- a full disk


def test_free_space_is_checked_before_the_first_shard(tmp_path):
    """More is asked for than the disk has: files that hold nothing but a hole."""
    source = tree(tmp_path / "s", {f"{at}.dat": "" for at in range(60)})
    size = min((8 << 30) - 1, free_bytes(str(tmp_path)) // 50)
    try:
        for path in source.iterdir():
            os.truncate(path, size)
    except OSError as error:
        pytest.skip(f"this file system makes no sparse files: {error}")
    if 60 * size < free_bytes(str(tmp_path)):
        pytest.skip("the disk is too large to be filled by 60 files")
    hook = Hook()
    with pytest.raises(DestinationFull, match=r"there is not enough free space .*: expected .*, got .* free. Nothing is lost"):
        packed(source, tmp_path / "out", progress=hook)
    assert [stage for stage, _, _ in hook.stages] == ["scan"]
    assert not list((tmp_path / "out").glob("*.tar"))
    plan = fastfeed.pack(source, tmp_path / "out2", dry_run=True)
    assert plan.needs_bytes > plan.free_bytes


def test_a_full_disk_loses_nothing_and_a_rerun_gives_the_same_bytes(tmp_path):
    chance = random.Random(2)
    source = tree(tmp_path / "s", {f"{at:02d}.bin": chance.randbytes(300_000) for at in range(20)})
    shards = pack_onto_a_full_disk(source, tmp_path / "packed", size="8m", spare_bytes=1_500_000)
    assert 2 <= shards < 20
    packed(source, tmp_path / "straight", samples_per_shard=1)
    assert files_below(tmp_path / "packed") == files_below(tmp_path / "straight")
