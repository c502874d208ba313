"""Far larger than the others."""

import pytest
from clocksim import Sample, Scene, photos

from fastfeed.auditor.judging.ledger import Ledger
from fastfeed.auditor.judging.oversize import oversized


def table_of(samples, **machine):
    ledger = Ledger()
    for record in Scene(samples, **machine).records():
        ledger.add(record)
    return ledger.table()


def test_many_times_what_nearly_all_have():
    samples = photos(0, 400)
    samples[7].size_bytes = 50_000_000
    samples[9].pixels = 80_000_000
    found = oversized(table_of(samples), set())
    assert set(found) == {7, 9}
    assert found[7].text.startswith("47.7 MiB, ")
    assert " times what 99 % of the samples stay below (" in found[7].text
    assert found[9].text.startswith("80,000,000 pixels, ")


def test_a_visible_part_of_all_time_alone():
    samples = photos(1, 400)
    samples[7] = Sample(pixels=1_500_000, size_bytes=300_000, decode=0.1)
    found = oversized(table_of(samples), set())
    assert set(found) == {7}
    assert "of all time, as much as" in found[7].text


def test_what_is_slow_for_its_size_is_not_large():
    samples = photos(1, 400)
    samples[7] = Sample(pixels=1_500_000, size_bytes=300_000, decode=0.1)
    assert oversized(table_of(samples), {7}) == {}
    samples[7] = Sample(pixels=200_000, size_bytes=40_000, decode=0.1)
    assert oversized(table_of(samples), set()) == {}


def test_ordinary_photos_hold_none():
    for seed in range(5):
        assert oversized(table_of(photos(seed, 1000)), set()) == {}


@pytest.mark.parametrize("count", [10, 11, 51, 99])
def test_among_few_samples_what_is_far_larger_and_takes_its_time(count):
    samples = photos(0, count)
    samples[7] = Sample(pixels=63_000_000, size_bytes=45_000_000, decode=0.6)
    found = oversized(table_of(samples), set())
    assert set(found) == {7}
    assert found[7].text.startswith("42.9 MiB, ") and "; 63,000,000 pixels, " in found[7].text
    assert " times what nine of ten of the samples stay below (" in found[7].text
    assert oversized(table_of(samples), {7}) == {}


def test_among_few_samples_a_large_one_that_takes_no_time_is_none():
    samples = photos(0, 99)
    samples[7].size_bytes = 50_000_000
    assert oversized(table_of(samples), set()) == {}
    samples[7] = Sample(pixels=1_500_000, size_bytes=300_000, decode=0.1)
    assert oversized(table_of(samples), set()) == {}
    for seed in range(5):
        assert oversized(table_of(photos(seed, 50)), set()) == {}


def test_too_few_samples_and_unknown_sizes():
    samples = photos(0, 9)
    samples[7] = Sample(pixels=63_000_000, size_bytes=45_000_000, decode=0.6)
    assert oversized(table_of(samples), set()) == {}
    assert oversized(table_of(photos(0, 400), opaque=True), set()) == {}
    assert oversized(Ledger().table(), set()) == {}
