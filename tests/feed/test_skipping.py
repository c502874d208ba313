"""Skip lists at opening: samples go, positions close up, and entries that name nothing are told."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import make_captioned, make_photos, packed
from tarring import write_tar

import fastfeed
from fastfeed.errors import FastfeedWarning, UsageError
from fastfeed.sample import SkipEntry, SkipList

KINDS = ["packed", "tars", "plain"]


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Six photos of two classes, packed, in a tar (under the same keys), or as they lie."""
    source = make_photos(tmp_path / "src")
    if request.param == "plain":
        return str(source)
    if request.param == "packed":
        packed(source, tmp_path / "packed", shards=2)
        return str(tmp_path / "packed")
    listed = []
    for number, path in enumerate(sorted(source.rglob("*.jpg"))):
        listed += [
            (str(path.relative_to(source)), path.read_bytes()),
            (f"{path.relative_to(source)}"[:-3] + "cls", str(number // 3).encode()),
        ]
    with pytest.warns(FastfeedWarning, match="no index yet"):
        fastfeed.open(write_tar(tmp_path / "t" / "a.tar", listed))
    return str(tmp_path / "t" / "a.tar")


def source_of(place: str, name: str) -> str:
    return f"a.tar/{name}" if place.endswith(".tar") else name


def skipping(place: str, *entries: SkipEntry, **options: Any) -> fastfeed.PackedDataset:
    return fastfeed.open(place, skip=SkipList(list(entries)), **options)


def test_samples_go_and_positions_close_up(place: str):
    whole = fastfeed.open(place)
    rest = skipping(place, SkipEntry(source=source_of(place, "cat/001.jpg")), SkipEntry(key="dog/002"))
    assert len(rest) == 4
    kept = [0, 2, 3, 4]
    for position, other in enumerate(kept):
        assert rest[position][0].tobytes() == whole[other][0].tobytes()
        assert rest[position][1] == whole[other][1]
        assert rest.identity(position).key == whole.identity(other).key
    batch = rest.__getitems__([3, -4])
    assert [image.tobytes() for image, _ in batch] == [whole[other][0].tobytes() for other in (4, 0)]
    assert rest.targets.tolist() == [0, 0, 1, 1]
    assert list(rest.samples) == [whole.samples[other] for other in kept]
    assert [bytes(key) for key in rest.column("key")] == [whole.identity(other).key.encode() for other in kept]
    assert rest.column("size", "jpg").tolist() == whole.column("size", "jpg")[kept].tolist()
    with pytest.raises(IndexError, match="position 4 is outside of a dataset of 4 samples"):
        rest[4]
    assert [target for _, target in rest] == [0, 0, 1, 1]
    assert "2 samples left out by the skip list" in rest.notes
    assert "4 of 6 samples" in repr(rest)


def test_a_file_with_the_list(place: str, tmp_path: Path):
    SkipList.write(str(tmp_path / "skip.jsonl"), [SkipEntry(key="cat/000")])
    assert len(fastfeed.open(place, skip=tmp_path / "skip.jsonl")) == 5
    with pytest.raises(UsageError, match="the skip list cannot be read"):
        fastfeed.open(place, skip=tmp_path / "none.jsonl")
    assert len(skipping(place)) == 6


def test_by_position_only_with_the_digest(place: str):
    digest = fastfeed.open(place).digest
    rest = skipping(place, SkipEntry(index=1, dataset_digest=digest))
    assert rest.identity(1).key == "cat/002"
    with pytest.raises(UsageError, match="matches no sample of this dataset"):
        skipping(place, SkipEntry(index=1, dataset_digest="0" * 64))
    with pytest.raises(UsageError, match="matches no sample of this dataset"):
        skipping(place, SkipEntry(index=6, dataset_digest=digest))


def test_entries_that_name_nothing(place: str):
    known = SkipEntry(source=source_of(place, "cat/001.jpg"))
    with pytest.warns(FastfeedWarning, match=r"^2 entries of the skip list match no sample \(cat/9\.jpg\)$"):
        rest = skipping(place, known, SkipEntry(source="cat/9.jpg"), SkipEntry(key="x"))
    assert len(rest) == 5
    assert "2 entries of the skip list match no sample (cat/9.jpg)" in rest.notes
    with pytest.raises(UsageError, match=r"the skip list \(1 entry\) matches no sample of this dataset") as caught:
        skipping(place, SkipEntry(source="/data/cat/001.jpg"))
    assert f"such as {source_of(place, 'cat/000.jpg')}" in str(caught.value)


def test_it_travels_with_the_dataset(place: str):
    rest = skipping(place, SkipEntry(key="cat/001"), SkipEntry(key="dog/000"))
    again = pickle.loads(pickle.dumps(rest))
    assert (len(again), again.digest) == (4, rest.digest)
    assert [again.identity(position).key for position in range(4)] == ["cat/000", "cat/002", "dog/001", "dog/002"]


def test_everything_may_be_skipped(place: str):
    rest = skipping(place, *(SkipEntry(key=f"{name}/{number:03d}") for name in ("cat", "dog") for number in range(3)))
    assert (len(rest), list(rest), rest.targets.tolist()) == (0, [], [])


def test_a_sample_of_many_files_is_named_by_any_of_them(tmp_path: Path):
    source = make_captioned(tmp_path / "src")
    packed(source, tmp_path / "packed")
    for place in (source, tmp_path / "packed"):
        rest = skipping(str(place), SkipEntry(source="002.txt"), SkipEntry(source="000.jpg"))
        assert [rest.identity(position).key for position in range(2)] == ["001", "003"]
        assert rest.column("size", "txt").dtype == np.uint64


def test_an_unreadable_file_can_be_skipped(tmp_path: Path):
    source = make_captioned(tmp_path / "src")
    (source / "001.txt").unlink()
    (source / "001.txt").symlink_to("nowhere")
    with pytest.raises(fastfeed.SourceError, match=r"1 file cannot be read \(001\.txt"):
        fastfeed.open(source)
    assert len(skipping(str(source), SkipEntry(source="001.jpg"))) == 3
