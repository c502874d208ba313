import hashlib
import json
import os
from functools import partial

import pytest
from helpers import ColumnFile, encoded, make_captioned, make_photos, packed, photo
from packing import Hook, left_out_of, manifest_of, tree

import fastfeed
from fastfeed.archive.index import UserColumn
from fastfeed.media import Codec
from fastfeed.packer import publish


def test_the_manifest_names_every_file_with_its_digest(tmp_path):
    source = make_photos(tmp_path / "s")
    packed(source, tmp_path / "out", shards=2)
    manifest = manifest_of(tmp_path / "out")
    listed = [
        *manifest["shards"],
        *({**manifest[name], "file": f".fastfeed/{manifest[name]['file']}"} for name in ("index", "left_out")),
    ]
    for entry in listed:
        raw = (tmp_path / "out" / entry["file"]).read_bytes()
        assert (len(raw), hashlib.sha256(raw).hexdigest()) == (entry["size_bytes"], entry["sha256"])
    names = {str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert names == {entry["file"] for entry in listed} | {".fastfeed/manifest.json"}


def test_the_manifest_says_what_was_packed_and_how(tmp_path):
    source = make_captioned(tmp_path / "s", 5)
    tree(source, {".hidden": "x"})
    packed(source, tmp_path / "out", samples_per_shard=2, limit=4)
    manifest = manifest_of(tmp_path / "out")
    sizes = sum((source / f"{at:03d}.{field}").stat().st_size for at in range(4) for field in ("jpg", "txt"))
    assert {name: manifest[name] for name in ("samples", "members", "source_files", "source_bytes", "left_out_count")} == {
        "samples": 4, "members": 8, "source_files": 8, "source_bytes": sizes, "left_out_count": 1,
    }  # fmt: skip
    assert manifest["fields"] == ["jpg", "txt"] and manifest["classes"] is None
    assert (manifest["layout"], manifest["order"], manifest["name"], manifest["split"]) == ("files", "source", "s", "")
    assert manifest["options"]["samples_per_shard"] == 2 and manifest["options"]["limit"] == 4
    assert not any(str(tmp_path) in str(value) for value in manifest.values())  # it may be moved


def test_the_left_out_list_is_sorted_and_takes_any_name(tmp_path):
    source = tree(tmp_path / "s", {"a.txt": "x", ".z": "x", ".a\n": "x", ".\udcff": "x", ".é": "x"})
    packed(source, tmp_path / "out")
    lines = (tmp_path / "out" / ".fastfeed" / "left-out.jsonl").read_bytes().decode("ascii").splitlines()
    sources = [json.loads(line)["source"] for line in lines]
    assert sources == sorted(sources) == [".a\n", ".z", ".é", ".\udcff"]
    assert set(left_out_of(tmp_path / "out").values()) == {"hidden"}


def test_what_is_left_out_of_a_split_is_told_once(tmp_path):
    source = tmp_path / "s"
    make_photos(source / "train")
    make_photos(source / "val")
    tree(source, {".hidden": "x", "README": "x", "val/cat/.h": "x", "val/beside.txt": "x"})
    result = packed(source, tmp_path / "out")
    train, val = (left_out_of(tmp_path / "out" / split) for split in ("train", "val"))
    assert {**train, **val} == {".hidden": "hidden", "README": "beside", "val/cat/.h": "hidden", "val/beside.txt": "beside"}
    assert len(train) + len(val) == len(result.left_out) == 4


def test_size_orientation_and_codec_of_images_are_in_the_index(tmp_path):
    turned = photo(2, (30, 20))
    exif = turned.getexif()
    exif[0x112] = 6
    files = {
        "1.jpg": encoded(turned, exif=exif),
        "2.jpg": encoded(photo(1, (17, 9)), "PNG"),  # another codec than its name says
        "3.jpg": encoded(photo(1, (8, 8)))[:40],
        "4.jpg": b"",
    }
    packed(tree(tmp_path / "s", {f"c/{name}": raw for name, raw in files.items()}), tmp_path / "out", write_cls=False)
    index = ColumnFile.parse((tmp_path / "out" / ".fastfeed" / "index").read_bytes())
    found = {name: index.numbers("member", name) for name in ("codec", "width", "height", "orientation")}
    assert found["codec"] == [Codec.JPEG, Codec.PNG, Codec.JPEG, Codec.UNKNOWN]
    assert found["width"] == [30, 17, 0, 0] and found["height"] == [20, 9, 0, 0]
    assert found["orientation"] == [6, 0, 0, 0]
    assert [os.fsdecode(raw) for raw in index.strings("member", "source")] == [f"c/{name}" for name in files]


def test_shards_first_then_index_then_manifest_then_group(tmp_path):
    source = tmp_path / "s"
    make_photos(source / "train")
    make_photos(source / "val")
    packed(source, tmp_path / "out", shards=2)
    order = [
        *(tmp_path / "out" / "train").glob("*.tar"),
        tmp_path / "out" / "train" / ".fastfeed" / "index",
        tmp_path / "out" / "train" / ".fastfeed" / "left-out.jsonl",
        tmp_path / "out" / "train" / ".fastfeed" / "manifest.json",
        tmp_path / "out" / "val" / ".fastfeed" / "manifest.json",
        tmp_path / "out" / ".fastfeed" / "pack.json",
    ]
    written = [path.stat().st_mtime_ns for path in order]
    assert max(written[:2]) <= written[2] and written[2:] == sorted(written[2:])


def test_a_shard_that_goes_before_the_manifest_is_noticed(tmp_path):
    source = tree(tmp_path / "s", {f"{at}.txt": "x" for at in range(3)})
    shard = tmp_path / "out" / "s-000000.tar"

    def go(stage):
        if stage == "pack":
            shard.unlink(missing_ok=True)

    with pytest.raises(fastfeed.DestinationError, match="a finished shard has gone or changed before the manifest was written"):
        packed(source, tmp_path / "out", samples_per_shard=1, progress=Hook(on_finish=go))
    assert packed(source, tmp_path / "out", samples_per_shard=1).shards_kept == 2
    assert fastfeed.verify(tmp_path / "out").ok


def test_columns_of_the_user_go_into_the_index(tmp_path, monkeypatch):
    source = make_photos(tmp_path / "s", each=1)
    packed(source, tmp_path / "without")
    user = [UserColumn("clean", "bool", b"\0\1"), UserColumn("caption", "text", ["a", "né"])]
    monkeypatch.setattr(publish, "publish_dataset", partial(publish.publish_dataset, user=user))
    packed(source, tmp_path / "out")
    index = ColumnFile.parse((tmp_path / "out" / ".fastfeed" / "index").read_bytes())
    assert index.numbers("sample", "x.clean") == [0, 1]
    assert index.strings("sample", "x.caption") == [b"a", "né".encode()]
    plain = ColumnFile.parse((tmp_path / "without" / ".fastfeed" / "index").read_bytes())
    assert index.parts[: len(plain.parts)] == plain.parts
    assert fastfeed.verify(tmp_path / "out").ok
