import pytest
from helpers import SHARED_DATA, encoded
from oddities import EOI, cut, jpeg, noisy, scan_bomb, segment, with_segment, without_segments

from fastfeed.auditor.looking.jpegwalk import Span, walk
from fastfeed.jpegrows import segments


def test_a_whole_file():
    data = jpeg((50, 40))
    found = walk(data)
    assert (found.frame, found.precision, found.width, found.height, found.components) == (0xC0, 8, 50, 40, 3)
    assert (found.scans, found.eoi, found.lost_at, found.stray) == (1, len(data) - 2, -1, [])
    assert found.has_huffman and found.has_quantisation and not found.progressive
    assert found.plain(data) is data


def test_a_progressive_one():
    found = walk(jpeg(progressive=True))
    assert found.progressive and found.scans == 10


def test_scans_are_counted():
    assert walk(scan_bomb(120)).scans == 121


@pytest.mark.parametrize("share", [0.3, 0.95])
def test_a_cut_file_has_no_end(share):
    found = walk(cut(jpeg(), share))
    assert (found.eoi, found.scans, found.cut_segment) == (-1, 1, False)


def test_a_file_cut_in_its_header():
    found = walk(jpeg()[:100])
    assert found.cut_segment and found.scans == 0


def test_what_is_behind_the_end_is_not_walked():
    data = jpeg()
    assert walk(data + jpeg()).eoi == len(data) - 2


def test_stray_bytes_are_told_and_taken_out():
    data = jpeg()
    strayed = data[:2] + b"junk\xff\x00" + data[2:]
    found = walk(strayed)
    assert found.stray == [Span(2, 8)]
    assert found.plain(strayed) == data


def test_fill_bytes_belong_to_the_marker_behind_them():
    data = jpeg()
    filled = data[:2] + b"\xff" * 2_000_000 + data[2:]  # tried from each of them, it would take hours
    assert walk(filled).stray == [] and walk(filled).scans == 1
    strayed = data[:2] + b"junk\xff\xff" + data[2:]
    assert walk(strayed).stray == [Span(2, 6)]
    endless = walk(data[:2] + b"\xff" * 2_000_000)
    assert (endless.eoi, endless.scans, endless.stray) == (-1, 0, [])


def test_markers_that_stop_decoders():
    assert walk(jpeg()[:2] + b"\xff\xd8\xff\xe0").lost_at == 2
    assert walk(b"\xff\xd8" + segment(0x05, b"x") + EOI).lost_at == 2
    assert walk(b"\xff\xd8\xff\xe0\x00\x01").lost_at == 2


def test_metadata_and_profiles():
    profile = b"ICC_PROFILE\0\x01\x01" + bytes(100)
    found = walk(with_segment(without_segments(jpeg(), 0xE0), 0xE2, profile))
    assert found.metadata_bytes == len(profile) + 4 and len(found.icc) == 1 and not found.icc_broken
    assert walk(with_segment(jpeg(), 0xE2, b"ICC_PROFILE\0\x02\x03" + bytes(100))).icc_broken


@pytest.mark.parametrize("data", [jpeg(), jpeg(progressive=True), scan_bomb(120), jpeg() + b"junk", cut(jpeg(), 0.95)])
def test_a_walk_that_believes_the_end_finds_the_same_in_what_is_one_picture(data):
    assert walk(data, thorough=False) == walk(data)


def test_a_walk_that_believes_the_end_takes_two_pictures_for_one_unless_the_header_speaks_of_them():
    one, index = jpeg(), with_segment(jpeg(), 0xE2, b"MPF\0" + bytes(80))
    assert walk(one + one, thorough=False).eoi == 2 * len(one) - 2
    assert walk(one + one).eoi == len(one) - 2
    assert walk(index + one).has_pictures and walk(index + one, thorough=False).eoi == len(index) - 2


def test_a_scan_of_one_component_of_three_is_not_the_last():
    data = jpeg()
    at = data.index(b"\xff\xda") + 4
    first = data[:at] + b"\x01" + data[at + 1 : -2] + data[at - 4 :]
    assert walk(first, thorough=False).scans == walk(first).scans == 2


def test_exif_lies_in_app1():
    assert not walk(jpeg()).has_exif
    assert walk(with_segment(jpeg(), 0xE1, b"Exif\0\0")).has_exif


def test_tables_that_are_missing():
    assert not walk(without_segments(jpeg(), 0xC4)).has_huffman
    assert not walk(without_segments(jpeg(), 0xDB)).has_quantisation


def test_a_height_that_is_stated_later():
    assert walk(jpeg()[:-2] + segment(0xDC, b"\x00\x10") + EOI).has_late_height


@pytest.mark.parametrize(("frame", "arithmetic", "lossless"), [(0xC3, False, True), (0xC9, True, False), (0xC0, False, False)])
def test_kinds_of_frames(frame, arithmetic, lossless):
    data = encoded(noisy(), quality=85).replace(b"\xff\xc0", bytes((0xFF, frame)), 1)
    found = walk(data)
    assert (found.arithmetic, found.lossless) == (arithmetic, lossless)


def test_it_agrees_with_the_strict_walk_on_real_files():
    folder = SHARED_DATA / "small-photos"
    if not folder.exists():
        pytest.skip(f"{folder} is not here")
    files = sorted(folder.rglob("*.JPEG"))
    assert files
    for path in files:
        data = path.read_bytes()
        strict = list(segments(data))
        found = walk(data)
        assert (found.eoi, found.scans) == (strict[-1].start, sum(part.marker == 0xDA for part in strict))
        assert found.stray == [] and found.lost_at == -1
