import os

import pytest
from helpers import make_photos, pack_photos

from fastfeed.auditor.running.parts import FILES, PACKED, Part, Parts, PartSpec
from fastfeed.auditor.running.targets import find_target
from fastfeed.errors import NotADataset


def test_a_description_passes_a_pipe():
    spec = PartSpec(FILES, "/x", "/proc/1/fd/3", splits=("train", "val"))
    assert PartSpec.from_json(spec.to_json()) == spec


def test_names_of_packed_samples(tmp_path):
    part = Part(PartSpec(PACKED, str(pack_photos(tmp_path)), split="val"))
    assert len(part) == 6
    assert (part.source(4), part.label(4), part.split(part.source(4))) == ("dog/001.jpg", "dog", "val")


def test_splits_of_files_are_their_first_folders(tmp_path):
    for split in ("train", "val"):
        make_photos(tmp_path / split)
    target = find_target(tmp_path)
    part = Part(PartSpec.from_json(target.spec["parts"][0]))
    found = {(part.split(part.source(at)), part.label(at)) for at in range(len(part))}
    assert found == {("train", "cat"), ("train", "dog"), ("val", "cat"), ("val", "dog")}


def test_parts_stand_one_behind_the_other(tmp_path):
    first, second = pack_photos(tmp_path / "a", each=1), pack_photos(tmp_path / "b", each=2)
    parts = Parts([PartSpec(PACKED, str(first)), PartSpec(PACKED, str(second))])
    assert len(parts) == 6
    assert [(parts.find(at)[0] is parts.parts[1], parts.find(at)[1]) for at in (0, 1, 2, 5)] == [
        (False, 0), (False, 1), (True, 0), (True, 3),
    ]  # fmt: skip


def test_forgetting_reads_nothing_else(tmp_path):
    part = Part(PartSpec(PACKED, str(pack_photos(tmp_path))))
    places = list(part.catalog.places(0))
    before = part.reader.read(0, places[0])
    part.forget(places)
    assert part.reader.read(0, places[0]) == before


def test_what_is_gone(tmp_path):
    with pytest.raises(NotADataset, match="does not exist"):
        Part(PartSpec(PACKED, os.path.join(tmp_path, "none")))
