"""What of a packed dataset nobody sees before every byte is read: fastfeed/archive/README.md against verify."""

import json
import re
import shutil

import pytest
from helpers import findings_of, flip_bit, make_photos, pack_photos, packed, rewrite_index, rewrite_manifest, row_set

from fastfeed.archive.dataset import read_record
from fastfeed.archive.manifest import Manifest


@pytest.fixture
def dataset(tmp_path):
    """Eight photos with a cls member each, in three shards of 3, 3 and 2."""
    return pack_photos(tmp_path / "dataset", each=4, shards=3, name="set")


@pytest.fixture
def group(tmp_path):
    """train/ with four photos, val/ with two."""
    make_photos(tmp_path / "group" / "in" / "train", each=2)
    make_photos(tmp_path / "group" / "in" / "val", each=1)
    packed(tmp_path / "group" / "in", tmp_path / "group" / "out")
    return tmp_path / "group" / "out"


def test_an_undamaged_dataset_and_group_have_no_findings(dataset, group):
    assert findings_of(dataset) == ""
    assert findings_of(group) == ""


@pytest.mark.parametrize("name", ["foreign.tar", "set-000003.tar", "set-000000.tar.zst"])
def test_f1_a_foreign_shard(dataset, name):
    (dataset / name).write_bytes(bytes(10240))
    assert re.search(f"ShardDamaged: a shard is here that does not belong to the dataset.*{name}", findings_of(dataset))


def test_f1_a_foreign_file_in_the_hidden_folder(dataset):
    (dataset / ".fastfeed" / "notes.txt").write_text("")
    assert ".fastfeed/notes.txt belongs to no dataset" in findings_of(dataset)


def test_g2_a_split_of_another_pack(group):
    shutil.rmtree(group / "val")
    shutil.copytree(group / "train", group / "val")
    assert "split val is not the one that was packed together with the others" in findings_of(group)
    shutil.copytree(group / "train", group / "more")
    assert "folder more is packed, but does not belong to this group" in findings_of(group)
    shutil.rmtree(group / "val")
    assert re.search("NotADataset: .*val does not exist", findings_of(group))


def test_m7_c10_each_byte_of_index_and_list_is_digested(dataset):
    index = dataset / ".fastfeed" / "index"
    flip_bit(index, index.stat().st_size - 1)  # a zero between the columns, which no reader looks at
    assert "IndexDamaged: .fastfeed/index is damaged" in findings_of(dataset)
    (dataset / ".fastfeed" / "left-out.jsonl").write_text("{}\n")
    assert "IndexDamaged: .fastfeed/left-out.jsonl is damaged" in findings_of(dataset)


@pytest.mark.parametrize("label", [-1, 2, 1 << 40])
def test_i8_a_label_of_no_class(dataset, label):
    rewrite_index(dataset, row_set("label", 3, label, table="sample"))
    assert "a label names no class" in findings_of(dataset)


def test_l1_left_out_files_are_listed_sorted_and_counted(tmp_path):
    make_photos(tmp_path / "in", each=2)
    for name in ("dog/.hidden", "README", ".git", "cat/Thumbs.db"):
        (tmp_path / "in" / name).write_text("")
    packed(tmp_path / "in", tmp_path / "out")
    raw = (tmp_path / "out" / ".fastfeed" / "left-out.jsonl").read_bytes()
    lines = [json.loads(line) for line in raw.splitlines()]
    assert raw.endswith(b"\n")
    assert [(line["source"], line["kind"]) for line in lines] == [
        (".git", "hidden"), ("README", "beside"), ("cat/Thumbs.db", "system"), ("dog/.hidden", "hidden"),
    ]  # fmt: skip
    assert all(set(line) == {"source", "kind", "why"} for line in lines)
    record = read_record(str(tmp_path / "out"))
    assert isinstance(record, Manifest)
    assert record.left_out_count == 4


def test_l1_a_list_with_another_number_of_lines(dataset):
    rewrite_manifest(dataset, lambda body: body.update(left_out_count=1))
    assert re.search(r"IndexDamaged: .*expected 1, got 0", findings_of(dataset))
