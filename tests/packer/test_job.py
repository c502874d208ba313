import gc
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from typing import Any

import pytest
import webdataset
from helpers import SHARED_DATA, encoded, files_below, make_captioned, make_photos, packed, photo
from packing import (
    Hook,
    Interrupt,
    contents,
    interrupt_after,
    left_out_of,
    manifest_of,
    python_without_privileges,
    read_back,
    tree,
)
from torchvision.datasets import ImageFolder

import fastfeed
from fastfeed.config import package_folder
from fastfeed.errors import (
    DestinationOccupied,
    SourceAmbiguous,
    SourceChanged,
    SourceUnreadable,
    UsageError,
)
from fastfeed.sample import SkipEntry, SkipList

# ---------------------------------------------------------------------------------------------- as ImageFolder

HARD_NAMES = [
    "b/10.jpg", "b/9.jpg", "b/Z.JPG", "b/a.jpeg", "a/x/1.jpg", "a/x-y/1.jpg", "a/x.y/1.jpg", "a/x/y/1.jpg",
    "a/x0/1.jpg", "a/-1.png", "a/0.jpg", "a/22.05.png", "a/22.06.jpg", "a-b/1.jpg", "a.b/1.jpg", "A/1.JPEG",
    "Zebra/é.jpg", "Zebra/e\u0301.jpg", "Zebra/日本.jpg", "Zebra/a b.jpg", "Zebra/a\nb.jpg", "Zebra/\udcff.jpg",
    "with blank/1.webp", "ünïcode/1.bmp", "__dunder/1.tiff", "__dunder/__1__.jpg", "a/._", "a/deep/er/and/deeper/1.jpg",
    "b/same.jpg", "b/same.png", "b/SAME.jpg",
]  # fmt: skip


def same_as_imagefolder(folder, dataset, split=""):
    theirs = ImageFolder(os.path.join(folder, split))
    ours = read_back(dataset)
    manifest = manifest_of(dataset)
    assert manifest["order"] == "imagefolder"
    assert {name: at for at, name in enumerate(manifest["classes"])} == theirs.class_to_idx
    assert [sample.label for sample in ours] == theirs.targets
    image = next(field for field in manifest["fields"] if field != "cls")
    assert [os.path.join(folder, sample.sources[image]) for sample in ours] == [path for path, _ in theirs.samples]
    for sample, (path, target) in zip(ours, theirs.samples, strict=True):
        assert sample.fields["cls"] == str(target).encode()
        with open(path, "rb") as file:
            assert sample.fields[image] == file.read()


def test_position_i_is_imagefolders_i(tmp_path):
    names = [name for name in HARD_NAMES if name != "a/._"]
    source = tree(tmp_path / "photos", {name: encoded(photo(at)) for at, name in enumerate(names)})
    packed(source, tmp_path / "out", shards=4)
    same_as_imagefolder(str(source), tmp_path / "out")
    assert fastfeed.verify(tmp_path / "out").ok


def test_imagefolders_order_through_links(tmp_path):
    make_photos(tmp_path / "elsewhere", ["x", "y"])
    source = make_photos(tmp_path / "photos", ["a", "c"])
    os.symlink(tmp_path / "elsewhere" / "x", source / "b")
    os.symlink(tmp_path / "elsewhere" / "y", source / "a" / "below")
    os.symlink(tmp_path / "elsewhere" / "y" / "000.jpg", source / "c" / "-.jpg")
    packed(source, tmp_path / "out")
    same_as_imagefolder(str(source), tmp_path / "out")


def test_captions_beside_images_keep_imagefolders_order(tmp_path):
    source = make_photos(tmp_path / "photos", each=3)
    tree(source, {f"cat/{at:03d}.txt": f"cat {at}" for at in range(3)})
    packed(source, tmp_path / "out")
    assert manifest_of(tmp_path / "out")["fields"] == ["cls", "jpg", "txt"]
    same_as_imagefolder(str(source), tmp_path / "out")


def test_splits_of_one_call(tmp_path):
    source = tmp_path / "photos"
    make_photos(source / "train", ["cat", "dog", "emu"], each=4)
    make_photos(source / "val", ["cat", "dog", "emu"], each=2)
    result = packed(source, tmp_path / "out")
    assert [(dataset.split, dataset.samples, dataset.classes) for dataset in result.datasets] == [
        ("train", 12, 3),
        ("val", 6, 3),
    ]
    for split in ("train", "val"):
        same_as_imagefolder(str(source), tmp_path / "out" / split, split)
    group = json.loads((tmp_path / "out" / ".fastfeed" / "pack.json").read_bytes())
    assert group["splits"] == {split: manifest_of(tmp_path / "out" / split)["digest"] for split in ("train", "val")}
    assert fastfeed.verify(tmp_path / "out").ok
    assert packed(source, tmp_path / "out").already_packed


def test_splits_with_other_classes(tmp_path):
    source = tmp_path / "photos"
    make_photos(source / "train", ["cat", "dog"])
    make_photos(source / "val", ["cat", "emu"])
    with pytest.raises(SourceAmbiguous, match="train lacks 1 class: emu; val lacks 1 class: dog"):
        packed(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    packed(source, tmp_path / "out", class_map="union")
    train, val = (manifest_of(tmp_path / "out" / split) for split in ("train", "val"))
    assert train["classes"] == val["classes"] == ["cat", "dog", "emu"]
    assert [sample.label for sample in read_back(tmp_path / "out" / "val")] == [0, 0, 0, 2, 2, 2]


# ------------------------------------------------------------------------------------------------ any file is a field


def test_a_flat_folder_by_stem_byte_for_byte(tmp_path):
    files = {}
    for at in range(5):
        files[f"{at:04d}.jpg"] = encoded(photo(at))
        files[f"{at:04d}.json"] = json.dumps({"at": at})
        files[f"{at:04d}.mask.png"] = encoded(photo(at, mode="L"), "PNG")
        files[f"{at:04d}.npy"] = os.urandom(700)
        files[f"{at:04d}.wav"] = os.urandom(1500)
        files[f"{at:04d}.caption.txt"] = f"bild {at} mit ümläuten\r\n"
    source = tree(tmp_path / "flat", files)
    result = packed(source, tmp_path / "out", shards=2)
    assert result.datasets[0].fields == ("caption.txt", "jpg", "json", "mask.png", "npy", "wav")
    samples = read_back(tmp_path / "out")
    assert [sample.key for sample in samples] == [f"{at:04d}" for at in range(5)]
    assert contents(samples) == {path: (source / path).read_bytes() for path in files}
    assert any("files that share a stem make a sample" in why for why in result.datasets[0].why)


def test_pain_17_names_with_dots(tmp_path):
    source = tree(tmp_path / "s", {"a/22.05.png": "1", "a/22.06.png": "2", "a/Track 2.0 (x).jpg": "3", "b/1.jpg": "4"})
    packed(source, tmp_path / "out")
    samples = read_back(tmp_path / "out")
    assert [sample.fields["jpg"] if "jpg" in sample.fields else sample.fields["png"] for sample in samples] == [
        b"1", b"2", b"3", b"4",
    ]  # fmt: skip
    assert sorted(contents(samples)) == ["a/22.05.png", "a/22.06.png", "a/Track 2.0 (x).jpg", "b/1.jpg"]
    assert not any("." in sample.key for sample in samples)


def test_pain_18_names_that_collide_are_all_packed_under_keys_that_do_not(tmp_path):
    names = ["a.jpg", "A.jpg", "a.JPG", "a.jpeg", "\u00e9.jpg", "e\u0301.jpg", "\u212a.jpg", "k.jpg", "K.jpg"]
    source = tree(tmp_path / "s", {f"c/{name}": name.encode() for name in names})
    packed(source, tmp_path / "out")
    assert contents(read_back(tmp_path / "out")) == {f"c/{name}": name.encode() for name in names}
    assert fastfeed.verify(tmp_path / "out").ok


WILD = [
    b"\xff\xfe.txt", b"caf\xe9.txt", b" lead.txt", b"trail .txt", b"two  blanks.txt", b"line\nfeed.txt", b"tab\there.txt",
    b"semi;colon.txt", b"quo'te\".txt", b"back\\slash.txt", b"\x01control.txt", b"-dash.txt", b"~tilde.txt", b"per%cent.txt",
    b"star*.txt", b"dollar$.txt", "日本語.txt".encode(), "e\u0301.txt".encode(), "\u00e9.txt".encode(), b"a" * 251 + b".txt",
    b"x." * 40 + b"txt", b"__meta__.txt", b"__index__.txt", b"dot.", b"no extension", b"con.fusing.name.tar.gz",
]  # fmt: skip


def test_wild_names_have_safe_keys_and_come_back(tmp_path):
    files = {os.fsdecode(b"dir \xfe/" + raw): hashlib.sha256(raw).digest() for raw in WILD}
    source = tree(tmp_path / "s", files)
    packed(source, tmp_path / "out", layout="files")
    samples = read_back(tmp_path / "out")
    assert contents(samples) == files
    assert all(len(f"{sample.key}.{field}") <= 100 for sample in samples for field in sample.fields)
    assert fastfeed.verify(tmp_path / "out").ok
    fastfeed.unpack(tmp_path / "out", tmp_path / "back")
    assert files_below(tmp_path / "back") == files_below(source)


def test_pain_34_what_is_left_out_is_listed(tmp_path):
    source = make_photos(tmp_path / "s")
    junk = ["cat/._000.jpg", "cat/.DS_Store", "Thumbs.db", "cat/.hidden.jpg"]
    tree(source, dict.fromkeys([*junk, "__MACOSX/cat/._000.jpg", ".ipynb_checkpoints/000.jpg", "README.md"], "junk"))
    os.mkfifo(source / "cat" / "pipe.jpg")
    result = packed(source, tmp_path / "out")
    expected = {
        "cat/._000.jpg": "hidden", "cat/.DS_Store": "system", "Thumbs.db": "system", "cat/.hidden.jpg": "hidden",
        "__MACOSX": "system", ".ipynb_checkpoints": "system", "README.md": "beside", "cat/pipe.jpg": "special",
    }  # fmt: skip
    assert {item.source: item.kind for item in result.left_out} == expected == left_out_of(tmp_path / "out")
    assert manifest_of(tmp_path / "out")["classes"] == ["cat", "dog"]
    assert len(read_back(tmp_path / "out")) == 6


def test_pain_34_images_by_content_and_in_upper_case_are_packed(tmp_path):
    source = tree(tmp_path / "s", {f"c/{name}": encoded(photo(1)) for name in ("1.jfif", "2.JPG", "3", "4.Jpeg", "5.jpg")})
    packed(source, tmp_path / "out")
    assert [sample.sources["jpg"] for sample in read_back(tmp_path / "out")] == [
        "c/1.jfif", "c/2.JPG", "c/3", "c/4.Jpeg", "c/5.jpg",
    ]  # fmt: skip


def test_pain_28_29_32_36_broken_and_odd_images_are_bytes(tmp_path):
    jpeg = encoded(photo(1, (64, 48)))
    xmp = b'http://ns.adobe.com/xap/1.0/\0<x:xmpmeta>\xa8\xff tiff:Orientation="6"</x:xmpmeta>'
    app1 = b"\xff\xe1" + (len(xmp) + 2).to_bytes(2, "big") + xmp
    turned = photo(2)
    exif = turned.getexif()
    exif[0x112] = 6
    files = {
        "c/cut.jpg": jpeg[: len(jpeg) * 3 // 10],
        "c/cut-closed.jpg": jpeg[: len(jpeg) * 3 // 10] + b"\xff\xd9",
        "c/empty.jpg": b"",
        "c/text.jpg": b"<html>404</html>",
        "c/xmp.jpg": jpeg[:2] + app1 + jpeg[2:],
        "c/turned.jpg": encoded(turned, exif=exif),
        "c/tail.jpg": jpeg + b"tail" * 100,
    }
    source = tree(tmp_path / "s", files)
    packed(source, tmp_path / "out")
    assert contents(read_back(tmp_path / "out")) == files


@pytest.mark.parametrize("name", ["edge-images", "text/encodings", "text/tldr"])
def test_real_sets_are_carried_byte_for_byte(tmp_path, name):
    source = SHARED_DATA / name
    if not source.is_dir():
        pytest.skip(f"{source} is not on this machine")
    result = packed(source, tmp_path / "out", layout="files", hidden=True)
    gone = {item.source for item in result.left_out}
    expected = {path: raw for path, raw in files_below(source).items() if path not in gone}
    assert contents(read_back(tmp_path / "out")) == expected
    assert sum(dataset.source_files for dataset in result.datasets) == len(expected)


# -------------------------------------------------------------------------------------------------- other readers


def through_webdataset(urls):
    found = list(webdataset.WebDataset(urls, shardshuffle=False))
    gc.collect()  # webdataset leaves its files to the collector
    return found


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
def test_webdataset_reads_the_same_keys_fields_and_bytes(tmp_path):
    source = make_photos(tmp_path / "s", each=5)
    tree(source, {"cat/000.txt": "a caption", "dog/name with. dots.jpg": encoded(photo(9))})
    packed(source, tmp_path / "out", shards=3)
    urls = [str(path) for path in sorted((tmp_path / "out").glob("*.tar"))]
    theirs = through_webdataset(urls)
    ours = read_back(tmp_path / "out")
    assert len(theirs) == len(ours) == 11
    for read, sample in zip(theirs, ours, strict=True):
        assert read["__key__"] == sample.key
        assert {name: data for name, data in read.items() if not name.startswith("__")} == sample.fields


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
def test_webdataset_splits_compound_fields_at_the_first_dot(tmp_path):
    files = {f"{at}.{field}": os.urandom(9) for at in range(3) for field in ("jpg", "mask.png", "json")}
    packed(tree(tmp_path / "s", files), tmp_path / "out")
    read = through_webdataset(str(tmp_path / "out" / "s-000000.tar"))
    assert {
        f"{sample['__key__']}.{name}": data for sample in read for name, data in sample.items() if name[:2] != "__"
    } == files


# ------------------------------------------------------------------------------------------------------------ options


def test_a_dry_run_writes_nothing_at_all(tmp_path):
    source = make_photos(tmp_path / "s")
    before = files_below(tmp_path)
    plan = fastfeed.pack(source, tmp_path / "out", dry_run=True, shards=2)
    assert plan.dry_run and not (tmp_path / "out").exists()
    assert files_below(tmp_path) == before
    done = packed(source, tmp_path / "out", shards=2)
    sizes = sum(path.stat().st_size for path in (tmp_path / "out").glob("*.tar"))
    assert plan.needs_bytes == done.needs_bytes == plan.datasets[0].size_bytes == sizes
    assert (plan.datasets[0].samples, plan.datasets[0].shards, plan.shards_written) == (6, 2, 0)
    assert plan.datasets[0].why == done.datasets[0].why and plan.free_bytes > 0
    assert plan.datasets[0].digest is None and done.datasets[0].digest == manifest_of(tmp_path / "out")["digest"]


def test_the_plan_is_told_once_before_the_first_byte(tmp_path):
    source = make_photos(tmp_path / "s")
    os.symlink("nowhere", source / "dog" / "003.jpg")
    told: list[fastfeed.PackResult] = []
    there: list[set[str]] = []

    def hear(plan):
        told.append(plan)
        there.append(set(files_below(tmp_path / "out")))

    hook = Hook(on_start={"pack": lambda: there.append({"pack begins"})})
    options = {"samples_per_shard": 1, "on_error": "skip"}
    dry = packed(source, tmp_path / "out", dry_run=True, on_plan=hear, **options)
    assert told == []  # a dry run returns it
    result = packed(source, tmp_path / "out", on_plan=hear, progress=hook, **options)
    [plan] = told
    assert there[0] <= {f".fastfeed/job/{name}" for name in ("lock", "job.json", "scan")} and there[1] == {"pack begins"}
    assert replace(plan, seconds=0, free_bytes=0) == replace(dry, seconds=0, free_bytes=0)
    assert plan.dry_run and (plan.shards_written, plan.skipped, plan.needs_bytes) == (0, 1, result.needs_bytes)
    packed(source, tmp_path / "out", on_plan=hear, **options)
    assert len(told) == 1  # it is there: nothing is planned


def test_the_plan_is_told_of_a_pack_that_continues(tmp_path):
    source = stopped(tmp_path)
    told: list[fastfeed.PackResult] = []
    packed(source, tmp_path / "out", samples_per_shard=1, on_plan=told.append)
    assert [plan.datasets[0].shards for plan in told] == [8]


REFUSED = "without --overwrite this would be refused: "


def test_a_dry_run_says_what_is_at_the_destination(tmp_path):
    def notes(**options):
        before = files_below(tmp_path)
        found = packed(tmp_path / "s", tmp_path / "out", dry_run=True, **{"samples_per_shard": 1, **options}).notes
        assert files_below(tmp_path) == before
        return found

    source = stopped(tmp_path)
    assert notes() == ("the destination holds an unfinished pack with these options: it would be continued",)
    change = "(--shuffle was not given, now 1)"
    assert notes(shuffle=1) == (f"{REFUSED}an unfinished pack with other options is there {change}",)
    packed(source, tmp_path / "out", samples_per_shard=1)
    assert notes() == ("the destination holds this very pack: there would be nothing to do",)
    assert notes(shuffle=1) == (f"{REFUSED}a finished pack with other options is there {change}",)
    (source / "new.txt").write_text("n")
    changed = "the source has changed since it was packed (files came, went, grew or were touched)"
    assert notes() == (REFUSED + changed,)
    shutil.rmtree(tmp_path / "out")
    assert notes() == ()
    tree(tmp_path / "out", {"mine.txt": "x"})
    assert notes() == ("this would be refused: the destination holds other files, and fastfeed shares a folder with nobody",)


def test_limit_and_exclude_are_recorded(tmp_path):
    source = make_captioned(tmp_path / "s", 6)
    skip = tmp_path / "skip.jsonl"
    SkipList.write(str(skip), [SkipEntry(source="001.jpg", kind="undecodable"), SkipEntry(key="003")])
    result = packed(source, tmp_path / "out", exclude=str(skip), limit=3)
    assert [sample.key for sample in read_back(tmp_path / "out")] == ["000", "002", "004"]
    assert set(left_out_of(tmp_path / "out")) == {"001.jpg", "001.txt", "003.jpg", "003.txt"}
    assert set(left_out_of(tmp_path / "out").values()) == {"excluded"}
    assert (result.limited, result.skipped) == (2, 0)


def test_a_left_out_list_is_a_skip_list(tmp_path):
    source = make_captioned(tmp_path / "s", 4)
    packed(source, tmp_path / "one", exclude=SkipList([SkipEntry(key="002")]))
    shutil.copy(tmp_path / "one" / ".fastfeed" / "left-out.jsonl", tmp_path / "skip.jsonl")
    packed(source, tmp_path / "two", exclude=str(tmp_path / "skip.jsonl"))
    assert [sample.key for sample in read_back(tmp_path / "two")] == ["000", "001", "003"]


def test_shuffle_stores_the_same_samples_in_another_order(tmp_path):
    source = make_photos(tmp_path / "s", each=8)
    packed(source, tmp_path / "plain")
    packed(source, tmp_path / "shuffled", shuffle=1, shards=3)
    plain, shuffled = read_back(tmp_path / "plain"), read_back(tmp_path / "shuffled")
    assert plain != shuffled
    assert sorted(plain, key=lambda sample: sample.key) == sorted(shuffled, key=lambda sample: sample.key)
    assert manifest_of(tmp_path / "shuffled")["order"] == "shuffled"


@pytest.mark.parametrize(
    ("below", "match"),
    [("s", "lie within each other"), ("s/out", "lie within each other"), (".", "lie within each other")],
)
def test_destination_within_the_source(tmp_path, below, match):
    source = make_photos(tmp_path / "s")
    before = files_below(tmp_path)
    with pytest.raises(UsageError, match=match):
        fastfeed.pack(source, tmp_path / below)
    os.symlink(source, tmp_path / "link")
    with pytest.raises(UsageError, match=match):
        fastfeed.pack(source, tmp_path / "link" / "out")
    assert files_below(source) == {path.removeprefix("s/"): raw for path, raw in before.items()}


def test_workers_count_from_one(tmp_path):
    with pytest.raises(UsageError, match="workers counts from 1: got 0"):
        fastfeed.pack(make_photos(tmp_path / "s"), tmp_path / "out", workers=0)


@pytest.mark.parametrize(
    "make",
    [lambda path: None, lambda path: path.mkdir(), lambda path: path.write_text("x")],
    ids=["missing", "empty", "file"],
)
def test_a_source_that_cannot_be_packed_leaves_no_trace(tmp_path, make):
    make(tmp_path / "s")
    with pytest.raises(SourceUnreadable, match=r"does not exist|there is no file to pack|is no source that fastfeed knows"):
        packed(tmp_path / "s", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_hint_of_an_ambiguous_source_can_be_followed_at_once(tmp_path):
    source = make_photos(tmp_path / "s", ["images", "masks"])
    with pytest.raises(SourceAmbiguous, match="--layout files"):
        packed(source, tmp_path / "out")
    assert packed(source, tmp_path / "out", layout="files").datasets[0].samples == 6


# -------------------------------------------------------------------------------------------------- again, and resumed


def test_packing_again_finds_it_done(tmp_path):
    source = make_photos(tmp_path / "s")
    first = packed(source, tmp_path / "out", shards=2)
    before = files_below(tmp_path / "out")
    again = packed(source, tmp_path / "out", shards=2)
    assert again.already_packed and (again.shards_written, again.shards_kept) == (0, 2)
    assert again.datasets == first.datasets
    assert files_below(tmp_path / "out") == before


def stopped(tmp_path, **options):
    """A source of 8 files in as many shards, and a pack of it that was ended after 3."""
    source = tree(tmp_path / "s", {f"{at}.txt": f"text {at}" for at in range(8)})
    for at in range(8):
        os.utime(source / f"{at}.txt", ns=(at, at))
    with pytest.raises(Interrupt, match="enough is written"):
        packed(source, tmp_path / "out", samples_per_shard=1, progress=interrupt_after(3), **options)
    return source


def test_an_interrupted_pack_continues_with_the_same_bytes(tmp_path):
    source = stopped(tmp_path)
    done = len(list((tmp_path / "out").glob("*.tar")))
    assert 3 <= done < 8
    with pytest.raises(fastfeed.DatasetError, match=r"has not finished.*it continues"):
        fastfeed.open(tmp_path / "out")
    hook = Hook()
    result = packed(source, tmp_path / "out", samples_per_shard=1, progress=hook)
    assert (result.shards_kept, result.shards_written) == (done, 8 - done)
    assert hook.stages[1] == ("pack", 8 - done, 6 * (8 - done))
    packed(source, tmp_path / "straight", samples_per_shard=1)
    assert files_below(tmp_path / "out") == files_below(tmp_path / "straight")


def test_a_kept_scan_can_be_trusted(tmp_path):
    source = stopped(tmp_path)
    hook = Hook()
    packed(source, tmp_path / "out", samples_per_shard=1, trust_scan=True, progress=hook)
    assert [stage for stage, _, _ in hook.stages] == ["pack"]
    packed(source, tmp_path / "straight", samples_per_shard=1)
    assert files_below(tmp_path / "out") == files_below(tmp_path / "straight")


CHANGES = {
    "new.txt is new": lambda source: (source / "new.txt").write_text("n"),
    "7.txt is gone": lambda source: (source / "7.txt").unlink(),
    "7.txt had 6 bytes and has 9": lambda source: (source / "7.txt").write_text("text 7..."),
    r"7.txt was touched \(mtime\)": lambda source: os.utime(source / "7.txt", ns=(1, 99)),
    "0.txt is gone; 00.txt is new": lambda source: (source / "0.txt").rename(source / "00.txt"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_source_is_refused_by_name(tmp_path, change):
    source = stopped(tmp_path)
    before = files_below(tmp_path / "out")
    CHANGES[change](source)
    match = f"the source has changed since this pack began: {change}.*--overwrite"
    with pytest.raises(SourceChanged, match=match):
        packed(source, tmp_path / "out", samples_per_shard=1)
    assert files_below(tmp_path / "out") == before  # nothing lost
    packed(source, tmp_path / "out", samples_per_shard=1, overwrite=True)
    packed(source, tmp_path / "straight", samples_per_shard=1)
    assert files_below(tmp_path / "out") == files_below(tmp_path / "straight")


def test_a_folder_that_came_or_went_is_a_change_by_name(tmp_path):
    source = stopped(tmp_path, layout="files")
    (source / "new").mkdir()
    with pytest.raises(SourceChanged, match="the source has changed since this pack began: folder new is new"):
        packed(source, tmp_path / "out", samples_per_shard=1, layout="files")
    packed(source, tmp_path / "out", samples_per_shard=1, layout="files", overwrite=True)
    (source / "new").rmdir()
    with pytest.raises(SourceChanged, match="the source has changed since it was packed"):
        packed(source, tmp_path / "out", samples_per_shard=1, layout="files")
    (source / "old").mkdir()
    options = {"samples_per_shard": 1, "layout": "files", "overwrite": True}
    with pytest.raises(Interrupt, match="enough is written"):
        packed(source, tmp_path / "out", progress=interrupt_after(3), **options)
    (source / "old").rename(source / "other")
    match = "the source has changed since this pack began: folder old is gone; folder other is new"
    with pytest.raises(SourceChanged, match=match):
        packed(source, tmp_path / "out", samples_per_shard=1, layout="files")


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_source_of_a_finished_pack_is_refused(tmp_path, change):
    source = tree(tmp_path / "s", {f"{at}.txt": f"text {at}" for at in range(8)})
    packed(source, tmp_path / "out")
    before = files_below(tmp_path / "out")
    CHANGES[change](source)
    with pytest.raises(SourceChanged, match=r"the source has changed since it was packed.*--overwrite"):
        packed(source, tmp_path / "out")
    assert files_below(tmp_path / "out") == before
    assert fastfeed.verify(tmp_path / "out").ok


EXCLUDED = hashlib.sha256(SkipEntry(key="1").to_json().encode()).hexdigest()[:16]
OTHER_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"samples_per_shard": 2}, "--samples-per-shard was 1, now 2"),
    ({"shard_bytes": 32 << 20}, "--shard-size was 512.0 MiB, now 32.0 MiB"),
    ({"shuffle": 1}, "--shuffle was not given, now 1"),
    ({"limit": 4}, "--limit was not given, now 4"),
    ({"name": "other"}, "--name was s, now other"),
    ({"write_cls": False}, "--cls was True, now False"),
    ({"group": "none"}, "--group was auto, now none"),
    ({"layout": "files"}, "--layout was auto, now files"),
    ({"hidden": True}, "--hidden was False, now True"),
    ({"class_map": "union"}, "--class-map was equal, now union"),
    ({"exclude": SkipList([SkipEntry(key="1")])}, f"--exclude was not given, now {EXCLUDED}"),
    ({"shuffle": 1, "limit": 4}, "--limit was not given, now 4; --shuffle was not given, now 1"),
]


@pytest.mark.parametrize(("other", "change"), OTHER_OPTIONS, ids=["-".join(other) for other, _ in OTHER_OPTIONS])
def test_other_options_are_refused_by_name(tmp_path, other, change):
    source = stopped(tmp_path)
    hint = r".*Give the same options, choose another folder, or use --overwrite to pack anew\."
    match = re.escape(f" pack with other options is there ({change})") + hint
    with pytest.raises(DestinationOccupied, match="an unfinished" + match):
        packed(source, tmp_path / "out", **{"samples_per_shard": 1, **other})
    packed(source, tmp_path / "out", samples_per_shard=1)
    before = files_below(tmp_path / "out")
    with pytest.raises(DestinationOccupied, match="a finished" + match):
        packed(source, tmp_path / "out", **{"samples_per_shard": 1, **other})
    assert files_below(tmp_path / "out") == before
    assert fastfeed.verify(tmp_path / "out").ok


def test_another_writers_version_is_refused(tmp_path):
    source = stopped(tmp_path)
    job = tmp_path / "out" / ".fastfeed" / "job" / "job.json"
    job.write_text(json.dumps({**json.loads(job.read_text()), "writer": 0}))
    with pytest.raises(DestinationOccupied, match="an unfinished pack by another version of the writer"):
        packed(source, tmp_path / "out", samples_per_shard=1)


def test_killed_before_its_options_were_kept(tmp_path):
    source = stopped(tmp_path)
    (tmp_path / "out" / ".fastfeed" / "job" / "job.json").unlink()  # the scan is kept first
    with pytest.raises(Interrupt, match="enough is written"):
        packed(source, tmp_path / "out", samples_per_shard=1, progress=interrupt_after(1))
    with pytest.raises(DestinationOccupied, match=r"other options is there \(--shuffle was not given, now 1\)"):
        packed(source, tmp_path / "out", samples_per_shard=1, shuffle=1)


# -------------------------------------------------------------------------------------------------- unreadable inputs


def test_a_dangling_link_stops_the_run_by_name(tmp_path):
    source = make_captioned(tmp_path / "s", 3)
    os.symlink("nowhere", source / "003.jpg")
    with pytest.raises(
        SourceUnreadable, match=r"1 source file cannot be read \(003.jpg: a link that leads nowhere\).*--on-error"
    ):
        packed(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_on_error_skip_leaves_out_the_whole_sample_and_records_it(tmp_path):
    source = make_captioned(tmp_path / "s", 3)
    (source / "001.jpg").unlink()
    os.symlink("nowhere", source / "001.jpg")
    result = packed(source, tmp_path / "out", on_error="skip")
    assert result.skipped == 1
    assert left_out_of(tmp_path / "out") == {"001.jpg": "unreadable", "001.txt": "incomplete"}
    assert [sample.key for sample in read_back(tmp_path / "out")] == ["000", "002"]


@pytest.mark.parametrize("on_error", ["stop", "skip"])
@pytest.mark.parametrize("entry", [SkipEntry(source="003.jpg"), SkipEntry(key="003")])
def test_a_dangling_link_that_is_excluded_stops_nothing(tmp_path, entry, on_error):
    source = make_captioned(tmp_path / "s", 4)
    (source / "003.jpg").unlink()
    os.symlink("nowhere", source / "003.jpg")
    result = packed(source, tmp_path / "out", exclude=SkipList([entry]), on_error=on_error)
    assert result.skipped == 0
    assert left_out_of(tmp_path / "out") == {"003.jpg": "excluded", "003.txt": "excluded"}
    assert [sample.key for sample in read_back(tmp_path / "out")] == ["000", "001", "002"]
    again = packed(source, tmp_path / "out", exclude=SkipList([entry]), on_error=on_error)
    assert again.already_packed and (again.skipped, again.left_out) == (0, result.left_out)


def test_a_sample_whose_only_file_is_unreadable_is_left_out(tmp_path):
    source = make_photos(tmp_path / "s")
    os.symlink("nowhere", source / "cat" / "9.jpg")
    result = packed(source, tmp_path / "out", on_error="skip")
    assert (result.skipped, result.datasets[0].samples) == (1, 6)
    assert left_out_of(tmp_path / "out") == {"cat/9.jpg": "unreadable"}
    assert fastfeed.verify(tmp_path / "out").ok
    again = packed(source, tmp_path / "out", on_error="skip")
    assert again.already_packed and again.skipped == 1 and again.datasets == result.datasets


def test_what_is_left_out_of_a_split_is_listed_with_it(tmp_path):
    source = make_photos(tmp_path / "s" / "train").parent
    make_photos(source / "val")
    tree(source, {"val/cat/.DS_Store": "x", "README.md": "x"})
    packed(source, tmp_path / "out")
    assert left_out_of(tmp_path / "out" / "train") == {"README.md": "beside"}
    assert left_out_of(tmp_path / "out" / "val") == {"val/cat/.DS_Store": "system"}


def test_a_skip_list_of_another_source_is_refused_and_leaves_no_trace(tmp_path):
    source = make_captioned(tmp_path / "s", 3)
    skip = SkipList([SkipEntry(source="s/001.jpg")])
    for dry_run in (True, False):
        with pytest.raises(UsageError, match=r"the skip list \(1 entry\) matches no sample of this source.*got s/001.jpg"):
            packed(source, tmp_path / "out", exclude=skip, dry_run=dry_run)
    assert not (tmp_path / "out").exists()


CODE = (
    "import fastfeed, sys, json; r = fastfeed.pack(*sys.argv[1:3], **json.loads(sys.argv[3])); print(r.skipped, r.datasets[0])"
)


@pytest.mark.parametrize("what", ["file", "folder"])
def test_no_permission(tmp_path, what):
    source = tree(tmp_path / "s", {f"{at}/{at}.txt": "x" for at in range(4)})
    closed = source / "2" / "2.txt" if what == "file" else source / "2"
    closed.chmod(0)
    name = str(closed.relative_to(source))
    try:
        stopped_run, skipped, again = (
            python_without_privileges(CODE, str(source), str(tmp_path / f"out-{on_error}"), json.dumps({"on_error": on_error}))
            for on_error in ("stop", "skip", "skip")
        )
    finally:
        closed.chmod(0o700)
    assert stopped_run.returncode == 1
    assert f"1 source file cannot be read ({name}: Permission denied)" in stopped_run.stderr
    assert (skipped.returncode, skipped.stdout.split()[0]) == (0, "1"), skipped.stderr
    assert again.stdout == skipped.stdout  # a pack that is done says the same of itself
    assert left_out_of(tmp_path / "out-skip")[name] == "unreadable"
    assert len(read_back(tmp_path / "out-skip")) == 3
    assert fastfeed.verify(tmp_path / "out-skip").ok


def test_on_error_may_be_decided_anew_for_an_unfinished_pack(tmp_path):
    """As the error of an unreadable file advises: what is finished is kept."""
    source = make_photos(tmp_path / "photos")
    kept = fastfeed.pack(source, tmp_path / "undisturbed", shards=3, on_error="skip")
    assert kept.skipped == 0

    def vanish(_: object) -> None:
        (source / "dog" / "001.jpg").rename(tmp_path / "away.jpg")

    with pytest.raises(SourceUnreadable, match=r"dog/001\.jpg.* --on-error skip"):
        fastfeed.pack(source, tmp_path / "out", shards=3, on_plan=vanish)
    result = fastfeed.pack(source, tmp_path / "out", shards=3, on_error="skip", trust_scan=True)
    assert (result.skipped, result.datasets[0].samples) == (1, 5)
    assert fastfeed.verify(tmp_path / "out").ok


def test_overwrite_that_is_killed_is_ended_by_the_next_run(tmp_path):
    """At each removal and rename in turn: no old shard is left behind, and the bytes are those of an undisturbed run."""
    source = make_photos(tmp_path / "photos")
    fastfeed.pack(source, tmp_path / "right", shards=1)
    code = (
        "import os, sys\n"
        "left = [int(sys.argv[1])]\n"
        "def hook(event, _):\n"
        "    if event in {'os.remove', 'os.rename', 'os.rmdir', 'shutil.rmtree'}:\n"
        "        left[0] -= 1\n"
        "        if left[0] == 0: os.kill(os.getpid(), 9)\n"
        "sys.addaudithook(hook)\n"
        "import fastfeed\n"
        "fastfeed.pack(sys.argv[2], sys.argv[3], shards=1, overwrite=True)\n"
    )
    kills = 0
    for number in range(1, 60, 3):
        out = tmp_path / f"out{number}"
        fastfeed.pack(source, out, shards=4)
        done = subprocess.run(
            [sys.executable, "-c", code, str(number), str(source), str(out)], check=False, capture_output=True
        )
        kills += done.returncode == -signal.SIGKILL
        fastfeed.pack(source, out, shards=1, overwrite=True)
        assert fastfeed.verify(out).ok, number
        assert files_below(out) == files_below(tmp_path / "right")
        if done.returncode == 0:
            break
    assert kills > 3


def test_overwrite_without_room_leaves_the_old_pack(tmp_path, monkeypatch):
    """The room is counted before anything is removed (a real full disk is in test_writing)."""
    from fastfeed.packer import job

    source = make_photos(tmp_path / "photos")
    fastfeed.pack(source, tmp_path / "out", shards=2)
    before = files_below(tmp_path / "out")
    monkeypatch.setattr(job, "free_bytes", lambda folder: -(1 << 40))
    with pytest.raises(fastfeed.DestinationError, match="there is not enough space, even without what --overwrite replaces"):
        fastfeed.pack(source, tmp_path / "out", shards=3, overwrite=True)
    assert {name: raw for name, raw in files_below(tmp_path / "out").items() if "/job/" not in name} == before


def test_a_finished_pack_that_lost_a_shard_is_not_called_done(tmp_path):
    source = make_photos(tmp_path / "photos")
    result = fastfeed.pack(source, tmp_path / "out", shards=2)
    (tmp_path / "out" / f"{result.datasets[0].name}-000001.tar").unlink()
    with pytest.raises(fastfeed.DatasetError, match="a shard cannot be found"):
        fastfeed.pack(source, tmp_path / "out", shards=2)


def test_shards_that_nobody_names_are_not_replaced(tmp_path):
    source = make_photos(tmp_path / "photos")
    fastfeed.pack(source, tmp_path / "out", shards=2)
    (tmp_path / "out" / ".fastfeed" / "manifest.json").unlink()
    before = files_below(tmp_path / "out")
    for overwrite in (False, True):
        with pytest.raises(
            fastfeed.DestinationError, match="is there already, and no manifest and no unfinished pack names it"
        ):
            fastfeed.pack(source, tmp_path / "out", shards=3, overwrite=overwrite)
        assert files_below(tmp_path / "out") == before


def test_a_file_that_is_written_to_while_it_is_read_is_noticed(tmp_path):
    """Larger than one piece, changed after its first piece was read: size and mtime are proven at the end as well."""
    (tmp_path / "src").mkdir()
    path = tmp_path / "src" / "a.dat"
    path.write_bytes(bytes(96 << 20))
    stop = threading.Event()

    def write() -> None:
        job = tmp_path / "out" / ".fastfeed" / "job"
        while not stop.is_set() and not list(job.glob("*.part")):
            time.sleep(0.001)
        with open(path, "r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(b"x")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        with pytest.raises(SourceChanged, match=r"a\.dat: planned with .* now"):
            fastfeed.pack(tmp_path / "src", tmp_path / "out")
    finally:
        stop.set()
        writer.join()


def test_a_time_beyond_all_clocks_is_refused_by_name(tmp_path):
    source = make_photos(tmp_path / "photos")
    os.utime(source / "cat" / "000.jpg", ns=(0, (1 << 63) + 10))
    if (source / "cat" / "000.jpg").stat().st_mtime_ns < 1 << 63:
        pytest.skip("this file system cannot hold such a time")
    with pytest.raises(SourceUnreadable, match=r"beyond the year 2262 .*cat/000\.jpg"):
        fastfeed.pack(source, tmp_path / "out")


def test_a_stranger_in_the_working_directory_is_not_imported(tmp_path):
    source = make_photos(tmp_path / "photos")
    (tmp_path / "queue.py").write_text("raise SystemExit('a stranger')\n")
    code = "import fastfeed, sys; fastfeed.pack(sys.argv[1], 'out')"
    command = [sys.executable, "-P", "-c", code, str(source)]
    environment = {**os.environ, "PYTHONPATH": package_folder()}
    done = subprocess.run(command, cwd=tmp_path, env=environment, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_names_need_utf_8(tmp_path):
    source = make_photos(tmp_path / "photos")
    code = "import fastfeed, sys; fastfeed.pack(sys.argv[1], sys.argv[2])"
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONPATH": package_folder()}
    command = [sys.executable, "-c", code, str(source), str(tmp_path / "out")]
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    assert "UsageError: Python takes file names as ascii here: expected utf-8. Set PYTHONUTF8=1" in done.stderr
    assert not (tmp_path / "out").exists()
