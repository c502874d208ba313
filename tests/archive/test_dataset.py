"""fastfeed/archive/dataset.py against README.md §1, §5.2 and §6: opening, places proven at use, and folders that are lost."""

import json
import os
import re
import shutil
import subprocess
import sys
from array import array

import numpy as np
import pytest
from helpers import (
    ColumnFile,
    add_columns,
    files_below,
    findings_of,
    flip_bit,
    make_photos,
    pack_photos,
    packed,
    rewrite_index,
    rewrite_manifest,
    row_set,
)

import fastfeed
from fastfeed.archive.columns import ColumnData
from fastfeed.archive.dataset import Archive, datasets_in, read_record
from fastfeed.archive.manifest import Group, Manifest
from fastfeed.errors import IndexDamaged, ManifestDamaged, NotADataset, ShardDamaged, VersionUnsupported
from fastfeed.jpegrows import to_column


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return pack_photos(tmp_path_factory.mktemp("dataset"), each=4, shards=3, name="set")


@pytest.fixture(scope="module")
def original_group(tmp_path_factory):
    folder = tmp_path_factory.mktemp("group")
    make_photos(folder / "in" / "train", each=2)
    make_photos(folder / "in" / "val", each=1)
    packed(folder / "in", folder / "out")
    return folder / "out"


@pytest.fixture
def dataset(original, tmp_path):
    """A copy to damage: eight photos with a cls member each, in three shards of 3, 3 and 2."""
    return shutil.copytree(original, tmp_path / "packed")


@pytest.fixture
def group(original_group, tmp_path):
    """A copy to damage: train/ with four photos, val/ with two."""
    return shutil.copytree(original_group, tmp_path / "group")


def test_an_archive_knows_where_each_member_lies(original):
    archive = Archive(str(original))
    photos = sorted((original.parent / "photos").rglob("*.jpg"))
    assert len(archive) == 8
    assert archive.firsts == [0, 3, 6, 8]
    assert [archive.shard_of(position).file[-5] for position in range(8)] == list("00011122")
    for position, photo in enumerate(photos):
        first, second = archive.places(position)
        raw = (original / second.shard).read_bytes()
        assert archive.key(position) == f"{photo.parent.name}/{photo.stem}"
        assert (first.field, second.field) == ("cls", "jpg")
        assert raw[first.start : first.stop] == (b"0" if photo.parent.name == "cat" else b"1")
        assert raw[second.start : second.stop] == photo.read_bytes()
        assert archive.member_name(position, "jpg") == f"{archive.key(position)}.jpg"
    archive.prove_shard_sizes()


def jpeg_rows(edges: list[int]) -> tuple[ColumnData, ColumnData]:
    """Columns for the dataset below: restart intervals of the photo of sample 1, and no others."""
    row = to_column(np.array(edges))
    starts = array("Q", [0] * 4 + [len(row)] * 13)
    rows = ColumnData("member", "jpeg_intervals", "bytes", (starts, row), required=False)
    return rows, ColumnData("member", "pixels_xxh3", "uint64", (array("Q", [0] * 16),), required=False)


def test_an_archive_knows_where_the_rows_of_a_jpeg_begin(dataset):
    assert Archive(str(dataset)).jpeg_rows(1, next(Archive(str(dataset)).places(1))) is None
    add_columns(dataset, *jpeg_rows([300, 320, 340]))
    archive = Archive(str(dataset))
    class_member, photo = archive.places(1)
    assert archive.jpeg_rows(1, class_member) is None
    starts = archive.jpeg_rows(1, photo)
    assert starts is not None
    assert starts.tolist() == [300, 320, 340]
    assert all(archive.jpeg_rows(0, place) is None for place in archive.places(0))


def test_i7_rows_that_leave_their_member_are_refused_at_use_and_named(dataset):
    add_columns(dataset, *jpeg_rows([300, 320, 60_000]))
    archive = Archive(str(dataset))
    _, photo = archive.places(1)
    with pytest.raises(IndexDamaged, match=r"row 3 of column jpeg_intervals.*sample 1, key 'cat/001'.*member 'cat/001\.jpg'"):
        archive.jpeg_rows(1, photo)


def test_w1_n2_the_bytes_do_not_depend_on_the_number_of_workers(original, tmp_path):
    packed(original.parent / "photos", tmp_path / "again", shards=3, name="set", workers=3)
    assert files_below(tmp_path / "again") == files_below(original)


@pytest.mark.long
def test_r2_a_shard_that_is_cut_while_it_is_open_is_an_error_and_no_crash(dataset):
    code = (
        "import os, sys, fastfeed\n"
        "dataset = fastfeed.open(sys.argv[1])\n"
        "dataset[0]\n"
        "os.truncate(sys.argv[1] + '/set-000000.tar', 100)\n"
        "try:\n"
        "    dataset[0]\n"
        "except fastfeed.DatasetError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, dataset], capture_output=True, text=True, check=True)
    assert "a shard ends too early: it was cut" in done.stdout
    assert "shard set-000000.tar, sample 0, key 'cat/000'" in done.stdout


def test_r1_t8_a_flipped_payload_bit_is_found_at_use_and_named(dataset):
    archive = Archive(str(dataset))
    (place,) = (place for place in archive.places(4) if place.field == "jpg")
    flip_bit(dataset / place.shard, place.start + 100)
    opened = fastfeed.open(str(dataset))
    assert opened[3] is not None
    where = r"shard set-000001.tar, sample 4, key 'dog/000', source 'dog/000.jpg', member 'dog/000.jpg', "
    where += rf"bytes \[{place.start}, {place.stop}\)"
    with pytest.raises(ShardDamaged, match=where):
        opened[4]


# Opening: folders that are no dataset, or have lost what makes them one.


def test_f2_a_folder_that_does_not_exist(tmp_path):
    with pytest.raises(NotADataset, match=r"nothing does not exist. Give the folder that fastfeed pack wrote"):
        read_record(str(tmp_path / "nothing"))


def test_f2_a_file_is_no_dataset(dataset):
    (dataset / "notes").write_text("")
    with pytest.raises(NotADataset, match=r"notes is not a folder"):
        read_record(str(dataset / "notes"))


def test_f2_a_shard_instead_of_its_folder(dataset):
    for name in ("set-000000.tar", "*.tar"):
        with pytest.raises(NotADataset) as caught:
            read_record(str(dataset / name))
        message = f"{dataset / name} is a part of a packed dataset, whose index and checksums are for all of it"
        assert (caught.value.message, caught.value.hint) == (message, f"Give the folder: {str(dataset)!r}.")


def test_f2_tars_without_an_index_beside_them(dataset, tmp_path):
    alone = shutil.copy(dataset / "set-000000.tar", tmp_path)
    other = shutil.copy(alone, tmp_path / "other.tar")
    for path, begin in (
        (str(alone), "If fastfeed pack wrote it, its checksums are in .fastfeed"),
        (str(other), "fastfeed index"),
    ):
        with pytest.raises(NotADataset, match=r"\.tar names tars, not a packed dataset\. ") as caught:
            read_record(path)
        hint = str(caught.value.hint)
        assert hint.startswith(begin) and f"fastfeed audit {path!r} looks at each sample" in hint
    with pytest.raises(NotADataset, match=r"gone\.tar does not exist"):
        read_record(str(tmp_path / "gone.tar"))


def test_f2_an_empty_folder(tmp_path):
    with pytest.raises(NotADataset, match=r"no packed dataset is in this folder .*Make one with: fastfeed pack SRC DST"):
        read_record(str(tmp_path))


def test_f2_a_dataset_that_was_copied_without_its_hidden_folder(dataset):
    shutil.rmtree(dataset / ".fastfeed")
    with pytest.raises(NotADataset, match=r"here are shards \(set-000000.tar ...\) but no .fastfeed folder"):
        Archive(str(dataset))


def test_f2_a_hidden_folder_that_is_a_file(dataset):
    shutil.rmtree(dataset / ".fastfeed")
    (dataset / ".fastfeed").write_text("")
    with pytest.raises(NotADataset, match="here are shards"):
        Archive(str(dataset))


def test_f2_f3_a_job_that_has_not_finished(dataset):
    (dataset / ".fastfeed" / "manifest.json").unlink()
    (dataset / ".fastfeed" / "job").mkdir()
    with pytest.raises(NotADataset, match=r"packing into this folder has not finished .*command again: it continues"):
        Archive(str(dataset))


def test_f3_a_killed_pack_leaves_whole_files_or_none(tmp_path):
    """At any moment before the end there is no manifest, and each shard that has its name is whole."""
    make_photos(tmp_path / "in", each=20)
    packed(tmp_path / "in", tmp_path / "whole", shards=8, name="set")
    whole = files_below(tmp_path / "whole")
    code = "import sys, fastfeed; fastfeed.pack(sys.argv[1], sys.argv[2], shards=8, name='set', workers=1)"
    for delay in (0.05, 0.15, 0.2, 0.25):
        target = tmp_path / f"killed-{delay}"
        running = subprocess.Popen([sys.executable, "-c", code, tmp_path / "in", target])
        try:
            running.wait(delay)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()
        found = files_below(target) if target.exists() else {}
        temporary = re.compile(r"\.fastfeed/(job/.*|[^/]*\.part)")  # what is being written has its name only when it is whole
        there = {name: raw for name, raw in found.items() if not temporary.fullmatch(name)}
        assert there.items() <= whole.items()
        if ".fastfeed/manifest.json" not in there and target.exists():
            with pytest.raises(NotADataset, match=r"has not finished|no packed dataset is in"):
                Archive(str(target))


def test_the_root_of_a_group_names_its_splits(group):
    with pytest.raises(NotADataset, match=r"holds the splits train, val, not one dataset .*Open one of them, .*train\.$"):
        Archive(str(group))
    assert datasets_in(str(group)) == [str(group / "train"), str(group / "val")]
    assert datasets_in(str(group / "val")) == [str(group / "val")]


def test_a_group_whose_own_record_was_lost_names_its_splits(group):
    shutil.rmtree(group / ".fastfeed")
    with pytest.raises(NotADataset) as caught:
        Archive(str(group))
    assert str(caught.value) == (
        f"no packed dataset is in this folder ({group}). Below it are {group / 'train'}, {group / 'val'}."
    )
    for name in ("a", "b", "c"):
        shutil.copytree(group / "val", group / name)
    with pytest.raises(NotADataset) as caught:
        Archive(str(group))
    assert caught.value.hint == f"Below it are {group / 'a'}, {group / 'b'}, {group / 'c'} (and 2 more)."


def test_g1_g4_a_group_says_what_belongs_to_it(original_group):
    record = read_record(str(original_group))
    assert isinstance(record, Group)
    splits = {name: read_record(str(original_group / name)) for name in ("train", "val")}
    assert dict(record.splits) == {name: below.digest for name, below in splits.items()}
    assert [below.classes for below in splits.values() if isinstance(below, Manifest)] == [("cat", "dog")] * 2
    assert [below.split for below in splits.values() if isinstance(below, Manifest)] == ["train", "val"]


def test_g1_a_split_may_have_any_folder_name(tmp_path):
    for name in ("a b", "x.y", "caf\udce9"):
        make_photos(tmp_path / "in" / name, each=1)
    packed(tmp_path / "in", tmp_path / "out", layout="splits")
    assert [os.path.basename(path) for path in datasets_in(str(tmp_path / "out"))] == ["a b", "caf\udce9", "x.y"]
    assert findings_of(tmp_path / "out") == ""


@pytest.mark.parametrize(("here", "there"), [("manifest.json", "pack.json"), ("pack.json", "manifest.json")])
def test_g3_a_record_of_the_wrong_kind(dataset, group, here, there):
    folders = {"manifest.json": dataset, "pack.json": group}
    (folders[here] / ".fastfeed" / here).rename(folders[here] / ".fastfeed" / there)
    with pytest.raises(ManifestDamaged, match="a manifest of the wrong kind lies here"):
        read_record(str(folders[here]))


@pytest.mark.parametrize("byte", [0, 40, 500])
def test_m1_m2_a_damaged_manifest(dataset, byte):
    flip_bit(dataset / ".fastfeed" / "manifest.json", byte)
    with pytest.raises(ManifestDamaged, match=r"the manifest is .*manifest.json"):
        Archive(str(dataset))


def test_m1_a_manifest_that_cannot_be_read(dataset):
    (dataset / ".fastfeed" / "manifest.json").unlink()
    (dataset / ".fastfeed" / "manifest.json").mkdir()
    with pytest.raises(ManifestDamaged, match="the manifest cannot be read: not a regular file"):
        Archive(str(dataset))


def test_v1_a_later_version(dataset):
    rewrite_manifest(dataset, lambda body: body.update(version=2))
    with pytest.raises(VersionUnsupported, match="format version 2, this release reads 1"):
        Archive(str(dataset))


def test_v2_version_1_is_read(tmp_path):
    """A dataset written down by hand, byte by byte, as release 0.1.0 wrote it: every later release must open it."""
    make_photos(tmp_path / "photos", classes=["cat"], each=1)
    packed(tmp_path / "photos", tmp_path / "packed", name="set")
    body = json.loads((tmp_path / "packed" / ".fastfeed" / "manifest.json").read_bytes())
    head = (tmp_path / "packed" / ".fastfeed" / "index").read_bytes()[:12]
    assert (body["version"], head.hex()) == (1, "894646430d0a1a0a01000000")
    assert len(fastfeed.open(str(tmp_path / "packed"))) == 1


def test_c5_i2_a_damaged_or_lost_index(dataset):
    index = dataset / ".fastfeed" / "index"
    flip_bit(index, 60)
    with pytest.raises(IndexDamaged, match="the column table is damaged"):
        Archive(str(dataset))
    index.unlink()
    with pytest.raises(IndexDamaged, match="the index cannot be opened: No such file"):
        Archive(str(dataset))


def test_i1_an_index_of_another_dataset(dataset, group):
    shutil.copy(group / "train" / ".fastfeed" / "index", dataset / ".fastfeed" / "index")
    with pytest.raises(IndexDamaged, match="the index has not the rows that the manifest promises"):
        Archive(str(dataset))


# Use: rows that a wrong writer could have left.


@pytest.mark.parametrize("offset", [0, 511, 513, 1 << 40, (1 << 64) - 512])
def test_i5_a_member_outside_of_its_shard(dataset, offset):
    rewrite_index(dataset, row_set("offset", 2, offset))
    archive = Archive(str(dataset))
    assert len(list(archive.places(0))) == 2
    with pytest.raises(
        IndexDamaged, match=rf"places a member outside its shard .*set-000000.tar, sample 1, bytes \[{offset}, "
    ):
        list(archive.places(1))


def test_i5_a_member_that_is_longer_than_its_shard(dataset):
    rewrite_index(dataset, row_set("size", 2, 1 << 30))
    with pytest.raises(IndexDamaged, match="places a member outside its shard"):
        list(Archive(str(dataset)).places(1))


def test_i4_a_member_of_no_field(dataset):
    rewrite_index(dataset, row_set("field", 2, 2))
    with pytest.raises(IndexDamaged, match=r"expected field below 2, .*got field 2"):
        list(Archive(str(dataset)).places(1))


def test_i3_a_sample_outside_of_the_member_table(dataset):
    rewrite_index(dataset, row_set("members", 1, 99, table="sample"))
    with pytest.raises(IndexDamaged, match="a sample's members lie outside the index"):
        list(Archive(str(dataset)).places(0))


def test_i6_a_key_that_is_not_ascii(dataset):
    def change(index: ColumnFile) -> None:
        starts, data = index.column("sample", "key")
        index.replace("sample", "key", starts, data.replace(b"cat/001", b"c\xe4t/001"))

    rewrite_index(dataset, change)
    assert Archive(str(dataset)).key(0) == "cat/000"
    with pytest.raises(IndexDamaged, match=r"a key in the index is not ASCII .*sample 1"):
        Archive(str(dataset)).key(1)


def test_t6_a_missing_or_cut_shard_is_known_before_the_first_epoch(dataset):
    archive = Archive(str(dataset))
    size = os.path.getsize(dataset / "set-000001.tar")
    os.truncate(dataset / "set-000001.tar", size - 1)
    with pytest.raises(ShardDamaged, match=rf"wrong size .*set-000001.tar.*expected {size} bytes, got {size - 1} bytes"):
        archive.prove_shard_sizes()
    (dataset / "set-000001.tar").unlink()
    with pytest.raises(ShardDamaged, match=r"a shard cannot be found: No such file .*shard set-000001.tar"):
        archive.prove_shard_sizes()
