"""``fastfeed verify``: whole is 0, damaged is 5, and each finding is told."""

import os
from pathlib import Path

import pytest
from commands import done, record, refused
from helpers import flip_bit, pack_photos

import fastfeed
from fastfeed.packer.verify import Finding, VerifyResult


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    folder: Path = pack_photos(tmp_path, shards=2)
    return folder


def test_a_whole_dataset(dataset: Path):
    text = " ".join(done("verify", dataset).split())
    assert text.startswith(f"{dataset} is whole: 6 samples, 12 members, 2 shards, ")
    assert text.endswith("Every byte is as packed.")
    assert done("verify", dataset, "--quiet") == ""


@pytest.mark.parametrize("workers", [1, 3])
def test_a_damaged_one(dataset: Path, workers: int):
    place = next(iter(place for place in fastfeed.open(dataset)._archive.places(3) if place.field == "jpg"))
    flip_bit(dataset / "photos-000001.tar", place.start)
    text = " ".join(done("verify", dataset, "--workers", workers, code=5).split())
    assert f"{dataset} is damaged: 1 finding (6 samples" in text
    assert (
        "- the bytes of a member differ from their checksum (shard photos-000001.tar, sample 3, key 'dog/000', "
        f"source 'dog/000.jpg', member 'dog/000.jpg', bytes [{place.start}, {place.stop}))"
    ) in text
    assert "Restore it from a copy, or pack again." in text


def test_quiet_tells_damage_all_the_same(dataset: Path):
    (dataset / "photos-000001.tar").unlink()
    assert "photos-000001.tar" in done("verify", dataset, "--quiet", code=5)


def test_the_record(dataset: Path):
    found = record("verify", dataset, kind=VerifyResult)
    assert (found["ok"], found["findings"], found["samples"], found["shards"]) == (True, [], 6, 2)
    os.truncate(dataset / "photos-000000.tar", 1000)
    found = record("verify", dataset, kind=VerifyResult, code=5)
    assert found["ok"] is False
    assert {"photos-000000.tar"} == {finding["shard"] for finding in found["findings"]}
    assert all(set(finding) == set(Finding.__slots__) for finding in found["findings"])


def test_damage_that_leaves_nothing_to_open(dataset: Path):
    (dataset / ".fastfeed" / "manifest.json").write_bytes(b"{")
    assert "ManifestDamaged" in done("verify", dataset, "--json", code=5)
    assert "is damaged: 1 finding" in done("verify", dataset, code=5)
    (dataset / ".fastfeed" / "manifest.json").unlink()
    assert "has lost its manifest" in refused("verify", dataset, code=9)
