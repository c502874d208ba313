"""Plain files that are kept whole: read once, proven when they are read, and past the cache where that fails."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from caching import NAME, folder_of
from helpers import make_captioned

from fastfeed.archive.catalog import Place
from fastfeed.errors import SourceChanged, SourceUnreadable
from fastfeed.feed.opening import FolderRecipe
from fastfeed.source.plain import PlainFiles
from fastfeed.store.cachedfiles import CachedFileReader
from fastfeed.store.files import FileReader
from fastfeed.store.lease import Lease
from fastfeed.store.shelf import Room, Shelf


@pytest.fixture
def files(tmp_path: Path) -> PlainFiles:
    return FolderRecipe(str(make_captioned(tmp_path / "files", 4))).files()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "place").mkdir()
    return tmp_path / "place"


@pytest.fixture
def reader(files: PlainFiles, place: Path) -> Iterator[CachedFileReader]:
    made = reader_of(files, place)
    yield made
    if made.shelf is not None:
        made.shelf.close()


def reader_of(files: PlainFiles, place: Path, room: Room = Room(1 << 30)) -> CachedFileReader:  # noqa: B008 - frozen
    return CachedFileReader(files, Shelf(Lease(str(place), NAME, 8, about={})), room)


def all_of(reader: FileReader) -> list[bytes]:
    wanted = [(position, list(reader.files.places(position))) for position in range(4)]
    singly = [reader.read(position, place) for position, places in wanted for place in places]
    assert [data for own in reader.read_batch(wanted) for data in own] == singly
    return singly


def first(files: PlainFiles) -> Place:
    return next(iter(files.places(0)))


def test_empty_files_are_kept_as_any_other(tmp_path: Path, place: Path):
    (tmp_path / "texts").mkdir()
    for number in range(4):
        (tmp_path / "texts" / f"{number}.txt").write_bytes(b"x" * (number % 2))
    files = FolderRecipe(str(tmp_path / "texts")).files()
    reader = reader_of(files, place)
    assert all_of(reader) == [b"", b"x", b"", b"x"]
    shutil.rmtree(files.root)
    assert all_of(reader) == [b"", b"x", b"", b"x"]
    assert reader.shelf is not None
    reader.shelf.close()


def test_files_are_read_once(reader: CachedFileReader, files: PlainFiles):
    expected = all_of(FileReader(files))
    assert all_of(reader) == expected
    shutil.rmtree(files.root)
    assert all_of(reader) == expected


def test_parts_come_from_what_is_kept_and_keep_nothing(reader: CachedFileReader, files: PlainFiles):
    place, whole = first(files), FileReader(files).read(0, first(files))
    assert reader.read_part(0, place, 3, 9) == whole[3:9]
    assert reader.shelf is not None and reader.shelf.find(place.row) is None
    assert reader.read(0, place) == whole
    os.unlink(os.path.join(files.root, place.shard))
    assert reader.read_part(0, place, 3, 9) == whole[3:9] and reader.read_part(0, place, 3, 3) == b""


def test_errors_are_the_files(reader: CachedFileReader, files: PlainFiles):
    place = first(files)
    path = os.path.join(files.root, place.shard)
    with open(path, "ab") as file:
        file.write(b"more")
    for _ in range(2):
        with pytest.raises(SourceChanged):
            reader.read(0, place)
    os.unlink(path)
    with pytest.raises(SourceUnreadable):
        reader.read(0, place)


def test_damage_is_read_again(reader: CachedFileReader, files: PlainFiles, place: Path):
    expected = all_of(reader)
    data = folder_of(place) / NAME / "data"
    data.write_bytes(bytes(data.stat().st_size))
    assert all_of(reader) == expected
    os.truncate(data, 10)
    assert all_of(reader) == expected


def test_without_room_files_are_read_each_time(files: PlainFiles, place: Path):
    reader = reader_of(files, place, Room(1))
    expected = all_of(FileReader(files))
    assert all_of(reader) == expected == all_of(reader)
    assert reader.shelf is not None and all(reader.shelf.find(number) is None for number in range(8))
    reader.shelf.close()


def test_filling_goes_through_the_files_in_order_and_past_those_that_are_gone(reader: CachedFileReader, files: PlainFiles):
    expected, shelf = all_of(FileReader(files)), reader.shelf
    assert shelf is not None and reader.entries == 4
    lost = [place.row for place in files.places(1)]
    for place in files.places(1):
        os.rename(os.path.join(files.root, place.shard), os.path.join(files.root, place.shard + ".gone"))
    number: int | None = 0
    while number is not None and number < 4:
        number = reader.fill_from(number)
    assert number == 4 and reader.fill_from(4) is None
    assert [row for row in range(8) if shelf.find(row) is None] == lost
    for place in files.places(1):
        os.rename(os.path.join(files.root, place.shard + ".gone"), os.path.join(files.root, place.shard))
    assert all_of(reader) == expected


def test_filling_keeps_only_what_is_read_and_ends_where_there_is_no_room(files: PlainFiles, place: Path):
    reader = reader_of(files, place)
    assert reader.shelf is not None
    reader.want([1, 3], [first(files).field])
    assert reader.entries == 2 and [reader.fill_from(number) for number in (0, 2)] == [1, None]
    assert [reader.shelf.find(own.row) is not None for at in range(4) for own in files.places(at)] == [
        *[False] * 2,
        True,
        *[False] * 5,
    ]
    reader.room = Room(1)
    assert reader.fill_from(0) == 1 and reader.fill_from(1) is None
    reader.shelf.close()


def test_a_cache_that_is_taken_away_is_no_error(reader: CachedFileReader, files: PlainFiles, place: Path, caplog):
    reader.read(0, first(files))
    shutil.rmtree(folder_of(place))
    assert all_of(reader) == all_of(FileReader(files))
    assert reader.shelf is None and len(caplog.records) == 1
