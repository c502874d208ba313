import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest
from helpers import ROOT, packed
from packing import is_running, wait_for
from rowsets import Samples, fields_of

from fastfeed.errors import SourceUnreadable, UsageError, WorkerDied
from fastfeed.packer.rows import fork
from fastfeed.packer.rows.source import Reading


@pytest.fixture
def reading():
    found = Reading()
    yield found
    found.close()


def test_what_a_fork_finds_out_comes_back(reading):
    large = {"n": 2**70, "text": "ä\n\udcff", "list": [1, None, 0.5], "long": "x" * 1_000_000}
    assert fork.ask(lambda: large, reading) == large


def test_errors_come_back_with_their_facts(reading):
    def work():
        raise SourceUnreadable("no good", path="/x", sample=7, expected=(1, 2), got=None, hint="Mend it.")

    with pytest.raises(SourceUnreadable) as caught:
        fork.ask(work, reading)
    error = caught.value
    assert (error.message, error.path, error.sample, error.expected, error.got, error.hint) == (
        "no good", "/x", 7, "(1, 2)", None, "Mend it.",
    )  # fmt: skip
    with pytest.raises(UsageError, match="wrong"):
        fork.ask(lambda: (_ for _ in ()).throw(UsageError("wrong")), reading)


@pytest.mark.parametrize(
    ("how", "match"),
    [
        (lambda: os._exit(3), "ended with exit code 3, while it was reading sample 5"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "was killed by SIGKILL, while it was reading sample 5"),
        (lambda: sys.exit(2), "ended with exit code 1, while"),
        (lambda: 1 // 0, "ended with exit code 1, while"),  # a fault of our own: its traceback goes to stderr
    ],
    ids=["exit", "killed", "SystemExit", "fault"],
)
def test_a_fork_that_dies_is_told(reading, how, match):
    def work():
        reading.note(5, 5)
        how()

    with pytest.raises(WorkerDied, match=f"the process that looks at samples before the plan {match}"):
        fork.ask(work, reading)


def test_ctrl_c_ends_a_fork_that_never_ends(tmp_path):
    code = """
        import os, sys, time
        from fastfeed.packer.rows import fork
        from fastfeed.packer.rows.source import Reading

        def work():
            open(sys.argv[1], "w").write(str(os.getpid()))
            time.sleep(60)

        fork.ask(work, Reading())
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), str(tmp_path / "pid")], cwd=ROOT, stderr=subprocess.PIPE
    ) as process:
        wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), "the fork")
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert b"KeyboardInterrupt" in said
    pid = int((tmp_path / "pid").read_text())
    wait_for(lambda: not is_running(pid), "the fork's end, which the kernel sees to where Ctrl-C came right behind the fork")


class Lazy(Samples):
    """Opens its file when it is first asked, and keeps it: the way of many datasets."""

    def __init__(self, path, count, size):
        super().__init__(range(count))
        self.path, self.size, self.file = path, size, None

    def __getitem__(self, at):
        if self.file is None:
            self.file = open(self.path, "rb", buffering=0)  # noqa: SIM115 - kept open
        self.file.seek(at * self.size)
        time.sleep(0.0005)  # whoever else moves it would be noticed
        return {"bin": self.file.read(self.size)}


def test_what_a_dataset_opens_lazily_each_worker_opens_for_itself(tmp_path):
    """A file that forks shared would be read at places that others had set."""
    raw = os.urandom(100 * 1000)
    (tmp_path / "blob").write_bytes(raw)
    dataset = Lazy(tmp_path / "blob", 100, 1000)
    packed(dataset, tmp_path / "out", workers=4, shards=20)
    assert [fields["bin"] for fields in fields_of(tmp_path / "out")] == [raw[at : at + 1000] for at in range(0, 100_000, 1000)]
    assert dataset.file is None  # nobody has asked it here


def test_what_a_dataset_starts_ends_with_its_worker(tmp_path):
    class Starting(Samples):
        def __getitem__(self, at):
            child = subprocess.Popen(["sleep", "60"])
            with open(tmp_path / "pids", "a") as file:
                file.write(f"{child.pid}\n")
            return {"txt": f"{at}"}

    packed(Starting(range(3)), tmp_path / "out", workers=2, shards=3)
    pids = list(map(int, (tmp_path / "pids").read_text().split()))
    assert len(pids) >= 6
    wait_for(lambda: not any(map(is_running, pids)), "what was started to end")


def test_packing_in_a_thread(tmp_path):
    results = []
    thread = threading.Thread(
        target=lambda: results.append(
            packed(Samples([{"txt": f"{at}"} for at in range(9)]), tmp_path / "out", shards=3, workers=2)
        )
    )
    thread.start()
    thread.join()
    assert results[0].shards_written == 3


def test_signals_are_as_they_were(reading):
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    found = fork.ask(lambda: [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, [])], reading)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before and found == [int(number) for number in before]
