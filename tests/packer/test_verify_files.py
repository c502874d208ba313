"""verify: files that were swapped, that are missing, and that are too many."""

import shutil
from pathlib import Path

import pytest
from helpers import make_photos, packed
from packing import pack_splits, swap

import fastfeed
from fastfeed.errors import NotADataset
from fastfeed.packer.verify import Finding


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pack_splits(tmp_path_factory.mktemp("pristine"))


@pytest.fixture
def dataset(pristine: Path, tmp_path: Path) -> Path:
    """A copy to be damaged."""
    return Path(shutil.copytree(pristine, tmp_path / "copy"))


def found(path: Path) -> list[Finding]:
    return fastfeed.verify(path, workers=1).findings


def test_swapped_shards(dataset: Path):
    swap(dataset / "train" / "train-000000.tar", dataset / "train" / "train-000001.tar")
    assert {finding.shard for finding in found(dataset)} == {"train-000000.tar", "train-000001.tar"}


def test_swapped_splits(dataset: Path):
    swap(dataset / "train", dataset / "val")
    texts = [finding.text for finding in found(dataset)]
    assert [text.split(" is not")[0] for text in texts] == ["split train", "split val"]


def test_a_split_of_another_pack(dataset: Path, tmp_path: Path):
    make_photos(tmp_path / "other", each=2)
    packed(tmp_path / "other", tmp_path / "packed-other", shards=2, name="val")
    shutil.rmtree(dataset / "val")
    shutil.copytree(tmp_path / "packed-other", dataset / "val")
    assert "split val is not the one that was packed together with the others" in found(dataset)[0].text


def test_swapped_members_of_equal_size(tmp_path: Path):
    make_photos(tmp_path / "src", each=1)
    for name, letter in (("cat", b"x"), ("dog", b"y")):
        (tmp_path / "src" / name / "000.jpg").write_bytes(b"\xff\xd8\xff" + letter * 1000)
    packed(tmp_path / "src", tmp_path / "packed")
    places = [
        place for i in range(2) for place in fastfeed.open(tmp_path / "packed")._archive.places(i) if place.field == "jpg"
    ]
    shard = tmp_path / "packed" / places[0].shard
    raw = bytearray(shard.read_bytes())
    (a, b), (c, d) = ((place.start, place.stop) for place in places)
    raw[a:b], raw[c:d] = raw[c:d], raw[a:b]
    shard.write_bytes(raw)
    assert [(f.sample, f.kind) for f in found(tmp_path / "packed")] == [(0, "ShardDamaged"), (1, "ShardDamaged")]


def test_a_missing_shard(dataset: Path):
    (dataset / "train" / "train-000001.tar").unlink()
    (finding,) = found(dataset)
    assert finding.shard == "train-000001.tar"
    assert "No such file" in finding.text


@pytest.mark.parametrize("name", ["train-000002.tar", "other-000000.tar", "x.tar.gz", "x.tar.zst", ".hidden.tar"])
def test_an_extra_shard(dataset: Path, name: str):
    shutil.copy(dataset / "train" / "train-000000.tar", dataset / "train" / name)
    (finding,) = found(dataset)
    assert finding.shard == name
    assert "does not belong to the dataset" in finding.text


@pytest.mark.parametrize("home", [".", "train"])
def test_a_foreign_file_in_the_home(dataset: Path, home: str):
    (dataset / home / ".fastfeed" / "notes.txt").write_bytes(b"")
    (finding,) = found(dataset)
    assert ".fastfeed/notes.txt belongs to no dataset" in finding.text


@pytest.mark.parametrize("name", ["index", "left-out.jsonl"])
def test_a_missing_file_of_the_home(dataset: Path, name: str):
    (dataset / "train" / ".fastfeed" / name).unlink()
    assert f".fastfeed/{name} cannot be read" in " ".join(finding.text for finding in found(dataset))


def test_a_missing_split_and_one_too_many(dataset: Path):
    (dataset / "train").rename(dataset / "tests")
    texts = [finding.text for finding in found(dataset)]
    assert len(texts) == 2
    assert "train does not exist" in " ".join(texts)
    assert "folder tests is packed, but does not belong to this group" in " ".join(texts)


def test_a_split_without_its_home(dataset: Path):
    shutil.rmtree(dataset / "val" / ".fastfeed")
    (finding,) = found(dataset)
    assert finding.kind == "NotADataset"
    assert "no .fastfeed folder with their index" in finding.text


def test_a_group_where_a_dataset_should_be(dataset: Path):
    shutil.rmtree(dataset / "val" / ".fastfeed")
    shutil.copytree(dataset / ".fastfeed", dataset / "val" / ".fastfeed")
    assert "a group lies where a dataset should be" in " ".join(finding.text for finding in found(dataset))


def test_nothing_packed_raises(tmp_path: Path):
    with pytest.raises(NotADataset, match="no packed dataset is in this folder"):
        fastfeed.verify(tmp_path)
    with pytest.raises(NotADataset, match="does not exist"):
        fastfeed.verify(tmp_path / "nowhere")
