"""Over broken and odd images of other projects' test suites: expected.csv says what Pillow makes of each."""

import csv
from functools import lru_cache

import PIL
import pytest
from helpers import SHARED_DATA

from fastfeed.auditor.finding import Severity, worst
from fastfeed.auditor.looking import imagecodes
from fastfeed.auditor.looking.decoding import decode
from fastfeed.auditor.looking.look import look
from fastfeed.auditor.looking.picture import MAX_PIXELS

FOLDER = SHARED_DATA / "edge-images"
DAMAGED = {"silent-damage", "broken-later-frame", "warns"}
NOT_TRIED = {"pillow/l2rgb_read.bmp": imagecodes.PIXELS_MANY}
"""151 million pixels by its header: it is not decoded, so that it is cut as well is not seen. Flagged it is."""


@lru_cache
def looked():
    """(row of expected.csv, what was found) of each file."""
    if not FOLDER.exists():
        pytest.skip(f"{FOLDER} is not here")
    with (FOLDER / "expected.csv").open(encoding="utf-8") as file:
        return [(row, look((FOLDER / row["path"]).read_bytes(), row["path"])) for row in csv.DictReader(file)]


@pytest.mark.long
def test_no_file_stops_it():
    assert len(looked()) > 700


def test_what_pillow_cannot_load_is_an_error():
    refused = [(row["path"], found) for row, found in looked() if row["result"] != "ok"]
    assert len(refused) > 100
    missed = {path: found.findings for path, found in refused if worst(found.findings) is not Severity.ERROR}
    assert {path: findings[0].code for path, findings in missed.items()} == NOT_TRIED


@pytest.mark.skipif(not PIL.__version__.startswith("13."), reason="expected.csv was made with Pillow 13")
def test_pillow_refuses_at_the_same_stage_with_the_same_error():
    for row, _ in looked():
        if row["result"] != "ok" and row["path"] not in NOT_TRIED:
            decoded = decode((FOLDER / row["path"]).read_bytes(), MAX_PIXELS)
            assert (type(decoded.error).__name__, decoded.stage) == (row["result"], row["stage"]), row["path"]


def test_what_loads_and_is_damaged_is_flagged():
    damaged = [(row["path"], found) for row, found in looked() if row["result"] == "ok" and row["kind"] in DAMAGED]
    assert len(damaged) > 15
    assert [path for path, found in damaged if (worst(found.findings) or 0) < Severity.WARNING] == []


def test_what_loads_is_an_error_only_where_another_decoder_finds_damage_too():
    loads = [(row, found) for row, found in looked() if row["result"] == "ok"]
    errors = {row["path"]: row["kind"] for row, found in loads if worst(found.findings) is Severity.ERROR}
    assert set(errors.values()) <= {"silent-damage"}
    assert len(errors) == 4


def test_sizes_and_modes_are_those_of_pillow():
    for row, found in looked():
        if row["result"] == "ok" and row["mode"]:
            assert found.mode == row["mode"], row["path"]
            if not (row["exif_orientation"] and found.format == "TIFF"):
                assert found.image.size == (int(row["width"]), int(row["height"])), row["path"]


def test_orientations_and_frames_are_told():
    for row, found in looked():
        codes = {finding.code for finding in found.findings}
        if row["result"] == "ok":
            assert (imagecodes.ORIENTATION in codes) is (row["exif_orientation"] in set("2345678")), row["path"]
            assert (imagecodes.FRAMES in codes) is (int(row["frames"]) > 1), row["path"]
