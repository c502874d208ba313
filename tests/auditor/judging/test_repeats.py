"""Measuring again."""

import time

import pytest
from clocksim import Scene, photos

from fastfeed.auditor.judging.ledger import Ledger
from fastfeed.auditor.judging.repeats import Repeats
from fastfeed.auditor.record import SampleRecord, StageTime


def table_of(records):
    ledger = Ledger()
    for record in records:
        ledger.add(record)
    return ledger.table()


def test_rounds_in_other_orders_each_sample_once():
    scene = Scene(photos(0, 40))
    repeats = Repeats(table_of(scene.records()), scene.remeasure)
    repeats.take([*range(20), 3, 3], 3)
    orders = [indices for indices, _ in scene.calls]
    assert len(set(orders)) == 3
    assert all(sorted(order) == list(range(20)) for order in orders)
    assert len(repeats.seconds(3, "decode", "cpu")) == 3


def test_rows_are_asked_for_by_index():
    records = Scene(photos(0, 3)).records()
    for record in records:
        record.index += 1000
    asked = []

    def remeasure(indices, *, cold):
        asked.extend(indices)
        return {1002: [{"decode": StageTime(3, 2, 1)}]}

    repeats = Repeats(table_of(records), remeasure)
    repeats.take([2], 1)
    assert asked == [1002]
    assert repeats.seconds(2, "decode", "cpu").tolist() == [2]


def test_cold_ones_apart():
    scene = Scene(photos(0, 4))
    scene.samples[1].cold_blocked = 0.5
    repeats = Repeats(table_of(scene.records()), scene.remeasure)
    repeats.take([1], 2)
    repeats.take([1], 1, cold=True)
    assert repeats.seconds(1, "read", "blocked").max() < 0.4
    assert repeats.seconds(1, "read", "blocked", cold=True).tolist() == [pytest.approx(0.5, abs=0.1)]


def test_what_is_left_out_has_no_seconds():
    table = table_of([SampleRecord(0, times={"load": StageTime(1, 1, 0)})])
    repeats = Repeats(table, lambda indices, *, cold: {})
    repeats.take([0], 3)
    assert repeats.seconds(0, "load", "cpu").tolist() == []


def test_several_measurements_a_call_and_other_stages():
    table = table_of([SampleRecord(0, times={"load": StageTime(1, 1, 0)})])
    times = [{"load": StageTime(4, 1, None)}, {"load": StageTime(4, 2, 1)}, {"read": StageTime(9, 9, 0)}]
    repeats = Repeats(table, lambda indices, *, cold: {0: times})
    repeats.take([0], 1)
    assert repeats.seconds(0, "load", "cpu").tolist() == [1, 2]
    assert repeats.seconds(0, "load", "blocked").tolist() == [3, 1], "at most, where nobody tells"


def test_nobody_is_asked_for_nothing():
    table = table_of([SampleRecord(0, times={"load": StageTime(1, 1, 0)})])

    def never(indices, *, cold):
        raise AssertionError("asked for nothing")

    Repeats(table, never).take([], 3)


def test_no_round_is_begun_when_time_is_up():
    scene = Scene(photos(0, 4))
    repeats = Repeats(table_of(scene.records()), scene.remeasure, deadline=time.monotonic())
    assert repeats.time_is_up
    repeats.take([1], 3)
    assert scene.calls == [] and repeats.seconds(1, "decode", "cpu").tolist() == []
    assert not Repeats(table_of(scene.records()), scene.remeasure, deadline=time.monotonic() + 1000).time_is_up
