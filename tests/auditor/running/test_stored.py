import os

from helpers import encoded, flip_bit, make_photos, pack_photos, photo

import fastfeed
from fastfeed.auditor.running.parts import PACKED, PartSpec
from fastfeed.auditor.running.stored import Stored
from fastfeed.auditor.running.subject import HOW, How
from fastfeed.auditor.running.targets import find_target


def subject(path):
    target = find_target(path)
    return target, Stored([PartSpec.from_json(part) for part in target.spec["parts"]])


def codes(record):
    return [found.code.name for found in record.findings]


def test_a_file(tmp_path):
    target, stored = subject(make_photos(tmp_path / "photos"))
    record = stored.load(4, HOW)
    assert (record.index, record.path, record.label, record.key) == (4, "dog/001.jpg", "dog", None)
    assert (record.format, record.width, record.height) == ("JPEG", 16, 12)
    assert record.size_bytes == os.path.getsize(tmp_path / "photos" / "dog" / "001.jpg")
    assert set(record.times) == {"read", "decode"} and record.findings == []
    assert stored.count == 6 and target.kind == "folder"


def test_names_alone(tmp_path):
    _, stored = subject(make_photos(tmp_path / "photos"))
    record = stored.load(0, How(load=False))
    assert (record.path, record.times, record.format) == ("cat/000.jpg", {}, None)


def test_from_the_disk(tmp_path):
    _, stored = subject(make_photos(tmp_path / "photos"))
    assert set(stored.load(0, How(look=False, cold=True)).times) == {"read", "decode"}


def test_a_packed_sample_has_key_shard_and_place(tmp_path):
    folder = pack_photos(tmp_path)
    _, stored = subject(folder)
    record = stored.load(1, HOW)
    place = next(place for place in fastfeed.open(folder)._archive.places(1) if place.field == "cls")
    assert (record.path, record.key, record.shard) == ("cat/001.jpg", "cat/001", "photos-000000.tar")
    assert record.offset == place.start and record.format == "JPEG"


def test_a_flipped_bit_in_a_shard(tmp_path):
    folder = pack_photos(tmp_path)
    place = next(place for place in fastfeed.open(folder)._archive.places(3) if place.field == "jpg")
    flip_bit(folder / "photos-000000.tar", place.start + 20)
    record = Stored([PartSpec(PACKED, str(folder))]).load(3, HOW)
    assert codes(record) == ["damaged-shard"]
    assert record.key == "dog/000" and "xxh3" in record.findings[0].text


def test_a_file_that_goes(tmp_path):
    _, stored = subject(make_photos(tmp_path / "photos"))
    (tmp_path / "photos" / "cat" / "001.jpg").unlink()
    record = stored.load(1, HOW)
    assert codes(record) == ["unreadable"] and record.findings[0].text.endswith("No such file or directory")
    assert record.path == "cat/001.jpg"


def test_findings_of_another_member_say_which(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    for number in range(2):
        (source / f"{number}.jpg").write_bytes(encoded(photo(number)))
        (source / f"{number}.txt").write_bytes(b"fine\n" if number else b"a\0b\n")
    fastfeed.pack(source, tmp_path / "packed", workers=1)
    record = Stored([PartSpec(PACKED, str(tmp_path / "packed"))]).load(0, HOW)
    assert record.format == "JPEG"
    assert [found.text.partition(":")[0] for found in record.findings] == ["txt"]


def test_a_thumbnail_is_all_that_is_made(tmp_path):
    _, stored = subject(make_photos(tmp_path / "photos"))
    record = stored.load(0, How(thumbnail=True))
    assert record.thumbnail is not None and record.thumbnail.startswith("/9j/")
    assert (record.path, record.format, record.findings, set(record.times)) == ("cat/000.jpg", None, [], {"read"})
    assert stored.load(0, HOW).thumbnail is None
