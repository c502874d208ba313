import json

import pytest

from fastfeed.errors import UsageError
from fastfeed.packer.rows.auditreport import ERROR, WARNING, Audited, read_report


def line(**more):
    return json.dumps({"index": 0, "status": "ok", "findings": [], "times": {}, **more}) + "\n"


def test_what_packing_needs_of_a_line(tmp_path):
    findings = [
        {"code": "progressive", "severity": "info", "text": "10 scans"},
        {"code": "truncated", "severity": "error", "text": "it ends"},
    ]
    image = line(path="cat/1.jpg", size_bytes=7, format="JPEG progressive", width=3, height=2, mode="RGB", findings=findings)
    (tmp_path / "r.jsonl").write_text(image + line(path="x\udcff.bin", size_bytes=0) + line(key="no-path"))
    first, second, third = read_report(str(tmp_path / "r.jsonl"))
    assert first == Audited("cat/1.jpg", 7, "JPEG progressive", 3, 2, "RGB", {"progressive": "info", "truncated": "error"})
    assert (first.code_of(ERROR), first.code_of(WARNING)) == ("truncated", None)
    assert first.is_jpeg and not second.is_jpeg
    assert second == Audited("x\udcff.bin", 0, None, None, None, None, {})
    assert third.path is None


@pytest.mark.parametrize(
    "wrong",
    ["no JSON", "[]", "3", line(index="0"), line(findings=None), line(findings=[{"code": "x"}]), line(path="a", size_bytes="7"),
     line(path="a", width=-1), '{"source": "a.jpg"}'],
)  # fmt: skip
def test_a_line_that_no_audit_has_written_is_named(tmp_path, wrong):
    (tmp_path / "r.jsonl").write_text(line(path="a") + wrong.strip() + "\n")
    with pytest.raises(UsageError, match=r"line 2 of the audit report is no record of a sample .*fastfeed audit SRC --jsonl"):
        list(read_report(str(tmp_path / "r.jsonl")))


def test_a_report_that_cannot_be_read(tmp_path):
    with pytest.raises(UsageError, match="the audit report cannot be read: No such file"):
        list(read_report(str(tmp_path / "none.jsonl")))
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match=r"the audit report cannot be read: .*decode"):
        list(read_report(str(tmp_path / "binary")))
