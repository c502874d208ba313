import base64
import io

import pytest
from helpers import encoded, photo
from PIL import Image, ImageFile

from fastfeed.auditor.running.thumbnail import SIDE, thumbnail


def seen(data):
    found = thumbnail(data)
    assert found is not None
    image = Image.open(io.BytesIO(base64.b64decode(found)))
    image.load()
    assert (image.format, image.mode) == ("JPEG", "RGB")
    return image


def png(image):
    into = io.BytesIO()
    image.save(into, "PNG")
    return into.getvalue()


@pytest.mark.parametrize("size", [(3000, 1500), (SIDE, SIDE // 2), (40, 30), (1, 4000)])
def test_it_is_small_and_keeps_its_shape(size):
    image = seen(encoded(photo(1, size)))
    assert max(image.size) <= SIDE
    assert image.size == size or image.width == round(size[0] * image.height / size[1]) or min(image.size) == 1
    assert len(thumbnail(encoded(photo(1, size))) or "") < 16 << 10


@pytest.mark.parametrize("mode", ["1", "L", "P", "LA", "RGBA", "I;16", "CMYK", "F"])
def test_modes(mode):
    kind = "TIFF" if mode in {"CMYK", "F"} else "PNG"
    into = io.BytesIO()
    (Image.new("I;16", (64, 48), 300) if mode == "I;16" else photo(2, (64, 48)).convert(mode)).save(into, kind)
    assert seen(into.getvalue()).size == (64, 48)


def test_what_is_transparent_shows_grey():
    assert all(abs(level - 128) < 4 for level in seen(png(Image.new("RGBA", (32, 32), (255, 0, 0, 0)))).getpixel((5, 5)))


def test_of_a_damaged_image_what_is_left():
    data = encoded(photo(3, (640, 480)))
    image = seen(data[: len(data) // 2])
    assert image.getpixel((image.width // 2, image.height - 1)) == pytest.approx((128, 128, 128), abs=6)
    assert not ImageFile.LOAD_TRUNCATED_IMAGES


@pytest.mark.parametrize(
    "data", [b"", b"<html></html>", b"\x89PNG\r\n\x1a\n", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n"]
)
def test_nothing_to_see(data):
    assert thumbnail(data) is None


def test_an_image_of_many_pixels_is_left_alone():
    assert thumbnail(png(Image.new("1", (9000, 8000)))) is None
    assert thumbnail(encoded(photo(1, (2, 2)).resize((9000, 8000)))) is not None, "a JPEG is decoded at an eighth of its size"
