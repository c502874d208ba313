import json
from dataclasses import fields
from typing import Any

import pytest

from fastfeed.auditor.finding import Code, Finding, Severity
from fastfeed.auditor.record import SampleRecord, StageTime

WIDE = Code("wide", Severity.INFO, "Wider than others", "Nothing.")
SLOW = Code("slow", Severity.WARNING, "Slow for its size", "Re-encode it.")


def test_blocked_is_what_no_processor_explains():
    assert StageTime(wall=0.5, cpu=0.1, delay=0.15).blocked == 0.25
    assert StageTime(wall=0.1, cpu=0.11, delay=0.0).blocked == 0
    assert StageTime(wall=0.5, cpu=0.1, delay=None).blocked is None


def test_flagged_from_a_warning_on():
    record = SampleRecord(3)
    assert record.status == "ok"
    record.findings.append(Finding(WIDE, "9000 pixels"))
    assert (record.status, record.severity) == ("ok", Severity.INFO)
    record.findings.append(Finding(SLOW, "30 times"))
    assert (record.status, record.severity) == ("flagged", Severity.WARNING)


def test_names_for_people():
    assert SampleRecord(3).name == "sample 3"
    assert SampleRecord(3, key="k").name == "k"
    assert SampleRecord(3, key="k", path="a\nb\udcff.jpg").name == "a\\nb\\udcff.jpg"


def test_as_json_leaves_out_what_is_unknown():
    record = SampleRecord(3, key="k", size_bytes=0, times={"read": StageTime(0.25, 0.125, None, 2)})
    record.times["decode"] = StageTime(0.5, 0.5, 0.0)
    assert (record.wall_seconds, record.cpu_seconds) == (0.75, 0.625)
    line = json.loads(json.dumps(record.as_json()))
    assert line == {
        "key": "k", "index": 3, "size_bytes": 0, "status": "ok", "findings": [],
        "times": {
            "read": {
                "wall_seconds": 0.25, "cpu_seconds": 0.125, "delay_seconds": None, "blocked_seconds": None, "major_faults": 2,
            },
            "decode": {
                "wall_seconds": 0.5, "cpu_seconds": 0.5, "delay_seconds": 0.0, "blocked_seconds": 0.0, "major_faults": 0,
            },
        },
    }  # fmt: skip


def test_it_comes_back_from_a_report():
    record = SampleRecord(3, path="a\udcff.jpg", width=2, times={"read": StageTime(0.25, 0.125, None, 2)})
    record.findings.append(Finding(SLOW, "30 times"))
    line = json.loads(json.dumps(record.as_json()))
    assert SampleRecord.from_json(line, {"slow": SLOW}) == record
    with pytest.raises(KeyError, match="slow"):
        SampleRecord.from_json(line, {})


def test_it_comes_back_from_a_row_by_way_of_json():
    times = {"read": StageTime(0.25, 0.125, None, 2), "decode": StageTime(1.234568e-3, 0.0, 5e-9)}
    record = SampleRecord(3, key="k", path="a\udcff.jpg", label="", width=2, peak_bytes=0, times=times)
    record.findings.append(Finding(SLOW, "30 times"))
    row = json.loads(json.dumps(record.as_row()))
    assert row[0] == 3 and "width" not in json.dumps(row)
    assert SampleRecord.from_row(row, {"slow": SLOW}) == record
    with pytest.raises(KeyError, match="slow"):
        SampleRecord.from_row(row, {})


def test_every_fact_has_its_place_in_a_row():
    names = [entry.name for entry in fields(SampleRecord) if entry.name not in {"times", "findings"}]
    known: dict[str, Any] = {name: number for number, name in enumerate(names)}
    record = SampleRecord(**known)
    assert record.as_row() == [*known.values(), {}, []]
    assert set(record.as_json()) - {"status", "findings", "times"} == set(known)


def test_where_only_the_wall_clock_is_known_its_time_counts_as_computing():
    unknown = dict.fromkeys(("cpu_seconds", "delay_seconds", "blocked_seconds", "major_faults"))
    assert StageTime.from_json({"wall_seconds": 0.25, **unknown}) == StageTime(0.25, 0.25, None)
