"""fastfeed/jpegrows.py: what a JPEG's headers say, where its restart intervals begin; against Pillow's writer and decoder."""

import io
from itertools import pairwise

import numpy as np
import pytest
from helpers import SHARED_DATA, encoded, photo
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fastfeed.jpegrows import EOI, SOI, Component, from_column, read_frame, scan_rows, segments, to_column

SAMPLINGS = {"4:4:4": (1, 1), "4:2:2": (2, 1), "4:2:0": (2, 2)}


def jpeg(size=(70, 50), mode="RGB", sampling="4:2:0", **options) -> bytes:
    """A JPEG with a restart marker a row of MCUs, unless options say otherwise."""
    if mode == "RGB":
        options["subsampling"] = sampling
    return encoded(photo(3, size, mode), **{"restart_marker_rows": 1, "quality": 90, **options})


def cut(data: bytes, starts: np.ndarray, rows: int) -> bytes:
    """The first rows of a JPEG, as README.md §4.4 says."""
    frame = read_frame(data)
    assert frame is not None
    height = min(frame.height, rows * frame.mcu[1])
    head = bytearray(data[: starts[0]])
    head[frame.size_at : frame.size_at + 2] = height.to_bytes(2)
    return bytes(head) + data[starts[0] : starts[rows * frame.parts] - 2] + b"\xff\xd9"


@settings(max_examples=60, deadline=None)
@given(
    st.tuples(st.integers(1, 100), st.integers(1, 100)), st.sampled_from(["L", "RGB"]), st.sampled_from(sorted(SAMPLINGS)),
    st.data(),
)  # fmt: skip
def test_rows_can_be_cut_at_any_of_them(size, mode, sampling, draw):
    data = jpeg(size, mode, sampling)
    across, down = (8, 8) if mode == "L" else (8 * factor for factor in SAMPLINGS[sampling])
    frame = read_frame(data)
    assert frame is not None
    assert (frame.width, frame.height, frame.mcu) == (*size, (across, down))
    assert (frame.mcus_per_row, frame.rows) == (-(-size[0] // across), -(-size[1] // down))
    starts = scan_rows(data)
    if frame.rows == 1:
        assert starts is None
        return
    assert starts is not None
    assert len(starts) == frame.rows + 1
    assert starts[0] == frame.scan
    assert [data[start - 2 : start] for start in starts[1:-1]] == [bytes((0xFF, 0xD0 + at % 8)) for at in range(frame.rows - 1)]
    assert starts[-1] == len(data) and data.endswith(b"\xff\xd9")
    rows = draw.draw(st.integers(1, frame.rows))
    whole, part = Image.open(io.BytesIO(data)), Image.open(io.BytesIO(cut(data, starts, rows)))
    assert part.size == (size[0], min(size[1], rows * down))
    sure = part.height if rows == frame.rows else part.height - down // 8  # the rest is smoothed with what follows
    assert np.array_equal(np.asarray(whole)[:sure], np.asarray(part)[:sure])


@pytest.mark.parametrize(
    "options",
    [
        {"restart_marker_rows": 0},
        {"restart_marker_rows": 2},
        {"restart_marker_rows": 0, "restart_marker_blocks": 2},
        {"progressive": True},
        {"size": (70, 16)},
        {"size": (1, 1)},
        {"mode": "CMYK", "restart_marker_rows": 0},
    ],
    ids=str,
)
def test_files_without_a_marker_behind_each_row(options):
    assert scan_rows(jpeg(**options)) is None


@pytest.mark.parametrize(("blocks", "parts"), [(8, 1), (4, 2), (1, 8), (3, 0), (16, 0)])
def test_a_row_may_be_several_restart_intervals_if_it_ends_where_one_does(blocks, parts):
    data = jpeg((64, 48), sampling="4:4:4", restart_marker_rows=0, restart_marker_blocks=blocks)
    frame, edges = read_frame(data), scan_rows(data)
    assert frame is not None and frame.parts == parts
    assert (edges is None) == (parts == 0)
    assert edges is None or len(edges) == 6 * parts + 1


@settings(max_examples=100, deadline=None)
@given(st.integers(2, 0xFFFFFFFF), st.lists(st.integers(3, 0xFFFF), min_size=2, max_size=300))
def test_what_the_column_keeps_is_what_was_found(first, sizes):
    edges = np.cumsum([first, *sizes])
    raw = to_column(edges)
    assert len(raw) == 4 + 2 * len(sizes)
    again = from_column(raw)
    assert again is not None and again.dtype == np.int64 and again.tolist() == edges.tolist()


@pytest.mark.parametrize("edges", [[600, 700, 700 + (1 << 16)], [1 << 32, (1 << 32) + 9, (1 << 32) + 20]])
def test_what_is_too_large_for_the_column_is_not_kept(edges):
    assert to_column(np.array(edges)) == b""


@given(st.binary(max_size=40))
def test_any_row_of_the_column_rises_or_says_nothing(raw):
    edges = from_column(raw)
    assert edges is None or (len(edges) > 2 and (np.diff(edges) > 2).all())


@pytest.mark.parametrize("damage", ["cut", "marker gone", "other marker", "one more", "wrong order", "no end", "interval"])
def test_markers_that_are_not_where_they_should_be(damage):
    data = jpeg((64, 80))
    starts = scan_rows(data)
    assert starts is not None
    second, third = int(starts[1]), int(starts[2])
    broken = {
        "cut": data[: third + 5],
        "marker gone": data[: second - 2] + data[second:],
        "other marker": data[: second - 2] + b"\xff\xc4" + data[second:],
        "one more": data[:second] + b"\xff\xd0" + data[second:],
        "wrong order": data[: second - 2] + b"\xff\xd1" + data[second : third - 2] + b"\xff\xd0" + data[third:],
        "no end": data[:-2],
        "interval": data.replace(b"\xff\xdd\0\4\0\4", b"\xff\xdd\0\4\0\5"),
    }[damage]
    assert broken != data
    assert scan_rows(broken) is None


def test_what_is_behind_the_end_is_not_looked_at():
    data = jpeg()
    starts, again = scan_rows(data), scan_rows(data + data)
    assert starts is not None and again is not None
    assert again.tolist() == starts.tolist()


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2000), st.integers(0, 255))
def test_a_changed_byte_never_raises_and_never_leads_outside(at, value):
    data = bytearray(jpeg((40, 40), exif=b"Exif\0\0some", comment=b"a comment"))
    data[at % len(data)] = value
    starts = scan_rows(bytes(data))
    if starts is not None:
        assert starts[0] >= 2
        assert starts[-1] <= len(data)
        assert all(first < second for first, second in pairwise(starts.tolist()))


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_never_raise(tail):
    for data in (tail, b"\xff\xd8" + tail, b"\xff\xd8\xff\xc0\0\x0b\x08\0\x10\0\x10\x01\1\x11\0" + tail):
        assert scan_rows(data) is None
        read_frame(data)
    read_frame(b"")


def test_headers_of_a_progressive_file():
    frame = read_frame(jpeg(progressive=True, mode="L", size=(9, 17)))
    assert frame is not None
    assert (frame.marker, frame.precision, frame.width, frame.height) == (0xC2, 8, 9, 17)
    assert frame.components == (Component(1, 1),)
    assert not frame.is_sequential


def test_the_height_stands_where_it_is_said_to_stand():
    data = jpeg((70, 50))
    frame = read_frame(data)
    assert frame is not None
    assert data[frame.size_at : frame.size_at + 4] == bytes((0, 50, 0, 70))
    assert read_frame(data[: frame.scan]) == frame
    assert read_frame(data[: frame.scan - 1]) is None
    assert scan_rows(data[: frame.scan]) is None
    assert scan_rows(data[: frame.scan + 1]) is None


def test_segments_of_a_file_with_several_scans_and_fill_bytes():
    data = encoded(photo(1, (40, 40)), progressive=True, comment=b"hello")
    found = list(segments(data))
    assert (found[0].marker, found[-1].marker) == (SOI, EOI)
    assert found[-1].stop == len(data)
    assert sum(segment.marker == 0xDA for segment in found) > 3
    assert b"hello" in [data[segment.start + 4 : segment.stop] for segment in found if segment.marker == 0xFE]
    filled = data[:2] + b"\xff\xff" + data[2:]
    assert [segment.marker for segment in segments(filled)] == [segment.marker for segment in found]
    assert read_frame(filled) is not None


@pytest.mark.parametrize(
    "broken", [b"", b"\xff\xd8", b"\xff\xd8\xff", b"\xff\xd8abc", b"\xff\xd8\xff\xd8", b"\xff\xd8\xff\xda\0\3a"]
)
def test_segments_of_what_is_no_jpeg(broken):
    with pytest.raises(ValueError, match=r"begin with SOI|no marker at byte|no such length|midst of a scan"):
        list(segments(broken))


def test_real_photos_have_headers():
    folder = SHARED_DATA / "imagenet-sample"
    if not folder.is_dir():
        pytest.skip(f"real photos are not there: {folder}")
    for path in sorted(folder.rglob("*.[jJ][pP]*[gG]"))[:40]:
        data = path.read_bytes()
        frame, image = read_frame(data), Image.open(io.BytesIO(data))
        assert frame is not None
        assert (frame.width, frame.height) == image.size
        assert len(frame.components) == len(image.getbands())
        assert list(segments(data))[-1].stop <= len(data)
