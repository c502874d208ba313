"""fastfeed/config.py: a configuration proves itself; the environment of workers."""

import os
from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import pytest

from fastfeed.config import (
    DEFAULT_FRAME_BYTES,
    DEFAULT_LEVEL,
    DEFAULT_SHARD_BYTES,
    OF_COMPRESSION,
    Cache,
    ImageConfig,
    PackConfig,
    PackOptions,
    cache_config,
    image_config,
    pack_config,
    package_folder,
)
from fastfeed.errors import UsageError


def test_the_defaults_are_legal():
    config = PackConfig()
    assert (config.shard_bytes, config.layout, config.write_cls) == (DEFAULT_SHARD_BYTES, "auto", True)


def test_options_are_the_fields():
    assert set(PackOptions.__annotations__) == {field.name for field in fields(PackConfig)}


def test_it_is_frozen():
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'shards'"):
        PackConfig().shards = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"layout": "tree"}, "layout is one of auto, splits, classes, files: got 'tree'"),
        ({"group": "all"}, "group is one of auto, stem, none: got 'all'"),
        ({"class_map": "both"}, "class_map is one of equal, union: got 'both'"),
        ({"on_error": "ignore"}, "on_error is one of stop, skip: got 'ignore'"),
        ({"shard_bytes": 0}, "shard_bytes is a whole number from 1: got 0"),
        ({"shards": -1}, "shards is a whole number from 1: got -1"),
        ({"samples_per_shard": 0}, "samples_per_shard is a whole number from 1: got 0"),
        ({"limit": 0}, "limit is a whole number from 1: got 0"),
        ({"limit": 2.0}, "limit is a whole number from 1: got 2.0"),
        ({"shard_bytes": "1MiB"}, "shard_bytes is a whole number from 1: got 1MiB"),
        ({"shards": 2, "samples_per_shard": 2}, "shards and samples_per_shard exclude each other"),
        ({"name": "a.b"}, "a shard name is 1 to 60 letters, digits, - and _: got 'a.b'"),
        ({"name": ""}, "a shard name is 1 to 60"),
        ({"name": "x" * 61}, "a shard name is 1 to 60"),
        ({"name": "ünder"}, "a shard name is 1 to 60"),
        ({"name": "a\n"}, "a shard name is 1 to 60"),
        ({"compress": "gzip"}, "compress is zstd, or None: got 'gzip'"),
        ({"level": 3}, "level and frame_bytes are for compressed shards. Add --compress zstd"),
        ({"frame_bytes": 8192}, "level and frame_bytes are for compressed shards"),
        ({"compress": "zstd", "level": 0}, "level is a whole number from 1 to 22: got 0"),
        ({"compress": "zstd", "level": 23}, "level is a whole number from 1 to 22: got 23"),
        ({"compress": "zstd", "level": 3.0}, "level is a whole number from 1 to 22: got 3.0"),
        ({"compress": "zstd", "frame_bytes": 4095}, "frame_bytes is from 4.0 KiB to 64.0 MiB: got 4095. Whoever reads one"),
        ({"compress": "zstd", "frame_bytes": (64 << 20) + 1}, "frame_bytes is from 4.0 KiB to 64.0 MiB"),
    ],
)
def test_what_is_wrong_is_refused_by_name(options, text):
    with pytest.raises(UsageError, match=text):
        PackConfig(**options)


def test_a_configuration_from_options():
    assert pack_config({}) == PackConfig()
    assert pack_config({"shards": 3, "write_cls": False}) == PackConfig(shards=3, write_cls=False)


@pytest.mark.parametrize(("given", "size"), [("1MiB", 1 << 20), ("1.5GB", 1_500_000_000), ("4096", 4096), (7, 7)])
def test_a_size_may_be_a_text(given, size):
    options = {"shard_bytes": given}
    assert pack_config(options).shard_bytes == size
    assert options == {"shard_bytes": given}, "the caller's mapping is the caller's"


def test_what_is_compressed_has_a_level_and_a_size_of_frames():
    assert PackConfig().framing is None
    assert PackConfig(compress="zstd").framing == (DEFAULT_LEVEL, DEFAULT_FRAME_BYTES) == (3, 256 << 10)
    assert pack_config({"compress": "zstd", "level": 22, "frame_bytes": "64MiB"}).framing == (22, 64 << 20)
    assert PackConfig(compress="zstd", level=1, frame_bytes=4096).framing == (1, 4096)


def test_a_record_of_plain_tars_has_no_word_of_compression():
    names = {field.name for field in fields(PackConfig)}
    assert set(PackConfig().record()) == names - set(OF_COMPRESSION)
    assert PackConfig(compress="zstd").record() == {
        **PackConfig().record(), "compress": "zstd", "level": 3, "frame_bytes": 262144,
    }  # fmt: skip
    assert PackConfig(compress="zstd").record() == PackConfig(compress="zstd", level=3, frame_bytes=1 << 18).record()


def test_rows_of_jpegs_are_a_change_of_no_pixel():
    assert not ImageConfig().changes
    rows, smaller = ImageConfig(jpeg_rows=True), ImageConfig(max_side=5)
    assert (rows.changes, rows.changes_pixels) == (True, False)
    assert (smaller.changes, smaller.changes_pixels) == (True, True)
    assert rows.record()["jpeg_rows"] is True
    assert "jpeg_rows" not in smaller.record(), "what was packed before there were rows stays the same pack"
    assert image_config({"jpeg_rows": True, "only_field": "jpg"}) == ImageConfig(jpeg_rows=True, only_field=("jpg",))


NAMES = ", ".join(field.name for field in fields(PackConfig))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"shard_size": 5}, f"pack has no option shard_size: expected among {NAMES}, got shard_size"),
        ({"b": 1, "shards": 1, "a": 2}, f"pack has no option a, b: expected among {NAMES}, got a, b"),
        ({"shard_bytes": "0"}, "shard_bytes is a whole number from 1: got 0"),
        ({"shards": "3"}, "shards is a whole number from 1: got 3"),
        ({"compress": "zstd", "level": "3"}, "level is a whole number from 1 to 22: got 3"),
    ],
)
def test_options_that_are_wrong_are_refused(options, text):
    with pytest.raises(UsageError) as caught:
        pack_config(options)
    assert str(caught.value) == text


@pytest.mark.parametrize("text", ["big", "", "-1MiB", "5 parsecs"])
def test_a_size_that_is_none_is_refused_by_name(text):
    with pytest.raises(UsageError, match=r"^shard_bytes: .*size"):
        pack_config({"shard_bytes": text})
    with pytest.raises(UsageError, match=r"^frame_bytes: .*size"):
        pack_config({"compress": "zstd", "frame_bytes": text})


def test_the_folder_that_this_very_package_is_in():
    import fastfeed

    assert os.path.dirname(os.path.dirname(fastfeed.__file__)) == package_folder()


@pytest.mark.parametrize("option", [{"resize_short": 8}, {"apply_exif": True}])
def test_what_is_for_all_images_does_not_go_with_an_audit(option):
    with pytest.raises(UsageError, match="with from_audit only those change that the audit names"):
        image_config(option, audited=True)
    assert image_config({"only_field": "jpg"}, audited=True).only_field == ("jpg",)


@pytest.mark.parametrize(("given", "budget"), [("8GiB", 8 << 30), (5, 5), ("auto", None), (True, None), (Cache("1kB"), 1000)])
def test_a_cache_is_a_number_of_bytes_or_auto(given, budget):
    config = cache_config(given)
    assert config is not None and (config.budget_bytes, config.place, config.keep) == (budget, None, False)


def test_no_cache_and_where_one_is(tmp_path):
    assert cache_config(None) is cache_config(False) is None
    placed = cache_config(Cache("1kB", keep=True), tmp_path)
    assert placed == Cache(1000, tmp_path, keep=True) and placed.place == str(tmp_path)
    assert cache_config("1kB", tmp_path) == Cache(1000, str(tmp_path))
    assert str(placed) == f"1000 B in {tmp_path}, kept" and str(Cache()) == "as much as is decided"
    assert Cache("1kB", "~/caches").place == str(Path.home() / "caches")
    with pytest.raises(UsageError, match="given twice"):
        cache_config(Cache("1kB", tmp_path), "/elsewhere")
    with pytest.raises(UsageError, match="nothing says how large"):
        cache_config(None, tmp_path)


@pytest.mark.parametrize("wrong", ["", 5])
def test_what_is_no_place_of_a_cache(wrong):
    with pytest.raises(UsageError, match="cache_dir is a folder"):
        cache_config("1kB", wrong)


@pytest.mark.parametrize("wrong", ["", "large", "0 B", 0, -5, 1.5, [1]])
def test_what_is_no_size_of_a_cache(wrong):
    with pytest.raises(UsageError, match="cache"):
        cache_config(wrong)
