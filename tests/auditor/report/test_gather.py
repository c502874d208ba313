import sys

import pytest
from reporting import flagged, sample

from fastfeed.auditor.judging.codes import OVERSIZE, SLOW
from fastfeed.auditor.record import StageTime
from fastfeed.auditor.report import gather
from fastfeed.auditor.report.gather import FINE, FLAGGED, Drawn, Gathered, cost_seconds, group_of, telling
from fastfeed.auditor.report.gather import SLOW as SLOW_GROUP
from fastfeed.auditor.running.codes import CRASH, CRASH_ONCE, FAILS, STOPS_EARLY


def gathered(records):
    found = Gathered()
    for record in records:
        found.add(record)
    return found


def test_groups_and_formats():
    found = gathered(
        [
            sample(0),
            sample(1, kind="PNG", seconds=2.0),
            flagged(2, SLOW, seconds=3.0),
            flagged(3, CRASH_ONCE),
            flagged(4, OVERSIZE),
        ]
    )
    assert {name: share.samples for name, share in found.groups.items()} == {SLOW_GROUP: 2, FLAGGED: 1, FINE: 2}
    assert found.groups[SLOW_GROUP].seconds == pytest.approx(3.5)
    assert {name: (share.samples, share.size_bytes) for name, share in found.formats.items()} == {
        "JPEG": (4, 4000), "PNG": (1, 1000),
    }  # fmt: skip
    assert found.flagged == 3


def test_errors_come_first_and_none_of_a_code_crowds_out_others(monkeypatch):
    monkeypatch.setattr(gather, "MOST_OF_A_CODE", 3)
    monkeypatch.setattr(gather, "MOST_ROWS", 5)
    found = gathered(
        [*(flagged(at, CRASH_ONCE) for at in range(9)), *(flagged(at, CRASH) for at in range(9, 18)), flagged(18, FAILS)]
    )
    assert [record.index for record in found.rows()] == [9, 10, 11, 18, 0]
    assert found.flagged == 19


def test_a_finding_that_is_only_worth_knowing_flags_nothing():
    from fastfeed.auditor.judging.codes import STALL_ONCE

    record = flagged(0, STALL_ONCE)
    assert group_of(record) == FINE and telling(record) == []
    assert [one.code for one in telling(flagged(1, STALL_ONCE, CRASH_ONCE, STOPS_EARLY))] == [STOPS_EARLY, CRASH_ONCE]


def test_the_cost_is_without_waiting_for_a_processor():
    record = sample(0)
    record.times = {"read": StageTime(1.0, 0.1, 0.7), "decode": StageTime(2.0, 2.0, None)}
    assert cost_seconds(record) == pytest.approx(0.1 + 0.2 + 2.0)


def test_points_of_a_hundred_thousand_samples_are_few_and_from_everywhere():
    found = gathered(sample(at) for at in range(100_000))
    drawn = found.points[FINE]
    assert (drawn.seen, len(drawn.kept)) == (100_000, gather.MOST_POINTS)
    assert sum(point.index < 50_000 for point in drawn.kept) == pytest.approx(gather.MOST_POINTS / 2, rel=0.15)
    assert sum(map(sys.getsizeof, drawn.kept)) < 1 << 20


def test_each_is_drawn_as_likely_as_any_other():
    hits = [0] * 20
    for seed in range(400):
        drawn = Drawn[int](5)
        drawn._random.seed(seed)
        for number in range(20):
            place = drawn.wants()
            if place is not None:
                drawn.put(place, number)
        assert len(drawn.kept) == 5
        for number in drawn.kept:
            hits[number] += 1
    assert all(60 < count < 140 for count in hits), hits
