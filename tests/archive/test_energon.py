"""Energon's files by tarfile, SQLite and a YAML parser. That they are those of `energon prepare` is shown by tools/readers."""

import json
import sqlite3
import struct
import tarfile
import uuid
from pathlib import Path

import pytest
import yaml
from helpers import flip_bit, make_captioned, make_photos, packed, rewrite_index

from fastfeed.archive.beside import Rows
from fastfeed.archive.dataset import Archive
from fastfeed.archive.energon import located, metadata, tar_indexes
from fastfeed.errors import IndexDamaged, UsageError


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    packed(make_captioned(tmp_path / "src", 8), tmp_path / "set", shards=3)
    return tmp_path / "set"


def files(parts: dict[str, Rows], folder: Path, digest: str = "d") -> dict[str, Path]:
    """All of .nv-meta, written somewhere."""
    found = {}
    for sidecar in metadata(parts, digest):
        path = folder / Path(sidecar.file).name
        sidecar.write(str(path))
        assert sidecar.difference(str(path)) is None
        found[path.name] = path
    return found


def of_group(tmp_path: Path, *splits: str) -> dict[str, Rows]:
    for split in splits:
        make_photos(tmp_path / "src" / split, each=2)
    packed(tmp_path / "src", tmp_path / "group", shards=2)
    return {split: Rows(Archive(str(tmp_path / "group" / split))) for split in splits}


def members(shard: Path) -> list[tarfile.TarInfo]:
    with tarfile.open(shard, "r:") as tar:
        return tar.getmembers()


def test_tar_indexes_name_each_first_header_and_the_end(dataset: Path, tmp_path: Path):
    for sidecar in tar_indexes(Rows(Archive(str(dataset)))):
        sidecar.write(str(tmp_path / "x"))
        raw = (tmp_path / "x").read_bytes()
        found = members(dataset / sidecar.file.removesuffix(".idx"))
        firsts = [info.offset for info in found if info.name.endswith(".jpg")]  # each sample is .jpg, .txt
        end = found[-1].offset_data + -(-found[-1].size // 512) * 512
        assert list(struct.unpack(f"<{len(raw) // 8}Q", raw)) == [*firsts, end]


def test_the_database_has_every_sample_and_member(dataset: Path, tmp_path: Path):
    path = files({"": Rows(Archive(str(dataset)))}, tmp_path)["index.sqlite"]
    base = sqlite3.connect(path)
    samples, parts = [], []
    for number, shard in enumerate(sorted(dataset.glob("*.tar"))):
        found = members(shard)
        ends = [info.offset for info in found[2::2]] + [found[-1].offset_data + -(-found[-1].size // 512) * 512]
        for at, (first, end) in enumerate(zip(found[::2], ends, strict=True)):
            samples.append((number, first.name.partition(".")[0], at, first.offset, end - first.offset))
        parts += [(number, at // 2, i.name.partition(".")[2], i.offset_data, i.size) for at, i in enumerate(found)]
    assert base.execute("SELECT * FROM samples").fetchall() == samples
    assert base.execute("SELECT * FROM sample_parts").fetchall() == parts
    indexes = {name for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'index'")}
    assert {"idx_samples_by_tar_and_idx", "idx_sample_parts_seq", "idx_sample_parts_full"} <= indexes
    plan = base.execute("EXPLAIN QUERY PLAN SELECT byte_offset FROM samples WHERE sample_key = 'x'").fetchall()
    assert "USING INDEX" in plan[0][-1]
    base.close()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("UPDATE samples SET byte_offset = 1 WHERE sample_key = '004'", "row 4 of its table samples differs"),
        ("DELETE FROM sample_parts WHERE tar_file_id = 2 AND sample_index = 1", "row 14 of its table sample_parts differs"),
        ("INSERT INTO samples VALUES (7, 'x', 0, 0, 0)", "expected None, got (7, 'x', 0, 0, 0)"),
        ("DROP TABLE samples", "no such table"),
    ],
)
def test_a_database_with_other_rows(dataset: Path, tmp_path: Path, change: str, words: str):
    parts = {"": Rows(Archive(str(dataset)))}
    path = files(parts, tmp_path)["index.sqlite"]
    base = sqlite3.connect(path)
    base.execute(change)
    base.commit()
    base.close()
    (sidecar,) = [one for one in metadata(parts, "d") if one.file.endswith("sqlite")]
    assert words in (sidecar.difference(str(path)) or "")


def test_what_is_no_database(dataset: Path, tmp_path: Path):
    (sidecar,) = [one for one in metadata({"": Rows(Archive(str(dataset)))}, "d") if one.file.endswith("sqlite")]
    (tmp_path / "x").write_text("no database, by far" * 100)
    assert "no database that SQLite reads" in (sidecar.difference(str(tmp_path / "x")) or "")
    assert "no database that SQLite reads" in (sidecar.difference(str(tmp_path / "missing")) or "")
    sidecar.write(str(tmp_path / "x"))  # what a killed run left is replaced, not continued
    assert sidecar.difference(str(tmp_path / "x")) is None
    flip_bit(tmp_path / "x", 60)
    assert sidecar.difference(str(tmp_path / "x")) is None  # not every byte is a row: the record's sha256 sees it (S3)


def test_a_database_whose_index_leads_elsewhere(tmp_path: Path):
    packed(make_captioned(tmp_path / "src", 300), tmp_path / "set")
    parts = {"": Rows(Archive(str(tmp_path / "set")))}
    (sidecar,) = [one for one in metadata(parts, "d") if one.file.endswith("sqlite")]
    path = files(parts, tmp_path)["index.sqlite"]
    base = sqlite3.connect(path)
    (page,) = base.execute("SELECT rootpage FROM sqlite_master WHERE name = 'idx_sample_parts_full'").fetchone()
    (size,) = base.execute("PRAGMA page_size").fetchone()
    base.close()
    flip_bit(path, page * size - 3)
    assert "SQLite says of it" in (sidecar.difference(str(path)) or "")


def test_odd_paths_are_no_uri(dataset: Path, tmp_path: Path):
    (sidecar,) = [one for one in metadata({"": Rows(Archive(str(dataset)))}, "d") if one.file.endswith("sqlite")]
    folder = tmp_path / "a?mode=rwc#50%25\udcff"
    folder.mkdir()
    sidecar.write(str(folder / "x"))
    assert sidecar.difference(str(folder / "x")) is None


def test_a_key_that_is_there_twice_is_told(dataset: Path, tmp_path: Path):
    def change(index):
        starts, data = index.column("sample", "key")
        index.replace("sample", "key", starts, data.replace(b"001", b"000"))

    rewrite_index(dataset, change)
    with pytest.raises(IndexDamaged, match="Energon needs every key once, and the index has one twice"):
        files({"": Rows(Archive(str(dataset)))}, tmp_path)


def test_a_dataset_without_splits(dataset: Path, tmp_path: Path):
    found = files({"": Rows(Archive(str(dataset)))}, tmp_path, "0123")
    assert json.loads(found[".info.json"].read_bytes()) == {
        "energon_version": "7.4.1", "shard_counts": {"src-000000.tar": 3, "src-000001.tar": 3, "src-000002.tar": 2},
    }  # fmt: skip
    assert found["split.yaml"].read_text() == (
        "split_parts:\n  train:\n  - src-{000000..000002}.tar\n  val: []\n  test: []\nexclude: []\n"
    )
    assert yaml.safe_load(found["dataset.yaml"].read_text()) == {
        "__module__": "megatron.energon", "__class__": "CrudeWebdataset",
    }  # fmt: skip
    assert uuid.UUID(found["index.uuid"].read_text()) == uuid.uuid5(uuid.NAMESPACE_OID, "0123")


def test_a_group_is_one_dataset_with_a_part_a_split(tmp_path: Path):
    found = files(of_group(tmp_path, "train", "validation"), tmp_path)
    assert list(json.loads(found[".info.json"].read_bytes())["shard_counts"].items()) == [
        (f"{split}/{split}-{at:06d}.tar", 2) for split in ("train", "validation") for at in (0, 1)
    ]
    assert yaml.safe_load(found["split.yaml"].read_text()) == {
        "split_parts": {
            "train": ["train/train-{000000..000001}.tar"], "validation": ["validation/validation-{000000..000001}.tar"],
            "val": [], "test": [],
        }, "exclude": [],
    }  # fmt: skip
    base = sqlite3.connect(found["index.sqlite"])
    assert base.execute("SELECT DISTINCT tar_file_id FROM samples ORDER BY 1").fetchall() == [(0,), (1,), (2,), (3,)]
    base.close()


def rows_called(parts: dict[str, Rows], *names: str) -> dict[str, Rows]:
    return dict.fromkeys(names, parts["train"])


@pytest.mark.parametrize("name", ["no", "1e3", "a: b", "groß", "- x", "#x", '"x"', "2024", "null", "x y"])
def test_odd_names_of_splits_stay_what_they_are(tmp_path: Path, name: str):
    parts = rows_called(of_group(tmp_path, "train", "val"), name)
    found = yaml.safe_load(files(parts, tmp_path)["split.yaml"].read_text())
    assert found["split_parts"][name] == [f"{name}/train-{{000000..000001}}.tar"]


@pytest.mark.parametrize("name", ["a{b,c}", "x\udcff", "a\nb", "b\\c"])
def test_names_that_energon_reads_as_something_else(tmp_path: Path, name: str):
    parts = rows_called(of_group(tmp_path, "train", "val"), name)
    with pytest.raises(UsageError, match="Energon reads the name of split"):
        metadata(parts, "d")


def test_one_shard_is_named_without_braces(tmp_path: Path):
    packed(make_captioned(tmp_path / "src", 2), tmp_path / "set")
    text = files({"": Rows(Archive(str(tmp_path / "set")))}, tmp_path)["split.yaml"].read_text()
    assert "  - src-000000.tar\n" in text


def test_where_a_shard_lies():
    assert (located("", "x.tar"), located("val", "x.tar")) == ("x.tar", "val/x.tar")


@pytest.mark.parametrize(
    ("name", "raw", "fits"),
    [
        ("index.uuid", b"d520bef5-4034-400d-a2b0-323ad2840cbb\n", True),
        ("index.uuid", b"d520bef5", False),
        ("index.uuid", b"\xff" * 36, False),
        (".info.json", b'{"shard_counts": {"src-000000.tar": 3, "src-000001.tar": 3, "src-000002.tar": 2}}', True),
        (".info.json", b'{"shard_counts": {"src-000000.tar": 3, "src-000001.tar": 3, "src-000002.tar": 3}}', False),
        (".info.json", b'{"shard_counts": {"src-000001.tar": 3, "src-000000.tar": 3, "src-000002.tar": 2}}', False),
        (".info.json", b'{"x": 1, "shard_counts": {"src-000000.tar": 3, "src-000001.tar": 3, "src-000002.tar": 2}}', False),
        (".info.json", b"[]", False),
        (".info.json", b"{", False),
    ],
)
def test_what_another_prepare_wrote_is_right_if_it_says_the_same(
    dataset: Path, tmp_path: Path, name: str, raw: bytes, fits: bool
):
    (sidecar,) = [one for one in metadata({"": Rows(Archive(str(dataset)))}, "d") if one.file == f".nv-meta/{name}"]
    (tmp_path / "x").write_bytes(raw)
    assert (sidecar.difference(str(tmp_path / "x")) is None) == fits
