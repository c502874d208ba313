"""feed/collecting.py: sums over batches, whoever made them, in constant memory."""

from multiprocessing.reduction import ForkingPickler

import numpy as np
import pytest
import torch

from fastfeed.feed.collecting import KEPT_SLOWEST, Collector
from fastfeed.feed.figures import MOST_COUNTERS, Timed
from fastfeed.feed.timing import BatchTimes, Delivery

SAMPLES = 8


def table_of(number, samples=SAMPLES):
    table = 10 ** np.random.default_rng(number).uniform(5, 8, size=(samples, 3))
    table[:, 0] = table.sum(axis=1)
    return table


def delivery(number, worker=0, *, recorded=True, indices=None, counters=None, failures=0):
    """A batch whose figures follow from its number."""
    table, record = table_of(number), None
    if recorded:
        given = list(range(number * SAMPLES, (number + 1) * SAMPLES)) if indices is None else indices
        record = Timed(("fetch", "read", "decode"), given, table, (), 1000 * number).record()
    began = 100.0 + number
    times = BatchTimes(worker, began, began + 0.25, 0.125, 1000, 2, 0.0, record, counters)
    return Delivery(number, 0.5, 0.0 if number == 0 else 2.0, 0.375, 2, SAMPLES, None, times, failures)


def collected(*deliveries):
    collector = Collector().begin()
    for one in deliveries:
        collector.delivered(one)
    return collector


def test_sums_over_workers_are_exact():
    batches = [delivery(number, worker=number % 3) for number in range(100)]
    found = collected(*batches).totals(epoch_only=True)
    tables = np.concatenate([table_of(number) for number in range(100)])
    assert (found.batches, found.samples, found.recorded, found.size_bytes) == (100, 800, 100, 100_000)
    assert (found.wait.total, found.wait.count) == (pytest.approx(50e9), 100)
    assert found.late_seconds == pytest.approx(37.5) and found.step_seconds == pytest.approx(198.0)
    assert found.make.total == pytest.approx(25e9) and found.work_seconds == pytest.approx(12.5)
    for column, name in enumerate(("fetch", "read", "decode")):
        sketch, exact = found.stages[name], tables[:, column]
        assert sketch.count == 800
        assert sketch.total == pytest.approx(exact.sum())
        assert sketch.most == exact.max()
        for part in (0.5, 0.9, 0.99):
            assert sketch.quantile(part) == pytest.approx(np.quantile(exact, part, method="inverted_cdf"), rel=1 / 32)
    assert found.collate.total == sum(1000 * number for number in range(100))
    assert {worker: (sums.batches, sums.samples) for worker, sums in found.workers.items()} == {
        0: (34, 272), 1: (33, 264), 2: (33, 264),
    }  # fmt: skip
    assert sum(sums.make_seconds for sums in found.workers.values()) == pytest.approx(25.0)


def test_counters_of_all_epochs_are_there_at_any_time():
    collector = Collector()
    for amount in (2, 3):
        collector.begin()
        collector.delivered(delivery(0, counters={"hits": amount}))
    assert collector.counters == {"hits": 5}


def test_the_slowest_samples_of_all_batches():
    found = collected(*[delivery(number, worker=number % 2) for number in range(50)]).totals(epoch_only=True)
    tables = np.concatenate([table_of(number)[:, 0] for number in range(50)])
    kept = sorted(found.slowest, key=lambda index: -found.slowest[index].nanoseconds)
    # Three of a batch travel: where more than three of one batch are among the slowest of all, the others are not known.
    assert len(kept) == KEPT_SLOWEST and kept[:3] == np.argsort(tables)[::-1][:3].tolist()
    assert found.slowest[kept[0]].nanoseconds == tables.max()


def test_a_sample_that_is_slow_again_is_one_sample():
    found = collected(*[delivery(number, indices=list(range(SAMPLES))) for number in range(20)]).totals(epoch_only=True)
    assert set(found.slowest) <= set(range(SAMPLES))
    assert sum(slow.seen for slow in found.slowest.values()) == 60
    assert max(slow.nanoseconds for slow in found.slowest.values()) == max(table_of(number)[:, 0].max() for number in range(20))


def test_epochs_are_told_apart_and_add_up():
    collector = collected(*[delivery(number, counters={"hits": 1}) for number in range(70)])
    collector.failed()
    collector.begin()
    for number in range(70, 75):
        collector.delivered(delivery(number, recorded=False, counters={"hits": 10, "misses": 1}, failures=2))
    last, whole = collector.totals(epoch_only=True), collector.totals(epoch_only=False)
    assert (last.batches, last.recorded, last.failed, last.tolerated) == (5, 0, 0, 10)
    assert (whole.batches, whole.recorded, whole.failed, whole.tolerated) == (75, 70, 1, 10)
    assert last.counters == {"hits": 50, "misses": 5} and whole.counters == {"hits": 120, "misses": 5}
    assert whole.stages["read"].count == 70 * SAMPLES and not last.stages
    assert collector.totals(epoch_only=False).batches == 75  # asking changes nothing
    assert collector.epochs == 2


def test_totals_do_not_change_afterwards():
    collector = collected(delivery(0))
    before = collector.totals(epoch_only=True)
    collector.delivered(delivery(1))
    assert (before.batches, before.stages["fetch"].count) == (1, SAMPLES)


def test_divided_stages_are_counted():
    record = Timed(("fetch",), [], np.full((4, 1), 5.0), ("fetch",), None).record()
    times = BatchTimes(0, 1.0, 2.0, 0.5, 0, 0, record=record)
    found = collected(*[Delivery(number, 0.0, 0.0, 0.0, 1, 4, None, times) for number in range(3)]).totals(epoch_only=True)
    assert found.divided == {"fetch": 3} and not found.slowest


def test_memory_does_not_grow_with_epochs():
    collector, sizes = Collector(), []
    for epoch in range(40):
        collector.begin()
        for number in range(epoch * 70, (epoch + 1) * 70):
            collector.delivered(delivery(number, worker=number % 4, counters={f"name {number}": 1}))
        sizes.append(len(ForkingPickler.dumps(collector.totals(epoch_only=False))))
    assert max(sizes) < 60_000
    assert sizes[-1] < 1.2 * sizes[9]
    found = collector.totals(epoch_only=False)
    assert len(found.counters) == MOST_COUNTERS + 1 and sum(found.counters.values()) == 2800


def test_batches_of_a_stream():
    collector = Collector().begin()
    for _ in range(70):
        collector.streamed(0.25, 0.5, torch.zeros(4))
    found = collector.totals(epoch_only=True)
    assert (found.batches, found.size_bytes, found.wait.count) == (70, 70 * 16, 70)
    assert found.wait.total == pytest.approx(17.5e9) and found.step_seconds == pytest.approx(35.0)
    assert collected().totals(epoch_only=True).batches == 0
