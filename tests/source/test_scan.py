import os
import socket
import subprocess
import sys

import pytest
from helpers import ROOT, encoded, flipped, photo
from hypothesis import given, settings
from hypothesis import strategies as st
from packing import Hook, tree

from fastfeed.errors import FastfeedError, IndexDamaged, SourceUnreadable
from fastfeed.media import Codec
from fastfeed.source.lister import NOT_SNIFFED, UNREADABLE
from fastfeed.source.scan import LeftOut, Listing, scan


def kinds(items: list[LeftOut]) -> dict[str, str]:
    return {item.source: item.kind for item in items}


def test_files_with_size_and_mtime_folders_before_what_is_in_them(tmp_path):
    tree(tmp_path, {"b/2.txt": "22", "b/1.txt": "1", "b/c/3.txt": "333", "a.txt": "", "z/9.txt": "9"})
    os.utime(tmp_path / "b" / "1.txt", ns=(0, 1_234_567_890_123_456_789))
    found = scan(str(tmp_path))
    assert found.folders == ["", "b", "b/c", "z"]
    assert found.paths == ["a.txt", "b/1.txt", "b/2.txt", "b/c/3.txt", "z/9.txt"]
    assert list(found.sizes) == [0, 1, 2, 3, 1]
    assert found.mtimes_ns[1] == 1_234_567_890_123_456_789
    assert not found.left_out and not found.unreadable and not found.repeated
    assert len(found) == 5 and list(found.files_of(1)) == [1, 2]


def test_progress_hears_of_files_and_of_no_bytes_for_none_are_read(tmp_path):
    hook = Hook()
    scan(str(tree(tmp_path, {"a/1.txt": "12", "b/2.txt": "345"})), hook)
    assert hook.stages == [("scan", None, None)]
    assert (hook.items["scan"], hook.size_bytes["scan"]) == (2, 0)


@pytest.mark.parametrize("name", ["._a.jpg", ".DS_Store", "Thumbs.db", "desktop.ini", ".hidden.jpg", ".git/config"])
def test_pain_34_hidden_and_system_files_are_left_out_and_listed(tmp_path, name):
    found = scan(str(tree(tmp_path, {"cat/a.jpg": "x", f"cat/{name}": "y"})))
    assert found.paths == ["cat/a.jpg"]
    assert set(kinds(found.left_out)) == {f"cat/{name.partition('/')[0]}"}
    assert set(kinds(found.left_out).values()) <= {"hidden", "system"}
    assert all(item.why for item in found.left_out)


@pytest.mark.parametrize("folder", ["__MACOSX", ".ipynb_checkpoints"])
def test_pain_34_junk_folders_are_no_classes(tmp_path, folder):
    found = scan(str(tree(tmp_path, {"cat/a.jpg": "x", f"{folder}/cat/a.jpg": "y"})))
    assert found.folders == ["", "cat"]
    assert kinds(found.left_out) == {folder: "system"}


def test_hidden_takes_dot_names_but_never_system_files(tmp_path):
    tree(tmp_path, {".a.jpg": "x", ".d/b.txt": "y", "._c.jpg": "z", ".DS_Store": "z", "__MACOSX/d.txt": "z", "Thumbs.db": "z"})
    found = scan(str(tmp_path), hidden=True)
    assert found.paths == [".a.jpg", ".d/b.txt"]
    assert set(kinds(found.left_out)) == {"._c.jpg", ".DS_Store", "__MACOSX", "Thumbs.db"}


def test_pain_5_fifo_socket_and_device_are_never_opened(tmp_path, monkeypatch):
    tree(tmp_path, {"a.txt": "x", "plain": "y"})
    os.mkfifo(tmp_path / "pipe.jpg")
    os.mkfifo(tmp_path / "pipe")
    os.symlink(tmp_path / "pipe", tmp_path / "link-to-pipe")
    os.symlink("/dev/zero", tmp_path / "device")
    monkeypatch.chdir(tmp_path)  # a socket's path has at most 107 bytes
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        code = (
            "import sys, os\n"
            "opened = []\n"
            "sys.addaudithook(lambda event, args: opened.append(args[0]) if event == 'open' else None)\n"
            "from fastfeed.source.scan import scan\n"
            "found = scan(sys.argv[1])\n"
            "print(sorted(os.path.basename(p) for p in opened if isinstance(p, str) and p.startswith(sys.argv[1] + '/')))\n"
            "print(found.paths, sorted((item.source, item.kind, item.why) for item in found.left_out))\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
        )
    opened, found = done.stdout.splitlines()
    assert opened == "['plain']"  # the one whose name does not tell what it is
    special = [
        ("device", "special", "character device, never opened"),
        ("link-to-pipe", "special", "FIFO, never opened"),
        ("pipe", "special", "FIFO, never opened"),
        ("pipe.jpg", "special", "FIFO, never opened"),
        ("socket", "special", "socket, never opened"),
    ]
    assert found == f"['a.txt', 'plain'] {special}"


def test_links_are_followed_by_content(tmp_path):
    tree(tmp_path / "elsewhere", {"one.txt": "11", "folder/two.txt": "222"})
    source = tree(tmp_path / "source", {"a.txt": "x"})
    os.symlink(tmp_path / "elsewhere" / "one.txt", source / "b.txt")
    os.symlink(tmp_path / "elsewhere" / "folder", source / "c")
    found = scan(str(source))
    assert found.paths == ["a.txt", "b.txt", "c/two.txt"]
    assert list(found.sizes) == [1, 2, 3]
    assert not found.repeated


def test_link_loops_are_found(tmp_path):
    tree(tmp_path, {"a/b/c.txt": "x"})
    os.symlink(tmp_path, tmp_path / "a" / "b" / "up")
    os.symlink("../b", tmp_path / "a" / "b" / "itself")
    found = scan(str(tmp_path))
    assert found.paths == ["a/b/c.txt"]
    assert kinds(found.left_out) == {"a/b/up": "loop", "a/b/itself": "loop"}


def test_dangling_and_circular_links_are_unreadable_by_name(tmp_path):
    tree(tmp_path, {"a.txt": "x"})
    os.symlink("nowhere", tmp_path / "gone.txt")
    os.symlink("round.txt", tmp_path / "round.txt")
    found = scan(str(tmp_path))
    assert kinds(found.unreadable) == {"gone.txt": "unreadable", "round.txt": "unreadable"}
    assert found.paths == ["a.txt", "gone.txt", "round.txt"]  # listed, so that their samples are known
    assert list(found.codecs) == [NOT_SNIFFED, UNREADABLE, UNREADABLE]


@pytest.mark.parametrize("names", [("a.txt", "b.txt"), ("b.txt", "a.txt")], ids=["link-last", "link-first"])
@pytest.mark.parametrize("link", [os.symlink, os.link], ids=["symlink", "hard-link"])
def test_repeated_inodes_are_found(tmp_path, link, names):
    real, other = names
    tree(tmp_path, {real: "x", "c.txt": "y"})
    link(tmp_path / real, tmp_path / other)
    found = scan(str(tmp_path))
    assert found.paths == ["a.txt", "b.txt", "c.txt"]
    assert found.repeated == [LeftOut("b.txt", "repeated", "the same file as a.txt")]


def test_repeated_files_behind_a_link_to_a_folder_are_found(tmp_path):
    tree(tmp_path, {"a/1.txt": "x"})
    os.symlink("a", tmp_path / "b")
    found = scan(str(tmp_path))
    assert found.paths == ["a/1.txt", "b/1.txt"]
    assert kinds(found.repeated) == {"b/1.txt": "repeated"}


@pytest.mark.parametrize(
    ("kind", "field", "codec"),
    [("JPEG", "jpg", Codec.JPEG), ("PNG", "png", Codec.PNG), ("GIF", "gif", Codec.GIF), ("BMP", "bmp", Codec.BMP),
     ("WEBP", "webp", Codec.WEBP), ("TIFF", "tiff", Codec.TIFF), ("PPM", "ppm", Codec.PNM)],
)  # fmt: skip
def test_missing_extension_is_told_by_content(tmp_path, kind, field, codec):
    found = scan(str(tree(tmp_path, {"n01440764_1": encoded(photo(), kind), "unknown": "text", "empty": ""})))
    assert list(found.codecs) == [Codec.UNKNOWN, codec, Codec.UNKNOWN]
    assert found.fields == ["bin", field, "bin"]


def test_pain_34_jfif_and_upper_case_are_images(tmp_path):
    found = scan(str(tree(tmp_path, dict.fromkeys(["a.jfif", "b.JPG", "c.JPEG", "d.jpe", "e.TIF", "f.PNG"], "x"))))
    assert found.fields == ["jpg", "jpg", "jpg", "jpg", "tiff", "png"]


@pytest.mark.parametrize(
    "raw", [b"\xff\xfe.txt", b"a b.txt", b"a\nb.txt", b"a\tb.txt", "e\u0301.txt".encode(), b"\x1b[31m.txt"]
)
def test_any_name_is_listed_as_it_is(tmp_path, raw):
    (tmp_path / os.fsdecode(raw)).write_text("x")
    found = scan(str(tmp_path))
    assert [os.fsencode(path) for path in found.paths] == [raw]


def test_very_deep_folders(tmp_path):
    folders = [tmp_path]
    for _ in range(1500):
        folders.append(folders[-1] / "d")
        folders[-1].mkdir()
    file = folders[-1] / "a.txt"
    file.write_text("x")
    found = scan(str(tmp_path))
    file.unlink()
    for folder in reversed(folders[1:]):  # pytest's own way to remove it recurses
        folder.rmdir()
    assert found.paths == ["d/" * 1500 + "a.txt"]


@pytest.mark.parametrize(("name", "why"), [("nothing", "does not exist"), ("file", "is not a folder")])
def test_no_such_source(tmp_path, name, why):
    (tmp_path / "file").write_text("x")
    with pytest.raises(SourceUnreadable, match=f"the source {why}"):
        scan(str(tmp_path / name))


CHANGES = {
    "new": lambda folder: (folder / "a" / "new.txt").write_text("n"),
    "gone": lambda folder: (folder / "a" / "1.txt").unlink(),
    "renamed": lambda folder: (folder / "a" / "1.txt").rename(folder / "a" / "3.txt"),
    "moved": lambda folder: (folder / "a" / "1.txt").rename(folder / "b" / "1.txt"),
    "size": lambda folder: (folder / "a" / "1.txt").write_text("longer"),
    "mtime": lambda folder: os.utime(folder / "a" / "1.txt", ns=(5, 6)),
    "empty-folder": lambda folder: (folder / "c").mkdir(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_digest_knows_every_change(tmp_path, change):
    tree(tmp_path, {"a/1.txt": "1", "a/2.txt": "2", "b/9.txt": "9"})
    for path in tmp_path.rglob("*.txt"):
        os.utime(path, ns=(1, 1))
    before = scan(str(tmp_path)).digest()
    assert scan(str(tmp_path)).digest() == before
    CHANGES[change](tmp_path)
    assert scan(str(tmp_path)).digest() != before


names = st.binary(min_size=1, max_size=12).filter(lambda raw: not set(raw) & {0, 0x2F}).map(os.fsdecode)
notes = st.lists(st.builds(LeftOut, names, st.sampled_from(["hidden", "special"]), st.just("why")), max_size=3)


@st.composite
def listings(draw):
    found = Listing()
    for folder in ["", *draw(st.lists(names, max_size=3, unique=True))]:
        found.folders.append(folder)
        for name in sorted(draw(st.sets(names, max_size=4))):
            found.names.append(name)
            found.sizes.append(draw(st.integers(0, 2**64 - 1)))
            found.mtimes_ns.append(draw(st.integers(-(2**63), 2**63 - 1)))
            found.codecs.append(draw(st.integers(0, 255)))
        found.folder_starts.append(len(found.names))
    found.left_out, found.unreadable, found.repeated = draw(notes), draw(notes), draw(notes)
    return found


@settings(deadline=None)
@given(listings())
def test_a_listing_is_kept_whole(listing):
    again = Listing.load(listing.save(), "scan")
    assert vars(again) == vars(listing)
    assert again.digest() == listing.digest()
    assert again.paths == listing.paths


@settings(deadline=None)
@given(listings(), st.data())
def test_a_damaged_kept_listing_is_refused_or_the_damage_is_in_the_padding(listing, data):
    raw = listing.save()
    bit = data.draw(st.integers(0, len(raw) * 8 - 1))
    try:
        again = Listing.load(flipped(raw, bit), "scan")
    except FastfeedError:
        return
    assert vars(again) == vars(listing)


def test_a_cut_kept_listing_is_refused(tmp_path):
    raw = scan(str(tree(tmp_path, {"a.txt": "x"}))).save()
    with pytest.raises(IndexDamaged, match="scan"):
        Listing.load(raw[:-64], "scan")
