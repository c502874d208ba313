"""fastfeed/archive/index.py against README.md §4.2: columns by name and type, rows proven when they are used."""

import os
import struct
from array import array
from pathlib import Path

import numpy as np
import pytest
from helpers import ColumnFile, flipped
from hypothesis import given, settings
from hypothesis import strategies as st

from fastfeed.archive import columns
from fastfeed.archive.bytestrings import ByteStrings
from fastfeed.archive.columns import ColumnData
from fastfeed.archive.index import MEMBER, SAMPLE, DatasetIndex, IndexData, MappedColumns, Texts, UserColumn, column_names
from fastfeed.errors import DatasetError, IndexDamaged, VersionUnsupported
from fastfeed.jpegrows import to_column

REQUIRED = [
    ("sample", "members"),
    ("sample", "key"),
    ("member", "field"),
    ("member", "offset"),
    ("member", "size"),
    ("member", "xxh3"),
]
OPTIONAL = [
    ("sample", "label"),
    ("member", "source"),
    ("member", "codec"),
    ("member", "width"),
    ("member", "height"),
    ("member", "orientation"),
]


def data(keys=("a", "b/c", "d"), labels=(0, 1, 1), per_sample=(2, 1, 1), user=()) -> IndexData:
    members = sum(per_sample)
    counted: dict[str, object] = {name: np.arange(members, dtype=kind) for name, kind in
               (("xxh3", "u8"), ("codec", "u1"), ("width", "u4"), ("height", "u4"), ("orientation", "u1"))}  # fmt: skip
    return IndexData(
        keys=keys, labels=None if labels is None else np.array(labels, dtype=np.int64), members_per_sample=per_sample,
        sources=[f"s{at}" for at in range(members)], fields=np.arange(members, dtype=np.uint16),
        offsets=np.arange(1, members + 1, dtype=np.uint64) * 512, sizes=np.arange(members, dtype=np.uint64), records=counted,
        user=user,
    )  # fmt: skip


def save(path: Path, index: IndexData, more: tuple[ColumnData, ...] = ()) -> Path:
    with path.open("wb") as file:
        rows = {SAMPLE: len(index.keys), MEMBER: len(index.sources)}
        columns.write(file, rows, [*index.columns(), *more])
    return path


@pytest.fixture
def path(tmp_path):
    """An index of three samples and four members."""
    return save(tmp_path / "index", data())


def changed(path: Path, change) -> Path:
    """The same file with a change, its digests made to fit."""
    file = ColumnFile.parse(path.read_bytes())
    change(file)
    path.write_bytes(file.build())
    return path


def opened(path: Path) -> DatasetIndex:
    return DatasetIndex(str(path), 3, 4)


def test_rows_and_columns_read_back(path):
    index = opened(path)
    assert list(index.keys) == [b"a", b"b/c", b"d"]
    assert [list(index.member_rows(sample)) for sample in range(3)] == [[0, 1], [2], [3]]
    assert index.member(2) == (2, 1536, 2, 2)
    assert index.array("sample", "label").tolist() == [0, 1, 1]
    assert list(index.strings("member", "source")) == [b"s0", b"s1", b"s2", b"s3"]
    assert index.field_numbers().tolist() == [0, 1, 2, 3]
    assert index.sample_starts().tolist() == [0, 2, 3, 4]
    assert index.has("member", "codec")
    assert not index.has("member", "jpeg_intervals")
    file = ColumnFile.parse(path.read_bytes())
    assert [(entry["table"], entry["name"]) for entry in file.table["columns"] if entry["required"]] != []
    assert {(entry["table"], entry["name"]) for entry in file.table["columns"] if entry["required"]} == set(REQUIRED)


def test_views_are_read_only(path):
    with pytest.raises(ValueError, match="read-only"):
        opened(path).array("member", "width")[0] = 1


def test_a_column_that_is_not_there_is_a_key_error(path):
    with pytest.raises(KeyError, match="colour"):
        opened(path).array("member", "colour")


def test_strings_are_a_sequence(path):
    keys = opened(path).keys
    assert len(keys) == 3
    assert keys[-1] == b"d"
    assert keys[0:2] == [b"a", b"b/c"]
    with pytest.raises(IndexError, match="out of range"):
        keys[3]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.text(max_size=9) | st.binary(max_size=9).map(os.fsdecode), st.integers(0, 3)), min_size=1, max_size=12
    )
)
def test_any_index_reads_back(tmp_path_factory, rows):
    keys, counts = [key for key, _ in rows], [count for _, count in rows]
    index = DatasetIndex(
        str(save(tmp_path_factory.mktemp("index") / "index", data(keys, None, counts))), len(keys), sum(counts)
    )
    assert list(index.keys) == [os.fsencode(key) for key in keys]
    assert [len(index.member_rows(sample)) for sample in range(len(keys))] == counts
    assert not index.has("sample", "label")


def test_flipped_bits_of_head_and_table_are_refused(path):
    raw = path.read_bytes()
    for bit in range(0, columns.table_bytes(raw) * 8, 23):  # test_columns.py flips every bit, in memory
        path.write_bytes(flipped(raw, bit))
        with pytest.raises(DatasetError, match=r"column file|column table|size that it states"):
            opened(path)


def test_each_flipped_bit_of_the_rows_is_seen_or_bounded(path):
    """A row never leads outside of the file: it reads, or IndexDamaged says why not (C11, I3)."""
    raw = path.read_bytes()
    start = columns.read_table(raw, len(raw), "x").data_start
    refused = [
        row_of_damage
        for bit in range(start * 8, len(raw) * 8, 5)
        if path.write_bytes(flipped(raw, bit)) and (row_of_damage := first_refused(opened(path))) is not None
    ]
    assert len(refused) > 20
    assert set(refused) == {0, 1, 2}


def first_refused(index: DatasetIndex) -> int | None:
    """The first sample whose row is refused; the rows of the others lie inside the file."""
    for sample in range(3):
        try:
            rows, key = index.member_rows(sample), index.keys[sample]
        except IndexDamaged:
            return sample
        assert set(rows) <= set(range(4))
        assert len(key) <= 5
    return None


def test_a_file_that_is_not_there_or_no_file(tmp_path):
    with pytest.raises(IndexDamaged, match=r"the index cannot be opened: No such file.*Restore the .fastfeed folder"):
        opened(tmp_path / "none")
    with pytest.raises(IndexDamaged, match="the index cannot be opened: not a regular file"):
        opened(tmp_path)
    (tmp_path / "empty").touch()
    with pytest.raises(IndexDamaged, match="this is not a column file"):
        opened(tmp_path / "empty")


@pytest.mark.parametrize(("samples", "members"), [(2, 4), (4, 4), (3, 3), (0, 0)])
def test_i1_rows_that_the_manifest_does_not_promise(path, samples, members):
    with pytest.raises(IndexDamaged, match="the index has not the rows that the manifest promises"):
        DatasetIndex(str(path), samples, members)


def test_i1_a_third_table(path):
    changed(path, lambda file: file.table["tables"].update(shard=0))
    with pytest.raises(IndexDamaged, match="the index has not the rows that the manifest promises"):
        opened(path)


@pytest.mark.parametrize(("table", "name"), REQUIRED)
def test_i2_a_required_column_that_lacks(path, table, name):
    changed(path, lambda file: file.entry(table, name).update(name="other", required=False))
    with pytest.raises(IndexDamaged, match=f"the index has no column {name} of {table}"):
        opened(path)


@pytest.mark.parametrize(("table", "name"), OPTIONAL)
def test_i2_an_optional_column_may_lack(path, table, name):
    changed(path, lambda file: file.entry(table, name).update(name="other"))
    assert not opened(path).has(table, name)


@pytest.mark.parametrize(("table", "name"), [*REQUIRED, *OPTIONAL])
def test_i2_a_column_of_another_type(path, table, name):
    changed(path, lambda file: file.entry(table, name).update(type="unheard-of"))
    with pytest.raises(IndexDamaged, match=rf"column {name} of {table} has the wrong type .*got unheard-of"):
        opened(path)


def test_i7_rows_of_jpegs_are_a_column_where_any_are_indexed(tmp_path):
    index = opened(save(tmp_path / "plain", data()))
    assert index.jpeg_rows is None
    rows = ByteStrings([b"", to_column(np.array([600, 700, 900])), b"", b"\x01"])
    content = data()
    content.records.update(jpeg_intervals=rows, pixels_xxh3=np.array([0, 7, 0, 8], dtype=np.uint64))
    index = opened(save(tmp_path / "index", content))
    assert index.array("member", "pixels_xxh3").tolist() == [0, 7, 0, 8]
    assert index.jpeg_rows is not None
    assert index.jpeg_rows.count() == 2
    assert index.jpeg_rows.of(0, 902) is None
    starts = index.jpeg_rows.of(1, 902)
    assert starts is not None
    assert starts.tolist() == [600, 700, 900]
    with pytest.raises(IndexDamaged, match="row 3 of column jpeg_intervals says no rows"):
        index.jpeg_rows.of(3, 902)
    file = ColumnFile.parse((tmp_path / "index").read_bytes())
    assert not any(file.entry("member", name)["required"] for name in ("jpeg_intervals", "pixels_xxh3"))
    assert not {"jpeg_intervals", "pixels_xxh3"} & set(column_names(index))


def test_i2_the_column_of_rows_has_its_type(tmp_path):
    wrong = ColumnData(MEMBER, "jpeg_intervals", "uint8", (bytes(4),), required=False)
    with pytest.raises(IndexDamaged, match="column jpeg_intervals of member has the wrong type"):
        opened(save(tmp_path / "index", data(), (wrong,)))


def test_c13_an_unknown_column_is_ignored_if_it_may_be(tmp_path):
    more = ColumnData(MEMBER, "colour", "uint8", (bytes(4),), required=False)
    assert list(opened(save(tmp_path / "index", data(), (more,))).keys) == [b"a", b"b/c", b"d"]
    changed(tmp_path / "index", lambda file: file.entry("member", "colour").update(type="palette"))
    assert list(opened(tmp_path / "index").keys) == [b"a", b"b/c", b"d"]


def test_c13_an_unknown_column_is_refused_if_it_is_required(tmp_path):
    more = ColumnData(MEMBER, "cipher", "uint8", (bytes(4),), required=True)
    with pytest.raises(VersionUnsupported, match="the index needs a reader that knows column cipher of member"):
        opened(save(tmp_path / "index", data(), (more,)))


@pytest.mark.parametrize("starts", [(0, 5, 5, 5), (3, 2, 3, 4), (1 << 63, 0, 0, 0), (0, 1 << 64 - 1, 3, 4)])
def test_i3_c11_a_sample_whose_members_lie_elsewhere(path, starts):
    changed(path, lambda file: file.replace("sample", "members", struct.pack("<4Q", *starts)))
    with pytest.raises(
        IndexDamaged, match=r"a sample's members lie outside the index .*sample 0\): expected at most 4, got \["
    ):
        opened(path).member_rows(0)


@pytest.mark.parametrize("starts", [(0, 9, 9, 9), (2, 1, 4, 5), ((1 << 64) - 1, 0, 0, 0)])
def test_c11_a_string_that_lies_elsewhere(path, starts):
    changed(path, lambda file: file.replace("sample", "key", struct.pack("<4Q", *starts), file.column("sample", "key")[1]))
    with pytest.raises(IndexDamaged, match=r"row 0 of column key lies outside its column .*expected at most 5, got \["):
        opened(path).keys[0]


# ------------------------------------------------------------------------------------------------ user columns
USER = (
    UserColumn("steps", "int64", array("q", [-1, 0, 1 << 62])),
    UserColumn("size", "float64", array("d", [0.5, float("nan"), float("-inf")])),
    UserColumn("clean", "bool", bytes([1, 0, 1])),
    UserColumn("a caption", "text", ["", "näh", "日本\n"]),
)


def test_user_columns_read_back(tmp_path):
    index = opened(save(tmp_path / "index", data(user=USER)))
    assert index.user == {"steps": "int64", "size": "float64", "clean": "bool", "a caption": "text"}
    assert index.user_column("steps").tolist() == [-1, 0, 1 << 62]  # type: ignore[union-attr]
    np.testing.assert_array_equal(index.user_column("size"), [0.5, np.nan, -np.inf])
    clean = index.user_column("clean")
    assert isinstance(clean, np.ndarray) and clean.dtype == np.bool_ and clean.tolist() == [True, False, True]
    captions = index.user_column("a caption")
    assert isinstance(captions, Texts) and list(captions) == ["", "näh", "日本\n"] and captions[-2:] == ["näh", "日本\n"]
    assert captions.raw[1] == "näh".encode()
    file = ColumnFile.parse((tmp_path / "index").read_bytes())
    assert file.table["columns"][-1]["name"] == "x.a caption"
    assert not any(entry["required"] for entry in file.table["columns"][-4:])
    assert index.array("member", "size").tolist() == [0, 1, 2, 3]  # the user's size is another column


def test_numbers_of_user_columns_are_views_that_cannot_be_written(tmp_path):
    index = opened(save(tmp_path / "index", data(user=USER)))
    for name in ("steps", "size", "clean"):
        column = index.user_column(name)
        assert isinstance(column, np.ndarray) and column.base is not None
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 1


def test_an_index_without_user_columns_has_the_bytes_that_it_had(path, tmp_path):
    assert save(tmp_path / "other", data(user=())).read_bytes() == path.read_bytes()
    assert opened(path).user == {}


@pytest.mark.parametrize("kind", ["uint16", "float32", "list"])
def test_u2_a_user_column_of_an_unknown_type_is_ignored(tmp_path, kind):
    save(tmp_path / "index", data(user=USER))
    changed(tmp_path / "index", lambda file: file.entry("sample", "x.clean").update(type=kind) or file.replace(
        "sample", "x.clean", bytes({"uint16": 6, "float32": 12, "list": 5}[kind])))  # fmt: skip
    index = opened(tmp_path / "index")
    assert sorted(index.user) == ["a caption", "size", "steps"]
    with pytest.raises(KeyError):
        index.user_column("clean")


@pytest.mark.parametrize("kind", ["uint8", "list"])
def test_u2_a_user_column_is_never_required(tmp_path, kind):
    save(tmp_path / "index", data(user=USER))
    changed(tmp_path / "index", lambda file: file.entry("sample", "x.clean").update(required=True, type=kind))
    with pytest.raises(VersionUnsupported, match=r"the index needs a reader that knows column x\.clean of sample"):
        opened(tmp_path / "index")


def test_u3_a_truth_value_that_is_none(tmp_path):
    save(tmp_path / "index", data(user=USER))
    changed(tmp_path / "index", lambda file: file.replace("sample", "x.clean", b"\1\2\0"))
    with pytest.raises(IndexDamaged, match=r"row 1 of column 'clean' is no truth value .*sample 1\): expected 0 or 1, got 2"):
        opened(tmp_path / "index").user_column("clean")


def test_u4_a_text_that_is_none(tmp_path):
    save(tmp_path / "index", data(user=USER))
    starts = struct.pack("<4Q", 0, 1, 2, 3)
    changed(tmp_path / "index", lambda file: file.replace("sample", "x.a caption", starts, b"a\xc3\xa4"))
    captions = opened(tmp_path / "index").user_column("a caption")
    assert captions[0] == "a"
    for row in (1, -1):
        with pytest.raises(IndexDamaged, match=rf"row {row % 3} of column 'a caption' is no UTF-8 text"):
            captions[row]


def test_the_names_of_the_format_are_known_ones(tmp_path):
    more = ColumnData(MEMBER, "colour", "uint8", (bytes(4),), required=False)
    index = opened(save(tmp_path / "index", data(user=USER), (more,)))
    assert column_names(index) == [
        "codec", "height", "key", "label", "offset", "orientation", "size", "source", "width", "xxh3",
    ]  # fmt: skip


# ------------------------------------------------------------------------------------------------ whole columns
def test_ranges_of_a_column_of_strings(path):
    starts, raw = opened(path).keys.ranges()
    assert starts.dtype == np.int64
    assert (starts.tolist(), bytes(raw)) == ([0, 1, 4, 5], b"ab/cd")


@pytest.mark.parametrize("starts", [(0, 9, 9, 9), (2, 1, 4, 5), ((1 << 64) - 1, 0, 0, 0), (0, 1, 4, 6)])
def test_c11_ranges_that_leave_their_column(path, starts):
    changed(path, lambda file: file.replace("sample", "key", struct.pack("<4Q", *starts), file.column("sample", "key")[1]))
    with pytest.raises(IndexDamaged, match=r"the ranges of column key fall or leave their column .*expected 0 to 5"):
        opened(path).keys.ranges()


def test_any_column_file_can_be_mapped_and_proven(tmp_path):
    listed = [ColumnData(SAMPLE, "x.steps", *USER[0].stored(3), required=False), ColumnData("other", "a", "uint8", (b"\1",))]
    with (tmp_path / "file").open("wb") as file:
        columns.write(file, {SAMPLE: 3, "other": 1}, listed)
    mapped = MappedColumns(str(tmp_path / "file"))
    assert mapped.user == {"steps": "int64"} and mapped.array("other", "a").tolist() == [1]
    mapped.prove()
    raw = bytearray((tmp_path / "file").read_bytes())
    raw[-64] ^= 1
    (tmp_path / "file").write_bytes(raw)
    with pytest.raises(IndexDamaged, match="column a of other is damaged"):
        MappedColumns(str(tmp_path / "file")).prove()
