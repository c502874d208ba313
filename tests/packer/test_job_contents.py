"""What goes into a pack comes out of it: ImageFolder's order, every field byte for byte, and other readers of the same tars."""

import gc
import hashlib
import json
import os

import pytest
import webdataset
from helpers import SHARED_DATA, encoded, files_below, make_photos, packed, photo
from packing import (
    contents,
    left_out_of,
    manifest_of,
    read_back,
    tree,
)
from torchvision.datasets import ImageFolder

import fastfeed
from fastfeed.errors import (
    SourceAmbiguous,
)

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
