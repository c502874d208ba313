"""tools/audit-experiment: what it plants is what it says, and the judge finds it on this machine."""

import importlib.machinery
import importlib.util
import io
import json
import subprocess
import sys

import pytest
from helpers import ROOT
from PIL import Image

TOOL = str(ROOT / "tools" / "audit-experiment")


@pytest.fixture(scope="module")
def tool():
    """The script as a module."""
    loader = importlib.machinery.SourceFileLoader("audit_experiment", TOOL)
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[loader.name] = module  # dataclasses look their module up
    kept, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # beside a script without a suffix nothing is cached
    try:
        loader.exec_module(module)
        yield module
    finally:
        sys.dont_write_bytecode = kept
        del sys.modules[loader.name]


def test_kinds_share_no_sample(tool):
    planted = tool.draw(400, seed=3)
    kinds = [planted.bombs, planted.jp2, planted.waits, planted.large, planted.stalls, planted.progressive]
    places = [place for kind in kinds for place in kind]
    assert len(set(places)) == len(places)
    assert len(planted.true) == 24
    assert tool.draw(400, seed=4) != planted
    assert len(tool.draw(4000, seed=0).progressive) == 100


@pytest.mark.long
def test_files_are_what_they_are_said_to_be(tool, tmp_path):
    planted = tool.make(tmp_path, tool.PLANTED, 0)
    found = {}
    for place in range(tool.PLANTED):
        with Image.open(tmp_path / str(place)) as picture:
            picture.load()
            found[place] = (picture.format, bool(picture.info.get("progressive")), picture.width * picture.height)
    assert {place for place, (kind, _, _) in found.items() if kind == "JPEG2000"} == set(planted.jp2)
    assert {place for place, (_, spread, _) in found.items() if spread} == {*planted.progressive, *planted.bombs}
    assert {place for place, (_, _, pixels) in found.items() if pixels > 3_000_000} == set(planted.large)


@pytest.mark.parametrize(("width", "height", "scans"), [(64, 64, 3), (1200, 1000, 5), (2400, 1600, 2)])
def test_a_scan_bomb_is_a_grey_picture_of_many_scans(tool, width, height, scans):
    raw = tool.scan_bomb(width, height, scans)
    with Image.open(io.BytesIO(raw)) as picture:
        picture.load()
        assert (picture.mode, picture.size, picture.getextrema()) == ("L", (width, height), (128, 128))
    assert raw.count(b"\xff\xda") == scans + 1


def test_too_few_samples_are_said():
    done = subprocess.run([sys.executable, TOOL, "--count", "10"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--count has to be at least 156" in done.stderr


@pytest.mark.soak
def test_all_planted_and_no_other_on_this_machine():
    done = subprocess.run(
        [sys.executable, TOOL, "--count", "400", "--json"], capture_output=True, text=True, check=False, timeout=600
    )
    found = json.loads(done.stdout)
    assert found["right"] == found["of"] == 2, found
    assert done.returncode == 0
