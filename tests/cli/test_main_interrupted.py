"""Ctrl-C and SIGTERM in the midst of each long command: nothing half-done is left, and it says how to go on."""

import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from commands import DEADLINE_SECONDS, command_line, done, environment
from helpers import files_below, packed
from packing import tree, wait_for

SIGNALS = pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Enough files that a command can be met in its midst."""
    names = [f"{name}/{at:04d}.txt" for name in "abcd" for at in range(2500)]
    return tree(tmp_path_factory.mktemp("many") / "src", {name: name * 20 for name in names})


@pytest.fixture(scope="module")
def dataset(source: Path) -> Path:
    """The same packed."""
    packed(source, source.parent / "packed", shards=4)
    return source.parent / "packed"


def interrupted(
    number: int, midst: Callable[[int], object], *arguments: object, env: Mapping[str, str] | None = None
) -> tuple[int, str, str]:
    """Run a command and send it a signal as soon as it is in its midst, by a function of its process id.

    Returns:
        Exit code, stdout and stderr.
    """
    with subprocess.Popen(
        command_line(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(env)
    ) as process:
        try:
            wait_for(lambda: midst(process.pid) or process.poll() is not None, f"{arguments[0]} to be in its midst")
            process.send_signal(number)
            out, err = process.communicate(timeout=DEADLINE_SECONDS)
        finally:
            process.kill()
    return process.returncode, out, err


def has_open(pid: int, suffix: str) -> bool:
    """Whether a process has a file open whose path ends so."""
    folder = f"/proc/{pid}/fd"
    for name in os.listdir(folder):
        try:
            if os.readlink(os.path.join(folder, name)).endswith(suffix):
                return True
        except FileNotFoundError:  # closed in between
            continue
    return False


@pytest.mark.long
@SIGNALS
def test_unpack(source: Path, dataset: Path, tmp_path: Path, number: int, code: int):
    out = tmp_path / "out"
    told = interrupted(number, lambda _: (out / "a" / "0100.txt").exists(), "unpack", dataset, out)
    hint = "What is written is whole: run the same command again, it continues."
    assert told == (code, "", f"\nfastfeed: interrupted. {hint}\n")
    written = {name: raw for name, raw in files_below(out).items() if not name.startswith(".fastfeed-unpack/")}
    wanted = files_below(source)
    assert 0 < len(written) < len(wanted)
    assert written.items() <= wanted.items()
    assert "of them by an interrupted run" in " ".join(done("unpack", dataset, out).split())
    assert files_below(out) == wanted


@SIGNALS
def test_verify(dataset: Path, number: int, code: int):
    before = files_below(dataset)
    told = interrupted(number, lambda pid: has_open(pid, ".tar"), "verify", dataset, "--workers", 1)
    assert told == (code, "", "\nfastfeed: interrupted. verify changes nothing: run it again.\n")
    assert files_below(dataset) == before


@SIGNALS
def test_a_scan(source: Path, tmp_path: Path, number: int, code: int):
    """Before there is a plan, there is nothing at the destination."""
    told = interrupted(number, lambda pid: has_open(pid, "/src/a"), "pack", source, tmp_path / "out", "--workers", 1)
    hint = "Nothing was written in this run: the same command begins or continues."
    assert told == (code, "", f"\nfastfeed: interrupted. {hint}\n")
    assert not (tmp_path / "out").exists()


@SIGNALS
def test_an_index_of_tars(dataset: Path, tmp_path: Path, number: int, code: int):
    tars = [tmp_path / path.name for path in sorted(dataset.glob("*.tar"))]
    for tar in tars:
        os.link(dataset / tar.name, tar)
    told = interrupted(number, lambda pid: has_open(pid, ".tar"), "index", *tars)
    assert told == (code, "", "\nfastfeed: interrupted. The index appears whole or not at all: run the same command again.\n")
    assert not (tmp_path / ".fastfeed-index" / "index").exists()
    assert "10,000 samples" in done("index", *tars)


@pytest.mark.long
def test_demo(tmp_path: Path):
    """The demo's own folder goes with it; one that was asked for stays, and is named."""
    own, asked = tmp_path / "own", tmp_path / "asked"
    own.mkdir()
    env = {"TMPDIR": str(own)}
    code, _, err = interrupted(signal.SIGINT, lambda _: list(own.glob("*/photos/*/*.jpg")), "demo", env=env)
    assert (code, err) == (130, "\nfastfeed: interrupted. Its files are removed: run fastfeed demo again.\n")
    assert os.listdir(own) == []
    code, _, err = interrupted(signal.SIGTERM, lambda _: list(asked.glob("photos/*/*.jpg")), "demo", "--dir", asked)
    hint = f"What it made is in {asked} and may be removed: the demo begins anew in a new or empty folder."
    assert (code, err) == (143, f"\nfastfeed: interrupted. {hint}\n")
