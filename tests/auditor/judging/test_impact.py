"""What they cost."""

import numpy as np
import pytest

from fastfeed.auditor.judging.impact import Impact, costliest
from fastfeed.auditor.judging.impact import impact as impact_or_none
from fastfeed.auditor.judging.ledger import Ledger
from fastfeed.auditor.record import SampleRecord, StageTime


def impact(table, rows):
    """Where there is some."""
    found = impact_or_none(table, rows)
    assert found is not None
    return found


def table_of(count=1000, slow=2, factor=200.0):
    """Each takes 1 ms to decode and 1 ms to read; the first ones take so many times as long to decode."""
    ledger = Ledger()
    for index in range(count):
        decode = 1e-3 * (factor if index < slow else 1)
        ledger.add(SampleRecord(index, times={"read": StageTime(1e-3, 1e-3, 0), "decode": StageTime(decode, decode, 0)}))
    return ledger.table()


def test_part_of_samples_and_of_time():
    found = impact(table_of(), np.arange(2))
    assert (found.samples, found.stage) == (2, "decode")
    assert found.part_of_samples == 0.002
    assert found.part_of_stage == pytest.approx(400 / 1398)
    assert found.part_of_time == pytest.approx(402 / 2398)
    assert found.excess_seconds == pytest.approx(0.199)
    assert found.steps == pytest.approx(1 / (1 - 0.998**256))
    assert found.sentence() == (
        "0.2 % of samples take 29 % of decode time; with batches of 256, every second batch holds one of them, and in the "
        "median it takes 199.0 ms more than a median sample"
    )
    assert found.as_json()["sentence"] == found.sentence()


def test_waiting_for_a_processor_costs_nothing():
    ledger = Ledger()
    for index in range(10):
        ledger.add(SampleRecord(index, times={"load": StageTime(1.0 if index else 9.0, 0.5, 0.5 if index else 8.5)}))
    assert impact(ledger.table(), np.arange(1)).part_of_time == pytest.approx(0.1)


def test_in_each_batch():
    assert "each batch holds one of them" in impact(table_of(300, 30), np.arange(30)).sentence()


def test_less_than_a_batch_in_all():
    assert impact(table_of(255, 30), np.arange(30)).sentence() == "12 % of samples take 96 % of decode time"


def test_so_rare_that_no_batch_is_said():
    assert "one batch in 4 holds one of them" in impact(table_of(1000), np.arange(1)).sentence()
    found = Impact(1, 1e-7, "load", 0.01, 0.01, 1.0, 39_000.0)
    assert found.sentence() == "1e-05 % of samples take 1 % of load time"


def test_nothing():
    assert impact_or_none(table_of(), np.arange(0)) is None
    assert impact_or_none(Ledger().table(), np.arange(0)) is None
    ledger = Ledger()
    ledger.add(SampleRecord(0, times={"load": StageTime(0, 0, 0)}))
    assert impact_or_none(ledger.table(), np.arange(1)) is None
    assert costliest(ledger.table()) == ()


def test_the_costliest_and_their_share():
    found = costliest(table_of(10, 2, factor=9.0), 3)
    assert [one.index for one in found] == [0, 1, 2]
    assert found[0].seconds == pytest.approx(0.010)
    assert found[0].part == pytest.approx(10 / 36)
    assert found[1].cumulative == pytest.approx(20 / 36)
    assert set(found[0].as_json()) == {"index", "seconds", "part", "cumulative"}
