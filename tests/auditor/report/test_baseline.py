import json

import pytest
from reporting import flagged, sample

from fastfeed.auditor.judging.codes import SLOW, STALL_ONCE
from fastfeed.auditor.record import SampleRecord
from fastfeed.auditor.report.baseline import Baseline
from fastfeed.auditor.running.codes import CRASH, CRASH_ONCE, FAILS
from fastfeed.errors import UsageError


def report_of(folder, *records):
    path = folder / "old.jsonl"
    path.write_text("".join(json.dumps(record.as_json()) + "\n" for record in records))
    return str(path)


def left_of(baseline, record):
    baseline.leave_out(record)
    return [found.code.name for found in record.findings]


def test_what_is_known_is_left_out_and_what_is_new_stays(tmp_path):
    old = Baseline(report_of(tmp_path, flagged(0, CRASH, SLOW), sample(1), flagged(2, FAILS)))
    assert left_of(old, flagged(0, CRASH, STALL_ONCE, CRASH)) == ["stall-once"]
    assert left_of(old, flagged(1, CRASH)) == ["crash"]
    assert left_of(old, sample(2)) == []
    compared = old.compared(whole=True)
    assert (compared.left_out, compared.gone) == (1, 2)
    assert compared.sentence == (
        f"Only what is new is counted: 1 finding known from {tmp_path}/old.jsonl is left out, 2 are gone."
    )


def test_by_path_else_key_else_position(tmp_path):
    by_key = SampleRecord(7, key="a7", findings=flagged(7, FAILS).findings)
    by_index = SampleRecord(8, findings=by_key.findings)
    names = report_of(tmp_path, flagged(5, FAILS, path="a\udcff\n.jpg", key="k"), by_key, by_index)

    def left(**names_now):
        return left_of(Baseline(names), SampleRecord(findings=flagged(0, FAILS).findings, **names_now))

    assert left(index=99, path="a\udcff\n.jpg", key="another") == []
    assert left(index=99, key="a7") == []
    assert left(index=8) == []
    assert left(index=7) == left(index=8, key="a8") == left(index=5, path="b.jpg", key="k") == ["fails"]


def test_a_line_that_nests_too_deep_is_no_record(tmp_path):
    (tmp_path / "deep.jsonl").write_text("[" * 200_000 + "]" * 200_000)
    with pytest.raises(UsageError, match="line 1 of the baseline is no record"):
        Baseline(str(tmp_path / "deep.jsonl"))


def test_of_samples_that_were_not_audited_again_nothing_is_gone(tmp_path):
    old = Baseline(report_of(tmp_path, flagged(0, CRASH), flagged(1, CRASH), flagged(2, CRASH, SLOW)))
    old.leave_out(sample(0))
    assert old.compared(whole=False).gone == 1
    assert old.compared(whole=True).gone == 4


def test_one_name_in_two_splits_is_two_samples(tmp_path):
    old = Baseline(report_of(tmp_path, flagged(0, CRASH, path="0.jpg", split="a"), flagged(1, SLOW, path="0.jpg", split="b")))
    assert left_of(old, flagged(0, CRASH, path="0.jpg", split="a")) == []
    assert left_of(old, flagged(1, CRASH, SLOW, path="0.jpg", split="b")) == ["crash"]
    assert (old.compared(whole=True).left_out, old.compared(whole=True).gone) == (2, 0)


def test_codes_that_this_version_does_not_know(tmp_path):
    line = {**sample(0).as_json(), "findings": [{"code": "of-the-future", "severity": "error", "text": ""}]}
    (tmp_path / "old.jsonl").write_text(json.dumps(line) + "\n")
    assert left_of(Baseline(str(tmp_path / "old.jsonl")), flagged(0, CRASH_ONCE)) == ["crash-once"]


@pytest.mark.parametrize(
    "line", [b"{}", b"[]", b"7", b"\xff", b'{"index": 0}', b'{"index": "x", "findings": []}', b'{"index": 0, "findings": [7]}']
)
def test_what_is_no_report(tmp_path, line):
    path = tmp_path / "old.jsonl"
    path.write_bytes(json.dumps(sample(0).as_json()).encode() + b"\n" + line + b"\n")
    with pytest.raises(UsageError, match=r"line 2 of the baseline is no record of an audit.*--jsonl"):
        Baseline(str(path))


def test_a_report_that_is_not_there(tmp_path):
    with pytest.raises(UsageError, match="the baseline cannot be read: No such file"):
        Baseline(str(tmp_path / "none.jsonl"))
