import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfeed.packer.rows.scalars import ScalarColumn, typed

SCALARS = st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec="utf-8"), max_size=10)


def column(values):
    """A part, and what it must hold."""
    found = ScalarColumn()
    for at, value in enumerate(values):
        if value is not None:
            found.pad(at)
            found.add(value)
    found.pad(len(values))
    return found


def listed(user):
    return [bool(value) for value in user.values] if user.kind == "bool" else list(user.values)


@given(st.lists(st.none() | SCALARS))
def test_values_come_back(values):
    expected = [str(value) if isinstance(value, int) and abs(value) > 2**63 else value for value in values]
    assert repr(list(column(values).values())) == repr([
        str(value) if isinstance(value, int) and not -(2**63) <= value < 2**63 else value for value in values
    ]) and len(expected) == len(values)  # fmt: skip


NAN = math.nan


@pytest.mark.parametrize(
    ("parts", "kind", "values"),
    [
        ([[True, False], [True]], "bool", [True, False, True]),
        ([[1, -5], [2**63 - 1, -(2**63)]], "int64", [1, -5, 2**63 - 1, -(2**63)]),
        ([[1, 2.5], [3]], "float64", [1.0, 2.5, 3.0]),
        ([[1, None], [3]], "float64", [1.0, NAN, 3.0]),
        ([[0.5, None], [None]], "float64", [0.5, NAN, NAN]),
        ([[math.inf, NAN], [-0.0]], "float64", [math.inf, NAN, -0.0]),
        ([[2**53, None]], "float64", [2.0**53, NAN]),
        ([[2**53 + 1, None]], "text", ["9007199254740993", ""]),  # which float64 would round
        ([[2**53 + 1], [0.5]], "text", ["9007199254740993", "0.5"]),
        ([[1], [2**64]], "text", ["1", "18446744073709551616"]),
        ([[True, None]], "text", ["true", ""]),
        ([[True], [1]], "text", ["true", "1"]),
        ([["a", None], ["", "ä"]], "text", ["a", "", "", "ä"]),
        ([["a", 5], [0.1, False]], "text", ["a", "5", "0.1", "false"]),
        ([[None], [None]], "text", ["", ""]),
        ([["\udcff"]], "text", ["\\udcff"]),
        ([[], [1]], "int64", [1]),
    ],
    ids=map(str, range(17)),
)
def test_one_type_for_all_parts(parts, kind, values):
    found = typed("x", list(map(column, parts)))
    assert (found.name, found.kind) == ("x", kind)
    assert repr(listed(found)) == repr(values)


@given(st.lists(st.lists(st.none() | SCALARS, max_size=5), min_size=1, max_size=3))
def test_any_values_have_a_type_that_the_index_takes(parts):
    rows = sum(map(len, parts))
    found = typed("x", list(map(column, parts)))
    assert len(found.values) == rows
    found.stored(rows)


def test_huge_numbers():
    assert list(column([10**5000]).values()) == [hex(10**5000)]  # which str() refuses
