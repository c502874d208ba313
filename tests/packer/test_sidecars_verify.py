"""Sidecars proven: verify tells every damage of them, and writing them again mends it."""

import hashlib
import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from besides import beside, kinds, listed, texts
from helpers import canonical, flip_bit, pack_photos, rewrite_manifest

import fastfeed
from fastfeed.archive.sidecars import READERS
from fastfeed.packer import sidecars as module


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Two shards, and the files of all readers."""
    folder: Path = pack_photos(tmp_path, shards=2, readers=READERS)
    return folder


def test_f1_s3_a_stranger_of_that_name_is_still_a_stranger(dataset: Path):
    (dataset / "photos-000002.tar.idx").write_bytes(b"")
    assert kinds(dataset) == ["ShardDamaged"]
    shutil.copy(dataset / "photos-000000.tar", dataset / "photos-000000.tar.bak")
    assert kinds(dataset) == ["ShardDamaged"] * 2


def test_f1_without_the_record_an_index_of_energon_is_a_stranger(dataset: Path):
    (dataset / ".fastfeed" / "sidecars.json").unlink()
    assert kinds(dataset) == ["ShardDamaged"] * 2
    (dataset / ".fastfeed" / "other.json").write_text("{}")
    assert "other.json belongs to no dataset" in texts(dataset)


@pytest.mark.parametrize("name", ["photos-000001.idx", "photos-000000.tar.idx", "photos.index.json", ".nv-meta/.info.json",
                                  ".nv-meta/index.sqlite", ".nv-meta/index.uuid"])  # fmt: skip
def test_s3_any_flipped_bit_and_any_loss_is_found_and_mended(dataset: Path, name: str):
    path = dataset / name
    size = path.stat().st_size
    pristine = beside(dataset)
    for byte in {0, 1, size // 3, size // 2, size - 1}:
        flip_bit(path, byte, 3)
        assert kinds(dataset) == ["SidecarDamaged"], byte
        flip_bit(path, byte, 3)
    path.write_bytes(path.read_bytes() + b"\0")
    assert kinds(dataset) == ["SidecarDamaged"]
    os.truncate(path, size // 2)
    assert f"the sidecar {name} is not what fastfeed wrote" in texts(dataset)
    path.unlink()
    assert f"the sidecar {name} cannot be read: No such file" in texts(dataset)
    reader = {".idx": "dali", "json": "wids"}.get(name[-4:]) if ".tar" not in name and ".nv" not in name else "energon"
    assert f"--for {reader}: it mends that; the shards are not touched" in " ".join(texts(dataset).split())
    assert fastfeed.write_sidecars(dataset, [reader or ""]).written == (str(path),)
    assert kinds(dataset) == []
    assert beside(dataset) == pristine


def test_s1_a_damaged_record_is_told_and_written_anew(dataset: Path):
    pristine = beside(dataset)
    flip_bit(dataset / ".fastfeed" / "sidecars.json", 50)
    assert kinds(dataset).count("SidecarDamaged") == 1
    result = fastfeed.write_sidecars(dataset, READERS)
    assert result.written == () and "is damaged" in result.notes[0]
    assert beside(dataset) == pristine


def rewrite_record(dataset: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = dataset / ".fastfeed" / "sidecars.json"
    body = json.loads(path.read_bytes())
    change(body)
    body["files"].sort(key=lambda entry: entry["file"])
    path.write_bytes(canonical(body))


def test_s2_sidecars_of_another_pack(dataset: Path):
    rewrite_manifest(dataset, lambda body: body["options"].update(shuffle=1))
    (found,) = fastfeed.verify(dataset).findings
    assert found.kind == "SidecarDamaged"
    assert "the sidecars were made for another dataset" in found.text and "--for dali,energon,hf,wids" in found.text
    (dataset / "photos-000007.idx").write_bytes(b"of the other pack")
    rewrite_record(dataset, lambda body: body["files"].append({**body["files"][-1], "file": "photos-000007.idx"}))
    uuid = (dataset / ".nv-meta" / "index.uuid").read_bytes()
    result = fastfeed.write_sidecars(dataset, ["dali"])  # those of the others are mended as well
    assert {os.path.relpath(path, dataset) for path in result.written} == set(listed(dataset))
    assert (dataset / ".nv-meta" / "index.uuid").read_bytes() != uuid
    assert not (dataset / "photos-000007.idx").exists()
    assert fastfeed.verify(dataset).ok


def test_s4_a_record_that_vouches_for_wrong_content(dataset: Path):
    raw = (dataset / "photos-000000.idx").read_bytes().replace(b" 512 ", b" 513 ", 1)
    (dataset / "photos-000000.idx").write_bytes(raw)
    sha256 = hashlib.sha256(raw).hexdigest()
    rewrite_record(
        dataset, lambda body: [entry.update(sha256=sha256) for entry in body["files"] if entry["file"] == "photos-000000.idx"]
    )
    assert "it differs from its byte" in texts(dataset) and kinds(dataset) == ["SidecarDamaged"]


def test_s4_a_database_with_other_rows_that_its_record_vouches_for(dataset: Path):
    base = sqlite3.connect(dataset / ".nv-meta" / "index.sqlite")
    base.execute("UPDATE samples SET byte_size = 1 WHERE sample_index = 1")
    base.commit()
    base.close()
    raw = (dataset / ".nv-meta" / "index.sqlite").read_bytes()
    facts = {"sha256": hashlib.sha256(raw).hexdigest(), "size_bytes": len(raw)}
    rewrite_record(dataset, lambda body: [entry.update(facts) for entry in body["files"] if entry["file"].endswith("sqlite")])
    assert "row 1 of its table samples differs" in texts(dataset)


def test_a_recorded_file_that_no_reader_needs(dataset: Path):
    (dataset / "photos-000009.idx").write_bytes(b"")
    rewrite_record(dataset, lambda body: body["files"].append({**body["files"][-1], "file": "photos-000009.idx"}))
    assert "the sidecar photos-000009.idx belongs to no reader" in texts(dataset)


def test_damage_of_the_dataset_is_told_once(dataset: Path):
    flip_bit(dataset / ".fastfeed" / "index", 40)
    assert set(kinds(dataset)) == {"IndexDamaged"}
    flip_bit(dataset / ".fastfeed" / "manifest.json", 40)
    with_damage = kinds(dataset)
    assert with_damage and "SidecarDamaged" not in with_damage


def test_many_findings_are_cut_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "_MAX_FINDINGS", 3)
    dataset = pack_photos(tmp_path, shards=6, readers=["dali"])
    for path in dataset.glob("*.idx"):
        path.unlink()
    assert kinds(dataset) == ["SidecarDamaged"] * 3
