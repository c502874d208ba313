"""Whether what is at a destination already is this very pack; most of it is in test_job."""

import pytest
from helpers import make_photos

import fastfeed
from fastfeed.errors import DestinationOccupied


def test_options_are_told_in_the_words_of_the_command_line(tmp_path):
    source = make_photos(tmp_path / "photos")
    fastfeed.pack(source, tmp_path / "out", shard_bytes="1MiB")
    words = r"\(--limit was not given, now 2; --shard-size was 1\.0 MiB, now 2\.0 MiB; --cls was True, now False\)"
    with pytest.raises(DestinationOccupied, match=words):
        fastfeed.pack(source, tmp_path / "out", shard_bytes="2MiB", write_cls=False, limit=2)


def test_a_dry_run_with_overwrite_says_what_it_would_replace(tmp_path):
    source = make_photos(tmp_path / "photos")
    fastfeed.pack(source, tmp_path / "out")
    result = fastfeed.pack(source, tmp_path / "out", shards=2, dry_run=True, overwrite=True)
    assert result.notes == ("the destination holds a finished pack: it would be replaced",)


def test_an_empty_folder_that_is_new_counts_as_a_change(tmp_path):
    """An empty class changes the class map, though no file differs."""
    source = make_photos(tmp_path / "photos")
    with pytest.raises(RuntimeError, match="stop here"):
        fastfeed.pack(source, tmp_path / "out", on_plan=_stop)
    (source / "zebra").mkdir()
    with pytest.raises(fastfeed.SourceError, match="the source has changed since this pack began: folder zebra is new"):
        fastfeed.pack(source, tmp_path / "out")


def _stop(_: object) -> None:
    msg = "stop here"
    raise RuntimeError(msg)
