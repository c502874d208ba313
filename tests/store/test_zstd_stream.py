"""Tars behind Zstandard: frames found, bytes read at random, damage told."""

import os
import random
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from tarring import zstandarded

from fastfeed.store.blocks import StreamDamaged
from fastfeed.store.zstd_stream import Frames, ZstdTar, chunks, is_skippable

RAW = random.Random(1).randbytes(240_000)


def skippable(content: bytes, number: int = 0) -> bytes:
    return (0x184D2A50 + number).to_bytes(4, "little") + len(content).to_bytes(4, "little") + content


def decompressed(path: Path) -> tuple[bytes, Frames]:
    """All of a file, and its frames."""
    frames, parts = Frames(), list[bytes]()

    def on_frame(at: int) -> None:
        frames.ats.append(at)
        frames.starts.append(sum(map(len, parts)))

    descriptor = os.open(path, os.O_RDONLY)
    try:
        for part in chunks(descriptor, on_frame=on_frame):
            assert part
            parts.append(part)
    finally:
        os.close(descriptor)
    return b"".join(parts), frames


@pytest.mark.parametrize("sized", [True, False])
@pytest.mark.parametrize("frame_bytes", [None, 1000, 65_536, 239_999])
def test_frames_are_found_on_the_way_through(tmp_path: Path, frame_bytes: int | None, sized: bool):
    raw = skippable(b"hello") + zstandarded(RAW, frame_bytes, sized=sized) + skippable(b"", 15) + skippable(bytes(300))
    path = tmp_path / "x"
    path.write_bytes(raw)
    data, frames = decompressed(path)
    assert data == RAW
    step = frame_bytes or len(RAW)
    assert list(frames.starts) == list(range(0, len(RAW), step))
    assert all(raw[at : at + 4] == b"\x28\xb5\x2f\xfd" for at in frames.ats)
    assert len(frames) == -(-len(RAW) // step)
    assert frames.largest_bytes(len(RAW)) == min(step, len(RAW))
    assert Frames().largest_bytes(0) == 0


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, len(RAW) + 10), st.integers(0, 5000)), max_size=6), st.sampled_from([None, 3000, 70_000])
)
def test_any_range_in_any_order(
    tmp_path_factory: pytest.TempPathFactory, ranges: list[tuple[int, int]], frame_bytes: int | None
):
    path = tmp_path_factory.mktemp("zst") / "x"
    path.write_bytes(zstandarded(RAW, frame_bytes))
    tar = ZstdTar(str(path), decompressed(path)[1])
    for start, count in ranges:
        assert tar.read(start, start + count) == RAW[start : start + count]


def test_reading_onwards_does_not_begin_anew(tmp_path: Path):
    path = tmp_path / "x"
    path.write_bytes(zstandarded(RAW))
    one = ZstdTar(str(path), decompressed(path)[1])
    for start in range(0, 200_000, 2000):
        one.read(start, start + 1500)
    assert one.restarts == 1
    one.read(0, 10)
    assert one.restarts == 2
    path.write_bytes(zstandarded(RAW, 10_000))
    many = ZstdTar(str(path), decompressed(path)[1])
    many.read(0, 100)
    many.read(150_000, 150_100)
    assert many.restarts == 2, "what lies between is not decompressed"


def test_damage_is_told_with_its_place(tmp_path: Path):
    whole, path = zstandarded(RAW, 60_000), tmp_path / "x"
    _, frames = decompressed(_written(path, whole))
    second = frames.ats[1]
    for raw, words in (
        (
            whole[: second + 500],
            rf"the compressed file ends at byte {second + 500}, within the Zstandard frame that begins at byte {second}",
        ),
        (whole[:second] + b"rubbish" + whole[second:], rf"at byte {second} of the compressed file there is no Zstandard frame"),
        (
            whole[: second + 30] + b"\xff" * 50 + whole[second + 80 :],
            rf"the Zstandard frame at byte {second} of the compressed file is damaged",
        ),
    ):
        with pytest.raises(StreamDamaged, match=words):
            decompressed(_written(path, raw))
    with pytest.raises(StreamDamaged):
        ZstdTar(str(path), frames).read(119_000, 120_000)


def _written(path: Path, raw: bytes) -> Path:
    path.write_bytes(raw)
    return path


@pytest.mark.long
def test_a_frame_that_grows_is_decompressed_in_steps(tmp_path: Path):
    """A gigabyte of zeros takes 32 kB: it must never be in memory at once."""
    compressor = zstandard.ZstdCompressor(3).compressobj()
    raw = b"".join(compressor.compress(bytes(1 << 24)) for _ in range(64)) + compressor.flush()
    descriptor = os.open(_written(tmp_path / "x", raw), os.O_RDONLY)
    try:
        sizes = [len(part) for part in chunks(descriptor)]
    finally:
        os.close(descriptor)
    assert sum(sizes) == 1 << 30
    assert max(sizes) <= 1 << 28


def test_skippable_frames():
    assert is_skippable(skippable(b"", 0)[:8])
    assert is_skippable(skippable(b"", 15)[:8])
    assert not is_skippable(skippable(b"")[:7])
    assert not is_skippable(b"\x28\xb5\x2f\xfd\0\0\0\0")


def test_no_file(tmp_path: Path):
    with pytest.raises(FileNotFoundError):
        ZstdTar(str(tmp_path / "none"), Frames())
