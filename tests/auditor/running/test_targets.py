import os

import pyarrow as pa
import pytest
from helpers import make_photos, pack_photos
from pyarrow import parquet

import fastfeed
from fastfeed.auditor.running import targets
from fastfeed.auditor.running.child import open_subject
from fastfeed.auditor.running.subject import HOW
from fastfeed.auditor.running.targets import find_target
from fastfeed.config import row_config
from fastfeed.errors import NotADataset, UsageError
from fastfeed.source.scan import LeftOut, scan


def test_a_folder(tmp_path):
    target = find_target(make_photos(tmp_path / "photos"))
    assert (target.kind, target.what) == ("folder", "a folder of 6 files")
    assert "2 classes, a folder each" in target.why
    assert target.class_folders == {(None, "cat"), (None, "dog")}
    again = find_target(tmp_path / "photos")
    assert target.digest == again.digest
    (tmp_path / "photos" / "cat" / "000.jpg").write_bytes(b"other")
    assert find_target(tmp_path / "photos").digest != target.digest


def test_what_is_no_sample_is_spoken_of_all_the_same(tmp_path):
    folder = make_photos(tmp_path / "photos")
    os.mkfifo(folder / "cat" / "x.jpg")
    (folder / "cat" / "._y.jpg").write_bytes(b"\0\5\x16\7")
    (folder / "cat" / ".notes").write_text("x")
    target = find_target(folder)
    assert {(record.path, record.findings[0].code.name) for record in target.before} == {
        ("cat/x.jpg", "special-file"), ("cat/._y.jpg", "left-out-image"),
    }  # fmt: skip
    assert "not looked at: 1 hidden" in target.why
    assert find_target(folder, hidden=True).what == "a folder of 7 files"


def test_a_link_into_proc_is_spoken_of_and_not_followed(tmp_path):
    folder = make_photos(tmp_path / "photos")
    (folder / "cat" / "self").symlink_to("/proc/self")
    target = find_target(folder)
    assert target.what == "a folder of 6 files"
    assert [(record.path, record.findings[0].code.name) for record in target.before] == [("cat/self", "kernel-folder")]


def test_a_folder_that_cannot_be_listed_is_spoken_of(tmp_path):
    listing = scan(make_photos(tmp_path / "photos"))
    listing.unreadable = [  # as another than root meets them
        LeftOut("dog", "unreadable", "Permission denied"), LeftOut("cat/000.jpg", "unreadable", "Permission denied"),
    ]  # fmt: skip
    (record,) = targets._files(str(tmp_path / "photos"), listing).before
    assert (record.path, record.findings[0].code.name) == ("dog", "unreadable")
    assert record.findings[0].text == "this folder cannot be listed: Permission denied"


def test_classes_that_cannot_be_told(tmp_path):
    make_photos(tmp_path / "photos" / "train")
    make_photos(tmp_path / "photos" / "others")
    assert any(why.startswith("classes are not known: ") for why in find_target(tmp_path / "photos").why)


def test_packed(tmp_path):
    folder = pack_photos(tmp_path)
    target = find_target(folder)
    assert (target.kind, target.what, target.digest) == (
        "packed",
        "a packed dataset of 6 samples",
        fastfeed.open(folder).digest,
    )


def test_packed_splits_are_audited_together(tmp_path):
    for split in ("train", "val"):
        make_photos(tmp_path / "photos" / split)
    fastfeed.pack(tmp_path / "photos", tmp_path / "packed", workers=1)
    target = find_target(tmp_path / "packed")
    assert target.what == "a packed dataset of 12 samples"
    assert [part["split"] for part in target.spec["parts"]] == ["train", "val"]
    assert target.splits == find_target(tmp_path / "photos").splits == ("train", "val")


def test_tars_are_indexed_elsewhere(tmp_path):
    packed = pack_photos(tmp_path)
    (tmp_path / "tars").mkdir()
    os.rename(packed / "photos-000000.tar", tmp_path / "tars" / "a.tar")
    for given in (tmp_path / "tars", tmp_path / "tars" / "*.tar"):
        target = find_target(given)
        assert (target.kind, target.what) == ("tars", "1 tar of 6 samples")
        assert target.tars is not None and target.tars.files == ("a.tar",)
        assert os.listdir(tmp_path / "tars") == ["a.tar"]
        index = target.spec["parts"][0]["index"]
        assert os.path.exists(index)
        del target
        assert not os.path.exists(index)


def test_tars_in_folders_are_files(tmp_path):
    packed = pack_photos(tmp_path)
    os.makedirs(tmp_path / "all" / "deep")
    os.rename(packed / "photos-000000.tar", tmp_path / "all" / "deep" / "a.tar")
    assert any(f"audit '{tmp_path}/all/**/*.tar' to look into them" in why for why in find_target(tmp_path / "all").why)


def test_folders_that_only_imagefolder_takes_are_told(tmp_path):
    folder = make_photos(tmp_path / "photos")
    for name in (".ipynb_checkpoints", "cat/.ipynb_checkpoints", "__MACOSX"):
        (folder / name).mkdir()
        (folder / name / "a.jpg").write_bytes(b"")
    (folder / "cat" / "up").symlink_to("..")
    (folder / "cat" / ".DS_Store").write_bytes(b"x")
    target = find_target(folder)
    assert {record.path: record.findings[0].code.name for record in target.before} == {
        ".ipynb_checkpoints": "class-junk", "__MACOSX": "class-junk", "cat/up": "folder-loop",
    }  # fmt: skip
    assert "not looked at: 2 system" in target.why
    make_photos(tmp_path / "sets" / "train")
    make_photos(tmp_path / "sets" / "val")
    (tmp_path / "sets" / "train" / "__MACOSX").mkdir()
    (tmp_path / "sets" / "__MACOSX").mkdir()
    assert [record.path for record in find_target(tmp_path / "sets").before] == ["train/__MACOSX"]


def test_what_is_called_a_tar_and_is_no_file_is_spoken_of(tmp_path):
    packed = pack_photos(tmp_path)
    (tmp_path / "tars").mkdir()
    os.rename(packed / "photos-000000.tar", tmp_path / "tars" / "a.tar")
    os.mkfifo(tmp_path / "tars" / "b.tar")
    (tmp_path / "tars" / "c.tar").symlink_to("nowhere")
    (tmp_path / "tars" / "d.tar").mkdir()
    found = {record.path: record.findings[0].code.name for record in find_target(tmp_path / "tars").before}
    assert found == {"b.tar": "special-file", "c.tar": "unreadable"}


def test_a_list(tmp_path):
    make_photos(tmp_path / "photos")
    (tmp_path / "list.csv").write_text("image,label\nphotos/cat/000.jpg,1\nphotos/cat/001.jpg,1\nphotos/dog/none.jpg,2\n")
    target = find_target(tmp_path / "list.csv")
    assert target.kind == "list" and target.what.startswith("a list of ")
    (tmp_path / "lists").mkdir()
    os.rename(tmp_path / "list.csv", tmp_path / "lists" / "list.csv")
    assert find_target(tmp_path / "lists" / "list.csv", root=tmp_path).what == target.what


def test_a_list_whose_columns_are_told(tmp_path):
    make_photos(tmp_path / "photos")
    (tmp_path / "list.tsv").write_text("id\tkind\ncat/000\ttabby\ndog/001\tpug\n")
    rows = row_config({"field": {"image": "photos/{id}.jpg"}, "label": "kind", "key": "id"})
    target = find_target(tmp_path / "list.tsv", rows=rows)
    records = [open_subject(target.spec).load(index, HOW) for index in range(2)]
    assert [(record.path, record.label, record.format) for record in records if record is not None] == [
        ("photos/cat/000.jpg", "tabby", "JPEG"), ("photos/dog/001.jpg", "pug", "JPEG"),
    ]  # fmt: skip
    with pytest.raises(UsageError, match="for lists and tables"):
        find_target(tmp_path / "photos", rows=rows)
    with pytest.raises(UsageError, match="for lists and tables"):
        find_target(iter("abc"), rows=rows)


def test_tables_and_json_lines_that_are_the_samples(tmp_path):
    photos = make_photos(tmp_path / "photos")
    pictures = [(photos / "cat" / f"00{number}.jpg").read_bytes() for number in range(3)]
    parquet.write_table(pa.table({"jpg": pictures, "label": ["a", "b", "a"]}), tmp_path / "a.parquet")
    parquet.write_table(pa.table({"number": [1, 2, 3]}), tmp_path / "numbers.parquet")
    (tmp_path / "b.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n')
    tables = find_target(tmp_path / "a*.parquet", rows=row_config({"label": "label"}))
    assert (tables.kind, tables.what) == ("table", "3 rows of a*.parquet")
    assert tables.spec["classes"] == ("a", "b") and tables.digest == find_target(tmp_path / "a.parquet").digest
    assert find_target(tmp_path / "numbers.parquet").what == "3 rows of numbers.parquet"
    lines = find_target(tmp_path / "b.jsonl")
    assert (lines.kind, lines.what) == ("table", "2 rows of b.jsonl")
    parquet.write_table(pa.table({"path": [f"photos/cat/00{number}.jpg" for number in range(3)]}), tmp_path / "c.parquet")
    assert find_target(tmp_path / "c.parquet").kind == "list"


def test_python(tmp_path):
    (tmp_path / "file.py").touch()
    assert find_target(f"{tmp_path}/file.py:make").spec == {"object": f"{tmp_path}/file.py:make"}
    assert find_target("package.module:name").spec == {"object": "package.module:name"}
    with pytest.raises(NotADataset, match=r"flie.py:make does not exist"):
        find_target(f"{tmp_path}/flie.py:make")
    assert find_target(iter("abc")).spec == {"live": True}


def test_what_is_nothing(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "x.bin").write_bytes(b"x")
    with pytest.raises(NotADataset, match="no file in this folder"):
        find_target(tmp_path / "empty")
    with pytest.raises(NotADataset, match="does not exist"):
        find_target(tmp_path / "none")
    with pytest.raises(NotADataset, match="nothing that can be audited"):
        find_target(tmp_path / "x.bin")
    with pytest.raises(UsageError, match="takes a path or a dataset"):
        find_target([1, 2])
