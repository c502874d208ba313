import json
import os
import tempfile
import time

import pytest
from auditing import lines_of

from fastfeed.auditor.finding import Finding
from fastfeed.auditor.record import SampleRecord, StageTime
from fastfeed.auditor.running.codes import CRASH, HANG, MEMORY
from fastfeed.auditor.running.journal import SUFFIX, Journal
from fastfeed.auditor.running.limits import Limits
from fastfeed.errors import DestinationBusy, DestinationError, DestinationOccupied

IDENTITY = {"target": "/x", "digest": "d", "fast": False}


def record(index):
    times = {"read": StageTime(0.5, 0.25, None)}
    return SampleRecord(index, path=f"{index}.jpg", times=times, findings=[Finding(CRASH, f"at {index}")] if index == 2 else [])


@pytest.fixture
def report(tmp_path):
    return tmp_path / "report.jsonl"


def test_records_come_back_whole_and_in_order(report):
    with Journal(str(report), IDENTITY) as journal:
        for index in (5, 2, 0):
            journal.add(record(index))
        assert len(journal) == 3 and 2 in journal and 1 not in journal and 99 not in journal
        assert journal.get(2) == record(2)
        assert list(journal) == [record(0), record(2), record(5)]
        assert not report.exists()
        journal.publish()
    assert [line["index"] for line in lines_of(report)] == [0, 2, 5]
    assert lines_of(report)[1] == record(2).as_json()
    assert [path.name for path in report.parent.iterdir()] == ["report.jsonl"]


def test_a_later_record_replaces_one(report):
    with Journal(str(report), IDENTITY) as journal:
        journal.add(record(1))
        journal.add(SampleRecord(1, path="new"))
        assert len(journal) == 1 and journal.get(1).path == "new"
        journal.publish()
    assert [line["path"] for line in lines_of(report)] == ["new"]


def test_a_record_that_is_at_hand_as_a_row_is_kept_so(report):
    with Journal(str(report), IDENTITY) as journal:
        journal.add(record(2), json.dumps(record(2).as_row()).encode())
        journal.add(record(0))
        assert list(journal) == [record(0), record(2)]
        journal.add(record(1))
        assert journal.get(1) == record(1)


def test_records_reach_the_file_while_an_audit_goes_on(report):
    with Journal(str(report), IDENTITY) as journal:
        journal.add(record(0))
        deadline = time.monotonic() + 20
        while (report.parent / (report.name + SUFFIX)).read_bytes().count(b"\n") < 3 and time.monotonic() < deadline:
            time.sleep(0.05)
            journal.add(record(1))
        assert time.monotonic() < deadline


@pytest.mark.parametrize("steps", [(), ("add",), ("add", "get")], ids=["closing", "adding", "reading"])
def test_a_full_disk_is_told_as_such(monkeypatch, steps):
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: os.fdopen(os.open("/dev/full", os.O_RDWR), "r+b"))
    with pytest.raises(DestinationError, match="No space left") as caught:
        used(Journal(None, IDENTITY), steps)
    assert "temporary files" in caught.value.message
    assert caught.value.hint is not None and "begins anew" in caught.value.hint and "continues" not in caught.value.hint


def used(journal, steps):
    """Add a record, get it, close the journal."""
    with journal:
        if "add" in steps:
            journal.add(record(0))
        if "get" in steps:
            journal.get(0)


def test_without_a_report_nothing_is_left(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Journal(None, IDENTITY) as journal:
        journal.add(record(0))
        assert list(journal) == [record(0)]
        journal.publish()
    assert not list(tmp_path.iterdir())


def test_what_was_interrupted_is_continued_but_for_a_torn_line(report):
    with Journal(str(report), IDENTITY) as journal:
        for index in range(3):
            journal.add(record(index))
    part = report.parent / (report.name + SUFFIX)
    part.write_bytes(part.read_bytes()[:-7])
    with Journal(str(report), IDENTITY) as journal:
        assert (journal.kept, journal.notes) == (2, [])
        assert list(journal) == [record(0), record(1)]
        journal.add(record(2))
        journal.publish()
    assert [line["index"] for line in lines_of(report)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("code", "before", "now", "again"),
    [
        (HANG, Limits(2.0), Limits(3.0), True), (HANG, Limits(2.0), Limits(None), True),
        (HANG, Limits(2.0), Limits(2.0), False),
        (HANG, Limits(None), Limits(60.0), False), (HANG, Limits(2.0, 10), Limits(2.0, 20), False),
        (MEMORY, Limits(2.0, 10), Limits(2.0, 20), True), (MEMORY, Limits(2.0, 10), Limits(3.0, 10), False),
        (MEMORY, Limits(None, 10), Limits(None, None), True), (CRASH, Limits(2.0, 10), Limits(3.0, 20), False),
    ],
)  # fmt: skip
def test_samples_that_may_take_more_than_before_are_loaded_again(report, code, before, now, again):
    with Journal(str(report), IDENTITY) as journal:
        journal.begin(before)
        journal.add(SampleRecord(0, findings=[Finding(code, "x")]))
        journal.add(record(1))
    with Journal(str(report), IDENTITY) as journal:
        journal.begin(now)
        assert (list(journal) == [record(1)]) is again
        assert journal.kept == (1 if again else 2)
        assert any("1 sample loaded again" in note for note in journal.notes) is again
        journal.add(record(0))
    with Journal(str(report), IDENTITY) as journal:
        journal.begin(Limits(1000.0, 1000))
        assert list(journal) == [record(0), record(1)], "its later record has no such finding"


def test_what_a_power_cut_has_left_as_zeros_is_cut_off(report):
    with Journal(str(report), IDENTITY) as journal:
        for index in range(2):
            journal.add(record(index))
    with open(f"{report}{SUFFIX}", "ab") as part:
        part.write(bytes(4096) + b"\n" + b'{"ind\n')
    with Journal(str(report), IDENTITY) as journal:
        assert list(journal) == [record(0), record(1)]
        journal.add(record(2))
        assert list(journal) == [record(0), record(1), record(2)]


def test_records_of_samples_that_there_are_no_more_are_forgotten(report):
    with Journal(str(report), IDENTITY) as journal:
        for index in range(5):
            journal.add(record(index))
    with Journal(str(report), IDENTITY) as journal:
        journal.keep_below(3)
        assert journal.kept == 3 and list(journal) == [record(0), record(1), record(2)]


@pytest.mark.parametrize(
    ("change", "why"), [({"digest": "other"}, "what is audited has changed since"), ({"fast": True}, "it had another fast")]
)
def test_another_audit_is_begun_anew_and_says_so(report, change, why):
    with Journal(str(report), IDENTITY) as journal:
        journal.add(record(0))
    with Journal(str(report), {**IDENTITY, **change}) as journal:
        assert journal.kept == 0 and why in journal.notes[0]
        assert list(journal) == []


def test_two_at_once(report):
    with Journal(str(report), IDENTITY), pytest.raises(DestinationBusy, match="another audit"):
        Journal(str(report), IDENTITY)


def test_a_foreign_file_is_left_alone(report):
    part = report.parent / (report.name + SUFFIX)
    part.write_text("my diary\n")
    with pytest.raises(DestinationOccupied, match="no audit wrote"):
        Journal(str(report), IDENTITY)
    assert part.read_text() == "my diary\n"


def test_where_nothing_can_be_written(tmp_path):
    with pytest.raises(DestinationError, match="No such file"):
        Journal(str(tmp_path / "none" / "report.jsonl"), IDENTITY)


def test_names_with_bytes_that_are_no_text(report):
    odd = SampleRecord(0, path="caf\udce9.jpg")
    with Journal(str(report), IDENTITY) as journal:
        journal.add(odd)
        assert journal.get(0) == odd
        journal.publish()
    assert json.loads(report.read_bytes())["path"] == "caf\udce9.jpg"


def test_what_is_said_of_no_sample_comes_last(report):
    with Journal(str(report), IDENTITY) as journal:
        journal.add(record(0))
        journal.publish([SampleRecord(1, key="classes: cat", findings=[Finding(CRASH, "cat: none")])])
    assert [(line["index"], line.get("key"), line["status"]) for line in lines_of(report)] == [
        (0, None, "ok"), (1, "classes: cat", "flagged"),
    ]  # fmt: skip
