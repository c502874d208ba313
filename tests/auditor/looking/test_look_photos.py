"""Over real photos, texts and tars: what is flagged there must be so."""

import csv
import os
from collections import Counter

import pytest
from helpers import SHARED_DATA

from fastfeed.auditor.finding import Code, Severity
from fastfeed.auditor.looking import imagecodes, setcodes, textcodes
from fastfeed.auditor.looking.archives import TarLook
from fastfeed.auditor.looking.copies import Copies
from fastfeed.auditor.looking.look import look
from fastfeed.store.blocks import PlainBlocks


def folder(name):
    path = SHARED_DATA / name
    if not path.exists():
        pytest.skip(f"{path} is not here")
    return path


@pytest.mark.long
def test_photos_have_no_false_alarm():
    """One of 500 is flagged: a camera's orientation 6, about which decoders do disagree."""
    flagged, copies = Counter[Code](), Copies()
    files = sorted(folder("imagenet-sample").rglob("*.JPEG"))
    assert len(files) == 500
    for number, path in enumerate(files):
        looked = look(path.read_bytes(), path.name)
        copies.add(number, looked.digest, path.parent.name)
        flagged.update(finding.code for finding in looked.findings if finding.code.severity >= Severity.WARNING)
    assert flagged == {imagecodes.ORIENTATION: 1}
    assert copies.found() == []


UNMARKED = {"encodings/UTF-16BE/nobom-utf16be.txt", "encodings/UTF-32LE/nobom-utf32le.txt"}
"""Each byte below 80 is ASCII, so these are UTF-8 by the letter."""


def test_texts_are_flagged_where_they_are_not_utf8():
    root = folder("text")
    others = Counter[Code]()
    with (root / "manifest.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        looked = look((root / row["path"]).read_bytes(), row["path"])
        codes = {finding.code for finding in looked.findings}
        undecoded = bool(codes & {textcodes.NOT_UTF8, textcodes.WIDE, textcodes.CUT_CHARACTER})
        assert looked.format == "text", row["path"]
        assert undecoded is (row["utf8_ok"] == "0" or row["path"] in UNMARKED), row["path"]
        others.update(code for code in codes if code.severity >= Severity.WARNING and not undecoded)
    assert len(rows) > 10_000
    assert others == {textcodes.REPLACEMENT: 4, textcodes.CONTROL: 2}  # U+FFFD is there; ISO-2022 is coded by escapes


PLAIN = ("dali-mnist/devel-0.tar", "kamildre-robot/dataset_shard_000000.tar", "webdataset-testdata/tendata.tar",
         "webdataset-testdata/mpdata.tar", "webdataset-testdata/compressed.tar", "torchdata-fakedata/wds.tar")  # fmt: skip


def test_real_tars_have_no_finding():
    root = folder("wds-real")
    for name in PLAIN:
        assert [finding.text for finding in tar(root / name).findings] == [], name


def test_hostile_tars_have_theirs():
    edge = folder("wds-real") / "archives-edge"
    found = {path.name: {finding.code for finding in tar(path).findings} for path in sorted(edge.rglob("*.tar"))}
    assert setcodes.TAR_CUT in found["truncated.tar"]
    assert setcodes.TAR_NOT_A_SAMPLE in found["symlinks.tar"]
    assert setcodes.TAR_SPARSE in found["testtar.tar"]
    assert found["recursion.tar"] & {setcodes.TAR_CUT, setcodes.TAR_DAMAGED}


def tar(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return TarLook(PlainBlocks(descriptor))
    finally:
        os.close(descriptor)
