import os
import stat

import pytest
from auditing import lines_of, program
from helpers import make_photos
from tarring import write_tar

import fastfeed
from fastfeed.auditor.places import earlier_report, prove_places, prove_writable
from fastfeed.auditor.running.targets import find_target
from fastfeed.errors import DestinationError, DestinationOccupied, UsageError

NOTHING = {"jsonl": None, "skip_list": None, "html": None}


def test_what_is_audited_is_never_replaced(tmp_path):
    make_photos(tmp_path / "photos")
    listed = tmp_path / "list.jsonl"
    listed.write_text('{"path": "photos/cat/000.jpg"}\n')
    tar = tmp_path / "tars" / "some.tar"
    tar.parent.mkdir()
    write_tar(tar, [("a.txt", b"a")])
    code = program(tmp_path, "return index")
    for given, own in ((listed, listed), (tar, tar), (f"{tar.parent}/*.tar", tar), (code, tmp_path / "bad.py")):
        before = own.read_bytes()
        for what in NOTHING:
            with pytest.raises(UsageError, match="this file is what is audited"):
                fastfeed.audit(given, **{what: own})
        assert own.read_bytes() == before
    with pytest.raises(UsageError, match="lies in what is audited"):
        fastfeed.audit(tmp_path / "photos", html=tmp_path / "photos" / "cat" / "page.html")


def test_a_list_under_another_name_is_the_same_list(tmp_path):
    make_photos(tmp_path / "photos")
    listed, link = tmp_path / "list.jsonl", tmp_path / "link.jsonl"
    listed.write_text('{"path": "photos/cat/000.jpg"}\n')
    link.symlink_to(listed)
    with pytest.raises(UsageError, match="this file is what is audited"):
        prove_places(find_target(listed), {**NOTHING, "jsonl": link})


def test_beside_what_is_audited_there_is_place(tmp_path):
    code = program(tmp_path, "return index")
    assert fastfeed.audit(code, jsonl=tmp_path / "report.jsonl").audited == 40
    assert len(lines_of(tmp_path / "report.jsonl")) == 40
    assert fastfeed.audit(code, jsonl=tmp_path / "report.jsonl").audited == 40, "an earlier report is replaced"


def test_a_report_of_another_target_is_not_replaced(tmp_path):
    code, other = program(tmp_path, "return index"), program(tmp_path, "return index", "other")
    report = tmp_path / "report.jsonl"
    report.touch()
    assert not any("made anew" in note for note in fastfeed.audit(code, jsonl=report).notes)
    before = report.read_bytes()
    with pytest.raises(DestinationOccupied, match="no report of this target lies here") as caught:
        fastfeed.audit(other, jsonl=report)
    assert caught.value.got == f"a report of {tmp_path}/bad.py:make"
    assert report.read_bytes() == before and not (tmp_path / "report.jsonl.partial").exists()
    assert "the report of an earlier audit of the same was there: it was made anew" in fastfeed.audit(code, jsonl=report).notes


def test_the_same_target_by_another_path_is_the_same(tmp_path, monkeypatch):
    photos = make_photos(tmp_path / "photos")
    fastfeed.audit(photos, jsonl=tmp_path / "report.jsonl", fast=True)
    monkeypatch.chdir(photos)
    assert any("made anew" in note for note in fastfeed.audit(".", jsonl=tmp_path / "report.jsonl", fast=True).notes)


@pytest.mark.parametrize("content", [b"my notes\n", b"{}\n", b"[]", b'{"index": 0, "findings": []}\n', b"\xff\xfe"])
def test_a_file_that_is_no_report_is_not_replaced(tmp_path, content):
    mine = tmp_path / "mine.jsonl"
    mine.write_bytes(content)
    with pytest.raises(DestinationOccupied) as caught:
        earlier_report(mine, "/data/photos")
    assert caught.value.got == "a file that names no target, as reports of audits do" and mine.read_bytes() == content


def test_the_baseline_is_not_replaced(tmp_path):
    code, report = program(tmp_path, "return index"), tmp_path / "report.jsonl"
    fastfeed.audit(code, jsonl=report)
    before = report.read_bytes()
    for what in NOTHING:
        with pytest.raises(UsageError, match=f"{what} and baseline are the same file"):
            fastfeed.audit(code, baseline=report, **{what: report})
    assert report.read_bytes() == before


def test_two_reports_are_two_files(tmp_path):
    target = find_target(make_photos(tmp_path / "photos"))
    same = tmp_path / "same.jsonl"
    with pytest.raises(UsageError, match="jsonl and skip_list are the same file"):
        prove_places(target, {"jsonl": same, "skip_list": f"{tmp_path}/photos/../same.jsonl", "html": None})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["photos"]


@pytest.mark.parametrize("what", list(NOTHING))
def test_a_place_that_cannot_be_written_is_told_before_anything_is_loaded(tmp_path, what):
    code = program(tmp_path, f"open({str(tmp_path / 'loaded')!r}, 'w').close()")
    for path in (tmp_path / "none" / "x", tmp_path):
        with pytest.raises(DestinationError):
            fastfeed.audit(code, **{what: path})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.py"]


def test_a_pipe_or_a_device_is_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (str(pipe), "/dev/null", "/dev/stdout", "/dev/none"):
        with pytest.raises(DestinationOccupied, match="would take its place"):
            prove_writable(path)
    assert stat.S_ISFIFO(pipe.stat().st_mode) and stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_nothing_is_left_where_it_was_tried(tmp_path):
    with pytest.raises(DestinationError, match="No such file"):
        prove_writable(str(tmp_path / "none" / "page.html"))
    with pytest.raises(DestinationError, match="Is a directory"):
        prove_writable(str(tmp_path))
    prove_writable(str(tmp_path / "page.html"))
    assert not list(tmp_path.iterdir())
