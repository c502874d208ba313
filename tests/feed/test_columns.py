"""Columns by name: the format's, the packed ones and the joined ones, and what a name means that is in use twice."""

from array import array
from pathlib import Path

import numpy as np
import pytest
from helpers import add_user_columns, make_captioned, pack_photos, packed

from fastfeed.archive import columns as file_format
from fastfeed.archive.columns import ColumnData
from fastfeed.archive.dataset import Archive
from fastfeed.archive.index import SAMPLE, MappedColumns, UserColumn
from fastfeed.errors import UsageError
from fastfeed.feed.columns import KNOWN, Columns, codes, picked, workable
from fastfeed.feed.textrows import TextRows
from fastfeed.feed.views import Picked

FORMAT = ["codec", "height", "key", "label", "offset", "orientation", "size", "source", "width", "xxh3"]


def doubles(*values: float) -> UserColumn:
    return UserColumn("duration", "float64", array("d", values))


def text(name: str, *values: str) -> UserColumn:
    return UserColumn(name, "text", values)


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """Six photos with four columns of the user's."""
    dataset = pack_photos(tmp_path)
    clean = UserColumn("clean", "bool", bytes([1, 0, 1, 1, 0, 1]))
    add_user_columns(dataset, doubles(0, 1, 2, 3, 4, float("nan")), clean, text("caption", *"abcdef"), text("width", *"uvwxyz"))
    return Archive(str(dataset))


def joined(tmp_path: Path, *added: UserColumn, name: str = "joined") -> MappedColumns:
    """A column file of six samples."""
    listed = [ColumnData(SAMPLE, "x." + column.name, *column.stored(6), required=False) for column in added]
    with (tmp_path / name).open("wb") as file:
        file_format.write(file, {SAMPLE: 6}, listed)
    return MappedColumns(str(tmp_path / name))


def test_packed_columns_by_their_names(archive: Archive):
    columns = Columns(archive)
    assert columns.names() == sorted([*FORMAT, "caption", "clean", "duration", "x.width"])
    duration = columns.get("duration")
    assert isinstance(duration, np.ndarray) and duration.base is not None and not duration.flags.writeable
    assert duration[:5].tolist() == [0, 1, 2, 3, 4] and np.isnan(duration[5])
    clean = columns.get("clean")
    assert isinstance(clean, np.ndarray) and clean.dtype == np.bool_
    assert list(columns.get("caption")) == list("abcdef")
    for name in columns.names():
        assert len(columns.get(name)) == 6
        assert columns.has(name)


def test_a_name_of_the_format_means_the_formats(archive: Archive):
    columns = Columns(archive)
    assert list(columns.get("width")) == [16] * 6
    assert list(columns.get("x.width")) == list("uvwxyz")
    assert list(columns.get("x.caption")) == list("abcdef")
    assert np.array_equal(columns.get("bytes"), columns.get("size")) and columns.has("bytes")


def test_it_means_that_too_where_the_dataset_has_it_not(tmp_path: Path):
    packed(make_captioned(tmp_path / "src"), tmp_path / "packed")
    add_user_columns(tmp_path / "packed", text("label", *"abcd"))
    columns = Columns(Archive(str(tmp_path / "packed")))
    assert "x.label" in columns.names() and "label" not in columns.names() and not columns.has("label")
    with pytest.raises(UsageError, match=r"there is no column 'label' .*got 'label'\. The user's own is x\.label\."):
        columns.get("label")
    assert list(columns.get("x.label")) == list("abcd")


def test_a_joined_column_comes_before_a_packed_one(archive: Archive, tmp_path: Path):
    columns = Columns(archive, [joined(tmp_path, text("caption", *"ABCDEF"), text("size", *"uvwxyz"), text("more", *"......"))])
    assert columns.names() == sorted([*FORMAT, "clean", "duration", "x.width", "caption", "x.caption", "extra.size", "more"])
    assert list(columns.get("caption")) == list("ABCDEF") == list(columns.get("extra.caption"))
    assert list(columns.get("x.caption")) == list("abcdef")
    assert list(columns.get("extra.size")) == list("uvwxyz")
    assert list(columns.get("size")) != list("uvwxyz")


def test_names_that_look_like_prefixes(tmp_path: Path):
    dataset = pack_photos(tmp_path)
    add_user_columns(dataset, text("x.a", *"uvwxyz"), text("b", *"abcdef"), text("x.b", *"ABCDEF"), text("extra.c", *"ghijkl"))
    columns = Columns(Archive(str(dataset)))
    assert [list(columns.get(name)) for name in ("x.a", "b", "x.b", "x.x.b", "extra.c", "x.extra.c")] == [
        list("uvwxyz"), list("abcdef"), list("abcdef"), list("ABCDEF"), list("ghijkl"), list("ghijkl"),
    ]  # fmt: skip
    assert {"x.a", "b", "x.x.b", "extra.c"} <= set(columns.names())
    for name in columns.names():
        columns.get(name)


def test_two_tables_with_one_name(archive: Archive, tmp_path: Path):
    tables = [joined(tmp_path, text("a", *"uvwxyz"), name=name) for name in ("one", "two")]
    with pytest.raises(UsageError, match=r"two of the tables in extra= have a column 'a'.*Rename it in one of them"):
        Columns(archive, tables)


def test_a_field_is_for_columns_of_members(archive: Archive):
    columns = Columns(archive)
    assert list(columns.get("size", "cls")) == [1] * 6
    with pytest.raises(UsageError, match=r"column 'duration' belongs to samples, not to a field of them .*got field='jpg'"):
        columns.get("duration", "jpg")


@pytest.mark.parametrize("name", ["", "x.", "x.none", "extra.caption", "members", "field", "jpeg_intervals", "Caption"])
def test_columns_that_there_are_not(archive: Archive, name: str):
    assert not Columns(archive).has(name)
    with pytest.raises(UsageError, match="there is no column"):
        Columns(archive).get(name)


def test_every_name_of_the_format_is_kept_for_it(archive: Archive):
    assert set(FORMAT) | {"bytes"} == KNOWN
    assert set(archive.index.table.columns) >= {("sample", "x.width")}


def test_cells_are_the_values_of_a_sample(archive: Archive):
    cells = Columns(archive).cells(["duration", "clean", "caption", "label", "key", "source", "width", "x.width"])
    values = {name: cell(3) for name, cell in cells.items()}
    assert values == {
        "duration": 3.0, "clean": True, "caption": "d", "label": 1, "key": "dog/000", "source": "dog/000.jpg", "width": 16,
        "x.width": "x",
    }  # fmt: skip
    assert {name: type(value) for name, value in values.items()} == {
        "duration": float, "clean": bool, "caption": str, "label": int, "key": str, "source": str, "width": int, "x.width": str,
    }  # fmt: skip


def test_rows_of_a_view(archive: Archive):
    columns, rows = Columns(archive), np.array([4, 0, 4])
    duration = picked(columns.get("duration"), rows)
    assert isinstance(duration, np.ndarray) and duration.tolist() == [4, 0, 4] and not duration.flags.writeable
    assert list(picked(columns.get("caption"), rows)) == ["e", "a", "e"]
    assert list(picked(columns.get("source"), rows)) == [b"dog/001.jpg", b"cat/000.jpg", b"dog/001.jpg"]
    assert picked(columns.get("caption"), None) is not None
    assert workable(columns.get("width")) is not None
    work = workable(picked(columns.get("source"), rows))
    assert isinstance(work, TextRows) and list(work) == [b"dog/001.jpg", b"cat/000.jpg", b"dog/001.jpg"]


def test_codes():
    assert codes(np.array([3, -1, 3]), 3).tolist() == [1, 0, 1]
    assert codes([0.5, float("nan"), float("nan")], 3).tolist() == [0, 1, 1]
    assert codes(["b", "a", "b"], 3).tolist() == [1, 0, 1]
    assert codes(np.array([True, False]), 2).tolist() == [1, 0]
    with pytest.raises(
        UsageError, match=r"what a split goes by has one value for each sample: expected shape \(2,\), got shape \(3,\)"
    ):
        codes([1, 2, 3], 2)
    with pytest.raises(UsageError, match=r"got shape \(0,\)"):
        codes(Picked([], np.zeros(0, dtype=np.int64)), 2)
