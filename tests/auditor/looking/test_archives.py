import io
import os
import tarfile

import pytest
from helpers import encoded, photo

from fastfeed.auditor.looking import setcodes
from fastfeed.auditor.looking.archives import MAX_OF_A_CODE, TarLook, count_disagreement, dali_disagreement
from fastfeed.store.blocks import PlainBlocks

PICTURE = encoded(photo())


def tar(names, **options):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", **options) as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            data = b"7" if name.endswith(".cls") else PICTURE
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


@pytest.fixture
def look_at(tmp_path):
    def look_at(data):
        path = tmp_path / "a.tar"
        path.write_bytes(data)
        descriptor = os.open(path, os.O_RDONLY)
        try:
            return TarLook(PlainBlocks(descriptor))
        finally:
            os.close(descriptor)

    return look_at


def of(look):
    return [finding.code for finding in look.findings]


def members(data):
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return archive.getmembers()


def offset_of(data, number):
    return members(data)[number].offset


def test_a_whole_tar_is_nothing_to_talk_about(look_at):
    look = look_at(tar(["a.jpg", "a.cls", "b.jpg", "b.cls"]))
    assert of(look) == [] and len(look.rows.keys) == 2


def test_a_header_that_does_not_hold(look_at):
    data = bytearray(tar([f"{number}.jpg" for number in range(10)]))
    at = offset_of(bytes(data), 4)
    data[at + 148 : at + 156] = bytes(8)
    assert len(members(bytes(data))) == 4  # that is the harm: no error
    look = look_at(bytes(data))
    assert of(look)[0] is setcodes.TAR_DAMAGED and f"bytes {at:,} to" in look.findings[0].text
    assert len(look.rows.keys) == 9


def test_a_tar_that_is_cut(look_at):
    data = tar([f"{number}.jpg" for number in range(10)])
    at = offset_of(data, 4)
    assert of(look_at(data[:at])) == [setcodes.TAR_OPEN_END]
    assert of(look_at(data[: at + 700]))[0] is setcodes.TAR_CUT


def test_damage_that_takes_members_of_a_sample(look_at):
    data = bytearray(tar([f"{number}.{field}" for number in range(6) for field in ("jpg", "cls")]))
    at = offset_of(bytes(data), 5)
    data[at : at + 512] = bytes(512)[:511] + b"x"
    assert setcodes.TAR_DROPPED in of(look_at(bytes(data)))


def test_members_that_do_not_stand_together(look_at):
    assert of(look_at(tar(["a.jpg", "b.jpg", "a.cls", "b.cls"]))) == [setcodes.TAR_ORDER] * 2


def test_names_that_come_twice(look_at):
    assert of(look_at(tar(["a.jpg", "a.cls", "a.jpg", "a.cls"]))) == [setcodes.TAR_REPEATED]
    assert of(look_at(tar(["a.jpg", "a.JPG"]))) == [setcodes.TAR_REPEATED, setcodes.CASE_CLASH]


def test_a_sample_that_lacks_a_member(look_at):
    look = look_at(tar(["a.jpg", "a.cls", "b.jpg", "c.jpg", "c.cls"]))
    assert of(look) == [setcodes.TAR_UNEVEN]
    assert look.findings[0].text == "2 of 3 samples have cls+image; the first other, b, has image"


def test_images_of_several_formats_are_even(look_at):
    assert of(look_at(tar(["a.jpg", "a.cls", "b.png", "b.cls", "c.jpeg", "c.cls"]))) == []
    assert of(look_at(tar(["a.py", "b.rst", "c.toml"]))) == []


def test_dots_in_names(look_at):
    look = look_at(tar(["d/Track 2.0 (x).jpg", "d/22.05.png", "d/more.jpg", "d/plain.seg.png", "d/plain.png"]))
    assert of(look) == [setcodes.TAR_DOTTED_KEY] * 2
    assert "key d/Track 2, suffix 0 (x).jpg" in look.findings[0].text


def test_members_behind_an_end_mark(look_at):
    assert of(look_at(tar(["a.jpg"]) + tar(["b.jpg"]))) == [setcodes.TAR_END_MARK]


def test_members_that_are_no_samples(look_at):
    assert of(look_at(tar([".hidden.jpg", "README", "__meta__/a.json", "a.jpg"]))) == [setcodes.TAR_NOT_A_SAMPLE] * 3


def test_sparse_members(look_at):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        member = tarfile.TarInfo("a.bin")
        member.size, member.pax_headers = 4, {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}
        archive.addfile(member, io.BytesIO(b"data"))
    assert of(look_at(out.getvalue())) == [setcodes.TAR_SPARSE]


def test_streams_and_disks_that_fail():
    from fastfeed.store.blocks import StreamDamaged

    class Failing:
        seekable = False

        def __init__(self, error):
            self._error = error

        def read(self, start, count):
            raise self._error

        def reaches(self, stop):
            raise self._error

        def length(self):
            return 0

    assert of(TarLook(Failing(StreamDamaged("it ends early")))) == [setcodes.TAR_STREAM]
    assert of(TarLook(Failing(OSError(5, "Input/output error")))) == [setcodes.TAR_UNREADABLE]


def test_very_many_findings_of_a_kind_are_counted(look_at):
    look = look_at(tar([f".hidden{number}.jpg" for number in range(MAX_OF_A_CODE + 30)]))
    assert len(look.findings) == MAX_OF_A_CODE + 1
    assert look.findings[-1].text == "30 more of the kind"


def test_an_index_that_states_another_number():
    assert count_disagreement(10, 10, "the list") == []
    (finding,) = count_disagreement(10, 4, "the list shards.json")
    assert finding.code is setcodes.INDEX_DISAGREES
    assert finding.text == "the list shards.json states 10 samples, the tar has 4"


def test_an_index_of_dali(look_at):
    data = tar(["a.jpg", "b.jpg"])
    rows = look_at(data).rows
    places = list(zip(rows.offsets, rows.sizes, strict=True))
    good = "v1.2 2\n" + "".join(f"jpg {start} {size} {name}.jpg\n" for (start, size), name in zip(places, "ab", strict=True))
    assert dali_disagreement(good.encode(), rows) == []
    older = "v1.1 2\n" + "".join(f"jpg {start} {size}\n" for start, size in places)
    assert dali_disagreement(older.encode(), rows) == []
    for wrong, text in [
        (good.replace(f"jpg {places[1][0]} ", f"jpg {places[1][0] + 512} "), "line 3"),
        ("v1.2 3\n" + good[7:], "states 3 samples"), ("\n".join(good.split("\n")[:2]), "the lines"),
        ("hello", "its first line"), (good.replace(" b.jpg", ""), "line 3"),
    ]:  # fmt: skip
        (finding,) = dali_disagreement(wrong.encode(), rows)
        assert finding.code is setcodes.INDEX_DISAGREES and text in finding.text
