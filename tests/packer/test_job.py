"""The job as a whole: its options, what it refuses, and inputs that cannot be read."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest
from helpers import files_below, make_captioned, make_photos, packed
from packing import (
    Hook,
    left_out_of,
    manifest_of,
    python_without_privileges,
    read_back,
    stopped,
    tree,
)

import fastfeed
from fastfeed.config import package_folder
from fastfeed.errors import (
    FastfeedWarning,
    SourceAmbiguous,
    SourceChanged,
    SourceUnreadable,
    UsageError,
)
from fastfeed.sample import SkipEntry, SkipList

# ------------------------------------------------------------------------------------------------------------ options


def test_a_dry_run_writes_nothing_at_all(tmp_path):
    source = make_photos(tmp_path / "s")
    before = files_below(tmp_path)
    plan = fastfeed.pack(source, tmp_path / "out", dry_run=True, shards=2)
    assert plan.dry_run and not (tmp_path / "out").exists()
    assert files_below(tmp_path) == before
    done = packed(source, tmp_path / "out", shards=2)
    sizes = sum(path.stat().st_size for path in (tmp_path / "out").glob("*.tar"))
    assert plan.needs_bytes == done.needs_bytes == plan.datasets[0].size_bytes == sizes
    assert (plan.datasets[0].samples, plan.datasets[0].shards, plan.shards_written) == (6, 2, 0)
    assert plan.datasets[0].why == done.datasets[0].why and plan.free_bytes > 0
    assert plan.datasets[0].digest is None and done.datasets[0].digest == manifest_of(tmp_path / "out")["digest"]


def test_the_plan_is_told_once_before_the_first_byte(tmp_path):
    source = make_photos(tmp_path / "s")
    os.symlink("nowhere", source / "dog" / "003.jpg")
    told: list[fastfeed.PackResult] = []
    there: list[set[str]] = []

    def hear(plan):
        told.append(plan)
        there.append(set(files_below(tmp_path / "out")))

    hook = Hook(on_start={"pack": lambda: there.append({"pack begins"})})
    options = {"samples_per_shard": 1, "on_error": "skip"}
    dry = packed(source, tmp_path / "out", dry_run=True, on_plan=hear, **options)
    assert told == []  # a dry run returns it
    result = packed(source, tmp_path / "out", on_plan=hear, progress=hook, **options)
    [plan] = told
    assert there[0] <= {f".fastfeed/job/{name}" for name in ("lock", "job.json", "scan")} and there[1] == {"pack begins"}
    assert replace(plan, seconds=0, free_bytes=0) == replace(dry, seconds=0, free_bytes=0)
    assert plan.dry_run and (plan.shards_written, plan.skipped, plan.needs_bytes) == (0, 1, result.needs_bytes)
    packed(source, tmp_path / "out", on_plan=hear, **options)
    assert len(told) == 1  # it is there: nothing is planned


def test_the_plan_is_told_of_a_pack_that_continues(tmp_path):
    source = stopped(tmp_path)
    told: list[fastfeed.PackResult] = []
    packed(source, tmp_path / "out", samples_per_shard=1, on_plan=told.append)
    assert [plan.datasets[0].shards for plan in told] == [8]


REFUSED = "without --overwrite this would be refused: "


def test_a_dry_run_says_what_is_at_the_destination(tmp_path):
    def notes(**options):
        before = files_below(tmp_path)
        found = packed(tmp_path / "s", tmp_path / "out", dry_run=True, **{"samples_per_shard": 1, **options}).notes
        assert files_below(tmp_path) == before
        return found

    source = stopped(tmp_path)
    assert notes() == ("the destination holds an unfinished pack with these options: it would be continued",)
    change = "(--shuffle was not given, now 1)"
    assert notes(shuffle=1) == (f"{REFUSED}an unfinished pack with other options is there {change}",)
    packed(source, tmp_path / "out", samples_per_shard=1)
    assert notes() == ("the destination holds this very pack: there would be nothing to do",)
    assert notes(shuffle=1) == (f"{REFUSED}a finished pack with other options is there {change}",)
    (source / "new.txt").write_text("n")
    changed = "the source has changed since it was packed (files came, went, grew or were touched)"
    assert notes() == (REFUSED + changed,)
    shutil.rmtree(tmp_path / "out")
    assert notes() == ()
    tree(tmp_path / "out", {"mine.txt": "x"})
    assert notes() == ("this would be refused: the destination holds other files, and fastfeed shares a folder with nobody",)


def test_limit_and_exclude_are_recorded(tmp_path):
    source = make_captioned(tmp_path / "s", 6)
    skip = tmp_path / "skip.jsonl"
    SkipList.write(str(skip), [SkipEntry(source="001.jpg", kind="undecodable"), SkipEntry(key="003")])
    result = packed(source, tmp_path / "out", exclude=str(skip), limit=3)
    assert [sample.key for sample in read_back(tmp_path / "out")] == ["000", "002", "004"]
    assert set(left_out_of(tmp_path / "out")) == {"001.jpg", "001.txt", "003.jpg", "003.txt"}
    assert set(left_out_of(tmp_path / "out").values()) == {"excluded"}
    assert (result.limited, result.skipped) == (2, 0)


def test_an_empty_skip_list_is_spoken_of(tmp_path):
    source, skip = make_captioned(tmp_path / "s", 2), tmp_path / "skip.jsonl"
    skip.touch()
    with pytest.warns(FastfeedWarning, match=f"the skip list {skip} is empty: nothing is left out by it"):
        packed(source, tmp_path / "out", exclude=str(skip))
    assert len(list(read_back(tmp_path / "out"))) == 2


def test_a_left_out_list_is_a_skip_list(tmp_path):
    source = make_captioned(tmp_path / "s", 4)
    packed(source, tmp_path / "one", exclude=SkipList([SkipEntry(key="002")]))
    shutil.copy(tmp_path / "one" / ".fastfeed" / "left-out.jsonl", tmp_path / "skip.jsonl")
    packed(source, tmp_path / "two", exclude=str(tmp_path / "skip.jsonl"))
    assert [sample.key for sample in read_back(tmp_path / "two")] == ["000", "001", "003"]


def test_shuffle_stores_the_same_samples_in_another_order(tmp_path):
    source = make_photos(tmp_path / "s", each=8)
    packed(source, tmp_path / "plain")
    packed(source, tmp_path / "shuffled", shuffle=1, shards=3)
    plain, shuffled = read_back(tmp_path / "plain"), read_back(tmp_path / "shuffled")
    assert plain != shuffled
    assert sorted(plain, key=lambda sample: sample.key) == sorted(shuffled, key=lambda sample: sample.key)
    assert manifest_of(tmp_path / "shuffled")["order"] == "shuffled"


@pytest.mark.parametrize(
    ("below", "match"),
    [("s", "lie within each other"), ("s/out", "lie within each other"), (".", "lie within each other")],
)
def test_destination_within_the_source(tmp_path, below, match):
    source = make_photos(tmp_path / "s")
    before = files_below(tmp_path)
    with pytest.raises(UsageError, match=match):
        fastfeed.pack(source, tmp_path / below)
    os.symlink(source, tmp_path / "link")
    with pytest.raises(UsageError, match=match):
        fastfeed.pack(source, tmp_path / "link" / "out")
    assert files_below(source) == {path.removeprefix("s/"): raw for path, raw in before.items()}


def test_workers_count_from_one(tmp_path):
    with pytest.raises(UsageError, match="workers counts from 1: got 0"):
        fastfeed.pack(make_photos(tmp_path / "s"), tmp_path / "out", workers=0)


@pytest.mark.parametrize(
    "make",
    [lambda path: None, lambda path: path.mkdir(), lambda path: path.write_text("x")],
    ids=["missing", "empty", "file"],
)
def test_a_source_that_cannot_be_packed_leaves_no_trace(tmp_path, make):
    make(tmp_path / "s")
    with pytest.raises(SourceUnreadable, match=r"does not exist|there is no file to pack|is no source that fastfeed knows"):
        packed(tmp_path / "s", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_hint_of_an_ambiguous_source_can_be_followed_at_once(tmp_path):
    source = make_photos(tmp_path / "s", ["images", "masks"])
    with pytest.raises(SourceAmbiguous, match="--layout files"):
        packed(source, tmp_path / "out")
    assert packed(source, tmp_path / "out", layout="files").datasets[0].samples == 6


# -------------------------------------------------------------------------------------------------- unreadable inputs


def test_a_dangling_link_stops_the_run_by_name(tmp_path):
    source = make_captioned(tmp_path / "s", 3)
    os.symlink("nowhere", source / "003.jpg")
    with pytest.raises(
        SourceUnreadable, match=r"1 source file cannot be read \(003.jpg: a link that leads nowhere\).*--on-error"
    ):
        packed(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_on_error_skip_leaves_out_the_whole_sample_and_records_it(tmp_path):
    source = make_captioned(tmp_path / "s", 3)
    (source / "001.jpg").unlink()
    os.symlink("nowhere", source / "001.jpg")
    result = packed(source, tmp_path / "out", on_error="skip")
    assert result.skipped == 1
    assert left_out_of(tmp_path / "out") == {"001.jpg": "unreadable", "001.txt": "incomplete"}
    assert [sample.key for sample in read_back(tmp_path / "out")] == ["000", "002"]


@pytest.mark.parametrize("on_error", ["stop", "skip"])
@pytest.mark.parametrize("entry", [SkipEntry(source="003.jpg"), SkipEntry(key="003")])
def test_a_dangling_link_that_is_excluded_stops_nothing(tmp_path, entry, on_error):
    source = make_captioned(tmp_path / "s", 4)
    (source / "003.jpg").unlink()
    os.symlink("nowhere", source / "003.jpg")
    result = packed(source, tmp_path / "out", exclude=SkipList([entry]), on_error=on_error)
    assert result.skipped == 0
    assert left_out_of(tmp_path / "out") == {"003.jpg": "excluded", "003.txt": "excluded"}
    assert [sample.key for sample in read_back(tmp_path / "out")] == ["000", "001", "002"]
    again = packed(source, tmp_path / "out", exclude=SkipList([entry]), on_error=on_error)
    assert again.already_packed and (again.skipped, again.left_out) == (0, result.left_out)


def test_a_sample_whose_only_file_is_unreadable_is_left_out(tmp_path):
    source = make_photos(tmp_path / "s")
    os.symlink("nowhere", source / "cat" / "9.jpg")
    result = packed(source, tmp_path / "out", on_error="skip")
    assert (result.skipped, result.datasets[0].samples) == (1, 6)
    assert left_out_of(tmp_path / "out") == {"cat/9.jpg": "unreadable"}
    assert fastfeed.verify(tmp_path / "out").ok
    again = packed(source, tmp_path / "out", on_error="skip")
    assert again.already_packed and again.skipped == 1 and again.datasets == result.datasets


def test_what_is_left_out_of_a_split_is_listed_with_it(tmp_path):
    source = make_photos(tmp_path / "s" / "train").parent
    make_photos(source / "val")
    tree(source, {"val/cat/.DS_Store": "x", "README.md": "x"})
    packed(source, tmp_path / "out")
    assert left_out_of(tmp_path / "out" / "train") == {"README.md": "beside"}
    assert left_out_of(tmp_path / "out" / "val") == {"val/cat/.DS_Store": "system"}


def test_a_skip_list_of_another_source_is_refused_and_leaves_no_trace(tmp_path):
    source = make_captioned(tmp_path / "s", 3)
    skip = SkipList([SkipEntry(source="s/001.jpg")])
    for dry_run in (True, False):
        with pytest.raises(UsageError, match=r"the skip list \(1 entry\) matches no sample of this source.*got s/001.jpg"):
            packed(source, tmp_path / "out", exclude=skip, dry_run=dry_run)
    assert not (tmp_path / "out").exists()


CODE = (
    "import fastfeed, sys, json; r = fastfeed.pack(*sys.argv[1:3], **json.loads(sys.argv[3])); print(r.skipped, r.datasets[0])"
)


@pytest.mark.long
@pytest.mark.parametrize("what", ["file", "folder"])
def test_no_permission(tmp_path, what):
    source = tree(tmp_path / "s", {f"{at}/{at}.txt": "x" for at in range(4)})
    closed = source / "2" / "2.txt" if what == "file" else source / "2"
    closed.chmod(0)
    name = str(closed.relative_to(source))
    try:
        stopped_run, skipped, again = (
            python_without_privileges(CODE, str(source), str(tmp_path / f"out-{on_error}"), json.dumps({"on_error": on_error}))
            for on_error in ("stop", "skip", "skip")
        )
    finally:
        closed.chmod(0o700)
    assert stopped_run.returncode == 1
    assert f"1 source file cannot be read ({name}: Permission denied)" in stopped_run.stderr
    assert (skipped.returncode, skipped.stdout.split()[0]) == (0, "1"), skipped.stderr
    assert again.stdout == skipped.stdout  # a pack that is done says the same of itself
    assert left_out_of(tmp_path / "out-skip")[name] == "unreadable"
    assert len(read_back(tmp_path / "out-skip")) == 3
    assert fastfeed.verify(tmp_path / "out-skip").ok


def test_a_file_that_is_written_to_while_it_is_read_is_noticed(tmp_path):
    """Larger than one piece, changed after its first piece was read: size and mtime are proven at the end as well."""
    (tmp_path / "src").mkdir()
    path = tmp_path / "src" / "a.dat"
    path.write_bytes(bytes(96 << 20))
    stop = threading.Event()

    def write() -> None:
        job = tmp_path / "out" / ".fastfeed" / "job"
        while not stop.is_set() and not list(job.glob("*.part")):
            time.sleep(0.001)
        with open(path, "r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(b"x")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        with pytest.raises(SourceChanged, match=r"a\.dat: planned with .* now"):
            fastfeed.pack(tmp_path / "src", tmp_path / "out")
    finally:
        stop.set()
        writer.join()


def test_a_time_beyond_all_clocks_is_refused_by_name(tmp_path):
    source = make_photos(tmp_path / "photos")
    os.utime(source / "cat" / "000.jpg", ns=(0, (1 << 63) + 10))
    if (source / "cat" / "000.jpg").stat().st_mtime_ns < 1 << 63:
        pytest.skip("this file system cannot hold such a time")
    with pytest.raises(SourceUnreadable, match=r"beyond the year 2262 .*cat/000\.jpg"):
        fastfeed.pack(source, tmp_path / "out")


def test_a_stranger_in_the_working_directory_is_not_imported(tmp_path):
    source = make_photos(tmp_path / "photos")
    (tmp_path / "queue.py").write_text("raise SystemExit('a stranger')\n")
    code = "import fastfeed, sys; fastfeed.pack(sys.argv[1], 'out')"
    command = [sys.executable, "-P", "-c", code, str(source)]
    environment = {**os.environ, "PYTHONPATH": package_folder()}
    done = subprocess.run(command, cwd=tmp_path, env=environment, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_names_need_utf_8(tmp_path):
    source = make_photos(tmp_path / "photos")
    code = "import fastfeed, sys; fastfeed.pack(sys.argv[1], sys.argv[2])"
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONPATH": package_folder()}
    command = [sys.executable, "-c", code, str(source), str(tmp_path / "out")]
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    assert "UsageError: Python takes file names as ascii here: expected utf-8. Set PYTHONUTF8=1" in done.stderr
    assert not (tmp_path / "out").exists()
