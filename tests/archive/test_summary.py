"""info: what is inside, from manifest and index alone."""

import json
import os
import struct
from pathlib import Path

import pytest
from helpers import (
    add_user_columns,
    encoded,
    files_below,
    make_captioned,
    make_photos,
    pack_photos,
    packed,
    photo,
    rewrite_index,
)

import fastfeed
from fastfeed.archive.index import UserColumn
from fastfeed.errors import IndexDamaged, NotADataset
from fastfeed.units import format_size


def test_photos_by_class(tmp_path: Path):
    source = make_photos(tmp_path / "photos")
    (source / "cat" / ".DS_Store").write_bytes(b"")
    (source / "._x").write_bytes(b"")
    (source / "._y").write_bytes(b"")
    turned = photo(9, (30, 40))
    exif = turned.getexif()
    exif[274] = 6
    (source / "dog" / "turned.jpg").write_bytes(encoded(turned, exif=exif))
    (source / "dog" / "broken.jpg").write_bytes(b"no image")
    packed(source, tmp_path / "packed", shards=3, shuffle=5)
    (found,) = fastfeed.info(tmp_path / "packed").datasets
    assert (found.name, found.split, found.samples, found.members, found.shards) == ("photos", "", 8, 16, 3)
    assert (found.layout, found.order, found.format_version) == ("classes", "shuffled", 1)
    assert found.compression == "none (plain tar)"
    assert [(c.number, c.name, c.samples) for c in found.classes or ()] == [(0, "cat", 3), (1, "dog", 5)]
    assert found.left_out == {"hidden": 2, "system": 1}
    assert found.size_bytes == sum(path.stat().st_size for path in (tmp_path / "packed").glob("*.tar"))
    assert found.index_bytes == (tmp_path / "packed" / ".fastfeed" / "index").stat().st_size
    assert found.digest == fastfeed.open(tmp_path / "packed").digest
    assert found.options["shuffle"] == 5
    cls, jpg = found.fields
    assert (cls.name, cls.members, cls.size_bytes, cls.codecs, cls.width) == ("cls", 8, 8, {}, None)
    sizes = [len(raw) for name, raw in files_below(source).items() if name.endswith(".jpg")]
    assert (jpg.name, jpg.members, jpg.size_bytes, jpg.largest_bytes) == ("jpg", 8, sum(sizes), max(sizes))
    assert (found.source_files, found.source_bytes) == (8, sum(sizes))
    assert (jpg.codecs, jpg.width, jpg.height, jpg.rotated) == ({"JPEG": 7}, (16, 16, 30), (12, 12, 40), 1)
    assert found.columns == (
        "codec", "height", "key", "label", "offset", "orientation", "size", "source", "width", "xxh3",
    )  # fmt: skip
    dataset = fastfeed.open(tmp_path / "packed")
    assert dataset.columns == list(found.columns)
    assert all(len(dataset.column(name)) == 8 for name in found.columns)


def test_a_flat_folder_has_no_classes(tmp_path: Path):
    packed(make_captioned(tmp_path / "src"), tmp_path / "packed")
    (found,) = fastfeed.info(tmp_path / "packed").datasets
    assert found.classes is None
    assert [(field.name, field.members, field.rotated) for field in found.fields] == [("jpg", 4, 0), ("txt", 4, 0)]
    assert found.left_out == {}


def test_splits_are_all_told(tmp_path: Path):
    make_photos(tmp_path / "src" / "train")
    make_photos(tmp_path / "src" / "val", each=1)
    packed(tmp_path / "src", tmp_path / "packed")
    result = fastfeed.info(str(tmp_path / "packed"))
    assert [(d.split, d.samples, os.path.basename(d.path)) for d in result.datasets] == [
        ("train", 6, "train"),
        ("val", 2, "val"),
    ]
    assert fastfeed.info(tmp_path / "packed" / "val").datasets == result.datasets[1:]


def test_columns_of_the_user_are_told_with_their_types(tmp_path: Path):
    dataset = pack_photos(tmp_path)
    assert fastfeed.info(dataset).datasets[0].user_columns == {}
    add_user_columns(dataset, UserColumn("size", "text", list("abcdef")), UserColumn("clean", "bool", bytes(6)))
    (found,) = fastfeed.info(dataset).datasets
    assert found.user_columns == {"size": "text", "clean": "bool"}
    assert "x.size" not in found.columns


def test_no_shard_is_read(tmp_path: Path):
    dataset = pack_photos(tmp_path)
    before = fastfeed.info(dataset)
    (dataset / "photos-000000.tar").unlink()
    assert fastfeed.info(dataset) == before


def test_a_codec_of_the_future_has_a_number(tmp_path: Path):
    dataset = pack_photos(tmp_path)
    rewrite_index(dataset, lambda file: file.replace("member", "codec", struct.pack("12B", *[0, 200] * 6)))
    (found,) = fastfeed.info(dataset).datasets
    assert found.fields[1].codecs == {"codec 200": 6}


def test_hints_may_be_missing(tmp_path: Path):
    dataset = pack_photos(tmp_path)

    def drop(name: str) -> None:
        def change(file):
            at = [entry["name"] for entry in file.table["columns"] if len(entry["bytes"]) == 1].index(name)
            file.table["columns"] = [entry for entry in file.table["columns"] if entry["name"] != name]
            del file.parts[at]

        rewrite_index(dataset, change)

    drop("width")
    (found,) = fastfeed.info(dataset).datasets
    assert (found.fields[1].codecs, found.fields[1].width, found.fields[1].height) == ({"JPEG": 6}, None, None)
    drop("codec")
    (found,) = fastfeed.info(dataset).datasets
    assert found.fields[1].codecs == {}


@pytest.mark.parametrize("raw", [b"not json\n", b"{}\n", b"[1]\n", b"\xff\xfe\n", None], ids=str)
def test_a_damaged_list_of_left_out_files(tmp_path: Path, raw: bytes | None):
    dataset = pack_photos(tmp_path)
    path = dataset / ".fastfeed" / "left-out.jsonl"
    path.unlink()
    if raw is not None:
        path.write_bytes(raw)
    with pytest.raises(IndexDamaged, match=r"the list of left-out files cannot be read: .*Run fastfeed verify"):
        fastfeed.info(dataset)


def test_a_label_out_of_range_is_damage(tmp_path: Path):
    dataset = pack_photos(tmp_path)
    rewrite_index(dataset, lambda file: file.replace("sample", "label", struct.pack("<6q", 0, 0, 0, 1, 1, -1)))
    with pytest.raises(IndexDamaged, match="a label names no class"):
        fastfeed.info(dataset)


def test_nothing_packed(tmp_path: Path):
    with pytest.raises(NotADataset, match="no packed dataset is in this folder"):
        fastfeed.info(tmp_path)


def test_left_out_kinds_are_those_of_the_file(tmp_path: Path):
    source = make_photos(tmp_path / "photos")
    (source / "README.txt").write_text("about")
    packed(source, tmp_path / "packed")
    lines = (tmp_path / "packed" / ".fastfeed" / "left-out.jsonl").read_text().splitlines()
    (found,) = fastfeed.info(tmp_path / "packed").datasets
    assert found.left_out == {json.loads(lines[0])["kind"]: 1}


def test_compressed_shards(tmp_path: Path):
    packed(make_captioned(tmp_path / "src", 30), tmp_path / "packed", compress="zstd", level=7, frame_bytes="16KiB")
    (found,) = fastfeed.info(tmp_path / "packed").datasets
    size = (tmp_path / "packed" / "src-000000.tar.zst").stat().st_size
    packed(tmp_path / "src", tmp_path / "plain")
    tar_bytes = (tmp_path / "plain" / "src-000000.tar").stat().st_size
    assert (found.size_bytes, found.tar_bytes) == (size, tar_bytes)
    how, ratio = "zstd level 7, frames of at most 16.0 KiB", f"{size / tar_bytes:.2f} of {format_size(tar_bytes)} of tar"
    assert found.compression.startswith(f"{how}, {ratio} (by zstd 1.")
