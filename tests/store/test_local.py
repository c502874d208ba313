"""fastfeed/store/local.py: real files, many of them, over forks, threads and pickles."""

import errno
import os
import pickle
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from fastfeed.errors import ShardDamaged
from fastfeed.store.base import Range
from fastfeed.store.local import MAXOPEN_FILES, OPEN_FILES, LocalStore


def content(number: int) -> bytes:
    return f"shard number {number:06d} ".encode() * 50


@pytest.fixture
def folder(tmp_path):
    """A folder of more shards than a store keeps open."""
    for number in range(MAXOPEN_FILES + 40):
        (tmp_path / f"s-{number:06d}.tar").write_bytes(content(number))
    return tmp_path


def open_below(folder) -> int:
    """How many descriptors of this process are files of a folder."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            count += os.readlink(f"/proc/self/fd/{name}").startswith(str(folder))
        except OSError as error:  # the descriptor of the listing itself is gone by now
            if error.errno != errno.ENOENT:
                raise
    return count


def in_child(task) -> int:
    """Exit code of a forked child that runs a task: 0 if it gives True; a child that hangs is killed by SIGALRM."""
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        os._exit(0 if task() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def read(store: LocalStore, number: int) -> bytes:
    return store.read(f"s-{number:06d}.tar", 0, len(content(number)))


def test_descriptors_are_bounded_and_the_least_used_goes_first(folder):
    store = LocalStore(str(folder))
    for number in range(MAXOPEN_FILES + 40):
        assert read(store, number) == content(number)
        assert read(store, 0) == content(0)
    assert open_below(folder) == MAXOPEN_FILES
    (folder / "s-000000.tar").unlink()  # still open: it was used last
    assert read(store, 0) == content(0)
    (folder / "s-000001.tar").unlink()  # closed long ago
    with pytest.raises(ShardDamaged, match=r"a shard cannot be opened: No such file or directory .*shard s-000001.tar"):
        read(store, 1)


def test_a_store_that_goes_closes_its_files(folder):
    store = LocalStore(str(folder))
    for number in range(10):
        read(store, number)
    assert open_below(folder) == 10
    del store
    assert open_below(folder) == 0


def test_threads_share_a_store_while_files_are_closed_and_opened(folder):
    store = LocalStore(str(folder))

    def walk(step: int) -> bool:
        numbers = [(at * step) % (MAXOPEN_FILES + 40) for at in range(1, 500)]
        return all(read(store, number) == content(number) for number in numbers)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(walk, (1, 5, 11, 13, 17, 19, 23, 29)))
    assert open_below(folder) <= MAXOPEN_FILES


def test_a_forked_child_reads_on_with_the_parents_descriptors(folder):
    store = LocalStore(str(folder))
    read(store, 3)
    assert in_child(lambda: read(store, 3) == content(3) and read(store, 4) == content(4)) == 0
    assert read(store, 3) == content(3)


def test_a_fork_while_another_thread_holds_the_lock(folder):
    """The child has no such thread, and would wait for ever."""
    store, held, done = LocalStore(str(folder)), threading.Event(), threading.Event()

    def hold() -> None:
        with OPEN_FILES._lock:
            held.set()
            done.wait(20)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert held.wait(10)
        assert in_child(lambda: read(store, 5) == content(5)) == 0
    finally:
        done.set()
        thread.join()
    assert read(store, 5) == content(5)


def test_a_pickled_store_is_its_folder(folder):
    store = LocalStore(str(folder))
    read(store, 7)
    raw = pickle.dumps(store)
    assert len(raw) < 300
    before = open_below(folder)
    again = pickle.loads(raw)
    assert open_below(folder) == before
    assert again.root == store.root
    assert read(again, 7) == content(7)


def test_a_shard_that_is_cut_while_it_is_open(folder):
    store = LocalStore(str(folder))
    read(store, 2)
    os.truncate(folder / "s-000002.tar", 100)
    size = len(content(2))
    text = rf"it was cut \(.*s-000002.tar, shard s-000002.tar, bytes \[0, {size}\)\): expected {size}, got 100"
    with pytest.raises(ShardDamaged, match=text + ".*Run fastfeed verify"):
        read(store, 2)
    with pytest.raises(ShardDamaged, match=text):
        store.read_many([Range("s-000002.tar", 0, size, memoryview(bytearray(size)))])
    assert store.size("s-000002.tar") == 100


def test_a_shard_that_cannot_be_read_names_its_range(tmp_path):
    (tmp_path / "bad.tar").symlink_to("/proc/self/mem")  # a regular file whose first page gives an I/O error
    store = LocalStore(str(tmp_path))
    text = r"a shard cannot be read: Input/output error .*shard bad.tar, bytes \[10, 30\)\)"
    with pytest.raises(ShardDamaged, match=text):
        store.read("bad.tar", 10, 30)
    with pytest.raises(ShardDamaged, match=text):
        store.read_many([Range("bad.tar", 10, 30, memoryview(bytearray(20)))])


def test_a_fifo_in_a_shards_place_is_an_error_and_no_wait(tmp_path):
    os.mkfifo(tmp_path / "fifo.tar")
    with pytest.raises(ShardDamaged, match="a shard cannot be opened: not a regular file"):
        LocalStore(str(tmp_path)).read("fifo.tar", 0, 1)


def test_a_large_range_comes_whole(tmp_path):
    raw = os.urandom(1 << 20) * 9
    (tmp_path / "large.tar").write_bytes(raw)
    store = LocalStore(str(tmp_path))
    assert store.read("large.tar", 1, len(raw)) == raw[1:]
    buffer = bytearray(len(raw) - 1)
    store.read_many([Range("large.tar", 1, len(raw), memoryview(buffer))])
    assert buffer == raw[1:]


def test_a_name_in_a_folder_below(tmp_path):
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "s.tar").write_bytes(b"below")
    assert LocalStore(str(tmp_path)).read("train/s.tar", 0, 5) == b"below"
