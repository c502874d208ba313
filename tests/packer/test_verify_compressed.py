"""verify of compressed shards: no damage passes, whatever byte of a .tar.zst it hits, and what it hit is named."""

import hashlib
import os
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import flip_bit, make_captioned, make_photos, packed, rewrite_index, rewrite_manifest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from packing import Hook, tree

import fastfeed
from fastfeed.archive import seektable
from fastfeed.archive.dataset import Archive
from fastfeed.archive.frame import FrameWriter
from fastfeed.archive.seektable import SeekTable
from fastfeed.packer.verify import Finding

SMALL: dict[str, Any] = {"compress": "zstd", "frame_bytes": 4096}


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two splits, two shards each; frames of one sample and of several, and a sample of several frames."""
    folder = tmp_path_factory.mktemp("pristine")
    for split, each in (("train", 5), ("val", 2)):
        make_photos(folder / "src" / split, each=each)
    (folder / "src" / "train" / "dog" / "000.txt").write_bytes(random.Random(1).randbytes(15_000))
    packed(folder / "src", folder / "packed", shards=2, **SMALL)
    return folder / "packed"


@pytest.fixture
def dataset(pristine: Path, tmp_path: Path) -> Path:
    """A copy to be damaged."""
    return Path(shutil.copytree(pristine, tmp_path / "copy"))


def found(path: Path) -> list[Finding]:
    return fastfeed.verify(path, workers=1).findings


def table_of(shard: Path) -> SeekTable:
    raw, archive = shard.read_bytes(), Archive(str(shard.parent))
    facts = next(archive.manifest.framed(entry) for entry in archive.manifest.shards if entry.file == shard.name)
    assert facts is not None
    return seektable.read(lambda start, stop: raw[start:stop], facts)


def test_an_undamaged_dataset_has_no_finding(pristine: Path):
    hook = Hook()
    result = fastfeed.verify(pristine, workers=1, progress=hook)
    assert result.ok
    assert (result.datasets, result.shards, result.samples) == (2, 4, 14)
    owned = sum(path.stat().st_size for path in pristine.rglob("*") if path.is_file() and path.suffix != ".json")
    assert result.size_bytes == owned
    tars = sum(entry.stream_bytes for split in ("train", "val") for entry in Archive(str(pristine / split)).manifest.shards)
    assert hook.stages == [("verify", 14, tars)]
    assert tars - 4 * 10240 <= hook.size_bytes["verify"] <= tars


def _shards(root: Path) -> list[Path]:
    return sorted(root.rglob("*.tar.zst"))


@pytest.mark.long
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True)
@given(data=st.data())
def test_any_flipped_bit_is_found_and_its_shard_named(pristine: Path, data: st.DataObject):
    path = data.draw(st.sampled_from(_shards(pristine)), label="file")
    bit = data.draw(st.integers(0, path.stat().st_size * 8 - 1), label="bit")
    frames = table_of(path)
    flip_bit(path, bit // 8, bit % 8)
    try:
        findings = found(path.parent)
        assert findings and {finding.shard for finding in findings} == {path.name}
        hit = next((frame for frame in frames if frame.start <= bit // 8 < frame.stop), None)
        if hit is None:
            assert "seek table" in findings[0].text
        elif "sha256" not in findings[0].text:  # a bit that no decoder reads
            assert len(findings) == 1 and f"{hit} of a compressed shard" in findings[0].text
            archive = Archive(str(path.parent))
            if findings[0].sample is not None:
                places = list(archive.places(findings[0].sample))
                assert places[0].start - 512 < hit.tar_stop and places[-1].stop > hit.tar_start - 512
    finally:
        flip_bit(path, bit // 8, bit % 8)


@pytest.mark.parametrize("split", ["train", "val"])
def test_every_byte_of_the_seek_table_is_proven(pristine: Path, split: str):
    path = _shards(pristine / split)[0]
    start, size, dice = table_of(path).starts[-1], path.stat().st_size, random.Random(split)
    for byte in range(start, size):
        bit = dice.randrange(8)
        flip_bit(path, byte, bit)
        findings = found(path.parent)
        flip_bit(path, byte, bit)
        assert findings and findings[0].shard == path.name, f"bit {bit} of byte {byte}"


@pytest.mark.long
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True)
@given(data=st.data())
def test_any_cut_grown_or_stirred_file_is_found(pristine: Path, data: st.DataObject):
    path = data.draw(st.sampled_from(_shards(pristine)), label="file")
    raw = path.read_bytes()
    cut = data.draw(st.integers(0, len(raw) - 1), label="cut at")
    more = data.draw(st.binary(min_size=1, max_size=20) | st.sampled_from([bytes(512), raw, raw[:100]]), label="appended")
    start = data.draw(st.integers(0, len(raw) - 1), label="junk at")
    junk = data.draw(st.binary(min_size=1, max_size=40), label="junk")
    stirred = (raw[:start] + junk + raw[start + len(junk) :])[: len(raw)]
    try:
        for changed in (raw[:cut], raw + more, more + raw, stirred):
            if changed != raw:
                path.write_bytes(changed)
                assert found(path.parent), f"{path.name}: {len(raw)} -> {len(changed)} bytes"
    finally:
        path.write_bytes(raw)


# ------------------------------------------------------------------------------------------------ where it is
def test_a_damaged_frame_is_one_finding_that_names_its_first_sample_and_its_bytes(tmp_path: Path):
    packed(make_captioned(tmp_path / "src", 12), tmp_path / "packed", compress="zstd", frame_bytes=8192)
    shard = tmp_path / "packed" / "src-000000.tar.zst"
    frame = table_of(shard)[1]
    flip_bit(shard, (frame.start + frame.stop) // 2)
    (finding,) = found(tmp_path / "packed")
    archive = Archive(str(tmp_path / "packed"))
    lost = [at for at in range(12) for place in archive.places(at) if frame.tar_start < place.start < frame.tar_stop]
    first, last = lost[0], lost[-1]
    place = next(iter(archive.places(first)))
    assert first < last
    assert (finding.kind, finding.shard, finding.sample, finding.key) == ("ShardDamaged", shard.name, first, f"{first:03d}")
    assert (finding.member, finding.source) == (f"{first:03d}.jpg", f"{first:03d}.jpg")
    assert (finding.start, finding.stop) == (place.start, place.stop)
    for words in (
        f"{frame} of a compressed shard cannot be decoded",
        f"what it holds of samples {first} to {last} is lost",
        "Restore|copy",
    ):
        assert any(word in finding.text for word in words.split("|"))


def test_a_lost_frame_that_holds_only_the_end_of_the_tar(tmp_path: Path):
    packed(tree(tmp_path / "src", {"1.txt": "x" * 3000}), tmp_path / "packed", **SMALL)
    shard = tmp_path / "packed" / "src-000000.tar.zst"
    frame = list(table_of(shard))[-1]
    flip_bit(shard, frame.stop - 1)
    (finding,) = found(tmp_path / "packed")
    assert f"{frame} of a compressed shard has another checksum" in finding.text and finding.sample is None


def test_a_sample_of_many_frames_is_named_by_each(dataset: Path):
    shard = dataset / "train" / "train-000001.tar.zst"
    archive = Archive(str(dataset / "train"))
    position = next(at for at in range(len(archive)) if any(place.field == "txt" for place in archive.places(at)))
    place = next(place for place in archive.places(position) if place.field == "txt")
    table = table_of(shard)
    for number in list(table.frames_of(place.start, place.stop))[1:-1]:
        frame = table[number]
        flip_bit(shard, frame.stop - 1)
        (finding,) = found(dataset)
        flip_bit(shard, frame.stop - 1)
        assert (finding.sample, finding.member) == (position, f"{finding.key}.txt")
        assert f"what it holds of sample {position} is lost" in finding.text


def test_without_the_seek_table_the_frames_are_still_checked(dataset: Path):
    shard = dataset / "train" / "train-000000.tar.zst"
    table = table_of(shard)
    flip_bit(shard, table.starts[-1])
    flip_bit(shard, table[2].start + 30)
    one, other = found(dataset)
    assert "frame 2 (bytes" in one.text or "frame 2 (bytes" in other.text
    assert any("the seek table of a compressed shard" in finding.text for finding in (one, other))


def test_a_cut_names_the_table_the_size_and_the_first_sample_that_is_gone(tmp_path: Path):
    packed(make_captioned(tmp_path / "src", 8), tmp_path / "packed", **SMALL)
    shard = tmp_path / "packed" / "src-000000.tar.zst"
    table = table_of(shard)
    frame = table[len(table) // 2]
    os.truncate(shard, frame.stop - 3)
    findings = found(tmp_path / "packed")
    texts = " ".join(finding.text for finding in findings)
    assert "a shard has the wrong size" in texts and "is not at the end: the shard was cut or changed" in texts
    archive = Archive(str(tmp_path / "packed"))
    gone = next(at for at in range(8) if list(archive.places(at))[-1].stop > frame.tar_start)
    assert min(finding.sample for finding in findings if finding.sample is not None) == gone


def test_swapped_shards_and_one_twice(dataset: Path):
    one, other = _shards(dataset / "train")
    raw = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(raw)
    assert {finding.shard for finding in found(dataset)} == {one.name, other.name}
    shutil.copy(one, other)  # which is right again
    assert {finding.shard for finding in found(dataset)} == {one.name}


def swapped(raw: bytes, table: SeekTable, one: int, other: int) -> bytes:
    """Two frames change places, and so do their entries: file, sizes and checksums fit each other."""
    order = list(range(len(table)))
    order[one], order[other] = other, one
    frames = [table[number] for number in order]
    body = b"".join(raw[frame.start : frame.stop] for frame in frames)
    start = table.starts[-1]
    entries = [raw[start + 8 + 12 * number : start + 20 + 12 * number] for number in order]
    return body + raw[start : start + 8] + b"".join(entries) + raw[-9:]


def rewrite(shard: Path, change: Callable[[bytes, SeekTable], bytes], **facts: Any) -> None:
    """Another shard whose size and sha256 fit: a wrong writer."""
    raw = change(shard.read_bytes(), table_of(shard))
    shard.write_bytes(raw)
    own = {"size_bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest(), **facts}
    rewrite_manifest(shard.parent, lambda body: next(e for e in body["shards"] if e["file"] == shard.name).update(own))


def test_a_wrong_writers_frames_in_another_order(tmp_path: Path):
    packed(make_captioned(tmp_path / "src", 8), tmp_path / "packed", **SMALL)
    shard = tmp_path / "packed" / "src-000000.tar.zst"
    rewrite(shard, lambda raw, table: swapped(raw, table, 1, 2))
    findings = found(tmp_path / "packed")
    assert findings and all(finding.sample is not None for finding in findings)
    assert "tar header of a member is damaged" in findings[0].text or "differ from their checksum" in findings[0].text


def test_z7_a_wrong_writers_tar(tmp_path: Path):
    """Frames, table, sha256: all of it fits, and what they hold is no tar of this dataset."""

    def change(raw: bytes, table: SeekTable) -> bytes:
        pieces: list[bytes] = []
        writer = FrameWriter(pieces.append, level=1, frame_bytes=4096)
        writer.write(bytes(table.tar_starts[-1] - 1) + b"\1")
        writer.finish()
        return b"".join(pieces)

    packed(make_captioned(tmp_path / "src", 3), tmp_path / "packed", **SMALL)
    rewrite(tmp_path / "packed" / "src-000000.tar.zst", change)
    texts = [finding.text for finding in found(tmp_path / "packed")]
    assert any("tar header of a member is damaged" in text for text in texts)
    assert any("the end of a shard is not zeros up to a whole record" in text for text in texts)


def test_a_tar_that_goes_on_behind_its_end(tmp_path: Path):
    def change(raw: bytes, table: SeekTable) -> bytes:
        pieces: list[bytes] = []
        writer = FrameWriter(pieces.append, level=1, frame_bytes=4096)
        writer.write(tar + bytes(512))
        writer.finish()
        return b"".join(pieces)

    packed(make_captioned(tmp_path / "src", 3), tmp_path / "plain")
    packed(tmp_path / "src", tmp_path / "packed", **SMALL)
    tar = (tmp_path / "plain" / "src-000000.tar").read_bytes()
    rewrite(tmp_path / "packed" / "src-000000.tar.zst", change, tar_bytes=len(tar) + 512)
    (finding,) = found(tmp_path / "packed")
    assert "the end of a shard is not zeros up to a whole record" in finding.text


def test_a_damaged_index_still_has_its_shards_hashed(dataset: Path):
    flip_bit(dataset / "val" / ".fastfeed" / "index", 300)
    flip_bit(dataset / "val" / "val-000000.tar.zst", 30)
    texts = [finding.text for finding in found(dataset)]
    assert any(".fastfeed/index is damaged" in text for text in texts)
    assert any("a shard's sha256 differs from the manifest's" in text for text in texts)


@pytest.mark.parametrize("offset", [0, 511, 2**63, 512])
def test_an_index_that_leads_astray_is_a_finding(tmp_path: Path, offset: int):
    packed(make_captioned(tmp_path / "src", 6), tmp_path / "packed", **SMALL)

    def wild(file: Any) -> None:
        offsets = file.numbers("member", "offset")
        offsets[2] = offset
        file.replace("member", "offset", struct.pack(f"<{len(offsets)}Q", *offsets))

    rewrite_index(tmp_path / "packed", wild)
    findings = found(tmp_path / "packed")
    assert findings and {finding.kind for finding in findings} <= {"IndexDamaged", "ShardDamaged"}


@pytest.mark.parametrize("name", ["train-000000.tar", "train-000002.tar.zst", "x.tar", "x.tar.zst"])
def test_f1_an_extra_shard(dataset: Path, name: str):
    shutil.copy(dataset / "train" / "train-000000.tar.zst", dataset / "train" / name)
    (finding,) = found(dataset)
    assert finding.shard == name and "does not belong to the dataset" in finding.text
