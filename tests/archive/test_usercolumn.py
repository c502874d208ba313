"""fastfeed/archive/usercolumn.py: names, kinds and values that the format takes, and those that it refuses."""

import math
import struct
from array import array
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastfeed.archive.usercolumn import UserColumn, is_user_name
from fastfeed.errors import UsageError


@pytest.mark.parametrize("name", ["a", " ", "width", "x.y", "héhé", "日本", "a/b", '"', "😀", "n" * 200, "é" * 100, "\u2028"])
def test_u1_names_that_are_taken(name: str):
    assert is_user_name(name)
    assert UserColumn(name, "bool", b"").name == name


@pytest.mark.parametrize("name", ["", "a\n", "\0", "\x1f", "\x7f", "\x85", "n" * 201, "é" * 101, "\udcff"])
def test_u1_names_that_are_refused(name: str):
    assert not is_user_name(name)
    with pytest.raises(UsageError, match="a column's name is 1 to 200 bytes of UTF-8 without control characters"):
        UserColumn(name, "bool", b"")


def test_a_kind_that_there_is_not():
    with pytest.raises(
        UsageError, match=r"column 'a' has an unknown kind: expected one of int64, float64, bool, text, got 'date'"
    ):
        UserColumn("a", "date", [])  # type: ignore[arg-type]


def test_numbers_are_stored_as_they_are():
    assert bytes(UserColumn("a", "int64", array("q", [1, -2])).stored(2)[1][0]) == struct.pack("<2q", 1, -2)  # type: ignore[call-overload]
    kind, (raw,) = UserColumn("a", "float64", array("d", [0.5, math.nan])).stored(2)
    assert (kind, bytes(raw)) == ("float64", struct.pack("<2d", 0.5, math.nan))  # type: ignore[call-overload]
    kind, (raw,) = UserColumn("a", "bool", bytes([1, 0, 1])).stored(3)
    assert (kind, bytes(raw)) == ("uint8", b"\1\0\1")  # type: ignore[call-overload]


@settings(deadline=None)
@given(st.lists(st.text()))
def test_texts_are_stored_as_ranges_of_their_utf_8(values: list[str]):
    kind, (starts, data) = UserColumn("a", "text", values).stored(len(values))
    raw = [value.encode() for value in values]
    assert (kind, data) == ("bytes", b"".join(raw))
    assert list(starts) == list(accumulate(map(len, raw), initial=0))  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (UserColumn("a", "int64", array("q", [1])), "column 'a' has not one value a sample: expected 2 values, got 1"),
        (
            UserColumn("a", "int64", array("i", [1, 2])),
            "column 'a' has values of another type than it says: expected int64, got",
        ),
        (UserColumn("a", "int64", array("d", [1, 2])), "expected int64, got items of 8 bytes and format 'd'"),
        (UserColumn("a", "float64", array("f", [1, 2])), "expected float64, got items of 4 bytes and format 'f'"),
        (UserColumn("a", "bool", b"\0\2"), "column 'a' has a truth value that is neither 0 nor 1: got 2"),
        (UserColumn("a", "text", ["b", "c\udcff"]), "row 1 of column 'a' is no UTF-8 text: got 'c\\udcff'"),
        (UserColumn("a", "text", ["\ud800", ""]), "row 0 of column 'a' is no UTF-8 text"),
    ],
)
def test_values_that_do_not_fit(column: UserColumn, words: str):
    with pytest.raises(UsageError) as caught:
        column.stored(2)
    assert words in str(caught.value)
