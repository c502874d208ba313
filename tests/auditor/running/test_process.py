import json
import os
import signal
import time

import pytest
from auditing import children, program

from fastfeed.auditor.running.process import Forked, Fresh, has_ended, stack_of, starter, told_stack
from fastfeed.source import wire


class Sleeper:
    def __len__(self):
        return 1

    def __getitem__(self, index):
        return deeply()


def deeply():
    time.sleep(1000)


def begun(process, spec):
    """A child at its first sample; the descriptor of its stack."""
    os.write(process.orders, wire.encode({"spec": spec, "memory_bytes": None}))
    said = b""
    while not said.endswith(b"\n"):
        data = os.read(process.answers, 1 << 16)
        assert data, os.read(process.words, 1 << 16).decode()
        said += data
    os.write(process.orders, wire.encode({"indices": [0], "how": (True, True, False, True)}))
    return json.loads(said.partition(b"\n")[0])["stack"]


def standing(process, descriptor):
    """Where it stands, once it has begun."""
    deadline = time.monotonic() + 20
    told = ""
    while "__getitem__" not in told and time.monotonic() < deadline:
        told = stack_of(process.pid, descriptor)
    return told


@pytest.mark.long
def test_the_stack_of_a_fresh_one_that_hangs(tmp_path):
    spec = {"object": program(tmp_path, "time.sleep(1000)")}
    process = starter(spec, None)()
    assert isinstance(process, Fresh)
    try:
        assert standing(process, begun(process, spec)) == f"it stood in __getitem__ ({tmp_path}/bad.py:12)"
    finally:
        assert process.end() == -signal.SIGKILL
    assert process.pid not in children()


@pytest.mark.long
def test_a_fork_has_the_dataset_as_it_is():
    process = starter({"live": True}, Sleeper())()
    assert isinstance(process, Forked)
    try:
        told = standing(process, begun(process, {"live": True}))
        assert told.startswith("it stood in deeply (") and ", called from __getitem__ (" in told and "fork.py" not in told
    finally:
        assert process.end() == -signal.SIGKILL
    assert process.pid not in children()


def test_a_stack_is_told_from_the_inside_to_our_own_code():
    from fastfeed.auditor.running import child

    text = (
        "Thread 0x1 (most recent call first):\n"
        '  File "/x/other.py", line 1 in wait\n\n'
        "Current thread 0x2 (most recent call first):\n"
        '  File "/x/codec.py", line 5 in decode\n'
        '  File "/x/data.py", line 9 in __getitem__\n'
        f'  File "{child.__file__}", line 3 in carry_out\n'
        '  File "/x/main.py", line 1 in <module>\n'
    )
    assert told_stack(text) == "decode (/x/codec.py:5), called from __getitem__ (/x/data.py:9)"
    assert told_stack("nothing") == ""


def test_a_process_that_has_gone_has_no_stack():
    process = Fresh()
    assert not has_ended(process.pid)
    process.end()
    assert has_ended(process.pid)
    assert "could not be seen" in stack_of(process.pid, 5)


def test_a_process_that_nobody_has_waited_for_has_ended_too():
    process = Fresh()
    try:
        os.kill(process.pid, signal.SIGKILL)
        assert has_ended(process.pid, within_seconds=20)
    finally:
        assert process.end() == -signal.SIGKILL


def test_what_a_sample_started_in_a_session_of_its_own_ends_too(tmp_path):
    noted = tmp_path / "pid"
    spec = {"object": program(tmp_path, (
        "import subprocess\nprocess = subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
        f"with open({str(noted)!r} + '.part', 'w') as file:\n    file.write(str(process.pid))\n"
        f"os.rename({str(noted)!r} + '.part', {str(noted)!r})\ntime.sleep(1000)"
    ))}  # fmt: skip
    process = Fresh()
    begun(process, spec)
    deadline = time.monotonic() + 20
    while not noted.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    pid = int(noted.read_text())
    assert not has_ended(pid)
    process.end()
    assert has_ended(pid, within_seconds=10)
