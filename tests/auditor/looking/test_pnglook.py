import zlib

import PIL
import pytest
from oddities import png, with_chunk, zeroed

from fastfeed.auditor.looking import imagecodes
from fastfeed.auditor.looking.look import look


def of(data):
    return {finding.code: finding.text for finding in look(data, "a.png").findings}


def only(data, code):
    found = of(data)
    assert list(found) == [code]
    return found[code]


@pytest.mark.parametrize("share", [0.3, 0.9])
def test_a_cut_file(share):
    data = png()
    text = only(data[: int(len(data) * share)], imagecodes.TRUNCATED)
    assert "within 'IDAT'" in text and "of 30 rows are real" in text and "OSError" in text


def test_a_cut_file_that_is_not_decoded():
    findings = look(png()[:1000], "a.png", max_pixels=100).findings
    assert [finding.code for finding in findings] == [imagecodes.NOT_DECODED, imagecodes.TRUNCATED]
    assert "rows" not in findings[1].text


def test_a_header_alone():
    assert "within 'IHDR'" in only(png()[:30], imagecodes.TRUNCATED)


def test_pixels_that_are_damaged():
    data = png()
    assert "checksum of IDAT" in only(zeroed(data, len(data) // 2, 40), imagecodes.CHUNK_DAMAGED)


def test_a_header_that_is_damaged():
    assert "IHDR" in only(zeroed(png(), 19, 1), imagecodes.CHUNK_DAMAGED)


def test_an_end_that_is_missing():
    assert "loads it all the same" in only(png()[:-12], imagecodes.NO_IEND)


def test_a_chunk_beside_the_pixels():
    assert "tEXt" in only(with_chunk(png(), b"tEXt", b"no keyword"), imagecodes.CHUNK_ODD)


def test_many_faults_are_counted():
    data = png()
    for _ in range(5):
        data = with_chunk(data, b"tEXt", b"no keyword")
    assert only(data, imagecodes.CHUNK_ODD).endswith("and 2 more")


@pytest.mark.parametrize("kind", [b"zTXt", b"iCCP"])
def test_a_text_of_hundreds_of_megabytes(kind):
    bomb = with_chunk(png(), kind, b"name\0\0" + zlib.compress(bytes(100 << 20), 9))
    assert len(bomb) < 200_000
    assert imagecodes.TEXT_BOMB in of(bomb)


@pytest.mark.skipif(int(PIL.__version__.partition(".")[0]) < 13, reason="an older Pillow reads it")
def test_an_error_that_no_chunk_explains():
    assert "Truncated cHRM chunk" in only(with_chunk(png(), b"cHRM", b""), imagecodes.UNDECODABLE)


def test_interlaced():
    """Adam7 of one pixel is that pixel: its first pass, and no other."""
    data = png((1, 1))
    head = bytearray(data[12:29])
    head[16] = 1
    interlaced = data[:12] + bytes(head) + zlib.crc32(head).to_bytes(4) + data[33:]
    looked = look(interlaced, "a.png")
    assert looked.format == "PNG interlaced"
    assert [finding.code for finding in looked.findings] == [imagecodes.INTERLACED]
