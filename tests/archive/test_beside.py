"""A shard's rows of the index, and what a sidecar says of the file that is there."""

import re
import struct
from pathlib import Path

import pytest
from helpers import make_captioned, packed, rewrite_index
from packing import read_back

from fastfeed.archive.beside import Rows, of_bytes, prove_plain
from fastfeed.archive.dataset import Archive
from fastfeed.errors import IndexDamaged, UsageError


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    packed(make_captioned(tmp_path / "src", 7), tmp_path / "set", shards=3)
    return tmp_path / "set"


def test_rows_are_what_lies_in_the_shards(dataset: Path):
    rows = Rows(Archive(str(dataset)))
    keys: list[str] = []
    for number in (0, 1, 2, 1):  # also out of order
        shard = rows.shard(number)
        if len(keys) < 7:
            keys += shard.keys
        raw = (dataset / f"src-{number:06d}.tar").read_bytes()
        assert (len(shard.starts), shard.starts[0], shard.starts[-1]) == (len(shard.keys) + 1, 0, len(shard.fields))
        for key, start, stop in zip(shard.keys, shard.starts, shard.starts[1:], strict=False):
            for row in range(start, stop):
                name = raw[shard.offsets[row] - 512 :][:100].rstrip(b"\0").decode()
                assert name == f"{key}.{shard.fields[row]}"
                assert int(raw[shard.offsets[row] - 512 + 124 :][:11], 8) == shard.sizes[row]
        assert not raw[shard.end :].strip(b"\0") and raw[shard.end - 512 : shard.end].strip(b"\0")
    assert keys == [sample.key for sample in read_back(dataset)]


def numbers(name: str, row: int, value: int, table: str = "member"):
    """Sets one number of a column."""

    def change(index):
        raw = bytearray(index.column(table, name)[0])
        size = {"field": 2, "offset": 8, "size": 8, "members": 8}[name]
        raw[row * size : (row + 1) * size] = value.to_bytes(size, "little")
        index.replace(table, name, bytes(raw))

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (numbers("field", 4, 9), r"places a member outside its shard .*sample 2, .*field 9"),
        (numbers("offset", 4, 1 << 40), r"places a member outside its shard .*sample 2"),
        (numbers("size", 5, 1 << 40), r"places a member outside its shard .*sample 2"),
        (numbers("offset", 1, 512), r"places a shard's members neither apart nor in order .*src-000000.tar"),
        (numbers("members", 2, 99, "sample"), r"a sample's members lie outside the index .*sample 1"),
        (numbers("members", 2, 2, "sample"), r"places a shard's members neither apart nor in order"),
    ],
    ids=["field", "offset", "size", "overlap", "rows", "no member"],
)
def test_an_index_that_leads_out_of_its_shard_makes_no_sidecar(dataset: Path, change, words: str):
    rewrite_index(dataset, change)
    with pytest.raises(IndexDamaged, match=re.compile(words, re.DOTALL)):
        Rows(Archive(str(dataset))).shard(0)


def test_a_file_is_compared_byte_for_byte(tmp_path: Path):
    sidecar = of_bytes("x", "dali", lambda: b"right bytes")
    path = tmp_path / "x"
    sidecar.write(str(path))
    assert path.read_bytes() == b"right bytes"
    assert sidecar.difference(str(path)) is None
    for raw, words in ((b"right_bytes", "its byte 5 on: expected b' bytes', got b'_bytes'"), (b"right", "its byte 5 on"),
                       (b"right bytes and more", "its byte 11 on: expected b'', got b' and more'")):  # fmt: skip
        path.write_bytes(raw)
        assert words in (sidecar.difference(str(path)) or "")
    with pytest.raises(OSError, match="not a regular file"):
        sidecar.difference("/dev/null")


def test_other_bytes_may_say_the_same(tmp_path: Path):
    sidecar = of_bytes("x", "dali", lambda: struct.pack("<I", 7), accepts=lambda raw: raw == b"seven")
    (tmp_path / "x").write_bytes(b"seven")
    assert sidecar.difference(str(tmp_path / "x")) is None
    (tmp_path / "x").write_bytes(b"eight")
    assert sidecar.difference(str(tmp_path / "x")) is not None


def test_compressed_shards_have_none(dataset: Path):
    archive = Archive(str(dataset))
    prove_plain(archive)

    class Compressed:
        compression = "zstd"

    archive.manifest = Compressed()  # type: ignore[assignment] # what a manifest of compressed shards says
    with pytest.raises(UsageError, match="the shards are compressed"):
        prove_plain(archive)
