"""The command as a whole: help, exit codes, errors as one paragraph, signals, pipes and encodings."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from commands import CONTROL, DEADLINE_SECONDS, command_line, done, environment, record, refused, run
from helpers import ROOT, files_below, flip_bit, make_photos, pack_photos, packed
from packing import children_of, is_running, wait_for

import fastfeed
from fastfeed.cli.main import cli
from fastfeed.errors import FastfeedError
from fastfeed.packer.job import PackResult


# ------------------------------------------------------------------------------------------------ help
def test_help_lists_the_commands_and_the_exit_codes():
    text = done("--help")
    for name in cli.commands:
        assert re.search(rf"^  {name} +\S", text, re.MULTILINE), name
    assert set(cli.commands) == {"demo", "info", "pack", "unpack", "verify"}
    assert done("-h") == text


def _codes_of_the_tree(kind: type[FastfeedError] = FastfeedError) -> set[int]:
    return {kind.exit_code}.union(*map(_codes_of_the_tree, kind.__subclasses__()))


def test_every_exit_code_is_documented():
    stated = {int(code) for code in re.findall(r"\b\d+\b", done("--help").partition("Exit codes:")[2])}
    assert _codes_of_the_tree() | {0, 130, 141, 143} == stated


@pytest.mark.parametrize("name", ["demo", "info", "pack", "unpack", "verify"])
def test_each_command_has_help_and_the_common_options(name: str):
    text = done(name, "--help")
    assert text.startswith(f"Usage: fastfeed {name} [OPTIONS]")
    for option in ("--json", "--quiet", "--debug", "-h, --help"):
        assert option in text


def test_version():
    assert done("--version") == f"fastfeed, version {fastfeed.__version__}\n"


def test_the_module_is_the_command():
    script = Path(command_line()[0]).parent / "fastfeed"
    entry = f"fastfeed = {'fastfeed.cli.main:main'!r}".replace("'", '"')
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
    assert "no packed dataset is in this folder" in refused("verify", tmp_path / "full", code=5)
    assert "does not exist" in refused("info", tmp_path / "no", code=5)
    assert "does not exist" in refused("unpack", tmp_path / "no", out, code=5)
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
    assert found.returncode == 5
    assert found.stderr.startswith("Traceback")
    assert "fastfeed.errors.NotADataset" in found.stderr


def test_paragraphs_break_no_path(tmp_path: Path):
    deep = tmp_path / ("a-very-" * 10) / ("long-name-" * 8)
    assert f"{deep} does not exist" in refused("info", deep, code=5)


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
            wait_for(lambda: list((out / ".fastfeed").glob("job/*.part")) and children_of(process.pid), "a worker that writes")
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_and_run_again(many: Path, tmp_path: Path, number: signal.Signals, code: int):
    packed(many, tmp_path / "undisturbed", shards=6)
    with met_in_its_midst(many, tmp_path / "out") as process:
        workers = children_of(process.pid)
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=DEADLINE_SECONDS)
    assert (process.returncode, stdout) == (code, "")
    assert stderr.split("\n")[-2] == (
        "fastfeed: interrupted. What is finished is kept: run the same command again, it continues."
    )
    assert workers
    assert not any(map(is_running, workers))
    left = files_below(tmp_path / "out")
    assert not [name for name in left if name.endswith((".part", "manifest.json"))]
    assert "continues" in refused("verify", tmp_path / "out", code=5)
    done("pack", many, tmp_path / "out", "--shards", 6, "--workers", 2)
    assert files_below(tmp_path / "out") == files_below(tmp_path / "undisturbed")


def test_a_worker_that_is_killed(many: Path, tmp_path: Path):
    with met_in_its_midst(many, tmp_path / "out") as process:
        for worker in children_of(process.pid):
            os.kill(worker, signal.SIGKILL)
        stdout, stderr = process.communicate(timeout=DEADLINE_SECONDS)
    assert (process.returncode, stdout) == (7, "")
    words = " ".join(stderr.split())
    assert "was killed by SIGKILL while it packed" in words
    assert "run the same command again" in words
    assert "Traceback" not in stderr


def test_a_second_pack_into_the_same_folder(many: Path, tmp_path: Path):
    with met_in_its_midst(many, tmp_path / "out") as process:
        process.send_signal(signal.SIGSTOP)
        paragraph = refused("pack", many, tmp_path / "out", "--shards", 6, code=4)
        process.send_signal(signal.SIGCONT)
        process.communicate(timeout=DEADLINE_SECONDS)
    assert "another fastfeed pack is writing there" in paragraph
    assert process.returncode == 0


# ------------------------------------------------------------------------------------------------ pipes, encodings, odd names
@pytest.mark.parametrize("command", ["info", "verify", "help"])
def test_a_reader_that_goes_away(tmp_path: Path, command: str):
    arguments = ["--help"] if command == "help" else [command, str(pack_photos(tmp_path))]
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.run(
        command_line(*arguments),
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
        env=environment(),
        timeout=DEADLINE_SECONDS,
    )
    os.close(writer)
    assert process.stderr == b""
    assert process.returncode in {0, 141}


def test_without_any_output(tmp_path: Path):
    shell = f"{' '.join(command_line('info', pack_photos(tmp_path)))} >&- 2>&-"
    assert subprocess.run(shell, shell=True, check=False, env=environment()).returncode == 0


ODD = [b"a\nb", b"\x1b[31mred\x1b[0m", b"\xff\xfe", "caf\u00e9".encode(), b"tab\tbell\x07"]


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    for name in ODD:
        folder = os.path.join(os.fsencode(tmp_path / "src"), name)
        os.makedirs(folder)
        for file in (b"1.jpg", b".hidden" + name, b"broken" + name + b".jpg"):
            with open(os.path.join(folder, file), "wb") as out:
                out.write(b"\xff\xd8\xff")
    return tmp_path / "src"


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_names_are_printed_escaped(odd: Path, tmp_path: Path, encoding: str):
    env = {"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    texts = [done("pack", odd, tmp_path / "out", env=env), done("info", tmp_path / "out", env=env)]
    for text in texts:
        assert not CONTROL.search(text)
        assert "\\udcff\\udcfe" in text
        assert "\\x1b[31mred" in text
        assert "a\\nb" in text
        assert ("caf\u00e9" if encoding == "utf-8" else "caf\\xe9") in text
    place = next(iter(fastfeed.open(tmp_path / "out")._archive.places(0)))
    flip_bit(tmp_path / "out" / place.shard, place.start)
    assert not CONTROL.search(done("verify", tmp_path / "out", env=env, code=5))


def test_names_in_errors_are_printed_escaped(odd: Path, tmp_path: Path):
    for name in ODD:
        os.symlink(b"nowhere", os.path.join(os.fsencode(odd), name, b"dangling" + name + b".jpg"))
    paragraph = refused("pack", odd, tmp_path / "out", code=3)
    assert "5 source files cannot be read" in paragraph
    assert "dangling\\x1b[31mred" in paragraph


@pytest.mark.parametrize("name", ODD)
def test_odd_destinations(tmp_path: Path, name: bytes):
    make_photos(tmp_path / "src", each=1)
    path = os.fsdecode(os.path.join(os.fsencode(tmp_path), name))
    for arguments in (["pack", tmp_path / "src", path], ["verify", path], ["info", path], ["unpack", path, path + "-out"]):
        assert not CONTROL.search(done(*arguments))
    assert not CONTROL.search(refused("info", path + "-no", code=5))
    assert files_below(Path(path + "-out")) == files_below(tmp_path / "src")


def test_json_is_ascii_and_gives_names_back(odd: Path, tmp_path: Path):
    found = record("pack", odd, tmp_path / "out", kind=PackResult)
    sources = {os.fsencode(item["source"]) for item in found["left_out"]}
    assert sources == {name + b"/.hidden" + name for name in ODD}
    assert done("info", tmp_path / "out", "--json").isascii()
    assert json.loads(done("info", tmp_path / "out", "--json"))["datasets"][0]["samples"] == 10


COMMANDS: list[Callable[[Path], list[object]]] = [
    lambda path: ["pack", path / "photos", path / "new"],
    lambda path: ["pack", path / "photos", path / "packed"],
    lambda path: ["verify", path / "packed"],
    lambda path: ["unpack", path / "packed", path / "out"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=["pack", "pack again", "verify", "unpack"])
def test_quiet_is_silent(tmp_path: Path, command: Callable[[Path], list[object]]):
    pack_photos(tmp_path, shards=1)
    packed(tmp_path / "photos", tmp_path / "packed", overwrite=True)
    assert done(*command(tmp_path), "--quiet") == ""
