"""What compression would gain, from a few pieces of the source."""

import os
import random

import pytest
from helpers import make_photos
from packing import tree

from fastfeed.config import PackConfig
from fastfeed.packer.plan import DatasetPlan, make_plan
from fastfeed.packer.probe import MAX_RUN_BYTES, MIN_RUN_BYTES, RUNS, probe
from fastfeed.sample import SkipList
from fastfeed.source.scan import scan
from fastfeed.trace import QUIET


def planned(folder, **options) -> tuple[DatasetPlan, list[str]]:
    listing = scan(str(folder), QUIET, hidden=False)
    plan = make_plan(listing, PackConfig(**options), name="s", exclude=SkipList(), failed={})
    return plan.datasets[0], listing.paths


def tried(folder, framing=(3, 1 << 18), **options) -> tuple[int, int]:
    plan, paths = planned(folder, **options)
    return probe(plan, str(folder), paths, framing)


def test_a_small_source_is_tried_from_four_places(tmp_path):
    source = tree(tmp_path / "s", {f"{at:03d}.txt": "the same words again and again. " * 30 for at in range(80)})
    tar_bytes, size_bytes = tried(source)
    assert 0 < tar_bytes < RUNS * MIN_RUN_BYTES and tar_bytes % 512 == 0
    assert size_bytes < tar_bytes / 5


@pytest.mark.parametrize("frame_bytes", [4096, 1 << 18, 1 << 26])
def test_a_large_source_costs_a_few_pieces(tmp_path, frame_bytes):
    chance = random.Random(1)
    block = chance.randbytes(1 << 16)
    source = tree(tmp_path / "s", {f"{at:04d}.bin": block for at in range(200)})
    tar_bytes, size_bytes = tried(source, (1, frame_bytes))
    most = max(MIN_RUN_BYTES, min(frame_bytes, MAX_RUN_BYTES))
    assert RUNS * most <= tar_bytes <= RUNS * (most + (1 << 16) + 1024)
    assert frame_bytes > 4096 or size_bytes > 0.9 * tar_bytes  # equal blocks meet in large frames alone


def test_a_huge_file_is_read_from_its_start(tmp_path):
    source = tree(tmp_path / "s", {"1.bin": ""})
    os.truncate(source / "1.bin", 3_000_000_000)  # a hole
    tar_bytes, size_bytes = tried(source)
    assert MIN_RUN_BYTES <= tar_bytes <= MIN_RUN_BYTES + 1024 and size_bytes < 1000


def test_classes_are_members_too(tmp_path):
    source = make_photos(tmp_path / "s", each=2)
    with_cls, _ = tried(source)
    without, _ = tried(source, write_cls=False)
    assert with_cls > without


def test_what_cannot_be_read_is_passed_over(tmp_path):
    source = tree(tmp_path / "s", {f"{at}.txt": "words " * 100 for at in range(8)})
    plan, paths = planned(source)
    whole = probe(plan, str(source), paths, (3, 4096))
    (source / "5.txt").unlink()
    (source / "6.txt").unlink()
    os.mkfifo(source / "6.txt")  # would wait for ever
    less = probe(plan, str(source), paths, (3, 4096))
    assert 0 < less[0] < whole[0]
    for path in source.iterdir():
        path.unlink()
    assert probe(plan, str(source), paths, (3, 4096)) == (0, 0)
