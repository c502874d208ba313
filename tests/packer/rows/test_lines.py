import gzip
import json
import os

import pytest
from helpers import packed
from packing import Hook, manifest_of
from rowsets import fields_of, labels_of, proven, read_rows

import fastfeed
from fastfeed.archive.dataset import Archive
from fastfeed.config import row_config
from fastfeed.errors import SourceChanged, SourceUnreadable, UsageError
from fastfeed.packer.rows.lines import LineRows, is_lines
from fastfeed.packer.rows.source import RowFailed
from fastfeed.sample import SkipEntry, SkipList

ROWS = [{"id": f"r{at}", "text": f"hällo {at}", "lab": "ab"[at % 2], "n": at, "nested": {"a": [1, 2]}} for at in range(30)]


def write(folder, rows=ROWS, name="x.jsonl"):
    raw = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    (folder / name).write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    return folder / name


@pytest.mark.parametrize("name", ["x.jsonl", "x.ndjson.gz"])
def test_a_row_is_a_sample_its_line_as_it_is(tmp_path, name):
    path = write(tmp_path, name=name)
    result = packed(path, tmp_path / "out", shards=4, workers=2)
    lines = [json.dumps(row, ensure_ascii=False).encode() for row in ROWS]
    assert fields_of(tmp_path / "out") == [{"json": line} for line in lines]
    assert fastfeed.open(tmp_path / "out")[7] == {"json": ROWS[7]}
    index = Archive(str(tmp_path / "out")).index
    assert index.user == {"id": "text", "text": "text", "lab": "text", "n": "int64"}
    assert list(index.user_column("n")) == list(range(30)) and index.user_column("text")[3] == "hällo 3"
    assert f"30 JSON lines ({path}): each is a sample, carried byte for byte as field json" in result.datasets[0].why
    assert manifest_of(tmp_path / "out")["layout"] == "lines"


def test_classes_keys_and_columns(tmp_path):
    result = packed(write(tmp_path), tmp_path / "out", label="lab", key="id", column=["n"])
    assert labels_of(tmp_path / "out") == ["a", "b"] * 15
    assert [s.key for s in proven(tmp_path / "out")] == [f"r{at}" for at in range(30)]
    assert set(Archive(str(tmp_path / "out")).index.user) == {"n"}
    assert "classes are the 2 values of 'lab', sorted" in result.datasets[0].why
    packed(write(tmp_path), tmp_path / "numbers", label="n")
    assert [s.label for s in proven(tmp_path / "numbers")] == list(range(30))


def test_shuffled_rows(tmp_path):
    packed(write(tmp_path), tmp_path / "out", shuffle=1, shards=3, workers=2)
    order = [json.loads(fields["json"])["n"] for fields in fields_of(tmp_path / "out")]
    assert order != sorted(order) and sorted(order) == list(range(30))
    with pytest.raises(
        UsageError, match=r"x.jsonl.gz is compressed, and can only be read in order: it cannot be shuffled.*Decompress"
    ):
        packed(write(tmp_path, name="x.jsonl.gz"), tmp_path / "none", shuffle=1)
    assert not (tmp_path / "none").exists()


def test_rows_that_are_no_json_are_named_by_their_line(tmp_path):
    path = write(tmp_path, [{"n": at} for at in range(300)])
    lines = path.read_text().splitlines()
    lines[201] = "{no json"
    path.write_text("\n".join(["", *lines]))
    with pytest.raises(SourceUnreadable, match=r"1 sample cannot be packed \(x.jsonl line 203: line 203 is no JSON"):
        packed(path, tmp_path / "out")
    result = packed(path, tmp_path / "out", on_error="skip")
    assert [(item.source, item.kind) for item in result.left_out] == [("x.jsonl line 203", "unreadable")]
    assert [json.loads(f["json"])["n"] for f in fields_of(tmp_path / "out")] == [at for at in range(300) if at != 201]


def test_a_skip_list_names_lines_or_keys(tmp_path):
    path = write(tmp_path)
    skip = SkipList([SkipEntry(source="x.jsonl line 2"), SkipEntry(source="000000004.json"), SkipEntry(key="000000005")])
    packed(path, tmp_path / "out", exclude=skip)
    assert [json.loads(f["json"])["n"] for f in fields_of(tmp_path / "out")] == [at for at in range(30) if at not in {1, 4, 5}]
    packed(path, tmp_path / "keys", key="id", exclude=SkipList([SkipEntry(source="r3")]))
    assert len(proven(tmp_path / "keys")) == 29


def test_a_label_that_is_no_class(tmp_path):
    with pytest.raises(UsageError, match="1 of 3 samples that were looked at have no class"):
        LineRows(str(write(tmp_path, [{"y": 1}, {"y": None}, {"y": 2}])), row_config({"label": "y"})).facts()
    with pytest.raises(UsageError, match=r"the class '0.5' is no whole number"):
        LineRows(str(write(tmp_path, [{"y": 0.5}])), row_config({"label": "y"})).facts()
    rows = LineRows(str(write(tmp_path, [{"y": at if at != 151 else None} for at in range(300)])), row_config({"label": "y"}))
    rows.facts()
    (failed,) = [row for row in rows.rows(range(300)) if isinstance(row, RowFailed)]
    assert (failed.number, failed.kind) == (151, "unreadable") and failed.why.startswith("it has no class")


def test_options_that_are_not_for_lines(tmp_path):
    for options in ({"encode": {"x": "png"}}, {"row_json": False}):
        with pytest.raises(UsageError, match="is not for JSON lines: each is carried as it is"):
            LineRows("x.jsonl", row_config(options))
    assert is_lines("X.JSONL.GZ") and not is_lines("x.json")


def test_a_file_that_changes_between_runs_or_within_one(tmp_path):
    path = write(tmp_path)
    hook = Hook(on_start={"pack": lambda: os.utime(path, ns=(5, 5))})
    with pytest.raises(
        SourceChanged, match=r"the source changed while it was packed \(x.jsonl line 1: the file was written to"
    ):
        packed(path, tmp_path / "out", progress=hook)
    with pytest.raises(SourceChanged, match=r"since this pack began \(the time of its last change\)"):
        packed(path, tmp_path / "out")
    packed(path, tmp_path / "out", overwrite=True)
    write(tmp_path, ROWS[:5])
    with pytest.raises(SourceChanged, match="the source has changed since it was packed"):
        packed(path, tmp_path / "out")


def test_a_worker_reads_what_its_parent_settled(tmp_path):
    rows = LineRows(str(write(tmp_path)), row_config({"label": "lab", "column": ["n"]}))
    rows.facts()
    worker = LineRows.from_spec(json.loads(json.dumps(rows.spec())))
    assert list(worker.rows([3, 29, 0])) == list(rows.rows([3, 29, 0]))
    (row,) = read_rows(worker, [5])
    assert (row.label, row.scalars) == (1, {"n": 5})
