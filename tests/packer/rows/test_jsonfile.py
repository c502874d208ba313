import gzip
import json
import os
from array import array
from itertools import pairwise

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from fastfeed.config import row_config
from fastfeed.errors import SourceChanged, SourceError, SourceUnreadable, UsageError
from fastfeed.packer.rows import jsonfile
from fastfeed.packer.rows.jsonfile import LineNames, LineReader, Survey, is_compressed, lines_of, parse

CHECKED = zstandard.ZstdCompressor(write_checksum=True)


def survey(path, **options):
    return Survey(str(path), row_config(options))


def reader(path, **options):
    found = survey(path, **options)
    return LineReader(str(path), found.stamp, found.places, found.stride)


def write(folder, rows, name="x.jsonl", end="\n"):
    raw = "".join((json.dumps(row) if not isinstance(row, str) else row) + end for row in rows).encode()
    pressed = gzip.compress(raw) if name.endswith(".gz") else CHECKED.compress(raw) if name.endswith(".zst") else raw
    (folder / name).write_bytes(pressed)
    return folder / name


@pytest.mark.parametrize("name", ["x.jsonl", "x.jsonl.gz", "x.jsonl.zst"])
def test_rows_and_lines(tmp_path, name):
    path = write(tmp_path, [{"a": 1}, "", {"a": 2}, "  ", {"a": 3}], name)
    assert list(lines_of(str(path))) == [
        (1, 9, b'{"a": 1}'),
        (2, 1, b""),
        (3, 9, b'{"a": 2}'),
        (4, 3, b""),
        (5, 9, b'{"a": 3}'),
    ]
    found = survey(path)
    assert (found.rows, found.size_bytes, list(found.lines)) == (3, 24, [1, 3, 5])
    rows = reader(path)
    assert [rows.row(at) for at in (0, 1, 2, 0)] == [(1, b'{"a": 1}'), (3, b'{"a": 2}'), (5, b'{"a": 3}'), (1, b'{"a": 1}')]
    assert is_compressed(name) == (name != "x.jsonl")


def test_a_byte_order_mark_and_other_line_ends(tmp_path):
    (tmp_path / "x.jsonl").write_bytes(b'\xef\xbb\xbf{"a": 1}\r\n{"b": "\xc3\xa4"}\r\n{"c": 3}')
    rows = reader(tmp_path / "x.jsonl")
    assert [rows.row(at)[1] for at in range(3)] == [b'{"a": 1}', b'{"b": "\xc3\xa4"}', b'{"c": 3}']


@given(st.lists(st.integers(0, 399), min_size=1, max_size=12), st.sampled_from([1, 3, 64]))
def test_any_row_is_found_whatever_the_order(tmp_path_factory, wanted, stride):
    path = tmp_path_factory.getbasetemp() / "orders.jsonl"
    if not path.exists():
        write(path.parent, [{"n": at, "pad": "x" * (at % 50)} if at % 7 else "" for at in range(467)], path.name)
    before, jsonfile._STRIDE = jsonfile._STRIDE, stride
    try:
        rows = reader(path)
    finally:
        jsonfile._STRIDE = before
    numbers = [at for at in range(467) if at % 7]
    assert [json.loads(rows.row(at)[1])["n"] for at in wanted] == [numbers[at] for at in wanted]


def test_places_are_kept_for_fewer_rows_where_there_are_many(tmp_path, monkeypatch):
    monkeypatch.setattr(jsonfile, "_STRIDE", 2)
    monkeypatch.setattr(jsonfile, "_MAX_PLACES", 4)
    path = write(tmp_path, [{"n": at} for at in range(100)])
    found = survey(path)
    assert (found.stride, len(found.places)) == (32, 8)
    rows = reader(path)
    assert [json.loads(rows.row(at)[1])["n"] for at in (99, 31, 32, 0, 64)] == [99, 31, 32, 0, 64]


def test_rows_are_read_where_they_are(tmp_path, monkeypatch):
    """A row far away costs no reading of all those before it."""
    path = write(tmp_path, [{"n": at} for at in range(10_000)])
    rows, lines = reader(path), []

    def count(number, raw):
        lines.append(number)
        return raw.rstrip()

    monkeypatch.setattr(jsonfile, "_content", count)
    for at in (9_000, 9_001, 9_100, 50):
        assert json.loads(rows.row(at)[1])["n"] == at
    assert len(lines) < 4 * 65


def test_what_is_no_row(tmp_path):
    for text, match in (
        ("[1]", "line 1 is no JSON object"),
        ("{a", "line 1 is no JSON "),
        ("[" * 100_000, "line 1 is no JSON "),
    ):
        with pytest.raises(SourceUnreadable, match=match):
            survey(write(tmp_path, [text]))
    (tmp_path / "x.jsonl").write_bytes(b'{"a": "\xff"}\n')
    with pytest.raises(SourceUnreadable, match=r"line 1 is no JSON .*utf-8"):
        survey(tmp_path / "x.jsonl")
    for content in (b"", b"\n\n"):
        (tmp_path / "x.jsonl").write_bytes(content)
        with pytest.raises(SourceUnreadable, match="the file has no row"):
            survey(tmp_path / "x.jsonl")
    assert parse(b'{"a": 1}', 1, "x") == {"a": 1}


@pytest.mark.parametrize("name", ["x.jsonl.gz", "x.jsonl.zst"])
def test_a_cut_or_damaged_file(tmp_path, name):
    path = write(tmp_path, [{"n": at} for at in range(5000)], name)
    raw = path.read_bytes()
    for damaged in (raw[: len(raw) // 2], raw[: len(raw) // 2] + b"\xff" * 40 + raw[len(raw) // 2 + 40 :], b"no such thing"):
        path.write_bytes(damaged)
        with pytest.raises(SourceError, match="cannot be decompressed"):
            survey(path)


def test_what_options_name(tmp_path):
    path = write(
        tmp_path, [{"id": "a", "y": "cat", "n": 1}, {"id": 7, "y": "dog", "t": "x" * 300, "l": [1]}, {"id": "b", "n": None}]
    )
    found = survey(path, key="id", label="y")
    assert (found.keys, found.classes) == (["a", "7", "b"], {"cat", "dog"})
    assert found.columns() == ("id", "n")
    assert survey(path, column=["t"]).columns() == ("t",)
    odd = write(tmp_path, [{"a\nb": 1, "n": 2, "": 3}], "odd.jsonl")
    assert survey(odd).columns() == ("n",)
    with pytest.raises(UsageError, match="a column's name is 1 to 200 bytes"):
        survey(odd, column=["a\nb"]).columns()
    for options, match in (
        ({"label": "z"}, "label names 'z', and no row has it .*: expected one of id, y, n, t, l"),
        ({"column": ["n", "m"]}, "column names 'm', and no row has it"),
    ):
        with pytest.raises(UsageError, match=match):
            survey(path, **options)
    with pytest.raises(SourceUnreadable, match=r"line 1 has no text or number 't' to be its key .*got None"):
        survey(path, key="t")


def test_a_few_rows_spread_over_the_file_are_looked_at(tmp_path):
    path = write(tmp_path, [{"n": at} for at in range(10_000)])
    numbers = [row["n"] for row in survey(path).probes]
    assert 64 <= len(numbers) < 128 and numbers[0] == 0 and numbers[-1] > 9_800
    assert len({after - before for before, after in pairwise(numbers)}) == 1


def test_a_file_that_changed(tmp_path):
    path = write(tmp_path, [{"n": at} for at in range(100)])
    rows = reader(path)
    os.truncate(path, 500)
    with pytest.raises(SourceChanged, match="the file was written to after its rows were counted"):
        rows.row(99)
    path.unlink()
    with pytest.raises(SourceChanged, match="the file has gone: No such file"):
        rows.prove()
    path = write(tmp_path, [{"n": at} for at in range(10)])
    rows = reader(path)
    with pytest.raises(SourceChanged, match="the file ends before row 10"):
        rows.row(10)


def test_names_of_rows():
    names = LineNames("/a/x.jsonl", 3, array("Q"))
    assert list(names) == ["x.jsonl line 1", "x.jsonl line 2", "x.jsonl line 3"] and names[-1] == "x.jsonl line 3"
    assert LineNames("x.jsonl", 2, array("Q", [1, 5]))[0:2] == ["x.jsonl line 1", "x.jsonl line 5"]
