"""Tars behind gzip: every byte proven on the way through, then read at random through seek points."""

import os
import random
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tarring import gzipped

from fastfeed.store.blocks import StreamDamaged
from fastfeed.store.gzip_stream import SPACING_BYTES, GzipTar, chunks, write_seek_points

RAW = random.Random(1).randbytes(1 << 20) + b"some text " * (SPACING_BYTES // 5) + random.Random(2).randbytes(1 << 20)


def decompressed(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return b"".join(chunks(descriptor))
    finally:
        os.close(descriptor)


def written(path: Path, raw: bytes) -> Path:
    path.write_bytes(raw)
    return path


@pytest.mark.parametrize("pieces", [1, 2, 7])
def test_all_of_it(tmp_path: Path, pieces: int):
    path = written(tmp_path / "x", gzipped(RAW, pieces))
    assert decompressed(path) == RAW
    assert decompressed(written(path, gzipped(RAW, pieces) + bytes(100_000))) == RAW, "zeros behind the last member are padding"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A file of two gzip members, and its seek points."""
    folder = tmp_path_factory.mktemp("gz")
    path = written(folder / "x", gzipped(RAW, 2))
    write_seek_points(str(path), str(folder / "points"))
    return str(path), str(folder / "points")


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(RAW) + 10), st.integers(0, 5000)), max_size=4))
def test_any_range_in_any_order(pair: tuple[str, str], ranges: list[tuple[int, int]]):
    tar = GzipTar(*pair)
    for start, count in ranges:
        assert tar.read(start, start + count) == RAW[start : start + count]


def test_damage_is_told_with_its_place(tmp_path: Path):
    """indexed_gzip alone takes a cut file for a whole one, and so would lose samples without a word."""
    whole, path = gzipped(RAW[: 1 << 19]), tmp_path / "x"
    for raw, words in (
        (whole[:-5], f"the compressed file ends at byte {len(whole) - 5}, within the gzip stream that begins at byte 0"),
        (whole[:-8] + b"\0" * 8, "that begins at byte 0 of the compressed file do not fit its checksum.*incorrect data check"),
        (whole + b"rubbish", f"the gzip stream that begins at byte {len(whole)} of the compressed file is damaged"),
        (b"", "the compressed file ends at byte 0"),
    ):
        with pytest.raises(StreamDamaged, match=words):
            decompressed(written(path, raw))


def test_seek_points_of_another_file_do_not_fit(tmp_path: Path, pair: tuple[str, str]):
    other = written(tmp_path / "other", gzipped(b"something else"))
    with pytest.raises(StreamDamaged, match=r"the seek points in .* do not fit"):
        GzipTar(str(other), pair[1])
    with pytest.raises(StreamDamaged, match=r"the seek points in .* do not fit"):
        GzipTar(pair[0], str(written(tmp_path / "points", b"none")))
    with pytest.raises(FileNotFoundError):
        GzipTar(pair[0], str(tmp_path / "none"))


# ------------------------------------------------------------------------------------------------ in front of damage
TEXT = b"".join(b"line %d of a text that compresses well, but not too well\n" % number for number in range(60_000))


def damaged(raw: bytes) -> bytes:
    """The same bytes with a stretch in the middle that no decoder takes."""
    at = len(raw) // 2
    return raw[:at] + b"\xff" * 3000 + raw[at + 3000 :]


def test_all_that_comes_before_damage_is_read(tmp_path: Path):
    raw = gzipped(TEXT)
    descriptor = os.open(written(tmp_path / "x", damaged(raw)), os.O_RDONLY)
    parts: list[bytes] = []
    with pytest.raises(StreamDamaged, match="is damaged near byte"):
        parts.extend(chunks(descriptor))  # those before the damage are kept
    found = b"".join(parts)
    os.close(descriptor)
    whole = zlib.decompressobj(31)
    wanted = whole.decompress(raw[: len(raw) // 2 - 64])
    assert found.startswith(wanted)
    assert TEXT.startswith(found[: len(wanted) + 100])


def test_all_that_comes_before_damage_is_read_at_random(tmp_path: Path):
    """indexed_gzip reads ahead and fails where good bytes are left: those come from the start then."""
    path = written(tmp_path / "x", damaged(gzipped(TEXT)))
    write_seek_points(str(path), str(tmp_path / "points"))
    tar = GzipTar(str(path), str(tmp_path / "points"))
    good = len(TEXT) // 2 - 30_000
    for start in (good - 1000, 5, good - 5000, good - 500):
        assert tar.read(start, start + 400) == TEXT[start : start + 400]
    with pytest.raises(StreamDamaged, match="is damaged near byte"):
        tar.read(len(TEXT) - 1000, len(TEXT))
    before = len(os.listdir("/proc/self/fd"))
    del tar
    assert len(os.listdir("/proc/self/fd")) < before
