import subprocess
import sys

import pytest
from helpers import ROOT
from packing import is_running, tree, wait_for

from fastfeed.source import wire
from fastfeed.source.lister import ListOrder, Place, Segment


@pytest.fixture
def process():
    command = [sys.executable, "-m", "fastfeed.packer.process"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as started:
        yield started
        started.kill()


def test_it_is_ready_then_lists_and_ends_with_its_input(process, tmp_path):
    tree(tmp_path, {"a/1.txt": "1", "b.txt": "22"})
    assert wire.read(process.stdout) == wire.Message({"event": "ready"}, [])
    process.stdin.write(wire.encode({"order": "prepare"}))  # is not answered
    process.stdin.write(ListOrder(str(tmp_path), hidden=False, most_names=9, places=[Place("", (0, 0), ())]).encode())
    process.stdin.flush()
    message = wire.read(process.stdout)
    assert message is not None
    found = Segment.decode(message)
    assert (found.folders, found.names, list(found.sizes)) == (["", "a"], ["b.txt", "1.txt"], [2, 1])
    process.stdin.close()
    assert process.wait(60) == 1 and process.stdout.read() == b""


def test_a_message_that_is_cut_ends_it(process):
    process.stdin.write(wire.encode({"order": "list"}, [b"column"])[:-1])
    process.stdin.close()
    assert process.wait(60) == 1


def test_it_dies_with_its_parent(tmp_path):
    code = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-m', 'fastfeed.packer.process'], stdin=subprocess.PIPE)\n"
        "print(child.pid, flush=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, check=True, timeout=60)
    wait_for(lambda: not is_running(int(done.stdout.split()[0])), "the orphan to die")


@pytest.mark.parametrize(
    ("module", "absent"),
    [("process", {"dataclasses", "subprocess", "multiprocessing", "numpy", "torch"}), ("worker", {"numpy", "torch", "PIL"})],
)
def test_what_a_worker_need_not_wait_for(module, absent):
    code = f"import fastfeed.packer.{module}, sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    assert not absent & set(done.stdout.split())
