import struct
import zlib

import pytest
from helpers import flip_bit
from oddities import animated, flat_png, png, with_chunk

from fastfeed.auditor.looking.pngwalk import MAX_TEXT_BYTES, real_rows, walk


def test_a_whole_file():
    data = png()
    found = walk(data)
    assert (found.depth, found.colour, found.interlaced, found.frames) == (8, 2, False, 0)
    assert (found.end, found.cut, found.faults, found.texts) == (len(data), "", [], [])
    assert (found.width, found.height, real_rows(data, found)) == (40, 30, 30)
    assert data[found.pixels[0][0] - 4 : found.pixels[0][0]] == b"IDAT"


def test_depth_and_frames():
    assert walk(flat_png(8, 8, depth=16)).depth == 16
    assert walk(animated("PNG", 4)).frames == 4


def test_a_cut_file():
    data = png()
    found = walk(data[: len(data) // 2])
    assert found.end == -1 and "within 'IDAT'" in found.cut


def test_an_end_that_is_missing():
    found = walk(png()[:-12])
    assert found.end == -1 and "without IEND" in found.cut


@pytest.mark.parametrize(("kind", "critical"), [(b"IDAT", True), (b"teXt", False)])
def test_a_checksum_that_does_not_hold(tmp_path, kind, critical):
    path = tmp_path / "a.png"
    path.write_bytes(with_chunk(png(), b"teXt", b"words"))
    flip_bit(path, path.read_bytes().index(kind) + 6)
    (fault,) = walk(path.read_bytes()).faults
    assert fault.critical is critical and kind.decode() in fault.text


def test_chunks_that_break_rules():
    assert "tRNS" in walk(with_chunk(png(), b"tRNS", b"")).faults[0].text
    assert "keyword" in walk(with_chunk(png(), b"tEXt", b"Title\0one\0two")).faults[0].text
    assert walk(with_chunk(png(), b"tEXt", b"Title\0one")).faults == []


@pytest.mark.parametrize("kind", [b"zTXt", b"iCCP", b"iTXt"])
def test_texts_that_decompress_to_much(kind):
    head = b"name\0\1\0en\0\0" if kind == b"iTXt" else b"name\0\0"
    bomb = with_chunk(png(), kind, head + zlib.compress(bytes(30 << 20)))
    assert walk(bomb).texts == [(kind.decode(), MAX_TEXT_BYTES + 1)]
    assert walk(with_chunk(png(), kind, head + zlib.compress(b"a few words"))).texts == []


def test_a_text_that_is_not_compressed_or_damaged_is_no_bomb():
    assert walk(with_chunk(png(), b"iTXt", b"name\0\0\0en\0\0" + bytes(2 << 20))).texts == []
    assert walk(with_chunk(png(), b"zTXt", b"name\0\0no zlib")).texts == []


def test_a_length_beyond_the_file():
    data = png()
    broken = data[:33] + struct.pack(">I4s", 1 << 30, b"IDAT") + data[41:]
    assert f"of {1 << 30} bytes" in walk(broken).cut


@pytest.mark.parametrize(("mode", "share"), [("RGB", 0.3), ("RGB", 0.9), ("L", 0.5), ("RGBA", 0.5), ("LA", 0.5), ("P", 0.5)])
def test_rows_of_a_cut_file(mode, share):
    """Of noise each row takes the same room."""
    data = png((80, 200), mode, compress_level=1)
    rows = real_rows(data[: int(len(data) * share)], walk(data[: int(len(data) * share)]))
    assert rows is not None and abs(rows - 200 * share) < 20


def test_rows_end_where_the_damage_begins():
    data = bytearray(png((80, 200)))
    data[len(data) // 2 :] = bytes(len(data) - len(data) // 2)
    assert (real_rows(bytes(data), walk(bytes(data))) or 0) < 200


def test_rows_that_cannot_be_told():
    assert real_rows(png()[:30], walk(png()[:30])) is None
    assert real_rows(png()[:40], walk(png()[:40])) == 0
