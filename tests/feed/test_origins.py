"""Origins: what is a library's, versions, and files as far as they count."""

import os
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from fastfeed.feed.origins import (
    compiled_facts,
    file_facts,
    folders_facts,
    imported,
    is_library,
    named_facts,
    version_of,
    versions,
)


def test_libraries_are_what_nobody_edits(monkeypatch):
    assert all(map(is_library, ("builtins", "os", "os.path", "torch", "torch.nn.functional", "PIL.Image", "fastfeed.feed")))
    assert not any(map(is_library, (__name__, "helpers", "not_imported", None, "")))
    monkeypatch.setitem(sys.modules, "made_here", ModuleType("made_here"))
    assert not is_library("made_here")


def test_versions_are_of_python_and_of_what_is_loaded():
    assert f"torch {torch.__version__}" in versions() and versions()[0].startswith("Python 3.")


def test_a_package_without_a_version_is_known_by_its_file(tmp_path: Path, monkeypatch):
    module = ModuleType("made_here")
    module.__file__ = str(tmp_path / "made_here.so")
    monkeypatch.setitem(sys.modules, "made_here", module)
    Path(module.__file__).write_bytes(b"one")
    before = version_of("made_here.inner"), compiled_facts("made_here")
    Path(module.__file__).write_bytes(b"three")
    after = version_of("made_here.inner"), compiled_facts("made_here")
    assert before[0] != after[0] and before[1] != after[1]
    assert version_of("torch.nn") == f"torch {torch.__version__}" and version_of("os") == "os "
    assert compiled_facts(__name__) == compiled_facts("not_imported") == compiled_facts(None) == ""


def test_modules_among_names():
    assert imported({"os", "path", "feed", "nothing"}, "fastfeed") == {
        "os": os,
        "feed": sys.modules["fastfeed.feed"],
    }


def test_a_file_is_known_by_what_it_is_and_when_it_changed(tmp_path: Path):
    path = tmp_path / "file"
    assert file_facts(str(path)) == file_facts(5) == file_facts(None) == file_facts("a\0b") == ""
    path.write_text("one")
    before, facts = file_facts(path), os.stat(path)
    assert before and file_facts(str(path)) == before
    path.write_text("two")
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert file_facts(path) != before


def test_texts_that_are_no_paths_name_nothing(tmp_path: Path):
    (tmp_path / "file.txt").write_text("one")
    assert named_facts(str(tmp_path / "file.txt")) == file_facts(tmp_path / "file.txt")
    before = named_facts(str(tmp_path))
    (tmp_path / "other.txt").write_text("one")
    assert before and named_facts(str(tmp_path)) == before
    assert {named_facts(text) for text in ("", "cat", "a/b.c", "/" * 5000, "a.\0")} == {""}


@pytest.mark.parametrize(
    "row", [lambda path: path, lambda path: (path, 1), lambda path: [2, path, None]], ids=["path", "tuple", "list"]
)
def test_folders_of_listed_files(tmp_path: Path, row):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.jpg").write_text("one")
    found = folders_facts([row(str(tmp_path / name / "1.jpg")) for name in ("b", "a", "b")])
    assert found == [file_facts(tmp_path / "a"), file_facts(tmp_path / "b")]
    assert folders_facts([row("no/such/file")]) == folders_facts([row("text")]) == folders_facts(()) == []
