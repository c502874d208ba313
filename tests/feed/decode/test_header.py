"""The markers before a scan: what they say, and what is not for the fast decoder."""

import io

import pytest
from fusing import by_cjpeg, jpeg, with_segment
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fastfeed.feed.decode.box import Box
from fastfeed.feed.decode.header import Odd, read_header
from fastfeed.feed.decode.jpeg import decode


def test_headers():
    header = read_header(jpeg((70, 50), subsampling="4:2:0"))
    assert (header.width, header.height, header.mcu_height, header.mcu_width) == (70, 50, 16, 16)
    assert (header.gray, header.cuttable, header.peculiar) == (False, True, False)
    data = jpeg((70, 50))
    assert data[header.height_at : header.height_at + 2] == b"\0\x32"
    assert data[header.scan - 3 : header.scan] == b"\0\x3f\0"
    gray = read_header(jpeg((70, 50), "L"))
    assert gray.gray and (gray.mcu_height, gray.mcu_width) == (8, 8) and gray.cuttable
    assert not read_header(jpeg(progressive=True)).cuttable
    assert read_header(with_segment(jpeg(), 0xE2, b"MPF\0" + bytes(20))).peculiar
    assert not read_header(with_segment(jpeg(), 0xE2, b"ICC_PROFILE\0\1\1" + bytes(20))).peculiar
    assert read_header(data[:2] + b"\xff" + data[2:]).scan == read_header(data).scan + 1, "a fill byte"


def resource(number, name=b"", data=b""):
    """One of Photoshop's."""
    head = b"8BIM" + number.to_bytes(2) + bytes([len(name)]) + name + bytes(1 - len(name) % 2)
    return head + len(data).to_bytes(4) + data + bytes(len(data) % 2)


RESOLUTION = 0x03ED
"""Of Photoshop's resources the one whose data Pillow reads."""
RESOURCES = st.builds(
    resource, st.just(RESOLUTION) | st.integers(0, 0xFFFF), st.binary(max_size=9), st.binary(max_size=20) | st.just(bytes(16))
)


def test_photoshops_resources_are_peculiar_unless_they_are_whole():
    whole = b"Photoshop 3.0\0" + resource(RESOLUTION, data=bytes(16)) + resource(5, b"name", b"odd") + resource(1)
    peculiar = [stop for stop in range(14, len(whole) + 1) if read_header(with_segment(jpeg(), 0xED, whole[:stop])).peculiar]
    ends = {14, 14 + 28, 14 + 28 + 20, len(whole)}
    assert peculiar == [stop for stop in range(14, len(whole) + 1) if stop not in ends]
    assert read_header(with_segment(jpeg(), 0xED, whole + b"8BIM")).peculiar
    assert read_header(with_segment(jpeg(), 0xED, whole[:14] + b"words")).peculiar


@settings(max_examples=300, deadline=None)
@given(st.lists(RESOURCES, max_size=4).map(b"".join), st.data())
def test_pillow_opens_what_is_not_peculiar(resources, draw):
    body = bytearray(b"Photoshop 3.0\0" + resources)
    for at in draw.draw(st.lists(st.integers(14, len(body) - 1), max_size=2)) if resources else ():
        body[at] = draw.draw(st.integers(0, 255))
    data = with_segment(jpeg((16, 16)), 0xED, bytes(body[: draw.draw(st.integers(14, len(body)))]))
    if not read_header(data).peculiar:
        with Image.open(io.BytesIO(data)) as image:
            assert image.size == (16, 16)


def test_several_scans_are_not_cut():
    assert not read_header(by_cjpeg("-progressive")).cuttable
    for sampling, mcu in (("1x2", (16, 8)), ("2x1", (8, 16)), ("4x1", (8, 32))):
        header = read_header(by_cjpeg("-sample", sampling))
        assert (header.mcu_height, header.mcu_width) == mcu


def test_restart_intervals():
    assert read_header(jpeg()).interval == 0
    assert read_header(jpeg((70, 50), restart_marker_rows=1, subsampling="4:2:0")).interval == 5
    assert read_header(jpeg(restart_marker_blocks=3)).interval == 3


@pytest.mark.parametrize(("data", "word"), [
    (lambda: jpeg(mode="CMYK"), "CMYK"), (lambda: by_cjpeg("-arithmetic"), "only Pillow knows"),
    (lambda: jpeg()[:2], "no scan"), (lambda: jpeg()[:100], "damaged header"),
    (lambda: jpeg()[:20] + b"x" + jpeg()[20:], "between markers"),
    (lambda: with_segment(jpeg(), 0xC0, b"\x0c" + bytes(20)), "not 8 bits"),
    (lambda: with_segment(jpeg(), 0xD8, b""), "damaged header"),
    (lambda: with_segment(jpeg(), 0xC0, b""), "damaged header"),
    (lambda: with_segment(jpeg(), 0xC0, b"\x08\0\1\0\1\3" + bytes(9)), "damaged header"),
    (lambda: without_height(jpeg()), "size not in the header"),
], ids=range(10))  # fmt: skip
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
        decode(jpeg()[:stop], header, Box(0, 0, 50, 70), "RGB")
