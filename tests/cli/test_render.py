"""What is printed: paragraphs, records as JSON, tables, and progress with and without a terminal."""

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import pytest
from commands import on_a_terminal
from helpers import make_captioned, pack_photos, packed
from packing import Hook

from fastfeed.archive.summary import info
from fastfeed.cli import render
from fastfeed.errors import ShardDamaged
from fastfeed.packer.job import pack
from fastfeed.packer.result import PackResult, UnpackResult
from fastfeed.packer.verify import Finding, VerifyResult
from fastfeed.units import format_size


class Pair(NamedTuple):
    name: str
    size: int


@dataclass
class Inner:
    pairs: tuple[Pair, ...]


@dataclass
class Record:
    name: str
    inner: Inner
    counts: dict[str, int]
    none: None = None


def test_a_record_is_one_json_object(capsys: pytest.CaptureFixture[str]):
    render.json_record(Record("a\udcff\n\u00e9", Inner((Pair("x", 1),)), {"b": 2}), ok=True)
    out = capsys.readouterr().out
    assert out.isascii()
    assert json.loads(out) == {
        "name": "a\udcff\n\u00e9",
        "inner": {"pairs": [{"name": "x", "size": 1}]},
        "counts": {"b": 2},
        "none": None,
        "ok": True,
    }


def test_paragraphs_are_wrapped_at_blanks_only(capsys: pytest.CaptureFixture[str]):
    path = "/data/" + "my-photos-" * 15
    render.say(f"{'word ' * 30}{path} end\n   kept   as it is {'x ' * 80}")
    lines = capsys.readouterr().out.splitlines()
    assert path in [line.strip().removesuffix(" end") for line in lines]
    assert lines[-1].startswith("   kept   as it is x x")
    assert all(len(line) <= 100 for line in lines[:2])


def test_a_paragraph_that_stands_further_right(capsys: pytest.CaptureFixture[str]):
    render.say_indented("word " * 30, "    ")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 and lines[0].startswith("    word ") and lines[1].startswith("      word ")


def test_an_error_is_one_paragraph_on_stderr(capsys: pytest.CaptureFixture[str]):
    render.error(ShardDamaged("it is\nbroken \x1b[31m", shard="a-000000.tar", hint="Mend it."))
    out, err = capsys.readouterr()
    assert (out, err) == ("", "fastfeed: it is broken \\x1b[31m (shard a-000000.tar). Mend it.\n")


def test_an_interruption_says_how_to_go_on(capsys: pytest.CaptureFixture[str]):
    render.interrupted("Run it again.")
    out, err = capsys.readouterr()
    assert (out, err.strip()) == ("", "fastfeed: interrupted. Run it again.")


def test_silence(capsys: pytest.CaptureFixture[str]):
    render.silent("nothing")
    assert capsys.readouterr() == ("", "")


def test_verify_results(capsys: pytest.CaptureFixture[str]):
    whole = VerifyResult("/p", 1, 2, 3, 4, 5000, [], 0.5)
    render.verify_result(whole)
    words = " ".join(capsys.readouterr().out.split())
    assert words == "/p is whole: 3 samples, 4 members, 2 shards, 4.9 KiB in 500.0 ms. Every byte is as packed."
    whole.findings = [Finding("ShardDamaged", "first"), Finding("IndexDamaged", "second\n\x1b")]
    render.verify_result(whole)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("/p is damaged: 2 findings (3 samples")
    assert lines[-2:] == ["- first", "- second \\x1b"]


def test_unpack_results(capsys: pytest.CaptureFixture[str]):
    render.unpack_result(UnpackResult("/out", 1, 1200, 2048, 0, 0.25))
    render.unpack_result(UnpackResult("/out", 1, 1200, 2048, 1100, 0.25))
    words = " ".join(capsys.readouterr().out.split())
    assert "Unpacked 1,200 files, 2.0 KiB, to /out in 250.0 ms. Every byte was checked." in words
    assert "in 250.0 ms (1,100 of them by an interrupted run)." in words


def test_pack_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    source = make_captioned(tmp_path / "src")
    for number in range(7):
        (source / f".hidden{number}").write_bytes(b"")
    for options, words in (
        ({"dry_run": True}, "This is the plan; nothing was written. It needs"),
        ({}, "Packed 8 files,"),
        ({}, "is packed already, and source and options are the same: nothing to do."),
        ({"overwrite": True, "limit": 1}, "Note: 6 files beyond --limit are not packed"),
    ):
        render.pack_result(pack(source, tmp_path / "packed", workers=1, on_plan=render.pack_plan, **options))
        text = " ".join(capsys.readouterr().out.split())
        assert words in text
        assert text.count("Left out: 7 entries of the source (listed in .fastfeed/left-out.jsonl)") == 1
        assert ".hidden0 (hidden: its name begins with a dot)" in text
        assert "hidden ... and 2 more" in text
        assert ".hidden5" not in text


def test_what_vanished_while_shards_were_written_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """No plan knew of it."""
    source = make_captioned(tmp_path / "src")
    hook = Hook(on_start={"pack": lambda: (source / "002.txt").unlink(missing_ok=True)})
    render.pack_result(pack(source, tmp_path / "packed", workers=1, on_error="skip", on_plan=render.pack_plan, progress=hook))
    plan, _, outcome = capsys.readouterr().out.partition("Packed 6 files,")
    assert "002.txt" not in plan
    words = " ".join(outcome.split())
    assert "1 input could not be read and was skipped (002.txt: No such file or directory), listed in .fastfeed/" in words


def test_a_plan_that_does_not_fit_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    plan = pack(make_captioned(tmp_path / "src"), tmp_path / "packed", workers=1, dry_run=True)
    render.pack_result(replace(plan, needs_bytes=3000, free_bytes=3000))
    assert capsys.readouterr().out.endswith("It needs 2.9 KiB, 2.9 KiB are free.\n")
    render.pack_result(replace(plan, needs_bytes=3000, free_bytes=2000))
    assert capsys.readouterr().out.endswith("It needs 2.9 KiB, 2.0 KiB are free: that does not fit.\n")
    compressed = replace(plan.datasets[0], tar_bytes=3000)
    render.pack_result(replace(plan, datasets=(compressed,), needs_bytes=3000, free_bytes=2000))
    assert capsys.readouterr().out.endswith("It needs at most 2.9 KiB, 2.0 KiB are free: that may not fit.\n")


def test_the_plan_is_told_before_anything_is_written_and_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    source, heard = make_captioned(tmp_path / "src"), []

    def on_plan(plan: PackResult) -> None:
        heard.append(plan)
        assert not list((tmp_path / "packed").glob("*.tar"))
        render.pack_plan(plan)
        assert "1 shard of 4 samples" in capsys.readouterr().out

    render.pack_result(pack(source, tmp_path / "packed", workers=1, on_plan=on_plan))
    assert capsys.readouterr().out.startswith("Packed 8 files, ")
    assert [(plan.dry_run, plan.datasets[0].digest) for plan in heard] == [(True, None)]
    assert pack(source, tmp_path / "packed", workers=1, on_plan=on_plan).already_packed
    assert pack(source, tmp_path / "packed", workers=1, dry_run=True, on_plan=on_plan).dry_run
    assert len(heard) == 1


# ------------------------------------------------------------------------------------------------ tables
def lines_of(shown: str) -> list[str]:
    """Lines of a terminal, without colours and cursor moves."""
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown).replace("\r\n", "\n")
    return [line.rpartition("\r")[2].rstrip() for line in plain.split("\n")]


def test_a_table_that_fits_is_a_table(tmp_path: Path):
    dataset = pack_photos(tmp_path)
    for columns in (120, 200):
        code, _, shown = on_a_terminal("info", dataset, columns=columns, stdout_too=True)
        lines = lines_of(shown)
        assert code == 0
        (head,) = [line for line in lines if line.split()[:2] == ["field", "members"]]
        assert head.split()[-1] == "rotated"
        (row,) = [line.split() for line in lines if line.split()[:2] == ["jpg", "6"]]
        assert row[:2] + row[-5:] == ["jpg", "6", "JPEG", "6", "16/16/16", "12/12/12", "0"]


def test_a_table_that_does_not_fit_is_a_block_of_lines_a_row(tmp_path: Path):
    dataset = pack_photos(tmp_path)
    code, _, shown = on_a_terminal("info", dataset, columns=80, stdout_too=True)
    assert code == 0
    assert "\u2026" not in shown
    lines = lines_of(shown)
    largest = max(path.stat().st_size for path in (tmp_path / "photos").rglob("*.jpg"))
    total = sum(path.stat().st_size for path in (tmp_path / "photos").rglob("*.jpg"))
    begin = lines.index("  field      jpg")
    assert lines[begin - 1 : begin + 10] == [
        "",
        "  field      jpg",
        "  members    6",
        f"  bytes      {format_size(total)}",
        f"  mean       {format_size(total / 6)}",
        f"  largest    {largest} B",
        "  images     JPEG 6",
        "  width min/median/max 16/16/16",
        "  height     12/12/12",
        "  rotated    0",
        "",
    ]
    cls = lines.index("  field      cls")
    assert lines[cls : cls + 6] == [
        "  field      cls",
        "  members    6",
        "  bytes      6 B",
        "  mean       1 B",
        "  largest    1 B",
        "",
    ]
    assert [line.split() for line in lines if line.split()[:1] in (["0"], ["1"])] == [["0", "cat", "3"], ["1", "dog", "3"]], (
        "the table of classes fits"
    )


@pytest.mark.parametrize("columns", [80, 60])
def test_the_plan_fits_a_narrow_terminal(tmp_path: Path, columns: int):
    for number in range(3):
        for field in ("depth-of-the-scene.png", "jpg", "json", "segmentation-of-the-scene.png", "txt"):
            path = tmp_path / "src" / f"{number}.{field}"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(b"{}")
    code, _, shown = on_a_terminal("pack", tmp_path / "src", tmp_path / "out", "--workers", 1, columns=columns, stdout_too=True)
    lines = lines_of(shown)
    assert code == 0
    begin = next(at for at, line in enumerate(lines) if line == "  dataset    src")
    assert [line.split()[0] for line in lines[begin : begin + 8]] == [
        "dataset", "samples", "fields", "classes", "source", "shards", "size", "tar",
    ]  # fmt: skip
    assert lines[begin + 2] == "  fields     depth-of-the-scene.png jpg json segmentation-of-the-scene.png txt"
    assert lines[begin + 8] == ""
    assert lines.index("1 asked for, 1 shard to write.") < next(
        at for at, line in enumerate(lines) if line.startswith("Packed 15 files")
    )


def test_names_of_wide_letters_are_not_cut(tmp_path: Path):
    """A letter of such a script takes two columns of the terminal."""
    name = "\u732b" * 30
    (tmp_path / "src" / name).mkdir(parents=True)
    (tmp_path / "src" / name / "a.txt").write_text("a")
    packed(tmp_path / "src", tmp_path / "packed")
    code, _, shown = on_a_terminal("info", tmp_path / "packed", columns=70, stdout_too=True)
    assert (code, name in shown, "\u2026" in shown) == (0, True, False)


# ------------------------------------------------------------------------------------------------ errors
def test_an_error_as_an_object(capsys: pytest.CaptureFixture[str]):
    render.json_error(ShardDamaged("it broke", shard="a-000000.tar", source="a\udcff.jpg", start=0, stop=5, hint="Mend it."))
    out, err = capsys.readouterr()
    assert (err, out.isascii()) == ("", True)
    assert json.loads(out) == {
        "error": "ShardDamaged", "exit_code": 5, "message": "it broke", "path": None, "shard": "a-000000.tar", "sample": None,
        "key": None, "source": "a\udcff.jpg", "member": None, "start": 0, "stop": 5, "hint": "Mend it.",
    }  # fmt: skip


def test_a_fault_is_one_paragraph_with_its_place(capsys: pytest.CaptureFixture[str]):
    try:
        raise KeyError("a\n\x1b")
    except KeyError as error:
        render.fault(error)
    out, err = capsys.readouterr()
    words = " ".join(err.split())
    assert out == ""
    assert re.fullmatch(
        r"fastfeed: this is a fault of fastfeed itself: KeyError: 'a\\n\\x1b' \(.*/test_render\.py:\d+\)\. "
        r"Run it again with --debug and report what it prints\.",
        words,
    )


def test_info_of_many_classes_is_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for number in range(12):
        (tmp_path / "src" / f"class{number:02d}").mkdir(parents=True)
        (tmp_path / "src" / f"class{number:02d}" / "a.txt").write_text("a")
    packed(tmp_path / "src", tmp_path / "packed")
    render.info_result(info(tmp_path / "packed"))
    text = capsys.readouterr().out
    assert "12 classes, the first and last 5 shown; --json has all." in text
    assert [name for name in range(12) if f"class{name:02d}" in text] == [0, 1, 2, 3, 4, 7, 8, 9, 10, 11]


# ------------------------------------------------------------------------------------------------ progress


def test_on_a_terminal_an_error_leaves_the_cursor(tmp_path: Path):
    code, out, shown = on_a_terminal("pack", tmp_path / "no", tmp_path / "out")
    assert (code, out) == (3, "")
    assert "fastfeed: the source does not exist" in shown
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h")
