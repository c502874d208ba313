"""Lists that name files: which columns are paths, what samples are, each with its reason."""

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pytest
import zstandard
from packing import tree
from pyarrow import parquet

from fastfeed.config import row_config
from fastfeed.errors import SourceError, SourceUnreadable, UsageError
from fastfeed.source.listed import Listed, read_list, source_path


def files(folder: Path, count: int = 4) -> Path:
    return tree(folder, {f"{kind}/{at:03d}.{extension}": f"{kind} {at}" for at in range(count)
                         for kind, extension in (("images", "jpg"), ("labels", "txt"), ("masks", "png"))})  # fmt: skip


def listed(folder: Path, text: str, name: str = "list.csv", root: Path | None = None, **options: object) -> Listed:
    (folder / name).write_text(text)
    return read_list(str(folder / name), row_config(options), None if root is None else str(root))


def samples(found: Listed) -> list[dict[str, str]]:
    """Field -> path of each sample."""
    draft, names = found.draft, found.listing.names
    return [{draft.fields[at]: names[draft.files[at]] for at in range(draft.starts[sample], draft.starts[sample + 1])}
            for sample in range(len(draft))]  # fmt: skip


IDS = "id,grade\n000,2\n001,0\n003,4\n"


def test_ids_and_templates(tmp_path):
    files(tmp_path)
    found = listed(tmp_path, IDS, field={"image": "images/{id}.jpg", "mask": "masks/{id}.png"}, label="grade")
    assert samples(found) == [{"jpg": f"images/{at}.jpg", "mask.png": f"masks/{at}.png"} for at in ("000", "001", "003")]
    assert found.draft.classes == ["0", "1", "2", "3", "4"] and list(found.draft.labels) == [2, 0, 4]
    assert found.draft.stems == ["images/000", "images/001", "images/003"]
    assert [(column.name, column.kind) for column in found.columns] == [("id", "text")]
    assert any("its whole numbers as they are" in why for why in found.draft.why)


def test_parallel_trees(tmp_path):
    files(tmp_path)
    fields = {name: f"{kind}/{{id}}.{ext}" for name, kind, ext in (("image", "images", "jpg"), ("label.txt", "labels", "txt"))}
    found = listed(tmp_path, IDS, field={**fields, "seg": "masks/{id}.png"})
    assert samples(found)[0] == {"jpg": "images/000.jpg", "label.txt": "labels/000.txt", "seg.png": "masks/000.png"}


def test_columns_that_are_paths_are_found(tmp_path):
    files(tmp_path)
    text = "image,mask,caption\nimages/000.jpg,masks/000.png,one\nimages/001.jpg,,two\n"
    found = listed(tmp_path, text)
    assert samples(found) == [{"jpg": "images/000.jpg", "mask.png": "masks/000.png"}, {"jpg": "images/001.jpg"}]
    assert found.draft.why[1] == "files are named by column 'image' and 'mask': what it says is there"
    assert [column.name for column in found.columns] == ["caption"] and list(found.columns[0].values) == ["one", "two"]


def test_a_column_by_its_bare_name(tmp_path):
    files(tmp_path)
    found = listed(tmp_path, "file_name,n\nimages/000.jpg,1\n", field={"image": "file_name"})
    assert samples(found) == [{"jpg": "images/000.jpg"}] and [column.name for column in found.columns] == ["n"]


def test_a_table_as_common_voice_has_them(tmp_path):
    tree(tmp_path, {f"clips/common_voice_{at}.mp3": "ID3" for at in range(2)})
    rows = [("client_id", "path", "sentence", "up_votes", "age"), ("abc", "common_voice_0.mp3", 'She said "no".', "2", ""),
            ("d", "common_voice_1.mp3", "Yes", "3", "twenties")]  # fmt: skip
    text = "".join("\t".join(row) + "\n" for row in rows)
    with pytest.raises(
        SourceUnreadable, match=r"no column of the list names files below .*: got columns client_id, .*--root FOLDER"
    ):
        listed(tmp_path, text, "validated.tsv")
    found = listed(tmp_path, text, "validated.tsv", root=tmp_path / "clips")
    assert samples(found) == [{"mp3": "common_voice_0.mp3"}, {"mp3": "common_voice_1.mp3"}]
    assert {column.name: list(column.values) for column in found.columns} == {
        "client_id": ["abc", "d"], "sentence": ['She said "no".', "Yes"], "up_votes": [2, 3], "age": ["", "twenties"],
    }  # fmt: skip
    other = listed(tmp_path, text, "validated.tsv", field={"audio": "clips/{path}"}, column=["sentence"])
    assert samples(other) == [{"mp3": "clips/common_voice_0.mp3"}, {"mp3": "clips/common_voice_1.mp3"}]
    assert [column.name for column in other.columns] == ["sentence"]


@pytest.mark.parametrize("name", ["l.jsonl", "l.jsonl.gz", "l.jsonl.zst", "l.csv.gz", "l.tsv.zst", "l.parquet"])
def test_any_table_is_a_list(tmp_path, name):
    files(tmp_path)
    rows = [{"file_name": f"images/{at:03d}.jpg", "grade": at} for at in range(4)]
    if name.endswith(".parquet"):
        parquet.write_table(pa.Table.from_pylist(rows), tmp_path / name)
    else:
        mark = "," if "csv" in name else "\t"
        lines = [mark.join(rows[0]), *(mark.join(map(str, row.values())) for row in rows)]
        raw = "\n".join(map(json.dumps, rows) if "jsonl" in name else lines).encode()
        (tmp_path / name).write_bytes(
            gzip.compress(raw) if name.endswith(".gz") else zstandard.compress(raw) if name.endswith(".zst") else raw
        )
    found = read_list(str(tmp_path / name), row_config({"label": "grade"}))
    assert [sample["jpg"] for sample in samples(found)] == [row["file_name"] for row in rows]
    assert list(found.draft.labels) == [0, 1, 2, 3]


def test_absolute_paths_and_paths_that_lead_out(tmp_path):
    files(tmp_path / "data")
    text = f"f\n{tmp_path}/data/images/000.jpg\n../data/images/001.jpg\n./../data/images/./002.jpg\n"
    (tmp_path / "lists").mkdir()
    found = listed(tmp_path / "lists", text)
    assert len(found.draft) == 3
    assert [source_path(path, found.root) for path in found.listing.names] == [
        f"data/images/{at:03d}.jpg" for at in range(3)
    ]  # fmt: skip
    assert found.draft.stems == [f"data/images/{at:03d}" for at in range(3)]


def test_rows_whose_files_are_not_there(tmp_path):
    files(tmp_path)
    (tmp_path / "masks" / "001.png").unlink()
    (tmp_path / "masks" / "001.png").mkdir()
    text = "image,mask\nimages/000.jpg,masks/000.png\nimages/001.jpg,masks/001.png\nimages/999.jpg,masks/002.png\n,\n"
    found = listed(tmp_path, text)
    assert [(item.source, item.why) for item in found.listing.unreadable] == [
        ("masks/001.png", "no regular file (line 3 of the list)"),
        ("images/999.jpg", "No such file or directory (line 4 of the list)"),
    ]  # fmt: skip
    assert [(item.source, item.why) for item in found.missing] == [("list.csv line 5", "its cells name no file")]
    assert len(found.draft) == 3 and list(found.rows) == [0, 1, 2]
    with pytest.raises(SourceUnreadable, match=r"no row of the list names a file .*list.csv line 2: its cells name no file"):
        listed(tmp_path, "image,x\n,1\n", field={"image": "image"})


# -------------------------------------------------------------------------------------------------- class and key


def test_names_as_classes(tmp_path):
    files(tmp_path)
    text = "f,y\nimages/000.jpg,dog\nimages/001.jpg,cat\n"
    found = listed(tmp_path, text, label="y")
    assert (found.draft.classes, list(found.draft.labels)) == (["cat", "dog"], [1, 0])
    assert "the class is column 'y': 2 names, numbered in sorted order" in found.draft.why
    found = listed(tmp_path, text, label="y", classes=["dog", "cat", "emu"])
    assert "the class is column 'y': 3 names, numbered as they are listed" in found.draft.why
    assert (found.draft.classes, list(found.draft.labels)) == (["dog", "cat", "emu"], [0, 1])
    assert [column.name for column in found.columns] == []


@pytest.mark.parametrize(
    ("cells", "options", "match"),
    [
        ("dog,", {}, "line 3 of the list has no class"),
        ("dog,cat", {"classes": ["dog"]}, "line 3 of the list has the unknown class 'cat'"),
        ("1,-1", {}, r"line 3 of the list has the class -1, and classes are numbered from 0.*--column"),
        ("1,", {}, "line 3 of the list has no class"),
        ("1,0.5", {}, "line 3 of the list has the class 0.5, which is no whole number"),
        ("1,5", {"classes": ["a", "b"]}, "line 3 of the list has the class 5, and there are 2 classes at most"),
    ],
    ids=map(str, range(6)),
)
def test_what_is_no_class(tmp_path, cells, options, match):
    files(tmp_path)
    first, second = cells.split(",")
    with pytest.raises(UsageError, match=match):
        listed(tmp_path, f"f,y\nimages/000.jpg,{first}\nimages/001.jpg,{second}\n", label="y", **options)


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("l.csv", "f,y\n{}0.jpg,7\n{}1.jpg,n/a\n{}2.jpg,10\n", "in sorted order; they are no numbers, for line 3 is 'n/a'"),
        ("l.csv", "f,y\n{}0.jpg,01\n{}1.jpg,02\n", "in sorted order; they are no numbers, for line 2 is '01'"),
        ("l.csv", "f,y\n{}0.jpg,7\n{}1.jpg,9223372036854775808\n", "they are no numbers, for the column is text: line 3 is"),
        ("l.jsonl", '{{"f":"{}0.jpg","y":7}}\n{{"f":"{}1.jpg","y":"x"}}\n', "they are no numbers, for line 2 is 'x'"),
        ("l.jsonl", '{{"f":"{}0.jpg","y":"7"}}\n', "they are no numbers, for the column is text: line 1 is a string"),
        ("l.csv", "f,y\n{}0.jpg,cat\n{}1.jpg,dog 2\n", "2 names, numbered in sorted order"),
    ],
)  # fmt: skip
def test_classes_that_look_like_numbers_and_are_none_say_why(tmp_path, name, text, why):
    files(tmp_path)
    found = listed(tmp_path, text.format(*["images/00"] * 3), name, label="y")
    told = next(reason for reason in found.draft.why if reason.startswith("the class is column 'y'"))
    assert why in told and told.count("numbers") == (0 if "no numbers" not in why else 1)


def test_integer_labels_stay_those_integers(tmp_path):
    files(tmp_path)
    found = listed(tmp_path, "f,y\nimages/000.jpg,7\nimages/001.jpg,3\n", label="y")
    assert list(found.draft.labels) == [7, 3] and found.draft.classes == [str(at) for at in range(8)]
    found = listed(tmp_path, "f,y\nimages/000.jpg,true\nimages/001.jpg,false\n", label="y")
    assert list(found.draft.labels) == [1, 0]


def test_a_column_of_keys(tmp_path):
    files(tmp_path)
    found = listed(tmp_path, "f,id\nimages/000.jpg,a\nimages/001.jpg,b\n", key="id")
    assert found.draft.stems == ["a", "b"]
    with pytest.raises(SourceUnreadable, match="line 3 of the list has no 'id' to be its key"):
        listed(tmp_path, "f,id\nimages/000.jpg,a\nimages/001.jpg,\n", key="id")


def test_names_that_no_column_can_have(tmp_path):
    files(tmp_path)
    found = listed(tmp_path, 'f,"a\nb",n\nimages/000.jpg,1,2\n')
    assert [column.name for column in found.columns] == ["n"]
    with pytest.raises(UsageError, match="a column's name is 1 to 200 bytes"):
        listed(tmp_path, 'f,"a\nb",n\nimages/000.jpg,1,2\n', column=["a\nb"])


def test_mistakes_in_options(tmp_path):
    files(tmp_path)
    for options, match in (
        (
            {"field": {"image": "images/{idd}.jpg"}},
            r"the template of field image names column 'idd', which is not there .*one of id, grade",
        ),
        ({"field": {"image": "images/x.jpg"}}, "the template of field image names no column"),
        ({"field": {"image": ""}}, "field image has no template"),
        ({"field": {"image": "images/{id}.jpg"}, "label": "grad"}, "has no column 'grad'"),
        ({"field": {"image": "images/{id}.jpg"}, "column": "grad"}, "has no column 'grad'"),
        ({"field": {"image": "images/{id}.jpg"}, "key": "grad"}, "has no column 'grad'"),
    ):
        with pytest.raises(UsageError, match=match):
            listed(tmp_path, IDS, **options)
    with pytest.raises(SourceError, match=r"the list has no row|is empty"):
        listed(tmp_path, "id,grade\n")


def test_fields_are_named_by_what_most_files_are(tmp_path):
    tree(tmp_path, {"a.jpeg": "x", "b.JPG": "y", "c.png": "z", "d": "w"})
    found = listed(tmp_path, "f\na.jpeg\nb.JPG\nc.png\n")
    assert {field for sample in samples(found) for field in sample} == {"jpg"}
    found = listed(tmp_path, "f\nd\n")
    assert samples(found) == [{"bin": "d"}]


def test_two_columns_of_one_kind(tmp_path):
    files(tmp_path)
    found = listed(tmp_path, "left eye,right\nimages/000.jpg,images/001.jpg\n")
    assert samples(found) == [{"jpg": "images/000.jpg", "right.jpg": "images/001.jpg"}]
