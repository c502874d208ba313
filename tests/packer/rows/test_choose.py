import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from packing import tree
from pyarrow import parquet
from rowsets import Samples, photos

import fastfeed
from fastfeed.config import row_config
from fastfeed.errors import NothingGained, SourceAmbiguous, SourceUnreadable, UsageError
from fastfeed.packer.rows.choose import choose
from fastfeed.packer.rows.files import FileRows
from fastfeed.packer.rows.lines import LineRows
from fastfeed.packer.rows.parquet import ParquetRows
from fastfeed.packer.rows.python import PythonRows


def chosen(source, *, root=None, anyway=False, **options):
    found = choose(source, row_config(options), root=root, anyway=anyway)
    return None if found is None else found.samples if found.rows is None else type(found.rows)


@pytest.fixture
def data(tmp_path):
    tree(
        tmp_path,
        {"images/1.jpg": photos(1)[0], "images/2.jpg": photos(2)[1], "l.csv": "id,f\n1,images/1.jpg\n2,images/2.jpg\n"},
    )
    tree(
        tmp_path,
        {"paths.jsonl": '{"f": "images/1.jpg"}\n{"f": "images/2.jpg"}\n', "rows.jsonl": '{"text": "a"}\n{"text": "b"}\n'},
    )
    parquet.write_table(pa.table({"img": photos(2)}), tmp_path / "bytes.parquet")
    parquet.write_table(pa.table({"f": ["images/1.jpg", "images/2.jpg"], "id": [1, 2]}), tmp_path / "paths.parquet")
    parquet.write_table(pa.table({"id": [1, 2], "text": ["a", "b"]}), tmp_path / "numbers.parquet")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("images", {}, None), ("", {}, None), ("nothing", {}, SourceUnreadable), ("n*.x", {}, SourceUnreadable),
        ("l.csv", {}, FileRows), ("rows.jsonl", {}, LineRows),
        ("paths.jsonl", {}, FileRows), ("bytes.parquet", {}, ParquetRows), ("paths.parquet", {}, FileRows),
        ("numbers.parquet", {"field": {"image": "images/{id}.jpg"}}, FileRows),
        ("numbers.parquet", {"anyway": True}, ParquetRows),
        ("rows.jsonl", {"field": {"image": "images/{text}.jpg"}}, FileRows), ("b*.parquet", {}, ParquetRows),
        ("numbers.parquet", {}, NothingGained), ("rows.jsonl", {"root": "/tmp"}, SourceUnreadable),
    ],
    ids=map(str, range(15)),
)  # fmt: skip
def test_files(data, name, options, expected):
    if isinstance(expected, type) and issubclass(expected, Exception):
        with pytest.raises(expected):
            chosen(str(data / name), **options)
    else:
        assert chosen(data / name, **options) is expected


def test_names_for_shards(data):
    for name, stem in (("l.csv", "l"), ("rows.jsonl", "rows"), ("bytes.parquet", "bytes"), ("b*.parquet", "b")):
        found = choose(str(data / name), row_config({}))
        assert found is not None and found.name == stem


@pytest.mark.parametrize(
    ("names", "pattern", "match"),
    [
        (["a.csv", "b.csv"], "*.csv", r"names 2 lists.*one by one"),
        (["a.csv", "b.jsonl"], "*", r"names files of different kinds: lines, list.*Name one kind"),
        (["a.json"], "a.json", r"a.json is no source that fastfeed knows.*jq -c '.\[\]'"),
        (["a.xyz"], "a.xyz", r"a.xyz is no source that fastfeed knows.*got .xyz\. Give a folder of files, a list"),
        (["noext"], "noext", r"noext is no source.*got no extension"),
    ],
)
def test_files_that_are_no_source(tmp_path, names, pattern, match):
    tree(tmp_path, dict.fromkeys(names, '{"f": 1}\n'))
    with pytest.raises((SourceAmbiguous, SourceUnreadable), match=match):
        chosen(str(tmp_path / pattern))


@pytest.mark.parametrize("name", ["x.bin", "x.npy", "x.h5", "x.hdf5", "x.lmdb", "x.beton", "x.tfrecord", "x.npz", "x.IDX"])
def test_what_is_fast_already_is_refused(tmp_path, name):
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(NothingGained, match=r"this is .* reading it at random is fast already, packing gains nothing"):
        chosen(tmp_path / name)


def test_folders_of_large_files(tmp_path):
    for name in ("train.bin", "val.bin"):
        (tmp_path / name).touch()
        os.truncate(tmp_path / name, 70 << 20)
    tree(tmp_path, {"README.md": "words", "meta.json": "{}"})
    with pytest.raises(NothingGained, match="the folder holds 2 large files, each a memory-mapped file of tokens or numbers"):
        chosen(tmp_path)
    assert chosen(tmp_path, anyway=True) is None
    (tmp_path / "photo.jpg").touch()
    assert chosen(tmp_path) is None


def test_folders_of_tables(tmp_path):
    def write(*names: str) -> Path:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            parquet.write_table(pa.table({"img": [b"x"]}), folder / name)
        return folder

    assert chosen(write("train-00000-of-00002.parquet", "train-00001-of-00002.parquet")) is ParquetRows
    assert chosen(write("0000.parquet", "0001.parquet", "0010.parquet")) is ParquetRows
    assert chosen(write("data_1.parquet", "data_2.parquet")) is ParquetRows
    with pytest.raises(
        SourceAmbiguous, match=r"tables of several names \(test, train\).*Pack each on its own: '.*/test\*', '.*/train\*'"
    ):
        chosen(write("train-0.parquet", "test-0.parquet"))
    hub = write("data/train-0.parquet", "data/train-1.parquet")
    (hub / "README.md").write_text("a card")
    with pytest.raises(SourceAmbiguous, match=r"holds 2 tables in folders \(data/train-0.parquet, ...\).*'.*/data/\*.parquet'"):
        chosen(hub)
    mixed = write("a/1.parquet")
    (mixed / "a" / "x.jpg").touch()
    assert chosen(mixed) is None


# ------------------------------------------------------------------------------------------------------ Python objects


class Stream(torch.utils.data.IterableDataset[Any]):
    def __iter__(self):
        return iter([{"txt": "a"}])

    def __len__(self):
        return 1


def generated():
    yield {"txt": "a"}


def test_objects():
    assert chosen(Samples([1])) is PythonRows
    assert chosen([{"txt": "a"}]) is PythonRows
    assert chosen(["a text", "another"]) is PythonRows
    assert chosen(torch.utils.data.TensorDataset(torch.zeros(1))) is PythonRows
    stream, generator = Stream(), generated()
    assert chosen(stream) is stream  # though it has __getitem__ and __len__
    assert chosen(generator) is generator
    assert chosen(range(3)) is PythonRows


class Frame:
    __module__ = "pandas.core.frame"

    def __len__(self):
        return 1

    def __getitem__(self, name):
        raise KeyError(name)


Frame.__name__ = Frame.__qualname__ = "DataFrame"


@pytest.mark.parametrize(
    ("source", "match"),
    [
        (5, r"a builtins.int cannot be packed.*Give a folder, a file, a dataset"),
        (lambda: 1, "a builtins.function cannot be packed"),
        ({"a": 1}, r"a builtins.dict cannot be packed as it is.*a list or an iterable"),
        (b"bytes", "a builtins.bytes cannot be packed as it is"),
        (pa.table({"a": [1]}), r"a pyarrow.lib.Table cannot be packed as it is.*table.to_pylist"),
        (Frame(), r"a pandas.core.frame.DataFrame cannot be packed as it is.*frame.to_dict\('records'\)"),
        (
            [Path("/tmp"), Path("/etc")],
            r"a builtins.list cannot be packed as it is.*It is a list of paths: give a folder, a glob",
        ),
        (["/tmp", "/etc"], "It is a list of paths"),
    ],
    ids=map(str, range(8)),
)
def test_objects_that_are_no_dataset(source, match):
    with pytest.raises(UsageError, match=match):
        chosen(source)


def test_objects_by_name(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text("data = [{'txt': 'a'}]\ndef stream():\n    yield {'txt': 'b'}\n")
    monkeypatch.chdir(tmp_path)
    assert chosen("mine.py:data") is PythonRows
    assert list(chosen("mine.py:stream")) == [{"txt": "b"}]
    with pytest.raises(UsageError, match=r"mine.py has nothing that is called other"):
        chosen("mine.py:other")


def test_numbers_and_arrays_of_rows():
    assert chosen(np.zeros((3, 2))) is PythonRows


def test_rows_that_name_files_elsewhere_are_samples(tmp_path):
    tree(tmp_path, {"rows.jsonl": json.dumps({"url": "https://x/1.jpg", "text": "t"}) + "\n"})
    assert chosen(tmp_path / "rows.jsonl") is LineRows


def test_a_packed_folder_and_a_folder_of_tars_are_no_folders_of_files(tmp_path):
    tree(tmp_path / "src", {"1.jpg": photos(1)[0], "2.jpg": photos(2)[1]})
    fastfeed.pack(tmp_path / "src", tmp_path / "out")
    with pytest.raises(SourceAmbiguous, match="a packed dataset already"):
        chosen(tmp_path / "out")
    tree(tmp_path / "tars", {"a.tar": b"", "b.tar": b"", "README.md": "words"})
    with pytest.raises(SourceAmbiguous, match=r"holds 2 tars and no other files \(a.tar, ...\).*tars/\*.tar'"):
        chosen(tmp_path / "tars")
    (tmp_path / "tars" / "x.jpg").touch()
    assert chosen(tmp_path / "tars") is None
