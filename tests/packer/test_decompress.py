"""unpack --shards: from compressed shards to the dataset that packing without compression would have made."""

import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers import ROOT, files_below, flip_bit, make_captioned, make_photos, packed, rewrite_manifest
from packing import Hook, tree, wait_for

import fastfeed
from fastfeed.errors import DestinationFull, DestinationOccupied, IndexDamaged, ShardDamaged, UsageError
from fastfeed.packer import decompress
from fastfeed.store.frames import FrameStore

SMALL: dict[str, Any] = {"compress": "zstd", "frame_bytes": 4096}


def splits(folder: Path) -> Path:
    for split, each in (("train", 20), ("val", 3)):
        make_photos(folder / split, each=each)
        (folder / split / "cat" / ".DS_Store").write_bytes(b"stray")
    return folder


@pytest.fixture
def both(tmp_path: Path) -> Path:
    """A source, packed compressed and plain."""
    source = splits(tmp_path / "s")
    packed(source, tmp_path / "zst", samples_per_shard=5, **SMALL)
    packed(source, tmp_path / "plain", samples_per_shard=5)
    return tmp_path


def test_it_is_what_packing_without_compression_writes_file_by_file(both):
    hook = Hook()
    result = fastfeed.unpack(both / "zst", both / "out", shards=True, progress=hook)
    assert files_below(both / "out") == files_below(both / "plain")
    assert (result.datasets, result.shards, result.files, result.kept) == (2, 10, 0, 0)
    tars = sum(len(raw) for name, raw in files_below(both / "plain").items() if name.endswith(".tar"))
    assert result.size_bytes == tars == hook.size_bytes["unpack"] and hook.items["unpack"] == 10
    assert hook.stages == [("unpack", 10, tars)]
    assert fastfeed.verify(both / "out").ok


def test_one_split_is_a_dataset_by_itself(both):
    fastfeed.unpack(both / "zst" / "val", both / "out", shards=True)
    assert files_below(both / "out") == files_below(both / "plain" / "val")


def test_plain_tars_are_refused_with_words(both):
    with pytest.raises(UsageError, match=r"the shards here are plain tars already .*Copy the folder"):
        fastfeed.unpack(both / "plain", both / "out", shards=True)
    assert not (both / "out").exists()


@pytest.mark.parametrize("content", ["file", "folder"])
def test_something_else_at_the_destination_is_refused(both, content):
    if content == "file":
        (both / "out").write_text("x")
    else:
        tree(both / "out", {"mine.txt": "x"})
    before = files_below(both / "out") if content == "folder" else {}
    with pytest.raises(DestinationOccupied, match="Name a folder that is new or empty"):
        fastfeed.unpack(both / "zst", both / "out", shards=True)
    assert not before or files_below(both / "out") == before


def test_a_finished_one_and_another_dataset_are_refused(both):
    fastfeed.unpack(both / "zst", both / "out", shards=True)
    before = files_below(both / "out")
    with pytest.raises(DestinationOccupied, match=r"a packed dataset is there already.*nothing is left to do"):
        fastfeed.unpack(both / "zst", both / "out", shards=True)
    assert files_below(both / "out") == before
    with pytest.raises(UsageError, match="the destination lies in the packed dataset"):
        fastfeed.unpack(both / "zst", both / "zst" / "out", shards=True)


class Enough(Exception):
    pass


def interrupted(both: Path, shards: int = 4) -> None:
    def check(stage: str) -> None:
        if hook.items.get("unpack", 0) >= shards:
            raise Enough

    hook = Hook(on_advance=check)
    with pytest.raises(Enough):
        fastfeed.unpack(both / "zst", both / "out", shards=True, progress=hook)


def test_an_interrupted_one_is_continued(both):
    interrupted(both)
    with pytest.raises(fastfeed.DatasetError, match=r"has not finished .*Run the same fastfeed command again"):
        fastfeed.open(both / "out")
    assert not list((both / "out").rglob("*.part"))
    done = list((both / "out").rglob("*.tar"))
    result = fastfeed.unpack(both / "zst", both / "out", shards=True)
    assert result.kept == len(done) >= 4
    assert files_below(both / "out") == files_below(both / "plain")


def test_a_tar_that_was_cut_in_between_is_written_again(both):
    interrupted(both)
    os.truncate(next((both / "out").rglob("*.tar")), 512)
    fastfeed.unpack(both / "zst", both / "out", shards=True)
    assert files_below(both / "out") == files_below(both / "plain")


def test_an_interrupted_one_is_no_place_for_another(both):
    interrupted(both)
    other = both / "other"
    packed(make_captioned(both / "c"), other, **SMALL)
    with pytest.raises(DestinationOccupied, match="an interrupted unpack of another dataset is there"):
        fastfeed.unpack(other, both / "out", shards=True)
    with pytest.raises(DestinationOccupied, match=r"an interrupted fastfeed unpack --shards is there"):
        packed(both / "s", both / "out", samples_per_shard=5)
    packed(both / "s", both / "out", samples_per_shard=5, overwrite=True)
    assert files_below(both / "out") == files_below(both / "plain")


def test_an_unfinished_pack_is_no_place_for_it(both):
    def stop(stage: str) -> None:
        if stage == "pack":
            raise Enough

    with pytest.raises(Enough):
        packed(both / "s", both / "out", progress=Hook(on_advance=stop), samples_per_shard=1)
    with pytest.raises(DestinationOccupied, match="an unfinished pack is there"):
        fastfeed.unpack(both / "zst", both / "out", shards=True)


CODE = "import fastfeed, sys\nfastfeed.unpack(sys.argv[1], sys.argv[2], shards=True)"


@pytest.mark.long
def test_killed_it_is_continued(tmp_path):
    chance = random.Random(1)
    texts = {f"{at:02d}.txt": bytes(chance.choices(b"abcdef \n", k=400_000)) for at in range(40)}
    packed(tree(tmp_path / "s", texts), tmp_path / "zst", samples_per_shard=1, **SMALL)
    packed(tmp_path / "s", tmp_path / "plain", samples_per_shard=1)
    for goal in (0, 10, 20):
        command = [sys.executable, "-c", CODE, tmp_path / "zst", tmp_path / "out"]
        with subprocess.Popen(command, cwd=ROOT) as process:
            wait_for(
                lambda goal=goal, process=process: (
                    len(list((tmp_path / "out").glob("*.tar"))) > goal or process.poll() is not None
                ),
                "tars",
            )
            process.send_signal(signal.SIGKILL)
    assert fastfeed.unpack(tmp_path / "zst", tmp_path / "out", shards=True).kept > 10
    assert files_below(tmp_path / "out") == files_below(tmp_path / "plain")


# ------------------------------------------------------------------------------------------------ damage
def test_a_damaged_frame_names_its_sample_and_leaves_no_tar_of_that_shard(both):
    archive = fastfeed.open(both / "zst" / "train")._archive
    place = next(place for place in archive.places(7) if place.field == "jpg")
    store = fastfeed.open(both / "zst" / "train")._reader.store  # type: ignore[attr-defined]
    assert isinstance(store, FrameStore)
    table = store._table(place.shard)
    frame = table[table.frames_of(place.start, place.stop)[0]]
    flip_bit(both / "zst" / "train" / place.shard, frame.start + 20)
    with pytest.raises(ShardDamaged, match=rf"frame {frame.number} \(bytes .* cannot be decoded") as caught:
        fastfeed.unpack(both / "zst", both / "out", shards=True)
    first = next(at for at in range(5, 8) if any(p.stop > frame.tar_start for p in archive.places(at)))
    assert (caught.value.shard, caught.value.sample) == (place.shard, first)
    assert caught.value.member is not None and caught.value.source is not None
    assert not (both / "out" / "train" / place.shard.removesuffix(".zst")).exists()
    assert not list((both / "out").rglob("*.part"))


def test_a_damaged_seek_table(both):
    shard = both / "zst" / "val" / "val-000000.tar.zst"
    flip_bit(shard, shard.stat().st_size - 12 - 9)
    with pytest.raises(ShardDamaged, match="the seek table of a compressed shard does not add up"):
        fastfeed.unpack(both / "zst", both / "out", shards=True)


def test_a_shard_of_another_size_or_that_is_missing(both):
    shard = both / "zst" / "val" / "val-000000.tar.zst"
    with shard.open("ab") as file:
        file.write(b"x")
    with pytest.raises(ShardDamaged, match="a shard has the wrong size"):
        fastfeed.unpack(both / "zst", both / "out", shards=True)
    shard.unlink()
    with pytest.raises(ShardDamaged, match="a shard cannot be found"):
        fastfeed.unpack(both / "zst", both / "out", shards=True)


def test_a_shard_of_whole_frames_that_is_not_the_manifests(tmp_path):
    """The tar is right, frames and table fit each other, and the sha256 is that of another file."""
    source = make_captioned(tmp_path / "s", 6)
    packed(source, tmp_path / "zst", **SMALL)
    packed(source, tmp_path / "other", level=1, **SMALL)
    shutil.copy(tmp_path / "other" / "s-000000.tar.zst", tmp_path / "zst")
    size = (tmp_path / "zst" / "s-000000.tar.zst").stat().st_size
    rewrite_manifest(tmp_path / "zst", lambda body: body["shards"][0].update(size_bytes=size))
    with pytest.raises(ShardDamaged, match=r"a shard's sha256 differs from the manifest's"):
        fastfeed.unpack(tmp_path / "zst", tmp_path / "out", shards=True)
    assert not list((tmp_path / "out").rglob("*.tar"))


@pytest.mark.parametrize("name", ["index", "left-out.jsonl"])
def test_a_damaged_file_of_the_home(both, name):
    path = both / "zst" / "val" / ".fastfeed" / name
    flip_bit(path, path.stat().st_size - 1)
    with pytest.raises(IndexDamaged, match=rf"\.fastfeed/{name} is damaged"):
        fastfeed.unpack(both / "zst", both / "out", shards=True)
    assert not (both / "out" / ".fastfeed" / "pack.json").exists()


def test_space_is_checked_before_the_first_byte(both, monkeypatch):
    monkeypatch.setattr(decompress, "free_bytes", lambda _: 100_000)
    with pytest.raises(DestinationFull, match=r"there is not enough free space .*expected 1\.\d MiB, got 97\.7 KiB free"):
        fastfeed.unpack(both / "zst", both / "out", shards=True)
    assert not list((both / "out").rglob("*.tar"))


def test_a_shard_that_cannot_be_read_is_the_shards_fault(both):
    shard = both / "zst" / "val" / "val-000000.tar.zst"
    size = shard.stat().st_size
    shard.unlink()
    shard.mkdir()
    real = shard.stat().st_size
    rewrite_manifest(both / "zst" / "val", lambda body: body["shards"][0].update(size_bytes=real))
    assert size != real
    with pytest.raises(ShardDamaged, match=r"a shard cannot be read: not a regular file .*shard val-000000.tar.zst"):
        fastfeed.unpack(both / "zst" / "val", both / "out", shards=True)
