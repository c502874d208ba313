import pytest
from helpers import files_below, make_photos
from packing import Hook

import fastfeed
from fastfeed.errors import DestinationOccupied, UsageError
from fastfeed.sample import SkipEntry, SkipList


def splits(folder):
    for name, each in (("train", 4), ("val", 2)):
        make_photos(folder / name, each=each)
    return folder


def test_each_split_is_a_dataset_of_one_class_map_and_the_group_holds_them(tmp_path):
    source = splits(tmp_path / "s")
    result = fastfeed.pack(source, tmp_path / "out", max_side=8, samples_per_shard=3)
    assert [(d.split, d.name, d.samples, d.classes) for d in result.datasets] == [
        ("train", "train", 8, 2),
        ("val", "val", 4, 2),
    ]
    assert fastfeed.verify(tmp_path / "out").ok
    ds = fastfeed.open(tmp_path / "out" / "val")
    assert ds.identity(0).source == b"val/cat/000.jpg" and ds.classes == ["cat", "dog"]
    again = fastfeed.pack(source, tmp_path / "out", max_side=8, samples_per_shard=3)
    assert again.already_packed and again.datasets[0].digest == result.datasets[0].digest


def test_an_interrupted_call_goes_on_and_ends_with_the_same_bytes(tmp_path):
    source = splits(tmp_path / "s")
    fastfeed.pack(source, tmp_path / "whole", max_side=8, samples_per_shard=1)

    def stop(stage):
        if stage == "pack" and (tmp_path / "out" / "val").exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fastfeed.pack(source, tmp_path / "out", max_side=8, samples_per_shard=1, progress=Hook(on_advance=stop))
    assert not (tmp_path / "out" / ".fastfeed" / "pack.json").exists()
    fastfeed.pack(source, tmp_path / "out", max_side=8, samples_per_shard=1)
    assert files_below(tmp_path / "out") == files_below(tmp_path / "whole")
    fastfeed.pack(source, tmp_path / "out", max_side=9, samples_per_shard=1, overwrite=True)
    assert fastfeed.open(tmp_path / "out" / "train")[0][0].size == (9, 7) and fastfeed.verify(tmp_path / "out").ok


def test_a_skip_list_need_not_name_samples_of_each_split(tmp_path):
    source = splits(tmp_path / "s")
    result = fastfeed.pack(source, tmp_path / "out", max_side=8, exclude=SkipList([SkipEntry(source="val/cat/000.jpg")]))
    assert [d.samples for d in result.datasets] == [8, 3]
    with pytest.raises(UsageError, match="matches no sample"):
        fastfeed.pack(source, tmp_path / "no", max_side=8, exclude=SkipList([SkipEntry(source="nothing.jpg")]))


def test_a_dry_run_writes_nothing_and_a_single_dataset_is_not_replaced(tmp_path):
    source = splits(tmp_path / "s")
    plan = fastfeed.pack(source, tmp_path / "out", max_side=8, dry_run=True)
    assert plan.dry_run and len(plan.datasets) == 2 and not (tmp_path / "out").exists()
    fastfeed.pack(source / "train", tmp_path / "out")
    with pytest.raises(DestinationOccupied, match="one dataset without splits"):
        fastfeed.pack(source, tmp_path / "out", max_side=8)
