"""Packs of rows from end to end: the promises that every source keeps."""

import gzip
import json
import os
import random
import shutil
import signal
import textwrap

import pyarrow as pa
import pytest
from helpers import files_below, packed
from packing import (
    Hook,
    Interrupt,
    children_of,
    interrupt_after,
    is_running,
    pack_onto_a_full_disk,
    packing_process,
    tree,
    wait_for,
)
from pyarrow import parquet
from rowsets import Samples, fields_of, proven

import fastfeed
from fastfeed.errors import DestinationFull, SourceUnreadable, UsageError, WorkerDied
from fastfeed.machine import free_bytes

COUNT = 40
DATA = """
    import random

    class Data:
        def __len__(self):
            return {count}
        def __getitem__(self, at):
            return {{"bin": random.Random(at).randbytes(20_000), "txt": f"text {{at}}", "cls": at % 3, "n": at / 2}}

    def stream():
        data = Data()
        for at in range(len(data)):
            yield data[at]
"""


def content(at):
    return random.Random(at).randbytes(20_000)


def source_of(kind, folder):
    """A source of 40 samples of 20 kB, and the options that it needs."""
    folder.mkdir(exist_ok=True)
    rows = [{"n": at, "pad": content(at).hex()} for at in range(COUNT)]
    if kind in {"python", "stream"}:
        (folder / "data.py").write_text(textwrap.dedent(DATA.format(count=COUNT)))
        return f"{folder}/data.py:{'Data' if kind == 'python' else 'stream'}", {}
    if kind == "parquet":
        table = pa.table({"bin": [content(at) for at in range(COUNT)], "y": [at % 3 for at in range(COUNT)]})
        parquet.write_table(table, folder / "x.parquet", row_group_size=7)
        return folder / "x.parquet", {"label": "y"}
    if kind in {"lines", "gzip"}:
        raw = "".join(json.dumps(row) + "\n" for row in rows).encode()
        path = folder / ("x.jsonl.gz" if kind == "gzip" else "x.jsonl")
        path.write_bytes(gzip.compress(raw, 1) if kind == "gzip" else raw)
        return path, {}
    tree(folder, {f"f/{at:02d}.bin": content(at) for at in range(COUNT)})
    tree(folder, {"l.csv": "f,y\n" + "".join(f"f/{at:02d}.bin,{at % 3}\n" for at in range(COUNT))})
    return folder / "l.csv", {"label": "y"}


KINDS = ["python", "parquet", "lines", "gzip", "csv"]


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_bytes_for_any_number_of_workers(tmp_path, kind):
    source, options = source_of(kind, tmp_path / "s")
    for workers in (1, 2, 5) if kind in {"python", "lines"} else (1, 5):
        packed(source, tmp_path / str(workers), workers=workers, samples_per_shard=6, **options)
        assert files_below(tmp_path / str(workers)) == files_below(tmp_path / "1")
    assert len(proven(tmp_path / "1")) == COUNT


def killed(tmp_path, kind, chance, rounds):
    """Kill parent or worker at random moments; in the end the bytes are those of an undisturbed pack."""
    source, options = source_of(kind, tmp_path / "s")
    shard = {"samples_per_shard": 1 if kind != "stream" else 2}
    packed(source, tmp_path / "straight", workers=2, **shard, **options)
    shards = len(list((tmp_path / "straight").glob("*.tar")))
    goals = sorted(chance.sample(range(shards - 3), rounds))
    orphans: list[int] = []
    for goal in goals:
        with packing_process(source, tmp_path / "out", workers=chance.choice([1, 2, 5]), **shard, **options) as process:
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
            orphans += workers
        assert process.returncode != 0 or (tmp_path / "out" / ".fastfeed" / "manifest.json").exists()
    wait_for(lambda: not any(map(is_running, orphans)), "orphans to die")
    result = packed(source, tmp_path / "out", workers=2, **shard, **options)
    assert result.shards_kept > 0 and result.shards_kept + result.shards_written == shards
    assert files_below(tmp_path / "out") == files_below(tmp_path / "straight")


@pytest.mark.long
@pytest.mark.parametrize("kind", [*KINDS, "stream"])
def test_killed_at_random_moments_it_ends_with_the_same_bytes(tmp_path, kind):
    killed(tmp_path, kind, random.Random(kind), 2 if kind == "python" else 1)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", [*KINDS, "stream"])
def test_killed_many_times(tmp_path, kind, seed):
    killed(tmp_path, kind, random.Random(f"{kind}{seed}"), 12)


def test_a_worker_that_is_killed_is_no_success(tmp_path):
    source, options = source_of("parquet", tmp_path / "s")

    def kill(stage):
        for child in children_of(os.getpid()) if stage == "pack" else ():
            os.kill(child, signal.SIGKILL)

    with pytest.raises(WorkerDied, match=r"killed by SIGKILL while it packed 1 samples? from sample \d+.*it continues"):
        packed(source, tmp_path / "out", samples_per_shard=1, progress=Hook(on_advance=kill), **options)
    assert not (tmp_path / "out" / ".fastfeed" / "manifest.json").exists()
    packed(source, tmp_path / "out", samples_per_shard=1, **options)
    packed(source, tmp_path / "straight", samples_per_shard=1, **options)
    assert files_below(tmp_path / "out") == files_below(tmp_path / "straight")


# ------------------------------------------------------------------------------------------------------------- again


def stopped(tmp_path, rows):
    with pytest.raises(Interrupt):
        packed(rows, tmp_path / "out", samples_per_shard=2, progress=interrupt_after(8))
    return len(list((tmp_path / "out").glob("*.tar")))


def rows(count=20):
    return Samples([{"txt": f"{at}"} for at in range(count)])


def test_finished_shards_are_kept_whatever_becomes_of_failures(tmp_path):
    """What to do about unreadable samples may be decided anew: finished shards stay as they are."""
    done = stopped(tmp_path, rows())
    result = packed(rows(), tmp_path / "out", samples_per_shard=2, on_error="skip")
    assert (result.shards_kept, result.shards_written) == (done, 10 - done)
    assert f"{done} shards kept from an earlier run, unread" in result.notes[0]


def test_a_shard_that_was_cut_or_lost_its_record_is_written_again(tmp_path):
    done = stopped(tmp_path, rows())
    os.truncate(tmp_path / "out" / "data-000000.tar", 512)
    os.unlink(tmp_path / "out" / ".fastfeed" / "job" / "data-000001.tar.done")
    result = packed(rows(), tmp_path / "out", samples_per_shard=2)
    assert (result.shards_kept, result.shards_written) == (done - 2, 12 - done)
    assert len(proven(tmp_path / "out")) == 20


def test_a_shard_that_vanishes_before_the_end_is_missed(tmp_path):
    hook = Hook(on_finish=lambda stage: (tmp_path / "out" / "data-000001.tar").unlink(missing_ok=True))
    with pytest.raises(
        fastfeed.errors.DestinationError, match="a finished shard has gone or changed before the manifest was written"
    ):
        packed(rows(), tmp_path / "out", samples_per_shard=2, progress=hook)


def test_overwrite_replaces_what_is_there(tmp_path):
    packed(rows(30), tmp_path / "out", samples_per_shard=2)
    result = packed(rows(4), tmp_path / "out", samples_per_shard=2, overwrite=True)
    assert result.shards_written == 2 and len(list((tmp_path / "out").glob("*.tar"))) == 2
    packed(rows(4), tmp_path / "straight", samples_per_shard=2)
    assert files_below(tmp_path / "out") == files_below(tmp_path / "straight")


def test_overwrite_removes_nothing_for_a_source_that_cannot_do(tmp_path):
    packed(rows(), tmp_path / "out")
    before = files_below(tmp_path / "out")
    with pytest.raises(SourceUnreadable):
        packed(Samples([]), tmp_path / "out", overwrite=True)
    with pytest.raises(UsageError):
        packed(rows(), tmp_path / "out", overwrite=True, column=["x"])
    large = tmp_path / "large"
    tree(large, {"l.csv": "f\n" + "".join(f"{at}.bin\n" for at in range(20))})
    for at in range(20):
        (large / f"{at}.bin").touch()
        os.truncate(large / f"{at}.bin", free_bytes(str(tmp_path)) // 10)
    with pytest.raises(DestinationFull, match="there is not enough space, even without what --overwrite replaces"):
        packed(large / "l.csv", tmp_path / "out", overwrite=True)
    assert files_below(tmp_path / "out") == before
    shutil.rmtree(large)


# ------------------------------------------------------------------------------------------------------- plan and options


def test_a_dry_run_writes_nothing(tmp_path):
    plan = packed(rows(), tmp_path / "out", dry_run=True, shards=3)
    assert not (tmp_path / "out").exists()
    assert plan.dry_run and plan.datasets[0].shards == 3 and plan.datasets[0].samples == 20 and plan.needs_bytes > 0


def test_the_plan_is_told_once_before_the_first_byte(tmp_path):
    told = []
    result = packed(
        rows(), tmp_path / "out", shards=3, on_plan=lambda plan: told.append((plan, list((tmp_path / "out").glob("*.tar"))))
    )
    ((plan, there),) = told
    assert there == [] and plan.dry_run and plan.datasets[0].why == result.datasets[0].why


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({"shards": 3}, [7, 7, 6]), ({"samples_per_shard": 8}, [7, 7, 6]), ({"shard_bytes": "10B"}, [7, 7, 6]), ({}, [20]),
        ({"limit": 5, "shards": 2}, [3, 2]), ({"shards": 50}, [1] * 20),
    ],
    ids=map(str, range(6)),
)  # fmt: skip
def test_sizes_of_shards(tmp_path, options, sizes):
    packed(rows(), tmp_path / "out", **options)
    manifest = json.loads((tmp_path / "out" / ".fastfeed" / "manifest.json").read_bytes())
    assert [shard["samples"] for shard in manifest["shards"]] == sizes


def test_limit_and_shuffle(tmp_path):
    result = packed(rows(), tmp_path / "out", shuffle=5, limit=7)
    found = [int(fields["txt"]) for fields in fields_of(tmp_path / "out")]
    assert len(set(found)) == 7 and found != sorted(found) and result.limited == 13
    packed(rows(), tmp_path / "again", shuffle=5, limit=7, workers=2)
    assert files_below(tmp_path / "again") == files_below(tmp_path / "out")


@pytest.mark.parametrize("kind", ["python", "lines", "stream"])
def test_compressed_shards(tmp_path, kind):
    source, options = source_of(kind, tmp_path / "s")
    for workers in (1, 2):
        packed(source, tmp_path / str(workers), compress="zstd", samples_per_shard=15, workers=workers, **options)
    assert files_below(tmp_path / "1") == files_below(tmp_path / "2") and (tmp_path / "1").glob("*.tar.zst")
    assert fastfeed.verify(tmp_path / "1").ok
    packed(source, tmp_path / "plain", samples_per_shard=15, **options)
    fastfeed.unpack(tmp_path / "1", tmp_path / "tars", shards=True)
    plain = {name: raw for name, raw in files_below(tmp_path / "plain").items() if name.endswith(".tar")}
    assert {name: raw for name, raw in files_below(tmp_path / "tars").items() if name.endswith(".tar")} == plain


def test_no_class_members_if_not_wanted(tmp_path):
    packed(Samples([{"txt": "a", "cls": 1}]), tmp_path / "out", write_cls=False)
    (sample,) = proven(tmp_path / "out")
    assert set(sample.fields) == {"txt"} and sample.label == 1


def test_options_of_rows_are_not_for_folders(tmp_path):
    tree(tmp_path / "s", {"a.txt": "x"})
    with pytest.raises(UsageError, match="label is for lists, tables and Python datasets, and the source is a folder of files"):
        packed(tmp_path / "s", tmp_path / "out", label="x")


# ----------------------------------------------------------------------------------------------------------- full disk


def test_a_full_disk_loses_nothing(tmp_path):
    source, _ = source_of("lines", tmp_path / "s")
    assert 2 < pack_onto_a_full_disk(source, tmp_path / "packed", size="12m", spare_bytes=300_000) < COUNT
    packed(source, tmp_path / "straight", samples_per_shard=1)
    assert files_below(tmp_path / "packed") == files_below(tmp_path / "straight")


# ----------------------------------------------------------------------------------------------------------- large rows


@pytest.mark.parametrize("size", [40, pytest.param(200, marks=pytest.mark.soak)])
def test_rows_of_many_megabytes(tmp_path, size):
    """Beside small ones: carried whole, and a worker asks for no more of them at once."""
    block = os.urandom(1 << 20)

    class Large(Samples):
        def __getitems__(self, numbers):
            assert len(numbers) < 5 or os.getpid() == parent
            return [self[at] for at in numbers]

        def __getitem__(self, at):
            return {"bin": block * (size if at == 3 else 4)}

    parent = os.getpid()
    packed(Large(range(6)), tmp_path / "out")
    assert fastfeed.verify(tmp_path / "out").ok
    ds = fastfeed.open(tmp_path / "out")
    assert [len(ds[at]["bin"]) >> 20 for at in range(6)] == [4, 4, 4, size, 4, 4] and ds[3]["bin"] == block * size
    shutil.rmtree(tmp_path / "out")
