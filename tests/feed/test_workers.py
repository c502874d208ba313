import gc
import os
import resource
import signal
import subprocess
import sys
import time

import pytest
import torch
from loading import remains

from fastfeed.feed.loader import DataLoader
from fastfeed.feed.workers import DONE, NOT_BEGUN, WHOLE, Workers, ended


def test_whereabouts():
    workers = Workers(2)
    assert workers.at(0) == (NOT_BEGUN, NOT_BEGUN) and workers.busy_seconds(0) is None
    workers.whereabouts.begun(1, listens=False)
    workers.whereabouts.begin(1, 5)
    assert workers.at(1) == (5, WHOLE) and (workers.busy_seconds(1) or 0.0) >= 0
    workers.whereabouts.at(1, 3)
    assert workers.at(1) == (5, 3)
    workers.whereabouts.at(1, DONE)
    assert workers.busy_seconds(1) is None
    assert workers.pid_of(1) == os.getpid() and workers.worker_of(os.getpid()) == 1 and workers.worker_of(1) is None


def test_another_process_writes_into_the_table():
    workers = Workers(1)
    context = torch.multiprocessing.get_context("fork")
    process = context.Process(target=workers.whereabouts.begin, args=(0, 9))
    process.start()
    process.join()
    assert workers.at(0) == (9, WHOLE)


class Counting(torch.utils.data.Dataset[int]):
    """Tells how many objects the garbage collector of its process leaves alone."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        return gc.get_freeze_count()


class CountingStream(torch.utils.data.IterableDataset[int]):
    """The same, of a stream."""

    def __iter__(self):
        yield gc.get_freeze_count()


@pytest.mark.parametrize("dataset", [Counting(), CountingStream()], ids=["map", "stream"])
def test_a_worker_does_not_copy_the_memory_it_was_forked_with_by_collecting_garbage(dataset):
    known, before = len(gc.get_objects()), gc.get_freeze_count()  # of some versions Python has frozen a few itself
    for frozen in DataLoader(dataset, batch_size=1, num_workers=1, multiprocessing_context="fork"):
        assert int(frozen[0]) > known // 2
    assert gc.get_freeze_count() == before, "in this process nothing has changed"


def test_where_descriptors_run_out_none_is_kept():
    gc.collect()
    before, (soft, hard) = remains()["stacks"], resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 12, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            Workers(500)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    gc.collect()
    assert remains()["stacks"] == before


def test_how_processes_ended():
    def end(code):
        process = subprocess.Popen([sys.executable, "-c", code])
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        told = ended(process.pid)
        process.wait()
        return told

    assert end("import sys; sys.exit(3)") == "ended with exit code 3"
    assert end(f"import os; os.kill(os.getpid(), {signal.SIGKILL})") == "was killed by SIGKILL"
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        assert ended(process.pid) is None
        process.kill()


@pytest.mark.long
def test_a_worker_is_asked_for_its_stack():
    workers = Workers(1)
    with subprocess.Popen(
        [sys.executable, "-c", _SLEEPER.format(path=workers.stack_paths[0])], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        workers.whereabouts.rows[0, 3:] = process.pid, 1
        stack = workers.stack_of(0)
        process.kill()
    assert "Its stack, most recent call first:" in stack and "in hanging" in stack
    assert workers.stack_of(0) == ""  # it has ended


def test_no_stack_of_who_does_not_listen():
    workers = Workers(1, stacks=False)
    workers.whereabouts.begun(0, listens=True)
    assert workers.stack_paths == [] and workers.stack_of(0) == ""


def test_descriptors_are_given_back():
    def count():
        return len(os.listdir("/proc/self/fd"))

    Workers(1)
    before = count()
    for _ in range(20):
        Workers(3)
    deadline = time.monotonic() + 5
    while count() > before + 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert count() <= before + 3


_SLEEPER = """
import time
from fastfeed.feed.workers import leave_stack_on_signal
leave_stack_on_signal({path!r})
def hanging():
    print("ready", flush=True)
    time.sleep(60)
hanging()
"""


def test_what_a_worker_has_made():
    workers, now = Workers(1), time.monotonic_ns()
    assert not workers.has_made(0, 0, now)
    workers.whereabouts.begin(0, 3)
    assert [workers.has_made(batch, 0, now) for batch in (2, 3)] == [True, False]
    workers.whereabouts.at(0, DONE)
    assert workers.has_made(3, 0, now) and not workers.has_made(4, 0, now)
    assert not workers.has_made(2, 0, time.monotonic_ns() + 1)  # the batch is one of another pass
