import datetime as dt
import decimal
import json
import os

import datasets
import numpy as np
import pyarrow as pa
import pytest
from helpers import packed
from packing import Hook, manifest_of
from pyarrow import feather, ipc, parquet
from rowsets import fields_of, labels_of, photos, proven

from fastfeed.archive.dataset import Archive
from fastfeed.config import row_config
from fastfeed.errors import NothingGained, SourceChanged, SourceUnreadable, UsageError
from fastfeed.packer.rows.parquet import ParquetRows
from fastfeed.sample import SkipEntry, SkipList

PAIR = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def images(count=8, **columns):
    rows = [{"bytes": image, "path": f"{'cat' if at % 2 else 'dog'}/{at}.jpg"} for at, image in enumerate(photos(count))]
    return pa.table({"image": pa.array(rows, PAIR), **columns})


def facts_of(path, **options):
    rows = ParquetRows([str(path)], row_config(options))
    return rows, rows.facts()


@pytest.mark.parametrize("kind", ["x.parquet", "x.arrow", "x.feather", "stream.arrow"])
def test_media_in_any_kind_of_file(tmp_path, kind):
    table = images(caption=[f"c{at}" for at in range(8)], score=[at / 2 for at in range(8)])
    path = tmp_path / kind
    if kind == "x.parquet":
        parquet.write_table(table, path, row_group_size=3)
    elif kind == "x.feather":
        feather.write_feather(table, str(path), chunksize=3)
    else:
        with (
            pa.OSFile(str(path), "wb") as sink,
            (ipc.new_stream if "stream" in kind else ipc.new_file)(sink, table.schema) as out,
        ):
            out.write_table(table, max_chunksize=3)
    packed(path, tmp_path / "out", shards=3, workers=2)
    assert fields_of(tmp_path / "out") == [
        {"jpg": image, "json": json.dumps({"score": at / 2}).encode(), "txt": f"c{at}".encode()}
        for at, image in enumerate(photos(8))
    ]
    assert [s.key for s in proven(tmp_path / "out")] == [f"{'cat' if at % 2 else 'dog'}/{at}" for at in range(8)]
    assert [s.sources["jpg"] for s in proven(tmp_path / "out")] == [f"{'cat' if at % 2 else 'dog'}/{at}.jpg" for at in range(8)]
    assert manifest_of(tmp_path / "out")["layout"] == "table"


def test_plain_bytes(tmp_path):
    parquet.write_table(pa.table({"img": photos(3), "label": [2, 0, 2]}), tmp_path / "x.parquet")
    packed(tmp_path / "x.parquet", tmp_path / "out", label="label")
    assert [fields["jpg"] for fields in fields_of(tmp_path / "out")] == photos(3)
    assert labels_of(tmp_path / "out") == ["2", "0", "2"]
    assert [s.key for s in proven(tmp_path / "out")] == ["000000000", "000000001", "000000002"]


def test_columns_of_every_type(tmp_path):
    table = pa.table({
        "b": [b"x", b"y"], "i8": pa.array([1, -1], pa.int8()), "u64": pa.array([2**64 - 1, 0], pa.uint64()),
        "f16": pa.array(np.array([0.5, 1.5], np.float16)), "f32": pa.array([0.1, None], pa.float32()), "ok": [True, False],
        "when": pa.array([0, 1], pa.timestamp("ns", "UTC")), "day": [dt.date(2024, 1, 1), None],
        "clock": pa.array([dt.time(1, 2), None]), "span": pa.array([dt.timedelta(seconds=5), None]),
        "money": [decimal.Decimal("1.10"), None], "list": [[1, None], []],
        "map": pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int8())),
        "word": pa.array(["a", "b"], pa.dictionary(pa.int8(), pa.string())), "large": pa.array(["c", None], pa.large_string()),
        "fixed": pa.array([b"1234", None], pa.binary(4)), "struct": [{"a": 1, "b": "x"}, None], "null": pa.nulls(2),
    })  # fmt: skip
    parquet.write_table(table, tmp_path / "x.parquet")
    packed(tmp_path / "x.parquet", tmp_path / "out")
    first, second = fields_of(tmp_path / "out")
    assert (first["bin"], first["fixed.bin"], second["bin"]) == (b"x", b"1234", b"y") and "fixed.bin" not in second
    row = json.loads(first["json"])
    assert row == {
        "i8": 1, "u64": 2**64 - 1, "f16": 0.5, "f32": float(np.float32(0.1)), "ok": True, "when": "1970-01-01T00:00:00+00:00",
        "day": "2024-01-01", "clock": "01:02:00", "span": "0:00:05", "money": "1.10", "list": [1, None], "map": [["a", 1]],
        "word": "a", "large": "c", "struct": {"a": 1, "b": "x"},
    }  # fmt: skip
    assert set(json.loads(second["json"])) == {"i8", "u64", "f16", "ok", "when", "list", "map", "word"}
    user = Archive(str(tmp_path / "out")).index.user
    assert user == {"i8": "int64", "u64": "text", "f16": "float64", "f32": "float64", "ok": "bool", "when": "text",
                    "day": "text", "clock": "text", "span": "text", "money": "text", "word": "text",
                    "large": "text"}  # fmt: skip


def test_several_files_are_one_table(tmp_path):
    (tmp_path / "s").mkdir()
    for at in range(3):
        table = pa.table({"img": [b"%d-%d" % (at, row) for row in range(4)]})
        parquet.write_table(table, tmp_path / "s" / f"train-{at}.parquet", row_group_size=3)
    packed(str(tmp_path / "s" / "train-*.parquet"), tmp_path / "out", shards=5, workers=2)
    expected = [b"%d-%d" % (at, row) for at in range(3) for row in range(4)]
    assert [fields["bin"] for fields in fields_of(tmp_path / "out")] == expected
    packed(tmp_path / "s", tmp_path / "folder")  # the folder of them
    assert [fields["bin"] for fields in fields_of(tmp_path / "folder")] == expected


def test_a_folder_of_tables_holds_no_destination(tmp_path):
    (tmp_path / "s").mkdir()
    parquet.write_table(pa.table({"img": [b"x"]}), tmp_path / "s" / "1.parquet")
    for destination in ("s/out", "s", "."):
        with pytest.raises(UsageError, match="source and destination lie within each other"):
            packed(tmp_path / "s", tmp_path / destination)
    assert [path.name for path in tmp_path.rglob("*")] == ["s", "1.parquet"]


def test_files_with_other_columns_are_refused(tmp_path):
    parquet.write_table(pa.table({"img": [b"x"]}), tmp_path / "1.parquet")
    parquet.write_table(pa.table({"img": [b"x"], "n": [1]}), tmp_path / "2.parquet")
    with pytest.raises(
        SourceUnreadable, match=r"different columns or types \(.*2.parquet\): expected img: binary, got img: binary, n: int64"
    ):
        packed(str(tmp_path / "*.parquet"), tmp_path / "out")


# ------------------------------------------------------------------------------------------------------------ classes


def test_hugging_faces_metadata_name_the_classes(tmp_path):
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])})
    rows = [{"image": {"bytes": image, "path": None}, "label": at % 2} for at, image in enumerate(photos(4))]
    datasets.Dataset.from_list(rows, features=features).to_parquet(str(tmp_path / "x.parquet"))
    result = packed(tmp_path / "x.parquet", tmp_path / "out")
    assert labels_of(tmp_path / "out") == ["cat", "dog", "cat", "dog"]
    assert "the class is column 'label': the file's Hugging Face metadata says so" in result.datasets[0].why
    rows[2]["label"] = -1
    datasets.Dataset.from_list(rows, features=features).to_parquet(str(tmp_path / "y.parquet"))
    result = packed(tmp_path / "y.parquet", tmp_path / "none")
    assert manifest_of(tmp_path / "none")["classes"] is None
    assert "column 'label' is not taken as the class: 1 row has none (-1)" in result.datasets[0].why
    table = parquet.read_table(tmp_path / "x.parquet").replace_schema_metadata({"huggingface": "no json"})
    parquet.write_table(table, tmp_path / "z.parquet")
    packed(tmp_path / "z.parquet", tmp_path / "plain")
    assert manifest_of(tmp_path / "plain")["classes"] is None


def test_texts_as_classes(tmp_path):
    names = pa.array(["b", "a", "b"], pa.dictionary(pa.int8(), pa.string()))
    parquet.write_table(pa.table({"img": photos(3), "label": names}), tmp_path / "x.parquet")
    packed(tmp_path / "x.parquet", tmp_path / "out", label="label")
    assert (manifest_of(tmp_path / "out")["classes"], labels_of(tmp_path / "out")) == (["a", "b"], ["b", "a", "b"])
    packed(tmp_path / "x.parquet", tmp_path / "order", label="label", classes=["b", "a", "c"])
    assert [s.label for s in proven(tmp_path / "order")] == [0, 1, 0]


@pytest.mark.parametrize(
    ("labels", "match"),
    [
        (["a", None, "a"], "1 of 3 samples that were looked at have no class"),
        ([0.5, 1.0, 2.0], "x.parquet row 0 cannot be packed: the class '0.5' is no whole number"),
        ([[1], [2], [3]], "x.parquet row 0 cannot be packed: the class '\\[1\\]' is no whole number"),
        ([3, -2, 1], "x.parquet row 1 cannot be packed: the class -2 is none"),
    ],
    ids=map(str, range(4)),
)
def test_what_is_no_class(tmp_path, labels, match):
    parquet.write_table(pa.table({"img": photos(3), "label": labels}), tmp_path / "x.parquet")
    with pytest.raises(UsageError, match=match):
        packed(tmp_path / "x.parquet", tmp_path / "out", label="label")
    assert not (tmp_path / "out").exists()


# --------------------------------------------------------------------------------------------------- keys and options


def test_keys_of_a_column(tmp_path):
    parquet.write_table(pa.table({"img": photos(3), "id": [7, 8, 7], "name": ["a b", "A/1", "a/1"]}), tmp_path / "x.parquet")
    packed(tmp_path / "x.parquet", tmp_path / "names", key="name")
    keys = [s.key for s in proven(tmp_path / "names")]
    assert len(set(keys)) == 3 and keys[0].startswith("a_b-")
    packed(tmp_path / "x.parquet", tmp_path / "ids", key="id")
    assert [s.key for s in proven(tmp_path / "ids")][1] == "8"
    with pytest.raises(UsageError, match=r"there is no column 'nam' .*: expected one of img, id, name, got 'nam'"):
        packed(tmp_path / "x.parquet", tmp_path / "none", key="nam")
    with pytest.raises(UsageError, match="there is no column 'lable'"):
        packed(tmp_path / "x.parquet", tmp_path / "none", label="lable")
    with pytest.raises(UsageError, match="column names 'nam', and no sample"):
        packed(tmp_path / "x.parquet", tmp_path / "none", column="nam")
    with pytest.raises(SourceUnreadable, match=r"x.parquet row 0 has no text or number 'img' to be its key"):
        packed(tmp_path / "x.parquet", tmp_path / "none", key="img")


def test_rows_without_paths_are_called_by_file_and_row(tmp_path):
    parquet.write_table(pa.table({"img": [b"%d" % at for at in range(6)]}), tmp_path / "x.parquet")
    skip = SkipList([SkipEntry(source="x.parquet row 1"), SkipEntry(key="000000003"), SkipEntry(source="000000004.bin")])
    packed(tmp_path / "x.parquet", tmp_path / "out", exclude=skip)
    assert [fields["bin"] for fields in fields_of(tmp_path / "out")] == [b"0", b"2", b"5"]


def test_columns_that_the_first_rows_have_not(tmp_path):
    """Fields do not depend on where the first value is."""
    late: list[object] = [None] * 500 + [photos(1)[0]]
    table = pa.table({"img": [b"x"] * 501, "late": late, "note": pa.array([None] * 500 + ["words"])})
    parquet.write_table(table, tmp_path / "x.parquet", row_group_size=50)
    rows, facts = facts_of(tmp_path / "x.parquet")
    assert facts.fields == ("bin", "jpg", "txt")
    assert rows.table.names.fields == {"img": "bin", "late": "jpg", "note": "txt"}
    packed(tmp_path / "x.parquet", tmp_path / "out")
    assert fields_of(tmp_path / "out")[500] == {"bin": b"x", "jpg": photos(1)[0], "txt": b"words"}


def test_a_table_of_numbers_gains_nothing(tmp_path):
    parquet.write_table(pa.table({"text": ["a", "b"], "n": [1, 2]}), tmp_path / "x.parquet")
    with pytest.raises(NothingGained, match=r"these rows hold no bytes.*is read fast as it is.*--anyway"):
        packed(tmp_path / "x.parquet", tmp_path / "out")
    packed(tmp_path / "x.parquet", tmp_path / "out", anyway=True)
    assert fields_of(tmp_path / "out") == [{"txt": b"a", "json": b'{"n": 1}'}, {"txt": b"b", "json": b'{"n": 2}'}]


def test_an_empty_table(tmp_path):
    parquet.write_table(pa.table({"img": pa.array([], pa.binary())}), tmp_path / "x.parquet")
    with pytest.raises(SourceUnreadable, match="the file has no row"):
        packed(tmp_path / "x.parquet", tmp_path / "out")


# ----------------------------------------------------------------------------------------------- damage and changes


def test_rows_of_a_damaged_group_are_named_or_left_out(tmp_path):
    path = tmp_path / "x.parquet"
    parquet.write_table(
        pa.table({"img": [bytes(50)] * 400, "n": list(range(400))}), path, row_group_size=20, use_dictionary=False
    )
    rows, _ = facts_of(path)
    probed = {number // 20 for number in rows.table.spread(8, 8)}
    group = next(at for at in range(20) if at not in probed)
    column = parquet.ParquetFile(path).metadata.row_group(group).column(1)
    with open(path, "r+b") as file:
        file.seek(column.data_page_offset)
        file.write(b"\xff" * 20)
    first = group * 20
    with pytest.raises(
        SourceUnreadable, match=rf"20 samples cannot be packed \(x.parquet row {first}: row group {group} is damaged"
    ):
        packed(path, tmp_path / "out", shards=2)
    result = packed(path, tmp_path / "out", shards=2, on_error="skip")
    assert result.skipped == 20 and result.datasets[0].samples == 380
    assert [json.loads(f["json"])["n"] for f in fields_of(tmp_path / "out")] == [n for n in range(400) if n // 20 != group]


def test_a_file_that_changes_between_runs_or_within_one(tmp_path):
    path = tmp_path / "x.parquet"
    parquet.write_table(pa.table({"img": photos(3)}), path)
    hook = Hook(on_start={"pack": lambda: os.utime(path, ns=(5, 5))})
    with pytest.raises(
        SourceChanged, match=r"the source changed while it was packed \(x.parquet row 0: the file was written to"
    ):
        packed(path, tmp_path / "out", progress=hook)
    with pytest.raises(SourceChanged, match=r"since this pack began \(the times of their last change\).*--overwrite"):
        packed(path, tmp_path / "out")
    packed(path, tmp_path / "out", overwrite=True)
    assert packed(path, tmp_path / "out").already_packed
    parquet.write_table(pa.table({"img": photos(2)}), path)
    with pytest.raises(SourceChanged, match="the source has changed since it was packed"):
        packed(path, tmp_path / "out")


# ------------------------------------------------------------------------------------------------------------ shuffled


def test_shuffled_rows_are_gathered(tmp_path):
    table = images(40, n=list(range(40)))
    parquet.write_table(table, tmp_path / "x.parquet", row_group_size=7)
    result = packed(tmp_path / "x.parquet", tmp_path / "out", shuffle=3, shards=4, workers=2)
    found = fields_of(tmp_path / "out")
    order = [json.loads(fields["json"])["n"] for fields in found]
    assert order != sorted(order) and sorted(order) == list(range(40))
    assert [fields["jpg"] for fields in found] == [photos(40)[at] for at in order]
    assert any(
        note.startswith("shuffled: each shard is gathered from the whole table, which is read 4 times (")
        for note in result.notes
    )
    packed(tmp_path / "x.parquet", tmp_path / "plain")
    assert not packed(tmp_path / "x.parquet", tmp_path / "plain").notes


# ------------------------------------------------------------------------------------------------------------ the plan


def test_the_plan_names_the_field_of_the_rest_of_the_row_and_a_label_that_is_not_taken(tmp_path):
    parquet.write_table(images(40, label=[at % 3 for at in range(40)]), tmp_path / "x.parquet")
    planned = packed(tmp_path / "x.parquet", tmp_path / "out", dry_run=True).datasets[0]
    done = packed(tmp_path / "x.parquet", tmp_path / "out").datasets[0]
    assert planned.fields == done.fields == ("jpg", "json")
    why = " / ".join(planned.why)
    assert "the other columns of each row are its field json" in why and "--label label" in why
    labelled = packed(tmp_path / "x.parquet", tmp_path / "labelled", label="label", row_json=False).datasets[0]
    assert "is not taken as the class" not in " ".join(labelled.why) and "json" not in labelled.fields


def test_a_limited_plan_counts_the_bytes_of_what_it_takes(tmp_path):
    parquet.write_table(images(40), tmp_path / "x.parquet")
    whole = packed(tmp_path / "x.parquet", tmp_path / "out", dry_run=True).datasets[0]
    part = packed(tmp_path / "x.parquet", tmp_path / "out", dry_run=True, limit=10).datasets[0]
    assert abs(part.source_bytes - whole.source_bytes / 4) < 2


def test_two_columns_of_one_name_are_refused(tmp_path):
    pair = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], names=["n", "n"])
    for table, name in (
        (pa.Table.from_arrays([pa.array([b"x"]), pa.array([1]), pa.array([2])], names=["jpg", "y", "y"]), "y"),
        (pa.table({"jpg": [b"x"], "s": pair}), "s.n"),
    ):
        parquet.write_table(table, tmp_path / "x.parquet")
        with pytest.raises(SourceUnreadable, match=f"the file has 2 columns that are called '{name}'.*Rename all but one"):
            packed(tmp_path / "x.parquet", tmp_path / "out")


@pytest.mark.parametrize("kind", ["x.parquet", "x.arrow"])
def test_nanoseconds_of_a_time_of_day_are_kept(tmp_path, kind):
    times = pa.array([3_723_000_000_001, 0, None], pa.time64("ns"))
    table = pa.table({"jpg": photos(3), "caption": ["a", "b", "c"], "t": times})
    if kind == "x.parquet":
        parquet.write_table(table, tmp_path / kind)
    else:
        with pa.OSFile(str(tmp_path / kind), "wb") as sink, ipc.new_file(sink, table.schema) as out:
            out.write_table(table)
    packed(tmp_path / kind, tmp_path / "out")
    column = Archive(str(tmp_path / "out")).index.user_column("t")
    assert [column[at] for at in range(3)] == ["01:02:03.000000001", "00:00:00.000000000", ""]
    parquet.write_table(
        pa.table({"jpg": photos(3), "t": pa.array([[1], [2], None], pa.list_(pa.time64("ns")))}), tmp_path / "n.parquet"
    )
    with pytest.raises(SourceUnreadable, match="column 't' holds times of day in nanoseconds inside of"):
        packed(tmp_path / "n.parquet", tmp_path / "nested")
