"""The command as a whole: help, exit codes, errors as one paragraph, signals, pipes and encodings."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from commands import CONTROL, DEADLINE_SECONDS, command_line, done, environment, refused, run
from helpers import ROOT, files_below, flip_bit, make_photos, pack_photos, packed
from packing import children_of, is_running, wait_for

import fastfeed
from fastfeed.cli import audit
from fastfeed.cli.main import cli
from fastfeed.errors import FastfeedError


# ------------------------------------------------------------------------------------------------ help
def test_help_lists_the_commands_and_the_exit_codes():
    text = done("--help")
    for name in cli.commands:
        assert re.search(rf"^  {name} +\S", text, re.MULTILINE), name
    assert set(cli.commands) == {"audit", "demo", "index", "info", "pack", "unpack", "verify"}
    assert done("-h") == text


def _codes_of_the_tree(kind: type[FastfeedError] = FastfeedError) -> set[int]:
    return {kind.exit_code}.union(*map(_codes_of_the_tree, kind.__subclasses__()))


def test_every_exit_code_is_documented():
    stated = {int(code) for code in re.findall(r"\b\d+\b", done("--help").partition("Exit codes:")[2])}
    assert _codes_of_the_tree() | {0, audit.FOUND, 130, 141, 143} == stated


@pytest.mark.parametrize("name", ["demo", "index", "info", "pack", "unpack", "verify"])
def test_each_command_has_help_and_the_common_options(name: str):
    text = done(name, "--help")
    assert text.startswith(f"Usage: fastfeed {name} [OPTIONS]")
    for option in ("--json", "--quiet", "--debug", "-h, --help"):
        assert option in text


def test_version():
    assert done("--version") == f"fastfeed, version {fastfeed.__version__}\n"


def test_the_module_is_the_command():
    script = Path(command_line()[0]).parent / "fastfeed"
    entry = f"fastfeed = {'fastfeed.__main__:main'!r}".replace("'", '"')
    assert entry in (ROOT / "pyproject.toml").read_text()
    if script.exists():
        assert subprocess.run([script, "--version"], capture_output=True, check=True).stdout.startswith(b"fastfeed, version")


# ------------------------------------------------------------------------------------------------ wrong usage
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["pack"], "Missing argument 'SOURCE'"),
        (["pack", "a", "b", "--colour"], "No such option"),
        (["pack", "a", "b", "--shard-size", "big"], "'--shard-size'"),
        (["pack", "a", "b", "--shards", "0"], "0 is not in the range x>=1"),
        (["pack", "a", "b", "--layout", "round"], "'round' is not one of"),
        (["verify", "a", "--workers", "none"], "'none' is not a valid integer"),
        (["unpack", "a"], "Missing argument 'OUT'"),
        (["info", "a", "b"], "unexpected extra argument"),
    ],
)
def test_wrong_usage(arguments: list[str], words: str):
    found = run(*arguments)
    assert (found.returncode, found.stdout) == (2, "")
    assert words in " ".join(found.stderr.split())
    assert "Traceback" not in found.stderr


def test_no_command_shows_the_help():
    found = run()
    assert found.returncode == 2
    assert "Start with: fastfeed demo" in found.stderr + found.stdout


# ------------------------------------------------------------------------------------------------ exit codes
@pytest.mark.long
def test_each_kind_of_error_has_its_code_and_one_paragraph(tmp_path: Path):
    photos = make_photos(tmp_path / "photos")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_bytes(b"")
    (tmp_path / "empty").mkdir()
    out = tmp_path / "out"
    assert "source and destination lie within each other" in refused("pack", photos, photos / "in", code=2)
    assert "the skip list cannot be read" in refused("pack", photos, out, "--exclude", tmp_path / "no", code=2)
    assert "the source does not exist" in refused("pack", tmp_path / "no", out, code=3)
    assert "there is no file to pack" in refused("pack", tmp_path / "empty", out, code=3)
    assert "the destination holds other files" in refused("pack", photos, tmp_path / "full", code=4)
    assert "no packed dataset is in this folder" in refused("verify", tmp_path / "full", code=9)
    assert "does not exist" in refused("info", tmp_path / "no", code=9)
    assert "does not exist" in refused("unpack", tmp_path / "no", out, code=9)
    assert "the demo's folder is not empty" in refused("demo", "--dir", tmp_path / "full", code=4)
    assert not out.exists() or not os.listdir(out)


def test_a_source_with_two_readings(tmp_path: Path):
    make_photos(tmp_path / "src" / "train", each=1)
    make_photos(tmp_path / "src" / "other", each=1)
    paragraph = refused("pack", tmp_path / "src", tmp_path / "out", code=3)
    assert "train look like splits, but other beside them do not" in paragraph
    assert "--layout" in paragraph


def test_a_traceback_only_when_asked_for(tmp_path: Path):
    found = run("info", tmp_path / "no", "--debug")
    assert (found.returncode, found.stdout) == (9, "")
    assert found.stderr.startswith("Traceback")
    assert "fastfeed.errors.NotADataset" in found.stderr


# ------------------------------------------------------------------------------------------------ errors for programs
def test_an_error_is_an_object_as_well_where_json_was_asked_for(tmp_path: Path):
    dataset = pack_photos(tmp_path)
    place = next(iter(place for place in fastfeed.open(dataset)._archive.places(2) if place.field == "jpg"))
    flip_bit(dataset / place.shard, place.start)
    found = run("unpack", dataset, tmp_path / "out", "--json")
    said = json.loads(found.stdout)
    assert set(said) == {
        "error", "exit_code", "message", "path", "shard", "sample", "key", "source", "member", "start", "stop", "hint",
    }  # fmt: skip
    assert (found.returncode, said["error"], said["exit_code"], said["sample"]) == (5, "ShardDamaged", 5, 2)
    assert (said["key"], said["source"], said["member"]) == ("cat/002", "cat/002.jpg", "cat/002.jpg")
    assert (said["shard"], said["start"], said["stop"]) == (place.shard, place.start, place.stop)
    assert found.stderr.startswith(f"fastfeed: {said['message']}")


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "code", "kind"),
    [
        ("info no", 9, "NotADataset"),
        ("verify photos", 9, "NotADataset"),
        ("pack no out", 3, "SourceUnreadable"),
        ("pack photos photos/in", 2, "UsageError"),
        ("pack photos photos-packed/file", 4, "DestinationOccupied"),
    ],
)
def test_each_command_gives_its_error_as_an_object(tmp_path: Path, words: str, code: int, kind: str):
    make_photos(tmp_path / "photos")
    (tmp_path / "photos-packed").mkdir()
    (tmp_path / "photos-packed" / "file").write_bytes(b"")
    found = run(*words.split(), "--json", cwd=tmp_path)
    said = json.loads(found.stdout)
    assert (found.returncode, said["exit_code"], said["error"]) == (code, code, kind)
    assert said["message"] in " ".join(found.stderr.split())
    debugged = run(*words.split(), "--json", "--debug", cwd=tmp_path)
    assert (debugged.returncode, json.loads(debugged.stdout)) == (code, said)
    assert debugged.stderr.startswith("Traceback")


# ------------------------------------------------------------------------------------------------ faults
FAULTY = """
import sys
import fastfeed.archive.summary
from fastfeed.cli import main

def info(path):
    raise ZeroDivisionError("nobody foresaw\\n\\x1b[31m this")

fastfeed.archive.summary.info = info
main.main()
"""


def faulty(*arguments: object) -> "subprocess.CompletedProcess[str]":
    """The command with a fault in info."""
    return subprocess.run(
        [sys.executable, "-c", FAULTY, *map(str, arguments)],
        capture_output=True, text=True, check=False, env=environment(), timeout=DEADLINE_SECONDS,
    )  # fmt: skip


@pytest.mark.parametrize("more", [[], ["--json"], ["--quiet"]])
def test_what_nobody_foresaw_is_told_in_one_paragraph(tmp_path: Path, more: list[str]):
    found = faulty("info", tmp_path, *more)
    assert (found.returncode, found.stdout) == (1, "")
    assert " ".join(found.stderr.split()) == (
        "fastfeed: this is a fault of fastfeed itself: ZeroDivisionError: nobody foresaw \\x1b[31m this (<string>:7). "
        "Run it again with --debug and report what it prints."
    )
    assert not CONTROL.search(found.stderr)


def test_what_nobody_foresaw_has_a_traceback_where_asked_for(tmp_path: Path):
    found = faulty("info", tmp_path, "--debug")
    assert (found.returncode, found.stdout) == (1, "")
    assert found.stderr.startswith("Traceback (most recent call last):")
    assert "ZeroDivisionError: nobody foresaw" in found.stderr


def test_paragraphs_break_no_path(tmp_path: Path):
    deep = tmp_path / ("a-very-" * 10) / ("long-name-" * 8)
    assert f"{deep} does not exist" in refused("info", deep, code=9)


# ------------------------------------------------------------------------------------------------ signals
@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Enough files that a pack can be met in its midst."""
    folder = tmp_path_factory.mktemp("many") / "src"
    for name in "abcd":
        (folder / name).mkdir(parents=True)
        for at in range(2500):
            (folder / name / f"{at:04d}.txt").write_bytes(b"%d" % at * 50)
    return folder


@contextmanager
def met_in_its_midst(source: Path, out: Path) -> Iterator["subprocess.Popen[str]"]:
    """A pack whose workers are writing."""
    with subprocess.Popen(
        command_line("pack", source, out, "--shards", 6, "--workers", 2),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(),
    ) as process:  # fmt: skip
        try:
            wait_for(
                lambda: list((out / ".fastfeed").glob("job/*.tar.*.part")) and children_of(process.pid), "a worker that writes"
            )
            yield process
        finally:
            process.kill()


def told_the_plan_and_no_more(stdout: str) -> bool:
    """Why, how many and how large, before anything is written; and not that anything was packed."""
    lines = stdout.splitlines()
    return (
        lines[0] == "- one dataset: the folders at the top are not named like splits"
        and "- 6 shards of 1,666 to 1,667 samples: asked for" in lines
        and any(line.split()[:5] == ["src", "10,000", "cls", "txt", "4"] for line in lines)
        and lines[-1] == "2 asked for, 6 shards to write."
    )


@pytest.mark.long
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_and_run_again(many: Path, tmp_path: Path, number: signal.Signals, code: int):
    packed(many, tmp_path / "undisturbed", shards=6)
    with met_in_its_midst(many, tmp_path / "out") as process:
        workers = children_of(process.pid)
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == code
    assert told_the_plan_and_no_more(stdout)
    kept = len(list((tmp_path / "out" / ".fastfeed" / "job").glob("*.done")))
    assert stderr.split("\n")[-2] == (
        f"fastfeed: interrupted. {kept} of 6 shards {'is' if kept == 1 else 'are'} finished and kept: "
        "run the same command again, it continues."
    )
    assert workers
    assert not any(map(is_running, workers))
    left = files_below(tmp_path / "out")
    assert not [name for name in left if name.endswith((".part", "manifest.json"))]
    assert "continues" in refused("verify", tmp_path / "out", code=9)
    done("pack", many, tmp_path / "out", "--shards", 6, "--workers", 2)
    assert files_below(tmp_path / "out") == files_below(tmp_path / "undisturbed")


def test_a_worker_that_is_killed(many: Path, tmp_path: Path):
    with met_in_its_midst(many, tmp_path / "out") as process:
        for worker in children_of(process.pid):
            os.kill(worker, signal.SIGKILL)
        stdout, stderr = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == 7
    assert told_the_plan_and_no_more(stdout)
    words = " ".join(stderr.split())
    assert "was killed by SIGKILL while it packed" in words
    assert "run the same command again" in words
    assert "Traceback" not in stderr


@pytest.mark.long
def test_a_second_pack_into_the_same_folder(many: Path, tmp_path: Path):
    with met_in_its_midst(many, tmp_path / "out") as process:
        process.send_signal(signal.SIGSTOP)
        paragraph = refused("pack", many, tmp_path / "out", "--shards", 6, code=4)
        process.send_signal(signal.SIGCONT)
        process.communicate(timeout=DEADLINE_SECONDS)
    assert "another fastfeed pack is writing there" in paragraph
    assert process.returncode == 0


def test_ctrl_c_while_the_command_is_loaded_is_told_in_words():
    code = """
import sys
class Interrupted:
    def find_spec(self, name, *_):
        if name == "fastfeed.cli.pack":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupted())
from fastfeed.__main__ import main
main()
"""
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, check=False, capture_output=True, text=True, env=environment(), timeout=60)
    assert (result.returncode, result.stdout) == (130, "")
    assert result.stderr == "\nfastfeed: interrupted. Nothing was begun.\n"
