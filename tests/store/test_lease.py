"""Caches that are made, joined and left by real processes, some of which are killed."""

import gc
import os
import resource
import signal
from pathlib import Path

import pytest
from caching import NAME, OTHER, caches_in, folder_of, other_process

from fastfeed.store.cachefolder import CacheUnusable
from fastfeed.store.lease import Lease, read_about

HOLDS = """
import sys
from fastfeed.store.lease import Lease
lease = Lease(sys.argv[1], sys.argv[2], 8, about={}, keep=len(sys.argv) > 3)
print("ready", flush=True)
sys.stdin.read()
"""


def joined(place: Path, name: str = NAME, entries: int = 8, **options: bool) -> Lease:
    return Lease(str(place), name, entries, about={"of": "photos"}, **options)


def test_it_goes_with_its_last_lease_and_nothing_is_left(tmp_path: Path):
    first, second = joined(tmp_path), joined(tmp_path)
    assert read_about(first.folder, NAME)["of"] == "photos"
    first.close()
    assert caches_in(tmp_path) == [NAME]
    second.close()
    assert not list(tmp_path.iterdir())
    second.close()  # again is as once


def test_it_goes_with_the_object(tmp_path: Path):
    lease = joined(tmp_path)
    assert caches_in(tmp_path) == [NAME]
    del lease
    assert not list(tmp_path.iterdir())


def test_files_are_this_users_alone(tmp_path: Path):
    lease = joined(tmp_path)
    cache = folder_of(tmp_path) / NAME
    assert cache.stat().st_mode & 0o7777 == 0o700
    assert {file.name: file.stat().st_mode & 0o7777 for file in cache.iterdir()} == dict.fromkeys(
        ("about", "data", "table"), 0o600
    )
    lease.close()


def test_when_descriptors_run_out_none_is_left_open_and_nothing_is_removed(tmp_path: Path):
    joined(tmp_path, keep=True).close()
    made = (folder_of(tmp_path) / NAME).stat().st_ino
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = set(os.listdir("/proc/self/fd"))
    free = [number for number in range(len(before) + 12) if str(number) not in before]
    outcomes = []
    try:
        for limit in free[:12]:  # none is left, one, two, and so on
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
            try:
                joined(tmp_path).close()
                outcomes.append(True)
            except CacheUnusable:
                outcomes.append(False)
            gc.collect()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert set(os.listdir("/proc/self/fd")) == before
    assert outcomes[0] is False and outcomes[-1] is True
    assert (folder_of(tmp_path) / NAME).stat().st_ino == made


def test_kept_ones_stay(tmp_path: Path):
    joined(tmp_path, keep=True).close()
    assert caches_in(tmp_path) == [NAME]
    joined(tmp_path, OTHER).close()
    assert caches_in(tmp_path) == [NAME]
    joined(tmp_path).close()  # whoever asks for keeping once, has asked for all
    assert caches_in(tmp_path) == [NAME]


def test_another_process_holds_it(tmp_path: Path):
    with other_process(HOLDS, tmp_path, NAME) as process:
        joined(tmp_path).close()
        assert caches_in(tmp_path) == [NAME]
        process.communicate()
    assert process.returncode == 0
    assert not list(tmp_path.iterdir())


def test_what_a_killed_process_leaves_is_swept_by_the_next(tmp_path: Path):
    with other_process(HOLDS, tmp_path, NAME) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert caches_in(tmp_path) == [NAME]
    lease = joined(tmp_path, OTHER)
    assert caches_in(tmp_path) == [OTHER]
    lease.close()
    assert not list(tmp_path.iterdir())


def test_what_a_killed_process_has_fetched_is_used_by_the_next_of_the_same_data(tmp_path: Path):
    with other_process(HOLDS, tmp_path, NAME) as process:
        (folder_of(tmp_path) / NAME / "data").write_bytes(b"fetched")
        process.send_signal(signal.SIGKILL)
        process.wait()
    lease = joined(tmp_path)
    assert os.pread(lease.data, 100, 0) == b"fetched"
    lease.close()
    assert not list(tmp_path.iterdir())


def test_a_forked_child_has_no_lease_and_what_was_open_stays_readable(tmp_path: Path):
    lease = joined(tmp_path)
    os.pwrite(lease.data, b"content", 0)
    begin, ended = os.pipe(), os.pipe()
    child = os.fork()
    if not child:  # it outlives its parent's lease, as a worker of a parent that was killed
        os.close(begin[1])
        os.read(begin[0], 1)
        os.write(ended[1], os.pread(lease.data, 100, 0))
        os._exit(0)
    lease.close()
    left = caches_in(tmp_path)
    os.write(begin[1], b"x")
    assert os.read(ended[0], 100) == b"content" and os.waitpid(child, 0)[1] == 0
    assert not left
    for descriptor in (*begin, *ended):
        os.close(descriptor)


def test_a_child_that_ends_does_not_remove_it(tmp_path: Path):
    lease = joined(tmp_path)
    child = os.fork()
    if not child:
        lease.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert caches_in(tmp_path) == [NAME]
    lease.close()


def test_a_guest_makes_nothing_and_removes_nothing(tmp_path: Path):
    with pytest.raises(CacheUnusable):
        joined(tmp_path, guest=True)
    assert not list(tmp_path.iterdir())
    lease = joined(tmp_path)
    joined(tmp_path, guest=True).close()
    assert caches_in(tmp_path) == [NAME]
    guest = joined(tmp_path, guest=True)
    lease.close()
    assert not list(tmp_path.iterdir())
    guest.close()


@pytest.mark.parametrize("damage", ["about", "table", "data", "size", "words", "list"])
def test_a_cache_that_is_not_complete_is_made_anew(tmp_path: Path, damage):
    joined(tmp_path, keep=True).close()
    cache = folder_of(tmp_path) / NAME
    os.unlink(cache / "keep")
    (cache / "data").write_bytes(b"old")
    if damage == "size":
        os.truncate(cache / "table", 32)
    elif damage in {"words", "list"}:
        (cache / "about").write_text("[]" if damage == "list" else "{")
    else:
        os.unlink(cache / damage)
    lease = joined(tmp_path)
    assert os.fstat(lease.data).st_size == 0 and os.fstat(lease.table).st_size == 8 * 32
    lease.close()


def test_a_damaged_one_in_use_is_left_alone(tmp_path: Path):
    lease = joined(tmp_path)
    os.unlink(folder_of(tmp_path) / NAME / "about")
    with pytest.raises(CacheUnusable, match="is damaged, and in use"):
        joined(tmp_path)
    lease.close()
    assert not list(tmp_path.iterdir())


def test_a_link_in_the_place_of_a_file_is_not_followed(tmp_path: Path):
    lease = joined(tmp_path)
    (tmp_path / "victim").write_bytes(b"precious")
    cache = folder_of(tmp_path) / NAME
    os.unlink(cache / "data")
    (cache / "data").symlink_to(tmp_path / "victim")
    with pytest.raises(CacheUnusable, match="symbolic link"):
        joined(tmp_path)
    lease.close()
    assert (tmp_path / "victim").read_bytes() == b"precious"


def test_many_processes_come_and_go_at_once(tmp_path: Path):
    script = (
        "import sys\nfrom fastfeed.store.lease import Lease\nprint('ready', flush=True)\n"
        "for _ in range(30):\n    lease = Lease(sys.argv[1], sys.argv[2], 8, about={})\n    lease.close()\n"
    )
    with other_process(script, tmp_path, NAME) as one, other_process(script, tmp_path, OTHER) as two:
        for _ in range(30):
            joined(tmp_path).close()
        assert (one.wait(60), two.wait(60)) == (0, 0)
    assert not list(tmp_path.iterdir())
