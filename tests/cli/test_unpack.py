"""``fastfeed unpack``: the files again, told and coded."""

from pathlib import Path

from commands import done, record, refused
from helpers import files_below, flip_bit, pack_photos, packed
from packing import packed_rows

import fastfeed
from fastfeed.packer.result import UnpackResult
from fastfeed.packer.unpack import WORKPLACE


def test_the_files_again(tmp_path: Path):
    dataset = pack_photos(tmp_path)
    text = " ".join(done("unpack", dataset, tmp_path / "out").split())
    assert text.startswith("Unpacked 6 files, ")
    assert text.endswith("Every byte was checked.")
    assert files_below(tmp_path / "out") == files_below(tmp_path / "photos")
    found = record("unpack", dataset, tmp_path / "out2", kind=UnpackResult)
    assert (found["files"], found["kept"], found["destination"]) == (6, 0, str(tmp_path / "out2"))


def test_a_destination_that_is_not_empty(tmp_path: Path):
    dataset = pack_photos(tmp_path)
    paragraph = refused("unpack", dataset, tmp_path / "photos", code=4)
    assert "the destination holds other files" in paragraph
    assert paragraph.endswith(
        "If an unpack of this dataset has finished there, nothing is left to do; else name a folder that is new or empty."
    )


def test_damage_is_told_and_once_mended_it_continues(tmp_path: Path):
    dataset = pack_photos(tmp_path)
    place = next(iter(place for place in fastfeed.open(dataset)._archive.places(2) if place.field == "jpg"))
    flip_bit(dataset / place.shard, place.start)
    paragraph = refused("unpack", dataset, tmp_path / "out", code=5)
    assert "sample 2, key 'cat/002', source 'cat/002.jpg', member 'cat/002.jpg'" in paragraph
    assert (tmp_path / "out" / WORKPLACE).exists()
    flip_bit(dataset / place.shard, place.start)
    assert "(2 of them by an interrupted run)" in " ".join(done("unpack", dataset, tmp_path / "out").split())
    assert files_below(tmp_path / "out") == files_below(tmp_path / "photos")


def test_a_destination_that_is_no_folder(tmp_path: Path):
    dataset = pack_photos(tmp_path)
    (tmp_path / "out").symlink_to("/dev/full")
    assert "the destination is a file" in refused("unpack", dataset, tmp_path / "out", code=4)
    (tmp_path / "out").unlink()
    (tmp_path / "out").symlink_to("nowhere/else")
    assert "cannot be written" in refused("unpack", dataset, tmp_path / "out", code=4)


def test_plain_tars_again(tmp_path: Path):
    dataset = pack_photos(tmp_path, shards=2, compress="zstd")
    text = " ".join(done("unpack", dataset, tmp_path / "out", "--shards").split())
    assert text.startswith("Unpacked 2 plain tars, ") and text.endswith("Every byte was checked.")
    packed(tmp_path / "photos", tmp_path / "plain", shards=2)
    assert files_below(tmp_path / "out") == files_below(tmp_path / "plain")
    found = record("unpack", dataset, tmp_path / "out2", "--shards", kind=UnpackResult)
    assert (found["files"], found["shards"], found["kept"]) == (0, 2, 0)
    assert "plain tars already" in refused("unpack", tmp_path / "out", tmp_path / "out3", "--shards", code=2)
    done("unpack", dataset, tmp_path / "files")
    assert files_below(tmp_path / "files") == files_below(tmp_path / "photos")


def test_indexed_rows_are_told(tmp_path: Path):
    text = " ".join(done("unpack", packed_rows(tmp_path), tmp_path / "out").split())
    assert "3 JPEGs have rows that pack --jpeg-rows indexed: the coefficients, and so the pixels, are those of the" in text
