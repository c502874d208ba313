"""Which samples of any dataset a skip list names."""

import os
from pathlib import Path
from typing import Any

import pytest
from helpers import make_photos, packed
from loading import Numbers
from torch.utils.data import ConcatDataset, Dataset, Subset
from torchvision.datasets import ImageFolder

import fastfeed
from fastfeed.errors import FastfeedWarning, UsageError
from fastfeed.feed.leftout import left_out
from fastfeed.sample import SampleId, SkipEntry, SkipList


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six photos of two classes: cat/000.jpg to dog/002.jpg."""
    return make_photos(tmp_path_factory.mktemp("photos") / "src")


@pytest.fixture(scope="module")
def shards(photos: Path) -> Path:
    """The same, packed."""
    packed(photos, photos.parent / "packed")
    return photos.parent / "packed"


def names(*sources: str) -> SkipList:
    return SkipList([SkipEntry(source=source) for source in sources])


def places(skip: Any, dataset: Any) -> list[int]:
    found: list[int] = left_out(skip, dataset).tolist()
    return found


class Named(Dataset[Any]):
    """A dataset of somebody's that tells identities."""

    digest = "d" * 64

    def __init__(self, size: int = 4) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        return index

    def identity(self, index: int) -> SampleId:
        return SampleId(index, f"key{index}", None if index == 2 else f"{index}.bin".encode())


def test_of_an_image_folder_by_the_path_below_its_root(photos: Path, monkeypatch: pytest.MonkeyPatch):
    assert places(names("dog/002.jpg", "cat/001.jpg"), ImageFolder(str(photos))) == [1, 5]
    monkeypatch.chdir(photos.parent)
    for root in ("src/", "./src", Path("src")):
        assert places(names("cat/002.jpg"), ImageFolder(root)) == [2]
    elsewhere: Any = ImageFolder("src")
    elsewhere.samples = [(str(photos / "cat" / "000.jpg"), 0), *elsewhere.samples[1:]]  # an absolute path, a relative root
    assert places(names("cat/000.jpg"), elsewhere) == [0]


def test_bytes_that_are_no_utf8(tmp_path: Path):
    make_photos(tmp_path / "t", ["a"], 2)
    os.rename(tmp_path / "t" / "a" / "000.jpg", os.path.join(os.fsencode(tmp_path), b"t", b"a", b"\xff.jpg"))
    folder = ImageFolder(str(tmp_path / "t"))
    (position,) = places(names(os.fsdecode(b"a/\xff.jpg")), folder)
    assert folder.samples[position][0].endswith("\udcff.jpg")


def test_of_packed_datasets_and_views(shards: Path):
    whole = fastfeed.open(shards)
    entries = [SkipEntry(source="cat/001.jpg"), SkipEntry(key="dog/000"), SkipEntry(index=5, dataset_digest=whole.digest)]
    assert places(SkipList(entries), whole) == [1, 3, 5]
    assert places(SkipList(entries), whole.select([5, 4, 3])) == [0, 2]
    rest = fastfeed.open(shards, skip=names("cat/000.jpg"))
    assert places(SkipList(entries), rest) == [0, 2, 4]
    with pytest.warns(FastfeedWarning, match=r"1 entry of the skip list matches no sample \(index 2\)"):
        assert places(SkipList([SkipEntry(key="cat/000"), SkipEntry(index=2, dataset_digest="0" * 64)]), whole) == [0]


def test_of_datasets_that_tell_identities():
    entries = [SkipEntry(source="1.bin"), SkipEntry(key="key2"), SkipEntry(index=3, dataset_digest="d" * 64)]
    assert places(SkipList(entries), Named()) == [1, 2, 3]
    assert places(SkipList(entries), Named(0) + Named()) == [1, 2, 3]
    with pytest.raises(UsageError, match="matches no sample"):
        left_out(SkipList([SkipEntry(index=3, dataset_digest="e" * 64)]), Named())


def test_of_parts_and_of_datasets_one_after_another(photos: Path, shards: Path):
    folder, archive = ImageFolder(str(photos)), fastfeed.open(shards)
    part = Subset(Subset(folder, [5, 4, 3, 1]), [3, 0])
    assert places(names("cat/001.jpg"), part) == [0]
    assert places(names("cat/001.jpg", "dog/002.jpg"), ConcatDataset([part, archive, Named()])) == [0, 1, 3, 7]


def test_what_is_named_in_another_part_is_no_mistake(photos: Path, recwarn: pytest.WarningsRecorder):
    assert places(names("dog/002.jpg"), Subset(ImageFolder(str(photos)), [0, 1, 2])) == []
    assert not recwarn.list


def test_what_names_nothing_is_told(photos: Path, tmp_path: Path):
    folder = ImageFolder(str(photos))
    with pytest.warns(FastfeedWarning, match=r"^1 entry of the skip list matches no sample \(cat/9\.jpg\)$"):
        assert places(names("cat/001.jpg", "cat/9.jpg"), folder) == [1]
    with pytest.raises(UsageError, match=r"the skip list \(1 entry\) matches no sample of this dataset") as caught:
        left_out(names("001.jpg"), Subset(folder, [3]))
    assert "such as cat/000.jpg, got 001.jpg" in str(caught.value)
    assert caught.value.path is None
    with pytest.raises(UsageError, match="matches no sample") as caught:
        left_out(names("001.jpg"), folder)
    assert caught.value.path == str(photos)
    with pytest.raises(UsageError, match="the skip list cannot be read"):
        left_out(tmp_path / "none.jsonl", folder)


def test_a_file_with_the_list_and_an_empty_one(photos: Path, tmp_path: Path):
    SkipList.write(str(tmp_path / "skip.jsonl"), names("cat/002.jpg").entries)
    assert places(tmp_path / "skip.jsonl", ImageFolder(str(photos))) == [2]
    assert places(SkipList(), ImageFolder(str(photos))) == []


def test_how_many_is_logged(photos: Path, caplog: pytest.LogCaptureFixture):
    with caplog.at_level("INFO", logger="fastfeed.loader"):
        left_out(names("cat/002.jpg"), ImageFolder(str(photos)))
    assert caplog.messages == ["1 sample left out by the skip list"]


class Silent(Named):
    def identity(self, index: int) -> Any:
        return index


def test_samples_without_names():
    with pytest.raises(UsageError, match="skip= needs the names of samples, and those of Numbers have none"):
        left_out(names("a"), Subset(Numbers(), [1]))
    with pytest.raises(UsageError, match=r"identity\(0\) of Silent gives none"):
        left_out(names("a"), Silent())
