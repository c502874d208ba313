import json
import os

import pytest

from fastfeed.auditor.running.member import Member, Task
from fastfeed.auditor.running.subject import HOW, How


class Pipes:
    """A process that only listens."""

    pid = 0

    def __init__(self):
        self.reads, self.orders = os.pipe()
        self.answers = self.words = -1

    def end(self):
        return 0

    def heard(self):
        return [json.loads(line) for line in os.read(self.reads, 1 << 16).splitlines()]


@pytest.fixture
def process():
    found = Pipes()
    yield found
    os.close(found.orders)
    if found.reads >= 0:
        os.close(found.reads)


def test_samples_that_are_loaded_alike_are_one_order(process):
    member, other = Member(process), How(load=False)
    member.give([Task(3), Task(5), Task(7, other)])
    orders = [(order["indices"], How(*order["how"])) for order in process.heard()]
    assert orders == [([3, 5], HOW), ([7], other)]
    assert [member.done().index, member.done().index] == [3, 5]
    assert (member.loaded, [task.index for task in member.tasks]) == (2, [7])


def test_a_line_is_an_answer_when_it_is_whole(process):
    member = Member(process)
    assert member.answers(b"[1") == []
    assert member.answers(b"]\n[2]\n{") == [b"[1]", b"[2]"]
    assert member.answers(b"}\n") == [b"{}"]


def test_what_a_dead_one_is_told_is_lost(process):
    os.close(process.reads)
    process.reads = -1
    member = Member(process)
    member.give([Task(1)])
    assert [task.index for task in member.tasks] == [1]
