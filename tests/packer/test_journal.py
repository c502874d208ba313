import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys
from functools import partial

import pytest
from commands import environment
from helpers import files_below, make_photos, packed
from packing import (
    Hook,
    Interrupt,
    children_of,
    interrupt_after,
    is_running,
    manifest_of,
    packing_process,
    read_back,
    tree,
    wait_for,
)

import fastfeed
from fastfeed.errors import (
    DestinationBusy,
    DestinationError,
    DestinationOccupied,
    IndexDamaged,
    SourceAmbiguous,
    SourceUnreadable,
)
from fastfeed.packer.journal import Journal, peek, refuse_foreign


def texts(folder, count=6):
    source = tree(folder, {f"{at}.txt": f"text {at}" for at in range(count)})
    for at in range(count):
        os.utime(source / f"{at}.txt", ns=(at, at))
    return source


def test_the_job_is_forgotten_when_it_is_done(tmp_path):
    seen = []
    hook = Hook(on_start={"pack": lambda: seen.extend(sorted(os.listdir(tmp_path / "out" / ".fastfeed" / "job")))})
    packed(texts(tmp_path / "s"), tmp_path / "out", progress=hook)
    assert seen == ["job.json", "lock", "scan", "shards.json"]
    assert sorted(os.listdir(tmp_path / "out" / ".fastfeed")) == ["index", "left-out.jsonl", "manifest.json"]


def test_other_readers_see_no_shard_before_it_is_whole(tmp_path):
    def look(stage):
        if stage == "pack":
            for name in os.listdir(tmp_path / "out"):
                if name != ".fastfeed":
                    sizes.setdefault(name, set()).add((tmp_path / "out" / name).stat().st_size)
            assert not list((tmp_path / "out" / ".fastfeed").rglob("*.tar"))

    sizes: dict[str, set[int]] = {}
    packed(texts(tmp_path / "s", 20), tmp_path / "out", samples_per_shard=1, workers=2, progress=Hook(on_advance=look))
    assert len(sizes) >= 10 and all(name.endswith(".tar") and found == {10240} for name, found in sizes.items())


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda out: tree(out, {"mine.txt": "x"}), "holds other files, and fastfeed shares a folder with nobody"),
        (lambda out: tree(out, {"a/b/mine.tar": "x"}), "holds other files"),
        (lambda out: out.write_text("x"), "the destination is a file"),
    ],
    ids=["file-in-it", "folder-in-it", "is-a-file"],
)
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_foreign_destination_is_left_alone(tmp_path, make, match, overwrite):
    make(tmp_path / "out")
    before = files_below(tmp_path)
    source = texts(tmp_path / "s")
    with pytest.raises(DestinationOccupied, match=match):
        packed(source, tmp_path / "out", overwrite=overwrite)
    shutil.rmtree(source)
    assert files_below(tmp_path) == before


def test_an_empty_destination_is_welcome(tmp_path):
    (tmp_path / "out").mkdir()
    assert packed(texts(tmp_path / "s"), tmp_path / "out").datasets[0].samples == 6


def test_a_destination_below_a_file_is_named(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(DestinationError, match="the destination cannot be made"):
        packed(texts(tmp_path / "s"), tmp_path / "file" / "out")


def test_overwrite_removes_what_is_ours_and_nothing_else(tmp_path):
    packed(make_photos(tmp_path / "one", each=6), tmp_path / "out", shards=12, name="photos")
    foreign = tree(tmp_path / "out", {"photos-000099.tar": "x", "notes.txt": "y", "sub/other-000000.tar": "z"})
    packed(texts(tmp_path / "two"), tmp_path / "out", overwrite=True, name="texts")
    names = set(files_below(foreign))
    assert names == {
        "photos-000099.tar", "notes.txt", "sub/other-000000.tar", "texts-000000.tar",
        ".fastfeed/index", ".fastfeed/left-out.jsonl", ".fastfeed/manifest.json",
    }  # fmt: skip
    assert len(read_back(tmp_path / "out")) == 6


def test_overwrite_of_splits_by_one_dataset_and_back(tmp_path):
    source = tmp_path / "s"
    make_photos(source / "train", each=2)
    make_photos(source / "val", each=1)
    packed(source, tmp_path / "out", shards=2)
    packed(texts(tmp_path / "t"), tmp_path / "out", overwrite=True)
    assert set(files_below(tmp_path / "out")) == {
        "t-000000.tar", ".fastfeed/index", ".fastfeed/left-out.jsonl", ".fastfeed/manifest.json",
    }  # fmt: skip
    assert not (tmp_path / "out" / "train").exists()
    packed(source, tmp_path / "out", shards=2, overwrite=True)
    packed(source, tmp_path / "straight", shards=2)
    assert files_below(tmp_path / "out") == files_below(tmp_path / "straight")


def test_overwrite_of_an_unfinished_pack(tmp_path):
    source = texts(tmp_path / "s")
    with pytest.raises(Interrupt, match="enough is written"):
        packed(source, tmp_path / "out", samples_per_shard=1, progress=interrupt_after(3))
    packed(source, tmp_path / "out", samples_per_shard=4, overwrite=True)
    packed(source, tmp_path / "straight", samples_per_shard=4)
    assert files_below(tmp_path / "out") == files_below(tmp_path / "straight")


def test_overwrite_of_a_pack_with_a_damaged_manifest_asks_a_person(tmp_path):
    source = texts(tmp_path / "s")
    packed(source, tmp_path / "out")
    (tmp_path / "out" / ".fastfeed" / "manifest.json").write_text("{}")
    before = files_below(tmp_path / "out")
    with pytest.raises(DestinationOccupied, match=r"not known which files are fastfeed's.*Remove the folder by hand"):
        packed(source, tmp_path / "out", overwrite=True)
    assert files_below(tmp_path / "out") == before


def test_overwrite_loses_nothing_where_the_source_cannot_be_packed(tmp_path):
    packed(texts(tmp_path / "s"), tmp_path / "out")
    before = files_below(tmp_path / "out")
    parallel = make_photos(tmp_path / "parallel", ["images", "masks"])
    dangling = tree(tmp_path / "dangling", {"1.txt": "x"})
    os.symlink("nowhere", dangling / "2.txt")
    for source, error, match in (
        (tmp_path / "typo", SourceUnreadable, "does not exist"),
        (parallel, SourceAmbiguous, "parallel trees"),
        (dangling, SourceUnreadable, "leads nowhere"),
    ):
        with pytest.raises(error, match=match):
            packed(source, tmp_path / "out", overwrite=True)
    assert files_below(tmp_path / "out") == before


@pytest.mark.parametrize("finished", [True, False])
def test_overwrite_removes_what_a_killed_publishing_left(tmp_path, finished):
    source = make_photos(tmp_path / "s" / "train").parent
    make_photos(source / "val")
    if finished:
        packed(source, tmp_path / "out")
    else:
        with pytest.raises(Interrupt, match="enough is written"):
            packed(source, tmp_path / "out", samples_per_shard=1, progress=interrupt_after(12))
    parts = ["index.part", "left-out.jsonl.part", "manifest.json.part", "pack.json.part"]
    for folder in ("", "train", "val"):
        tree(tmp_path / "out" / folder / ".fastfeed", dict.fromkeys(parts, "half"))
    packed(texts(tmp_path / "t"), tmp_path / "out", overwrite=True)
    assert set(files_below(tmp_path / "out")) == {
        "t-000000.tar", ".fastfeed/index", ".fastfeed/left-out.jsonl", ".fastfeed/manifest.json",
    }  # fmt: skip
    assert not (tmp_path / "out" / "train").exists()


def no_locks(descriptor: int, operation: int) -> None:
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))


NO_LOCK = "the destination's file system gives no lock (Function not implemented): make sure that no other pack writes there"


def test_a_file_system_without_locks_is_told_and_used(tmp_path, monkeypatch):
    journal = Journal(str(tmp_path / "out"), lock=no_locks)
    assert journal.notes == [NO_LOCK]
    journal.close()
    assert not (tmp_path / "out").exists()
    monkeypatch.setattr("fastfeed.packer.writing.Journal", partial(Journal, lock=no_locks))
    result = packed(texts(tmp_path / "s"), tmp_path / "out")
    assert result.notes == (NO_LOCK,)
    assert len(read_back(tmp_path / "out")) == 6


def test_a_lock_is_asked_for_without_waiting(tmp_path):
    asked = []
    journal = Journal(str(tmp_path / "out"), lock=lambda descriptor, operation: asked.append(operation))
    journal.close()
    assert asked == [fcntl.LOCK_EX | fcntl.LOCK_NB] and journal.notes == []


def test_peek_reads_the_options_of_an_unfinished_job_and_touches_nothing(tmp_path):
    source = texts(tmp_path / "s")
    assert peek(str(tmp_path / "out")) is None
    assert peek(str(source / "0.txt")) is None
    with pytest.raises(Interrupt, match="enough is written"):
        packed(source, tmp_path / "out", samples_per_shard=1, progress=interrupt_after(3))
    before = files_below(tmp_path / "out")
    found = peek(str(tmp_path / "out"))
    assert found is not None and found["options"]["samples_per_shard"] == 1
    assert files_below(tmp_path / "out") == before
    packed(source, tmp_path / "out", samples_per_shard=1)
    assert peek(str(tmp_path / "out")) is None


def test_refuse_foreign_lets_ours_and_the_empty_pass(tmp_path):
    packed(texts(tmp_path / "s"), tmp_path / "out")
    (tmp_path / "empty").mkdir()
    for name in ("out", "empty", "new"):
        refuse_foreign(str(tmp_path / name))
    with pytest.raises(
        DestinationOccupied, match="the destination holds other files, and fastfeed shares a folder with nobody"
    ):
        refuse_foreign(str(tmp_path / "s"))
    with pytest.raises(DestinationOccupied, match="the destination is a file"):
        refuse_foreign(str(tmp_path / "s" / "0.txt"))


@pytest.mark.long
def test_two_processes_cannot_pack_into_one_folder(tmp_path):
    source = tree(tmp_path / "s", {f"{at}.bin": bytes(3_000_000) for at in range(40)})
    with packing_process(source, tmp_path / "out", workers=1, samples_per_shard=1) as first:
        wait_for(lambda: list((tmp_path / "out").glob("*.tar")) or first.poll() is not None, "a shard")
        first.send_signal(signal.SIGSTOP)
        with pytest.raises(DestinationBusy, match=rf"another fastfeed pack is writing there \(process {first.pid} on .*Wait"):
            packed(source, tmp_path / "out", samples_per_shard=1)
        with pytest.raises(DestinationBusy, match="another fastfeed pack"):
            packed(source, tmp_path / "out", overwrite=True)
        first.send_signal(signal.SIGCONT)
        first.communicate(timeout=60)
    assert first.returncode == 0
    assert len(read_back(tmp_path / "out")) == 40


def test_what_a_killed_run_left_is_swept(tmp_path):
    source = tree(tmp_path / "s", {f"{at}.bin": bytes(20_000_000) for at in range(4)})
    job = tmp_path / "out" / ".fastfeed" / "job"
    with packing_process(source, tmp_path / "out", workers=1, samples_per_shard=1) as process:
        wait_for(lambda: list(job.glob("*.part")) or process.poll() is not None, "a temporary shard")
        workers = children_of(process.pid)
        os.kill(process.pid, signal.SIGSTOP)
        for pid in workers:
            os.kill(pid, signal.SIGSTOP)
        for pid in [process.pid, *workers]:
            os.kill(pid, signal.SIGKILL)
        process.communicate(timeout=60)
    wait_for(lambda: not any(map(is_running, workers)), "the worker to die")
    (job / "s-000003.tar.1.part").write_text("of an earlier run")
    swept = []
    hook = Hook(on_start={"pack": lambda: swept.append(list(job.glob("*.part")))})
    packed(source, tmp_path / "out", samples_per_shard=1, progress=hook)
    assert swept == [[]]
    packed(source, tmp_path / "straight", samples_per_shard=1)
    assert files_below(tmp_path / "out") == files_below(tmp_path / "straight")


def test_a_damaged_kept_scan_is_named_and_overwrite_helps(tmp_path):
    source = texts(tmp_path / "s")
    with pytest.raises(Interrupt, match="enough is written"):
        packed(source, tmp_path / "out", samples_per_shard=1, progress=interrupt_after(2))
    scan = tmp_path / "out" / ".fastfeed" / "job" / "scan"
    scan.write_bytes(scan.read_bytes()[:100])
    with pytest.raises(IndexDamaged, match=r"job/scan.* continued from is damaged: start anew with --overwrite\.$"):
        packed(source, tmp_path / "out", samples_per_shard=1)
    assert packed(source, tmp_path / "out", samples_per_shard=1, overwrite=True).shards_written == 6


def test_a_killed_run_that_had_published_all_is_found_done(tmp_path):
    source = texts(tmp_path / "s")
    kept = []
    job = tmp_path / "out" / ".fastfeed" / "job"
    hook = Hook(on_start={"pack": lambda: kept.append(shutil.copytree(job, tmp_path / "job"))})
    packed(source, tmp_path / "out", progress=hook)
    before = files_below(tmp_path / "out")
    shutil.copytree(tmp_path / "job", job)  # as if the last step, forgetting the job, was never reached
    again = packed(source, tmp_path / "out")
    assert kept and again.already_packed
    assert files_below(tmp_path / "out") == before
    assert manifest_of(tmp_path / "out")["samples"] == 6 and fastfeed.verify(tmp_path / "out").ok


@pytest.mark.long
def test_a_run_that_waited_takes_over_while_the_first_still_ends(tmp_path, monkeypatch):
    """The second comes in at the worst moment: when the first has removed its lock, but not yet the folder."""
    out = str(tmp_path / "out")
    first = Journal(out)
    first.begin({"options": {}}, b"scan")
    first.write("a-000000.tar.done", {})
    others: list[Journal] = []

    def remove(path):
        os.unlink(path)
        if path == first.path("lock"):
            assert os.listdir(first.folder) == []
            others.append(Journal(out))

    monkeypatch.setattr("fastfeed.packer.journal.remove", remove)
    first.finish()
    monkeypatch.undo()
    (second,) = others
    second.write("job.json", {"options": {}})
    (tmp_path / "out" / ".fastfeed" / "job" / "b-000000.tar.1.part").touch()
    first.close()
    assert sorted(os.listdir(second.folder)) == ["b-000000.tar.1.part", "job.json", "lock"]
    with pytest.raises(DestinationBusy, match="another fastfeed pack is writing there"):
        Journal(out)
    second.finish()
    second.close()
    assert os.listdir(tmp_path / "out" / ".fastfeed") == []


def test_a_run_that_ends_with_nothing_leaves_alone_what_the_next_has_begun(tmp_path):
    first = Journal(str(tmp_path / "out"))
    os.unlink(first.path("lock"))
    second = Journal(str(tmp_path / "out"))
    first.close()
    assert os.listdir(second.folder) == ["lock"]
    second.close()
    assert not (tmp_path / "out" / ".fastfeed").exists()


@pytest.mark.long
def test_a_kill_at_any_point_of_forgetting_the_job_is_found_done(tmp_path, monkeypatch):
    source = texts(tmp_path / "s")
    packed(source, tmp_path / "straight", samples_per_shard=1)
    finish, killed = Journal.finish, 0
    for reached in range(20):
        steps = iter(range(reached))

        def remove(path, steps=steps):
            if next(steps, None) is None:
                raise Interrupt(path)
            os.unlink(path)

        def killed_finish(journal, remove=remove):
            monkeypatch.setattr("fastfeed.packer.journal.remove", remove)
            finish(journal)

        monkeypatch.setattr(Journal, "finish", killed_finish)
        out = tmp_path / f"out{reached}"
        try:
            packed(source, out, samples_per_shard=1)
        except Interrupt:
            killed += 1
        monkeypatch.undo()
        assert packed(source, out, samples_per_shard=1).already_packed
        assert files_below(out) == files_below(tmp_path / "straight")
    assert killed == 10  # job.json, scan, shards.json, a note for each of six shards, lock


def test_runs_that_start_and_end_at_once_hinder_none(tmp_path):
    code = f"""
from fastfeed.packer.journal import Journal
for _ in range(200):
    journal = Journal({str(tmp_path / "out")!r})
    journal.write("job.json", {{}})
    journal.finish()
    journal.close()
"""
    runs = [subprocess.Popen([sys.executable, "-c", code], env=environment(), stderr=subprocess.PIPE) for _ in range(2)]
    assert [(run.communicate(timeout=120)[1], run.returncode) for run in runs] == [(b"", 0)] * 2
