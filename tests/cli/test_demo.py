"""``fastfeed demo``: it runs to its end, and names what is broken and slow."""

import os
from pathlib import Path

import pytest
from commands import CONTROL, done, record, refused
from helpers import files_below

from fastfeed.demo import DemoResult

BROKEN = {"circle/cut-download.jpg", "ellipse/error-page.jpg", "rectangle/empty.jpg"}
SLOW = {"triangle/huge-panorama.jpg", "circle/many-scans.jpg"}

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The demo's folder, and what it said."""
    folder = tmp_path_factory.mktemp("demo") / "kept"
    return folder, done("demo", "--dir", folder)


def test_it_names_the_broken_and_the_slow(told: tuple[Path, str]):
    words = " ".join(told[1].split())
    for name in BROKEN | SLOW:
        assert f" {name}: " in words
    for code in ("empty-file", "html-page", "truncated", "oversize", "scan-bomb"):
        assert f"({code})" in words
    assert not CONTROL.search(told[1])


def test_it_tells_the_whole_story(told: tuple[Path, str]):
    words = " ".join(told[1].split())
    for step in ("fastfeed pack photos packed", "fastfeed verify packed", "every byte is as packed", "verify says:",
                 "differ from their checksum", "fastfeed audit photos --skip-list skip.jsonl", "--exclude skip.jsonl",
                 "images/s", "fastfeed pack /data/photos"):  # fmt: skip
        assert step in words


def test_what_it_keeps_can_be_used(told: tuple[Path, str]):
    folder = told[0]
    assert set(os.listdir(folder)) == {"photos", "packed", "packed-clean", "skip.jsonl"}
    for name in ("packed", "packed-clean"):
        done("verify", folder / name, "--quiet")
    done("unpack", folder / "packed", folder / "out", "--quiet")
    source = files_below(folder / "photos")
    for stray in ("rectangle/.DS_Store", "triangle/._0003.jpg", "README.txt"):
        del source[stray]
    assert files_below(folder / "out") == source


@pytest.mark.soak
def test_the_record_and_nothing_left_behind(tmp_path: Path):
    found = record("demo", kind=DemoResult, env={"TMPDIR": str(tmp_path)})
    assert set(found["broken"]) == BROKEN
    assert set(found["slow"]) >= SLOW
    assert found["flipped_bit_found"] is True
    assert os.listdir(tmp_path) == []


def test_its_folder_is_no_file(tmp_path: Path):
    (tmp_path / "file").write_bytes(b"")
    assert "the demo's folder is a file" in refused("demo", "--dir", tmp_path / "file", code=4)
