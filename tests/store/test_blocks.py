"""Bytes of a tar in order: from a file, and from a stream that passes once."""

import tempfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfeed.store.blocks import KEPT_BYTES, WINDOW_BYTES, PlainBlocks, StreamedBlocks


def content(size: int) -> bytes:
    return bytes(number * 7 % 251 for number in range(size))


@given(st.lists(st.tuples(st.integers(0, 40_000), st.integers(0, 20_000)), max_size=8))
def test_ranges_of_a_file_in_any_order(ranges: list[tuple[int, int]]):
    raw = content(3 * WINDOW_BYTES + 17)
    with tempfile.TemporaryFile() as file:
        file.write(raw)
        file.flush()
        blocks = PlainBlocks(file.fileno())
        assert blocks.seekable
        assert blocks.length() == len(raw)
        for start, count in ranges:
            assert blocks.read(start, count) == raw[start : start + count]
            assert blocks.reaches(start) == (start <= len(raw))


@given(
    st.lists(st.binary(min_size=1, max_size=1500), max_size=8),
    st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 2000)), max_size=8),
)
def test_ranges_of_a_stream_that_only_rise(chunks: list[bytes], steps: list[tuple[int, int]]):
    raw, blocks, at = b"".join(chunks), StreamedBlocks(iter(chunks)), 0
    assert not blocks.seekable
    for gap, count in steps:
        at += gap
        assert blocks.read(at, count) == raw[at : at + count]
        at += count
        last = max(0, min(at, len(raw)) - KEPT_BYTES)
        if last >= blocks.at:
            assert blocks.read(last, KEPT_BYTES) == raw[last : last + KEPT_BYTES]
    assert blocks.reaches(len(raw))
    assert not blocks.reaches(len(raw) + 1)
    assert blocks.length() == len(raw)


def test_a_block_of_a_stream_can_be_looked_at_twice():
    raw = content(5000)
    blocks = StreamedBlocks(raw[at : at + 100] for at in range(0, 5000, 100))
    for start in range(0, 4600, 37):
        assert blocks.read(start, KEPT_BYTES) == blocks.read(start, KEPT_BYTES) == raw[start : start + KEPT_BYTES]


def test_what_has_passed_is_gone():
    blocks = StreamedBlocks(iter([bytes(2000), bytes(2000)]))
    blocks.read(3000, 10)
    with pytest.raises(ValueError, match="byte 0 of a stream has passed, it stands at 1488"):
        blocks.read(0, 10)


def test_a_stream_that_begins_elsewhere():
    blocks = StreamedBlocks(iter([b"abc", b"def"]), at=100)
    assert blocks.read(102, 3) == b"cde"
    assert blocks.length() == 106
