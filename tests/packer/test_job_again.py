"""A pack that is run again: finished, interrupted, changed in between, or to be replaced."""

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
from typing import Any

import pytest
from helpers import files_below, make_photos, packed
from packing import (
    Hook,
    Interrupt,
    interrupt_after,
    stopped,
    tree,
)

import fastfeed
from fastfeed.errors import (
    DestinationOccupied,
    SourceChanged,
    SourceUnreadable,
)
from fastfeed.sample import SkipEntry, SkipList

# -------------------------------------------------------------------------------------------------- again, and resumed


def test_packing_again_finds_it_done(tmp_path):
    source = make_photos(tmp_path / "s")
    first = packed(source, tmp_path / "out", shards=2)
    before = files_below(tmp_path / "out")
    again = packed(source, tmp_path / "out", shards=2)
    assert again.already_packed and (again.shards_written, again.shards_kept) == (0, 2)
    assert again.datasets == first.datasets
    assert files_below(tmp_path / "out") == before


def test_an_interrupted_pack_continues_with_the_same_bytes(tmp_path):
    source = stopped(tmp_path)
    done = len(list((tmp_path / "out").glob("*.tar")))
    assert 3 <= done < 8
    with pytest.raises(fastfeed.DatasetError, match=r"has not finished.*it continues"):
        fastfeed.open(tmp_path / "out")
    hook = Hook()
    result = packed(source, tmp_path / "out", samples_per_shard=1, progress=hook)
    assert (result.shards_kept, result.shards_written) == (done, 8 - done)
    assert hook.stages[1] == ("pack", 8 - done, 6 * (8 - done))
    packed(source, tmp_path / "straight", samples_per_shard=1)
    assert files_below(tmp_path / "out") == files_below(tmp_path / "straight")


def test_a_kept_scan_can_be_trusted(tmp_path):
    source = stopped(tmp_path)
    hook = Hook()
    packed(source, tmp_path / "out", samples_per_shard=1, trust_scan=True, progress=hook)
    assert [stage for stage, _, _ in hook.stages] == ["pack"]
    packed(source, tmp_path / "straight", samples_per_shard=1)
    assert files_below(tmp_path / "out") == files_below(tmp_path / "straight")


CHANGES = {
    "new.txt is new": lambda source: (source / "new.txt").write_text("n"),
    "7.txt is gone": lambda source: (source / "7.txt").unlink(),
    "7.txt had 6 bytes and has 9": lambda source: (source / "7.txt").write_text("text 7..."),
    r"7.txt was touched \(mtime\)": lambda source: os.utime(source / "7.txt", ns=(1, 99)),
    "0.txt is gone; 00.txt is new": lambda source: (source / "0.txt").rename(source / "00.txt"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_source_is_refused_by_name(tmp_path, change):
    source = stopped(tmp_path)
    before = files_below(tmp_path / "out")
    CHANGES[change](source)
    way_out = r"--overwrite\. What is gone can be left out: .*" if change == "7.txt is gone" else r"--overwrite\.$"
    match = f"the source has changed since this pack began: {change}.*{way_out}"
    with pytest.raises(SourceChanged, match=match):
        packed(source, tmp_path / "out", samples_per_shard=1)
    assert files_below(tmp_path / "out") == before  # nothing lost
    packed(source, tmp_path / "out", samples_per_shard=1, overwrite=True)
    packed(source, tmp_path / "straight", samples_per_shard=1)
    assert files_below(tmp_path / "out") == files_below(tmp_path / "straight")


def test_a_folder_that_came_or_went_is_a_change_by_name(tmp_path):
    source = stopped(tmp_path, layout="files")
    (source / "new").mkdir()
    with pytest.raises(SourceChanged, match="the source has changed since this pack began: folder new is new"):
        packed(source, tmp_path / "out", samples_per_shard=1, layout="files")
    packed(source, tmp_path / "out", samples_per_shard=1, layout="files", overwrite=True)
    (source / "new").rmdir()
    with pytest.raises(SourceChanged, match="the source has changed since it was packed"):
        packed(source, tmp_path / "out", samples_per_shard=1, layout="files")
    (source / "old").mkdir()
    options = {"samples_per_shard": 1, "layout": "files", "overwrite": True}
    with pytest.raises(Interrupt, match="enough is written"):
        packed(source, tmp_path / "out", progress=interrupt_after(3), **options)
    (source / "old").rename(source / "other")
    match = "the source has changed since this pack began: folder old is gone; folder other is new"
    with pytest.raises(SourceChanged, match=match):
        packed(source, tmp_path / "out", samples_per_shard=1, layout="files")


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_source_of_a_finished_pack_is_refused(tmp_path, change):
    source = tree(tmp_path / "s", {f"{at}.txt": f"text {at}" for at in range(8)})
    packed(source, tmp_path / "out")
    before = files_below(tmp_path / "out")
    CHANGES[change](source)
    with pytest.raises(SourceChanged, match=r"the source has changed since it was packed.*--overwrite"):
        packed(source, tmp_path / "out")
    assert files_below(tmp_path / "out") == before
    assert fastfeed.verify(tmp_path / "out").ok


EXCLUDED = hashlib.sha256(SkipEntry(key="1").to_json().encode()).hexdigest()[:16]
OTHER_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"samples_per_shard": 2}, "--samples-per-shard was 1, now 2"),
    ({"shard_bytes": 32 << 20}, "--shard-size was 512.0 MiB, now 32.0 MiB"),
    ({"shuffle": 1}, "--shuffle was not given, now 1"),
    ({"limit": 4}, "--limit was not given, now 4"),
    ({"name": "other"}, "--name was s, now other"),
    ({"write_cls": False}, "--cls was True, now False"),
    ({"group": "none"}, "--group was auto, now none"),
    ({"layout": "files"}, "--layout was auto, now files"),
    ({"hidden": True}, "--hidden was False, now True"),
    ({"class_map": "union"}, "--class-map was equal, now union"),
    ({"exclude": SkipList([SkipEntry(key="1")])}, f"--exclude was not given, now {EXCLUDED}"),
    ({"shuffle": 1, "limit": 4}, "--limit was not given, now 4; --shuffle was not given, now 1"),
]


@pytest.mark.parametrize(("other", "change"), OTHER_OPTIONS, ids=["-".join(other) for other, _ in OTHER_OPTIONS])
def test_other_options_are_refused_by_name(tmp_path, other, change):
    source = stopped(tmp_path)
    hint = r".*Give the same options, choose another folder, or use --overwrite to pack anew\."
    match = re.escape(f" pack with other options is there ({change})") + hint
    with pytest.raises(DestinationOccupied, match="an unfinished" + match):
        packed(source, tmp_path / "out", **{"samples_per_shard": 1, **other})
    packed(source, tmp_path / "out", samples_per_shard=1)
    before = files_below(tmp_path / "out")
    with pytest.raises(DestinationOccupied, match="a finished" + match):
        packed(source, tmp_path / "out", **{"samples_per_shard": 1, **other})
    assert files_below(tmp_path / "out") == before
    assert fastfeed.verify(tmp_path / "out").ok


def test_another_writers_version_is_refused(tmp_path):
    source = stopped(tmp_path)
    job = tmp_path / "out" / ".fastfeed" / "job" / "job.json"
    job.write_text(json.dumps({**json.loads(job.read_text()), "writer": 0}))
    with pytest.raises(DestinationOccupied, match="an unfinished pack by another version of the writer"):
        packed(source, tmp_path / "out", samples_per_shard=1)


def test_killed_before_its_options_were_kept(tmp_path):
    source = stopped(tmp_path)
    (tmp_path / "out" / ".fastfeed" / "job" / "job.json").unlink()  # the scan is kept first
    with pytest.raises(Interrupt, match="enough is written"):
        packed(source, tmp_path / "out", samples_per_shard=1, progress=interrupt_after(1))
    with pytest.raises(DestinationOccupied, match=r"other options is there \(--shuffle was not given, now 1\)"):
        packed(source, tmp_path / "out", samples_per_shard=1, shuffle=1)


def test_on_error_may_be_decided_anew_for_an_unfinished_pack(tmp_path):
    """As the error of an unreadable file advises: what is finished is kept."""
    source = make_photos(tmp_path / "photos")
    kept = fastfeed.pack(source, tmp_path / "undisturbed", shards=3, on_error="skip")
    assert kept.skipped == 0

    def vanish(_: object) -> None:
        (source / "dog" / "001.jpg").rename(tmp_path / "away.jpg")

    with pytest.raises(SourceUnreadable, match=r"dog/001\.jpg.*leave their samples out with --on-error skip --trust-scan\."):
        fastfeed.pack(source, tmp_path / "out", shards=3, on_plan=vanish)
    with pytest.raises(SourceChanged, match=r"dog/001\.jpg is gone .* can be left out: --on-error skip --trust-scan\.$"):
        fastfeed.pack(source, tmp_path / "out", shards=3, on_error="skip")
    result = fastfeed.pack(source, tmp_path / "out", shards=3, on_error="skip", trust_scan=True)
    assert (result.skipped, result.datasets[0].samples) == (1, 5)
    assert fastfeed.verify(tmp_path / "out").ok


@pytest.mark.long
def test_overwrite_that_is_killed_is_ended_by_the_next_run(tmp_path):
    """At each removal and rename in turn: no old shard is left behind, and the bytes are those of an undisturbed run."""
    source = make_photos(tmp_path / "photos")
    fastfeed.pack(source, tmp_path / "right", shards=1)
    code = (
        "import os, sys\n"
        "left = [int(sys.argv[1])]\n"
        "def hook(event, _):\n"
        "    if event in {'os.remove', 'os.rename', 'os.rmdir', 'shutil.rmtree'}:\n"
        "        left[0] -= 1\n"
        "        if left[0] == 0: os.kill(os.getpid(), 9)\n"
        "sys.addaudithook(hook)\n"
        "import fastfeed\n"
        "fastfeed.pack(sys.argv[2], sys.argv[3], shards=1, overwrite=True)\n"
    )
    kills = 0
    for number in range(1, 60, 3):
        out = tmp_path / f"out{number}"
        fastfeed.pack(source, out, shards=4)
        done = subprocess.run(
            [sys.executable, "-c", code, str(number), str(source), str(out)], check=False, capture_output=True
        )
        kills += done.returncode == -signal.SIGKILL
        fastfeed.pack(source, out, shards=1, overwrite=True)
        assert fastfeed.verify(out).ok, number
        assert files_below(out) == files_below(tmp_path / "right")
        if done.returncode == 0:
            break
    assert kills > 3


def test_overwrite_without_room_leaves_the_old_pack(tmp_path, monkeypatch):
    """The room is counted before anything is removed (a real full disk is in test_writing)."""
    from fastfeed.packer import writing

    source = make_photos(tmp_path / "photos")
    fastfeed.pack(source, tmp_path / "out", shards=2)
    before = files_below(tmp_path / "out")
    monkeypatch.setattr(writing, "free_bytes", lambda folder: -(1 << 40))
    with pytest.raises(fastfeed.DestinationError, match="there is not enough space, even without what --overwrite replaces"):
        fastfeed.pack(source, tmp_path / "out", shards=3, overwrite=True)
    assert {name: raw for name, raw in files_below(tmp_path / "out").items() if "/job/" not in name} == before


def test_a_finished_pack_that_lost_a_shard_is_not_called_done(tmp_path):
    source = make_photos(tmp_path / "photos")
    result = fastfeed.pack(source, tmp_path / "out", shards=2)
    (tmp_path / "out" / f"{result.datasets[0].name}-000001.tar").unlink()
    with pytest.raises(fastfeed.DatasetError, match="a shard cannot be found"):
        fastfeed.pack(source, tmp_path / "out", shards=2)


def test_shards_that_nobody_names_are_not_replaced(tmp_path):
    source = make_photos(tmp_path / "photos")
    fastfeed.pack(source, tmp_path / "out", shards=2)
    (tmp_path / "out" / ".fastfeed" / "manifest.json").unlink()
    before = files_below(tmp_path / "out")
    for overwrite in (False, True):
        with pytest.raises(
            fastfeed.DestinationError, match="is there already, and no manifest and no unfinished pack names it"
        ):
            fastfeed.pack(source, tmp_path / "out", shards=3, overwrite=overwrite)
        assert files_below(tmp_path / "out") == before
