import json
import os
import select
import signal
import time
from pathlib import Path

import pytest
from auditing import children
from helpers import make_photos

from fastfeed.auditor.running import nursery
from fastfeed.auditor.running.nursery import Nursery
from fastfeed.auditor.running.subject import HOW
from fastfeed.auditor.running.targets import find_target
from fastfeed.errors import WorkerDied
from fastfeed.source import wire

DEADLINE_SECONDS = 30


@pytest.fixture
def start():
    found = Nursery()
    yield found
    found.close()


@pytest.fixture
def target(tmp_path):
    make_photos(tmp_path / "photos")
    return find_target(tmp_path / "photos")


def hear(child):
    """Its next answer; None once its pipe is closed."""
    said = b""
    while not said.endswith(b"\n"):
        ready, _, _ = select.select([child.answers], [], [], DEADLINE_SECONDS)
        assert ready, "the child says nothing"
        data = os.read(child.answers, 1 << 16)
        if not data:
            return None
        said += data
    return json.loads(said)


def opened(child, target):
    """Let it open what is audited; what it says to that."""
    os.write(child.orders, wire.encode({"spec": target.spec, "memory_bytes": None}))
    assert hear(child)["event"] == "opening"
    return hear(child)


def between():
    """The process in between."""
    (pid,) = children()
    return pid


def test_children_load_what_they_are_told_to_and_end_one_by_one(start, target):
    pair = [start(), start()]
    assert [opened(child, target)["count"] for child in pair] == [6, 6]
    for index, child in enumerate(pair):
        os.write(child.orders, wire.encode({"indices": [index], "how": HOW}))
        assert hear(child)[0] == index
    assert len(children()) == 1 and {child.pid for child in pair}.isdisjoint(children())
    assert pair[0].end() == -signal.SIGKILL
    assert not os.path.exists(f"/proc/{pair[0].pid}")
    os.write(pair[1].orders, wire.encode({"indices": [3], "how": HOW}))
    assert hear(pair[1])[0] == 3
    os.kill(pair[1].pid, signal.SIGTERM)
    assert hear(pair[1]) is None
    assert pair[1].end() == -signal.SIGTERM
    start.close()
    assert not children()


def test_the_process_in_between_has_one_thread_and_children_hold_no_end_of_its_socket(start, target):
    child = start()
    opened(child, target)
    assert len(os.listdir(f"/proc/{between()}/task")) == 1
    held = [os.readlink(path) for path in Path(f"/proc/{child.pid}/fd").iterdir()]
    assert not any(name.startswith("socket:") for name in held)
    child.end()


def test_children_die_with_the_process_in_between_and_the_next_one_has_another(start, target):
    first = start()
    opened(first, target)
    os.kill(between(), signal.SIGKILL)
    assert hear(first) is None
    assert first.end() == -signal.SIGKILL
    second = start()
    assert opened(second, target)["count"] == 6
    assert second.end() == -signal.SIGKILL


def test_all_of_it_ends_with_its_parent(start, target):
    child = start()
    opened(child, target)
    start._between._socket.close()  # as when the parent has died
    deadline = time.monotonic() + DEADLINE_SECONDS
    while os.path.exists(f"/proc/{child.pid}") and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not os.path.exists(f"/proc/{child.pid}")
    assert hear(child) is None
    child._close()


def test_one_that_cannot_start_says_why(start, monkeypatch):
    monkeypatch.setattr(nursery, "_MODULE", "fastfeed.no_such_module")
    with pytest.raises(WorkerDied, match=r"(?s)the process that starts children ended.*no_such_module"):
        start()
