import gc
import os
import subprocess
import sys
import tempfile

import pytest

from fastfeed.auditor.running.scratch import Scratch

_KILLED = "import os, signal\nfrom fastfeed.auditor.running.scratch import Scratch\nkept = Scratch()\nos.kill(os.getpid(), 9)\n"


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Where temporary files lie, of this process and of those that it starts."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def age(path):
    os.utime(path, (0, 0))


def test_it_is_removed_with_its_object(home):
    scratch = Scratch()
    (home / os.path.basename(scratch.path) / "index").write_text("x")
    assert [path.name for path in home.iterdir()] == [os.path.basename(scratch.path)]
    del scratch
    gc.collect()
    assert not list(home.iterdir())


def test_what_a_killed_one_has_left_is_removed_and_what_lives_or_is_young_is_not(home):
    with subprocess.Popen([sys.executable, "-c", _KILLED]) as process:
        process.wait(30)
    (left,) = home.iterdir()
    living = Scratch()
    assert left.exists(), "as young as one that is not locked yet"
    for path in (left, living.path):
        age(path)
    link, file = home / "fastfeed-audit-link", home / "fastfeed-audit-file"
    file.write_text("x")
    link.symlink_to(home / "fastfeed-audit-file")
    os.utime(link, (0, 0), follow_symlinks=False)
    age(file)
    Scratch().close()
    assert {path.name for path in home.iterdir()} == {os.path.basename(living.path), link.name, file.name}
    living.close()
