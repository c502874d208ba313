"""Frames: what is written is standard Zstandard cut at samples, what is read is proven, and no header is believed."""

import io
import random
import shutil
import struct
import subprocess
import threading
from array import array
from collections.abc import Sequence

import pytest
import xxhash
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from fastfeed.archive import frame as codec
from fastfeed.archive import seektable
from fastfeed.archive.frame import FrameWriter
from fastfeed.archive.seektable import Frame, Framed, SeekTable
from fastfeed.errors import ShardDamaged

FRAME_BYTES = 4096


def written(samples: Sequence[Sequence[bytes]], *, level: int = 3, frame_bytes: int = FRAME_BYTES) -> bytes:
    """A compressed file of samples, each in pieces as they come."""
    out = io.BytesIO()
    writer = FrameWriter(out.write, level=level, frame_bytes=frame_bytes)
    for sample in samples:
        writer.begin_sample()
        for piece in sample:
            writer.write(piece)
    writer.finish()
    assert writer.tar_bytes == sum(len(piece) for sample in samples for piece in sample)
    return out.getvalue()


def table_of(raw: bytes, tar_bytes: int, frame_bytes: int = FRAME_BYTES) -> SeekTable:
    return seektable.read(lambda start, stop: raw[start:stop], Framed("x-000000.tar.zst", len(raw), tar_bytes, frame_bytes))


def decoded(raw: bytes, table: SeekTable) -> list[bytes]:
    return [codec.decode(raw[frame.start : frame.stop], frame, "x-000000.tar.zst") for frame in table]


def textlike(size: int, seed: int = 0) -> bytes:
    dice = random.Random(seed)
    return b" ".join(dice.choice([b"frame", b"sample", b"of", b"the", b"shard"]) for _ in range(size // 3 + 1))[:size]


sizes = st.integers(1, 3000) | st.sampled_from([FRAME_BYTES - 1, FRAME_BYTES, FRAME_BYTES + 1, 3 * FRAME_BYTES, 20_000])


@given(st.lists(sizes, min_size=1, max_size=30), st.booleans())
def test_z8_frames_hold_as_many_whole_samples_as_fit(lengths: list[int], text: bool):
    samples = [[textlike(size, at) if text else random.Random(at).randbytes(size)] for at, size in enumerate(lengths)]
    stream = b"".join(piece for sample in samples for piece in sample)
    raw = written(samples)
    table = table_of(raw, len(stream))
    assert b"".join(decoded(raw, table)) == stream
    edges = [0]
    for size in lengths:
        edges.append(edges[-1] + size)
    for frame in table:
        assert frame.tar_stop - frame.tar_start <= FRAME_BYTES
        if frame.tar_stop in edges:
            more = edges.index(frame.tar_stop) + 1
            whole = frame.tar_start in edges or frame.number == 0
            if more < len(edges) and whole:
                assert edges[more] - frame.tar_start > FRAME_BYTES, "the next sample would have fitted"
        else:  # within a sample that is larger than a frame
            assert frame.tar_stop - frame.tar_start == FRAME_BYTES
            at = next(number for number, edge in enumerate(edges) if edge > frame.tar_stop)
            assert edges[at] - edges[at - 1] > FRAME_BYTES
    for one, other in zip(table, list(table)[1:], strict=False):
        assert other.tar_stop - one.tar_start > FRAME_BYTES  # two hold more than one may: the bound of Z4


@given(st.lists(st.integers(1, 9000), min_size=1, max_size=8), st.integers(1, 5000))
def test_w1_how_the_stream_comes_in_pieces_changes_no_byte(lengths: list[int], step: int):
    samples = [textlike(size, at) for at, size in enumerate(lengths)]
    whole = written([[sample] for sample in samples])
    pieces = [[sample[at : at + step] for at in range(0, len(sample), step)] for sample in samples]
    assert written(pieces) == whole == written([[sample] for sample in samples])


@pytest.mark.long
@pytest.mark.parametrize(
    ("level", "size"),
    [*((level, size) for level in (1, 3, 22) for size in (1, 300, 70_000, 1 << 18)), (3, 5_000_000), (1, 9_000_000)],
)
def test_z6_frames_of_every_level_and_size_keep_the_rules(level, size):
    for content in (textlike(size), random.Random(size).randbytes(size)):
        raw = written([[content]], level=level, frame_bytes=64 << 20)
        (frame,) = table_of(raw, size, 64 << 20)
        body = raw[frame.start : frame.stop]
        found = zstandard.get_frame_parameters(body)
        assert (found.content_size, found.has_checksum, found.dict_id) == (size, True, 0)
        assert found.window_size <= max(size, 1024)
        assert len(body) <= seektable.compressed_at_most(size)
        assert frame.checksum == xxhash.xxh64_intdigest(content) & 0xFFFFFFFF == struct.unpack("<I", body[-4:])[0]
        assert codec.decode(body, frame, "x") == content


def test_any_zstd_decoder_reads_it_from_start_to_end(tmp_path):
    samples = [[textlike(size, size)] for size in (100, 5000, 300, 300, 20_000, 1)]
    stream, raw = b"".join(sample[0] for sample in samples), written(samples)
    with zstandard.ZstdDecompressor().stream_reader(io.BytesIO(raw), read_across_frames=True) as reader:
        assert reader.read() == stream
    if shutil.which("zstd") is None:
        pytest.skip("there is no zstd here; python-zstandard reads it")
    (tmp_path / "x.zst").write_bytes(raw)
    assert subprocess.run(["zstd", "-dc", tmp_path / "x.zst"], capture_output=True, check=True).stdout == stream
    listed = subprocess.run(["zstd", "-lv", tmp_path / "x.zst"], capture_output=True, check=True, text=True).stdout
    assert "XXH64" in listed


def test_the_encoder_is_named_with_its_version():
    name, _, version = codec.encoder().partition(" ")
    assert name == "zstd" and tuple(map(int, version.split("."))) == zstandard.ZSTD_VERSION


# ------------------------------------------------------------------------------------------------ hostile frames
CONTENT = textlike(3000)
BODY = zstandard.ZstdCompressor(write_checksum=True).compress(CONTENT)
CHECKSUM = struct.unpack("<I", BODY[-4:])[0]


def frame_of(body: bytes, content_bytes: int = len(CONTENT), checksum: int | None = CHECKSUM) -> Frame:
    return Frame(5, 700, 700 + len(body), 9000, 9000 + content_bytes, checksum)


def refused(body: bytes, frame: Frame, words: str) -> None:
    where = rf"frame 5 \(bytes \[700, {frame.stop}\) of the file, \[9000, {frame.tar_stop}\) of the tar in it\)"
    with pytest.raises(ShardDamaged, match=f"{where} of a compressed shard {words}") as caught:
        codec.decode(body, frame, "x-000000.tar.zst")
    assert (caught.value.shard, caught.value.start, caught.value.stop) == ("x-000000.tar.zst", 9000, frame.tar_stop)
    assert "the shard is damaged" in str(caught.value) and "Run fastfeed verify" in str(caught.value)


def test_z6_a_whole_frame_is_its_content():
    assert codec.decode(BODY, frame_of(BODY), "x") == CONTENT
    assert codec.decode(bytearray(BODY), frame_of(BODY, checksum=None), "x") == CONTENT


@pytest.mark.parametrize("body", [b"", b"abcd", BODY[1:], b"\x50\x2a\x4d\x18\x04\0\0\0abcd", bytes(100)])
def test_z6_what_is_no_frame(body):
    refused(body, frame_of(body), r"(does not begin as one|says that it holds another size|is not written as)")


def test_z6_more_than_one_frame_or_less():
    for body in (BODY + BODY, BODY + b"\0", BODY + seektable.encode(array("I")), BODY[:-1], BODY[: len(BODY) // 2]):
        refused(body, frame_of(body, checksum=None), "cannot be decoded")


@pytest.mark.parametrize("claimed", [1, 2999, 3001, 1 << 26])
def test_z6_another_size_than_the_tables_is_refused_before_anything_is_allocated(claimed):
    """The one-shot decoder allocates what the header claims: a bomb of 64 MiB in 2 KiB."""
    body = zstandard.ZstdCompressor(write_checksum=True).compress(bytes(claimed))
    refused(body, frame_of(body), f"says that it holds another size than 3000 bytes.*got {claimed}")


def test_z6_a_header_that_hides_its_size():
    body = zstandard.ZstdCompressor(write_checksum=True, write_content_size=False).compress(CONTENT)
    refused(body, frame_of(body), "says that it holds another size")


def test_z6_no_checksum_a_dictionary_or_a_window_larger_than_the_content():
    plain = zstandard.ZstdCompressor(write_checksum=False).compress(CONTENT)
    refused(plain, frame_of(plain, checksum=None), "is not written as the format says.*got checksum False")
    trained = zstandard.train_dictionary(2000, [textlike(200, seed) for seed in range(500)])
    named = zstandard.ZstdCompressor(dict_data=trained, write_checksum=True).compress(CONTENT)
    refused(named, frame_of(named, checksum=None), rf"is not written as the format says.*dictionary {trained.dict_id()}")
    window = b"\x28\xb5\x2f\xfd" + bytes([0b10000100, 0x88]) + struct.pack("<I", len(CONTENT)) + BODY[7:]  # 2^27 bytes
    assert zstandard.get_frame_parameters(window).window_size == 1 << 27
    refused(window, frame_of(window), r"is not written as the format says.*window of 134217728 bytes")


def test_z6_another_checksum_than_the_tables():
    refused(BODY, frame_of(BODY, checksum=CHECKSUM ^ 1), rf"has another checksum than the seek table's {CHECKSUM ^ 1:08x}")


@given(st.integers(0, len(BODY) * 8 - 1))
def test_z6_any_flipped_bit_of_a_frame_is_found(bit: int):
    body = bytearray(BODY)
    body[bit // 8] ^= 1 << bit % 8
    for checksum in (CHECKSUM, None):
        try:
            content = codec.decode(bytes(body), frame_of(BODY, checksum=checksum), "x")
        except ShardDamaged:
            continue
        assert content == CONTENT  # a bit that nobody reads; the file's sha256 knows it


def test_threads_have_contexts_of_their_own():
    bodies = {seed: zstandard.ZstdCompressor(write_checksum=True).compress(textlike(3000, seed)) for seed in range(8)}
    wrong: list[int] = []

    def work(seed: int) -> None:
        body = bodies[seed]
        frame = frame_of(body, checksum=None)
        wrong.extend(seed for _ in range(200) if codec.decode(body, frame, "x") != textlike(3000, seed))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# ------------------------------------------------------------------------------------------------ without the table
def scanned(raw: bytes, frame_bytes: int = FRAME_BYTES) -> list[Frame]:
    return list(codec.scan(lambda start, stop: raw[start:stop], Framed("x", len(raw), 1 << 40, frame_bytes)))


@settings(max_examples=50)
@given(st.lists(sizes, min_size=1, max_size=12), st.booleans(), st.data())
def test_frames_are_found_without_the_table(lengths: list[int], text: bool, data: st.DataObject):
    samples = [[textlike(size, at) if text else random.Random(at).randbytes(size)] for at, size in enumerate(lengths)]
    raw = written(samples)
    table = table_of(raw, sum(lengths))
    expected = [frame._replace(checksum=None) for frame in table]
    assert scanned(raw) == expected
    cut = data.draw(st.integers(0, len(raw)))
    assert scanned(raw[:cut]) == [frame for frame in expected if frame.stop <= cut]
    assert decoded(raw, table) == [codec.decode(raw[f.start : f.stop], f, "x") for f in expected]


def test_frames_without_the_table_end_where_something_else_begins():
    raw = written([[textlike(3000)], [bytes(4000)]])
    one, other = scanned(raw)
    assert scanned(raw[: one.stop] + b"junk" + raw[one.stop :]) == [one]
    assert scanned(bytes(100)) == scanned(b"") == []
    large = zstandard.ZstdCompressor(write_checksum=True).compress(bytes(FRAME_BYTES + 1))
    assert scanned(raw[: one.stop] + large) == [one]
    reserved = bytearray(raw)
    reserved[other.start + zstandard.frame_header_size(raw[other.start :])] |= 0b110
    assert scanned(bytes(reserved)) == [one]
    wrong = raw[: other.start + 4] + b"\x08" + raw[other.start + 5 :]  # a reserved bit of the header
    assert scanned(wrong) == [one]
