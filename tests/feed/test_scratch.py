"""Kept files: whole or not at all, in folders that are this user's alone, and not for ever."""

import os
import time
from pathlib import Path

import pytest

from fastfeed.errors import DestinationError, DestinationFull, UsageError
from fastfeed.feed.scratch import keep, recall


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch) -> tuple[Path, Path]:
    """The two places, neither there yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    return tmp_path / "cache" / "fastfeed" / "extra", tmp_path / "tmp" / f"fastfeed-{os.getuid()}" / "extra"


def read(path: str) -> bytes:
    return Path(path).read_bytes()


def test_what_is_kept_is_recalled(folders):
    assert recall("k", read) is None
    path = keep("k", lambda file: file.write(b"content"))
    assert Path(path) == folders[0] / "k.columns"
    assert recall("k", read) == b"content"
    assert recall("other", read) is None
    assert os.listdir(folders[0]) == ["k.columns"]
    assert folders[0].stat().st_mode & 0o777 == 0o700


def test_what_is_damaged_is_not_recalled():
    keep("k", lambda file: file.write(b"content"))

    def refuse(path: str) -> None:
        msg = "damaged"
        raise UsageError(msg, path=path)

    assert recall("k", refuse) is None
    assert read(keep("k", lambda file: file.write(b"anew"))) == b"anew"


def test_a_home_that_cannot_be_written_is_passed_over(folders):
    folders[0].parent.parent.write_text("a file in the folder's place")
    path = keep("k", lambda file: file.write(b"content"))
    assert Path(path) == folders[1] / "k.columns"
    assert recall("k", read) == b"content"


@pytest.mark.parametrize("level", [0, 1])
def test_a_folder_that_others_can_write_to_is_not_used(folders, level: int):
    folders[0].mkdir(parents=True, mode=0o700)
    folders[0].parent.chmod(0o700)
    kept = keep("k", lambda file: file.write(b"mine"))
    assert recall("k", read) == b"mine"
    (folders[0], folders[0].parent)[level].chmod(0o777)
    assert recall("k", read) is None
    assert Path(keep("k", lambda file: file.write(b"again"))) == folders[1] / "k.columns"
    assert read(kept) == b"mine"


def test_what_another_user_wrote_is_not_read(monkeypatch):
    keep("k", lambda file: file.write(b"theirs"))
    me = os.getuid()
    monkeypatch.setattr("os.getuid", lambda: me + 1)
    assert recall("k", read) is None


def test_a_link_in_the_folders_place_is_not_followed(folders, tmp_path: Path):
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    folders[0].parent.mkdir(parents=True, mode=0o700)
    folders[0].symlink_to(tmp_path / "elsewhere")
    assert Path(keep("k", lambda file: file.write(b"x"))) == folders[1] / "k.columns"
    assert os.listdir(tmp_path / "elsewhere") == []


def test_nowhere_to_keep_it(folders):
    folders[0].parent.parent.write_text("")
    folders[1].parent.write_text("")
    with pytest.raises(DestinationError, match="there is no folder for a joined table's columns") as caught:
        keep("k", lambda file: file.write(b"x"))
    text = str(caught.value)
    assert str(folders[0]) in text and str(folders[1]) in text and "Set XDG_CACHE_HOME or TMPDIR" in text


def test_a_full_disk_leaves_nothing_behind(folders):
    def full(file) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(DestinationFull, match="the disk is full"):
        keep("k", full)
    assert [os.listdir(folder) for folder in folders] == [[], []]


def test_old_files_are_swept_when_another_is_written(folders):
    old, young = (Path(keep(name, lambda file: file.write(b"x"))) for name in ("old", "young"))
    left = folders[0] / "0123.part"
    left.write_bytes(b"")
    mine = folders[0] / "notes.txt"
    mine.write_text("no file of ours")
    for path in (old, left, mine):
        os.utime(path, (0, time.time() - 31 * 24 * 3600))
    keep("new", lambda file: file.write(b"x"))
    assert {path.name for path in folders[0].iterdir()} == {"young.columns", "new.columns", "notes.txt"}
    assert young.exists()


def test_a_recall_keeps_a_file_young(folders):
    path = Path(keep("k", lambda file: file.write(b"x")))
    os.utime(path, (0, time.time() - 31 * 24 * 3600))
    recall("k", read)
    keep("new", lambda file: file.write(b"x"))
    assert path.exists()
