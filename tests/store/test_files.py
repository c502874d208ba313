"""Plain files as members: read whole or in part, and proven to be what was listed."""

import os
from pathlib import Path

import pytest
from helpers import make_captioned

from fastfeed.config import PackConfig
from fastfeed.errors import SourceChanged, SourceUnreadable
from fastfeed.source.layout import read_layout
from fastfeed.source.plain import write_index
from fastfeed.source.scan import scan
from fastfeed.store.files import FileReader


@pytest.fixture
def reader(tmp_path: Path) -> FileReader:
    source = make_captioned(tmp_path / "src")
    (source / "002.txt").write_bytes(b"")
    listing = scan(str(source))
    return FileReader(write_index(str(source), listing, read_layout(listing, PackConfig())[0]))


def test_whole_and_in_part(reader: FileReader):
    root = Path(reader.files.root)
    for position in range(4):
        for place in reader.files.places(position):
            raw = (root / place.shard).read_bytes()
            assert reader.read(position, place) == raw
            assert reader.read_part(position, place, len(raw) // 3, len(raw) // 2) == raw[len(raw) // 3 : len(raw) // 2]
    wanted = [(position, list(reader.files.places(position))) for position in (3, 0, 3)]
    assert reader.read_batch(wanted) == [[(root / place.shard).read_bytes() for place in places] for _, places in wanted]
    assert reader.read_batch([]) == []


def test_no_descriptor_stays_open(reader: FileReader):
    before = len(os.listdir("/proc/self/fd"))
    place = next(reader.files.places(0))
    for _ in range(50):
        reader.read(0, place)
    assert len(os.listdir("/proc/self/fd")) == before


def change(path: Path, what: str) -> None:
    if what == "grown":
        path.write_bytes(path.read_bytes() + b"x")
    elif what == "cut":
        path.write_bytes(path.read_bytes()[:3])
    elif what == "touched":
        os.utime(path, ns=(9, 9))
    elif what == "replaced":
        other = path.with_suffix(".new")
        other.write_bytes(path.read_bytes())
        os.replace(other, path)


@pytest.mark.parametrize("what", ["grown", "cut", "touched", "replaced"])
def test_a_file_that_is_not_what_was_listed(reader: FileReader, what: str):
    path = Path(reader.files.root) / "001.jpg"
    change(path, what)
    place = next(reader.files.places(1))
    with pytest.raises(SourceChanged, match="a file has changed since it was listed") as caught:
        reader.read(1, place)
    error = caught.value
    assert (error.path, error.sample, error.key, error.source) == (str(path), 1, "001", "001.jpg")
    assert (error.start, error.stop) == (0, place.stop)
    assert f"expected {place.stop} bytes, modified at" in str(error) and "Open the folder again" in str(error)
    reader.read(2, next(reader.files.places(2)))


def test_a_file_that_is_gone_or_something_else(reader: FileReader):
    path, place = Path(reader.files.root) / "001.jpg", next(reader.files.places(1))
    path.unlink()
    with pytest.raises(
        SourceUnreadable, match=r"a file cannot be read: No such file or directory \(.*001\.jpg, sample 1, key '001'"
    ):
        reader.read(1, place)
    os.mkfifo(path)
    with pytest.raises(SourceUnreadable, match="a file cannot be read: not a regular file"):
        reader.read(1, place)
    path.unlink()
    path.mkdir()
    with pytest.raises(SourceUnreadable, match="a file cannot be read"):
        reader.read(1, place)
