import io

import numpy as np
import pytest
from helpers import encoded, photo
from oddities import flat_png, noisy, png
from PIL import Image

from fastfeed.auditor.looking import imagecodes
from fastfeed.auditor.looking.look import look
from fastfeed.auditor.looking.modes import findings_of, stored_bits
from fastfeed.media import Codec

SIXTEEN = Image.fromarray(np.arange(20 * 20, dtype=np.uint16).reshape(20, 20) * 100)
CLEAR = Image.new("RGBA", (20, 20), (1, 2, 3, 0))
TRANSPARENT_PALETTE = noisy((20, 20)).quantize(8)


def of(image, bits=8):
    return {finding.code: finding.text for finding in findings_of(image, bits)}


@pytest.mark.parametrize(("image", "code"), [
    (photo().convert("CMYK"), imagecodes.CMYK), (SIXTEEN, imagecodes.DEEP_GREY), (photo().convert("I"), imagecodes.DEEP_GREY),
    (photo().convert("F"), imagecodes.FLOAT_PIXELS), (photo().convert("P"), imagecodes.PALETTE),
    (photo().convert("1"), imagecodes.ONE_BIT), (photo().convert("L"), imagecodes.ONE_CHANNEL),
    (photo().convert("YCbCr"), imagecodes.OTHER_COLOURS), (CLEAR, imagecodes.ALPHA_HIDES),
    (photo().convert("RGBA"), imagecodes.ALPHA), (photo().convert("LA"), imagecodes.ALPHA),
])  # fmt: skip
def test_one_code_a_mode(image, code):
    assert list(of(image)) == [code]


def test_rgb_of_eight_bits_is_nothing_to_talk_about():
    assert of(photo()) == {}


def test_deep_grey_says_what_is_clipped():
    text = of(SIXTEEN)[imagecodes.DEEP_GREY]
    assert "values from 0 to 39900" in text
    clipped = np.asarray(SIXTEEN.convert("RGB"))
    assert (clipped == 255).mean() > 0.95  # that is why


@pytest.mark.parametrize("kind", ["I;16", "I;16B"])
def test_both_orders_of_bytes(kind):
    assert imagecodes.DEEP_GREY in of(Image.new(kind, (4, 4), 300))


def test_a_palette_with_transparency_in_bytes():
    data = encoded(TRANSPARENT_PALETTE, "PNG", transparency=bytes([0, 128, *[255] * 6]))
    image = Image.open(io.BytesIO(data))
    image.load()
    assert list(of(image)) == [imagecodes.PALETTE_ALPHA]
    assert list(of(TRANSPARENT_PALETTE)) == [imagecodes.PALETTE]


@pytest.mark.parametrize(("mode", "colour", "code"), [
    ("RGB", (0, 0, 0), imagecodes.ALPHA_HIDES), ("RGB", (9, 9, 9), imagecodes.ALPHA),
    ("L", 0, imagecodes.ALPHA_HIDES), ("P", 0, imagecodes.ALPHA_HIDES), ("P", 200, imagecodes.ALPHA),
])  # fmt: skip
def test_one_colour_that_is_transparent(mode, colour, code):
    image = Image.new(mode, (8, 8))
    image.info["transparency"] = colour
    assert code in of(image)


def test_bits_that_are_stored():
    assert stored_bits(Codec.PNG, flat_png(4, 4, depth=16)) == 16
    assert stored_bits(Codec.PNG, png()) == 8
    assert stored_bits(Codec.TIFF, encoded(SIXTEEN, "TIFF")) == 16
    assert stored_bits(Codec.TIFF, encoded(photo(), "TIFF")) == 8
    assert stored_bits(Codec.TIFF, encoded(photo(), "TIFF")[:20]) == 0
    assert stored_bits(Codec.TIFF, b"II+\0" + bytes(40)) == 0
    assert stored_bits(Codec.WEBP, b"RIFF") == 0


def test_colours_of_which_pillow_keeps_half():
    findings = look(flat_png(4, 4, depth=16), "a.png").findings
    assert [finding.code for finding in findings] == [imagecodes.DEEP_COLOUR]
