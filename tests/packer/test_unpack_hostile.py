"""unpack writes nothing outside of the folder asked for, whatever a dataset or a destination holds."""

import os
import struct
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import pytest
from helpers import (
    ColumnFile,
    make_captioned,
    pack_photos,
    packed,
    rewrite_index,
    rewrite_manifest,
)
from packing import interrupted_unpack, raw_tree

import fastfeed
from fastfeed.errors import DestinationError, DestinationOccupied, IndexDamaged, ManifestDamaged
from fastfeed.packer.unpack import WORKPLACE


# ------------------------------------------------------------------------------------------------ hostile datasets
def _sources(file: ColumnFile, paths: Sequence[bytes]) -> None:
    starts = [0, *accumulate(map(len, paths))]
    file.replace("member", "source", struct.pack(f"<{len(starts)}Q", *starts), b"".join(paths))


HOSTILE = {
    "parent": b"../evil",
    "parent inside": b"a/../../evil",
    "absolute": b"/tmp/fastfeed-evil",
    "doubled slash": b"a//evil",
    "dot": b"./evil",
    "only a dot": b".",
    "trailing slash": b"evil/",
    "NUL": b"ev\0il",
    "too long a part": b"e" * 256,
    "our workplace": WORKPLACE.encode() + b"/digests.json",
    "only parents": b"../..",
    "too long a path": b"a/" * 2048 + b"a",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_an_unsafe_path_is_refused_before_anything_is_written(tmp_path: Path, name: str):
    inner = tmp_path / "inner"
    packed(make_captioned(inner / "src", 2), inner / "packed")
    rewrite_index(inner / "packed", lambda file: _sources(file, [b"a.jpg", b"a.txt", b"b.jpg", HOSTILE[name]]))
    # I9
    found = [finding.text for finding in fastfeed.verify(inner / "packed").findings]  # every digest fits, but a rule is broken
    assert [text.startswith("an original path is unsafe") for text in found] == ([] if name == "our workplace" else [True])
    before = raw_tree(tmp_path)
    with pytest.raises(IndexDamaged, match=r"an original path is unsafe: .* sample 1, key '001'.* do not trust this dataset"):
        fastfeed.unpack(inner / "packed", inner / "out")
    assert raw_tree(tmp_path) == before
    assert not os.path.lexists("/tmp/fastfeed-evil")


@pytest.mark.parametrize(
    ("paths", "words"),
    [
        ([b"a.jpg", b"a.txt", b"b.jpg", b"a.jpg"], "two members have the same original path 'a.jpg'"),
        ([b"a", b"a.txt", b"a/b/c", b"d"], "an original path is a file and a folder: 'a'"),
        ([b"a/b/c", b"a.txt", b"a", b"d"], "an original path is a file and a folder: 'a'"),
    ],
    ids=["doubled", "file, then folder", "folder, then file"],
)
def test_paths_that_exclude_each_other_are_refused(tmp_path: Path, paths: list[bytes], words: str):
    packed(make_captioned(tmp_path / "src", 2), tmp_path / "packed")
    rewrite_index(tmp_path / "packed", lambda file: _sources(file, paths))
    with pytest.raises(IndexDamaged, match=words):
        fastfeed.unpack(tmp_path / "packed", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["../evil", "/tmp/fastfeed-evil", "", ".", "..", "a\0b", "\ud800"])
def test_an_unsafe_class_is_refused_before_anything_is_written(tmp_path: Path, name: str):
    dataset = pack_photos(tmp_path / "inner")
    rewrite_manifest(dataset, lambda body: body.update(classes=["cat", name]))
    before = raw_tree(tmp_path)
    kind: type[fastfeed.DatasetError] = ManifestDamaged
    words = "a class has a name that no folder can have"
    if name == "\ud800":
        kind, words = IndexDamaged, "an original path is unsafe"
    with pytest.raises(kind, match=words):
        fastfeed.unpack(dataset, tmp_path / "inner" / "out")
    assert raw_tree(tmp_path) == before


def test_without_original_paths_the_members_names_serve(tmp_path: Path):
    """The column is optional: another writer may leave it out."""
    packed(make_captioned(tmp_path / "src", 2), tmp_path / "packed")

    def drop(file: ColumnFile) -> None:
        file.table["columns"] = [entry for entry in file.table["columns"] if entry["name"] != "source"]
        file.parts = file.parts[:-2]

    rewrite_index(tmp_path / "packed", drop)
    fastfeed.unpack(tmp_path / "packed", tmp_path / "out")
    assert raw_tree(tmp_path / "out") == raw_tree(tmp_path / "src")


@pytest.mark.parametrize("source", [b"cat/sub/000.jpg", b"cat/000.jpg"])
def test_a_planted_link_leads_nowhere(tmp_path: Path, source: bytes):
    dataset = pack_photos(tmp_path, each=1)
    paths = [b"", source, b"", b"dog/000.jpg"]
    rewrite_index(dataset, lambda file: _sources(file, paths))
    interrupted_unpack(dataset, tmp_path / "out")
    (tmp_path / "outside").mkdir()
    (tmp_path / "out" / "cat").symlink_to(tmp_path / "outside")
    with pytest.raises(DestinationOccupied, match="a link in the destination may lead out of it"):
        fastfeed.unpack(dataset, tmp_path / "out")
    assert raw_tree(tmp_path / "outside") == {}


def test_a_planted_link_in_the_place_of_a_file_is_replaced(tmp_path: Path):
    dataset = pack_photos(tmp_path)
    interrupted_unpack(dataset, tmp_path / "out")
    (tmp_path / "outside").write_bytes((tmp_path / "photos" / "cat" / "000.jpg").read_bytes())
    (tmp_path / "out" / "cat").mkdir()
    (tmp_path / "out" / "cat" / "000.jpg").symlink_to(tmp_path / "outside")
    fastfeed.unpack(dataset, tmp_path / "out")
    assert not (tmp_path / "out" / "cat" / "000.jpg").is_symlink()
    assert raw_tree(tmp_path / "out") == raw_tree(tmp_path / "photos")


def test_a_planted_workplace_leads_nowhere(tmp_path: Path):
    dataset = pack_photos(tmp_path)
    interrupted_unpack(dataset, tmp_path / "elsewhere")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / WORKPLACE).symlink_to(tmp_path / "elsewhere" / WORKPLACE)
    with pytest.raises(DestinationOccupied, match="a link in the destination may lead out of it"):
        fastfeed.unpack(dataset, tmp_path / "out")
    interrupted_unpack(dataset, tmp_path / "out2")
    (tmp_path / "outside").write_bytes(b"mine")
    (tmp_path / "out2" / WORKPLACE / "part").symlink_to(tmp_path / "outside")
    with pytest.raises(DestinationError, match="Too many levels of symbolic links"):
        fastfeed.unpack(dataset, tmp_path / "out2")
    assert (tmp_path / "outside").read_bytes() == b"mine"
