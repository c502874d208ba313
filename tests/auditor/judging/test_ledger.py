"""Records as columns."""

import numpy as np
import pytest

from fastfeed.auditor.finding import Finding
from fastfeed.auditor.judging.ledger import Ledger
from fastfeed.auditor.record import SampleRecord, StageTime
from fastfeed.auditor.running.codes import CRASH_ONCE, FAILS


def ledger_of(*records):
    ledger = Ledger()
    for record in records:
        ledger.add(record)
    return ledger


def test_a_stage_that_comes_late_is_unknown_before():
    table = ledger_of(
        SampleRecord(4, times={"load": StageTime(0.5, 0.2, 0.1)}),
        SampleRecord(5, times={"decode": StageTime(1.0, 0.7, 0.0), "load": StageTime(0.1, 0.1, 0.0)}),
    ).table()
    assert list(table.stages) == ["decode", "load"]
    assert np.isnan(table.stages["decode"].cpu[0])
    assert table.stages["load"].blocked[0] == pytest.approx(0.2)
    assert table.cost.tolist() == pytest.approx([0.4, 1.1])
    assert table.index.tolist() == [4, 5]


def test_stages_in_their_order_and_strange_ones_last():
    times = {name: StageTime(1, 1, 0) for name in ("own", "transform", "decode", "read")}
    assert list(ledger_of(SampleRecord(0, times=times)).table().stages) == ["read", "decode", "transform", "own"]


def test_what_could_not_be_loaded_is_counted_only():
    ledger = ledger_of(SampleRecord(0), SampleRecord(1, times={"load": StageTime(1, 1, 0)}))
    assert ledger.records == 2
    assert ledger.table().index.tolist() == [1]


def test_the_times_of_an_error_are_not_those_of_a_sample_and_a_warning_is_none():
    clock = {"load": StageTime(1, 1, 0)}
    ledger = ledger_of(
        *(SampleRecord(n, times=clock, findings=[Finding(code, "x")]) for n, code in enumerate([FAILS, CRASH_ONCE]))
    )
    assert ledger.records == 2
    assert ledger.table().index.tolist() == [1]


def test_sizes_are_logarithms_and_unknown_ones_are_nan():
    clock = {"load": StageTime(1, 1, 0)}
    table = ledger_of(
        SampleRecord(0, size_bytes=1000, width=20, height=10, times=clock),
        SampleRecord(1, size_bytes=0, width=5, times=clock),
    ).table()
    assert np.exp(table.sizes[0]).tolist() == pytest.approx([1000, 200])
    assert table.sizes[1][0] == 0.0
    assert np.isnan(table.sizes[1][1])


def test_where_waiting_for_a_processor_is_unknown_it_is_in_blocked():
    table = ledger_of(
        SampleRecord(0, times={"read": StageTime(1.0, 0.25, 0.5), "decode": StageTime(1.0, 1.0, 0.0)}),
        SampleRecord(1, times={"read": StageTime(1.0, 0.25, None)}),
    ).table()
    assert table.stages["read"].blocked.tolist() == pytest.approx([0.25, 0.75])
    assert not table.stages["read"].sure
    assert table.stages["decode"].sure, "a sample without the stage has nothing to tell"
    assert not table.sure


def test_nothing():
    table = Ledger().table()
    assert table.samples == 0
    assert table.cost.tolist() == []
    assert table.sure


def test_formats_by_kind():
    clock = {"load": StageTime(1, 1, 0)}
    table = ledger_of(*(SampleRecord(n, format=name, times=clock) for n, name in enumerate(["A", None, "A"]))).table()
    assert [table.formats[kind] for kind in table.kinds] == ["A", None, "A"]
