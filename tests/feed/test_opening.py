"""fastfeed.open: what each name becomes, and what is said of names that become nothing."""

import os
import pickle
from pathlib import Path

import pytest
from helpers import encoded, make_captioned, make_photos, packed, photo
from tarring import gzipped, pairs, tar_of, write_tar

import fastfeed
from fastfeed.errors import FastfeedWarning, NoClasses, NotADataset, SourceAmbiguous, SourceUnreadable, UsageError
from fastfeed.feed.dataset import PackedDataset
from fastfeed.feed.inplace import FileDataset, TarDataset
from fastfeed.feed.opening import FolderRecipe
from fastfeed.sample import SkipEntry, SkipList


def test_what_each_name_becomes(tmp_path: Path):
    source = make_photos(tmp_path / "photos")
    packed(source, tmp_path / "packed")
    write_tar(tmp_path / "tars" / "a.tar", pairs(2))
    (tmp_path / "tars" / "b.tgz").write_bytes(gzipped(tar_of(pairs(3, 2))))
    assert type(fastfeed.open(tmp_path / "packed")) is PackedDataset
    assert type(fastfeed.open(str(source))) is FileDataset
    for name, count in (("*.tar", 2), ("b.tgz", 3), ("{a,c}.tar", None)):
        pattern = os.path.join(tmp_path, "tars", name)
        if count is None:
            with pytest.raises(NotADataset, match=r"c\.tar does not exist"):
                fastfeed.open(pattern)
            continue
        with pytest.warns(FastfeedWarning, match="they have no index yet"):
            tars = fastfeed.open(pattern)
        assert (type(tars), len(tars)) == (TarDataset, count)
    with pytest.warns(FastfeedWarning):
        both = fastfeed.open([tmp_path / "tars" / "a.tar", str(tmp_path / "tars" / "b.tgz")])
    assert (type(both), len(both)) == (TarDataset, 5)
    assert isinstance(both, fastfeed.PackedDataset)


def test_relative_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    make_captioned(tmp_path / "src")
    write_tar(tmp_path / "a.tar", pairs(2))
    monkeypatch.chdir(tmp_path)
    files = fastfeed.open("src")
    with pytest.warns(FastfeedWarning):
        tars = fastfeed.open("a.tar")
    monkeypatch.chdir("/")
    assert (files[1]["txt"], tars[1]["cls"]) == ("picture 1\n", 1)


# ------------------------------------------------------------------------------------------------ names that become nothing
def test_nothing_there(tmp_path: Path):
    with pytest.raises(
        NotADataset, match=r"none does not exist\. Give a folder that fastfeed pack wrote, a folder of files, or tars"
    ):
        fastfeed.open(tmp_path / "none")
    with pytest.raises(NotADataset, match=r"no file matches .*none/\*\.tar"):
        fastfeed.open(str(tmp_path / "none" / "*.tar"))
    for name in ("notes.txt", "*.txt", "a-{0..3}"):
        (tmp_path / "notes.txt").write_text("")
        with pytest.raises(
            NotADataset, match=r"is no folder, no table, and names no tars.*names that end in \.tar, \.tar\.gz, \.tgz or"
        ):
            fastfeed.open(str(tmp_path / name))
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceUnreadable, match="there is no file"):
        fastfeed.open(tmp_path / "empty")


def test_a_folder_of_tars_is_opened_by_their_names(tmp_path: Path):
    write_tar(tmp_path / "t" / "0.tar", pairs(1))
    write_tar(tmp_path / "t" / "1.tar", pairs(1))
    with pytest.raises(NotADataset, match=r"this folder holds tars \(0\.tar \.\.\.\), and no \.fastfeed folder") as caught:
        fastfeed.open(tmp_path / "t")
    assert f"fastfeed.open('{tmp_path}/t/*.tar')" in str(caught.value)
    source = make_photos(tmp_path / "src")
    packed(source, tmp_path / "packed")
    os.rename(tmp_path / "packed" / ".fastfeed", tmp_path / "lost")
    with pytest.raises(NotADataset, match=r"Copy \.fastfeed from where they came from .*Or read them as tars") as caught:
        fastfeed.open(tmp_path / "packed")
    assert f"fastfeed.open('{tmp_path}/packed/*.tar')" in str(caught.value)
    with pytest.warns(FastfeedWarning):
        again = fastfeed.open(tmp_path / "packed" / "*.tar")
    assert (len(again), again.fields, again.targets.tolist()) == (6, ("cls", "jpg"), [0, 0, 0, 1, 1, 1])


def test_folders_of_pack_that_are_not_whole_are_no_folders_of_files(tmp_path: Path):
    packed(make_photos(tmp_path / "src"), tmp_path / "packed")
    with pytest.raises(NotADataset, match="Below it are"):
        fastfeed.open(tmp_path)
    (tmp_path / "packed" / ".fastfeed" / "manifest.json").unlink()
    with pytest.raises(NotADataset, match="has lost its manifest"):
        fastfeed.open(tmp_path / "packed")


def test_shards_of_a_packed_dataset_are_not_opened_as_tars(tmp_path: Path):
    packed(make_photos(tmp_path / "src"), tmp_path / "packed")
    with pytest.raises(UsageError, match="these tars are the shards of a packed dataset"):
        fastfeed.open(str(tmp_path / "packed" / "*.tar"))


# ------------------------------------------------------------------------------------------------ folders of files
@pytest.fixture
def splits(tmp_path: Path) -> Path:
    make_photos(tmp_path / "src" / "train", ("cat", "dog"))
    make_photos(tmp_path / "src" / "val", ("cat",))
    return tmp_path / "src"


def test_splits_are_opened_one_by_one(splits: Path):
    with pytest.raises(NotADataset, match="this folder holds the splits train, val, not one dataset") as caught:
        fastfeed.open(splits)
    assert f"fastfeed.open('{splits}/train')" in str(caught.value)
    train = fastfeed.open(splits / "train")
    assert (train.classes, len(train)) == (["cat", "dog"], 6)
    assert fastfeed.open(splits, layout="files").fields == ("jpg",)


def test_two_readings_are_named_as_arguments(tmp_path: Path):
    make_photos(tmp_path / "src", ("images", "labels"))
    with pytest.raises(SourceAmbiguous, match="look like parallel trees") as caught:
        fastfeed.open(tmp_path / "src")
    assert 'layout="files"' in str(caught.value) and 'layout="classes"' in str(caught.value) and "--" not in str(caught.value)
    assert fastfeed.open(tmp_path / "src", layout="classes").classes == ["images", "labels"]
    assert fastfeed.open(tmp_path / "src", layout="files").columns == ["key", "size", "source"]


def test_how_a_folder_is_read(tmp_path: Path):
    source = make_captioned(tmp_path / "src", 2)
    (source / ".h.txt").write_text("hidden")
    assert [len(fastfeed.open(source, **options)) for options in ({}, {"group": "none"}, {"hidden": True})] == [2, 4, 3]
    for options in ({"layout": "odd"}, {"group": "odd"}):
        with pytest.raises(UsageError, match="is one of auto,"):
            fastfeed.open(source, **options)  # type: ignore[arg-type]


def test_a_recipe_gives_the_same_files_each_time(tmp_path: Path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.jpg").write_bytes(encoded(photo()))
    recipe = FolderRecipe(str(tmp_path))
    assert recipe.files().digest == recipe.files().digest
    assert recipe.files().classes == ("a",)


# ------------------------------------------------------------------------------------------------ tables that name files
@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Four photos in two parallel trees, a caption that is a column, a class."""
    (tmp_path / "images").mkdir()
    (tmp_path / "texts").mkdir()
    rows = ["id,kind,score,caption"]
    for number in range(4):
        (tmp_path / "images" / f"{number}.jpg").write_bytes(encoded(photo(number)))
        (tmp_path / "texts" / f"{number}.txt").write_text(f"text {number}")
        rows.append(f"{number},{'dog' if number % 2 else 'cat'},{number / 2},a photo {number}")
    (tmp_path / "list.csv").write_text("\n".join(rows) + "\n")
    return tmp_path / "list.csv"


def test_a_table_is_opened_as_it_is_packed(table: Path, tmp_path: Path):
    options = {"field": {"image": "images/{id}.jpg", "text": "texts/{id}.txt"}, "label": "kind"}
    packed(table, tmp_path / "packed", **options)
    ours, theirs = fastfeed.open(table, **options), fastfeed.open(tmp_path / "packed")  # type: ignore[arg-type]
    assert type(ours) is FileDataset
    assert (ours.classes, ours.targets.tolist(), ours.fields) == (theirs.classes, theirs.targets.tolist(), theirs.fields)
    for position in range(4):
        assert ours.identity(position) == theirs.identity(position)
        mine, other = ours[position], theirs[position]
        assert {**mine, "jpg": mine["jpg"].tobytes()} == {**other, "jpg": other["jpg"].tobytes()}
    for name in ("id", "score", "caption"):
        assert list(ours.column(name)) == list(theirs.column(name))
    assert len(ours.where("score > 0.5")) == 2


def test_a_table_elsewhere(table: Path, tmp_path: Path):
    (tmp_path / "lists").mkdir()
    rows = ["path", *(str(tmp_path / "images" / f"{number}.jpg") for number in range(2)), "images/2.jpg"]
    (tmp_path / "lists" / "l.tsv").write_text("\n".join(rows) + "\n")
    ours = fastfeed.open(tmp_path / "lists" / "l.tsv", root=tmp_path)
    assert [ours.identity(position).source for position in range(3)] == [b"images/0.jpg", b"images/1.jpg", b"images/2.jpg"]
    assert len(list(ours)) == 3
    assert len(pickle.loads(pickle.dumps(ours))) == 3
    assert (
        len(fastfeed.open(tmp_path / "lists" / "l.tsv", root=tmp_path, skip=SkipList([SkipEntry(source="images/1.jpg")]))) == 2
    )
    (tmp_path / "images" / "1.jpg").write_bytes(b"")
    with pytest.raises(fastfeed.SourceError, match=r"a file has changed since it was listed .*source 'images/1\.jpg'"):
        list(ours)


def test_tables_that_name_nothing(table: Path, tmp_path: Path):
    with pytest.raises(SourceUnreadable, match="no column of the list names files below") as caught:
        fastfeed.open(table)
    assert "field= image=" in str(caught.value) and "--" not in str(caught.value)
    (tmp_path / "images" / "2.jpg").unlink()
    with pytest.raises(SourceUnreadable, match=r"1 file cannot be read \(images/2\.jpg: No such file"):
        fastfeed.open(table, field={"image": "images/{id}.jpg"})
    rest = fastfeed.open(table, field={"image": "images/{id}.jpg"}, skip=SkipList([SkipEntry(source="images/2.jpg")]))
    assert len(rest) == 3


@pytest.mark.parametrize(
    ("given", "got"), [(None, "None"), (3, "3"), (iter([1]), "list_iterator with 1"), (["a.tar", None], "list with None")]
)
def test_what_is_no_path(given, got: str):
    with pytest.raises(UsageError, match=rf"open takes a path, or a list of paths of tars: expected .*, got {got}$"):
        fastfeed.open(given)


def test_no_classes_is_no_attribute(tmp_path: Path):
    """As code written for torchvision asks."""
    packed(make_captioned(tmp_path / "src"), tmp_path / "packed")
    for place in ("src", "packed"):
        dataset = fastfeed.open(tmp_path / place)
        for name in ("classes", "class_to_idx", "targets"):
            assert not hasattr(dataset, name) and getattr(dataset, name, None) is None
            with pytest.raises(NoClasses, match="classes: "):
                getattr(dataset, name)
