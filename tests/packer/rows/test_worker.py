import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest
from helpers import ROOT, packed
from packing import children_of, is_running, packing_process, wait_for
from rowsets import Samples, fields_of, proven

from fastfeed.errors import SourceUnreadable, WorkerDied
from fastfeed.packer.rows.worker import Forked

DATA = """
    import ctypes, os, signal, sys, time

    class Data:
        def __init__(self, at=-1, how=None):
            self.at, self.how = at, how
        def __len__(self):
            return 200
        def __getitem__(self, at):
            if at == self.at:  # none of those that are looked at before the plan
                self.how()
            return {"txt": f"{at} " * 500}

    def slow():
        return Data(4, lambda: time.sleep(60))
    def holds_the_lock():
        return Data(4, lambda: ctypes.PyDLL(None).usleep(4_000_000))
    def crashes():
        return Data(4, lambda: ctypes.string_at(0))
    def fine():
        return Data()
"""


@pytest.fixture
def source(tmp_path):
    (tmp_path / "data.py").write_text(textwrap.dedent(DATA))
    return str(tmp_path / "data.py")


ENDS = {
    "os._exit": (lambda: os._exit(7), "ended with exit code 7"),
    "segfault": (lambda: ctypes.string_at(0), "was killed by SIGSEGV"),
    "killed": (lambda: os.kill(os.getpid(), signal.SIGKILL), r"was killed by SIGKILL .*memory runs out"),
    "abort": (os.abort, "was killed by SIGABRT"),
}


class Ending(Samples):
    """Ends its process at a sample."""

    def __init__(self, count, at, how):
        super().__init__(range(count))
        self.at, self.how = at, how

    def __getitem__(self, at):
        if at == self.at:
            self.how()
        return {"txt": f"{at}"}


@pytest.mark.parametrize("name", ENDS)
def test_a_dataset_that_ends_its_process_is_named_with_its_sample(tmp_path, name):
    how, match = ENDS[name]
    with pytest.raises(WorkerDied) as caught:
        packed(Ending(200, 77, how), tmp_path / "out", shards=4, workers=2)
    said = " ".join(str(caught.value).split())
    assert re.search(match, said) and "it was reading sample 77)" in said
    assert "while it packed 50 samples from sample 50 to sample 99" in said and "it continues with this shard" in said
    assert not children_of(os.getpid())
    result = packed(Ending(200, -1, how), tmp_path / "out", shards=4, workers=2)
    assert result.shards_kept + result.shards_written == 4
    assert [fields["txt"] for fields in fields_of(tmp_path / "out")] == [str(at).encode() for at in range(200)]


def test_a_dataset_that_exits_is_a_sample_that_cannot_be_packed(tmp_path):
    dataset = Ending(200, 77, lambda: sys.exit("no more"))
    with pytest.raises(
        SourceUnreadable, match=r"1 sample cannot be packed \(sample 77: SystemExit: no more \(test_worker.py:\d+\)"
    ):
        packed(dataset, tmp_path / "out", shards=4, workers=2)
    assert packed(dataset, tmp_path / "out", shards=4, workers=2, on_error="skip").skipped == 1


def test_a_crash_is_told_with_its_place(tmp_path, source):
    with packing_process(f"{source}:crashes", tmp_path / "out") as process:
        said, _ = process.communicate(timeout=60)
    said = b" ".join(said.split())
    assert b"was killed by SIGSEGV" in said and b"Fatal Python error: Segmentation fault" in said
    assert re.search(rb'data.py", line \d+ in __getitem__.*it was reading sample 4\)', said)


def test_what_it_was_reading_where_many_are_asked_for_at_once(tmp_path):
    class Many(Ending):
        def __getitems__(self, numbers):
            return [self[at] for at in numbers]

    with pytest.raises(WorkerDied, match=r"it was reading samples from 64 to 127\)"):
        packed(Many(200, 77, lambda: os._exit(1)), tmp_path / "out")


@pytest.mark.parametrize("name", ["slow", "holds_the_lock"])
def test_no_fork_outlives_its_parent_nor_keeps_its_lock(tmp_path, source, name):
    """Also while the dataset's own code sleeps, or sleeps without letting any other thread run."""
    with packing_process(f"{source}:{name}", tmp_path / "out", workers=2, samples_per_shard=2) as process:
        wait_for(lambda: len(children_of(process.pid)) == 2 or process.poll() is not None, "two workers")
        wait_for(lambda: list((tmp_path / "out").glob("*.tar")) or process.poll() is not None, "a shard")
        workers = children_of(process.pid)
        process.kill()
        process.communicate(timeout=60)
    began = time.monotonic()
    wait_for(lambda: not any(map(is_running, workers)), "forks to die")
    assert time.monotonic() - began < 2 and len(workers) == 2
    packed(f"{source}:fine", tmp_path / "out", samples_per_shard=2, overwrite=True)
    assert len(proven(tmp_path / "out")) == 200


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c(tmp_path, source, how):
    with packing_process(f"{source}:slow", tmp_path / "out", workers=2, samples_per_shard=2) as process:
        wait_for(lambda: list((tmp_path / "out").glob("*.tar")) or process.poll() is not None, "a shard")
        workers = children_of(process.pid)
        process.send_signal(how)
        said, _ = process.communicate(timeout=60)
    wait_for(lambda: not any(map(is_running, workers)), "forks to die")
    assert process.returncode != 0 and (how != signal.SIGINT or b"KeyboardInterrupt" in said)
    assert how != signal.SIGINT or not list((tmp_path / "out").rglob("*.part"))


def test_a_fork_keeps_nothing_of_its_parents(tmp_path):
    """Not the journal's lock, not its siblings' pipes; and the terminal is not its own."""

    class Looking(Samples):
        def __getitem__(self, at):
            links = [
                os.readlink(f"/proc/self/fd/{name}")
                for name in os.listdir("/proc/self/fd")
                if os.path.islink(f"/proc/self/fd/{name}")
            ]
            return {
                "json": {
                    "fds": sorted(links),
                    "stdin": os.readlink("/proc/self/fd/0"),
                    "own group": os.getpgid(0) == os.getpid(),
                }
            }

    packed(Looking(range(8)), tmp_path / "out", shards=4, workers=4)
    for row in (json.loads(fields["json"]) for fields in fields_of(tmp_path / "out")):
        assert not any(link.endswith("/.fastfeed/job/lock") for link in row["fds"])
        assert row["stdin"] == "/dev/null" and row["own group"]
        pipes = [link for link in row["fds"] if link.startswith("pipe:")]
        assert len(set(pipes)) <= 3 + _own_pipes()


def _own_pipes():
    """Pipes that the test process has itself, such as pytest's."""
    return sum(os.readlink(f"/proc/self/fd/{name}").startswith("pipe:") for name in os.listdir("/proc/self/fd")
               if os.path.islink(f"/proc/self/fd/{name}"))  # fmt: skip


def test_a_dataset_that_asks_the_terminal_gets_an_answer(tmp_path):
    class Asking(Samples):
        def __getitem__(self, at):
            try:
                return {"txt": input("? ")}
            except EOFError:
                return {"txt": "nobody answers"}

    packed(Asking(range(2)), tmp_path / "out")
    assert [fields["txt"] for fields in fields_of(tmp_path / "out")] == [b"nobody answers"] * 2


def test_a_program_with_threads_may_pack(tmp_path):
    stop = threading.Event()
    threads = [threading.Thread(target=stop.wait) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        packed(Samples([{"txt": f"{at}"} for at in range(20)]), tmp_path / "out", shards=5, workers=2)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert len(proven(tmp_path / "out")) == 20


@pytest.mark.long
def test_a_dataset_that_uses_torch_in_its_workers(tmp_path):
    """OpenMP's threads are not in a fork: work that would wait for them must not hang."""
    code = """
        import sys, torch, fastfeed
        torch.set_num_threads(4)
        torch.randn(512, 512) @ torch.randn(512, 512)  # starts the threads

        class Data:
            def __len__(self):
                return 8
            def __getitem__(self, at):
                return {"x": (torch.ones(300, 300) @ torch.ones(300, 300)).sum() + at}

        print(fastfeed.pack(Data(), sys.argv[1], workers=2, shards=2).shards_written)
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path / "out")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "2\n" and done.stderr == ""


def test_a_fork_ends_with_its_orders():
    forked = Forked(Samples([]))
    assert forked.stdin is not None and forked.stdout is not None and forked.stderr is not None
    forked.stdin.close()  # the end of its orders
    assert forked.wait() == 1 and forked.wait() == 1
    forked.kill()  # it is dead: nothing happens
    assert b"ready" in forked.stdout.read() and forked.stderr.read() == b"" and forked.poll() == 1
    forked.stdout.close()
    forked.stderr.close()
