"""fastfeed/packer/rows/transcode.py: a restart marker behind each row, no pixel and no word of the file changed."""

import io
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from helpers import SHARED_DATA, encoded, photo
from hypothesis import given, settings
from hypothesis import strategies as st
from packing import needs_jpegtran
from PIL import Image, ImageCms
from simplejpeg import encode_jpeg

from fastfeed.config import ImageConfig
from fastfeed.errors import SourceUnreadable, UsageError
from fastfeed.jpegrows import Frame, read_frame, scan_rows, segments, to_column
from fastfeed.packer.pixels import decode, digest
from fastfeed.packer.result import ALREADY, INDEXED
from fastfeed.packer.rows import transcode
from fastfeed.packer.rows.transcode import index_rows, interval_of, jpegtran_of

PROFILE = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


def words_of(data: bytes) -> list[bytes]:
    """All that a file says beside its picture: APPn and COM, in order."""
    return [data[part.start : part.stop] for part in segments(data) if part.marker in {*range(0xE0, 0xF0), 0xFE}]


def proven(data: bytes) -> str:
    """Index the rows of a file and prove every promise of that; gives the outcome."""
    changed, found = index_rows(data)
    if not found.starts:
        assert changed is data and found.pixels == 0
        return found.outcome
    assert (changed is data) == (found.outcome == ALREADY)
    starts = scan_rows(changed)
    assert starts is not None and found.starts == to_column(starts)
    assert words_of(changed) == words_of(data)
    before, after = Image.open(io.BytesIO(data)), Image.open(io.BytesIO(changed))
    assert (before.mode, before.size, before.info.get("dpi")) == (after.mode, after.size, after.info.get("dpi"))
    assert np.array_equal(np.asarray(before), np.asarray(after))
    frame = read_frame(data)
    assert frame is not None and found.pixels == digest(decode(data, frame))
    return found.outcome


@needs_jpegtran
@settings(max_examples=80, deadline=None)
@given(
    st.tuples(st.integers(1, 90), st.integers(1, 90)), st.sampled_from(["L", "RGB"]),
    st.sampled_from(["4:4:4", "4:2:2", "4:2:0"]),
    st.fixed_dictionaries({}, optional={
        "progressive": st.just(True), "optimize": st.just(True), "quality": st.integers(1, 100),
        "restart_marker_rows": st.integers(1, 2), "restart_marker_blocks": st.integers(1, 9),
        "comment": st.binary(min_size=1, max_size=40), "icc_profile": st.just(PROFILE), "dpi": st.just((72, 90)),
        "exif": st.binary(max_size=30).map(lambda raw: b"Exif\0\0" + raw),
    }),
)  # fmt: skip
def test_no_pixel_and_no_word_changes(size, mode, sampling, options):
    data = encoded(photo(5, size, mode), **options, **({"subsampling": sampling} if mode == "RGB" else {}))
    frame = read_frame(data)
    assert frame is not None
    outcome = proven(data)
    already = scan_rows(data) is not None and frame.interval <= interval_of(frame, len(data) - frame.scan)
    assert outcome == (transcode.ONE_ROW if frame.rows == 1 else ALREADY if already else INDEXED)


@needs_jpegtran
@pytest.mark.parametrize("sampling", ["444", "422", "420", "440", "411"])
@pytest.mark.parametrize("size", [(17, 33), (64, 64), (1, 40)])
def test_all_samplings_of_the_decoder(sampling, size):
    pixels = np.ascontiguousarray(np.asarray(photo(7, size)))
    assert proven(encode_jpeg(pixels, quality=80, colorsubsampling=sampling)) == INDEXED


@needs_jpegtran
def test_words_between_scans_and_thumbnails_are_kept():
    data = encoded(photo(3, (40, 40)), progressive=True)
    scans = [part for part in segments(data) if part.marker == 0xDA]
    thumbnail = b"\xff\xe0\0\x13JFIF\0\1\2\0\0\1\0\1\1\1\1\2\3"
    data = data[:2] + thumbnail + data[20 : scans[2].start] + b"\xff\xfe\0\x04hi" + data[scans[2].start :]
    assert words_of(data) == [thumbnail, b"\xff\xfe\0\x04hi"]
    assert proven(data) == INDEXED


@needs_jpegtran
@pytest.mark.parametrize("transform", [0, 1])
def test_a_colour_space_that_a_marker_names_stays(transform):
    """Adobe's APP14 says whether three components are YCbCr or RGB."""
    data = encoded(photo(3, (40, 40)))
    adobe = b"\xff\xee\0\x0eAdobe\0\x64\0\0\0\0" + bytes([transform])
    assert proven(data[:2] + adobe + data[20:]) == INDEXED  # in the place of JFIF


def patched(at_frame: int, value: bytes) -> bytes:
    """A photo with bytes of its frame header changed: 1 the marker, 4 the precision, 5 the height."""
    data = bytearray(encoded(photo(3, (40, 40))))
    frame = read_frame(bytes(data))
    assert frame is not None
    at = frame.size_at - 5 + at_frame
    data[at : at + len(value)] = value
    return bytes(data)


STAYING = {
    "nothing at all": (b"", transcode.NO_JPEG),
    "png": (encoded(photo(), "PNG"), transcode.NO_JPEG),
    "low": (encoded(photo(1, (40, 16))), transcode.ONE_ROW),
    "one pixel": (encoded(photo(1, (1, 1), "L")), transcode.ONE_ROW),
    "arithmetic": (patched(1, b"\xc9"), transcode.ARITHMETIC),
    "arithmetic, progressive": (patched(1, b"\xca"), transcode.ARITHMETIC),
    "lossless": (patched(1, b"\xc3"), transcode.LOSSLESS),
    "hierarchical": (patched(1, b"\xc5"), transcode.LOSSLESS),
    "12 bits": (patched(4, b"\x0c"), transcode.DEPTH),
    "height behind the image": (patched(5, b"\0\0"), transcode.RARE),
    "gigabytes": (patched(5, b"\xff\xff\xff\xff"), transcode.TOO_LARGE),
    "cmyk": (encoded(photo(1, (40, 40), "CMYK")), transcode.CMYK),
    "a byte more": (encoded(photo(1, (40, 40))) + b"\0", transcode.BEHIND),
    "two pictures": (encoded(photo(1, (40, 40))) * 2, transcode.BEHIND),
    "cut": (encoded(photo(1, (40, 40)))[:-20], transcode.DAMAGED),
    "rows lost": (encoded(photo(1, (40, 40)))[:-20] + b"\xff\xd9", transcode.DAMAGED),
    "cut in the headers": (encoded(photo(1, (40, 40)))[:100], transcode.DAMAGED),
    "a magic alone": (b"\xff\xd8\xff\xe0 nothing of the kind", transcode.DAMAGED),
}


@pytest.mark.parametrize("name", STAYING)
def test_what_gains_nothing_or_is_odd_stays_byte_for_byte(name):
    data, reason = STAYING[name]
    assert proven(data) == reason


def test_rows_that_are_marked_already_count_whatever_is_behind_the_image():
    data = encoded(photo(1, (40, 40)), restart_marker_rows=1)
    assert proven(data) == ALREADY
    assert proven(data + b"and a film") == ALREADY


@needs_jpegtran
@pytest.mark.parametrize("folder", ["imagenet-sample", "edge-images"])
def test_real_photos(folder):
    files = sorted(path for path in (SHARED_DATA / folder).rglob("*") if path.suffix.lower() in {".jpg", ".jpeg", ".jpe"})
    if not files:
        pytest.skip(f"real photos are not there: {SHARED_DATA / folder}")
    outcomes = [proven(path.read_bytes()) for path in files[:: max(1, len(files) // 30)]]
    assert outcomes.count(INDEXED) > len(outcomes) // 3


def frame_of(across: int, rows: int = 10) -> Frame:
    """Of an image with so many MCUs in a row."""
    frame = read_frame(encoded(photo(3, (40, 40)), subsampling="4:2:0"))
    assert frame is not None
    return frame._replace(width=16 * across, height=16 * rows)


@pytest.mark.parametrize(("across", "row_bytes", "parts"), [
    (32, 1 << 20, 32), (24, 1 << 20, 24), (21, 1 << 20, 21), (64, 1 << 20, 32), (250, 1 << 20, 25), (1, 1 << 20, 1),
    (31, 1 << 20, 31), (38, 1 << 20, 19), (47, 1 << 20, 47), (94, 1 << 20, 47), (67, 1 << 20, 1), (134, 1 << 20, 2),  # primes
    (32, 32 * 128, 32), (32, 32 * 128 - 1, 16), (32, 300, 2), (32, 128, 1), (32, 10, 1), (32, 0, 1),
])  # fmt: skip
def test_a_row_is_divided_evenly_into_parts_that_are_not_too_small(across, row_bytes, parts):
    assert interval_of(frame_of(across), 10 * row_bytes) == across // parts


@needs_jpegtran
def test_rows_of_a_large_photo_are_divided():
    data = encoded(photo(3, (512, 300)), quality=95, subsampling="4:2:0")
    assert proven(data) == INDEXED
    frame = read_frame(index_rows(data)[0])
    assert frame is not None and frame.parts == 32


@needs_jpegtran
def test_rows_that_are_marked_but_not_divided_are_divided():
    data = encoded(photo(3, (512, 300)), quality=95, subsampling="4:2:0", restart_marker_rows=1)
    assert proven(data) == INDEXED
    assert proven(data + b"and a film") == ALREADY, "what is behind the image would be lost"
    assert proven(index_rows(data)[0]) == ALREADY


def test_a_part_of_a_row_that_is_too_long_for_the_index():
    noise = np.random.default_rng(1).integers(0, 255, (17, 60_000), dtype=np.uint8)
    data = encoded(Image.fromarray(noise), quality=100, restart_marker_rows=1)
    assert proven(data + b"and a film") == transcode.LONG


# ---------------------------------------------------------------------------------------------------- the program
def program(folder: Path, script: str) -> None:
    """A program called jpegtran."""
    path = folder / "jpegtran"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


SAYS_ITS_VERSION = 'if [ "$1" = -version ]; then echo "libjpeg-turbo version 9.9.9 (build 20990101)" >&2; exit 0; fi\n'


@pytest.fixture
def only(tmp_path, monkeypatch):
    """A PATH with nothing on it but a folder; gives the folder."""
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("cat", "kill"):
        found = shutil.which(name, path=os.defpath)
        assert found is not None
        (tmp_path / name).symlink_to(found)
    transcode.jpegtran.cache_clear()
    yield tmp_path
    transcode.jpegtran.cache_clear()


def test_without_the_program_there_is_an_install_line(only):
    assert jpegtran_of(ImageConfig()) == {}
    with pytest.raises(
        UsageError, match=r"needs the program jpegtran, which is not installed.*apt-get install libjpeg-turbo-progs"
    ):
        jpegtran_of(ImageConfig(jpeg_rows=True))
    with pytest.raises(UsageError, match="not installed"):
        index_rows(encoded(photo(1, (40, 40))))


def test_another_program_of_that_name_is_refused(only):
    program(only, "echo mozjpeg version 4.1.1 >&2")
    with pytest.raises(UsageError, match=r"is not libjpeg-turbo's, and others were not tried.*got 'mozjpeg version 4.1.1"):
        jpegtran_of(ImageConfig(jpeg_rows=True))


def test_its_version_decides_bytes(only):
    program(only, SAYS_ITS_VERSION)
    assert jpegtran_of(ImageConfig(jpeg_rows=True)) == {
        "jpegtran": "libjpeg-turbo version 9.9.9", "jpeg_rows_division": 2,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("script", "reason"),
    [("exit 1", transcode.REFUSED), ("cat; echo a warning >&2; exit 2", transcode.REFUSED), ("cat", transcode.REFUSED),
     ("cat {other}", transcode.OTHER_PIXELS), ("exit 0", transcode.REFUSED)],
)  # fmt: skip
def test_a_program_that_fails_or_gives_something_else(only, script, reason):
    """It exits with 2 after a warning; what it gives has no markers, other pixels, or is nothing at all."""
    (only / "other.jpg").write_bytes(encoded(photo(8, (40, 40)), restart_marker_rows=1))
    program(only, SAYS_ITS_VERSION + script.format(other=only / "other.jpg"))
    assert proven(encoded(photo(1, (40, 40)))) == reason


def test_a_program_that_is_killed_is_an_error_and_no_reason(only):
    program(only, SAYS_ITS_VERSION + "kill -9 $$")
    with pytest.raises(SourceUnreadable, match="jpegtran was killed by signal 9"):
        index_rows(encoded(photo(1, (40, 40))))
