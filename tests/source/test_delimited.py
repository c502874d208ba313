"""csv and tsv by column: quotes, line ends, blank lines, headers, and what is wrong named by its line."""

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastfeed.errors import SourceAmbiguous, SourceError
from fastfeed.source.cells import CHUNK_ROWS, Parsed
from fastfeed.source.delimited import read_delimited


def read(tmp_path: Path, raw: bytes | str, delimiter: str = ",", wanted=None, name: str = "list.csv") -> Parsed:
    (tmp_path / name).write_bytes(raw if isinstance(raw, bytes) else raw.encode())
    return read_delimited(str(tmp_path / name), delimiter, wanted)


def table(parsed: Parsed) -> dict[str, list[str]]:
    return {name: list(cells) for name, cells in parsed.cells.items()}


def lines(parsed: Parsed) -> list[int]:
    return [parsed.line(row) for row in range(parsed.rows)]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("last", [True, False])
def test_line_ends(tmp_path: Path, end: str, last: bool):
    parsed = read(tmp_path, end.join(["a,b", "1,x", "2,y"]) + (end if last else ""))
    assert table(parsed) == {"a": ["1", "2"], "b": ["x", "y"]}
    assert (parsed.names, parsed.rows, lines(parsed), parsed.notes) == (("a", "b"), 2, [2, 3], [])


def test_quotes_hold_commas_quotes_and_line_feeds(tmp_path: Path):
    parsed = read(tmp_path, 'a,b\n"x, ""y""",1\n"two\nlines\r\n",2\n\n"",3\n')
    assert table(parsed) == {"a": ['x, "y"', "two\nlines\r\n", ""], "b": ["1", "2", "3"]}
    assert lines(parsed) == [2, 3, 7]


def test_a_byte_order_mark_is_no_part_of_the_first_name(tmp_path: Path):
    assert read(tmp_path, b"\xef\xbb\xbfa,b\n1,2\n").names == ("a", "b")


def test_a_tsv_has_no_quotes(tmp_path: Path):
    parsed = read(tmp_path, 'a\tb\n"Hi", he said.\t1\n"Hi."\t2\n', "\t", name="list.tsv")
    assert table(parsed) == {"a": ['"Hi", he said.', '"Hi."'], "b": ["1", "2"]}
    assert parsed.notes == ["column 'a': 1 cells are in quotes, which belong to the text (a tsv has no quoting)"]


def test_only_the_wanted_columns_are_kept(tmp_path: Path):
    parsed = read(tmp_path, "a,b,c\n1,2,3\n", wanted=["c", "none"])
    assert (parsed.names, table(parsed)) == (("a", "b", "c"), {"c": ["3"]})


def test_a_column_without_a_name_is_left_out_and_told(tmp_path: Path):
    parsed = read(tmp_path, ",a,\n0,x,1\n")
    assert (parsed.names, table(parsed)) == (("a",), {"a": ["x"]})
    assert parsed.notes == ["left out: column 1, 3 of list.csv, which the header does not name"]


def test_a_header_alone(tmp_path: Path):
    parsed = read(tmp_path, "a,b\n")
    assert (parsed.rows, table(parsed)) == (0, {"a": [], "b": []})


def test_a_cell_may_be_long(tmp_path: Path):
    before = csv.field_size_limit()
    assert table(read(tmp_path, "a\n" + "x" * 200_000))["a"] == ["x" * 200_000]
    assert csv.field_size_limit() == before


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ("", r"list\.csv is empty"),
        ("\n\n", r"list\.csv is empty"),
        ("a,b,a\n", r"the header of list\.csv names column 'a' twice .*got columns 1, 3"),
        ("a,b\n1,2\n\n3\n", r"line 4 of list\.csv has 1 fields, its header has 2"),
        ("a,b\n1,2,3\n", r"line 2 of list\.csv has 3 fields, its header has 2 .*got 1,2,3.*must be in quotes"),
        ('a,b\n"1\n\n",2\n3\n', r"line 5 of list\.csv has 1 fields"),
        ('a,b\n1,"2\n3,4\n', r"list\.csv breaks the rules of csv up to line 3: a quote that is opened is never closed"),
        ('a,b\n1,"2"x\n', r"list\.csv breaks the rules of csv up to line 2: ',' expected after '\"'"),
        (b"a\n\xff\n", r"line 2 of list\.csv is not UTF-8: byte 1 of it is 0xff"),
    ],
)
def test_what_breaks_the_rules(tmp_path: Path, raw: bytes | str, words: str):
    with pytest.raises(SourceError, match=words):
        read(tmp_path, raw)


def test_a_row_of_another_length_is_named_far_into_the_file(tmp_path: Path):
    rows = ["a,b"] + ["1,2"] * (CHUNK_ROWS + 5) + ['"x\ny",2', "1"]
    with pytest.raises(SourceError, match=rf"line {CHUNK_ROWS + 9} of list\.csv has 1 fields"):
        read(tmp_path, "\n".join(rows))


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ("a;b\n1;2\n", "the header of list.csv is one column, 'a;b': its cells seem to be parted by ';'"),
        ("a\tb\n", "its cells seem to be parted by '\\t'"),
        ("img/1.jpg,3\nimg/2.jpg,4\n", "list.csv has no header: its first line holds 'img/1.jpg'"),
        ("clip.WAV,speech\n", "list.csv has no header: its first line holds 'clip.WAV'"),
        ("1,2\n3,4\n", "list.csv has no header: its first line holds '1'"),
    ],
)
def test_headers_that_are_none(tmp_path: Path, raw: str, words: str):
    with pytest.raises(SourceAmbiguous) as caught:
        read(tmp_path, raw)
    assert words in str(caught.value)


@pytest.mark.parametrize("header", ["2019,2020,name", "a/b,meta.width", "x", "a b,c;d"])
def test_headers_that_are_odd_but_right(tmp_path: Path, header: str):
    assert read(tmp_path, header + "\n").names == tuple(header.split(","))


CELL = st.text(st.characters(codec="utf-8"), max_size=6) | st.sampled_from(["", '"', ",", "\n", "\r\n", '""'])


@settings(deadline=None)
@given(st.integers(1, 4).flatmap(lambda width: st.lists(st.lists(CELL, min_size=width, max_size=width), max_size=8)))
def test_what_pythons_csv_module_writes_reads_back(tmp_path_factory, rows: list[list[str]]):
    width = len(rows[0]) if rows else 1
    out = io.StringIO(newline="")
    writer = csv.writer(out, quoting=csv.QUOTE_ALL)
    writer.writerow([f"c{at}" for at in range(width)])
    writer.writerows(rows)
    parsed = read(tmp_path_factory.mktemp("csv"), out.getvalue())
    assert list(table(parsed).values()) == [[row[at] for row in rows] for at in range(width)]
    assert parsed.rows == len(rows)


def test_a_cell_over_many_lines_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A quote lets it pass the ends of lines, so a compressed file of a megabyte could hold a cell of gigabytes."""
    monkeypatch.setattr("fastfeed.source.delimited.MAX_LINE_BYTES", 1 << 20)
    path = tmp_path / "t.csv"
    path.write_text('a\n"' + "some text\n" * 100_000 + '"\n')
    assert read_delimited(str(path), ",", None).rows == 1
    path.write_text('a\n"' + "some text\n" * 200_000 + '"\n')
    with pytest.raises(SourceError, match=r"t\.csv breaks the rules of csv up to line \d+: field larger than field limit"):
        read_delimited(str(path), ",", None)
