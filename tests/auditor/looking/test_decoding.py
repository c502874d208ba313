import warnings

import pytest
from helpers import encoded, photo
from oddities import cut, flat_png, jpeg, png, with_segment
from PIL import Image

from fastfeed.auditor.looking.decoding import Decoded, Refused, decode, heard, told, verify_error

LIMIT = 1_000_000


def test_a_picture_is_loaded():
    found = decode(jpeg((50, 40)), LIMIT)
    assert (found.format, found.width, found.height, found.mode, found.error) == ("JPEG", 50, 40, "RGB", None)
    assert found.image is not None and found.image.size == (50, 40) and found.warnings == []


def test_a_header_that_cannot_be_opened():
    found = decode(b"no image", LIMIT)
    assert (found.stage, found.format, found.image) == ("open", "", None)
    assert found.error is not None and told(found.error) == "UnidentifiedImageError: no plugin of Pillow's knows it"


def test_a_picture_that_cannot_be_loaded():
    found = decode(cut(jpeg((50, 40)), 0.5), LIMIT)
    assert (found.stage, found.format, found.width) == ("load", "JPEG", 50)
    assert isinstance(found.error, OSError) and not found.refused


def test_more_pixels_than_are_allowed_are_not_decoded():
    found = decode(flat_png(1001, 1000), LIMIT)
    assert found.refused and found.image is None
    assert "1,001,000 pixels: at most 1,000,000" in str(found.error)


def test_no_other_program_is_started():
    """Pillow draws EPS with Ghostscript."""
    found = decode(encoded(photo(), "EPS"), LIMIT)
    assert found.refused and "another program" in str(found.error)


def test_warnings_are_collected_and_not_shown():
    data = with_segment(jpeg(), 0xE1, b"Exif\0\0II*\0\x08\0\0\0\x05\0")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = decode(data, LIMIT)
        assert found.image is not None
        with heard(found.warnings):
            found.image.getexif()
    assert any("Corrupt EXIF data" in text for text in found.warnings)


def test_what_was_lenient_before_stays(monkeypatch):
    """A script may have set Pillow's globals: they are neither needed nor changed."""
    from PIL import ImageFile

    decode(cut(jpeg(), 0.5), LIMIT)
    assert ImageFile.LOAD_TRUNCATED_IMAGES is False


def test_memory_is_the_callers_affair():
    class NoMemory:
        def __enter__(self):
            raise MemoryError

        def __exit__(self, *_):
            """Never reached."""

    with pytest.raises(MemoryError, match=r"^$"):
        decode(jpeg(), LIMIT, NoMemory())


def test_verify_reads_what_load_passes_over():
    data = png()[:-12]
    assert decode(data, LIMIT).error is None
    assert isinstance(verify_error(data), OSError)
    assert verify_error(png()) is None


def test_an_exception_is_told_in_a_line():
    assert told(ValueError("one\n  two")) == "ValueError: one two"
    assert told(Refused()) == "Refused"
    assert not Decoded(error=Image.DecompressionBombError()).refused
