"""The seek table: what it says is proven before it is believed; no table, however wrong, leads out of the file or the tar."""

import struct
from array import array
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfeed.archive import seektable
from fastfeed.archive.seektable import Framed, SeekTable
from fastfeed.errors import ShardDamaged

FRAME_BYTES = 4096
Entry = tuple[int, int, int]


def raw_table(entries: Sequence[Entry], count: int | None = None, size: int | None = None) -> bytes:
    """The table by the words of README.md §10, without the package's own writer."""
    body = b"".join(struct.pack("<III", *entry) for entry in entries)
    head = struct.pack("<II", 0x184D2A5E, len(body) + 9 if size is None else size)
    return head + body + struct.pack("<IBI", len(entries) if count is None else count, 0x80, 0x8F92EAB1)


def shard_of(entries: Sequence[Entry]) -> bytes:
    """A file whose frames are anything: the table says nothing of their bytes."""
    return bytes(sum(size for size, _, _ in entries)) + raw_table(entries)


def facts_of(raw: bytes, tar_bytes: int) -> Framed:
    return Framed("x-000000.tar.zst", len(raw), tar_bytes, FRAME_BYTES)


def reader(raw: bytes) -> Callable[[int, int], bytes]:
    def pread(start: int, stop: int) -> bytes:
        assert 0 <= start <= stop <= len(raw), "the reader leaves the file"
        return raw[start:stop]

    return pread


def read(raw: bytes, tar_bytes: int) -> SeekTable:
    return seektable.read(reader(raw), facts_of(raw, tar_bytes))


ENTRIES: list[Entry] = [(900, 4000, 1), (4100, 4096, 0xFFFFFFFF), (30, 200, 0), (77, 4095, 7)]
TAR_BYTES = sum(content for _, content, _ in ENTRIES)


def test_what_is_written_is_read():
    raw = shard_of(ENTRIES)
    flat = array("I", [number for entry in ENTRIES for number in entry])
    assert raw.endswith(seektable.encode(flat))
    assert flat.tolist()[:3] == [900, 4000, 1]  # left as it was, on any machine
    table = read(raw, TAR_BYTES)
    assert len(table) == 4 and table.memory_bytes < 1000
    assert [tuple(frame) for frame in table] == [
        (0, 0, 900, 0, 4000, 1), (1, 900, 5000, 4000, 8096, 0xFFFFFFFF), (2, 5000, 5030, 8096, 8296, 0),
        (3, 5030, 5107, 8296, 12391, 7),
    ]  # fmt: skip
    assert str(table[1]) == "frame 1 (bytes [900, 5000) of the file, [4000, 8096) of the tar in it)"


def test_frames_of_a_range():
    table = read(shard_of(ENTRIES), TAR_BYTES)
    assert list(table.frames_of(0, 1)) == list(table.frames_of(3999, 4000)) == [0]
    assert list(table.frames_of(3999, 4001)) == [0, 1]
    assert list(table.frames_of(4000, 8096)) == [1]
    assert list(table.frames_of(0, TAR_BYTES)) == [0, 1, 2, 3]
    assert list(table.frames_of(5, 5)) == list(table.frames_of(9, 5)) == []


@given(
    st.lists(st.tuples(st.integers(1, 100), st.integers(2049, FRAME_BYTES), st.integers(0, 2**32 - 1)), min_size=1, max_size=40)
)
def test_every_byte_of_the_tar_is_in_one_frame(entries: list[Entry]):
    total = sum(content for _, content, _ in entries)
    table = read(shard_of(entries), total)
    ends = [0, *(frame.tar_stop for frame in table)]
    assert [frame.tar_start for frame in table] == ends[:-1] and ends[-1] == total
    for at in (0, total // 3, total - 1):
        (number,) = table.frames_of(at, at + 1)
        assert table[number].tar_start <= at < table[number].tar_stop


def refused(raw: bytes, tar_bytes: int, words: str) -> ShardDamaged:
    with pytest.raises(ShardDamaged, match=words) as caught:
        read(raw, tar_bytes)
    error = caught.value
    assert error.shard == "x-000000.tar.zst" and error.start is not None and "Run fastfeed verify" in str(error)
    return error


@pytest.mark.parametrize("size", [0, 1, 8, 16])
def test_z3_a_file_too_short_for_a_table(size):
    refused(bytes(size), 1, "is missing: the file is too short")


@pytest.mark.parametrize("byte", range(1, 6))
def test_z3_another_end(byte):
    raw = bytearray(shard_of(ENTRIES))
    raw[-byte] ^= 1
    error = refused(
        bytes(raw), TAR_BYTES, r"is not at the end: the shard was cut or changed .*expected 0x80 0x8f92eab1, got 0x"
    )
    assert (error.start, error.stop) == (len(raw) - 9, len(raw))


@pytest.mark.parametrize("byte", range(8))
def test_z3_another_head(byte):
    entries = raw_table(ENTRIES)
    raw = bytearray(shard_of(ENTRIES))
    raw[len(raw) - len(entries) + byte] ^= 0x10
    refused(bytes(raw), TAR_BYTES, "does not begin where its size says")


def test_z3_bytes_behind_the_table_or_none():
    raw = shard_of(ENTRIES)
    refused(raw + b"\0", TAR_BYTES, "is not at the end")
    refused(raw[:-1], TAR_BYTES, "is not at the end")


@pytest.mark.parametrize("count", [0, 8, 100, 2**27, 2**32 - 1])
def test_z4_an_impossible_number_of_frames_is_refused_before_the_table_is_read(count):
    raw = bytes(5107) + raw_table(ENTRIES, count=count)
    asked = []

    def pread(start: int, stop: int) -> bytes:
        asked.append(stop - start)
        return raw[start:stop]

    with pytest.raises(ShardDamaged, match=rf"has an impossible number of frames .*expected 1 to 7, got {count}"):
        seektable.read(pread, facts_of(raw, TAR_BYTES))
    assert asked == [9]


def test_z4_the_bound_is_that_of_the_cut():
    assert seektable.frames_at_most(1, 4096) == 1
    assert seektable.frames_at_most(4096, 4096) == 3
    assert seektable.frames_at_most(10 * 4096 + 5, 4096) == 21
    assert seektable.frames_at_most(1 << 62, 4096) > seektable.MAX_FRAMES
    many = [(20, 10, 0)] * 8
    refused(shard_of(many), 80, "impossible number of frames .*expected 1 to 1, got 8")


def test_z4_a_number_that_leads_before_the_file():
    raw = raw_table([], count=7, size=7 * 12 + 9)
    refused(raw, 1 << 20, "impossible number of frames")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ((901, 4000, 1), "does not add up"),
        ((900, 3999, 1), "does not add up"),
        ((2**32 - 1, 4000, 1), "does not add up"),
        ((900, 2**32 - 1, 1), "does not add up"),
    ],
)
def test_z5_sizes_that_do_not_add_up(change, words):
    raw = bytes(5107) + raw_table([change, *ENTRIES[1:]])
    refused(raw, TAR_BYTES, words)


@pytest.mark.parametrize(
    "entries",
    [
        [(900, 4000, 1), (0, 4096, 0), (4100, 100, 3)],  # no bytes
        [(900, 4000, 1), (30, 0, 0), (4100, 4096, 3)],  # no content
        [(900, 4000, 1), (30, 4097, 0)],  # more than a frame may hold: a bomb
        [(900, 4000, 1), (20, 2**31, 0)],
        [(900, 4000, 1), (100 + 64 + 1, 100, 0)],  # more bytes than such a content can take
        [(900, 4000, 1), (1 << 20, 4096, 0)],
    ],
    ids=str,
)
def test_z5_frames_that_cannot_be(entries):
    error = refused(shard_of(entries), sum(content for _, content, _ in entries), "says what no frame can be of frame [12]")
    assert error.stop is not None and error.start is not None and error.stop - error.start == 12
    assert "at most 4096 bytes of content" in str(error)


@given(st.binary(min_size=17, max_size=200), st.integers(0, 10_000))
def test_any_bytes_are_refused_or_fit(raw: bytes, tar_bytes: int):
    tail = raw + raw_table(ENTRIES[:1])[-9:]
    for junk in (raw, tail):
        try:
            table = read(junk, tar_bytes)
        except ShardDamaged:
            continue
        assert table.tar_starts[-1] == tar_bytes and table.starts[-1] < len(junk)


@given(st.data())
def test_any_changed_number_is_refused_or_adds_up(data: st.DataObject):
    raw = bytearray(shard_of(ENTRIES))
    start = len(raw) - len(raw_table(ENTRIES))
    at = data.draw(st.integers(start, len(raw) - 1))
    raw[at] = data.draw(st.integers(0, 255))
    try:
        table = read(bytes(raw), TAR_BYTES)
    except ShardDamaged:
        return
    assert (table.starts[-1], table.tar_starts[-1]) == (start, TAR_BYTES)  # a checksum, or nothing, was changed
    assert table.tar_starts == read(shard_of(ENTRIES), TAR_BYTES).tar_starts
