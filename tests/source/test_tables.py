"""Tables of all formats: the same rows give the same columns."""

import csv
import gzip
import json
import os
from pathlib import Path

import pytest
from helpers import SHARED_DATA

from fastfeed.errors import SourceChanged, SourceUnreadable, UsageError
from fastfeed.source.tables import read_table, table_format

ROWS = [
    {"path": "a/1.wav", "label": 3, "duration": 1.5, "clean": True, "caption": 'a, "b"'},
    {"path": "a/2.wav", "label": -4, "duration": 2.0, "clean": False, "caption": "näh"},
]
KINDS = {"path": "text", "label": "int64", "duration": "float64", "clean": "bool", "caption": "text"}


def write(path: Path) -> Path:
    """ROWS in the format that the name says."""
    kind, raw = table_format(str(path)), b""
    if kind == ".parquet":
        parquet = pytest.importorskip("pyarrow.parquet")
        parquet.write_table(pytest.importorskip("pyarrow").Table.from_pylist(ROWS), path)
        return path
    if kind == ".jsonl":
        raw = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
    else:
        tab = "\t" if kind == ".tsv" else ","
        cells = [[json.dumps(v) if isinstance(v, bool) else str(v) for v in row.values()] for row in ROWS]
        quoted = [["".join(['"', cell.replace('"', '""'), '"']) if tab in cell else cell for cell in row] for row in cells]
        raw = "".join(tab.join(row) + "\n" for row in [list(ROWS[0]), *quoted]).encode()
    if path.suffix == ".gz":
        raw = gzip.compress(raw)
    if path.suffix == ".zst":
        raw = pytest.importorskip("zstandard").compress(raw)
    path.write_bytes(raw)
    return path


@pytest.mark.parametrize(
    "name",
    ["t.csv", "t.tsv", "t.jsonl", "t.csv.gz", "t.tsv.gz", "t.jsonl.gz", "t.jsonl.zst", "t.csv.zst", "t.parquet", "T.CSV"],
)
def test_the_same_rows_whatever_the_format(tmp_path: Path, name: str):
    table = read_table(write(tmp_path / name))
    assert (table.names, len(table)) == (tuple(KINDS), 2)
    columns = {column: table.typed(column) for column in table.names}
    assert {column: found.kind for column, found in columns.items()} == KINDS
    assert list(columns["label"].values) == [3, -4]
    assert list(columns["duration"].values) == [1.5, 2.0]
    assert list(columns["clean"].values) == [1, 0]
    assert list(columns["caption"].values) == ['a, "b"', "näh"] == table.text("caption")
    assert table.text("label") == ["3", "-4"]
    assert table.text("clean") == ["true", "false"]
    assert all(found.why.startswith(found.kind + ": ") for found in columns.values())


def test_where_a_row_is(tmp_path: Path):
    assert read_table(write(tmp_path / "t.csv")).where(1) == "line 3"
    assert read_table(write(tmp_path / "t.jsonl")).where(1) == "line 2"
    pytest.importorskip("pyarrow")
    assert read_table(write(tmp_path / "t.parquet")).where(1) == "row 2"


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl", "t.parquet"])
def test_columns_that_are_not_there_or_not_kept(tmp_path: Path, name: str):
    path = write(tmp_path / name)
    with pytest.raises(UsageError, match=rf"{name} has no column 'size' .*expected one of 'path', 'label', 'duration'"):
        read_table(path, columns=["size"])
    table = read_table(path, columns=["label"])
    for ask in (table.text, table.typed):
        with pytest.raises(UsageError, match="has no column 'size'"):
            ask("size")
    with pytest.raises(UsageError, match=r"column 'path' of .* was not kept .*expected one of label"):
        table.text("path")
    assert table.text("label") == ["3", "-4"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.csv", ".csv"), ("a.TSV.GZ", ".tsv"), ("a.jsonl.zst", ".jsonl"), ("a.ndjson", ".ndjson"), ("a.pq", ".pq"),
        ("a.parquet.gz", None), ("a.txt", None), ("csv", None), ("a.gz", None), ("a.json", None), ("dir.csv/a", None),
    ],
)  # fmt: skip
def test_the_name_says_the_format(name: str, kind: str | None):
    assert table_format(name) == kind


def test_a_name_that_says_none(tmp_path: Path):
    with pytest.raises(
        UsageError, match=r"a\.xlsx is no table by its name .*expected a name that ends in \.csv, \.tsv, \.jsonl"
    ):
        read_table(tmp_path / "a.xlsx")


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_a_file_that_is_not_there(tmp_path: Path, name: str):
    with pytest.raises(SourceUnreadable, match="the table cannot be read: No such file"):
        read_table(tmp_path / name)


def test_a_json_string_of_digits_is_text(tmp_path: Path):
    (tmp_path / "t.jsonl").write_text('{"a": "5", "b": 5}\n{"a": "6"}\n')
    table = read_table(tmp_path / "t.jsonl")
    assert (table.typed("a").kind, table.typed("a").why) == ("text", "text: line 1 is a string")
    assert (table.typed("b").kind, table.typed("b").why) == ("float64", "float64: whole numbers, 1 missing (NaN)")


def test_a_parquet_column_with_nulls(tmp_path: Path):
    parquet, arrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    columns = {"i": arrow.array([1, None]), "id": arrow.array([2**53 + 1, None]), "s": ["5", "6"]}
    parquet.write_table(arrow.table(columns), tmp_path / "t.parquet")
    table = read_table(tmp_path / "t.parquet")
    assert [(table.typed(name).kind, table.typed(name).why) for name in table.names] == [
        ("float64", "float64: whole numbers, 1 missing (NaN)"),
        ("text", "text: row 1 is '9007199254740993', which float64 would round"),
        ("text", "text: the column is string in t.parquet"),
    ]


def test_rows_of_json_as_they_are_written(tmp_path: Path):
    path = write(tmp_path / "t.jsonl")
    table = read_table(path)
    assert list(map(json.loads, table.rows_raw())) == ROWS
    os.utime(path, ns=(1, 1))
    with pytest.raises(SourceChanged, match="the table changed after it was read"):
        table.rows_raw()
    with pytest.raises(UsageError, match=r"t\.csv has no rows of JSON"):
        read_table(write(tmp_path / "t.csv")).rows_raw()


def test_columns_of_bytes_are_told(tmp_path: Path):
    parquet, arrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    parquet.write_table(arrow.table({"a": [1], "b": [[b"x"]], "c": ["y"]}), tmp_path / "t.parquet")
    found = read_table(tmp_path / "t.parquet").unreadable
    assert list(found) == ["b"] and "binary" in found["b"] and found["b"].endswith("which is no text")
    assert read_table(write(tmp_path / "t.csv")).unreadable == {}


def test_notes_are_told(tmp_path: Path):
    (tmp_path / "t.csv").write_text(",a\n0,x\n")
    assert read_table(tmp_path / "t.csv").notes == ("left out: column 1 of t.csv, which the header does not name",)


def test_a_real_manifest():
    path = SHARED_DATA / "text" / "manifest.csv"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    table = read_table(path)
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file))
    assert len(table) == len(rows) > 100
    for name in table.names:
        assert table.text(name) == [row[name] for row in rows]
