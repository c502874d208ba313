"""Which tars are meant, and where their index lies."""

import hashlib
import os
from pathlib import Path

import pytest
from helpers import make_photos, packed
from tarring import pairs, write_tar

from fastfeed.archive.tars import PLAIN, TarFile
from fastfeed.errors import NotADataset, SourceUnreadable, UsageError
from fastfeed.source.tarfiles import TarPaths, find_tars, is_tar_name, seek_points


def touch(folder: Path, *names: str) -> Path:
    for name in names:
        write_tar(folder / name, pairs(1))
    return folder


def test_globs(tmp_path: Path):
    touch(tmp_path, "a/2.tar", "a/10.tar", "a/1.tar", "b/c/1.tar", "a/x.txt")
    found = find_tars(str(tmp_path / "a" / "*.tar"))
    assert found == TarPaths(str(tmp_path / "a"), ("1.tar", "2.tar", "10.tar"))
    assert found.paths() == [str(tmp_path / "a" / name) for name in found.files]
    assert find_tars(tmp_path / "**" / "*.tar").files == ("a/1.tar", "a/2.tar", "a/10.tar", "b/c/1.tar")
    assert find_tars(str(tmp_path / "a" / "[12].tar")).files == ("1.tar", "2.tar")
    assert find_tars(str(tmp_path / "?" / "1*.tar")) == TarPaths(str(tmp_path / "a"), ("1.tar", "10.tar"))


def test_braces_as_bash_and_webdataset_read_them(tmp_path: Path):
    from braceexpand import braceexpand

    touch(tmp_path, *(f"s-{number:02d}.tar" for number in range(8, 13)), "s-x.tar", "s-y.tar", "t1.tar", "t2.tar")
    for pattern in ("s-{08..12}.tar", "s-{x,y}.tar", "{s-,t}{x,1,2}.tar", "t{1..2}.tar", "t{2..1}.tar"):
        wanted = {name for name in braceexpand(pattern) if (tmp_path / name).exists()}
        if len(wanted) < len(list(braceexpand(pattern))):
            with pytest.raises(NotADataset, match=r"does not exist. There are 9 tars in"):
                find_tars(str(tmp_path / pattern))
        else:
            assert set(find_tars(str(tmp_path / pattern)).files) == wanted, pattern
    assert find_tars(str(tmp_path / "s-{0*,x}.tar")).files == ("s-08.tar", "s-09.tar", "s-x.tar")
    with pytest.raises(UsageError, match="the braces name more than 10,000,000 files"):
        find_tars("x-{0..99999}-{0..99999}.tar")


def test_lists_are_sets_in_one_order(tmp_path: Path):
    """[P2]: the same tars are the same set, however they were named."""
    touch(tmp_path, "1.tar", "2.tar", "10.tar")
    names = [str(tmp_path / name) for name in ("10.tar", "1.tar", "2.tar", "1.tar")]
    wanted = find_tars(str(tmp_path / "*.tar"))
    assert find_tars(names) == find_tars([Path(name) for name in reversed(names)]) == wanted
    assert find_tars([str(tmp_path / "1*.tar"), str(tmp_path / "{2..2}.tar")]) == wanted
    assert wanted.files == ("1.tar", "2.tar", "10.tar")
    with pytest.raises(UsageError, match="an empty list was given"):
        find_tars([])


def test_a_name_with_brackets_is_a_name_first(tmp_path: Path):
    touch(tmp_path, "a[1].tar", "b{1,2}.tar")
    assert find_tars(str(tmp_path / "a[1].tar")).files == ("a[1].tar",)
    assert find_tars(str(tmp_path / "b{1,2}.tar")).files == ("b{1,2}.tar",)


def test_what_is_not_there(tmp_path: Path):
    touch(tmp_path, "1.tar")
    with pytest.raises(NotADataset, match=r"no file matches .*x\*\.tar\. There is 1 tar in"):
        find_tars(str(tmp_path / "x*.tar"))
    with pytest.raises(NotADataset, match=r"none/a\.tar does not exist\. There is 1 tar in"):
        find_tars(str(tmp_path / "none" / "a.tar"))
    with pytest.raises(SourceUnreadable, match=r"this is a folder, not a tar .*Name the tars in it: '.*/\*\.tar'"):
        find_tars(str(tmp_path))
    os.mkfifo(tmp_path / "pipe.tar")
    with pytest.raises(NotADataset, match=r"pipe\.tar is no regular file"):
        find_tars(str(tmp_path / "pipe.tar"))
    (tmp_path / "link.tar").symlink_to("nowhere")
    with pytest.raises(NotADataset, match=r"link\.tar is no regular file"):
        find_tars(str(tmp_path / "link.tar"))


def test_shards_of_a_packed_dataset_have_an_index_already(tmp_path: Path):
    packed(make_photos(tmp_path / "src"), tmp_path / "packed")
    with pytest.raises(UsageError, match=r"these tars are the shards of a packed dataset.*fastfeed\.open\('.*packed'\)"):
        find_tars(str(tmp_path / "packed" / "*.tar"))
    (tmp_path / "packed" / ".fastfeed" / "manifest.json").unlink()
    assert len(find_tars(str(tmp_path / "packed" / "*.tar")).files) == 1, "with the index lost they are tars as any others"


def test_names_of_tars():
    assert all(map(is_tar_name, ("a.tar", "A.TAR", "x/*.tar", "a.tar.gz", "a.tgz", "a.tar.zst", "a-{0..9}.tar")))
    assert not any(map(is_tar_name, ("a", "tar", "a.tar.bz2", "a.csv", "a.tar.")))


def test_where_the_index_lies(tmp_path: Path):
    """[P2] [P3]"""
    touch(tmp_path, "x/1.tar", "x/2.tar", "y/1.tar", "y/2.tar")
    beside = find_tars(str(tmp_path / "x" / "*.tar"))
    name = hashlib.sha256(b"1.tar\x002.tar").hexdigest()[:16]
    assert beside.index_path(None) == str(tmp_path / "x" / ".fastfeed-index" / f"tars-{name}")
    elsewhere = {find_tars(str(tmp_path / folder / "*.tar")).index_path(str(tmp_path / "z")) for folder in "xy"}
    wanted = {hashlib.sha256(os.fsencode(tmp_path / folder) + b"\x001.tar\x002.tar").hexdigest()[:16] for folder in "xy"}
    assert elsewhere == {str(tmp_path / "z" / f"tars-{name}") for name in wanted}
    (tmp_path / "link").symlink_to("x")
    assert find_tars(str(tmp_path / "link" / "*.tar")).index_path(str(tmp_path / "z")) in elsewhere

    entry = TarFile("1.tar", 10, 20, PLAIN, 10, 1, 0)
    points = seek_points(beside.index_path(None), beside.base, entry)
    name = hashlib.sha256(b"\x001.tar\x0010\x0020").hexdigest()[:16]
    assert points == str(tmp_path / "x" / ".fastfeed-index" / f"seek-{name}")
    name = hashlib.sha256(os.fsencode(tmp_path / "x") + b"\x001.tar\x0010\x0020").hexdigest()[:16]
    assert seek_points(str(tmp_path / "z" / "tars-1"), beside.base, entry) == str(tmp_path / "z" / f"seek-{name}")
