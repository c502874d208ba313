"""Which sample a row of a side table names."""

from array import array
from pathlib import Path

import numpy as np
import pytest
from helpers import make_captioned, pack_photos, packed, rewrite_index
from hypothesis import given, settings
from hypothesis import strategies as st

from fastfeed.archive import columns
from fastfeed.archive.columns import BYTES, ColumnData
from fastfeed.archive.dataset import Archive
from fastfeed.archive.index import SAMPLE, MappedColumns
from fastfeed.archive.usercolumn import UserColumn
from fastfeed.errors import UsageError
from fastfeed.feed import match
from fastfeed.feed.match import by_index, candidates, matched, places


@settings(deadline=None)
@given(st.lists(st.binary(max_size=3)), st.lists(st.binary(max_size=3)))
def test_places_are_those_of_the_first_equal_row(tmp_path_factory, rows: list[bytes], wanted: list[bytes]):
    path = tmp_path_factory.mktemp("places") / "c"
    starts = np.cumsum([0, *map(len, rows)], dtype=np.uint64)
    with path.open("wb") as file:
        columns.write(file, {SAMPLE: len(rows)}, [ColumnData(SAMPLE, "x.t", BYTES, (starts, b"".join(rows)), required=False)])
    strings = MappedColumns(str(path)).strings(SAMPLE, "x.t")
    assert places(strings, wanted).tolist() == [rows.index(name) if name in rows else -1 for name in wanted]


def test_two_names_of_one_hash_are_told_apart(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(match, "xxhash", type("Weak", (), {"xxh3_64_intdigest": staticmethod(lambda raw: len(bytes(raw)))}))
    archive = Archive(str(pack_photos(tmp_path)))
    assert matched(archive, "key", [b"dog/001", b"cat/000", b"dog/009"]).tolist() == [4, 0, -1]


def test_by_key_and_by_the_path_of_any_member(tmp_path: Path):
    packed(make_captioned(tmp_path / "src"), tmp_path / "packed")
    archive = Archive(str(tmp_path / "packed"))
    assert matched(archive, "key", [b"003", b"000", b"000.jpg", b""]).tolist() == [3, 0, -1, -1]
    assert matched(archive, "source", [b"003.txt", b"./000.jpg", b"001", b"../000.jpg"]).tolist() == [3, 0, -1, -1]


def test_a_made_member_has_no_path(tmp_path: Path):
    archive = Archive(str(pack_photos(tmp_path)))
    assert matched(archive, "source", [b"", b"./", b"dog/000.jpg"]).tolist() == [-1, -1, 3]


def test_a_dataset_that_knows_no_paths(tmp_path: Path):
    dataset = pack_photos(tmp_path)
    rewrite_index(dataset, lambda file: file.entry("member", "source").update(name="other"))
    with pytest.raises(UsageError, match=r"does not know from which files its samples came.*Join it by key or by index"):
        matched(Archive(str(dataset)), "source", [b"dog/000.jpg"])


def test_by_position():
    column = UserColumn("index", "int64", array("q", [2, 0, -1, 3, 9]))
    assert by_index(column, 3, "t.csv").tolist() == [2, 0, -1, -1, -1]
    with pytest.raises(UsageError, match=r"column 'index' of t\.csv holds no positions \(float64: numbers\)"):
        by_index(UserColumn("index", "float64", array("d", [0.5]), "float64: numbers"), 3, "t.csv")


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["caption", "key"], ["key"]), (["index", "path", "key"], ["key", "path"]), (["index", "file_name"], ["file_name"]),
        (["source", "path"], ["path", "source"]), (["index"], ["index"]), (["__key__"], ["__key__"]),
        (["filename"], ["filename"]),
    ],
)  # fmt: skip
def test_the_columns_that_may_name_samples(names: list[str], found: list[str]):
    assert candidates(names, "t.csv") == found


def test_no_column_that_names_samples():
    with pytest.raises(
        UsageError, match=r"no column of t\.csv says which sample a row is of: .*got 'id', 'caption'\. Name that column key"
    ):
        candidates(["id", "caption"], "t.csv")
