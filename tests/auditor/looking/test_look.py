import pytest
from helpers import encoded, photo

from fastfeed.auditor.looking import filecodes
from fastfeed.auditor.looking.look import look


def codes(data, name="a.jpg", **options):
    return [finding.code for finding in look(data, name, **options).findings]


def test_a_photo_has_its_facts_and_no_findings():
    data = encoded(photo(3, (40, 30)))
    looked = look(data, "cat/003.jpg")
    assert (looked.format, looked.width, looked.height, looked.mode) == ("JPEG", 40, 30, "RGB")
    assert looked.findings == []
    assert looked.image is not None and looked.image.size == (40, 30)


def test_equal_bytes_have_equal_digests_whatever_their_names():
    one, other = encoded(photo(1)), encoded(photo(2))
    assert look(one, "a.jpg").digest == look(one, "b/c.bin").digest != look(other, "a.jpg").digest


@pytest.mark.parametrize("name", ["a.jpg", "a.txt", "a"])
def test_nothing_at_all(name):
    assert codes(b"", name) == [filecodes.EMPTY]


def test_bytes_that_are_neither_image_nor_text_are_data():
    looked = look(bytes(range(256)), "weights.bin")
    assert looked.format == "data" and looked.findings == []


def test_a_clock_is_entered_for_the_decoding_alone():
    entered = []

    class Around:
        def __enter__(self):
            entered.append("in")

        def __exit__(self, *_):
            entered.append("out")

    look(encoded(photo()), "a.jpg", around=Around())
    look(b"text", "a.txt", around=Around())
    assert entered == ["in", "out"]


@pytest.mark.parametrize("text", [b"GIF89a is an old format\n", b"P3 12 13 were the results\n"])
def test_a_text_that_begins_like_an_image(text):
    assert look(text, "a.txt").format == "text"
    assert codes(text, "a.txt") == []


def test_an_image_without_a_name_is_one():
    assert look(encoded(photo()), "").format == "JPEG"
    assert look(encoded(photo()), "caption.txt").format == "JPEG"


def test_a_flipped_bit_changes_the_digest():
    """Damage of which no decoder and no rule can know: only a checksum of before can tell."""
    data = bytearray(encoded(photo(size=(64, 48))))
    before, at = look(bytes(data), "a.jpg"), len(data) * 3 // 4
    for bit in range(8):
        data[at] ^= 1 << bit
        after = look(bytes(data), "a.jpg")
        data[at] ^= 1 << bit
        assert after.digest != before.digest and after.format == before.format
