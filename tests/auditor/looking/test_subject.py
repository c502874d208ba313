from helpers import encoded, photo
from oddities import jpeg, png, with_segment

from fastfeed.auditor.looking.subject import Subject
from fastfeed.media import probe


def subject(data):
    return Subject.of(data, probe(data))


def test_a_jpeg():
    data = jpeg((50, 40))
    found = subject(data + b"tail")
    assert (found.pixels, found.end, found.format_of("")) == (2000, len(data), "JPEG")
    assert found.jpeg is not None and found.png is None
    assert subject(jpeg()[:-2]).end is None
    assert subject(with_segment(jpeg(), 0xFE, bytes(500))).metadata_bytes > 500


def test_a_png():
    data = png((50, 40))
    found = subject(data)
    assert (found.pixels, found.end, found.metadata_bytes) == (2000, len(data), 0)
    assert subject(data[:-12]).end is None


def test_formats_by_what_they_cost():
    assert subject(jpeg(progressive=True)).format_of("") == "JPEG progressive"
    assert subject(encoded(photo(), "WEBP", lossless=True)).format_of("") == "WEBP lossless"
    assert subject(encoded(photo(), "WEBP")).format_of("") == "WEBP"
    assert subject(b"unknown").format_of("SGI") == "SGI"
    assert subject(b"unknown").metadata_bytes == 0
