import pytest
from reporting import flagged, result_of, sample

from fastfeed.auditor.judging.codes import STALL_ONCE
from fastfeed.auditor.report.words import headline, percent, statements, subline
from fastfeed.auditor.result import Compared
from fastfeed.auditor.running.codes import CRASH, CRASH_ONCE


@pytest.mark.parametrize(
    ("part", "told"),
    [
        (0.31, "31 %"),
        (0.002, "0.2 %"),
        (0.000031, "0.003 %"),
        (0.000097, "0.01 %"),
        (1e-7, "0.00001 %"),
        (0, "0 %"),
        (1, "100 %"),
        (0.0985, "9.8 %"),
    ],
)
def test_percent(part, told):
    assert percent(part) == told


@pytest.mark.parametrize(
    ("codes", "compared", "told"),
    [
        ([], None, "10 samples, and nothing is wrong."),
        ([], Compared("old", 1, 0), "10 samples, and nothing new is wrong."),
        ([STALL_ONCE], None, "10 samples, and none of them is flagged."),
        ([CRASH], None, "1 of 10 samples (10 %) has something to mend."),
        ([CRASH, CRASH_ONCE], Compared("old", 1, 0), "2 of 10 samples (20 %) have something new to mend."),
    ],
)
def test_headline(codes, compared, told):
    records = [flagged(at, code) for at, code in enumerate(codes)]
    result, _ = result_of([*records, *(sample(at) for at in range(len(codes), 10))], compared=compared)
    assert headline(result) == told


def test_what_was_audited():
    result, _ = result_of([sample(0)], samples=1000, fast=True)
    assert subline(result) == "a folder of files; 1 of its 1,000 samples, 1000 B, in 2.0 s with 2 processes, with --fast"


def test_statements_the_most_important_first():
    result, _ = result_of(
        [flagged(0, CRASH)], costs=("slow: 0.2 % of samples take 31 % of decode time",), at_most=0.0123, complete=False,
        compared=Compared("old.jsonl", 3, 1),
    )  # fmt: skip
    assert statements(result) == [
        "1 sample has an error: it cannot be loaded, or is not what was stored.",
        "Slow: 0.2 % of samples take 31 % of decode time.",
        "With 95 % confidence at most 1.2 % of all samples have an error.",
        "Only what is new is counted: 3 findings known from old.jsonl are left out, 1 is gone.",
        "Time was up before all samples were looked at: what follows is a part.",
    ]
    assert statements(result_of([sample(0)])[0]) == []
