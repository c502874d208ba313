import shutil
import subprocess

import pytest
from helpers import encoded
from oddities import EOI, cut, jpeg, noisy, scan_bomb, segment, with_segment, with_size, without_segments, zeroed

from fastfeed.auditor.finding import Severity
from fastfeed.auditor.looking import imagecodes
from fastfeed.auditor.looking.look import look


def of(data, **options):
    return {finding.code: finding.text for finding in look(data, "a.jpg", **options).findings}


def only(data, code):
    found = of(data)
    assert list(found) == [code]
    return found[code]


# ------------------------------------------------------------------------------------------------ the end is missing
@pytest.mark.parametrize(("share", "least", "most"), [(0.3, 70, 130), (0.95, 290, 315)])
def test_a_cut_file_says_how_much_is_real(share, least, most):
    text = only(cut(jpeg((160, 320)), share), imagecodes.TRUNCATED)
    assert text.endswith("bytes not processed))")
    real = int(text.partition(" of 320 rows are real")[0].rpartition(" ")[2])
    assert least <= real <= most


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"restart_marker_rows": 1}])
@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
def test_the_end_marker_alone_is_missing(mode, options):
    found = of(jpeg(mode=mode, **options)[:-2])
    assert imagecodes.TRUNCATED not in found
    assert "all rows are there" in found[imagecodes.MISSING_EOI]


def test_half_of_the_end_marker_is_missing():
    assert imagecodes.MISSING_EOI in of(jpeg()[:-1])


def test_pillow_may_load_it_without_its_end():
    """By which bits the last byte ends decides whether libjpeg asks for another."""
    found = [of(jpeg((16, 16), "L", seed)[:-2]) for seed in range(60)]
    assert all(
        list(one)
        in (
            [imagecodes.MISSING_EOI, imagecodes.ONE_CHANNEL],
            [imagecodes.MISSING_EOI],
            [imagecodes.ENDS_EARLY, imagecodes.ONE_CHANNEL],
        )
        for one in found
    )
    assert any(imagecodes.ENDS_EARLY in one for one in found)


def test_a_header_alone():
    assert "no pixel is there" in only(jpeg()[:200], imagecodes.TRUNCATED)


def test_a_progressive_file_that_is_cut():
    found = of(cut(jpeg((160, 320), progressive=True), 0.6))
    assert "in the detail of" in found[imagecodes.TRUNCATED]


@pytest.mark.parametrize("share", [0.3, 0.8])
def test_an_end_marker_behind_a_cut(share):
    """Pillow loads it without a word; a check of the last two bytes passes it."""
    data = cut(jpeg((160, 320)), share) + EOI
    looked = look(data, "a.jpg")
    assert looked.image is not None
    (finding,) = looked.findings
    assert finding.code is imagecodes.TRUNCATED and "though an end marker follows" in finding.text
    assert list(of(data, strict=False)) == [imagecodes.GREY_BAND]  # the flat bottom alone is seen then
    assert of(data, strict=False, band=False) == {}


# ------------------------------------------------------------------------------------------------ damage
@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_a_block_of_zeros(share):
    data = jpeg((320, 320))
    found = of(zeroed(data, int(len(data) * share), 4096))
    assert found.keys() & {imagecodes.CORRUPT_DATA, imagecodes.TRUNCATED}
    assert all(code.severity is Severity.ERROR for code in found)


def test_restart_markers_that_are_lost():
    data = jpeg(restart_marker_rows=1)
    assert "libjpeg warns" in only(data.replace(b"\xff\xd3", b"\x00\x00"), imagecodes.CORRUPT_DATA)


def test_dimensions_beyond_the_data():
    assert "of 800 rows are real" in only(with_size(jpeg((160, 120)), 160, 800), imagecodes.TRUNCATED)


def test_stray_bytes_do_not_hide_damage():
    data = jpeg((160, 320))
    strayed = data[:20] + b"12345" + data[20:]
    assert "5 at byte 20" in only(strayed, imagecodes.STRAY_BYTES)
    for damaged in (cut(strayed, 0.6) + EOI, cut(strayed, 0.6)):
        assert list(of(damaged)) == [imagecodes.TRUNCATED], "to rewrite it without them would mend nothing"


def test_a_profile_in_pieces_that_do_not_fit():
    data = with_segment(jpeg(), 0xE2, b"ICC_PROFILE\0\x02\x03" + bytes(100))
    assert "1 piece" in only(data, imagecodes.ICC_BAD)


# ------------------------------------------------------------------------------------------------ headers
def test_no_quantisation_table():
    assert "(DQT)" in only(without_segments(jpeg(), 0xDB), imagecodes.HEADER_DAMAGED)


def test_a_height_that_only_a_later_marker_states():
    data = with_size(jpeg((160, 120)), 160, 0)[:-2] + segment(0xDC, b"\x00\x78") + EOI
    assert "(DNL)" in only(data, imagecodes.HEADER_DAMAGED)


@pytest.mark.parametrize("size", [(0, 120), (160, 0)])
def test_a_size_of_nothing(size):
    assert f"{size[0]}x{size[1]} pixels" in only(with_size(jpeg((160, 120)), *size), imagecodes.HEADER_DAMAGED)


def test_no_frame_and_no_scan():
    assert "(SOF)" in only(without_segments(jpeg(), 0xC0), imagecodes.HEADER_DAMAGED)
    data = jpeg()
    assert "(SOS)" in only(data[: data.index(b"\xff\xda")] + EOI, imagecodes.HEADER_DAMAGED)


def test_a_kind_that_pillow_does_not_read():
    data = jpeg()
    at = data.index(b"\xff\xc0")
    assert "12 bits a sample" in only(data[: at + 4] + b"\x0c" + data[at + 5 :], imagecodes.UNSUPPORTED)


def test_a_marker_that_decoders_stop_at():
    data = jpeg()
    broken = data[:2] + segment(0x05, b"reserved") + data[2:]
    assert "stop at byte 2 " in only(broken, imagecodes.UNDECODABLE)


# ------------------------------------------------------------------------------------------------ oddities that load
def test_no_huffman_tables_as_in_videos():
    data = encoded(noisy(), quality=85)
    looked = look(without_segments(data, 0xC4), "a.jpg")
    assert looked.image is not None
    assert [finding.code for finding in looked.findings] == [imagecodes.NO_TABLES]


def test_arithmetic_coding():
    if shutil.which("cjpeg") is None:
        pytest.skip("cjpeg is not installed (apt install libjpeg-turbo-progs)")
    done = subprocess.run(["cjpeg", "-arithmetic"], input=encoded(noisy(), "PPM"), capture_output=True, check=True)
    looked = look(done.stdout, "a.jpg")
    assert looked.image is not None
    assert [finding.code for finding in looked.findings] == [imagecodes.ARITHMETIC]


def test_progressive():
    assert only(jpeg(progressive=True), imagecodes.PROGRESSIVE) == "10 scans"


@pytest.mark.parametrize(
    ("scans", "code"), [(99, imagecodes.PROGRESSIVE), (100, imagecodes.SCAN_BOMB), (400, imagecodes.SCAN_BOMB)]
)
def test_very_many_scans(scans, code):
    found = of(scan_bomb(scans))
    assert code in found and not found.keys() & {imagecodes.CORRUPT_DATA, imagecodes.TRUNCATED}


def test_very_many_scans_that_are_cut():
    found = of(scan_bomb(200)[:-30])
    assert list(found) == [imagecodes.SCAN_BOMB, imagecodes.TRUNCATED] and "within scan" in found[imagecodes.TRUNCATED]
