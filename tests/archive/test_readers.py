"""What DALI, wids and Hugging Face datasets get. That DALI's is that of wds2idx is shown by tools/readers."""

import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers import encoded, make_captioned, make_photos, packed, photo
from packing import tree
from rowsets import Samples

import fastfeed
from fastfeed.archive.beside import Rows
from fastfeed.archive.dataset import Archive
from fastfeed.archive.readers import card, dali_indexes, split_names, wids_index


def opened(folder: Path) -> Archive:
    return Archive(str(folder))


def written(sidecar, path: Path) -> bytes:
    sidecar.write(str(path))
    return path.read_bytes()


def head(parts: dict[str, Archive], path: Path) -> dict[str, Any]:
    """The YAML of a card."""
    text = written(card(parts), path).decode()
    begin, yaml_text, body = text.split("---\n", 2)
    assert begin == "" and "Packed by fastfeed" in body
    found: dict[str, Any] = yaml.safe_load(yaml_text)
    return found


def features(folder: Path, path: Path) -> dict[str, Any]:
    (info,) = head({"": opened(folder)}, path)["dataset_info"]
    return {entry["name"]: entry["dtype"] for entry in info["features"]} if "features" in info else {}


def test_dali_has_a_line_a_sample(tmp_path: Path):
    source = make_captioned(tmp_path / "src", 7)
    (source / "003.mask.png").write_bytes(encoded(photo(3), "PNG"))
    packed(source, tmp_path / "set", shards=3)
    for sidecar in dali_indexes(Rows(opened(tmp_path / "set"))):
        lines: dict[str, list[str]] = {}
        with tarfile.open(tmp_path / "set" / sidecar.file.replace(".idx", ".tar"), "r:") as tar:
            for info in tar:
                key, _, field = info.name.partition(".")
                lines.setdefault(key, []).append(f"{field} {info.offset_data} {info.size} {info.name}")
        right = f"v1.2 {len(lines)}\n" + "".join(" ".join(parts) + "\n" for parts in lines.values())
        assert written(sidecar, tmp_path / "x").decode() == right


def test_wids_has_the_shards(tmp_path: Path):
    packed(make_captioned(tmp_path / "src", 5), tmp_path / "set", shards=2, name="my-set")
    sidecar = wids_index(opened(tmp_path / "set"))
    assert sidecar.file == "my-set.index.json"
    found = json.loads(written(sidecar, tmp_path / "x"))
    assert (found["__kind__"], found["wids_version"], found["name"]) == ("wids-shard-index-v1", 1, "my-set")
    assert [(shard["url"], shard["nsamples"]) for shard in found["shardlist"]] == [
        ("my-set-000000.tar", 3), ("my-set-000001.tar", 2),
    ]  # fmt: skip
    assert all(shard["filesize"] == os.path.getsize(tmp_path / "set" / shard["url"]) for shard in found["shardlist"])


def test_a_card_names_shards_fields_and_counts(tmp_path: Path):
    names = ["cat", "groß & \U0001f600", 'a "b" \\ #: [x]', "yes"]
    packed(make_photos(tmp_path / "src", classes=names), tmp_path / "set")
    found = head({"": opened(tmp_path / "set")}, tmp_path / "x")
    assert found["configs"] == [{"config_name": "default", "data_files": [{"split": "train", "path": "*.tar"}]}]
    (info,) = found["dataset_info"]
    assert info["config_name"] == "default"
    assert info["features"] == [
        {"name": "cls", "dtype": {"class_label": {"names": sorted(names)}}}, {"name": "jpg", "dtype": "image"},
        {"name": "__key__", "dtype": "string"}, {"name": "__url__", "dtype": "string"},
    ]  # fmt: skip
    archive = opened(tmp_path / "set")
    payload = int(archive.index.array("member", "size").sum())
    assert info["splits"] == [{"name": "train", "num_bytes": payload, "num_examples": 12}]


def test_each_field_has_the_type_that_datasets_gives_it(tmp_path: Path):
    kinds = {"jpg": "image", "mask.png": "image", "txt": "string", "json": "json", "meta.json": "json", "wav": "audio",
             "mp4": "video", "bin": "binary", "srt": "binary", "id": "int64"}  # fmt: skip
    packed(tree(tmp_path / "src", {f"a.{field}": b"0" for field in kinds}), tmp_path / "set")
    assert features(tmp_path / "set", tmp_path / "x") == {**kinds, "__key__": "string", "__url__": "string"}


@pytest.mark.parametrize("field", ["npy", "npz", "pth", "txt.gz"])
def test_a_field_of_unknown_shape_leaves_all_types_to_datasets(tmp_path: Path, field: str):
    packed(tree(tmp_path / "src", {f"a.{field}": b"0", "a.txt": b"0"}), tmp_path / "set")
    assert features(tmp_path / "set", tmp_path / "x") == {}


def test_class_numbers_of_the_source_get_no_names(tmp_path: Path):
    files = {f"{name}/{at}.{field}": b"7" for name in ("cat", "dog") for at in range(2) for field in ("jpg", "cls")}
    packed(tree(tmp_path / "src", files), tmp_path / "set", layout="classes", write_cls=False)
    assert features(tmp_path / "set", tmp_path / "x")["cls"] == "int64"


def test_class_names_that_are_no_utf8_are_escaped(tmp_path: Path):
    packed(make_photos(tmp_path / "src", classes=["caf\udce9", "cat"]), tmp_path / "set")
    assert features(tmp_path / "set", tmp_path / "x")["cls"] == {"class_label": {"names": ["caf\\xe9", "cat"]}}


def test_class_names_that_no_file_can_have_are_escaped(tmp_path: Path):
    """Given for a dataset, not read from folders."""
    names, rows = ["\ud800x", "a\udce9", "\udfff", "plain"], [{"txt": "a", "cls": at % 4} for at in range(8)]
    packed(Samples(rows), tmp_path / "set", classes=names, readers=["hf"])
    names_of = features(tmp_path / "set", tmp_path / "x")["cls"]["class_label"]["names"]
    assert names_of == ["\\ud800x", "a\\xe9", "\\udfff", "plain"]
    assert fastfeed.open(tmp_path / "set").classes == names


def test_the_splits_of_a_group(tmp_path: Path):
    for split, each in (("train", 2), ("val", 1)):
        make_photos(tmp_path / "src" / split, each=each)
    (tmp_path / "src" / "val" / "cat" / "000.txt").write_text("only here")
    packed(tmp_path / "src", tmp_path / "set")
    parts = {split: opened(tmp_path / "set" / split) for split in ("train", "val")}
    found = head(parts, tmp_path / "x")
    assert found["configs"][0]["data_files"] == [
        {"split": "train", "path": "train/*.tar"}, {"split": "validation", "path": "val/*.tar"},
    ]  # fmt: skip
    (info,) = found["dataset_info"]
    assert [entry["name"] for entry in info["features"]] == ["cls", "jpg", "txt", "__key__", "__url__"]
    assert [(split["name"], split["num_examples"]) for split in info["splits"]] == [("train", 4), ("validation", 2)]


def test_the_split_of_one_folder_of_a_group(tmp_path: Path):
    for split in ("train", "val"):
        make_photos(tmp_path / "src" / split, each=1)
    packed(tmp_path / "src", tmp_path / "set")
    files = head({"": opened(tmp_path / "set" / "val")}, tmp_path / "x")["configs"][0]["data_files"]
    assert files == [{"split": "validation", "path": "*.tar"}]


def test_split_names_are_those_of_datasets_and_different():
    assert split_names(["train", "val", "test", "dev-clean", "a b", "a-b", "groß"]) == [
        "train", "validation", "test", "dev_clean", "a_b", "a_b_2", "gro_",
    ]  # fmt: skip
    assert split_names(["val", "valid", "validation"]) == ["validation", "valid_2", "validation_2"]


def test_odd_folders_are_patterns_that_match_them(tmp_path: Path):
    for split in ("train", "val"):
        make_photos(tmp_path / "src" / split, each=1)
    packed(tmp_path / "src", tmp_path / "set")
    archive = opened(tmp_path / "set" / "train")
    files = head({"a [b]*": archive, "x\udcffy": archive}, tmp_path / "x")["configs"][0]["data_files"]
    assert [entry["path"] for entry in files] == ["a ?b??/*.tar", "x?y/*.tar"]
