"""``fastfeed audit``: what it found, in words or as JSON, and an exit code for CI."""

import json
import os
import subprocess
import time
from pathlib import Path

import pytest
from auditing import lines_of, program
from commands import command_line, done, environment, on_a_terminal, record, refused, run
from helpers import make_photos

from fastfeed.auditor.result import AuditResult
from fastfeed.cli import audit
from fastfeed.sample import SkipList


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder: Path = make_photos(tmp_path / "photos")
    return folder


def test_a_clean_folder(photos: Path):
    text = " ".join(done("audit", photos).split())
    assert text.startswith(f"Audited a folder of 6 files ({photos}), ")
    assert "nothing is wrong." in text and "Formats: JPEG 6" in text
    assert done("audit", photos, "--quiet") == ""


def test_a_broken_sample(photos: Path, tmp_path: Path):
    (photos / "cat" / "page.jpg").write_text("<!DOCTYPE html><html>404</html>")
    report, skip = tmp_path / "report.jsonl", tmp_path / "skip.jsonl"
    text = " ".join(done("audit", photos, "--jsonl", report, "--skip-list", skip, code=10).split())
    assert "1 sample with an error." in text and "ERROR html-page: " in text and "cat/page.jpg: " in text
    assert f"Each sample has a line in {report}." in text
    assert text.endswith(f"skip={str(skip)!r})")
    assert [line["status"] for line in lines_of(report)].count("flagged") == 1
    assert [(entry.source, entry.kind) for entry in SkipList.read(str(skip)).entries] == [("cat/page.jpg", "html-page")]
    assert "ERROR" in done("audit", photos, "--quiet", code=10)


@pytest.mark.long
@pytest.mark.parametrize(("fail_on", "code"), [("error", 0), ("warning", 10), ("info", 10), ("nothing", 0)])
def test_how_bad_it_must_be(photos: Path, fail_on: str, code: int):
    (photos / "cat" / "copy.jpg").write_bytes((photos / "cat" / "000.jpg").read_bytes())
    done("audit", photos, "--fail-on", fail_on, code=code)


def test_the_record(photos: Path):
    found = record("audit", photos, "--fast", kind=AuditResult)
    assert (found["samples"], found["errors"], found["failed"], found["fast"]) == (6, 0, False, True)
    assert [stage["stage"] for stage in found["stages"]] == ["read", "decode"]
    assert found["judged"]["noise"]["beats"] >= 1


def test_a_list_with_its_columns(photos: Path, tmp_path: Path):
    (tmp_path / "list.csv").write_text("id,kind\ncat/000,tabby\ncat/001,tabby\ndog/000,pug\n")
    options = ("--root", photos, "--field", "image={id}.jpg", "--label", "kind")
    report = tmp_path / "report.jsonl"
    done("audit", tmp_path / "list.csv", *options, "--jsonl", report)
    assert [(line["path"], line["label"]) for line in lines_of(report)] == [
        ("cat/000.jpg", "tabby"), ("cat/001.jpg", "tabby"), ("dog/000.jpg", "pug"),
    ]  # fmt: skip
    (tmp_path / "classes.txt").write_text("tabby\n")
    few = (*options, "--classes", tmp_path / "classes.txt")
    assert "unknown class 'pug'" in refused("audit", tmp_path / "list.csv", *few, code=2)
    assert "--field takes NAME=VALUE" in run("audit", tmp_path / "list.csv", "--field", "image").stderr


@pytest.mark.long
def test_what_samples_print_is_not_in_the_output(tmp_path: Path):
    name = program(tmp_path, "print('noise')\nprint('noise', file=__import__('sys').stderr)")
    assert record("audit", name, kind=AuditResult)["audited"] == 40


@pytest.mark.long
def test_a_hang_is_spoken_of_on_stderr(tmp_path: Path):
    name = program(tmp_path, "if index == 5:\n    time.sleep(1000)")
    found = run("audit", name, "--kill-after", "1.5", "--json")
    assert found.returncode == 10
    [one] = json.loads(found.stdout)["found"]
    assert (one["code"], one["examples"][0][0]) == ("hang", "sample 5")
    assert "it stood in __getitem__" in one["examples"][0][1]


@pytest.mark.long
def test_what_cannot_be_audited(tmp_path: Path, photos: Path):
    assert "does not exist" in refused("audit", tmp_path / "none", code=9)
    assert "none.py:make does not exist" in refused("audit", f"{tmp_path}/none.py:make", code=9)
    assert "cannot be imported" in refused("audit", "no.such.module:make", code=2)
    found = " ".join(refused("audit", photos, "--html", tmp_path / "none" / "x.html", code=4).split())
    assert found.count("x.html") == 1 and "it continues" not in found
    assert "lies in what is audited" in refused("audit", photos, "--jsonl", photos / "r.jsonl", code=2)
    assert "No such file" in refused("audit", photos, "--jsonl", tmp_path / "none" / "r.jsonl", code=4)


@pytest.mark.long
def test_interrupted_it_says_how_to_go_on(tmp_path: Path):
    report = tmp_path / "report.jsonl"
    name = program(tmp_path, "time.sleep(0.3)")
    with subprocess.Popen(
        command_line("audit", name, "--jsonl", report), stderr=subprocess.PIPE, env=environment(), text=True
    ) as process:
        part = tmp_path / "report.jsonl.partial"
        deadline = time.monotonic() + 30
        while not (part.exists() and part.read_text().count("\n") > 3) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(2)
        _, told = process.communicate(timeout=30)
    assert process.returncode == 130
    assert f"What was done is kept in {report}.partial: run the same command again, it continues." in " ".join(told.split())
    assert "taken over from an audit that was interrupted" in " ".join(done("audit", name, "--jsonl", report).split())


def test_interrupted_it_says_what_it_has_found(tmp_path: Path):
    seen = tmp_path / "seen"
    hangs = f"if index == 5:\n    open({str(seen)!r}, 'w').close()\n    time.sleep(1000)"
    name = program(tmp_path, f"if index == 3:\n    raise ValueError('mine')\n{hangs}")
    with subprocess.Popen(
        command_line("audit", name, "--workers", "1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        text=True,
    ) as process:
        deadline = time.monotonic() + 30
        while not seen.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.5)  # for what came before it to be heard
        process.send_signal(2)
        found, told = process.communicate(timeout=30)
    found = " ".join(found.split())
    assert process.returncode == 130
    assert found.startswith(f"Audited 5 samples of the Python dataset {name}") and "1 sample with an error." in found
    assert "ERROR fails: " in found and "sample 3: " in found and "Not all samples were looked at" in found
    assert "95 %" not in found, "what came first is no random part"
    assert "Nothing is kept: with --jsonl FILE the same command would continue." in " ".join(told.split())


def test_what_is_kept_is_told_only_where_something_is(tmp_path: Path):
    report = str(tmp_path / "report.jsonl")
    assert "Nothing is kept" in audit._after_interrupt(None)
    assert audit._after_interrupt(report) == "No sample was loaded yet."
    Path(f"{report}.partial").touch()
    assert f"kept in {report}.partial" in audit._after_interrupt(report)


@pytest.mark.long
def test_on_a_terminal_there_is_a_bar_with_the_time_left(tmp_path: Path):
    code, out, shown = on_a_terminal("audit", program(tmp_path, "time.sleep(0.05)"), "--workers", 1)
    assert code == 0 and "nothing is wrong" in " ".join(out.split())
    assert "audit" in shown and "/40" in shown and "0:00:0" in shown


@pytest.mark.long
def test_names_that_are_no_text(photos: Path, tmp_path: Path):
    Path(os.fsdecode(bytes(photos) + b"/cat/\xff\n.jpg")).write_bytes(b"<html></html>")
    text = done("audit", photos, "--skip-list", tmp_path / "skip.jsonl", code=10)
    assert "cat/\\udcff\\n.jpg: " in text
    assert [entry.source for entry in SkipList.read(str(tmp_path / "skip.jsonl")).entries] == ["cat/\udcff\n.jpg"]


@pytest.mark.long
def test_a_page(photos: Path, tmp_path: Path):
    (photos / "cat" / "page.jpg").write_text("<!DOCTYPE html><html>404</html>")
    page = tmp_path / "page.html"
    assert f"The page for a browser is {page}." in " ".join(
        done("audit", photos, "--html", page, "--no-thumbnails", code=10).split()
    )
    assert "No such file" in refused("audit", photos, "--html", tmp_path / "none" / "page.html", code=4)
    assert page.read_text().startswith("<!DOCTYPE html>") and "<img" not in page.read_text()


@pytest.mark.long
def test_only_what_is_new_fails(photos: Path, tmp_path: Path):
    (photos / "cat" / "page.jpg").write_text("<!DOCTYPE html><html>404</html>")
    old = tmp_path / "old.jsonl"
    done("audit", photos, "--jsonl", old, code=10)
    text = " ".join(done("audit", photos, "--baseline", old).split())
    assert "nothing new is wrong. Only what is new is counted:" in text
    (photos / "cat" / "other.jpg").write_bytes(b"")
    found = record("audit", photos, "--baseline", old, kind=AuditResult, code=10)
    assert (found["errors"], found["failed"], found["compared"]["gone"]) == (1, True, 0)
    assert "no record of an audit" in refused("audit", photos, "--baseline", photos / "cat" / "page.jpg", code=2)
