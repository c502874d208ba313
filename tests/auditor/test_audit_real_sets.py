"""Whole audits of real data that others broke or collected: each disagreement and each alarm is listed, with its reason."""

import csv
from collections import Counter

import pytest
from auditing import lines_of
from helpers import SHARED_DATA

import fastfeed
from fastfeed.auditor.judging.codes import PROVEN_SLOW, TIMING_CODES

pytestmark = pytest.mark.long
NOT_AN_ERROR = {
    "pillow/l2rgb_read.bmp": "57 bytes whose header states 151 million pixels: flagged as pixels-many and not decoded, so that "
    "the end is missing as well is not seen",
}
"""Pillow cannot load it, and it has no error."""
AN_ERROR_ALL_THE_SAME = {
    "jpeg-decoder/tests/reftest/images/progressive-missing-dc.jpg": "djpeg warns of the same: coefficients are missing",
    "libpng/testpngs/crashers/badcrc.png": "pngcheck finds the same wrong checksum",
    "pillow/hopper_bad_exif.jpg": "djpeg warns of the same 1,214 extraneous bytes",
    "torchvision/damaged_jpeg/bad_huffman.jpg": "djpeg warns of a bad Huffman code",
}
"""Pillow loads it without a word."""
WARNED = {
    "alpha-hides": (109, "RGBA, LA and palettes whose transparent parts hide colours: convert('RGB') shows them"),
    "left-out-by-imagefolder": (93, "jp2, tga, gif, ico, avif and others: torchvision does not list them"),
    "many-frames": (73, "GIF, APNG, TIFF, MPO, WebP, FLI of several frames"),
    "exif-orientation": (32, "2 to 8, as the column exif_orientation says of the same files"),
    "deep-grey": (25, "modes I and I;16: convert() clips them at 255"),
    "palette-transparency": (15, "Pillow warns of it at convert()"),
    "heavy-format": (10, "JPEG 2000"),
    "wrong-extension": (7, "the set's own kind misnamed"),
    "cmyk": (4, "mode CMYK"),
    "other-colours": (4, "mode LAB"),
    "decoder-warning": (4, "Pillow warns while it opens them"),
    "duplicate": (3, "equal bytes under two names"),
    "metadata-large": (2, "more bytes of metadata than of pixels"),
    "arithmetic-jpeg": (1, "SOF9"), "float-pixels": (1, "mode F"), "dead-bytes": (1, "a second picture behind the first"),
}  # fmt: skip
"""By code: of how many files that Pillow loads, and of which nothing else is known, and why that is no false alarm."""


def audited(tmp_path, name):
    """Records of a set's files by path, without what depends on this machine's clocks."""
    folder = SHARED_DATA / name
    if not folder.exists():
        pytest.skip(f"{folder} is not here")
    report = tmp_path / "report.jsonl"
    result = fastfeed.audit(folder, jsonl=report)
    codes = {}
    for line in lines_of(report):
        if line.get("path") is not None:
            codes[line["path"]] = [one["code"] for one in line["findings"] if one["severity"] != "info"]
    return folder, result, codes


def without_times(codes):
    return {path: kept for path, found in codes.items() if (kept := [code for code in found if code not in TIMING_CODES])}


def test_edge_images_against_what_pillow_does(tmp_path):
    folder, result, codes = audited(tmp_path, "edge-images")
    with (folder / "expected.csv").open(encoding="utf-8") as file:
        expected = {row["path"]: row for row in csv.DictReader(file)}
    assert set(codes) - set(expected) == {"expected.csv", "SOURCES.md"} and set(expected) <= set(codes)
    assert not {"crash", "crash-once", "hang", "takes-long", "memory"} & {found.code for found in result.found}
    errors = {line["path"] for line in lines_of(tmp_path / "report.jsonl") if any(
        one["severity"] == "error" for one in line["findings"])}  # fmt: skip
    refused = {path for path, row in expected.items() if row["result"] != "ok"}
    damaged = {path for path, row in expected.items() if row["kind"] in {"silent-damage", "broken-later-frame", "warns"}}
    assert refused - errors == set(NOT_AN_ERROR) and all(codes[path] for path in NOT_AN_ERROR)
    assert (errors & set(expected)) - refused == set(AN_ERROR_ALL_THE_SAME) <= damaged
    assert all(codes[path] for path in damaged)
    others = Counter(
        code for path, found in without_times(codes).items() if path in set(expected) - refused - damaged for code in set(found)
    )
    assert others == {code: count for code, (count, _) in WARNED.items()}


def test_photos(tmp_path):
    """Of 500 one is flagged for what it is: decoders do disagree about it. None is slow for its size."""
    _, result, codes = audited(tmp_path, "imagenet-sample")
    assert without_times(codes) == {"g47_car-wheel/n02951585_can_opener.JPEG": ["exif-orientation"]}
    assert not {code.name for code in PROVEN_SLOW} & {found.code for found in result.found}


def test_texts(tmp_path):
    """What is no UTF-8 is said to be none by the set's manifest; of the others each alarm is one of these."""
    folder, _, codes = audited(tmp_path, "text")
    with (folder / "manifest.csv").open(encoding="utf-8") as file:
        undecodable = {row["path"] for row in csv.DictReader(file) if row["utf8_ok"] == "0"}
    found = without_times(codes)
    told = {path for path, own in found.items() if set(own) & {"text-not-utf8", "text-utf16", "text-cut"}}
    unmarked = {"encodings/UTF-16BE/nobom-utf16be.txt", "encodings/UTF-32LE/nobom-utf32le.txt"}  # ASCII and zeros
    assert told == undecodable | unmarked
    rest = Counter(code for path, own in found.items() if path not in told for code in own)
    long_ones = {path for path, own in found.items() if "text-length-outlier" in own}
    assert {path.partition("/")[0] for path in long_ones} == {"peps", "manifest.csv"}  # documents among pages of ten lines
    assert rest == {"text-length-outlier": 24, "duplicate": 6, "text-replacement": 4, "text-control": 2}


TARS = {
    "dali-mnist/devel-0.tar": 1000, "kamildre-robot/dataset_shard_000000.tar": 3, "torchdata-fakedata/wds.tar": 10,
    "torchdata-fakedata/bytes.tar.gz": 3, "webdataset-testdata/tendata.tar": 100, "webdataset-testdata/mpdata.tar": 100,
    "webdataset-testdata/compressed.tar": 3, "webdataset-testdata/sample.tgz": 90,
}  # fmt: skip
"""Written by others' own tools, and whole."""


@pytest.mark.parametrize("name", TARS)
def test_tars_of_others_have_no_alarm(tmp_path, name):
    _, result, codes = audited(tmp_path, f"wds-real/{name}")
    assert (result.audited, result.of_set, without_times(codes)) == (TARS[name], 0, {})
