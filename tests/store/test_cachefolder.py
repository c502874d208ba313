"""The folder of a user's caches: nobody else's is used, whoever lays it there and however."""

import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from caching import NAME, OTHER, caches_in, folder_of

from fastfeed.store import cachefolder
from fastfeed.store.cachefolder import CacheFolder, CacheUnusable, lock


def made(place: Path, name: str, *, keep: bool = False) -> Path:
    """A cache of some bytes, without a lease."""
    cache = folder_of(place) / name
    cache.mkdir(mode=0o700, parents=True)
    (cache / "data").write_bytes(bytes(10_000))
    if keep:
        (cache / "keep").touch()
    return cache


def test_it_is_made_for_this_user_alone(tmp_path: Path):
    folder = CacheFolder(str(tmp_path))
    facts = os.stat(folder.path)
    assert (facts.st_mode & 0o7777, facts.st_uid) == (0o700, os.geteuid())
    assert CacheFolder(str(tmp_path)).path == folder.path == str(folder_of(tmp_path))


def test_none_is_made_unless_asked_for(tmp_path: Path):
    with pytest.raises(FileNotFoundError):
        CacheFolder(str(tmp_path), make=False)
    assert not list(tmp_path.iterdir())
    with pytest.raises(CacheUnusable, match="there is no folder"):
        CacheFolder(str(tmp_path / "nowhere"))


@pytest.mark.parametrize("mode", [0o701, 0o710, 0o755, 0o777, 0o1777])
def test_a_folder_that_others_may_enter_is_not_used(tmp_path: Path, mode):
    folder_of(tmp_path).mkdir()
    folder_of(tmp_path).chmod(mode)
    with pytest.raises(CacheUnusable, match="may be entered by others"):
        CacheFolder(str(tmp_path))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_a_folder_of_another_user_is_not_used(tmp_path: Path):
    folder_of(tmp_path).mkdir(mode=0o700)
    os.chown(folder_of(tmp_path), 12345, 12345)
    with pytest.raises(CacheUnusable, match="belongs to another user"):
        CacheFolder(str(tmp_path))


def test_links_and_files_in_its_place_are_not_used(tmp_path: Path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    folder_of(tmp_path).symlink_to(elsewhere)
    with pytest.raises(CacheUnusable, match="it is a link, or no folder"):
        CacheFolder(str(tmp_path))
    assert not list(elsewhere.iterdir())
    folder_of(tmp_path).unlink()
    folder_of(tmp_path).write_text("")
    with pytest.raises(CacheUnusable, match="it is a link, or no folder"):
        CacheFolder(str(tmp_path))
    with pytest.raises(CacheUnusable, match=rf"^{folder_of(tmp_path)} cannot be used: it is no folder"):
        CacheFolder(str(folder_of(tmp_path)))


def test_a_folder_that_is_exchanged_later_is_not_followed(tmp_path: Path):
    made(tmp_path, NAME)
    folder_of(tmp_path).chmod(0o700)
    folder = CacheFolder(str(tmp_path))
    folder_of(tmp_path).rename(tmp_path / "moved")
    made(tmp_path, OTHER)
    assert folder.names() == [NAME]


def test_a_link_in_it_is_no_cache(tmp_path: Path):
    folder = CacheFolder(str(tmp_path))
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "data").write_text("precious")
    (folder_of(tmp_path) / NAME).symlink_to(tmp_path / "victim")
    with pytest.raises(NotADirectoryError):
        folder.open(NAME)
    with pytest.raises(OSError, match="symbolic link"):
        folder.remove(NAME)
    assert (tmp_path / "victim" / "data").read_text() == "precious"


def test_sweeping_removes_what_nobody_uses_or_keeps(tmp_path: Path):
    folder = CacheFolder(str(tmp_path))
    for name, keep in ((NAME, False), (OTHER, True), ("0" * 32, False), ("1" * 32, False)):
        made(tmp_path, name, keep=keep)
    (folder_of(tmp_path) / "something else").touch()
    used = folder.open("0" * 32)
    assert lock(used, fcntl.LOCK_SH, 0)
    with folder.locked():
        assert folder.sweep(but="1" * 32) == [NAME]
    assert caches_in(tmp_path) == ["0" * 32, "1" * 32, OTHER, "something else"]
    os.close(used)
    with folder.locked():
        assert folder.sweep() == ["0" * 32, "1" * 32]
        folder.remove_empty()
    assert folder_of(tmp_path).exists()


def test_bytes_are_those_of_the_file_system(tmp_path: Path):
    folder = CacheFolder(str(tmp_path))
    cache = made(tmp_path, NAME)
    (cache / "table").write_bytes(b"")
    os.truncate(cache / "table", 1 << 30)  # sparse
    assert folder.used_bytes() == folder.size_bytes(NAME) == os.stat(cache / "data").st_blocks * 512 > 0
    assert folder.size_bytes(OTHER) == 0


def test_one_at_a_time_and_a_thread_may_enter_twice(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(cachefolder, "LOCK_SECONDS", 0.05)
    folder, said = CacheFolder(str(tmp_path)), []

    def other() -> None:
        try:
            with CacheFolder(str(tmp_path)).locked():
                said.append("entered")
        except CacheUnusable as error:
            said.append(str(error))

    with folder.locked(), folder.locked():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert len(said) == 1 and "another process has held the lock" in said[0]
    with folder.locked():
        pass
    other()
    assert said[1:] == ["entered"]


def test_a_process_forked_while_it_was_locked_does_not_hold_it(tmp_path: Path):
    folder, begin = CacheFolder(str(tmp_path)), os.pipe()
    made(tmp_path, NAME)
    with folder.locked():
        child = os.fork()
        if not child:
            os.close(begin[1])
            os.read(begin[0], 1)
            os._exit(0)
    entered = []
    with CacheFolder(str(tmp_path)).locked():
        entered.append(folder.is_used(NAME))
    os.close(begin[1])
    assert os.waitpid(child, 0)[1] == 0
    assert entered == [False]
    os.close(begin[0])


REMOVES = """
import os, sys
print("ready", flush=True)
while True:
    try:
        os.rmdir(sys.argv[1])
    except FileNotFoundError:
        pass
"""


def test_a_folder_that_another_process_removes_all_the_while_is_made_again(tmp_path: Path):
    with subprocess.Popen([sys.executable, "-c", REMOVES, str(folder_of(tmp_path))], stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout is not None and other.stdout.readline() == b"ready\n"
            for _ in range(3000):
                CacheFolder(str(tmp_path))
        finally:
            other.kill()
