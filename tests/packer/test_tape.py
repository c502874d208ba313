"""A shard read from its start to its end: the same tar from a plain file and from a compressed one, all of it hashed."""

import hashlib
import io
import os
import random
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastfeed.archive.frame import FrameWriter
from fastfeed.archive.seektable import Framed
from fastfeed.errors import ShardDamaged
from fastfeed.packer.tape import FrameTape, Tape, open_tape

FRAME_BYTES = 4096
_DICE = random.Random(4)
STREAM = b" ".join(_DICE.choice([b"frame", b"sample", b"of", b"shard"]) for _ in range(6000))


def compressed(stream: bytes) -> bytes:
    out = io.BytesIO()
    writer = FrameWriter(out.write, level=3, frame_bytes=FRAME_BYTES)
    for at in range(0, len(stream), 1000):
        writer.begin_sample()
        writer.write(stream[at : at + 1000])
    writer.finish()
    return out.getvalue()


FILES = {"plain": STREAM, "compressed": compressed(STREAM)}


class Opened:
    """A tape over bytes in a file."""

    def __init__(self, folder, raw: bytes, *, framed: bool) -> None:
        path = folder / "shard"
        path.write_bytes(raw)
        self.file = path.open("rb", buffering=0)
        facts = Framed("x.tar.zst", len(raw), len(STREAM), FRAME_BYTES) if framed else None
        self.stop = threading.Event()
        self.tape = open_tape(self.file.fileno(), self.stop, facts)

    def __enter__(self) -> Tape:
        return self.tape

    def __exit__(self, *exc: object) -> None:
        self.file.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tape")


@pytest.mark.parametrize("kind", FILES)
@settings(max_examples=60, deadline=None)
@given(steps=st.lists(st.integers(0, 9000), max_size=12))
def test_what_is_taken_is_the_tar_and_all_is_hashed(folder, kind, steps):
    with Opened(folder, FILES[kind], framed=kind == "compressed") as tape:
        assert isinstance(tape, FrameTape) == (kind == "compressed")
        at = 0
        for step in steps:
            if step % 3 == 0:
                tape.skip(step)
            else:
                assert tape.take(step) == STREAM[at : at + step]
            at = min(len(STREAM), at + step)
            assert tape.at == at
        assert tape.passed() == at and tape.passed() == 0
        assert b"".join(tape.pieces()) == STREAM[at:]
        assert tape.take(10) == b"" and tape.at == len(STREAM)
        assert tape.finish() == hashlib.sha256(FILES[kind]).hexdigest()
        assert tape.problem is None and tape.lost == []


@pytest.mark.parametrize("kind", FILES)
def test_the_sha256_is_of_the_file_however_little_was_taken(folder, kind):
    for take in (0, 5, 5000):
        with Opened(folder, FILES[kind], framed=kind == "compressed") as tape:
            tape.take(take)
            assert tape.finish() == hashlib.sha256(FILES[kind]).hexdigest()


def test_a_lost_frame_is_zeros_and_is_named(folder):
    with Opened(folder, FILES["compressed"], framed=True) as tape:
        frames = list(tape._frames)  # type: ignore[attr-defined]
    raw = bytearray(FILES["compressed"])
    for frame in (frames[1], frames[3]):
        raw[frame.start + 30] ^= 4
    with Opened(folder, bytes(raw), framed=True) as tape:
        got = tape.take(len(STREAM))
        assert [lost.frame.number for lost in tape.lost] == [1, 3]
        for frame in frames:
            part = slice(frame.tar_start, frame.tar_stop)
            assert got[part] == (bytes(frame.tar_stop - frame.tar_start) if frame.number in {1, 3} else STREAM[part])
        one = frames[1]
        assert [lost.frame.number for lost in tape.lost_in(one.tar_start - 5, one.tar_start + 1)] == [1]
        assert [lost.frame.number for lost in tape.lost_in(0, len(STREAM))] == [3, 1]
        assert tape.lost_in(0, one.tar_start) == tape.lost_in(one.tar_stop, frames[3].tar_start) == []
        assert tape.finish() == hashlib.sha256(raw).hexdigest()


@pytest.mark.parametrize("cut", [1, 9, 30, 2000, 7000])
def test_without_the_table_the_frames_before_the_cut_are_read(folder, cut):
    raw = FILES["compressed"][:-cut]
    with Opened(folder, raw, framed=True) as tape:
        assert tape.problem is not None and "seek table" in str(tape.problem)
        got = b"".join(tape.pieces())
        assert STREAM.startswith(got) and (cut > 30 or got == STREAM)
        assert tape.lost == [] and tape.finish() == hashlib.sha256(raw).hexdigest()


def test_a_shard_that_is_cut_while_it_is_read(folder):
    opened = Opened(folder, FILES["compressed"], framed=True)
    os.truncate(folder / "shard", 10)
    with opened as tape, pytest.raises(ShardDamaged, match="was cut while it was read"):
        tape._pread(5, 15)  # type: ignore[attr-defined]
    assert opened.tape.finish is not None


def test_nobody_reads_on_after_a_stop(folder):
    opened = Opened(folder, bytes(20 << 20), framed=False)
    with opened as tape:
        opened.stop.set()
        assert tape.finish() == hashlib.sha256(b"").hexdigest()
