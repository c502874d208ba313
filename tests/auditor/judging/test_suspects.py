"""Who stands out in the first measurement."""

import pytest
from clocksim import Sample, Scene, photos

from fastfeed.auditor.judging.expectation import expectations
from fastfeed.auditor.judging.groups import grouped
from fastfeed.auditor.judging.ledger import Ledger
from fastfeed.auditor.judging.rules import Cuts
from fastfeed.auditor.judging.suspects import suspects
from fastfeed.auditor.record import SampleRecord, StageTime


def found_in(records, cuts=None):
    cuts = cuts or Cuts()
    ledger = Ledger()
    for record in records:
        ledger.add(record)
    table = ledger.table()
    groups = grouped(table)
    return suspects(table, groups, expectations(table, groups, cuts)[0], cuts)


def with_times(records, at, stage, time):
    records[at].times[stage] = time
    return records


def steady(count=100, cpu=1e-3):
    """All alike, so that the scatter is its floor."""
    return [SampleRecord(n, times={"decode": StageTime(cpu, cpu, 0)}) for n in range(count)]


def test_much_computing():
    (one,) = found_in(with_times(steady(), 7, "decode", StageTime(0.05, 0.05, 0)))
    assert (one.row, one.stage, one.clock) == (7, "decode", "cpu")
    assert one.excess_seconds == pytest.approx(0.049, rel=0.01)


@pytest.mark.parametrize(
    ("cpu", "times", "suspicious"),
    [
        (10e-3, 1.7, False),  # 5 standard deviations, and not thrice
        (10e-3, 1.9, True),  # 6
        (0.1e-3, 5.0, False),  # 16, but 0.4 ms
        (0.1e-3, 12.0, True),
    ],
)
def test_both_a_distance_and_an_excess(cpu, times, suspicious):
    records = with_times(steady(cpu=cpu), 3, "decode", StageTime(cpu * times, cpu * times, 0))
    assert [one.row for one in found_in(records)] == ([3] if suspicious else [])


def test_a_lower_distance_is_enough_for_many_times_as_long():
    records = steady(cpu=2e-3)
    for n, record in enumerate(records):  # a scatter of about 0.3
        cpu = 2e-3 * (0.65, 0.82, 1.0, 1.22, 1.5)[n % 5]
        record.times["decode"] = StageTime(cpu, cpu, 0)
    records = with_times(records, 2, "decode", StageTime(8e-3, 8e-3, 0))
    assert [one.row for one in found_in(records)] == [2]
    assert found_in(records, Cuts(ratio=5.0)) == []


@pytest.mark.parametrize(("blocked", "suspicious"), [(9e-3, False), (11e-3, True)])
def test_waiting(blocked, suspicious):
    records = with_times(steady(), 3, "decode", StageTime(1e-3 + blocked, 1e-3, 0))
    assert [one.clock for one in found_in(records)] == (["blocked"] if suspicious else [])


def test_where_all_wait_only_more_is_suspicious():
    records = [SampleRecord(n, times={"read": StageTime(21e-3, 1e-3, 0)}) for n in range(50)]
    assert found_in(with_times(records, 3, "read", StageTime(0.15, 1e-3, 0))) == []
    assert [one.row for one in found_in(with_times(records, 3, "read", StageTime(0.25, 1e-3, 0)))] == [3]


def test_where_storage_is_waited_for_large_files_wait_longer():
    """10 MB/s: 100 kB in 10 ms. 5 MB take half a second, 50 times the median, and that is right."""
    records = []
    for n in range(50):
        size = 5_000_000 if n == 9 else 100_000
        records.append(SampleRecord(n, size_bytes=size, times={"read": StageTime(size / 1e7, 0.0, 0)}))
    assert found_in(records) == []


def test_waiting_for_a_processor_is_not_suspicious_where_the_kernel_tells_it():
    assert found_in(with_times(steady(), 3, "decode", StageTime(0.3, 1e-3, 0.299))) == []
    (one,) = found_in(with_times(steady(), 3, "decode", StageTime(0.3, 1e-3, None)))
    assert (one.clock, one.sure) == ("blocked", False)


def test_the_costliest_first():
    scene = Scene(photos(0, 200))
    scene.samples[5].decode += 0.1
    scene.samples[6].blocked = 0.3
    scene.samples[7].decode += 0.2
    assert [one.row for one in found_in(scene.records())] == [6, 7, 5]


def test_one_clock_a_suspicion():
    scene = Scene(photos(0, 200))
    scene.samples[5] = Sample(decode=0.1, blocked=0.2)
    assert {(one.stage, one.clock) for one in found_in(scene.records())} == {("read", "blocked"), ("decode", "cpu")}


@pytest.mark.parametrize("count", [0, 1, 2])
def test_one_or_two_samples_have_no_like(count):
    assert found_in([SampleRecord(n, times={"load": StageTime(10.0**n, 10.0**n, 0)}) for n in range(count)]) == []
