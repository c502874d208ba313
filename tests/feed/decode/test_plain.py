"""plain_header: which JPEGs are told to be for every decoder, and why others are not."""

import pytest
from fusing import by_cjpeg, edges, jpeg, noisy, photos, with_segment
from helpers import encoded
from PIL import Image

from fastfeed.feed.decode.header import Odd, read_header
from fastfeed.feed.decode.plain import plain_header


def why(data: bytes) -> str | None:
    """Why it is none; None where it is one."""
    try:
        plain_header(data)
    except Odd as odd:
        return str(odd)
    return None


@pytest.mark.parametrize("subsampling", [0, 1, 2])
@pytest.mark.parametrize("options", [{}, {"restart_marker_rows": 1}, {"optimize": True}], ids=str)
def test_ordinary_ones_are_plain(subsampling, options):
    data = jpeg(subsampling=subsampling, **options)
    assert plain_header(data) == read_header(data)
    assert plain_header(memoryview(data)).width == 70


def test_gray_is_plain():
    assert plain_header(jpeg(mode="L")).gray


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "no JPEG"), (b"A" * 500, "no JPEG"), (encoded(noisy(), "PNG"), "no JPEG"), (encoded(noisy(), "GIF"), "no JPEG"),
        (b"\xff\xd8\xff" + b"A" * 500, "damaged header"), (jpeg()[:60], "damaged header"),
        (jpeg(progressive=True), "not baseline"), (jpeg(mode="CMYK"), "CMYK or other colours"),
        (jpeg()[:-40], "cut off, or bytes behind its end"), (jpeg() + b"more", "cut off, or bytes behind its end"),
        (jpeg()[:-2] + b"\xff", "cut off, or bytes behind its end"), (jpeg(keep_rgb=True), "colours are not YCbCr"),
        (with_segment(jpeg(), 0xE0, b"JFIF\0"), "Pillow refuses it"),
    ],
    ids=range(13),
)  # fmt: skip
def test_others_are_told(data, reason):
    assert why(data) == reason


def test_what_pillow_looks_into_and_takes_is_plain():
    assert why(with_segment(jpeg(), 0xED, b"Photoshop 3.0\0" + b"words")) is None


def test_adobe_may_say_rgb():
    adobe = b"Adobe\0\x64\0\0\0\0"
    assert why(with_segment(jpeg(), 0xEE, adobe + b"\1")) is None
    assert why(with_segment(jpeg(), 0xEE, adobe + b"\0")) == "colours are not YCbCr"


def test_adobe_says_so_in_segments_of_any_length_and_behind_a_thumbnail_that_says_otherwise():
    adobe = b"Adobe\0\x64\0\0\0\0"
    assert why(with_segment(jpeg(), 0xEE, adobe + b"\0" + b"more")) == "colours are not YCbCr"
    thumbnail = b"Exif\0\0\xff\xee\0\x0e" + adobe + b"\1"
    both = with_segment(with_segment(jpeg(), 0xEE, adobe + b"\0"), 0xE1, thumbnail)
    assert both.index(thumbnail) < both.rindex(adobe) and why(both) == "colours are not YCbCr"


@pytest.mark.parametrize("arguments", [("-arithmetic",), ("-sample", "4x1"), ("-sample", "1x1,2x1,1x1")], ids=" ".join)
def test_what_pillow_does_not_write(arguments):
    assert why(by_cjpeg(*arguments)) in {"coding that only Pillow knows", "unusual subsampling"}


def test_a_large_one_is_pillows_to_refuse(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 70 * 50 - 1)
    assert why(jpeg()) == "larger than Pillow likes"
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    assert why(jpeg()) is None


def test_real_photos_are_plain_in_all_but_a_few():
    found = [why(path.read_bytes()) for path in photos(7)]
    assert found.count(None) >= 0.98 * len(found)


def test_real_files_of_every_kind_never_raise_anything_else():
    assert len({why(path.read_bytes()) for path in edges()}) > 4
