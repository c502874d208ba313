"""Formats that are slow as a whole."""

import numpy as np
from clocksim import Sample, Scene, photo

from fastfeed.auditor.judging.expectation import expectations
from fastfeed.auditor.judging.formats import slow_formats
from fastfeed.auditor.judging.groups import grouped
from fastfeed.auditor.judging.ledger import Ledger
from fastfeed.auditor.judging.rules import Cuts


def found_in(*kinds, **machine):
    """Kinds: format, how many, how many times as long as JPEG."""
    random = np.random.default_rng(4)
    samples = []
    for name, count, times in kinds:
        for _ in range(count):
            one = photo(random, format=name)
            one.decode *= times
            samples.append(one)
    return found_among(samples, **machine)


def found_among(samples, **machine):
    ledger = Ledger()
    for record in Scene(samples, **machine).records():
        ledger.add(record)
    table = ledger.table()
    return slow_formats(table, expectations(table, grouped(table), Cuts())[1], Cuts())


def test_all_samples_of_it_and_no_other():
    found = found_in(("JPEG", 200, 1), ("JPEG2000", 50, 40), ("PNG", 50, 2))
    assert set(found) == set(range(200, 250))
    text = found[200].text
    assert text.startswith("decode takes ")
    assert " times as long as JPEG of its size: the 50 samples of JPEG2000 (16.67%) take " in text
    assert len(set(map(id, found.values()))) == 1, "one finding for all: there may be a million"


def test_what_most_samples_have_is_usual():
    assert found_in(("JPEG2000", 200, 40), ("JPEG", 50, 1)) == {}


def test_a_rare_format_is_judged_sample_by_sample():
    assert found_in(("JPEG", 200, 1), ("JPEG2000", 20, 40)) == {}


def test_many_times_nearly_nothing():
    samples = [Sample(format="A", decode=20e-6)] * 100 + [Sample(format="B", decode=400e-6)] * 50
    assert found_among(samples) == {}


def test_what_has_no_size_in_common_is_not_compared():
    samples = [Sample(format="text", pixels=None, decode=20e-6)] * 100 + [Sample(format="JPEG", decode=5e-3)] * 50
    assert found_among(samples) == {}


def test_one_format_and_none():
    assert found_in(("JPEG", 100, 1)) == {}
    assert found_in(("JPEG", 100, 1), opaque=True) == {}
    assert found_among([]) == {}
