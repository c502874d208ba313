"""A smaller JPEG of a part: its pixels are the whole file's, and places that lie about it are told."""

import io

import numpy as np
import pytest
from fusing import by_cjpeg, jpeg
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fastfeed.feed.decode.box import Box
from fastfeed.feed.decode.cut import cut, needed
from fastfeed.feed.decode.header import Odd, read_header
from fastfeed.jpegrows import read_frame, scan_rows

SAMPLINGS = ["4:2:0", "4:2:2", "4:4:4", "gray"]


def pillows(data):
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def divided(size, sampling="4:2:0", parts=1):
    """A JPEG whose rows of MCUs are divided into at least so many restart intervals, if that goes evenly."""
    options = {} if sampling == "gray" else {"subsampling": sampling}
    frame = read_frame(jpeg(size, "L" if sampling == "gray" else "RGB", **options))
    assert frame is not None
    across = frame.mcus_per_row
    found = min(number for number in range(1, across + 1) if across % number == 0 and number >= min(parts, across))
    return jpeg(size, "L" if sampling == "gray" else "RGB", **options, restart_marker_blocks=across // found)


@st.composite
def boxes(draw, width, height):
    top, left = draw(st.integers(0, height - 1)), draw(st.integers(0, width - 1))
    return Box(top, left, draw(st.integers(1, height - top)), draw(st.integers(1, width - left)))


def part_of(pixels, box):
    return pixels[box.top : box.bottom, box.left : box.right]


@settings(max_examples=300, deadline=None)
@given(st.tuples(st.integers(1, 150), st.integers(17, 90)), st.sampled_from(SAMPLINGS), st.integers(1, 8), st.data())
def test_the_pixels_of_a_part_are_those_of_the_whole(size, sampling, parts, draw):
    data = divided(size, sampling, parts)
    rows = scan_rows(data)
    assert rows is not None
    box = draw.draw(boxes(*size))
    made = cut(data, read_header(data), box, rows)
    assert made.part.top <= box.top and made.part.left <= box.left
    assert made.part.bottom >= box.bottom and made.part.right >= box.right
    found = pillows(bytes(made.data))
    assert found.shape[:2] == made.part[2:]
    inner = Box(box.top - made.part.top, box.left - made.part.left, box.height, box.width)
    assert np.array_equal(part_of(found, inner), part_of(pillows(data), box))


@pytest.mark.parametrize("sampling", ["1x2", "4x1", "3x1", "1x3", "2x2,1x2,1x2", "2x2,2x1,1x1", "1x1,2x2,2x2"])
def test_samplings_that_only_cjpeg_writes(sampling):
    size = (288, 70)
    frame = read_frame(by_cjpeg("-sample", sampling, size=size))
    assert frame is not None and frame.mcus_per_row % 3 == 0
    data = by_cjpeg("-sample", sampling, "-restart", f"{frame.mcus_per_row // 3}B", size=size)
    rows, header, whole = scan_rows(data), read_header(data), pillows(data)
    assert rows is not None and len(rows) == 3 * frame.rows + 1
    for box in (Box(top, left, 17, 20) for top in range(0, 54, 9) for left in range(0, 268, 11)):
        made = cut(data, header, box, rows)
        inner = Box(box.top - made.part.top, box.left - made.part.left, box.height, box.width)
        assert np.array_equal(part_of(pillows(bytes(made.data)), inner), part_of(whole, box)), box


def test_only_the_intervals_that_are_needed_are_taken():
    data = divided((640, 640), parts=10)  # of 64 by 16 pixels
    rows, header = scan_rows(data), read_header(data)
    assert rows is not None and len(rows) == 401
    assert cut(data, header, Box(321, 65, 10, 62), rows).part == Box(320, 64, 11, 64)
    assert cut(data, header, Box(320, 64, 10, 62), rows).part == Box(304, 0, 27, 128), "the pixels above and left are needed"
    assert cut(data, header, Box(321, 65, 11, 63), rows).part == Box(320, 64, 13, 128), "those below and right are"
    whole = cut(data, header, Box(0, 0, 640, 640), rows)
    assert whole.part == Box(0, 0, 640, 640) and bytes(whole.data) == data


def test_a_part_is_never_narrower_than_an_mcu():
    """libjpeg-turbo does not interpolate the colours of an image of four columns or less."""
    data = divided((68, 50), parts=5)
    rows, header = scan_rows(data), read_header(data)
    assert rows is not None
    assert cut(data, header, Box(0, 66, 20, 2), rows).part == Box(0, 48, 21, 20)


def test_a_pixel_needs_the_one_beside_it_where_colours_are_interpolated():
    header = read_header(jpeg((70, 50), subsampling="4:2:0"))
    assert needed(header, Box(10, 20, 10, 10)) == Box(9, 19, 12, 12)
    assert needed(header, Box(11, 21, 10, 10)) == Box(11, 21, 10, 10)
    assert needed(header, Box(0, 0, 50, 70)) == Box(0, 0, 50, 70)
    half = read_header(jpeg((70, 50), subsampling="4:2:2"))
    assert needed(half, Box(10, 20, 10, 10)) == Box(10, 19, 10, 12)
    assert needed(read_header(jpeg((70, 50), subsampling="4:4:4")), Box(10, 20, 10, 10)) == Box(10, 20, 10, 10)


@pytest.mark.parametrize("parts", [1, 5])
def test_places_that_do_not_fit_the_file_are_odd(parts):
    data = divided((70, 90), parts=parts)
    header, rows = read_header(data), scan_rows(data)
    assert rows is not None
    for wrong in (
        rows[:-1],
        rows[1:],
        rows + 1,
        np.append(rows, rows[-1]),
        rows * 0 + 2**31,
        rows[:: len(rows) - 1],
    ):
        with pytest.raises(Odd, match="rows of another file"):
            cut(data, header, Box(0, 0, 20, 20), wrong)


@pytest.mark.parametrize("parts", [1, 9])
@pytest.mark.parametrize("box", [Box(0, 0, 20, 70), Box(100, 20, 30, 20), Box(270, 40, 30, 30)])
def test_places_of_other_intervals_are_odd(box, parts):
    data = divided((70, 300), "4:4:4", parts)
    header, rows = read_header(data), scan_rows(data)
    assert rows is not None
    later, earlier = rows.copy(), rows.copy()
    later[1:-1] = [*rows[2:-1], rows[-1] - 1]
    earlier[1:-1] = [rows[0] + 1, *rows[1:-2]]
    for wrong in (later, earlier):
        with pytest.raises(Odd, match="rows of another file"):
            cut(data, header, box, wrong)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(2, 1 << 32), min_size=3, max_size=120, unique=True).map(sorted), st.data())
def test_any_places_lead_to_a_part_or_are_odd(places, draw):
    data = divided((70, 90), parts=5)
    rows = scan_rows(data)
    assert rows is not None
    wrong = np.array(places, dtype=np.int64)
    for number in draw.draw(st.lists(st.integers(0, len(wrong) - 1), max_size=8)):  # some of them right
        wrong[number] = rows[number % len(rows)]
    try:
        made = cut(data, read_header(data), Box(30, 30, 20, 20), wrong)
    except Odd:
        return
    assert made.part.top <= 30 and made.part.bottom >= 50
