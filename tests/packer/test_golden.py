"""The golden dataset of format version 1: it stays readable, and this writer still writes it. See tests/golden/README.md."""

import json
import runpy
import shutil

import pytest
from helpers import ROOT, files_below, packed
from packing import contents, left_out_of, manifest_of, read_back

import fastfeed
from fastfeed.archive.frame import encoder
from fastfeed.archive.manifest import WRITER

GOLDEN = ROOT / "tests" / "golden" / "v1"
COMPRESSED = ROOT / "tests" / "golden" / "v1-zst"
SOURCE = runpy.run_path(str(ROOT / "tests" / "golden" / "make.py"))
PACKED = {name: raw for name, raw in SOURCE["FILES"].items() if "DS_Store" not in name}
COMPRESSED_DIGEST = "ba69e332466cff5bda73d1327a4b531ae2510c48db122f58bea31db022ad238d"
DIGEST = "c56c9ec4b5d9d727837a3a8a4ddd1bb9a6780279cf14922057d54464c5b64606"
"""Of pack.json, which holds the manifests' digests, which hold every file's."""


def test_it_is_whole():
    result = fastfeed.verify(GOLDEN)
    assert result.ok, result.findings
    assert (result.datasets, result.shards, result.samples) == (2, 3, 7)


def test_its_bytes_are_those_that_were_committed():
    assert json.loads((GOLDEN / ".fastfeed" / "pack.json").read_bytes())["digest"] == DIGEST


def test_values_are_what_they_were():
    train = read_back(GOLDEN / "train")
    assert [(sample.label, sorted(sample.fields)) for sample in train] == [
        (0, ["cls", "jpg", "txt"]), (0, ["cls", "jpg", "txt"]), (1, ["cls", "jpg", "txt"]),
        (1, ["cls", "jpg"]), (1, ["cls", "jpg"]),
    ]  # fmt: skip
    assert [sample.key for sample in train] == [
        "train/cat/001", "train/cat/Katze_gro-11f81ff3e0", "train/dog/22_05-4ed0fdc524", "train/dog/cut", "train/dog/dot",
    ]  # fmt: skip
    assert {**contents(train), **contents(read_back(GOLDEN / "val"))} == PACKED
    assert manifest_of(GOLDEN / "train")["classes"] == manifest_of(GOLDEN / "val")["classes"] == ["cat", "dog"]
    assert left_out_of(GOLDEN / "train") | left_out_of(GOLDEN / "val") == {"train/dog/.DS_Store": "system"}


def test_it_opens_as_a_torch_dataset():
    train, val = fastfeed.open(GOLDEN / "train"), fastfeed.open(GOLDEN / "val")
    assert train.class_to_idx == val.class_to_idx == {"cat": 0, "dog": 1}
    assert list(train.targets) == [0, 0, 1, 1, 1]
    sample = train[1]
    assert sample["txt"] == "eine große Katze\n" and sample["cls"] == 0
    assert (sample["jpg"].mode, sample["jpg"].size, sample["jpg"].getexif()[0x112]) == ("RGB", (6, 8), 6)
    assert val[1]["jpg"].size == (8, 8)
    with pytest.raises(fastfeed.DecodeError, match="train/dog/cut"):
        train[3]


def test_it_unpacks_to_what_it_was(tmp_path):
    shutil.copytree(GOLDEN, tmp_path / "copy")  # it may be moved
    fastfeed.unpack(tmp_path / "copy", tmp_path / "out")
    assert files_below(tmp_path / "out") == PACKED


def test_packing_its_source_again_gives_the_same_bytes(tmp_path):
    if manifest_of(GOLDEN / "train")["writer"] != WRITER:
        pytest.skip("this writer's version is another; its own golden dataset stands beside this one")
    SOURCE["make"](str(tmp_path / "golden"))
    packed(tmp_path / "golden", tmp_path / "out", samples_per_shard=3)
    assert files_below(tmp_path / "out") == files_below(GOLDEN)


# ------------------------------------------------------------------------------------------------ compressed shards
def test_the_compressed_one_is_whole():
    result = fastfeed.verify(COMPRESSED)
    assert result.ok, result.findings
    assert (result.datasets, result.shards, result.samples) == (2, 3, 7)
    assert json.loads((COMPRESSED / ".fastfeed" / "pack.json").read_bytes())["digest"] == COMPRESSED_DIGEST


def test_the_compressed_one_holds_the_plain_one(tmp_path):
    fastfeed.unpack(COMPRESSED, tmp_path / "out", shards=True)
    assert files_below(tmp_path / "out") == files_below(GOLDEN)
    fastfeed.unpack(COMPRESSED, tmp_path / "files")
    assert files_below(tmp_path / "files") == PACKED


def test_the_compressed_one_opens_as_a_torch_dataset():
    for split in ("train", "val"):
        plain, small = fastfeed.open(GOLDEN / split), fastfeed.open(COMPRESSED / split)
        readable = [at for at in range(len(plain)) if plain.identity(at).source != b"train/dog/cut.jpg"]
        for one, other in zip(plain.__getitems__(readable), small.__getitems__(readable), strict=True):
            assert one == other


def test_its_own_version_of_the_library_writes_the_same_bytes(tmp_path):
    manifest = manifest_of(COMPRESSED / "train")
    if (manifest["writer"], manifest["compression"]["encoder"]) != (WRITER, encoder()):
        pytest.skip(f"written by {manifest['compression']['encoder']}, and here is {encoder()}")
    SOURCE["make"](str(tmp_path / "golden"))
    packed(tmp_path / "golden", tmp_path / "out", samples_per_shard=3, compress="zstd", frame_bytes=4096)
    assert files_below(tmp_path / "out") == files_below(COMPRESSED)
