"""jsonl by column: JSON types decide, what a row has not is missing, and a wrong line is named."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastfeed.errors import SourceError
from fastfeed.source.cells import CHUNK_ROWS, Parsed
from fastfeed.source.jsonlines import raw_rows, read_jsonl


def read(tmp_path: Path, raw: bytes | str, wanted=None) -> Parsed:
    (tmp_path / "rows.jsonl").write_bytes(raw if isinstance(raw, bytes) else raw.encode())
    return read_jsonl(str(tmp_path / "rows.jsonl"), wanted)


def table(parsed: Parsed) -> dict[str, list[str]]:
    return {name: list(cells) for name, cells in parsed.cells.items()}


def test_values_are_written_as_json_has_them(tmp_path: Path):
    row = {"s": "a\u2028\n", "i": -3, "f": 0.5, "e": 1e300, "t": True, "n": None, "l": [1, {"é": None}], "big": 10**30}
    parsed = read(tmp_path, json.dumps(row) + "\n")
    assert table(parsed) == {
        "s": ["a\u2028\n"], "i": ["-3"], "f": ["0.5"], "e": ["1e+300"], "t": ["true"], "n": [""],
        "l": ['[1, {"é": null}]'], "big": [str(10**30)],
    }  # fmt: skip
    assert parsed.names == tuple(row)
    assert parsed.texts == {"s": "text: line 1 is a string", "l": "text: line 1 is a list"}


def test_a_column_is_there_if_one_row_has_it(tmp_path: Path):
    parsed = read(tmp_path, '{"a": 1}\n{"b": "x"}\r\n\n{"a": 2, "c": {}}\n')
    assert table(parsed) == {"a": ["1", "", "2"], "b": ["", "x", ""], "c": ["", "", "{}"]}
    assert [parsed.line(row) for row in range(3)] == [1, 2, 4]
    assert parsed.texts == {"b": "text: line 2 is a string", "c": "text: line 4 is an object"}


def test_a_column_that_comes_late_is_missing_before(tmp_path: Path):
    count = CHUNK_ROWS * 2 + 3
    parsed = read(tmp_path, '{"a": 1}\n' * count + '{"b": 2}\n')
    assert list(parsed.cells["b"]) == [""] * count + ["2"]
    assert list(parsed.cells["a"]) == ["1"] * count + [""]


def test_only_the_wanted_columns_are_kept(tmp_path: Path):
    parsed = read(tmp_path, '{"a": 1, "b": 2}\n', wanted=["b"])
    assert parsed.names == ("a", "b")
    assert list(parsed.cells["b"]) == ["2"]


def test_a_byte_order_mark_and_lines_of_all_kinds(tmp_path: Path):
    parsed = read(tmp_path, b'\xef\xbb\xbf{"a": "x\xe2\x80\xa8"}\r\n{"a": "y"}')
    assert list(parsed.cells["a"]) == ["x\u2028", "y"]


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ("", r"rows\.jsonl is empty"),
        ("\n \n", r"rows\.jsonl is empty"),
        ('{"a": 1}\n\n[1]\n', r"line 3 of rows\.jsonl is no JSON object .*got \[1\]"),
        ('{"a": 1}\n{"a": }\n', r"line 2 of rows\.jsonl is no JSON \(Expecting value"),
        ('{"a": 1} {"a": 2}\n', r"line 1 of rows\.jsonl is no JSON \(Extra data"),
        ('[{"a": 1},\n{"a": 2}]\n', r"line 1 of rows\.jsonl is no JSON"),
        ("[" * 100_000, r"line 1 of rows\.jsonl is no JSON"),
        ('{"a": ' + "1" * 5000 + "}", r"line 1 of rows\.jsonl is no JSON"),
        (b'{"a": 1}\n{"a": "\xff"}\n', r"line 2 of rows\.jsonl is not UTF-8: byte 8 of it is 0xff"),
    ],
)
def test_what_breaks_the_rules(tmp_path: Path, raw: bytes | str, words: str):
    with pytest.raises(SourceError, match=words):
        read(tmp_path, raw)


def test_rows_as_they_are_written(tmp_path: Path):
    read(tmp_path, '  {"a":  1.50}\r\n\n{"b": "é"}')
    assert list(raw_rows(str(tmp_path / "rows.jsonl"))) == ['{"a":  1.50}', '{"b": "é"}']


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(codec="utf-8"))


@settings(deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from("abc"), SCALARS | st.lists(SCALARS, max_size=2)), min_size=1, max_size=6))
def test_any_rows_read_back(tmp_path_factory, rows):
    parsed = read(tmp_path_factory.mktemp("jsonl"), "\n".join(map(json.dumps, rows)))
    assert parsed.rows == len(rows)
    for name in parsed.names:
        for row, cell in zip(rows, parsed.cells[name], strict=True):
            value = row.get(name)
            expected = "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            assert cell == expected
