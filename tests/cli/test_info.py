"""``fastfeed info``: what is inside, as tables and as a record."""

from pathlib import Path

from commands import done, record, refused
from helpers import add_user_columns, encoded, make_captioned, make_photos, pack_photos, packed, photo
from packing import packed_rows

import fastfeed
from fastfeed.archive.index import UserColumn
from fastfeed.archive.summary import DatasetInfo, InfoResult
from fastfeed.store.cachelist import CachesResult


def test_what_is_inside(tmp_path: Path):
    dataset = pack_photos(tmp_path, shards=2)
    text = done("info", dataset)
    for words in (
        "samples   6 in 2 shards",
        "classes, order imagefolder",
        "left out  nothing",
        fastfeed.open(dataset).digest,
        "JPEG 6",
        "16/16/16",
        "columns   codec, height, key, label, offset, orientation, size, source, width, xxh3   (ds.column(name))",
        "dog",
    ):
        assert words in text


def test_columns_of_the_user(tmp_path: Path):
    dataset = pack_photos(tmp_path)
    add_user_columns(dataset, UserColumn("size", "text", list("abcdef")), UserColumn("clean", "bool", bytes(6)))
    assert "\nown       size (text), clean (bool)\n" in done("info", dataset)


def test_of_all_splits(tmp_path: Path):
    make_photos(tmp_path / "src" / "train")
    make_photos(tmp_path / "src" / "val", each=1)
    packed(tmp_path / "src", tmp_path / "packed")
    text = done("info", tmp_path / "packed")
    assert "train (split train)" in text
    assert "val (split val)" in text


def test_the_record(tmp_path: Path):
    packed(make_captioned(tmp_path / "src"), tmp_path / "packed")
    found = record("info", tmp_path / "packed", kind=InfoResult)
    (dataset,) = found["datasets"]
    assert set(dataset) == set(DatasetInfo.__slots__)
    assert (dataset["samples"], dataset["classes"], [field["name"] for field in dataset["fields"]]) == (4, None, ["jpg", "txt"])


def test_quiet_is_silent_and_still_fails_where_nothing_is(tmp_path: Path):
    assert done("info", pack_photos(tmp_path), "--quiet") == ""
    assert "no packed dataset is in this folder" in refused("info", tmp_path / "photos", "--quiet", code=9)


def test_rows_of_jpegs_are_counted_where_there_are_any(tmp_path: Path):
    dataset = packed_rows(tmp_path, {"cat/small.jpg": encoded(photo(1, (40, 8)))})
    assert "row-indexed" in done("info", dataset)
    fields = record("info", dataset, kind=InfoResult)["datasets"][0]["fields"]
    assert {field["name"]: field["row_indexed"] for field in fields} == {"cls": 0, "jpg": 3}
    assert "row-indexed" not in done("info", pack_photos(tmp_path / "plain"))


def test_caches_are_listed_and_cleared(tmp_path: Path):
    dataset = pack_photos(tmp_path)
    place = tmp_path / "place"
    place.mkdir()
    assert done("info", "--cache", "--cache-dir", place) == f"no caches in {place}; --cache-dir names another place\n"
    opened = fastfeed.open(dataset, cache=fastfeed.Cache("8MiB", keep=True), cache_dir=place)
    opened[0]
    assert f"of {dataset}" in done("info", "--cache", "--cache-dir", place) and "in use" in done(
        "info", dataset, "--cache-dir", place
    )
    assert (
        done("info", tmp_path / "photos", "--cache", "--cache-dir", place)
        == f"no caches in {place}; --cache-dir names another place\n"
    )
    assert "in use" in done("info", "--clear-cache", "--cache-dir", place)
    del opened
    assert done("info", "--cache", "--cache-dir", place).endswith(": kept\n")
    found = record("info", "--clear-cache", "--cache-dir", place, kind=CachesResult)
    assert [cache["data"] for cache in found["removed"]] == [str(dataset)] and found["caches"] == []
    assert not list(place.iterdir())


def test_without_a_path_there_is_nothing_to_describe():
    assert "none is given" in refused("info", code=2)
