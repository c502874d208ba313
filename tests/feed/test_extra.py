"""Side tables joined at opening: by key, path and position, with what is missing, kept in a file, and everything refused."""

import gzip
import json
import os
import subprocess
import sys
import time
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import environment
from helpers import add_user_columns, flip_bit, make_captioned, pack_photos, packed

import fastfeed
from fastfeed.archive.index import UserColumn
from fastfeed.errors import IndexDamaged, SourceError, SourceUnreadable, UsageError
from fastfeed.feed.extra import Joined
from fastfeed.source.tables import read_table

NAN = float("nan")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch) -> Path:
    """Where the column files lie."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "fastfeed" / "extra"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Six photos: cat/000 to dog/002."""
    folder: Path = pack_photos(tmp_path)
    return folder


def table(tmp_path: Path, content: str, name: str = "table.csv") -> str:
    (tmp_path / name).write_text(content)
    return str(tmp_path / name)


# ------------------------------------------------------------------------------------------------ what is joined
def test_by_key(path: Path, tmp_path: Path):
    rows = 'key,caption,score,count,good\ndog/001,näh,1.5,3,true\ncat/000,"a, b",2,4,false\nnone,x,0,5,true\n'
    dataset = fastfeed.open(path, extra=table(tmp_path, rows))
    assert list(dataset.column("caption")) == ["a, b", "", "", "", "näh", ""]
    np.testing.assert_array_equal(dataset.column("score"), [2, NAN, NAN, NAN, 1.5, NAN])
    np.testing.assert_array_equal(dataset.column("count"), [4, NAN, NAN, NAN, 3, NAN])
    np.testing.assert_array_equal(dataset.column("good"), [0, NAN, NAN, NAN, 1, NAN])
    assert {"caption", "score", "count", "good"} <= set(dataset.columns) and "key" in dataset.columns
    (joined,) = dataset.extras
    report = joined.report
    assert (report.table, report.by, report.rows, report.matched, report.samples, report.samples_without) == (
        "table.csv", "key", 3, 2, 6, 4,
    )  # fmt: skip
    assert report.unmatched == ["line 4: 'none'"]
    assert report.columns["count"] == "int64: all cells are whole numbers; float64, since samples have no row (NaN)"
    words = "table.csv, joined by key: 2 of 6 samples have a row; 1 of 3 rows name no sample here (line 4: 'none')"
    assert str(report) == words and repr(joined) == f"<{words}>" and words in repr(dataset)
    assert dataset.where("good == True").positions.tolist() == [4]
    assert dataset.where("missing(caption)").positions.tolist() == [1, 2, 3, 5]


def test_types_are_kept_where_every_sample_has_a_row(path: Path, tmp_path: Path):
    rows = "".join(f"{at},{10 + at},{'true' if at % 2 else 'false'},{at / 2}\n" for at in (5, 3, 1, 0, 2, 4))
    dataset = fastfeed.open(path, extra=table(tmp_path, "index,n,odd,half\n" + rows))
    assert dataset.column("n").dtype == np.int64 and dataset.column("n").tolist() == [10, 11, 12, 13, 14, 15]
    assert dataset.column("odd").dtype == np.bool_ and dataset.column("odd").tolist() == [False, True] * 3
    assert dataset.column("half").tolist() == [0, 0.5, 1, 1.5, 2, 2.5]
    assert not dataset.column("n").flags.writeable
    assert str(dataset.extras[0].report) == "table.csv, joined by index: 6 of 6 samples have a row"


@pytest.mark.parametrize("name", ["path", "source", "file_name", "filename"])
def test_by_path(path: Path, tmp_path: Path, name: str):
    dataset = fastfeed.open(path, extra=table(tmp_path, f"a,{name}\n1,./cat/002.jpg\n2,dog/000.jpg\n"))
    np.testing.assert_array_equal(dataset.column("a"), [NAN, NAN, 1, 2, NAN, NAN])
    assert dataset.extras[0].report.by == (name if name == "source" else f"{name} (source)")


def test_by_the_path_of_any_member(tmp_path: Path):
    packed(make_captioned(tmp_path / "src"), tmp_path / "packed")
    dataset = fastfeed.open(tmp_path / "packed", extra=table(tmp_path, "path,a\n003.txt,x\n001.jpg,y\n"))
    assert list(dataset.column("a")) == ["", "y", "", "x"]


def test_other_columns_that_could_name_samples_are_columns(path: Path, tmp_path: Path):
    dataset = fastfeed.open(path, extra=table(tmp_path, "index,path,key\n9,elsewhere,cat/000\n"))
    assert list(dataset.column("path")) == ["elsewhere", *[""] * 5]
    assert dataset.extras[0].report.by == "key"


def test_a_column_that_is_called_source_and_means_something_else(path: Path, tmp_path: Path):
    dataset = fastfeed.open(path, extra=table(tmp_path, "key,source,path\ns3://x,imdb,cat/001.jpg\ns3://y,imdb,dog/001.jpg\n"))
    assert dataset.extras[0].report.by == "path (source)"
    assert list(dataset.column("extra.source")) == ["", "imdb", "", "", "imdb", ""]
    assert list(dataset.column("extra.key")) == ["", "s3://x", "", "", "s3://y", ""]


def test_whole_numbers_that_float64_would_round_are_text(path: Path, tmp_path: Path):
    dataset = fastfeed.open(path, extra=table(tmp_path, f"index,id\n0,{2**60 + 1}\n1,7\n"))
    assert list(dataset.column("id")) == [str(2**60 + 1), "7", "", "", "", ""]
    assert "text, since samples have no row and float64 would round" in dataset.extras[0].report.columns["id"]


@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.gz", "t.tsv", "t.parquet"])
def test_all_formats(path: Path, tmp_path: Path, name: str):
    rows = [{"key": "cat/000", "caption": "a"}, {"key": "dog/000", "caption": "b"}]
    if name.endswith(".parquet"):
        parquet = pytest.importorskip("pyarrow.parquet")
        image = [{"bytes": b"\xff", "path": "x"}, {"bytes": b"", "path": "y"}]
        columns = {"key": [row["key"] for row in rows], "caption": [row["caption"] for row in rows], "image": image}
        parquet.write_table(pytest.importorskip("pyarrow").table(columns), tmp_path / name)
    elif name.endswith(".tsv"):
        table(tmp_path, "key\tcaption\ncat/000\ta\ndog/000\tb\n", name)
    else:
        raw = "".join(json.dumps(row) + "\n" for row in rows).encode()
        (tmp_path / name).write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    dataset = fastfeed.open(path, extra=tmp_path / name)
    assert list(dataset.column("caption")) == ["a", "", "", "b", "", ""]
    if name.endswith(".parquet"):
        assert "image" not in dataset.columns
        assert "left out: column 'image' (it holds struct<" in repr(dataset)


def test_arrays(path: Path):
    given = {
        "f32": np.arange(6, dtype=np.float32) / 2, "i8": np.arange(6, dtype=np.int8), "mask": np.arange(6) > 3,
        "tensor": torch.arange(6), "words": list("abcdef"), "npwords": np.array(list("uvwxyz")),
        "some": ["a", None, "c", "d", "e", "f"],
        "floats": [0.5] * 6,
    }  # fmt: skip
    dataset = fastfeed.open(path, extra=given)
    assert [dataset.column(name).dtype.name for name in ("f32", "i8", "mask", "tensor", "floats")] == [
        "float64", "int64", "bool", "int64", "float64",
    ]  # fmt: skip
    assert dataset.column("tensor").tolist() == list(range(6)) == dataset.column("i8").tolist()
    assert list(dataset.column("words")) == list("abcdef") and list(dataset.column("npwords")) == list("uvwxyz")
    assert dataset.column("some")[1] == ""
    assert dataset.extras[0].report.columns["f32"] == "given as float32"
    assert "arrays, joined by index: 6 of 6 samples have a row" in repr(dataset)


def test_several_tables(path: Path, tmp_path: Path):
    dataset = fastfeed.open(path, extra=[table(tmp_path, "index,a\n0,x\n"), {"b": np.arange(6)}])
    assert dataset.column("a")[0] == "x" and dataset.column("b")[5] == 5
    assert len(dataset.extras) == 2
    assert dataset.where("a == 'x' and b == 0").positions.tolist() == [0]
    with pytest.raises(UsageError, match="two of the tables in extra= have a column 'b'"):
        fastfeed.open(path, extra=({"b": np.arange(6)}, {"b": np.arange(6) + 1}))


def test_joined_columns_in_samples_and_beside_packed_ones(path: Path, tmp_path: Path):
    add_user_columns(path, UserColumn("caption", "text", list("abcdef")))
    dataset = fastfeed.open(path, fields=["jpg", "caption", "x.caption"], extra=table(tmp_path, "index,caption\n3,new\n"))
    sample = dataset[3]
    assert (sample["caption"], sample["x.caption"]) == ("new", "d")
    train, val = dataset.split(0.5, by="caption", seed=0)
    assert len(train) == len(val) == 3


def test_the_packed_dataset_is_not_touched(path: Path, tmp_path: Path):
    before = {file: (file.stat().st_mtime_ns, file.read_bytes()) for file in path.rglob("*") if file.is_file()}
    fastfeed.open(path, extra=table(tmp_path, "index,a\n0,x\n"))
    assert {file: (file.stat().st_mtime_ns, file.read_bytes()) for file in path.rglob("*") if file.is_file()} == before


# ------------------------------------------------------------------------------------------------ the kept file
def test_the_second_time_the_table_is_not_read(path: Path, tmp_path: Path, cache: Path, monkeypatch):
    file = table(tmp_path, "index,a\n0,x\n")
    first = fastfeed.open(path, extra=file)
    (kept,) = cache.iterdir()
    written = kept.stat().st_ino
    monkeypatch.setattr("fastfeed.feed.extra.read_table", lambda path: pytest.fail("it is read again"))
    again = fastfeed.open(path, extra=file)
    assert repr(again) == repr(first) and list(again.column("a")) == list(first.column("a"))
    assert [(one.stat().st_ino) for one in cache.iterdir()] == [written]


def test_another_table_or_dataset_gets_another_file(path: Path, tmp_path: Path, cache: Path):
    file = table(tmp_path, "index,a\n0,x\n")
    fastfeed.open(path, extra=file)
    table(tmp_path, "index,a\n0,y\n")
    assert fastfeed.open(path, extra=file).column("a")[0] == "y"
    packed(tmp_path / "photos", tmp_path / "other", limit=2)
    assert len(fastfeed.open(tmp_path / "other", extra=file).column("a")) == 2
    fastfeed.open(path, extra={"a": np.arange(6)})
    fastfeed.open(path, extra={"a": np.arange(6)})
    assert len(list(cache.iterdir())) == 4


@pytest.mark.parametrize("byte", [0, 20, 40, -64])
def test_a_damaged_file_is_made_anew(path: Path, tmp_path: Path, cache: Path, byte: int):
    file = table(tmp_path, "index,a\n0,x\n")
    fastfeed.open(path, extra=file)
    (kept,) = cache.iterdir()
    raw = kept.read_bytes()
    flip_bit(kept, byte % len(raw))
    assert fastfeed.open(path, extra=file).column("a")[0] == "x"
    assert kept.read_bytes() == raw


def test_it_pickles_to_a_path(path: Path, tmp_path: Path, cache: Path):
    dataset = fastfeed.open(path, extra={"words": ["word" * 1000] * 6})
    raw = bytes(ForkingPickler.dumps(dataset))
    assert len(raw) < 2000
    assert list(ForkingPickler.loads(raw).column("words")) == ["word" * 1000] * 6
    for kept in cache.iterdir():
        kept.unlink()
    assert dataset.column("words")[0] == "word" * 1000  # mapped still
    with pytest.raises(IndexDamaged, match=r"the column file of a joined table has gone or is damaged.*Open the dataset again"):
        ForkingPickler.loads(raw)


def test_a_file_that_is_no_joined_table(tmp_path: Path):
    with pytest.raises(IndexDamaged, match="has gone or is damaged"):
        Joined(str(pack_photos(tmp_path) / ".fastfeed" / "index"))


MANY = """
import sys
import fastfeed
dataset = fastfeed.open(sys.argv[1], extra=sys.argv[2])
print(dataset.column("a")[0], len(dataset.column("a")))
"""


@pytest.mark.long
def test_many_processes_join_at_once(path: Path, tmp_path: Path, cache: Path):
    file = table(tmp_path, "index,a\n0,x\n")
    command = [sys.executable, "-c", MANY, str(path), file]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) for _ in range(4)]
    assert [process.communicate()[0] for process in running] == ["x 6\n"] * 4
    assert len(list(cache.iterdir())) == 1


def test_a_read_only_home(path: Path, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/none")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    dataset = fastfeed.open(path, extra={"a": np.arange(6)})
    assert dataset.extras[0].columns.path.startswith(str(tmp_path / f"fastfeed-{os.getuid()}" / "extra"))


# ------------------------------------------------------------------------------------------------ what is refused
@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("id,a\n1,x\n", r"no column of table\.csv says which sample a row is of: .*got 'id', 'a'\. Name that column key"),
        ("key,a\nx,1\ny,2\n", r"no row of table\.csv names a sample .*got column 'key' has line 2: 'x', line 3: 'y'"),
        ("path,a\n/data/cat/000.jpg,1\n", r"expected source such as 'cat/000\.jpg', got column 'path' has line 2: '/data"),
        ("index,a\n6,1\n", r"expected index such as a number below 6, got column 'index' has line 2: '6'"),
        ("source,path,index\nx,y,0\n", r"got column 'path' has line 2: 'y'; column 'source' has line 2: 'x'"),
        ("index,a\n0.5,1\n", r"column 'index' of table\.csv holds no positions \(float64: numbers\)"),
    ],
)  # fmt: skip
def test_tables_that_fit_no_sample(path: Path, tmp_path: Path, content: str, words: str):
    with pytest.raises(UsageError, match=words):
        fastfeed.open(path, extra=table(tmp_path, content))


@pytest.mark.parametrize(
    "rows",
    ["key,a\ncat/000,1\ndog/000,2\ncat/000,3\n", "index,a\n0,1\n3,2\n0,3\n", "path,a\n./cat/000.jpg,1\nx,2\ncat/000.jpg,3\n"],
)
def test_two_rows_of_one_sample(path: Path, tmp_path: Path, rows: str):
    with pytest.raises(
        SourceError, match=r"line 2 and line 4 of table\.csv name the same sample .*sample 0, key 'cat/000'.*one row a sample"
    ):
        fastfeed.open(path, extra=table(tmp_path, rows))


def test_a_table_that_breaks_its_rules(path: Path, tmp_path: Path):
    with pytest.raises(SourceError, match=r"line 3 of table\.csv has 3 fields, its header has 2"):
        fastfeed.open(path, extra=table(tmp_path, "index,a\n0,1\n1,2,3\n"))
    with pytest.raises(SourceUnreadable, match="a side table cannot be read: No such file"):
        fastfeed.open(path, extra=tmp_path / "none.csv")
    with pytest.raises(UsageError, match=r"table\.xlsx is no table by its name"):
        fastfeed.open(path, extra=table(tmp_path, "", "table.xlsx"))
    with pytest.raises(UsageError, match="a column's name is 1 to 200 bytes"):
        fastfeed.open(path, extra=table(tmp_path, f"index,{'n' * 201}\n0,1\n"))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (3, "extra takes the path of a table, a mapping of arrays by name, or a list of these: got int"),
        ([np.arange(6)], r"extra takes the path of a table.*got ndarray\. A data frame is one with dict\(frame\)"),
        ({"a": np.arange(5)}, r"extra column 'a' has not one value a sample: expected shape \(6,\), got shape \(5,\)"),
        ({"a": np.zeros((6, 2))}, r"got shape \(6, 2\)"),
        ({"a": 3}, r"got shape \(\)"),
        ({"a": [1, "b", 2, 3, 4, 5.5]}, None),
        ({"a": [object()] * 6}, "extra column 'a' holds neither numbers, truth values nor strings: .*got given as object"),
        ({"a": np.zeros(6, dtype="M8[s]")}, "got given as datetime64"),
        ({"a": np.full(6, 2**64 - 1, dtype=np.uint64)}, "got given as uint64"),
        ({"a": np.zeros(6, dtype=complex)}, "got given as complex128"),
        ({"a\n": np.arange(6)}, "a column's name is 1 to 200 bytes"),
        ({"a": [[1], [2, 3], 4, 5, 6, 7]}, "extra column 'a' is no array"),
        ({"a": ["\udcff"] * 6}, "row 0 of column 'a' is no UTF-8 text"),
    ],
)
def test_arrays_that_are_no_columns(path: Path, given, words: str | None):
    if words is None:  # numpy makes strings of a mix
        assert list(fastfeed.open(path, extra=given).column("a")) == ["1", "b", "2", "3", "4", "5.5"]
        return
    with pytest.raises(UsageError, match=words):
        fastfeed.open(path, extra=given)


def test_a_table_that_changes_while_it_is_read(path: Path, tmp_path: Path, monkeypatch):
    def slow(file: str):
        found = read(file)
        os.utime(file, ns=(1, time.time_ns() + 10**9))
        return found

    read = read_table
    monkeypatch.setattr("fastfeed.feed.extra.read_table", slow)
    with pytest.raises(SourceError, match="a side table changed while it was read"):
        fastfeed.open(path, extra=table(tmp_path, "index,a\n0,1\n"))


def test_an_empty_table(path: Path, tmp_path: Path):
    dataset = fastfeed.open(path, extra=table(tmp_path, "key,a\n"))
    assert list(dataset.column("a")) == [""] * 6
    assert str(dataset.extras[0].report) == "table.csv, joined by key: 0 of 6 samples have a row"
