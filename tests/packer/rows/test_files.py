import json
import os

import pytest
from helpers import files_below, packed
from packing import Hook, contents, left_out_of, manifest_of, tree
from rowsets import fields_of, labels_of, photos, proven

import fastfeed
from fastfeed.archive.dataset import Archive
from fastfeed.errors import SourceChanged, SourceUnreadable
from fastfeed.sample import SkipEntry, SkipList


@pytest.fixture
def root(tmp_path):
    """images/ masks/ labels/ of five samples, and lists of them."""
    images = photos(5)
    tree(tmp_path / "s", {f"images/{at}.jpg": images[at] for at in range(5)})
    tree(tmp_path / "s", {f"masks/{at}.png": f"mask {at}" for at in range(5)})
    tree(tmp_path / "s", {f"labels/{at}.txt": f"label {at}" for at in range(5)})
    tree(tmp_path / "s", {"ids.csv": "id,grade,width\n" + "".join(f"{at},{at % 3},{at}.5\n" for at in range(5))})
    rows = [{"file_name": f"images/{at}.jpg", "objects": [{"bbox": [at, 1, 2, 3], "name": "ä"}]} for at in range(5)]
    tree(tmp_path / "s", {"coco.jsonl": "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)})
    return tmp_path / "s"


TREES = {"image": "images/{id}.jpg", "mask": "masks/{id}.png", "text.txt": "labels/{id}.txt"}


def test_csv_ids_and_parallel_trees(root, tmp_path):
    result = packed(root / "ids.csv", tmp_path / "out", field=TREES, label="grade", shards=2, workers=2)
    samples = proven(tmp_path / "out")
    expected = {path: raw for path, raw in files_below(root).items() if "/" in path}
    assert contents(samples) == expected
    assert [s.key for s in samples] == [f"images/{at}" for at in range(5)]
    assert labels_of(tmp_path / "out") == ["0", "1", "2", "0", "1"]
    assert (
        result.datasets[0].fields == ("cls", "jpg", "mask.png", "text.txt")
        and manifest_of(tmp_path / "out")["layout"] == "list"
    )
    index = Archive(str(tmp_path / "out")).index
    assert index.user == {"id": "int64", "width": "float64"} and list(index.user_column("width")) == [
        at + 0.5 for at in range(5)
    ]
    fastfeed.unpack(tmp_path / "out", tmp_path / "back")
    assert files_below(tmp_path / "back") == expected


def test_a_list_as_coco_has_them(root, tmp_path):
    """Rows with nested values go with their sample, byte for byte."""
    result = packed(root / "coco.jsonl", tmp_path / "out")  # no --field: file_name names files
    lines = (root / "coco.jsonl").read_bytes().splitlines()
    assert [fields["json"] for fields in fields_of(tmp_path / "out")] == lines
    assert [fields["jpg"] for fields in fields_of(tmp_path / "out")] == photos(5)
    assert Archive(str(tmp_path / "out")).index.user == {}  # the objects are in the JSON
    assert "each sample gets its row as field json: rows hold lists or objects (line 1)" in result.datasets[0].why
    packed(root / "coco.jsonl", tmp_path / "plain", row_json=False)
    assert all(set(fields) == {"jpg"} for fields in fields_of(tmp_path / "plain"))
    assert set(Archive(str(tmp_path / "plain")).index.user) == {"objects"}
    packed(root / "coco.jsonl", tmp_path / "asked", column="objects")
    assert Archive(str(tmp_path / "asked")).index.user_column("objects")[1] == json.dumps(
        [{"bbox": [1, 1, 2, 3], "name": "ä"}], ensure_ascii=False
    )


def test_rows_as_json_if_asked_for(root, tmp_path):
    tree(root, {"l.csv": "f,ok,n,x\nimages/0.jpg,true,1,\nimages/1.jpg,false,2,0.5\n"})
    packed(root / "l.csv", tmp_path / "out", row_json=True)
    assert [json.loads(fields["json"]) for fields in fields_of(tmp_path / "out")] == [
        {"f": "images/0.jpg", "ok": True, "n": 1, "x": None}, {"f": "images/1.jpg", "ok": False, "n": 2, "x": 0.5},
    ]  # fmt: skip


def test_names_that_no_column_can_have_are_in_the_json(root, tmp_path):
    tree(root, {"l.csv": 'f,"a\nb"\nimages/0.jpg,7\n'})
    packed(root / "l.csv", tmp_path / "out", row_json=True)
    assert json.loads(fields_of(tmp_path / "out")[0]["json"]) == {"f": "images/0.jpg", "a\nb": "7"}
    assert Archive(str(tmp_path / "out")).index.user == {}


def test_missing_files_stop_or_are_left_out(root, tmp_path):
    (root / "masks" / "3.png").unlink()
    with pytest.raises(
        SourceUnreadable, match=r"1 sample cannot be read \(images/3.jpg: its sample needs masks/3.png: No such file"
    ):
        packed(root / "ids.csv", tmp_path / "out", field=TREES)
    assert not (tmp_path / "out").exists()
    result = packed(root / "ids.csv", tmp_path / "out", field=TREES, on_error="skip")
    assert left_out_of(tmp_path / "out") == {"images/3.jpg": "unreadable"} and result.skipped == 1
    assert [s.key for s in proven(tmp_path / "out")] == ["images/0", "images/1", "images/2", "images/4"]
    assert list(Archive(str(tmp_path / "out")).index.user_column("id")) == [0, 1, 2, 4]


@pytest.mark.parametrize(
    ("options", "samples"), [({}, 5), ({"limit": 2}, 2), ({"limit": 2, "shuffle": 3}, 2), ({"limit": 9}, 5)]
)
def test_files_are_counted_of_the_samples_that_are_packed(root, tmp_path, options, samples):
    plan = packed(root / "ids.csv", tmp_path / "out", field=TREES, dry_run=True, **options)
    done = packed(root / "ids.csv", tmp_path / "out", field=TREES, **options)
    again = packed(root / "ids.csv", tmp_path / "out", field=TREES, **options)
    for result in (plan, done, again):
        (dataset,) = result.datasets
        assert (dataset.samples, dataset.source_files, result.limited) == (samples, 3 * samples, 5 - samples)
    assert manifest_of(tmp_path / "out")["source_files"] == 3 * samples and again.already_packed


def test_a_file_that_goes_or_changes_while_packing(root, tmp_path):
    hook = Hook(on_start={"pack": (root / "masks" / "2.png").unlink})
    with pytest.raises(
        SourceUnreadable, match=r"1 sample cannot be packed \(images/2.jpg: its sample needs masks/2.png: No such file"
    ):
        packed(root / "ids.csv", tmp_path / "out", field=TREES, progress=hook)
    tree(root, {"masks/2.png": "mask 2"})
    hook = Hook(on_start={"pack": lambda: os.utime(root / "images" / "2.jpg", ns=(1, 1))})
    with pytest.raises(SourceChanged, match=r"the source changed while it was packed \(images/2.jpg: planned with"):
        packed(root / "ids.csv", tmp_path / "out", field=TREES, progress=hook, overwrite=True)
    with pytest.raises(SourceChanged, match=r"has changed since this pack began \(the files that it names\)"):
        packed(root / "ids.csv", tmp_path / "out", field=TREES)


def test_a_file_that_has_gone_is_left_out_as_the_error_says(root, tmp_path):
    hook = Hook(on_start={"pack": (root / "masks" / "2.png").unlink})
    way_out = r"leave them out with --on-error skip \(where files have gone, with --overwrite too\)\.$"
    with pytest.raises(SourceUnreadable, match=way_out):
        packed(root / "ids.csv", tmp_path / "out", field=TREES, progress=hook, samples_per_shard=1)
    with pytest.raises(SourceChanged, match=r"the source has changed since this pack began .*--overwrite"):
        packed(root / "ids.csv", tmp_path / "out", field=TREES, samples_per_shard=1, on_error="skip")
    result = packed(root / "ids.csv", tmp_path / "out", field=TREES, samples_per_shard=1, on_error="skip", overwrite=True)
    assert (result.skipped, result.datasets[0].samples) == (1, 4)


def test_a_list_that_changes_between_runs(root, tmp_path):
    packed(root / "ids.csv", tmp_path / "out", field=TREES)
    assert packed(root / "ids.csv", tmp_path / "out", field=TREES).already_packed
    tree(root, {"ids.csv": "id,grade,width\n0,0,0.5\n"})
    with pytest.raises(SourceChanged, match="the source has changed since it was packed"):
        packed(root / "ids.csv", tmp_path / "out", field=TREES)


def test_files_elsewhere_and_named_twice(root, tmp_path):
    tree(tmp_path / "lists", {"l.csv": f"f\n../s/images/0.jpg\n{root}/images/1.jpg\n../s/images/0.jpg\n"})
    packed(tmp_path / "lists" / "l.csv", tmp_path / "out")
    samples = proven(tmp_path / "out")
    assert [s.fields["jpg"] for s in samples] == [photos(2)[at] for at in (0, 1, 0)]
    assert samples[1].sources["jpg"] == "s/images/1.jpg"
    assert len({s.sources["jpg"] for s in samples}) == 3  # of the one that is named twice, each gets a path of its own
    fastfeed.unpack(tmp_path / "out", tmp_path / "back")
    assert sorted(files_below(tmp_path / "back").values()) == sorted(photos(2) + photos(1))


def test_a_skip_list_names_the_paths_of_the_index(root, tmp_path):
    tree(root, {"l.csv": "f\n./images/0.jpg\n./images/1.jpg\n./images/2.jpg\n"})
    packed(root / "l.csv", tmp_path / "all")
    first = fastfeed.open(tmp_path / "all").identity(1)
    assert first.source == b"images/1.jpg"
    packed(root / "l.csv", tmp_path / "out", exclude=SkipList([SkipEntry(source=first.source.decode())]))
    assert [s.key for s in proven(tmp_path / "out")] == ["images/0", "images/2"]


def test_files_of_many_sizes(tmp_path):
    chance = os.urandom(9_000_000)
    names = {f"{size}.bin": chance[:size] for size in (0, 1, 511, 512, 513, 4_194_304, 9_000_000)}
    tree(tmp_path / "s", {**names, "l.csv": "f\n" + "\n".join(names)})
    packed(tmp_path / "s" / "l.csv", tmp_path / "out")
    assert contents(proven(tmp_path / "out")) == names


def test_wild_names(tmp_path):
    names = {
        "a b.jpg": "1",
        "ä.jpg": "2",
        "A B.jpg": "3",
        "x" * 200 + ".jpg": "4",
        "c,d.jpg": "5",
        'e"f.jpg': "6",
        "semi;colon.jpg": "7",
    }
    rows = "".join('"' + name.replace('"', '""') + '"\n' for name in names)
    tree(tmp_path / "s", {**names, "l.csv": "f\n" + rows})
    packed(tmp_path / "s" / "l.csv", tmp_path / "out")
    assert {path: raw.decode() for path, raw in contents(proven(tmp_path / "out")).items()} == names
