import struct
import zlib

import pytest
from helpers import SHARED_DATA, encoded, photo
from oddities import animated, chunk, cut, flat_png, jpeg, laundered, noisy, png, with_chunk, with_segment, with_size
from PIL import Image

from fastfeed.auditor.finding import worst
from fastfeed.auditor.looking import filecodes, imagecodes
from fastfeed.auditor.looking.look import look
from fastfeed.auditor.looking.picture import MAX_PIXELS, REFUSED_PIXELS


def of(data, name="a.jpg", **options):
    return {finding.code: finding.text for finding in look(data, name, **options).findings}


# ------------------------------------------------------------------------------------------------ bombs
def test_the_limits_are_pillows():
    assert Image.MAX_IMAGE_PIXELS == MAX_PIXELS and REFUSED_PIXELS == 2 * MAX_PIXELS


def test_many_pixels_in_a_few_bytes():
    data = flat_png(4000, 4001, 1, 0)
    assert len(data) < 10_000
    looked = look(data, "a.png")
    assert looked.image is not None and looked.findings[0].code is imagecodes.PIXEL_BOMB


@pytest.mark.parametrize(("width", "height", "code"), [
    (10_000, 9_000, imagecodes.PIXELS_MANY), (65_500, 65_500, imagecodes.PIXELS_REFUSED),
    (20_000, 15_000, imagecodes.PIXELS_REFUSED),
])  # fmt: skip
def test_more_pixels_than_are_decoded(width, height, code):
    looked = look(with_size(jpeg(), width, height), "a.jpg")
    assert looked.image is None and (looked.width, looked.height) == (width, height)
    assert [finding.code for finding in looked.findings] == [code, imagecodes.NOT_DECODED]


def test_a_lower_limit():
    looked = look(jpeg((40, 30)), "a.jpg", max_pixels=1000)
    assert looked.image is None
    assert [finding.code for finding in looked.findings] == [imagecodes.NOT_DECODED]


def test_a_refusal_that_no_header_shows():
    """The second frame of a GIF may be larger than its screen; an icon states no size where this header is read."""
    folder = SHARED_DATA / "edge-images" / "pillow"
    if not folder.exists():
        pytest.skip(f"{folder} is not here")
    assert imagecodes.PIXELS_REFUSED in of((folder / "decompression_bomb.ico").read_bytes(), "a.ico")


def test_metadata_of_gigabytes_in_many_chunks():
    """Each is below the limit of one; Pillow has a limit for all together as well."""
    data, body = png(), b"name\0\0" + zlib.compress(bytes((1 << 20) - 10))
    for _ in range(66):
        data = with_chunk(data, b"zTXt", body)
    assert "MAX_TEXT_MEMORY" in of(data, "a.png")[imagecodes.TEXT_BOMB]


# ------------------------------------------------------------------------------------------------ other containers
@pytest.mark.parametrize("kind", ["WEBP", "AVIF", "GIF", "JPEG2000", "TIFF", "BMP", "PPM"])
def test_a_cut_file_of_any_format(kind):
    data = encoded(noisy((200, 150)), kind)
    found = of(cut(data, 0.5), "a.jpg")
    assert found.keys() & {imagecodes.TRUNCATED, imagecodes.UNDECODABLE}
    if kind in {"WEBP", "AVIF", "GIF", "BMP", "PPM"}:
        assert imagecodes.TRUNCATED in found


def test_a_format_that_pillow_does_not_read():
    heic = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + b"\0\0\0\x08free"
    assert imagecodes.UNSUPPORTED in of(heic, "a.heic")
    bmp = bytearray(encoded(photo(), "BMP"))
    bmp[28] = 2  # bits a pixel
    assert imagecodes.UNSUPPORTED in of(bytes(bmp), "a.bmp")
    tiff = bytearray(encoded(photo(mode="L"), "TIFF"))
    at = tiff.index(struct.pack("<HHIH", 258, 3, 1, 8))  # bits a sample, of one channel
    tiff[at + 8] = 10
    assert imagecodes.UNSUPPORTED in of(bytes(tiff), "a.tif")


def test_a_header_that_pillow_refuses():
    assert imagecodes.UNDECODABLE in of(b"II*\0\x08\0\0\0\x01\0" + bytes(100), "a.tif")


def test_the_end_of_an_animation_is_missing():
    data = animated("GIF", 3)
    assert imagecodes.ENDS_EARLY in of(data[:-1], "a.gif")


def test_a_format_that_only_pillow_knows():
    looked = look(encoded(photo(), "SGI"), "a.sgi")
    assert (looked.format, looked.width, looked.height, looked.findings) == ("SGI", 16, 12, [])
    assert imagecodes.UNDECODABLE in of(encoded(photo(), "SGI")[:300], "a.sgi") or imagecodes.TRUNCATED in of(
        encoded(photo(), "SGI")[:300], "a.sgi"
    )


# ------------------------------------------------------------------------------------------------ waste and cost
@pytest.mark.parametrize(("tail", "code"), [
    (b"\0", imagecodes.TRAILING_BYTES), (bytes(1000), imagecodes.TRAILING_BYTES), (bytes(70_000), imagecodes.DEAD_BYTES),
])  # fmt: skip
@pytest.mark.parametrize("make", [jpeg, png])
def test_bytes_behind_the_end(make, tail, code):
    data = make()
    found = of(data + tail, "a.jpg" if make is jpeg else "a.png")
    assert list(found) == [code] and f"behind byte {len(data):,}," in found[code]


def test_a_second_jpeg_behind_the_first():
    assert "beginning with another JPEG" in of(jpeg() + jpeg())[imagecodes.TRAILING_BYTES]


def test_metadata_that_outweighs_the_pixels():
    data = jpeg((40, 30))
    for _ in range(3):
        data = with_segment(data, 0xED, bytes(60_000))
    assert list(of(data)) == [imagecodes.METADATA_LARGE]
    assert of(with_segment(jpeg((40, 30)), 0xED, bytes(60_000))) == {}


def test_slow_and_costly_formats():
    assert imagecodes.HEAVY_FORMAT in of(encoded(photo(), "JPEG2000"), "a.jp2")
    assert imagecodes.COSTLY_FORMAT in of(encoded(photo(), "AVIF"), "a.avif")
    assert imagecodes.COSTLY_FORMAT in of(encoded(photo(), "WEBP", lossless=True), "a.webp")
    assert of(encoded(photo(), "WEBP"), "a.webp") == {}


# ------------------------------------------------------------------------------------------------ what is decoded
def test_a_laundered_picture():
    data = laundered(cut(jpeg((320, 240)), 0.5))
    assert "of 80 rows are one flat grey" in of(data)[imagecodes.GREY_BAND]
    assert of(data, band=False) == {}


def test_warnings_of_pillow():
    data = with_segment(jpeg(), 0xE2, b"MPF\0II*\0\x08\0\0\0\0\0")
    assert "malformed MPO" in of(data)[imagecodes.DECODER_WARNING]


def test_what_verify_alone_refuses():
    data = png()
    odd = data[:-12] + chunk(b"\x01abc", b"") + data[-12:]
    assert "SyntaxError" in of(odd, "a.png")[imagecodes.VERIFY_FAILS]
    assert of(odd, "a.png", strict=False) == {}


def test_a_png_named_jpg_is_looked_at_as_a_png():
    found = of(png()[:-12], "a.jpg")
    assert list(found) == [filecodes.WRONG_EXTENSION, imagecodes.NO_IEND]


def test_a_tiny_picture_of_each_mode_is_whole():
    for mode in ("1", "L", "P", "RGB", "RGBA", "CMYK", "LA", "I;16", "F"):
        kind = "TIFF" if mode in {"CMYK", "LA", "F"} else "PNG"
        findings = look(encoded(Image.new(mode, (3, 2)), kind), f"a.{kind.lower()}").findings
        assert (worst(findings) or 0) <= 2, (mode, findings)
