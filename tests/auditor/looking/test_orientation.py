import pytest
from helpers import encoded, photo
from oddities import jpeg, with_segment
from PIL import Image

from fastfeed.auditor.looking import imagecodes
from fastfeed.auditor.looking.look import look

XMP = b"http://ns.adobe.com/xap/1.0/\0"


def turned(value, kind="JPEG"):
    exif = Image.Exif()
    exif[0x0112] = value
    return encoded(photo(size=(40, 30)), kind, exif=exif)


def of(data, name="a.jpg"):
    return {finding.code: finding.text for finding in look(data, name).findings}


@pytest.mark.parametrize("value", range(2, 9))
def test_readers_disagree(value):
    text = of(turned(value))[imagecodes.ORIENTATION]
    assert "40x30 as stored from Pillow" in text and "cv2.imread" in text
    assert ("30x40" in text) is (value >= 5)


def test_upright_is_nothing_to_talk_about():
    assert of(turned(1)) == {}


@pytest.mark.parametrize("value", [0, 9])
def test_an_orientation_that_there_is_not(value):
    assert list(of(turned(value))) == [imagecodes.ORIENTATION_INVALID]


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF"])
def test_other_formats(kind):
    text = of(turned(6, kind), f"a.{kind.lower()}")[imagecodes.ORIENTATION]
    assert ("Pillow hands it out turned" in text) is (kind == "TIFF")


def test_xmp_counts_where_exif_says_nothing():
    data = with_segment(jpeg((40, 30)), 0xE1, XMP + b'<x:xmpmeta tiff:Orientation="6"/>')
    assert imagecodes.ORIENTATION in of(data)


def test_xmp_that_is_no_text_costs_no_pixel():
    """A picture of ImageNet has such metadata; older readers raised an error at it."""
    data = with_segment(jpeg((40, 30)), 0xE1, XMP + b'<x:xmpmeta>\xa8\xff tiff:Orientation="6"</x:xmpmeta>')
    looked = look(data, "a.jpg")
    assert looked.image is not None
    assert [finding.code for finding in looked.findings] == [imagecodes.ORIENTATION]


def test_exif_that_cannot_be_read():
    data = with_segment(jpeg(), 0xE1, b"Exif\0\0II*\0\x08\0\0\0\x05\0")
    assert "Corrupt EXIF data" in of(data)[imagecodes.EXIF_BAD]
