import os
import time
from multiprocessing.reduction import ForkingPickler

import numpy as np
import pytest
import torch
from loading import Calls

from fastfeed.feed.engine import Draw, Engine
from fastfeed.feed.faults import ErrorCaps
from fastfeed.feed.fetch import MAIN, FetchRules
from fastfeed.feed.figures import Timed
from fastfeed.feed.inner import InnerOptions
from fastfeed.feed.timing import Answer, BatchTimes, Clock, Delivery, size_of


class Ear:
    def __init__(self) -> None:
        self.heard: list[Delivery] = []

    def delivered(self, delivery: Delivery) -> None:
        self.heard.append(delivery)


def collate(samples: list[int]) -> torch.Tensor:
    return torch.tensor(samples)


def deliveries(workers: int, *, step_seconds: float = 0.0, sample_seconds: float = 0.0) -> list[Delivery]:
    def sample(index):
        time.sleep(sample_seconds)
        return index

    engine = Engine(Calls(sample, 10), [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]], once=True, early=False)
    ear = Ear()
    options = InnerOptions(
        num_workers=workers, prefetch_factor=2 if workers else None, pin_memory=False, timeout=0, worker_init_fn=None,
        multiprocessing_context=None, persistent_workers=False, in_order=True,
    )  # fmt: skip
    draw = Draw(epoch_of=int, generator=None)
    for _ in engine.epoch(options, FetchRules(batched=True, collate=collate), draw, ErrorCaps(), [ear]):
        time.sleep(step_seconds)
    return ear.heard


def test_a_listener_hears_of_each_batch():
    for workers in (0, 2):
        heard = deliveries(workers, step_seconds=0.01, sample_seconds=0.002)
        assert [one.number for one in heard] == [0, 1, 2]
        assert [one.samples for one in heard] == [4, 4, 2]
        assert [one.remaining for one in heard] == [2, 1, 0]
        assert {one.workers for one in heard} == {workers}
        assert heard[0].step_seconds == 0.0
        assert all(one.step_seconds >= 0.01 for one in heard[1:])
        assert all(one.times.make_seconds >= 0.004 for one in heard)
        assert all(0.0 <= one.late_seconds <= one.wait_seconds for one in heard)
        assert [(one.times.size_bytes, one.times.tensors) for one in heard] == [(32, 1), (32, 1), (16, 1)]
        assert all((one.times.worker == MAIN) == (workers == 0) for one in heard)


def test_a_consumer_that_outruns_its_loader_waits_until_batches_are_made():
    first, *others = deliveries(0, sample_seconds=0.01)
    for one in (first, *others):
        assert one.late_seconds >= one.times.make_seconds * 0.99 >= 0.019
        assert one.wait_seconds >= one.late_seconds


def test_processor_time_is_told_apart_from_waiting():
    clock = Clock()
    time.sleep(0.05)
    idle = clock.stop(0, None)
    clock = Clock()
    until = time.process_time() + 0.05
    while time.process_time() < until:
        pass
    busy = clock.stop(0, None)
    assert idle.make_seconds >= 0.05 > idle.work_seconds + 0.02
    assert busy.work_seconds >= 0.05


def spin(until: float) -> None:
    while time.process_time() < until:
        pass


class Spinning:
    """A sample takes some processor time, on a processor that other workers want as well."""

    def __call__(self, index: int) -> int:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        spin(time.process_time() + 0.05)
        return index


def test_waiting_for_a_processor_is_told_apart_from_waiting_for_data():
    engine = Engine(Calls(Spinning(), 16), [[number] for number in range(16)], once=True, early=False)
    ear = Ear()
    options = InnerOptions(
        num_workers=3, prefetch_factor=2, pin_memory=False, timeout=0, worker_init_fn=None, multiprocessing_context=None,
        persistent_workers=False, in_order=True,
    )  # fmt: skip
    rules, draw = FetchRules(batched=True, collate=collate, tuned=True), Draw(epoch_of=int, generator=None)
    list(engine.epoch(options, rules, draw, ErrorCaps(), [ear]))
    queued = sum(one.times.queued_seconds for one in ear.heard[3:])
    assert queued > 0.2 * sum(one.times.make_seconds for one in ear.heard[3:])
    for one in ear.heard:
        assert one.times.queued_seconds + one.times.work_seconds <= 1.05 * one.times.make_seconds + 0.02
    assert {one.times.queued_seconds for one in [*deliveries(0), *deliveries(1)]} == {0.0}


@pytest.mark.filterwarnings("ignore:Sparse invariant")
def test_sizes():
    assert size_of(torch.zeros(4, 3)) == (48, 1)
    assert size_of({"a": torch.zeros(2, dtype=torch.uint8), "b": [np.zeros(3), ("x", 1, torch.zeros(1))]}) == (2 + 24 + 4, 3)
    assert size_of(["text"] * 5000) == (0, 0)
    assert size_of([torch.zeros(1)] * 2000) == (8000, 2000)
    assert size_of(torch.zeros(3).to_sparse()) == (0, 1)
    assert size_of(object()) == size_of([]) == (0, 0)


def test_an_answer_keeps_its_shape_where_torch_walks_through_it():
    answer = Answer(0, torch.zeros(1), [], Clock().stop(1, torch.zeros(1)))
    again = type(answer)(*[*answer])
    assert again.times == answer.times
    assert again._fields == answer._fields


def test_a_batch_that_contains_itself_has_no_size():
    batch: list[object] = [torch.ones(3)]
    batch.append(batch)
    assert size_of(batch) == (0, 0)


def test_times_arrive_as_they_were_sent():
    record = Timed(("fetch",), [3], np.array([[5.0]]), (), None).record()
    for times in (BatchTimes(1, 2.0, 3.0, 0.5, 6, 7), BatchTimes(1, 2.0, 3.0, 0.5, 6, 7, 0.25, record, {"hits": 3})):
        assert ForkingPickler.loads(ForkingPickler.dumps(times)) == times
