"""Codes of times."""

from fastfeed.auditor.finding import Severity
from fastfeed.auditor.judging.codes import PROVEN_SLOW, SLOW_FORMAT, SLOW_KIND, SLOW_UNCONFIRMED, STALL_ONCE, TIMING_CODES


def test_published_names_stay():
    assert set(TIMING_CODES) == {
        "slow",
        "slow-cold",
        "random-slow",
        "stall-once",
        "slow-unconfirmed",
        "oversize",
        "slow-format",
        "slow-kind",
    }


def test_what_is_not_proven_flags_no_sample():
    assert {STALL_ONCE.severity, SLOW_UNCONFIRMED.severity, SLOW_FORMAT.severity, SLOW_KIND.severity} == {Severity.INFO}
    assert {code.severity for code in PROVEN_SLOW} == {Severity.WARNING}


def test_each_says_what_to_do():
    for code in TIMING_CODES.values():
        assert code.advice.endswith("."), code.name
        assert not code.title.endswith("."), code.name
