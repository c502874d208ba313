"""The index of tars in place: what it gives, and every broken rule of archive/README.md §11.2 found."""

import json
import os
from array import array
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import ColumnFile, flipped
from hypothesis import given, settings
from hypothesis import strategies as st
from tarring import pairs, write_tar

from fastfeed.archive.bytestrings import ByteStrings
from fastfeed.archive.tars import NO_LABEL, PLAIN, TarFile, TarsData, TarSet, TarsIndex
from fastfeed.errors import FastfeedError, IndexDamaged, ShardDamaged, VersionUnsupported
from fastfeed.source.tarindex import index_tars, store_of
from fastfeed.store.members import MemberReader


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two tars, the second with a repeated key, an odd name and a member that is none; and their index, with checksums."""
    folder = tmp_path_factory.mktemp("tars")
    write_tar(folder / "one.tar", pairs(3))
    write_tar(folder / "deep" / "two.tar", [*pairs(2, 3), ("x.TXT", b"odd"), ("README", b""), ("d/000000.txt", b"9")])
    return folder, Path(index_tars([str(folder / "one.tar"), str(folder / "deep" / "two.tar")], checksums=True).path)


@pytest.fixture
def tars(made: tuple[Path, Path]) -> TarSet:
    return TarSet(str(made[1]), str(made[0]))


def test_what_it_gives(tars: TarSet, made: tuple[Path, Path]):
    assert len(tars) == 7
    assert [(entry.file, entry.samples, entry.dropped) for entry in tars.tars] == [("deep/two.tar", 4, 0), ("one.tar", 3, 0)]
    assert (tars.fields, tars.classes, tars.found, tars.lost, tars.dropped) == (("cls", "txt"), None, {"no-field": 1}, 0, 0)
    assert [tars.key(position) for position in range(7)] == ["000003", "000004", "x", "d/000000", "000000", "000001", "000002"]
    (place,) = tars.places(2)
    assert (place.shard, place.field, place.stop - place.start) == ("deep/two.tar", "txt", 3)
    assert tars.name_of(2, place) == b"x.TXT"
    assert (tars.source(2), tars.source(4)) == (b"deep/two.tar/x.TXT", b"one.tar/000000.txt")
    assert tars.tar_of(4).file == "one.tar"
    assert tars.parts() == "2 tars"
    assert tars.index.findings()[0].tar == 0
    assert tars.told(tars.index.findings()[0]).startswith("deep/two.tar, bytes [")
    found = {
        tars.key(position): source
        for position, source in tars.members_with({b"deep/two.tar/x.TXT", b"one.tar/000001.cls", b"x"})
    }
    assert found == {"x": b"deep/two.tar/x.TXT", "000001": b"one.tar/000001.cls"}
    error = tars.at(ShardDamaged("x"), 2, place)
    assert (error.shard, error.sample, error.key, error.member) == ("deep/two.tar", 2, "x", "x.TXT")
    assert (error.source, error.start, error.stop) == ("deep/two.tar/x.TXT", place.start, place.stop)


def test_the_digest_changes_with_anything(made: tuple[Path, Path], tmp_path: Path):
    whole = made[1].read_bytes()
    file = ColumnFile.parse(whole)
    file.replace("member", "size", file.column("member", "size")[0][::-1])
    (tmp_path / "index").write_bytes(file.build())
    assert TarsIndex(str(tmp_path / "index")).digest != TarsIndex(str(made[1])).digest


def test_tars_are_proven_by_size_and_time(tmp_path: Path):
    """[P4]"""
    write_tar(tmp_path / "a.tar", pairs(1))
    result = index_tars(str(tmp_path / "a.tar"))
    tars = TarSet(result.path, result.base)
    tars.prove()
    os.utime(tmp_path / "a.tar", ns=(7, 7))
    with pytest.raises(
        ShardDamaged, match=r"a tar has changed since it was indexed .*a\.tar.*got 10240 bytes, modified at 7 ns"
    ):
        tars.prove()
    (tmp_path / "a.tar").unlink()
    with pytest.raises(ShardDamaged, match=r"a tar cannot be found: No such file"):
        tars.prove()


# ------------------------------------------------------------------------------------------------ what is written
def test_labels_are_whole_or_of_some(tmp_path: Path):
    for labels, name in (([1, 2], "label"), ([1, NO_LABEL], "some_label"), ([NO_LABEL] * 2, None)):
        data = TarsData(
            tars=[TarFile("a", 1, 1, PLAIN, 2048, 2, 0)], fields=["x"], keys=ByteStrings([b"1", b"2"]),
            labels=array("q", labels), counts=array("I", [1, 1]), member_fields=array("H", [0, 0]),
            offsets=array("Q", [512, 1024]),
            sizes=array("Q", [1, 1]), digests=None, extensions=[], written=array("H"), frames=[], findings=[], found={},
        )  # fmt: skip
        with (tmp_path / "index").open("wb") as file:
            data.write(file)
        index = TarsIndex(str(tmp_path / "index"))
        assert [name for name in ("label", "some_label") if index.has("sample", name)] == ([name] if name else [])
        assert not index.has("member", "xxh3") and not index.has("member", "written")


# ------------------------------------------------------------------------------------------------ broken rules
def q(values: list[int]) -> bytes:
    return array("Q", values).tobytes()


def h(values: list[int]) -> bytes:
    return array("H", values).tobytes()


def facts(**changes: object) -> list[bytes]:
    value = json.dumps({"findings": {}, "kind": "tars", "version": 1, **changes}).encode()
    return [q([0, len(value)]), value]


BROKEN: list[tuple[str, Callable[[ColumnFile], object], type[FastfeedError], str]] = [
    ("P6 missing", lambda f: f.entry("tar", "mtime_ns").update(name="x", required=False), IndexDamaged, "column mtime"),
    ("P6 type", lambda f: f.entry("member", "xxh3").update(type="int64"), IndexDamaged, "xxh3 of member has the wrong type"),
    ("P6 new", lambda f: f.entry("member", "xxh3").update(name="new", required=True), VersionUnsupported, "knows column new"),
    ("P7 kind", lambda f: f.replace("set", "facts", *facts(kind="dataset")), IndexDamaged, "this is no index of tars"),
    ("P7 version", lambda f: f.replace("set", "facts", *facts(version=2)), VersionUnsupported, "the index has version 2"),
    ("P7 no JSON", lambda f: f.replace("set", "facts", q([0, 1]), b"{"), IndexDamaged, "not the JSON that"),
    ("P7 no findings", lambda f: f.replace("set", "facts", *facts(findings=[1])), IndexDamaged, "not the JSON that"),
    ("P8 falls", lambda f: f.replace("tar", "samples", q([0, 9, 7])), IndexDamaged, "do not rise from 0 to 7"),
    ("P8 too few", lambda f: f.replace("tar", "samples", q([0, 3, 6])), IndexDamaged, "do not rise from 0 to 7"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "kind", "words"), [item[1:] for item in BROKEN], ids=[item[0] for item in BROKEN])
def test_broken_at_opening(made, tmp_path: Path, change, kind: type[FastfeedError], words: str):
    """[P6] [P7] [P8]"""
    file = ColumnFile.parse(made[1].read_bytes())
    change(file)
    (tmp_path / "index").write_bytes(file.build())
    with pytest.raises(kind, match=words) as caught:
        TarSet(str(tmp_path / "index"), str(made[0]))
    assert caught.value.path == str(tmp_path / "index")


@pytest.mark.parametrize("name", ["facts", "file", "size", "mtime_ns", "form", "samples", "name"])
def test_flipped_bits_of_what_is_read_at_opening(made, tmp_path: Path, name: str):
    """[P7]"""
    whole = made[1].read_bytes()
    table = TarsIndex(str(made[1])).table
    column = next(
        column for column in table.columns.values() if column.name == name and column.table in {"set", "tar", "field"}
    )
    for start, stop in column.extents:
        for byte in (start, stop - 1):
            (tmp_path / "index").write_bytes(flipped(whole, byte * 8))
            with pytest.raises(IndexDamaged, match=f"column {name} of {column.table} is damaged"):
                TarsIndex(str(tmp_path / "index"))


def test_flipped_bits_of_any_column_of_a_small_index_show_at_opening_and_of_a_large_one_when_it_is_proven(
    made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """[P7] [P17]"""
    whole, path = made[1].read_bytes(), tmp_path / "index"
    columns = [item for item in TarsIndex(str(made[1])).table.columns.values() if item.table in {"sample", "member"}]
    assert {"offset", "size", "field", "members", "key"} <= {column.name for column in columns}
    for column in columns:
        path.write_bytes(flipped(whole, column.extents[-1][0] * 8))
        words = f"column {column.name} of {column.table} is damaged"
        with monkeypatch.context() as patch:
            with pytest.raises(IndexDamaged, match=words) as caught:
                TarsIndex(str(path))
            assert (caught.value.start, caught.value.stop) == (column.extents[0][0], column.extents[-1][1])
            patch.setattr("fastfeed.archive.tars.PROVEN_BYTES", len(whole) - 1)
            index = TarsIndex(str(path))
            with pytest.raises(IndexDamaged, match=words):
                index.prove()
    path.write_bytes(whole)
    monkeypatch.setattr("fastfeed.archive.tars.PROVEN_BYTES", len(whole) - 1)
    TarsIndex(str(path)).prove()


USED: list[tuple[str, Callable[[ColumnFile], object], str]] = [
    ("range", lambda f: f.replace("sample", "members", q([99] * 8)), "a sample's members lie outside"),
    ("field", lambda f: f.replace("member", "field", h([2] * 12)), "places a member outside its tar"),
    ("written", lambda f: f.replace("member", "written", h([3] * 12)), "names an extension that there is not"),
    ("odd", lambda f: f.replace("member", "offset", q([513] * 12)), "places a member outside its tar"),
    ("header", lambda f: f.replace("member", "offset", q([0] * 12)), "places a member outside its tar"),
    ("end", lambda f: f.replace("member", "size", q([99_999] * 12)), "places a member outside its tar"),
    ("key", lambda f: f.replace("sample", "key", q([99] * 8), f.column("sample", "key")[1]), "lies outside its column"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "words"), [item[1:] for item in USED], ids=[item[0] for item in USED])
def test_broken_in_use(made, tmp_path: Path, change, words: str):
    """[P9]"""
    file = ColumnFile.parse(made[1].read_bytes())
    assert (len(file.numbers("sample", "members")), len(file.numbers("member", "field"))) == (8, 12)
    change(file)
    (tmp_path / "index").write_bytes(file.build())
    tars = TarSet(str(tmp_path / "index"), str(made[0]))
    with pytest.raises(IndexDamaged, match=words) as caught:
        [tars.name_of(1, place) for place in tars.places(1)], tars.key(1)
    assert caught.value.hint == "Index the tars again: fastfeed index."


def test_payloads_are_checked_where_there_are_checksums(tmp_path: Path):
    """[P10]"""
    path = write_tar(tmp_path / "a.tar", pairs(2))
    for checksums in (False, True):
        result = index_tars(str(path), checksums=checksums)
        tars = TarSet(result.path, result.base)
        reader = MemberReader(tars, store_of(tars))
        place = next(tars.places(1))
        whole, facts = path.read_bytes(), path.stat()
        path.write_bytes(flipped(whole, place.start * 8))
        os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))  # a disk that decays changes no time
        if checksums:
            with pytest.raises(
                ShardDamaged, match=r"the bytes of a member differ from their checksum.*shard a\.tar.*index it again"
            ):
                reader.read(1, place)
        else:
            assert reader.read(1, place) != whole[place.start : place.stop]
        path.write_bytes(whole)
        os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_byte_of_it_brings_down_the_reader(made, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject):
    whole = bytearray(made[1].read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(whole) - 1))
        whole[at] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("odd") / "index"
    path.write_bytes(
        bytes(whole[: data.draw(st.integers(len(whole) - 2000, len(whole)))]) if data.draw(st.booleans()) else bytes(whole)
    )
    try:
        tars = TarSet(str(path), str(made[0]))
        for position in range(len(tars)):
            tars.key(position)
            for place in tars.places(position):
                assert 512 <= place.start <= place.stop <= tars.tar_of(position).tar_bytes
                tars.name_of(position, place)
    except (IndexDamaged, VersionUnsupported):
        pass
