"""Cells kept close, and the type that all of a column's cells have."""

import math
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastfeed.archive.usercolumn import UserColumn
from fastfeed.source.cells import Cells, Parsed, infer


def inferred(*values: str) -> UserColumn:
    return infer("c", Cells(values), lambda row: f"line {row + 2}")


@settings(deadline=None)
@given(st.lists(st.lists(st.text())), st.data())
def test_cells_are_the_sequence_that_was_added(chunks: list[list[str]], data: st.DataObject):
    cells = Cells()
    for chunk in chunks:
        cells.extend(chunk)
    flat = [value for chunk in chunks for value in chunk]
    assert list(cells) == flat and len(cells) == len(flat) and cells[:] == flat
    assert [value for chunk in cells.chunks() for value in chunk] == flat
    if flat:
        at = data.draw(st.integers(-len(flat), len(flat) - 1))
        assert cells[at] == flat[at]
    with pytest.raises(IndexError):
        cells[len(flat)]


@pytest.mark.parametrize(
    ("values", "kind", "expected", "why"),
    [
        (["1", "-2", "0"], "int64", [1, -2, 0], "int64: all cells are whole numbers"),
        ([str(2**63 - 1), str(-(2**63))], "int64", [2**63 - 1, -(2**63)], "int64: all cells are whole numbers"),
        (["1", ""], "float64", [1.0, math.nan], "float64: whole numbers, 1 missing (NaN)"),
        (["1", "2.5", "-1e3", ".5", "+7", "1."], "float64", [1.0, 2.5, -1000.0, 0.5, 7.0, 1.0], "float64: numbers"),
        (
            ["nan", "-inf", "Infinity", ""],
            "float64",
            [math.nan, -math.inf, math.inf, math.nan],
            "float64: numbers, 1 missing (NaN)",
        ),
        (["-0"], "int64", [0], "int64: all cells are whole numbers"),
        (["true", "False", "TRUE"], "bool", b"\1\0\1", "bool: all cells are true or false"),
        (["true", "", "FALSE"], "float64", [1.0, math.nan, 0.0], "float64: true (1) and false (0), 1 missing (NaN)"),
        (["007", "8"], "text", ["007", "8"], "text: line 2 is '007'"),
        (["8", "007"], "text", ["8", "007"], "text: line 3 is '007'"),
        (["1", " 2"], "text", ["1", " 2"], "text: line 3 is ' 2'"),
        (["1", "1_000"], "text", ["1", "1_000"], "text: line 3 is '1_000'"),
        (["1", "٣"], "text", ["1", "٣"], "text: line 3 is '٣'"),
        (["1\n2"], "text", ["1\n2"], "text: line 2 is '1\\n2'"),
        (["1\n"], "text", ["1\n"], "text: line 2 is '1\\n'"),
        (["true\nfalse"], "text", ["true\nfalse"], "text: line 2 is 'true\\nfalse'"),
        (["true", "1"], "text", ["true", "1"], "text: line 2 is 'true'"),
        (["yes", "no"], "text", ["yes", "no"], "text: line 2 is 'yes'"),
        (["x" * 50], "text", ["x" * 50], f"text: line 2 is '{'x' * 40}...'"),
        (["", ""], "text", ["", ""], "text: all cells are empty"),
        ([], "text", [], "text: there are no rows"),
        ([str(2**63), "1"], "text", [str(2**63), "1"], f"text: line 2 is {2**63}, too large for int64"),
        ([str(2**70), "1"], "float64", [2.0**70, 1.0], "float64: numbers"),
        ([str(2**70 + 1), "1"], "text", [str(2**70 + 1), "1"], f"text: line 2 is '{2**70 + 1}', which float64 would round"),
        ([str(2**53 + 1), ""], "text", [str(2**53 + 1), ""], f"text: line 2 is '{2**53 + 1}', which float64 would round"),
        ([str(2**53), ""], "float64", [2.0**53, math.nan], "float64: whole numbers, 1 missing (NaN)"),
        (["1" * 5000, "0.5"], "text", ["1" * 5000, "0.5"], f"text: line 2 is '{'1' * 40}...', which float64 would round"),
    ],
)
def test_the_type_is_that_of_all_cells(values, kind, expected, why):
    found = inferred(*values)
    assert (found.name, found.kind, found.why) == ("c", kind, why)
    if kind == "float64":
        assert isinstance(found.values, array) and found.values.typecode == "d"
        assert [repr(value) for value in found.values] == [repr(value) for value in expected]
    else:
        assert list(found.values) == list(expected)
    found.stored(len(values))


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(["", "1", "-5", "1.5", "x", "true", "false", "01", "1e400", "1\n"]), max_size=12),
    st.integers(1, 4),
)
def test_chunks_do_not_change_the_type(values: list[str], size: int):
    chunked = Cells()
    for at in range(0, len(values), size):
        chunked.extend(values[at : at + size])
    one, many = inferred(*values), infer("c", chunked, lambda row: f"line {row + 2}")
    assert (one.kind, one.why) == (many.kind, many.why)
    assert list(map(repr, one.values)) == list(map(repr, many.values))


def test_a_late_cell_decides_over_a_million_others():
    cells = Cells(["5"] * 100_000)
    cells.extend(["6", "n/a"])
    found = infer("c", cells, lambda row: f"row {row}")
    assert (found.kind, found.why) == ("text", "text: row 100001 is 'n/a'")


def test_lines_of_rows():
    assert Parsed(first_line=2).line(5) == 7
    assert Parsed(lines=array("Q", [2, 5, 6])).line(1) == 5
