"""Parquet by column: declared types, nulls, nested values, and files that are none."""

import datetime as dt
import decimal
import math
import sys
from pathlib import Path

import pytest

from fastfeed.errors import SourceError, SourceUnreadable, UsageError
from fastfeed.source.arrow import ParquetFile


def test_pyarrow_is_named_where_it_is_not_installed(tmp_path: Path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(UsageError, match=r"a parquet file needs the package pyarrow.*pip install 'fastfeed\[parquet\]'"):
        ParquetFile(str(tmp_path / "a.parquet"))


@pytest.fixture
def arrow():
    """Pyarrow, where it is installed."""
    pytest.importorskip("pyarrow.parquet")
    return pytest.importorskip("pyarrow")


def written(tmp_path: Path, arrow, columns, **options) -> ParquetFile:
    import pyarrow.parquet

    pyarrow.parquet.write_table(arrow.table(columns), tmp_path / "t.parquet", **options)
    return ParquetFile(str(tmp_path / "t.parquet"))


def test_numbers_keep_their_declared_type(tmp_path: Path, arrow):
    columns = {
        "i": arrow.array([1, -2, 3], "int16"), "u": arrow.array([0, 1, 2**63 - 1], "uint64"),
        "f": arrow.array([0.5, None, math.inf], "float32"), "b": arrow.array([True, False, True]),
    }  # fmt: skip
    file = written(tmp_path, arrow, columns, row_group_size=2)
    assert (file.names, file.rows) == (("i", "u", "f", "b"), 3)
    found = {name: file.typed(name) for name in file.names}
    assert {name: column.kind for name, column in found.items() if column} == {
        "i": "int64",
        "u": "int64",
        "f": "float64",
        "b": "bool",
    }
    assert [list(map(repr, column.values)) for column in found.values() if column] == [
        ["1", "-2", "3"], ["0", "1", str(2**63 - 1)], ["0.5", "nan", "inf"], ["1", "0", "1"],
    ]  # fmt: skip
    assert found["i"] is not None and found["i"].why == "int64: the column is int16 in t.parquet"
    assert not any(file.is_text(name) for name in file.names)


def test_numbers_that_are_missing_or_too_large_are_looked_at_as_text(tmp_path: Path, arrow):
    file = written(
        tmp_path, arrow, {"i": arrow.array([1, None]), "u": arrow.array([2**64 - 1, 0], "uint64"), "b": [True, None]}
    )
    assert [file.typed(name) for name in file.names] == [None, None, None]
    assert [list(file.cells(name)) for name in file.names] == [["1", ""], [str(2**64 - 1), "0"], ["true", ""]]


def test_everything_else_is_text(tmp_path: Path, arrow):
    columns = {
        "s": ["5", None], "d": arrow.array(["a", "b"]).dictionary_encode(), "l": [["x", "é"], None],
        "m": [{"k": 1}, {"k": None}],
        "day": [dt.date(2020, 1, 2), None], "at": [dt.datetime(2020, 1, 2, 3, tzinfo=dt.UTC), None],
        "dec": [decimal.Decimal("1.50"), None], "for": [dt.timedelta(seconds=90), None],
    }  # fmt: skip
    file = written(tmp_path, arrow, columns)
    assert {name: list(file.cells(name)) for name in file.names} == {
        "s": ["5", ""], "d": ["a", "b"], "l": ['["x", "é"]', ""], "m": ['{"k": 1}', '{"k": null}'], "day": ["2020-01-02", ""],
        "at": ["2020-01-02T03:00:00+00:00", ""], "dec": ["1.50", ""], "for": ["0:01:30", ""],
    }  # fmt: skip
    assert [file.typed(name) for name in file.names] == [None] * 8
    assert file.is_text("s") == "text: the column is string in t.parquet"
    assert file.is_text("l").startswith("text: the column is list<")


@pytest.mark.parametrize("values", [[b"\xff"], [[b"\xff"]], [{"bytes": b"\xff"}]])
def test_bytes_are_no_text(tmp_path: Path, arrow, values):
    file = written(tmp_path, arrow, {"image": values})
    assert list(file.unreadable) == ["image"]
    with pytest.raises(SourceError, match=r"column 'image' of t\.parquet: it holds .*binary.*, which is no text"):
        file.cells("image")


def test_a_name_with_a_dot_is_no_path_into_a_struct(tmp_path: Path, arrow):
    file = written(tmp_path, arrow, {"a": [{"b": 1}], "a.b": ["dot"], "c.d": ["other"]})
    assert [list(file.cells(name)) for name in file.names] == [['{"b": 1}'], ["dot"], ["other"]]


def test_two_columns_of_one_name(tmp_path: Path, arrow):
    import pyarrow.parquet

    both = arrow.Table.from_arrays([arrow.array([1]), arrow.array([2])], names=["a", "a"])
    pyarrow.parquet.write_table(both, tmp_path / "t.parquet")
    with pytest.raises(SourceError, match=r"t\.parquet has two columns of the name 'a'"):
        ParquetFile(str(tmp_path / "t.parquet"))


def test_files_that_are_none(tmp_path: Path, arrow):
    with pytest.raises(SourceUnreadable, match="the table cannot be read"):
        ParquetFile(str(tmp_path / "none.parquet"))
    path = tmp_path / "t.parquet"
    written(tmp_path, arrow, {"a": ["x" * 50] * 9})
    raw = path.read_bytes()
    for broken in (b"", b"PAR1", b"no parquet at all", raw[:-20], raw[20:]):
        path.write_bytes(broken)
        with pytest.raises(SourceError, match=r"t\.parquet is no parquet file, or damaged"):
            ParquetFile(str(path)).cells("a")
