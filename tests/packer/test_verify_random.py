"""verify at random: files swapped, lost and doubled; and what ends a tar for other readers without a word."""

import shutil
import tarfile
from pathlib import Path

import pytest
from helpers import files_below, pack_photos
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from packing import pack_splits, swap

import fastfeed
from fastfeed.errors import NotADataset


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pack_splits(tmp_path_factory.mktemp("pristine"))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True)
@given(data=st.data())
def test_any_swapped_missing_or_extra_file_is_found(pristine: Path, data: st.DataObject):
    contents = files_below(pristine)
    one, other = (pristine / data.draw(st.sampled_from(sorted(contents)), label="file") for _ in range(2))
    damage = data.draw(st.sampled_from(["swapped", "missing", "extra"]), label="damage")
    aside = pristine.with_name("aside")
    if damage == "swapped":
        assume(one.read_bytes() != other.read_bytes())
        swap(one, other)
    elif damage == "missing":
        one.rename(aside)
    else:
        aside = one.with_name("more-" + one.name)
        shutil.copy(one, aside)
    try:
        assert not fastfeed.verify(pristine, workers=1).ok, f"{damage}: {one}, {other}"
    except NotADataset:
        assert damage == "missing" and one == pristine / ".fastfeed" / "pack.json"
    finally:
        if damage == "swapped":
            swap(one, other)
        elif damage == "missing":
            aside.rename(one)
        else:
            aside.unlink()
    assert files_below(pristine) == contents


@pytest.mark.parametrize("damage", ["cut", "zeros"])
def test_pain_20_what_ends_a_tar_for_others_without_a_word_is_told(tmp_path: Path, damage: str):
    """A cut where a sample begins, and a header without its checksum: tarfile and webdataset give three of six samples."""
    dataset = pack_photos(tmp_path, shards=1)
    shard = dataset / "photos-000000.tar"
    header = next(iter(fastfeed.open(dataset)._archive.places(3))).start - 512
    raw = bytearray(shard.read_bytes())
    shard.write_bytes(raw[:header] if damage == "cut" else raw[: header + 148] + bytes(8) + raw[header + 156 :])
    with tarfile.open(shard) as tar:
        assert len(tar.getnames()) == 6  # an image and its class each
    findings = fastfeed.verify(dataset, workers=1).findings
    assert [(finding.sample, finding.start) for finding in findings if finding.sample is not None] == [(3, header)]
    if damage == "cut":
        with pytest.raises(fastfeed.DatasetError, match=r"a shard has the wrong size .*photos-000000\.tar"):
            fastfeed.open(dataset)
    else:
        assert len(list(fastfeed.open(dataset))) == 6  # found by the index: no header is needed
