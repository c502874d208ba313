import os

import pytest
from helpers import files_below, make_photos, packed
from packing import Interrupt, interrupt_after, tree
from rowsets import Samples, proven

import fastfeed
from fastfeed.errors import DestinationOccupied, SourceChanged

REFUSED = "without --overwrite this would be refused: "


def rows(count=8, **more):
    return Samples([{"txt": f"{at}", **more} for at in range(count)])


def notes(tmp_path, source=None, **options):
    before = files_below(tmp_path)
    found = packed(source or rows(), tmp_path / "out", dry_run=True, **{"samples_per_shard": 1, **options})
    assert files_below(tmp_path) == before and found.dry_run
    return list(found.notes)


def test_a_dry_run_says_what_is_there(tmp_path):
    assert notes(tmp_path) == [] and not (tmp_path / "out").exists()
    with pytest.raises(Interrupt):
        packed(rows(), tmp_path / "out", samples_per_shard=1, progress=interrupt_after(3))
    assert notes(tmp_path) == ["the destination holds an unfinished pack with these options: it would be continued"]
    assert notes(tmp_path, shuffle=1) == [
        f"{REFUSED}an unfinished pack with other options is there (--shuffle was not given, now 1)"
    ]
    assert notes(tmp_path, rows(7)) == [
        f"{REFUSED}the source has changed since this pack began (samples that were looked at, how many rows there are)"
    ]
    assert notes(tmp_path, overwrite=True) == ["the destination holds an unfinished pack: it would be replaced"]
    packed(rows(), tmp_path / "out", samples_per_shard=1)
    assert notes(tmp_path) == ["the destination holds this very pack: there would be nothing to do"]
    assert notes(tmp_path, column=[]) == [
        f"{REFUSED}a finished pack with other options is there (--column was not given, now none)"
    ]
    assert notes(tmp_path, rows(7)) == [f"{REFUSED}the source has changed since it was packed"]
    assert notes(tmp_path, overwrite=True) == ["the destination holds a finished pack: it would be replaced"]
    tree(tmp_path, {"other/mine.txt": "x"})
    found = packed(rows(), tmp_path / "other", dry_run=True)
    assert found.notes == (
        "this would be refused: the destination holds other files, and fastfeed shares a folder with nobody",
    )


def test_packs_of_folders_are_others(tmp_path):
    make_photos(tmp_path / "photos")
    packed(tmp_path / "photos", tmp_path / "out")
    with pytest.raises(DestinationOccupied, match=r"a finished pack of a folder of files is there.*--overwrite"):
        packed(rows(), tmp_path / "out")
    for split in ("train", "val"):
        make_photos(tmp_path / "splits" / split)
    packed(tmp_path / "splits", tmp_path / "group")
    with pytest.raises(DestinationOccupied, match="a finished pack of a folder with splits is there"):
        packed(rows(), tmp_path / "group")
    packed(rows(), tmp_path / "group", overwrite=True)
    assert len(proven(tmp_path / "group")) == 8 and not (tmp_path / "group" / "train").exists()


def test_a_finished_pack_is_left_alone(tmp_path):
    first = packed(rows(), tmp_path / "out")
    before = files_below(tmp_path / "out")
    again = packed(rows(), tmp_path / "out")
    assert again.already_packed and again.datasets == first.datasets and files_below(tmp_path / "out") == before
    os.truncate(tmp_path / "out" / "data-000000.tar", 512)
    with pytest.raises(fastfeed.DatasetError, match="a shard has the wrong size"):
        packed(rows(), tmp_path / "out")


def test_what_changed_is_told(tmp_path):
    with pytest.raises(Interrupt):
        packed(rows(), tmp_path / "out", samples_per_shard=1, progress=interrupt_after(3))
    with pytest.raises(
        SourceChanged, match=r"the source has changed since this pack began \(samples that were looked at\).*--overwrite"
    ):
        packed(rows(extra=1), tmp_path / "out", samples_per_shard=1)

    class Other(Samples):
        pass

    with pytest.raises(SourceChanged, match=r"began \(its type\)"):
        packed(Other(rows().items), tmp_path / "out", samples_per_shard=1)
