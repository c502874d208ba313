"""verify: an undamaged dataset has no finding, and no damage passes, whatever file and byte it hits."""

import os
import random
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import (
    ROOT,
    ColumnFile,
    files_below,
    flip_bit,
    make_captioned,
    pack_photos,
    packed,
    rewrite_index,
    rewrite_manifest,
    rewrite_shard,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from packing import Hook, pack_splits

import fastfeed
from fastfeed.errors import UsageError
from fastfeed.packer.verify import Finding, VerifyResult

DEADLINE_SECONDS = 20


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pack_splits(tmp_path_factory.mktemp("pristine"))


@pytest.fixture
def dataset(pristine: Path, tmp_path: Path) -> Path:
    """A copy to be damaged."""
    return Path(shutil.copytree(pristine, tmp_path / "copy"))


def found(path: Path) -> list[Finding]:
    return fastfeed.verify(path, workers=1).findings


def test_an_undamaged_dataset_has_no_finding(pristine: Path):
    result = fastfeed.verify(pristine)
    assert result.ok
    assert (result.datasets, result.shards, result.samples, result.members) == (2, 4, 10, 20)
    group_bytes = (pristine / ".fastfeed" / "pack.json").stat().st_size
    manifests = sum((pristine / split / ".fastfeed" / "manifest.json").stat().st_size for split in ("train", "val"))
    assert result.size_bytes == sum(map(len, files_below(pristine).values())) - group_bytes - manifests


def test_one_split_is_verified_by_itself(pristine: Path):
    result = fastfeed.verify(pristine / "val")
    assert (result.ok, result.datasets, result.samples) == (True, 1, 4)


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_threads_change_nothing(dataset: Path, workers: int):
    flip_bit(dataset / "train" / "train-000001.tar", 700)
    result = fastfeed.verify(dataset, workers=workers)
    assert [(f.shard, f.member) for f in result.findings] == [("train-000001.tar", found(dataset)[0].member)]


def test_progress_counts_samples_and_adds_up(pristine: Path):
    hook = Hook()
    result = fastfeed.verify(pristine, workers=1, progress=hook)
    shards = sum(path.stat().st_size for path in pristine.rglob("*.tar"))
    assert hook.stages == [("verify", result.samples, shards)]
    assert hook.items == {"verify": 10}
    assert shards - 4 * 10240 <= hook.size_bytes["verify"] <= shards  # the last record of a shard may go unsaid


def test_workers_count_from_one(pristine: Path):
    with pytest.raises(UsageError, match=r"workers counts from 1: got 0"):
        fastfeed.verify(pristine, workers=0)


# ------------------------------------------------------------------------------------------------ any bit, any file
def _all_bits(root: Path) -> list[tuple[str, int]]:
    return [(name, len(raw) * 8) for name, raw in files_below(root).items() if raw]


@pytest.mark.long
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True)
@given(data=st.data())
def test_any_flipped_bit_is_found(pristine: Path, data: st.DataObject):
    name, bits = data.draw(st.sampled_from(_all_bits(pristine)), label="file")
    bit = data.draw(st.integers(0, bits - 1), label="bit")
    path = pristine / name
    flip_bit(path, bit // 8, bit % 8)
    try:
        assert found(pristine), f"bit {bit} of {name} passes"
    finally:
        flip_bit(path, bit // 8, bit % 8)


@pytest.mark.long
@pytest.mark.parametrize("name", ["manifest.json", "left-out.jsonl", "index"])
def test_the_bytes_of_the_home_are_proven(pristine: Path, name: str):
    path = pristine / "val" / ".fastfeed" / name
    dice = random.Random(name)
    size = path.stat().st_size
    for byte in range(size) if size < 2000 else sorted(dice.sample(range(size), 1000)):
        bit = dice.randrange(8)
        flip_bit(path, byte, bit)
        passes = fastfeed.verify(pristine / "val", workers=1).ok
        flip_bit(path, byte, bit)
        assert not passes, f"bit {bit} of byte {byte} of {name}"


def test_every_byte_of_the_group_is_proven(pristine: Path):
    path = pristine / ".fastfeed" / "pack.json"
    dice = random.Random(0)
    for byte in range(path.stat().st_size):
        bit = dice.randrange(8)
        flip_bit(path, byte, bit)
        passes = fastfeed.verify(pristine, workers=1).ok
        flip_bit(path, byte, bit)
        assert not passes, f"bit {bit} of byte {byte}"


def test_headers_paddings_and_trailer_of_a_shard_are_proven(pristine: Path):
    path = pristine / "val" / "val-000000.tar"
    raw = path.read_bytes()
    payloads = set()
    for position in range(2):
        for place in fastfeed.open(pristine / "val")._archive.places(position):
            payloads |= set(range(place.start, place.stop))
    others = [byte for byte in range(len(raw)) if byte not in payloads]
    dice = random.Random(0)
    for byte in dice.sample(others, 300):
        flip_bit(path, byte, dice.randrange(8))
        passes = fastfeed.verify(pristine / "val", workers=1).ok
        path.write_bytes(raw)
        assert not passes, f"byte {byte}"


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True)
@given(data=st.data())
def test_any_cut_or_grown_file_is_found(pristine: Path, data: st.DataObject):
    name, bits = data.draw(st.sampled_from(_all_bits(pristine)), label="file")
    path = pristine / name
    raw = path.read_bytes()
    cut = data.draw(st.integers(0, bits // 8 - 1), label="cut at")
    more = data.draw(st.binary(min_size=1, max_size=20) | st.sampled_from([bytes(512), bytes(10240)]), label="appended")
    for changed in (raw[:cut], raw + more):
        path.write_bytes(changed)
        try:
            assert found(pristine), f"{name}: {len(raw)} -> {len(changed)} bytes"
        finally:
            path.write_bytes(raw)


# ------------------------------------------------------------------------------------------------ where it is
def test_a_flipped_payload_bit_is_named_with_all_that_is_known(dataset: Path):
    train = fastfeed.open(dataset / "train")
    place = next(iter(place for place in train._archive.places(4) if place.field == "jpg"))
    flip_bit(dataset / "train" / place.shard, place.start + 100)
    (finding,) = found(dataset)
    assert finding.kind == "ShardDamaged"
    assert (finding.shard, finding.sample, finding.key) == (place.shard, 4, train.identity(4).key)
    assert finding.source == "train/dog/001.jpg"
    assert f"source {finding.source!r}" in finding.text
    assert (finding.member, finding.start, finding.stop) == (f"{finding.key}.jpg", place.start, place.stop)
    for fact in (place.shard, "sample 4", finding.key or "-", f"[{place.start}, {place.stop})", "checksum", "Restore it"):
        assert fact in finding.text


def test_a_flipped_header_names_its_member_and_its_own_bytes(dataset: Path):
    place = next(iter(fastfeed.open(dataset / "val")._archive.places(0)))
    flip_bit(dataset / "val" / place.shard, place.start - 512 + 124)
    (finding,) = found(dataset)
    assert "tar header of a member is damaged at its byte 124" in finding.text
    assert (finding.sample, finding.start, finding.stop) == (0, place.start - 512, place.start)


def test_a_flipped_padding_names_its_member_and_the_padding(dataset: Path):
    place = list(fastfeed.open(dataset / "val")._archive.places(0))[-1]
    flip_bit(dataset / "val" / place.shard, place.stop)
    (finding,) = found(dataset)
    assert "padding behind a member is not zeros" in finding.text
    assert (finding.sample, finding.start, finding.stop) == (0, place.stop, -(-place.stop // 512) * 512)


def test_a_flipped_trailer_names_its_bytes(dataset: Path):
    shard = dataset / "val" / "val-000001.tar"
    size = shard.stat().st_size
    flip_bit(shard, size - 1)
    (finding,) = found(dataset)
    assert "the end of a shard is not zeros" in finding.text
    assert (finding.shard, finding.stop) == ("val-000001.tar", size)


def test_a_flipped_index_bit_names_its_column(dataset: Path):
    home = dataset / "val" / ".fastfeed"
    keys = ColumnFile.parse((home / "index").read_bytes()).column("sample", "key")[1]
    flip_bit(home / "index", (home / "index").read_bytes().index(keys))
    texts = [finding.text for finding in found(dataset)]
    assert any("column key of sample in the index is damaged" in text for text in texts)
    assert any(".fastfeed/index is damaged" in text for text in texts)


def test_a_cut_in_the_midst_of_a_member_names_it(dataset: Path):
    place = next(iter(place for place in fastfeed.open(dataset / "val")._archive.places(1) if place.field == "jpg"))
    os.truncate(dataset / "val" / place.shard, place.start + 10)
    size, lost = found(dataset)
    assert "wrong size" in size.text and size.shard == place.shard
    assert (
        f"a shard was cut: this member and all behind it, to sample 1, are lost (shard {place.shard}, sample 1, " in lost.text
    )
    assert (lost.sample, lost.member, lost.start) == (1, f"{lost.key}.jpg", place.start + 10)


def test_the_size_of_a_cut_shard_comes_before_what_is_lost_with_it(tmp_path: Path):
    dataset = pack_photos(tmp_path, shards=1)
    os.truncate(dataset / "photos-000000.tar", 0)
    first, *others = found(dataset)
    assert "a shard has the wrong size" in first.text and first.start is None
    assert others and any(f.start is not None for f in others)


def test_many_findings_of_one_shard_are_capped(tmp_path: Path):
    dataset = pack_photos(tmp_path, each=80, shards=1)
    shard = dataset / "photos-000000.tar"
    shard.write_bytes(bytes(byte ^ 1 for byte in shard.read_bytes()))
    assert len(found(dataset)) == 100


# ------------------------------------------------------------------------------------------------ it never raises, never hangs
@pytest.mark.parametrize("place", ["train/train-000000.tar", "train/.fastfeed/left-out.jsonl", "train/.fastfeed/index"])
@pytest.mark.parametrize("kind", ["fifo", "folder", "link to nowhere", "link to a device"])
def test_something_else_than_a_file_is_a_finding(dataset: Path, place: str, kind: str):
    path = dataset / place
    path.unlink()
    makers = {
        "fifo": lambda: os.mkfifo(path),
        "folder": path.mkdir,
        "link to nowhere": lambda: path.symlink_to("nowhere"),
        "link to a device": lambda: path.symlink_to("/dev/zero"),
    }
    makers[kind]()
    command = [sys.executable, "-m", "fastfeed", "verify", str(dataset), "--workers", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False, cwd=ROOT)
    assert (done.returncode, done.stderr) == (5, "")
    assert path.name in done.stdout


def test_a_version_of_the_future_is_a_finding(dataset: Path):
    rewrite_manifest(dataset, lambda body: body.update(version=2), "pack.json")
    (finding,) = found(dataset)
    assert finding.kind == "VersionUnsupported"


def _wild(file: ColumnFile, offset: int) -> None:
    offsets = file.numbers("member", "offset")
    offsets[2] = offset
    file.replace("member", "offset", struct.pack(f"<{len(offsets)}Q", *offsets))


@pytest.mark.parametrize("offset", [0, 511, 513, 2**63, 2**64 - 512, 512])
def test_an_index_that_leads_astray_is_a_finding(tmp_path: Path, offset: int):
    dataset = pack_photos(tmp_path)
    rewrite_index(dataset, lambda file: _wild(file, offset))
    findings = found(dataset)
    assert findings
    assert {finding.kind for finding in findings} <= {"IndexDamaged", "ShardDamaged"}


def test_a_class_member_that_contradicts_the_index(tmp_path: Path):
    dataset = pack_photos(tmp_path)
    rewrite_index(dataset, lambda file: file.replace("sample", "label", struct.pack("<6q", 1, 0, 0, 1, 1, 1)))
    (finding,) = found(dataset)
    assert "a class member holds another number than the index" in finding.text
    assert (finding.sample, finding.key, finding.member, finding.source) == (0, "cat/000", "cat/000.cls", None)


def test_a_wrong_writer_that_digests_its_own_fault(tmp_path: Path):
    """A shard whose sha256 fits, but whose members are not those of the index."""
    make_captioned(tmp_path / "src")
    packed(tmp_path / "src", tmp_path / "packed")

    def change(raw: bytearray) -> None:
        raw[-1] = 1

    rewrite_shard(tmp_path / "packed", change)
    (finding,) = found(tmp_path / "packed")
    assert "the end of a shard is not zeros" in finding.text


def test_the_result_is_ok_only_without_findings():
    assert VerifyResult("x").ok
    assert not VerifyResult("x", findings=[Finding("ShardDamaged", "text")]).ok
