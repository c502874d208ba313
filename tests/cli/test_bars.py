"""How far a job is: a bar on a terminal, and a plain line a minute without one."""

import re
from pathlib import Path

import pytest
from commands import CONTROL, on_a_terminal, run
from helpers import pack_photos

from fastfeed.cli import bars


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(bars, "time", found)
    return found


def test_without_a_terminal_a_plain_line_a_minute(clock: Clock, capsys: pytest.CaptureFixture[str]):
    progress = bars.progress()
    progress.start("pack", 1000, 200 << 20)
    for _ in range(125):
        clock.now += 1
        progress.advance(4, 1 << 20)
    progress.finish()
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "fastfeed pack: 240 of 1,000 files, 60.0 MiB, 4/s, 1.0 MiB/s, 2 min 20 s left",
        "fastfeed pack: 480 of 1,000 files, 120.0 MiB, 4/s, 1.0 MiB/s, 1 min 20 s left",
    ]


def test_a_stage_without_a_known_size_has_no_rest(clock: Clock, capsys: pytest.CaptureFixture[str]):
    progress = bars.progress()
    progress.start("scan", None, None)
    clock.now += 61
    progress.advance(610, 0)
    assert capsys.readouterr().err == "fastfeed scan: 610 files, 0 B, 10/s, 0 B/s\n"


def test_an_audit_counts_samples(clock: Clock, capsys: pytest.CaptureFixture[str]):
    progress = bars.progress()
    progress.start("audit", 100, None)
    clock.now += 61
    progress.advance(50, 1 << 20)
    assert capsys.readouterr().err == "fastfeed audit: 50 of 100 samples, 1.0 MiB, 1/s, 16.8 KiB/s, 1 min 01 s left\n"


def test_samples_of_unknown_sizes_have_a_rest_by_their_number(clock: Clock, capsys: pytest.CaptureFixture[str]):
    progress = bars.progress()
    progress.start("pack", 1000, None)
    clock.now += 61
    progress.advance(610, 61 << 20)
    assert capsys.readouterr().err == "fastfeed pack: 610 of 1,000 samples, 61.0 MiB, 10/s, 1.0 MiB/s, 39.0 s left\n"


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Enough files for a bar to be seen moving."""
    folder = tmp_path_factory.mktemp("texts") / "src"
    folder.mkdir()
    for number in range(12_000):
        (folder / f"{number:05d}.txt").write_bytes(b"x" * 300)
    return folder


def test_on_a_terminal_a_bar_with_rates(texts: Path, tmp_path: Path):
    code, out, shown = on_a_terminal("pack", texts, tmp_path / "packed", "--workers", 1)
    assert (code, "12,000" in out) == (0, True)
    assert re.search(r"pack .* 0/s +0 B/3\.4 MiB", shown)
    code, out, shown = on_a_terminal("unpack", tmp_path / "packed", tmp_path / "out")
    assert (code, bool(CONTROL.search(out))) == (0, False)
    frames = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", frame) for frame in shown.split("\r")]
    pattern = r"unpack .* [\d,]+/12,000 +[\d,]+/s +[\d.]+ [KM]iB/3\.4 MiB +[\d.]+ [KM]iB/s \d:\d\d:\d\d"
    assert [frame for frame in frames if re.fullmatch(pattern, frame.strip())], frames[-5:]
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") > 0, "the cursor is back"


def test_on_a_terminal_quiet_is_silent(tmp_path: Path):
    assert on_a_terminal("verify", pack_photos(tmp_path), "--quiet") == (0, "", "")


def test_without_a_terminal_no_control_characters(texts: Path, tmp_path: Path):
    found = run("pack", texts, tmp_path / "out", "--workers", 1, env={"FORCE_COLOR": "", "TERM": "xterm-256color"})
    assert (found.returncode, found.stderr) == (0, "")
    assert not CONTROL.search(found.stdout)
