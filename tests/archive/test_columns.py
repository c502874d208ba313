"""fastfeed/archive/columns.py against README.md §4: round trips, and every way a file can lie."""

import io
import json
import struct
from array import array
from itertools import accumulate, pairwise
from typing import Any

import pytest
from helpers import ColumnFile, column_file, flipped
from hypothesis import given, settings
from hypothesis import strategies as st

from fastfeed.archive import columns
from fastfeed.archive.columns import BYTES, HEAD, STARTS, ColumnData
from fastfeed.errors import DatasetError, IndexDamaged, VersionUnsupported

CODES = {"uint8": "B", "uint16": "H", "uint32": "I", "uint64": "Q", "int64": "q", "float64": "d"}
NUMBER = {"table": "t", "name": "n", "type": "uint16", "required": True, "bytes": [6], "xxh3": "0" * 16}
"""An entry of a column table for three numbers."""


def written(tables, listed) -> bytes:
    out = io.BytesIO()
    columns.write(out, tables, listed)
    return out.getvalue()


def small() -> bytes:
    """Two tables, four columns of three kinds."""
    return written(
        {"t": 3, "u": 1},
        [
            ColumnData("t", "n", "uint16", (array("H", [1, 2, 3]),)),
            ColumnData("t", "s", BYTES, (array("Q", [0, 1, 1, 6]), b"abcdef")),
            ColumnData("u", "r", STARTS, (array("Q", [0, 3]),), required=False),
            ColumnData("u", "x", "float64", (array("d", [0.5]),), required=False),
        ],
    )


def read(raw: bytes) -> columns.ColumnTable:
    return columns.read_table(raw, len(raw), "/data/index")


def refused(table: object, parts=(bytes(6),)) -> pytest.ExceptionInfo[IndexDamaged]:
    """The error for a file with this column table and a head that fits it."""
    raw = table if isinstance(table, bytes) else json.dumps(table).encode()
    with pytest.raises(IndexDamaged, match="the column table breaks a rule") as caught:
        read(column_file(raw, parts))
    assert caught.value.path == "/data/index"
    return caught


@st.composite
def contents(draw):
    tables = draw(st.dictionaries(st.text(min_size=1, max_size=5), st.integers(0, 5), min_size=1, max_size=3))
    names = st.tuples(st.sampled_from(sorted(tables)), st.text(max_size=5))
    listed = []
    for table, name in draw(st.lists(names, unique=True, max_size=5)):
        kind, rows = draw(st.sampled_from([*CODES, STARTS, BYTES])), tables[table]
        if kind in CODES:
            size = columns.ITEM_BYTES[kind] * rows
            parts: tuple[object, ...] = (draw(st.binary(min_size=size, max_size=size)),)
        else:
            rows_of_bytes = draw(st.lists(st.binary(max_size=90), min_size=rows, max_size=rows))
            starts = array("Q", accumulate(map(len, rows_of_bytes), initial=0))
            parts = (starts, b"".join(rows_of_bytes)) if kind == BYTES else (starts,)
        listed.append(ColumnData(table, name, kind, parts, required=draw(st.booleans())))
    return tables, listed


@settings(max_examples=80, deadline=None)
@given(contents())
def test_what_is_written_reads_back(content):
    tables, listed = content
    raw = written(tables, listed)
    table = read(raw)
    assert dict(table.tables) == tables
    assert list(table.columns) == [(column.table, column.name) for column in listed]
    for column in listed:
        found = table.columns[column.table, column.name]
        assert (found.type, found.required, found.rows) == (column.type, column.required, tables[column.table])
        assert [raw[start:stop] for start, stop in found.extents] == [
            bytes(memoryview(part).cast("B")) for part in column.parts
        ]
        assert all(start % 64 == 0 for start, _ in found.extents)
    ColumnFile.parse(raw)  # a reader written from the specification alone
    assert written(tables, listed) == raw  # C12: equal content, equal bytes


def test_c12_the_table_is_sorted_ascii_without_white_space():
    raw = written({"ü": 0}, [ColumnData("ü", "n", "uint8", (b"",))])
    text = raw[32 : columns.table_bytes(raw)]
    assert text == json.dumps(json.loads(text), sort_keys=True, separators=(",", ":")).encode("ascii")


def test_a_head_alone_is_enough_to_read_the_table():
    raw = small()
    assert columns.table_bytes(b"") == HEAD.size
    need = columns.table_bytes(raw[: HEAD.size])
    assert columns.read_table(raw[:need], len(raw), "x").columns == read(raw).columns


def test_each_flipped_bit_of_head_and_table_is_refused():
    """C1 C2 C3 C4 C5."""
    raw = small()
    for bit in range(columns.table_bytes(raw) * 8):
        with pytest.raises(DatasetError, match=r"column file|column table|size that it states"):
            read(flipped(raw, bit))


def test_c1_something_else_is_no_column_file():
    for raw in (b"", b"{}", small()[1:], bytes(100)):
        with pytest.raises(IndexDamaged, match=r"this is not a column file \(/data/index, bytes \[0, 8\)\)"):
            read(raw)


def test_c2_v1_a_later_version_is_told_from_damage():
    raw = bytearray(small())
    struct.pack_into("<I", raw, 8, 2)
    with pytest.raises(VersionUnsupported, match=r"format version 2, this release reads 1.*Install a newer fastfeed"):
        read(bytes(raw))


@pytest.mark.parametrize("size", [1, 64, -1, -64, -200])
def test_c3_a_cut_or_grown_file(size):
    raw = small()
    raw = raw + bytes(size) if size > 0 else raw[:size]
    with pytest.raises(IndexDamaged, match=f"not the size that it states.*got {len(raw)}"):
        read(raw)


@pytest.mark.parametrize("size", [1 << 20, (1 << 32) - 1, (16 << 20) + 1])
def test_c4_a_table_that_does_not_fit(size):
    raw = bytearray(small())
    struct.pack_into("<I", raw, 12, size)
    with pytest.raises(IndexDamaged, match=f"the column table does not fit.*got {size}"):
        read(bytes(raw))
    assert columns.table_bytes(raw) <= HEAD.size + (16 << 20)


def test_c5_the_error_names_both_digests():
    raw = small()
    with pytest.raises(IndexDamaged, match=r"the column table is damaged .*expected [0-9a-f]{16}, got [0-9a-f]{16}"):
        read(flipped(raw, 40 * 8))


@pytest.mark.parametrize("raw", [b"", b"[]", b"3", b"\xff", b'{"tables": {"t": 3}, "columns": [', b"[" * 200_000])
def test_a_table_that_is_no_object(raw):
    refused(raw)


@pytest.mark.parametrize("rows", [-1, 1.5, "3", None, True, 1 << 60, 10**400, [3]])
def test_c6_rows_that_are_no_count(rows):
    refused({"tables": {"t": rows}, "columns": []}, ())


@pytest.mark.parametrize("tables", [[], None, "t", {}])
def test_c6_tables_that_are_no_mapping_or_lack_a_columns_table(tables):
    refused({"tables": tables, "columns": [NUMBER]})


@pytest.mark.parametrize("field", sorted(NUMBER))
def test_c7_a_field_that_lacks(field):
    refused({"tables": {"t": 3}, "columns": [{name: value for name, value in NUMBER.items() if name != field}]})


@pytest.mark.parametrize(
    "change",
    [
        {"table": 1}, {"table": "u"}, {"table": None}, {"name": 1}, {"type": 1}, {"type": None}, {"xxh3": 1}, {"required": 1},
        {"required": "false"}, {"required": None}, {"bytes": 6}, {"bytes": "6"}, {"bytes": {}}, {"bytes": []}, {"bytes": [-6]},
        {"bytes": [6.0]}, {"bytes": ["6"]}, {"bytes": [True]}, {"bytes": [1 << 60]},
    ],
    ids=str,
)  # fmt: skip
def test_c7_a_field_of_the_wrong_type(change):
    refused({"tables": {"t": 3}, "columns": [{**NUMBER, **change}]})
    unknown = {} if "type" in change else {"type": "unheard-of"}
    refused({"tables": {"t": 3}, "columns": [{**NUMBER, **unknown, **change}]})


@pytest.mark.parametrize("entries", [{}, {"a": NUMBER}, None, [None], ["t"], [[]]])
def test_c7_columns_that_are_no_list_of_objects(entries):
    refused({"tables": {"t": 3}, "columns": entries})


def test_c7_a_column_twice():
    caught = refused({"tables": {"t": 3}, "columns": [NUMBER, NUMBER]}, (bytes(6), bytes(6)))
    assert "column n of t is there twice" in str(caught.value)


def test_c7_other_fields_are_ignored():
    table: dict[str, Any] = {"tables": {"t": 3}, "columns": [{**NUMBER, "unit": "pixels"}], "made": "by hand"}
    assert read(column_file(json.dumps(table).encode(), [bytes(6)])).columns["t", "n"].rows == 3


@pytest.mark.parametrize(
    ("kind", "sizes"),
    [
        ("uint16", [5]), ("uint16", [8]), ("uint16", [6, 6]), ("uint8", [6]), ("uint64", [6]), ("int64", [32]),
        ("float64", [12]),
        ("starts", [24]), ("starts", [32, 1]), ("bytes", [32]), ("bytes", [24, 5]), ("bytes", [32, 5, 0]),
    ],
)  # fmt: skip
def test_c8_sizes_that_do_not_follow_from_type_and_rows(kind, sizes):
    caught = refused({"tables": {"t": 3}, "columns": [{**NUMBER, "type": kind, "bytes": sizes}]}, map(bytes, sizes))
    assert f"column n of t has {sizes} bytes for 3 rows of {kind}" in str(caught.value)


@pytest.mark.parametrize("parts", [(bytes(6), b"x"), (), (bytes(6), bytes(65))])
def test_c9_a_file_that_does_not_end_with_its_columns(parts):
    caught = refused({"tables": {"t": 3}, "columns": [NUMBER]}, parts)
    assert "the columns end at byte" in str(caught.value)


def test_c9_parts_lie_one_behind_the_other():
    table = read(small())
    spans = [span for column in table.columns.values() for span in column.extents]
    assert spans[0][0] == table.data_start
    assert all(stop <= after < stop + 64 for (_, stop), (after, _) in pairwise(spans))


def test_c13_a_column_of_an_unknown_type_keeps_its_place():
    """Whether a reader may ignore it is the index's business (test_index.py)."""
    table = {"tables": {"t": 3}, "columns": [{**NUMBER, "type": "float8", "bytes": [3, 70]}, {**NUMBER, "name": "m"}]}
    found = read(column_file(json.dumps(table).encode(), [bytes(3), bytes(70), bytes(6)]))
    (first, start), (second, stop) = found.columns["t", "n"].extents
    assert (start - first, stop - second) == (3, 70)
    assert found.columns["t", "m"].extents[0][0] == second + 128


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=200), st.data())
def test_no_table_bytes_raise_anything_else(table, data):
    parts = data.draw(st.lists(st.binary(max_size=80), max_size=3))
    with pytest.raises(IndexDamaged, match="the column table breaks a rule"):
        read(column_file(b"{" + table, parts))
