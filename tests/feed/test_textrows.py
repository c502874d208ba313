"""Text columns worked on as wholes, against Python's own work on each string."""

import operator
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastfeed.archive import columns
from fastfeed.archive.columns import BYTES, ColumnData
from fastfeed.archive.index import SAMPLE, MappedColumns, Strings
from fastfeed.archive.usercolumn import UserColumn
from fastfeed.errors import IndexDamaged
from fastfeed.feed import textrows
from fastfeed.feed.textrows import TextRows
from fastfeed.feed.views import Picked

LETTERS = st.text(st.sampled_from("abäß日😀AB"), max_size=6)
TEXTS = st.lists(LETTERS, max_size=12)
RELATIONS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]


def made(values: list[str]) -> TextRows:
    return TextRows.made([value.encode() for value in values])


def views(values: list[str]) -> list[tuple[TextRows, list[str]]]:
    """The same rows in one piece, and picked here and there, backwards."""
    whole = made(values)
    back = slice(None, None, -2)
    return [(whole, values), (TextRows(whole.data, whole.starts[back], whole.stops[back]), values[back])]


@settings(deadline=None)
@given(TEXTS, LETTERS)
def test_searches_are_pythons(values: list[str], text: str):
    raw = text.encode()
    for rows, wanted in views(values):
        assert [row.decode() for row in rows] == wanted
        assert rows.equal(raw).tolist() == [value == text for value in wanted]
        assert rows.starts_with(raw).tolist() == [value.startswith(text) for value in wanted]
        assert rows.ends_with(raw).tolist() == [value.endswith(text) for value in wanted]
        assert rows.contains(raw).tolist() == [text in value for value in wanted]


@settings(deadline=None)
@given(TEXTS, LETTERS, st.sampled_from(RELATIONS))
def test_comparisons_are_by_code_points(values: list[str], text: str, relation):
    for rows, wanted in views(values):
        assert rows.compared(relation, text.encode()).tolist() == [relation(value, text) for value in wanted]
        other = [value[::-1] for value in wanted]
        assert rows.compared(relation, made(other)).tolist() == [relation(a, b) for a, b in zip(wanted, other, strict=True)]


@settings(deadline=None)
@given(TEXTS)
def test_lengths_lower_case_and_codes(values: list[str]):
    for rows, wanted in views(values):
        assert rows.lengths().tolist() == list(map(len, wanted))
        assert [row.decode() for row in rows.lowered()] == [value.lower() for value in wanted]
        assert rows.codes().tolist() == [sorted(set(wanted)).index(value) for value in wanted]


def test_a_hit_does_not_reach_into_the_next_row():
    rows = made(["xa", "ab", "aa", "", "a", "a"])
    assert rows.contains(b"aa").tolist() == [False, False, True, False, False, False]
    assert rows.contains(b"aab").tolist() == [False] * 6
    assert rows.ends_with(b"aab").tolist() == [False] * 6


def test_work_goes_on_over_chunks(monkeypatch):
    monkeypatch.setattr(textrows, "_CHUNK_ROWS", 7)
    monkeypatch.setattr(textrows, "_GATHER_BYTES", 8)
    values = [f"{number:03d}ä" for number in range(100)]
    for rows, wanted in views(values):
        assert [row.decode() for row in rows] == wanted
        assert rows.contains(b"05").tolist() == ["05" in value for value in wanted]
        assert rows.starts_with(b"05").tolist() == [value.startswith("05") for value in wanted]
        assert rows.lengths().tolist() == [4] * len(wanted)


def test_few_rows_far_apart_are_counted_one_by_one():
    whole = made(["日本", *["x" * 90_000] * 3, "é"])
    picked = TextRows(whole.data, whole.starts[[4, 0]], whole.stops[[4, 0]])
    assert picked.lengths().tolist() == [1, 2]


def test_source_paths_that_are_no_utf_8():
    rows = TextRows.made([b"a\xff", b"\xffb"])
    assert bytes(rows.lowered().data) == b"a\xff\xffb"
    assert rows.contains(os.fsencode("\udcff")).tolist() == [True, True]


def stored(tmp_path, starts: list[int], data: bytes) -> Strings:
    part = (np.array(starts, dtype=np.uint64), data)
    with (tmp_path / "c").open("wb") as file:
        columns.write(file, {SAMPLE: len(starts) - 1}, [ColumnData(SAMPLE, "x.t", BYTES, part, required=False)])
    return MappedColumns(str(tmp_path / "c")).strings(SAMPLE, "x.t")


def test_a_mapped_column_is_not_copied(tmp_path):
    values = ["a", "", "ß"]
    _, parts = UserColumn("t", "text", values).stored(3)
    with (tmp_path / "c").open("wb") as file:
        columns.write(file, {SAMPLE: 3}, [ColumnData(SAMPLE, "x.t", BYTES, parts, required=False)])
    texts = MappedColumns(str(tmp_path / "c")).user_column("t")
    assert not isinstance(texts, np.ndarray)
    rows = TextRows.of(texts)
    assert [row.decode() for row in rows] == values
    assert rows.data.readonly and rows.starts.base is not None
    picked = TextRows.of(Picked(texts, np.array([2, -1, 0]), ""))
    assert [row.decode() for row in picked] == ["ß", "", "a"]
    again = TextRows.of(Picked(Picked(texts.raw, slice(None, None, 2)), np.array([1, 1])))
    assert [row.decode() for row in again] == ["ß", "ß"]


@pytest.mark.parametrize("starts", [[0, 2, 1, 3], [1 << 63, 1, 2, 3], [0, 1, 2, 4], [(1 << 64) - 1, 0, 1, 3]])
def test_c11_ranges_that_leave_the_column_are_refused(tmp_path, starts: list[int]):
    with pytest.raises(IndexDamaged, match=r"the ranges of column x\.t fall or leave their column"):
        TextRows.of(stored(tmp_path, starts, b"abc"))
