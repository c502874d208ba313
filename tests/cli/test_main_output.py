"""The command's output: pipes that close, encodings, odd names, JSON, silence."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import CONTROL, DEADLINE_SECONDS, command_line, done, environment, record, refused
from helpers import files_below, flip_bit, make_photos, pack_photos, packed

import fastfeed
from fastfeed.packer.result import PackResult


# ------------------------------------------------------------------------------------------------ pipes, encodings, odd names
@pytest.mark.parametrize(
    "words",
    ["--help", "info packed", "verify packed", "unpack packed out", "pack photos new", "pack photos new --dry-run",
     "pack photos new --json"],
)  # fmt: skip
def test_a_reader_that_goes_away(tmp_path: Path, words: str):
    pack_photos(tmp_path)
    assert without_a_reader(*words.split(), cwd=tmp_path) == (141, "")


def test_a_reader_of_an_error_that_goes_away(tmp_path: Path):
    code, err = without_a_reader("info", "no", "--json", cwd=tmp_path)
    assert (code, err) == (141, "fastfeed: no does not exist. Give the folder that fastfeed pack wrote.\n")


def without_a_reader(*arguments: str, cwd: Path) -> tuple[int, str]:
    """Exit code and stderr of the command where nobody reads its stdout."""
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.run(
        command_line(*arguments),
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
        env=environment(),
        timeout=DEADLINE_SECONDS,
        cwd=cwd,
    )
    os.close(writer)
    return process.returncode, process.stderr.decode()


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


@pytest.mark.long
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


@pytest.mark.long
@pytest.mark.parametrize("name", ODD)
def test_odd_destinations(tmp_path: Path, name: bytes):
    make_photos(tmp_path / "src", each=1)
    path = os.fsdecode(os.path.join(os.fsencode(tmp_path), name))
    for arguments in (["pack", tmp_path / "src", path], ["verify", path], ["info", path], ["unpack", path, path + "-out"]):
        assert not CONTROL.search(done(*arguments))
    assert not CONTROL.search(refused("info", path + "-no", code=9))
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


@pytest.mark.long
@pytest.mark.parametrize("command", COMMANDS, ids=["pack", "pack again", "verify", "unpack"])
def test_quiet_is_silent(tmp_path: Path, command: Callable[[Path], list[object]]):
    pack_photos(tmp_path, shards=1)
    packed(tmp_path / "photos", tmp_path / "packed", overwrite=True)
    assert done(*command(tmp_path), "--quiet") == ""
