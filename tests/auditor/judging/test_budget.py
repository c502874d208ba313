"""Which suspects are measured again."""

import numpy as np

from fastfeed.auditor.judging.budget import affordable
from fastfeed.auditor.judging.groups import Group
from fastfeed.auditor.judging.ledger import Ledger
from fastfeed.auditor.judging.rules import Cuts
from fastfeed.auditor.judging.suspects import Suspect
from fastfeed.auditor.record import SampleRecord, StageTime

GROUP = Group("JPEG", np.arange(1), np.arange(1))


def chosen(seconds, rows, **cuts):
    """Rows of those that are."""
    ledger = Ledger()
    for index, wall in enumerate(seconds):
        half = StageTime(wall / 2, 0, 0)
        ledger.add(SampleRecord(index, times={"read": half, "decode": half}))
    found = [Suspect(row, GROUP, "read", "blocked", seconds[row], 0.0, 0.0) for row in rows]
    taken, left = affordable(ledger.table(), found, Cuts(**cuts))
    assert sorted(taken + left, key=id) == sorted(found, key=id)
    return [suspect.row for suspect in taken]


def test_all_where_there_is_time():
    assert chosen([1.0, 2.0, 0.1, 0.1], [1, 0]) == [1, 0]


def test_so_many_and_no_more():
    assert chosen([1.0, 2.0, 3.0, *[0.0] * 9], [2, 1, 0], most_suspects=2) == [2, 1]


def test_what_is_too_long_is_left_and_cheaper_ones_are_not():
    assert chosen([40.0, 19.0, 18.0, 0.1, *[0.0] * 9], [0, 1, 2, 3]) == [0]
    assert chosen([18.0, 19.0, 1.0, 0.1, *[0.0] * 9], [1, 0, 2]) == [1, 2]


def test_the_costliest_may_take_longer_but_not_for_ever():
    assert chosen([190.0, *[0.0] * 9], [0]) == [0]
    assert chosen([1000.0, *[0.0] * 9], [0]) == []
    assert chosen([1000.0, 19.0, *[0.0] * 9], [0, 1]) == [1]


def test_a_part_of_what_all_took():
    assert chosen([100.0] * 40, [0, 1, 2], controls=0) == [0, 1, 2]
    assert chosen([100.0] * 40, [0, 1, 2, 3, 4], controls=0, repeat_part=0.2) == [0, 1]


def test_all_suspicions_of_a_sample_together():
    assert chosen([18.0, 19.0, 0.1, *[0.0] * 9], [1, 0, 1]) == [1, 1]


def test_nobody():
    assert chosen([1.0], []) == []
    assert affordable(Ledger().table(), [], Cuts()) == ([], [])
