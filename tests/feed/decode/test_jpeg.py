"""Rows of a JPEG: those that are asked for equal the whole file's, whichever way they are decoded."""

import io
import threading

import numpy as np
import pytest
from fusing import by_cjpeg, jpeg, with_segment
from helpers import encoded
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fastfeed.feed.decode.jpeg import CHANNELS, KEPT_BYTES, Odd, decode, keep, read_header
from fastfeed.jpegrows import scan_rows

OPTIONS = [
    {"subsampling": "4:2:0"}, {"subsampling": "4:4:4"}, {"subsampling": "4:2:2"}, {"progressive": True},
    {"restart_marker_rows": 1, "subsampling": "4:2:0"}, {"restart_marker_rows": 1, "subsampling": "4:4:4"},
    {"restart_marker_blocks": 3},
]  # fmt: skip


def pillows(data):
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


@settings(max_examples=150, deadline=None)
@given(
    st.tuples(st.integers(1, 90), st.integers(1, 200)), st.sampled_from(OPTIONS), st.sampled_from(["RGB", "L"]),
    st.sampled_from(sorted(CHANNELS)), st.booleans(), st.data(),
)  # fmt: skip
def test_rows_equal_those_of_the_whole(size, options, mode, colours, indexed, draw):
    data = jpeg(
        size, mode, **(options if mode == "RGB" else {name: options[name] for name in options if name != "subsampling"})
    )
    top = draw.draw(st.integers(0, size[1] - 1))
    bottom = draw.draw(st.integers(top + 1, size[1]))
    found = decode(data, read_header(data), top, bottom, colours, scan_rows(data) if indexed else None)
    assert found.channels == CHANNELS[colours] and found.width == size[0]
    pixels = found.pixels()[top - found.first : bottom - found.first, :, :3]
    assert np.array_equal(pixels, pillows(data)[top:bottom])


def test_only_the_rows_that_are_needed_are_decoded():
    data = jpeg((64, 640), subsampling="4:2:0", restart_marker_rows=1)
    header, rows = read_header(data), scan_rows(data)
    assert header.mcu_rows == 16 and header.cuttable
    part = decode(data, header, 320, 330, "RGB", rows)
    assert (part.first, part.height) == (304, 27)  # the upper of a pair needs the row above, the lower the one below
    part = decode(data, header, 321, 331, "RGB", rows)
    assert (part.first, part.height) == (320, 11)
    part = decode(data, header, 320, 330, "RGB")
    assert (part.first, part.height) == (0, 331)
    whole = jpeg((64, 640), progressive=True)
    part = decode(whole, read_header(whole), 320, 330, "RGB")
    assert (part.first, part.height) == (0, 640)


@pytest.mark.parametrize(
    "kind", [bytes, bytearray, lambda data: memoryview(bytearray(data))], ids=["bytes", "bytearray", "view"]
)
def test_the_file_stays_as_it_is(kind):
    data = jpeg((64, 640))
    given_ = kind(data)
    decode(given_, read_header(given_), 0, 10, "RGB")
    assert bytes(given_) == data


def test_headers():
    header = read_header(jpeg((70, 50), subsampling="4:2:0"))
    assert (header.width, header.height, header.mcu_rows, header.gray, header.cuttable, header.peculiar) == (
        70, 50, 16, False, True, False,
    )  # fmt: skip
    data = jpeg((70, 50))
    assert data[header.height_at : header.height_at + 2] == b"\0\x32"
    assert data[header.scan - 3 : header.scan] == b"\0\x3f\0"
    gray = read_header(jpeg((70, 50), "L"))
    assert gray.gray and gray.mcu_rows == 8 and gray.cuttable
    assert not read_header(jpeg(progressive=True)).cuttable
    assert read_header(with_segment(jpeg(), 0xE2, b"MPF\0" + bytes(20))).peculiar
    assert not read_header(with_segment(jpeg(), 0xE2, b"ICC_PROFILE\0\1\1" + bytes(20))).peculiar
    assert read_header(data[:2] + b"\xff" + data[2:]).scan == read_header(data).scan + 1, "a fill byte"


def test_several_scans_are_not_cut():
    assert not read_header(by_cjpeg("-progressive")).cuttable
    assert read_header(by_cjpeg("-sample", "1x2")).mcu_rows == 16


@pytest.mark.parametrize(("data", "word"), [
    (lambda: jpeg(mode="CMYK"), "CMYK"), (lambda: by_cjpeg("-arithmetic"), "only Pillow knows"),
    (lambda: jpeg()[:2], "no scan"), (lambda: jpeg()[:100], "damaged header"),
    (lambda: jpeg()[:20] + b"x" + jpeg()[20:], "between markers"),
    (lambda: with_segment(jpeg(), 0xC0, b"\x0c" + bytes(20)), "not 8 bits"),
    (lambda: with_segment(jpeg(), 0xD8, b""), "damaged header"),
    (lambda: with_segment(jpeg(), 0xC0, b""), "damaged header"), (lambda: without_height(jpeg()), "size not in the header"),
], ids=range(9))  # fmt: skip
def test_odd_files(data, word):
    with pytest.raises(Odd, match=word):
        read_header(data())


def without_height(data):
    at = read_header(data).height_at
    return data[:at] + b"\0\0" + data[at + 2 :]


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_odd(data):
    try:
        header = read_header(b"\xff\xd8\xff" + data)
    except Odd:
        return
    assert header.width > 0 and header.height > 0


@settings(deadline=None)
@given(st.integers(2, len(jpeg()) - 1))
def test_headers_that_are_cut_off_are_read_or_odd(stop):
    try:
        header = read_header(jpeg()[:stop])
    except Odd:
        return
    with pytest.raises(Odd):
        decode(jpeg()[:stop], header, 0, 50, "RGB")


def test_rows_that_do_not_fit_the_file_are_odd():
    data = jpeg((70, 90), restart_marker_rows=1, subsampling="4:2:0")
    header, rows = read_header(data), scan_rows(data)
    assert rows is not None
    for wrong in (rows[:-1], rows[1:], rows + 1, np.append(rows, rows[-1]), rows[::-1].copy(), rows * 0 + 2**31):
        with pytest.raises(Odd):
            decode(data, header, 0, 20, "RGB", wrong.astype(np.uint32))


@pytest.mark.parametrize(("top", "bottom"), [(0, 20), (100, 130), (270, 300)])
def test_places_of_other_rows_are_odd(top, bottom):
    data = jpeg((70, 300), restart_marker_rows=1, subsampling="4:4:4")
    header, rows = read_header(data), scan_rows(data)
    assert rows is not None
    later, earlier = rows.copy(), rows.copy()
    later[1:-1] = [*rows[2:-1], rows[-1] - 1]
    earlier[1:-1] = [rows[0] + 1, *rows[1:-2]]
    for wrong in (later, earlier):
        with pytest.raises(Odd, match="rows of another file"):
            decode(data, header, top, bottom, "RGB", wrong)


def test_what_the_decoder_warns_of_is_odd():
    data = bytearray(jpeg((70, 90)))
    data[len(data) // 2 : len(data) // 2 + 2] = b"\xff\xd9"
    header = read_header(memoryview(data))
    with pytest.raises(Odd, match="warns"):
        decode(memoryview(data), header, 0, 90, "RGB")
    assert np.array_equal(decode(memoryview(data), header, 0, 8, "RGB").pixels()[:8], pillows(data)[:8])


def test_memory_is_used_again_unless_it_is_kept():
    data = jpeg((64, 48))
    header = read_header(data)
    one = decode(data, header, 0, 48, "RGB")
    two = decode(data, header, 0, 48, "RGB")
    assert one.memory is two.memory
    keep(two)
    other = jpeg((64, 48), seed=5)
    before = two.pixels().copy()
    three = decode(other, read_header(other), 0, 48, "RGB")
    assert three.memory is not two.memory and np.array_equal(two.pixels(), before)
    keep(two)
    assert decode(data, header, 0, 48, "RGB").memory is three.memory, "what was kept before is no longer this thread's"


def test_each_thread_has_memory_of_its_own():
    data = jpeg((64, 48))
    found = [decode(data, read_header(data), 0, 48, "RGB")]
    thread = threading.Thread(target=lambda: found.append(decode(data, read_header(data), 0, 48, "RGB")))
    thread.start()
    thread.join()
    assert found[0].memory is not found[1].memory


def test_the_memory_of_a_large_image_is_given_back():
    large = encoded(Image.new("L", (6000, 4000)), "JPEG")
    assert KEPT_BYTES < 6000 * 4000 * 3
    found = decode(large, read_header(large), 0, 4000, "RGB")
    small = jpeg((64, 48))
    assert decode(small, read_header(small), 0, 48, "RGB").memory.nbytes <= KEPT_BYTES
    assert found.pixels().shape == (4000, 6000, 3)
