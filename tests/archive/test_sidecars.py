"""Which sidecars a folder has, and the record of those that were written."""

import json
import os
from pathlib import Path

import pytest
from helpers import canonical, flipped, make_photos, pack_photos, packed

from fastfeed.archive.sidecars import READERS, Written, encode, places, prove_readers, recorded, why_card
from fastfeed.cli import common
from fastfeed.errors import NotADataset, SidecarDamaged, UsageError, VersionUnsupported

FILES = [
    Written("README.md", "hf", True, 7, "a" * 64),
    Written(".nv-meta/index.sqlite", "energon", False, 0, None),
    Written("photos-000000.tar.idx", "energon", False, 24, "b" * 64),
]


@pytest.fixture
def group(tmp_path: Path) -> Path:
    for split in ("train", "val"):
        make_photos(tmp_path / "src" / split)
    packed(tmp_path / "src", tmp_path / "group", shards=2)
    return tmp_path / "group"


def test_the_command_line_names_the_same_readers():
    assert common.READERS == READERS


@pytest.mark.parametrize(
    ("asked", "given", "why"),
    [
        (["dali"], ["dali"], ""),
        (["hf", "dali", "dali"], ["dali", "hf"], ""),
        (["wids"], ["hf", "wids"], "for wids for data"),
        (["wids", "energon"], ["energon", "hf", "wids"], "for energon and wids for data"),
        (["wids", "hf"], ["hf", "wids"], ""),
        ([], [], ""),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "why",
)
def test_the_card_comes_along_with_those_that_mislead(asked: list[str], given: list[str], why: str):
    assert prove_readers(asked) == given
    assert why in " ".join(why_card(asked)) and bool(why_card(asked)) == bool(why)


@pytest.mark.parametrize("names", [["dali", "tfrecord"], "dali"], ids=["unknown", "text"])
def test_readers_that_nobody_knows(names):
    with pytest.raises(UsageError, match="sidecars are known for dali, energon, hf, wids: got "):
        prove_readers(names)


def test_compressed_shards_to_come_are_refused_before_they_are_written():
    assert prove_readers([], compression="zstd") == []
    with pytest.raises(UsageError, match="the shards are compressed, and no other reader opens such shards"):
        prove_readers(["dali"], compression="zstd")


def test_a_dataset_has_all_files_in_one_folder(tmp_path: Path):
    (place,) = places(str(pack_photos(tmp_path, shards=2)))
    meta = {f".nv-meta/{name}" for name in (".info.json", "split.yaml", "dataset.yaml", "index.sqlite", "index.uuid")}
    shards = {f"photos-{at:06d}{end}" for at in (0, 1) for end in (".idx", ".tar.idx")}
    assert {one.file for one in place.sidecars()} == {"README.md", "photos.index.json", *meta, *shards}
    assert {one.file for one in place.wanted(["dali"])} == {name for name in shards if ".tar" not in name}
    assert {one.file for one in place.sidecars() if one.editable} == {
        "README.md", ".nv-meta/split.yaml", ".nv-meta/dataset.yaml",
    }  # fmt: skip


def test_a_group_has_what_is_there_once(group: Path):
    whole, train, val = places(str(group))
    assert [place.path for place in (whole, train, val)] == [str(group), str(group / "train"), str(group / "val")]
    assert {one.file.partition("/")[0] for one in whole.wanted(READERS)} == {".nv-meta", "README.md"}
    assert {one.file for one in val.wanted(READERS)} == {
        "README.md", "val.index.json", *(f"val-{at:06d}{end}" for at in (0, 1) for end in (".idx", ".tar.idx")),
    }  # fmt: skip
    (alone,) = places(str(group / "val"))
    assert ".nv-meta/split.yaml" in {one.file for one in alone.wanted(["energon"])}


def test_nothing_is_there(tmp_path: Path):
    with pytest.raises(NotADataset, match="no packed dataset is in this folder"):
        places(str(tmp_path))


# ------------------------------------------------------------------------------------------------ the record
def with_record(folder: Path, raw: bytes) -> str:
    (folder / ".fastfeed").mkdir()
    (folder / ".fastfeed" / "sidecars.json").write_bytes(raw)
    return str(folder)


def test_s1_the_record_is_canonical_and_comes_back(tmp_path: Path):
    raw = encode("d" * 64, FILES)
    assert raw == canonical(json.loads(raw))
    body = json.loads(raw)
    assert (body["version"], body["kind"], body["dataset"]) == (1, "sidecars", "d" * 64)
    assert [entry["file"] for entry in body["files"]] == sorted(entry.file for entry in FILES)
    assert set(body) == {"version", "kind", "dataset", "files", "digest"}
    assert recorded(with_record(tmp_path, raw)) == ("d" * 64, sorted(FILES, key=lambda one: one.file))


def test_there_may_be_none(tmp_path: Path):
    assert recorded(str(tmp_path)) is None
    assert recorded(str(tmp_path / "missing")) is None
    (tmp_path / ".fastfeed").write_text("a file")
    assert recorded(str(tmp_path)) is None


def test_s1_each_flipped_bit_is_found(tmp_path: Path):
    raw = encode("d" * 64, FILES[:1])
    folder = with_record(tmp_path, raw)
    for bit in range(len(raw) * 8):
        (tmp_path / ".fastfeed" / "sidecars.json").write_bytes(flipped(raw, bit))
        with pytest.raises((SidecarDamaged, VersionUnsupported)):
            recorded(folder)


@pytest.mark.parametrize("name", ["cat.jpg", "../README.md", "sub/README.md", "/etc/passwd", "x.tar", "train-000000.tar", ""])
def test_s1_a_record_names_sidecars_and_nothing_else(tmp_path: Path, name: str):
    folder = with_record(tmp_path, encode("d" * 64, [Written(name, "hf", False, 7, "a" * 64)]))
    with pytest.raises(SidecarDamaged, match=r"the record of the sidecars is damaged: .*Run fastfeed index"):
        recorded(folder)


@pytest.mark.parametrize("raw", [b"", b"[]", b"{}", b'{"version": 1}', b"\xff"], ids=range(5))
def test_s1_what_is_no_record(tmp_path: Path, raw: bytes):
    with pytest.raises(SidecarDamaged, match="the record of the sidecars is damaged"):
        recorded(with_record(tmp_path, raw))


def test_a_later_version_is_told(tmp_path: Path):
    body = {**json.loads(encode("d" * 64, FILES)), "version": 2}
    with pytest.raises(VersionUnsupported, match="Install a newer fastfeed"):
        recorded(with_record(tmp_path, canonical(body)))


def test_a_fifo_in_its_place_is_an_error_and_no_wait(tmp_path: Path):
    (tmp_path / ".fastfeed").mkdir()
    os.mkfifo(tmp_path / ".fastfeed" / "sidecars.json")
    with pytest.raises(SidecarDamaged, match="cannot be read: not a regular file"):
        recorded(str(tmp_path))
