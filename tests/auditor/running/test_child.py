import json
import os
import select
import subprocess
import sys

from auditing import program

from fastfeed.auditor.record import SampleRecord
from fastfeed.auditor.running.catalogue import CODES
from fastfeed.auditor.running.process import Fresh
from fastfeed.auditor.running.subject import HOW, How
from fastfeed.source import wire

DEADLINE_SECONDS = 30


class Talk:
    """A child, and what it answers."""

    def __init__(self, spec, memory_bytes=None):
        self.process, self._unread, self._waiting = Fresh(), b"", []
        self.say({"spec": spec, "memory_bytes": memory_bytes})
        assert self.hear()["event"] == "opening"

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.code = self.process.end()

    def say(self, head):
        os.write(self.process.orders, wire.encode(head))

    def hear(self):
        while not self._waiting:
            ready, _, _ = select.select([self.process.answers], [], [], DEADLINE_SECONDS)
            assert ready, "the child says nothing"
            data = os.read(self.process.answers, 1 << 16)
            assert data, os.read(self.process.words, 1 << 16).decode()
            *lines, self._unread = (self._unread + data).split(b"\n")
            self._waiting += map(json.loads, lines)
        answer = self._waiting.pop(0)
        if isinstance(answer, dict):
            return answer
        record = SampleRecord.from_row(answer, CODES)
        return {"event": "loaded", "index": record.index, "record": record.as_json()}

    def load(self, index, how=HOW):
        self.say({"indices": [index], "how": how})
        return self.hear()


def test_it_tells_how_many_there_are_and_loads_what_it_is_told(tmp_path):
    with Talk({"object": program(tmp_path, "pass")}) as child:
        ready = child.hear()
        assert (ready["event"], ready["count"], ready["beat"]["cpu_seconds"] > 0) == ("ready", 40, True)
        answer = child.load(7)
        assert (answer["event"], answer["index"], answer["record"]["findings"]) == ("loaded", 7, [])
        assert answer["record"]["times"]["load"]["wall_seconds"] >= 0 and answer["record"].get("peak_bytes", 1) > 0
        assert "times" in child.load(7, How(load=False))["record"]


def test_of_many_that_it_is_told_each_is_answered_before_the_next_is_begun(tmp_path):
    with Talk({"object": program(tmp_path, "if index == 5:\n    os._exit(3)")}) as child:
        child.hear()
        child.say({"indices": [3, 4, 5, 6], "how": HOW})
        assert [child.hear()["index"] for _ in range(2)] == [3, 4]
        assert os.read(child.process.answers, 1) == b""
    assert child.code == 3


def test_without_a_parent_it_ends_before_it_runs_foreign_code(tmp_path):
    """Its parent died before it could ask to be killed with it: here the number is another's."""
    done = tmp_path / "done"
    name = program(tmp_path, f"open({str(done)!r}, 'w')")
    order = wire.encode({"spec": {"object": name}, "memory_bytes": None}) + wire.encode({"indices": [0], "how": HOW})
    code = "import sys; from fastfeed.auditor.running.child import main; main()"
    for parent, ends, loaded in ((1, 1, False), (os.getpid(), 0, True)):
        command = [sys.executable, "-c", code, str(parent)]
        process = subprocess.run(command, input=order, capture_output=True, timeout=DEADLINE_SECONDS, check=False)
        assert (process.returncode, done.exists()) == (ends, loaded), process.stderr


def test_what_samples_print_and_ask_does_not_disturb(tmp_path):
    body = "print('hello', flush=True)\nos.write(1, b'{\"event\": 3}')\nassert os.read(0, 1) == b''"
    with Talk({"object": program(tmp_path, body)}) as child:
        child.hear()
        assert child.load(1)["record"]["findings"] == []


def test_what_cannot_be_opened_is_told_as_it_is(tmp_path):
    with Talk({"object": f"{tmp_path}/none.py:make"}) as child:
        answer = child.hear()
    assert answer["error"] == "UsageError" and "cannot be imported" in answer["facts"]["message"]


def test_memory_is_limited(tmp_path):
    with Talk({"object": program(tmp_path, "bytearray(300 << 20)")}, memory_bytes=100 << 20) as child:
        child.hear()
        assert [found["code"] for found in child.load(0)["record"]["findings"]] == ["memory"]
        assert child.load(1)["index"] == 1


def test_it_ends_when_its_parent_closes_the_pipe(tmp_path):
    child = Talk({"object": program(tmp_path, "pass")})
    child.hear()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, child.process.orders)
    os.close(nowhere)
    ready, _, _ = select.select([child.process.answers], [], [], DEADLINE_SECONDS)
    assert ready and os.read(child.process.answers, 1) == b""
    child.process.end()
