from helpers import make_captioned, make_photos
from packing import tree

from fastfeed.config import PackConfig
from fastfeed.packer.rows.folder import Folder, Place
from fastfeed.packer.rows.source import Row, RowFailed
from fastfeed.source.scan import scan


def rows_of(source, split="", **options):
    return Folder.read(str(source), scan(str(source)), PackConfig(**options)).sources()[split]


def test_rows_are_the_folders_samples_byte_for_byte(tmp_path):
    source = make_photos(tmp_path / "s")
    rows = rows_of(source)
    facts = rows.facts()
    assert (facts.count, facts.layout, facts.order, facts.classes) == (6, "classes", "imagefolder", ("cat", "dog"))
    assert facts.keys == [f"{name}/{at:03d}" for name in ("cat", "dog") for at in range(3)]
    for number, row in enumerate(rows.rows(range(6))):
        assert isinstance(row, Row) and row.label == number // 3
        assert row.members[0].data == (source / row.members[0].source).read_bytes()
    assert rows.spec() is None


def test_what_is_left_out_is_told_once_over_all_splits(tmp_path):
    for name in ("train", "val"):
        make_photos(tmp_path / "s" / name)
    tree(tmp_path / "s", {".DS_Store": "x", "train/.hidden": "x", "val/cat/Thumbs.db": "x"})
    folder = Folder.read(str(tmp_path / "s"), scan(str(tmp_path / "s")), PackConfig())
    left_out = {split: [item.source for item in rows.facts().left_out] for split, rows in folder.sources().items()}
    assert left_out == {"train": [".DS_Store", "train/.hidden"], "val": ["val/cat/Thumbs.db"]}


def test_a_file_that_changed_and_one_that_is_gone_are_named(tmp_path):
    source = make_photos(tmp_path / "s")
    rows = rows_of(source)
    (source / "cat" / "000.jpg").write_bytes(b"other")
    (source / "dog" / "002.jpg").unlink()
    found = list(rows.rows([0, 5, 1]))
    assert [(row.number, row.name, row.kind) for row in found if isinstance(row, RowFailed)] == [
        (0, "cat/000.jpg", "changed"),
        (5, "dog/002.jpg", "unreadable"),
    ]
    assert isinstance(found[2], Row)


def test_a_sample_that_needs_an_unreadable_file_is_known_beforehand(tmp_path):
    source = tree(tmp_path / "s", {"1.txt": "a", "2.txt": "b", "2.json": "{}"})
    (source / "1.json").symlink_to("nowhere")
    facts = rows_of(source).facts()
    assert list(facts.failed) == [0] and "leads nowhere" in facts.failed[0].why


def test_places_of_files(tmp_path):
    source = make_captioned(tmp_path / "s", 2)
    folder = Folder.read(str(source), scan(str(source)), PackConfig())
    numbers = {path: number for number, path in enumerate(folder.listing.paths)}
    found = folder.places({numbers["001.txt"], numbers["000.jpg"], 99})
    assert found == {
        numbers["001.txt"]: Place("001.jpg", "txt", ("jpg",)),
        numbers["000.jpg"]: Place("000.jpg", "jpg", ("txt",)),
    }
    assert folder.places(()) == {}
