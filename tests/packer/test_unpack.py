"""unpack: the files of the source again, byte for byte, under their names, and nothing outside of the folder asked for."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers import (
    ROOT,
    encoded,
    files_below,
    flip_bit,
    make_photos,
    pack_photos,
    packed,
    photo,
)
from packing import interrupted_unpack, raw_tree

import fastfeed
from fastfeed.errors import DestinationOccupied, NotADataset, ShardDamaged
from fastfeed.packer.unpack import WORKPLACE
from fastfeed.trace import NullProgress

DEADLINE_SECONDS = 60

ODD_NAMES = [
    b"plain.jpg", b"with blank.jpg", b"two.dots.here.jpg", b"line\nfeed.jpg", b"latin-\xe9.jpg", b"tab\t.jpg", b"CASE.jpg",
    b"case.jpg", b"Case.JPG", "caf\u00e9.jpg".encode(), "cafe\u0301.jpg".encode(), b"\x1b[31mred.jpg", b"~%^!#().jpg",
    b"a;b|c&d.jpg", b"no extension", b"__init.jpg", b"-dash.jpg", b"x" * 200 + b".jpg", "\u732b.jpg".encode(),
    b"back\\slash.jpg", b"quote'\".jpg",
]  # fmt: skip


def write_odd(folder: Path) -> None:
    folder.mkdir(parents=True)
    for number, name in enumerate(ODD_NAMES):
        with open(os.path.join(os.fsencode(folder), name), "wb") as file:
            file.write(encoded(photo(number)))


# ------------------------------------------------------------------------------------------------ round trips
def test_round_trip_with_odd_names_in_odd_classes(tmp_path: Path):
    for name in ("cat", "Cat", "ca t", "c\na", "caf\u00e9", "cafe\u0301", os.fsdecode(b"\xff\xfe")):
        write_odd(tmp_path / "src" / name)
    packed(tmp_path / "src", tmp_path / "packed")
    result = fastfeed.unpack(tmp_path / "packed", tmp_path / "out")
    assert raw_tree(tmp_path / "out") == raw_tree(tmp_path / "src")
    assert (result.files, result.kept, result.datasets) == (7 * len(ODD_NAMES), 0, 1)
    assert result.size_bytes == sum(len(raw) for raw in raw_tree(tmp_path / "src").values() if raw is not None)


def test_round_trip_of_a_flat_folder(tmp_path: Path):
    write_odd(tmp_path / "src")
    packed(tmp_path / "src", tmp_path / "packed")
    fastfeed.unpack(tmp_path / "packed", tmp_path / "out")
    assert raw_tree(tmp_path / "out") == raw_tree(tmp_path / "src")


def test_round_trip_of_splits_with_empty_files_and_deep_folders(tmp_path: Path):
    for split in ("train", "val"):
        make_photos(tmp_path / "src" / split)
        deep = tmp_path / "src" / split / "cat" / "/".join("abcdefgh")
        deep.mkdir(parents=True)
        (deep / "empty.jpg").write_bytes(b"")
        (deep / "big.jpg").write_bytes(bytes(20 << 20))  # beyond one read
    packed(tmp_path / "src", tmp_path / "packed")
    result = fastfeed.unpack(tmp_path / "packed", tmp_path / "out")
    assert files_below(tmp_path / "out") == files_below(tmp_path / "src")
    assert result.datasets == 2


def test_one_split_by_itself_keeps_its_folder(tmp_path: Path):
    make_photos(tmp_path / "src" / "train")
    make_photos(tmp_path / "src" / "val")
    packed(tmp_path / "src", tmp_path / "packed")
    fastfeed.unpack(tmp_path / "packed" / "val", tmp_path / "out")
    assert raw_tree(tmp_path / "out" / "val") == raw_tree(tmp_path / "src" / "val")
    assert os.listdir(tmp_path / "out") == ["val"]


def test_classes_without_samples_come_back(tmp_path: Path):
    for split, classes in (("train", ["ant", "bee"]), ("val", ["bee"])):
        make_photos(tmp_path / "src" / split, classes)
    packed(tmp_path / "src", tmp_path / "packed", class_map="union")
    fastfeed.unpack(tmp_path / "packed", tmp_path / "out")
    (tmp_path / "src" / "val" / "ant").mkdir()
    assert raw_tree(tmp_path / "out") == raw_tree(tmp_path / "src")


def test_class_members_that_pack_made_are_no_files(tmp_path: Path):
    fastfeed.unpack(pack_photos(tmp_path), tmp_path / "out")
    assert not [name for name in files_below(tmp_path / "out") if name.endswith(".cls")]


def test_a_shuffled_dataset_comes_back_the_same(tmp_path: Path):
    fastfeed.unpack(pack_photos(tmp_path, shuffle=3, shards=2), tmp_path / "out")
    assert raw_tree(tmp_path / "out") == raw_tree(tmp_path / "photos")


class Heard(NullProgress):
    """Sums up what it hears."""

    def __init__(self) -> None:
        self.items = self.size_bytes = self.finished = 0
        self.announced: tuple[str, int | None, int | None] | None = None

    def start(self, stage: str, items: int | None, size_bytes: int | None) -> None:
        self.announced = (stage, items, size_bytes)

    def advance(self, items: int, size_bytes: int) -> None:
        self.items, self.size_bytes = self.items + items, self.size_bytes + size_bytes

    def finish(self) -> None:
        self.finished += 1


def test_progress_adds_up(tmp_path: Path):
    heard = Heard()
    result = fastfeed.unpack(pack_photos(tmp_path), tmp_path / "out", progress=heard)
    assert heard.announced == ("unpack", result.files, result.size_bytes)
    assert (heard.items, heard.size_bytes, heard.finished) == (result.files, result.size_bytes, 1)


# ------------------------------------------------------------------------------------------------ the destination
def test_a_destination_with_other_files_is_refused(tmp_path: Path):
    dataset = pack_photos(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_bytes(b"mine")
    with pytest.raises(DestinationOccupied) as caught:
        fastfeed.unpack(dataset, tmp_path / "out")
    assert str(caught.value) == (
        f"the destination holds other files ({tmp_path / 'out'}). If an unpack of this dataset has finished there, nothing is"
        " left to do; else name a folder that is new or empty."
    )
    assert raw_tree(tmp_path / "out") == {b"mine": b"mine"}
    with pytest.raises(DestinationOccupied, match="the destination is a file"):
        fastfeed.unpack(dataset, tmp_path / "out" / "mine")


def test_an_empty_destination_is_taken(tmp_path: Path):
    (tmp_path / "out").mkdir()
    fastfeed.unpack(pack_photos(tmp_path), tmp_path / "out")
    assert raw_tree(tmp_path / "out") == raw_tree(tmp_path / "photos")


def test_a_destination_that_is_a_link_to_a_folder_is_taken(tmp_path: Path):
    (tmp_path / "real").mkdir()
    (tmp_path / "out").symlink_to("real")
    fastfeed.unpack(pack_photos(tmp_path), tmp_path / "out")
    assert raw_tree(tmp_path / "real") == raw_tree(tmp_path / "photos")


def test_nothing_packed(tmp_path: Path):
    with pytest.raises(NotADataset, match="no packed dataset is in this folder"):
        fastfeed.unpack(tmp_path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


# ------------------------------------------------------------------------------------------------ interruptions
def test_an_interrupted_unpack_of_another_dataset_is_refused(tmp_path: Path):
    dataset = pack_photos(tmp_path)
    for name, note in (("out", '["other"]'), ("torn", '["')):
        (tmp_path / name / WORKPLACE).mkdir(parents=True)
        (tmp_path / name / WORKPLACE / "digests.json").write_text(note)
        with pytest.raises(DestinationOccupied, match="an interrupted unpack of another dataset is there"):
            fastfeed.unpack(dataset, tmp_path / name)


def test_killed_before_its_note_was_written(tmp_path: Path):
    dataset = pack_photos(tmp_path)
    (tmp_path / "out" / WORKPLACE).mkdir(parents=True)
    (tmp_path / "out" / WORKPLACE / "digests.json.part").write_text('["to')
    fastfeed.unpack(dataset, tmp_path / "out")
    assert raw_tree(tmp_path / "out") == raw_tree(tmp_path / "photos")


def test_an_empty_workplace_beside_files_protects_them(tmp_path: Path):
    """Killed at the very end, all is written; or the folder is somebody's: nothing in it may be replaced."""
    dataset = pack_photos(tmp_path)
    fastfeed.unpack(dataset, tmp_path / "out")
    (tmp_path / "out" / WORKPLACE).mkdir()
    (tmp_path / "out" / "dog" / "001.jpg").write_bytes(b"precious")
    with pytest.raises(DestinationOccupied, match=r"the destination holds other files.* nothing is left to do"):
        fastfeed.unpack(dataset, tmp_path / "out")
    assert (tmp_path / "out" / "dog" / "001.jpg").read_bytes() == b"precious"


def test_not_into_the_packed_dataset_itself(tmp_path: Path):
    dataset = pack_photos(tmp_path)
    with pytest.raises(fastfeed.UsageError, match="the destination lies in the packed dataset"):
        fastfeed.unpack(dataset, dataset / "out")
    assert not (dataset / "out").exists()


def test_a_continued_unpack_keeps_what_is_whole_and_mends_what_is_not(tmp_path: Path):
    dataset = pack_photos(tmp_path)
    interrupted_unpack(dataset, tmp_path / "out")
    good = (tmp_path / "photos" / "cat" / "000.jpg").read_bytes()
    (tmp_path / "out" / "cat").mkdir()
    (tmp_path / "out" / "cat" / "000.jpg").write_bytes(good)
    (tmp_path / "out" / "cat" / "001.jpg").write_bytes(bytes(len((tmp_path / "photos" / "cat" / "001.jpg").read_bytes())))
    (tmp_path / "out" / "cat" / "002.jpg").write_bytes(b"short")
    (tmp_path / "out" / WORKPLACE / "part").write_bytes(b"half a file")
    result = fastfeed.unpack(dataset, tmp_path / "out")
    assert (result.kept, result.files) == (1, 6)
    assert raw_tree(tmp_path / "out") == raw_tree(tmp_path / "photos")


KILLED = """
import os, signal, sys, fastfeed
rename, left = os.rename, int(sys.argv[3])
def rename_or_die(before, after):
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
    rename(before, after)
os.rename = rename_or_die
fastfeed.unpack(sys.argv[1], sys.argv[2])
"""
"""Dies before the n-th file gets its name; the first rename is that of the note."""


def test_killed_at_any_moment_and_run_again(tmp_path: Path):
    dataset = pack_photos(tmp_path, each=15, shards=2)
    command = [sys.executable, "-c", KILLED, str(dataset), str(tmp_path / "out")]
    for renames in (1, 2, 3, 20, 8):  # of 31 when nothing is there yet
        killed = subprocess.run([*command, str(renames)], cwd=ROOT, check=False)
        assert killed.returncode == -signal.SIGKILL
    result = fastfeed.unpack(dataset, tmp_path / "out")
    assert result.kept == 0 + 0 + 2 + 19 + 7
    assert raw_tree(tmp_path / "out") == raw_tree(tmp_path / "photos")


def test_killed_by_chance_and_run_again(tmp_path: Path):
    source = tmp_path / "src"
    for at in range(3000):
        folder = source / f"{at % 7}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{at:05d}.txt").write_bytes(b"%d" % at * (at % 200))
    packed(source, tmp_path / "packed")
    command = [sys.executable, "-m", "fastfeed", "unpack", "--quiet", str(tmp_path / "packed"), str(tmp_path / "out")]
    running = subprocess.Popen(command, cwd=ROOT)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (tmp_path / "out" / "1" / "00001.txt").exists() and time.monotonic() < deadline:
        assert running.poll() is None
    running.kill()
    running.wait()
    result = fastfeed.unpack(tmp_path / "packed", tmp_path / "out")
    assert result.kept > 400 or running.returncode == 0
    assert raw_tree(tmp_path / "out") == raw_tree(source)


# ------------------------------------------------------------------------------------------------ damage
def test_damage_stops_with_its_place_and_continues_once_mended(tmp_path: Path):
    dataset = pack_photos(tmp_path)
    place = next(iter(place for place in fastfeed.open(dataset)._archive.places(3) if place.field == "jpg"))
    flip_bit(dataset / place.shard, place.start + 5)
    where = f"shard {place.shard}, sample 3, key 'dog/000', source 'dog/000.jpg', member 'dog/000.jpg', bytes "
    with pytest.raises(ShardDamaged, match=re.escape(f"({where}[{place.start}, {place.stop})")):
        fastfeed.unpack(dataset, tmp_path / "out")
    assert not (tmp_path / "out" / "dog" / "000.jpg").exists()
    flip_bit(dataset / place.shard, place.start + 5)
    assert fastfeed.unpack(dataset, tmp_path / "out").kept == 3
    assert raw_tree(tmp_path / "out") == raw_tree(tmp_path / "photos")


def test_damage_of_a_member_that_is_read_in_pieces(tmp_path: Path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "big.bin").write_bytes(bytes(17 << 20))
    packed(tmp_path / "src", tmp_path / "packed")
    with open(tmp_path / "packed" / "src-000000.tar", "r+b") as file:
        file.seek(16 << 20)
        file.write(b"x")
    with pytest.raises(ShardDamaged, match=r"sample 0, key 'big', source 'big\.bin', member 'big\.bin'"):
        fastfeed.unpack(tmp_path / "packed", tmp_path / "out")
    assert not (tmp_path / "out" / "big.bin").exists()
