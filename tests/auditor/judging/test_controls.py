"""Who a suspect is compared with."""

import numpy as np
import pytest

from fastfeed.auditor.judging.controls import matched as matched_of
from fastfeed.auditor.judging.expectation import Expectation
from fastfeed.auditor.judging.groups import Group, grouped
from fastfeed.auditor.judging.ledger import Ledger
from fastfeed.auditor.judging.suspects import Suspect
from fastfeed.auditor.record import SampleRecord, StageTime


def table_of(*samples):
    """Samples: format, bytes, pixels."""
    ledger = Ledger()
    for name, size, pixels in samples:
        record = SampleRecord(ledger.records, format=name, size_bytes=size, width=pixels, height=1)
        record.times = {"decode": StageTime(1, 1, 0)}
        ledger.add(record)
    return ledger.table()


def suspect(row, group, clock="cpu"):
    return Suspect(row, group, "decode", clock, 1.0, 0.1, 0.01)


def matched(table, found, expected, count):
    """Where all suspects are chosen."""
    return matched_of(table, found, expected, found=found, count=count)


def usual(table, seconds=0.1):
    return {"decode": Expectation(np.full(table.samples, seconds), np.zeros(table.samples))}


def test_the_nearest_in_size_that_are_no_suspects():
    table = table_of(*(("JPEG", 1000 * n, 5000 * n) for n in range(1, 41)))
    (group,) = grouped(table)
    found = matched(table, [suspect(20, group), suspect(21, group)], usual(table), 3)
    assert {control.row for control in found[0]} == {18, 19, 22}
    assert {control.row for control in found[1]} == {19, 22, 23}


def test_a_suspect_that_is_not_chosen_is_no_control():
    table = table_of(*(("JPEG", 1000 * n, 5000 * n) for n in range(1, 41)))
    (group,) = grouped(table)
    one, other = suspect(20, group), suspect(21, group)
    (controls,) = matched_of(table, [one], usual(table), found=[one, other], count=3)
    assert {control.row for control in controls} == {18, 19, 22}


def test_of_a_rare_format_they_are_those_that_it_is_compared_with():
    table = table_of(*[("JPEG", 1000, 5000)] * 40, *[("JPEG2000", 1000, 5000)] * 4)
    (group,) = grouped(table)
    (controls,) = matched(table, [suspect(41, group)], usual(table), 3)
    assert all(control.row < 40 for control in controls)
    assert len(controls) == 3


def test_where_the_base_is_all_suspect_the_guests_serve():
    table = table_of(*[("JPEG", 1000, 5000)] * 30, ("PNG", 1000, 5000))
    (group,) = grouped(table)
    found = matched(table, [suspect(row, group) for row in range(30)], usual(table), 3)
    assert [[control.row for control in controls] for controls in found] == [[30]] * 30


def test_alone_it_has_none():
    table = table_of(("JPEG", 1, 1))
    group = Group("JPEG", np.arange(1), np.arange(1))
    assert matched(table, [suspect(0, group)], usual(table), 3) == [()]


def test_a_control_without_the_stage_is_none():
    table = table_of(*[("JPEG", 1000, 5000)] * 40)
    expected = usual(table)
    expected["decode"].cpu[:39] = np.nan
    (group,) = grouped(table)
    (controls,) = matched(table, [suspect(0, group)], expected, 3)
    assert [control.row for control in controls] == [39]


def test_a_larger_one_may_take_longer():
    """By the line, or in proportion to its size, whichever is more; a smaller one by the line."""
    table = table_of(("JPEG", 1000, 5000), ("JPEG", 4000, 10_000))
    group = Group("JPEG", np.arange(2), np.arange(2))
    expected = {"decode": Expectation(np.array([0.1, 0.15]), np.zeros(2))}
    ((larger,),) = matched(table, [suspect(1, group)], expected, 3)
    assert larger.factor == pytest.approx(4.0)
    ((smaller,),) = matched(table, [suspect(0, group)], expected, 3)
    assert smaller.factor == pytest.approx(0.1 / 0.15)
    assert smaller.usual_seconds == 0.15
    ((steeper,),) = matched(table, [suspect(1, group)], {"decode": Expectation(np.array([0.1, 0.9]), np.zeros(2))}, 3)
    assert steeper.factor == pytest.approx(9.0)


def test_waiting_grows_with_bytes_alone():
    table = table_of(("JPEG", 1000, 5000), ("JPEG", 2000, 50_000))
    group = Group("JPEG", np.arange(2), np.arange(2))
    assert matched(table, [suspect(1, group, "blocked")], usual(table), 3)[0][0].factor == pytest.approx(2.0)
    assert matched(table, [suspect(0, group, "blocked")], usual(table), 3)[0][0].factor == 1.0


def test_unknown_sizes_are_as_near_as_any():
    table = table_of(*[(None, None, None)] * 40)
    (group,) = grouped(table)
    (controls,) = matched(table, [suspect(3, group)], usual(table), 3)
    assert [control.factor for control in controls] == [1.0, 1.0, 1.0]
