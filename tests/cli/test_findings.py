from dataclasses import replace

import pytest

from fastfeed.auditor.finding import Finding
from fastfeed.auditor.judging.codes import OVERSIZE, SLOW, STALL_ONCE
from fastfeed.auditor.record import SampleRecord, StageTime
from fastfeed.auditor.result import AuditResult, Compared, Costliest, FoundCode, Summary
from fastfeed.auditor.running.codes import CRASH, CRASH_ONCE
from fastfeed.cli.findings import audit_result


def result(*records, **facts):
    summary = Summary()
    for record in records:
        summary.add(record)
    own = {
        "samples": len(records),
        "kind": "folder",
        "complete": True,
        "report": None,
        "costs": (),
        "at_most": None,
        "costliest": (),
        **facts,
    }
    sums = summary.facts(others=0, at_most=own.pop("at_most"))
    return AuditResult(
        target="/data/x", what="a folder of files", fast=False, workers=2, notes=("as asked",), seconds=2.0,
        judged={}, **sums, **own,
    )  # fmt: skip


def shown(capsys, found, **options):
    audit_result(found, options)
    return " ".join(capsys.readouterr().out.split())


def sample(index, *codes):
    findings = [Finding(code, f"text {index}") for code in codes]
    return SampleRecord(
        index, path=f"{index}\n.jpg", size_bytes=1024, findings=findings, times={"load": StageTime(1, 0.5, 0.0)}
    )


def test_nothing_is_wrong(capsys):
    text = shown(capsys, result(sample(0)))
    assert text.startswith("Audited a folder of files (/data/x), 1.0 KiB in 2.0 s: nothing is wrong.")
    assert "load 1 500.0 ms 500.0 ms 1.0 s 1.0 s 0\\n.jpg" in text and text.endswith("Note: as asked")


def test_findings_with_examples_and_what_to_do(capsys):
    records = [sample(at, CRASH) for at in range(5)] + [sample(5, CRASH_ONCE)]
    text = shown(capsys, result(*records, costs=("slow: 0.2 % of samples take 31 % of decode time",)))
    assert "5 samples with an error, 1 sample with a warning." in text
    assert "Slow: 0.2 % of samples take 31 % of decode time." in text
    assert f"ERROR crash: {CRASH.title} (5 samples) 0\\n.jpg: text 0 1\\n.jpg: text 1 2\\n.jpg: text 2 ... and 2 more" in text
    assert f"What to do: {CRASH.advice.split('.')[0]}" in text
    assert (
        "Next: fastfeed audit /data/x --skip-list bad.jsonl fastfeed pack /data/x DST --exclude bad.jsonl "
        "ds = fastfeed.open('/data/x', skip='bad.jsonl')" in text
    )


def test_a_part(capsys):
    text = shown(capsys, result(sample(0), samples=1000, at_most=0.0123, complete=False))
    assert "Audited 1 sample of a folder" in text
    assert "with 95 % confidence at most 1.23% of all samples have an error" in text
    assert "Not all samples were looked at: with --jsonl FILE the same command would go on." in text


def test_what_is_wrong_with_tars_is_no_samples(capsys):
    found = replace(
        result(sample(0)), of_set=2, found=(FoundCode("class-tiny", "warning", "A class", "Look.", 2, (), "finding"),)
    )
    text = shown(capsys, found)
    assert "2.0 s: 2 findings about classes or tars." in text and "WARNING class-tiny: A class (2 findings)" in text


def test_the_costliest(capsys):
    top = (Costliest("a.jpg", 0.5, 0.2, 0.2), Costliest("b.jpg", 0.25, 0.1, 0.3))
    assert "The costliest 2 samples take 30% of the time; the first: a.jpg (500.0 ms), b.jpg (250.0 ms)." in shown(
        capsys, result(sample(0), costliest=top)
    )


def test_what_comes_next(capsys):
    ends = {
        "folder": "fastfeed.open('/data/x', skip='s.jsonl')", "packed": "fastfeed.open('/data/x', skip='s.jsonl')",
        "python": "DataLoader(..., skip='s.jsonl')",
    }  # fmt: skip
    for kind, end in ends.items():
        assert shown(capsys, result(sample(0), kind=kind, report="/r.jsonl"), skip_list="s.jsonl").endswith(end)
    assert "fastfeed pack /data/x DST --exclude s.jsonl" in shown(capsys, result(sample(0)), skip_list="s.jsonl")


def test_of_a_dataset_it_is_told_how_many_samples_it_has(capsys):
    assert shown(capsys, result(sample(0), sample(1), kind="python")).startswith("Audited 2 samples of a folder of files")


@pytest.mark.parametrize("skip_list", [None, "s.jsonl"])
def test_no_skip_list_is_offered_where_no_sample_has_a_name(capsys, skip_list):
    nameless = SampleRecord(0, findings=[Finding(CRASH, "text")])
    text = shown(capsys, result(nameless, kind="python"), skip_list=skip_list)
    assert "skip=" not in text and "--skip-list" not in text
    assert "Next: give the dataset names, so that a skip list can leave samples out: samples have names where" in text
    named = result(nameless, sample(1, CRASH), kind="python")
    assert "DataLoader(..., skip='bad.jsonl')" in shown(capsys, named)


def test_splits_are_opened_one_by_one_once_they_are_packed(capsys):
    splits = {"skip_list": "s.jsonl"}
    packed = shown(capsys, result(sample(0), kind="packed", splits=("train", "val")), **splits)
    assert "fastfeed.open('/data/x/train', skip='s.jsonl')" in packed
    assert "fastfeed.open('/data/x/val', skip='s.jsonl')" in packed and "open('/data/x'," not in packed
    files = shown(capsys, result(sample(0), kind="folder", splits=("train", "val")), **splits)
    assert files.endswith("fastfeed pack /data/x DST --exclude s.jsonl")


@pytest.mark.parametrize(
    ("codes", "facts", "steps"),
    [
        ([OVERSIZE], {}, "fastfeed audit /data/x --jsonl audit.jsonl fastfeed pack /data/x DST --from-audit audit.jsonl"),
        ([OVERSIZE], {"report": "/r.jsonl"}, "fastfeed pack /data/x DST --from-audit /r.jsonl"),
        ([OVERSIZE, CRASH], {}, "fastfeed audit /data/x --skip-list bad.jsonl --jsonl audit.jsonl fastfeed pack"),
        ([OVERSIZE], {"kind": "python"}, None), ([SLOW], {}, None), ([STALL_ONCE], {}, None),
    ],
)  # fmt: skip
def test_a_step_is_told_where_it_helps(capsys, codes, facts, steps):
    text = shown(capsys, result(sample(0, *codes), **facts))
    assert f"Next: {steps}" in text if steps else "Next:" not in text


def test_steps_repeat_what_says_how_it_is_read(capsys):
    found = result(sample(0, CRASH), kind="list")
    text = shown(capsys, found, label="a b", root="/r", fields=("image={id}.jpg",), fast=True)
    assert "fastfeed audit /data/x --root /r --field 'image={id}.jpg' --label 'a b' --fast --skip-list bad.jsonl" in text
    assert "fastfeed pack /data/x DST --root /r --field 'image={id}.jpg' --label 'a b' --exclude bad.jsonl" in text
    assert "open('/data/x', root='/r', field={'image': '{id}.jpg'}, label='a b', skip='bad.jsonl')" in text
    hidden = shown(capsys, result(sample(0, OVERSIZE), report="/r.jsonl"), hidden=True)
    assert "fastfeed pack /data/x DST --hidden --from-audit /r.jsonl" in hidden


def test_an_audit_goes_on_only_where_something_is_kept(capsys):
    part = result(sample(0), complete=False)
    assert "looked at: the same command goes on." in shown(capsys, part, jsonl="r.jsonl")
    assert "looked at: with --jsonl FILE the same command would go on." in shown(capsys, part)


def test_what_is_new_and_where_the_page_is(capsys):
    text = shown(capsys, result(sample(0), compared=Compared("old\x1b.jsonl", 3, 1)), html="page.html")
    assert (
        "nothing new is wrong. Only what is new is counted: 3 findings known from old\\x1b.jsonl are left out, 1 is gone."
        in text
    )
    assert "The page for a browser is page.html." in text
