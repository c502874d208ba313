import pytest

from fastfeed.auditor.finding import Finding, Severity
from fastfeed.auditor.looking.setcodes import TINY_CLASS
from fastfeed.auditor.record import SampleRecord, StageTime
from fastfeed.auditor.result import AuditResult, Compared, Summary
from fastfeed.auditor.running.codes import CRASH, CRASH_ONCE, FAILS


def record(index, *codes, seconds=1.0, size_bytes=None, kind=None):
    times = {"transform": StageTime(seconds, seconds / 2, 0.0), "read": StageTime(0.5, 0.25, 0.0)}
    findings = [Finding(code, f"{code.name} {index}") for code in codes]
    return SampleRecord(index, path=f"{index}.jpg", times=times, findings=findings, size_bytes=size_bytes, format=kind)


def summed(*records):
    summary = Summary()
    for one in records:
        summary.add(one)
    return summary


def test_the_worst_and_most_frequent_come_first():
    summary = summed(*(record(at, CRASH_ONCE) for at in range(9)), record(9, FAILS), record(10, CRASH), record(11, CRASH))
    assert [(one.code, one.samples) for one in summary.found()] == [("crash", 2), ("fails", 1), ("crash-once", 9)]
    assert summary.found()[0].examples == (("10.jpg", "crash 10"), ("11.jpg", "crash 11"))
    assert len(summary.found()[2].examples) == 5
    assert (summary.flagged, summary.errors, summary.records) == (12, 3, 12)


def test_two_findings_of_one_code_are_one_sample():
    assert summed(record(0, FAILS, FAILS)).found()[0].samples == 1


def test_stages_in_their_order():
    stages = summed(record(0, seconds=1.0), record(1, seconds=3.0)).stages()
    assert [(one.stage, one.samples, one.wall_seconds, one.cpu_seconds) for one in stages] == [
        ("read", 2, 1.0, 0.5), ("transform", 2, 4.0, 2.0),
    ]  # fmt: skip
    assert (stages[1].slowest_seconds, stages[1].slowest) == (3.0, "1.jpg")


def test_what_is_said_of_a_set():
    summary = summed(record(0, size_bytes=5, kind="PNG"), record(1, size_bytes=7, kind="PNG"))
    summary.add_of_set("classes", Finding(TINY_CLASS, "cat: 1 sample"))
    assert {one.code: one.about for one in summary.found()}[TINY_CLASS.name] == "finding"
    facts = summary.facts(others=1, at_most=0.25)
    assert (facts["audited"], facts["others"], facts["size_bytes"], facts["formats"]) == (1, 1, 12, {"PNG": 2})
    assert facts["found"][0].examples == (("classes", "cat: 1 sample"),)
    assert (facts["flagged"], facts["at_most"], facts["of_set"]) == (0, 0.25, 1)


def result(*records):
    return AuditResult(
        target="t", what="w", kind="folder", samples=1, costs=(), costliest=(), judged={}, complete=True, fast=False, workers=1,
        report=None, notes=(), seconds=1.0, **summed(*records).facts(others=0, at_most=None),
    )  # fmt: skip


def test_the_worst_of_all():
    assert result(record(0)).worst is None
    assert result(record(0, CRASH_ONCE)).worst is Severity.WARNING
    assert result(record(0, CRASH_ONCE), record(1, CRASH)).worst is Severity.ERROR


@pytest.mark.parametrize(
    ("left_out", "gone", "told"),
    [
        (1, 1, "1 finding known from old.jsonl is left out, 1 is gone."),
        (1200, 0, "1,200 findings known from old.jsonl are left out, 0 are gone."),
    ],
)
def test_how_it_compares(left_out, gone, told):
    assert Compared("old.jsonl", left_out, gone).sentence == f"Only what is new is counted: {told}"
