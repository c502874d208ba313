"""fastfeed/feed/receiving.py, with workers and without; what it is for is in test_engine.py and test_loader_*.py."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from loading import Calls, Raises, remains, settled
from torch import Generator

from fastfeed.feed.engine import Draw, Engine
from fastfeed.feed.faults import ErrorCaps
from fastfeed.feed.fetch import FetchRules
from fastfeed.feed.inner import InnerOptions
from fastfeed.feed.receiving import Receiver


class Late:
    """The first sample takes a while."""

    def __call__(self, index: int) -> int:
        time.sleep(0.7 if index == 0 else 0)
        return index


class Gated:
    """The first sample waits until a file is there."""

    def __init__(self, gate: Path) -> None:
        self.gate = gate

    def __call__(self, index: int) -> int:
        while index == 0 and not self.gate.exists():
            time.sleep(0.005)
        return index


def receiver_of(workers: int, call: Callable[[int], int] | None = None, **given: Any) -> Receiver:
    named: dict[str, Any] = {
        "prefetch_factor": None, "pin_memory": False, "timeout": 0, "worker_init_fn": None, "multiprocessing_context": None,
        "persistent_workers": False, "in_order": False, **given,
    }  # fmt: skip
    engine = Engine(Calls(call or Late(), 12), [[number] for number in range(12)], once=True, early=False)
    draw = Draw(epoch_of=int, generator=Generator(), base=1)
    begun = engine.epoch(InnerOptions(num_workers=workers, **named), FetchRules(batched=True, collate=list), draw, ErrorCaps())
    return Receiver(begun._shifts)


def taken(receiver: Receiver) -> list[int]:
    found: list[int] = []
    while True:
        try:
            answer = receiver.take()
        except StopIteration:
            return found
        receiver._pass.pending.pop(answer.number)
        found.append(answer.number)


@pytest.mark.parametrize("workers", [0, 2])
def test_in_the_samplers_order(workers):
    receiver = receiver_of(workers)
    assert taken(receiver) == list(range(12))
    assert (receiver.early, receiver.next) == ({}, 12)


def test_as_they_come():
    found = taken(receiver_of(2, sorts=False))
    assert sorted(found) == list(range(12)) and found[0] != 0


def test_what_came_before_its_turn_is_kept():
    receiver = receiver_of(2)
    assert receiver.take().number == 0
    assert receiver.early


@pytest.mark.parametrize("in_order", [True, False], ids=["in turn", "as they come"])
def test_what_has_arrived_is_seen_without_waiting_for_it(in_order, tmp_path):
    receiver = receiver_of(2, Gated(tmp_path / "gate"), in_order=in_order)
    assert not receiver.arrived(0)
    (tmp_path / "gate").touch()
    held: list[int] = []
    for number in range(12):
        ends = time.monotonic() + 30
        while not receiver.arrived(len(held)) and time.monotonic() < ends:
            time.sleep(0.005)
        held.append(receiver.take().number)
        assert held[-1] == number
        if len(held) > 2:
            receiver._pass.pending.pop(held.pop(0))
    assert not receiver.arrived(len(held))


def test_as_they_come_anything_has_arrived():
    receiver = receiver_of(2, sorts=False)
    ends = time.monotonic() + 30
    while not receiver.arrived(0) and time.monotonic() < ends:
        time.sleep(0.005)
    assert receiver.take().number != 0


def test_without_workers_nothing_arrives_by_itself():
    receiver = receiver_of(0)
    assert not receiver.arrived(0)
    receiver.take()
    assert not receiver.arrived(1)


def test_batches_that_nobody_counted_are_missed():
    receiver = receiver_of(0)
    with Raises(RuntimeError, match=r"the epoch ended with 12 batches missing, the first is batch 0 \[0\]"):
        for _ in range(13):
            receiver.take()


def test_the_watchman_leaves_with_it():
    before = remains()
    receiver = receiver_of(1, hang_seconds=5.0)
    receiver.take()
    assert any("fastfeed-watch" in name for name in settled(before, 0.0)["threads"])
    del receiver
    assert settled(before) == {}
