"""fastfeed/archive/strings.py against README.md §4: rows of variable length, proven when they are used."""

from array import array

import numpy as np
import pytest

from fastfeed.archive.columns import BYTES, Column
from fastfeed.archive.strings import JpegRows, Strings, Texts
from fastfeed.errors import IndexDamaged


def strings(*rows: bytes, starts=None) -> Strings:
    """A column of these rows, or of other ranges of their bytes."""
    data = b"".join(rows)
    ends = np.cumsum([0, *map(len, rows)]) if starts is None else starts
    column = Column("member", "jpeg_intervals", BYTES, len(ends) - 1, required=False, extents=((0, 0), (0, 0)), xxh3="")
    return Strings(np.array(ends, dtype=np.uint64), memoryview(data), column, "some/index", "Look here.")


def numbers(first: int, *sizes: int) -> bytes:
    return array("I", [first]).tobytes() + array("H", sizes).tobytes()


def test_rows_are_a_sequence_of_bytes():
    rows = strings(b"a", b"", b"bc")
    assert list(rows) == [b"a", b"", b"bc"]
    assert rows[-1] == b"bc"
    assert rows[0:2] == [b"a", b""]
    starts, data = rows.ranges()
    assert starts.tolist() == [0, 1, 1, 3]
    assert bytes(data) == b"abc"


@pytest.mark.parametrize("starts", [[0, 2, 1, 3], [0, 1, 4, 4], [5, 6, 7, 8]])
def test_c11_a_range_that_falls_or_leaves_its_column(starts):
    rows = strings(b"abc", starts=starts)
    with pytest.raises(IndexDamaged, match=r"row \d of column jpeg_intervals lies outside its column.*some/index.*Look here"):
        list(rows)
    with pytest.raises(IndexDamaged, match="the ranges of column jpeg_intervals fall or leave their column"):
        rows.ranges()


def test_texts_are_utf8():
    texts = Texts(strings("grün".encode(), b"\xff"), "colour", "some/index")
    assert len(texts) == 2
    assert texts[0] == "grün"
    assert texts[:1] == ["grün"]
    with pytest.raises(IndexDamaged, match="row 1 of column 'colour' is no UTF-8 text"):
        texts[-1]


def test_jpeg_rows_of_a_member():
    column = JpegRows(strings(b"", numbers(600, 100, 202), b""))
    edges = column.of(1, 902)
    assert edges is not None
    assert edges.dtype == np.int64
    assert edges.tolist() == [600, 700, 902]
    assert column.of(0, 902) is None
    assert column.count() == 1


@pytest.mark.parametrize(
    "raw",
    [
        numbers(600, 302),  # a single interval, which nobody indexes
        numbers(600, 100, 202)[:-1],
        b"\0",
        numbers(1, 700, 201),  # before the start of any image
        numbers(600, 100, 203),  # it ends behind the member
        numbers(600, 100, 0xFFFF),
        numbers(0xFFFFFFFF, 3, 3),
        numbers(600, 2, 300),  # a marker and no data
        numbers(600, 0, 302),
    ],
    ids=bytes.hex,
)
def test_i7_intervals_that_lie_outside_of_their_member_or_hold_nothing(raw):
    with pytest.raises(
        IndexDamaged, match=r"row 0 of column jpeg_intervals says no rows of a member of 902 bytes.*up to byte 902"
    ):
        JpegRows(strings(raw)).of(0, 902)
