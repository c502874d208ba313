import io

import pytest
from helpers import encoded, photo
from oddities import scan_bomb
from packing import tree
from PIL import Image

from fastfeed.config import ImageConfig, PackConfig
from fastfeed.errors import UsageError
from fastfeed.packer.rows.folder import Folder
from fastfeed.packer.rows.images import NotReencoded
from fastfeed.packer.rows.remedies import BASELINE, SMALLER, Change, Remedies
from fastfeed.packer.rows.source import Row, RowFailed, RowMember
from fastfeed.packer.rows.treated import TreatedRows, baseline
from fastfeed.source.scan import scan

JPEG = encoded(photo(1, (40, 20)))


def treated(tmp_path, files, changes, images=None, **more):
    source = tree(tmp_path / "s", files)
    folder = Folder.read(str(source), scan(str(source)), PackConfig())
    return TreatedRows(
        folder.sources()[""],
        Remedies(changes={path: Change(what, "said") for path, what in changes.items()}, **more),
        images or ImageConfig(max_side=16),
    )


def opened(data):
    return Image.open(io.BytesIO(data))


def test_only_what_is_named_changes(tmp_path):
    progressive = encoded(photo(2, (40, 20)), progressive=True)
    rows = treated(tmp_path, {"a.jpg": JPEG, "b.jpg": JPEG, "c.jpg": progressive}, {"b.jpg": SMALLER, "c.jpg": BASELINE})
    a, b, c = rows.rows([0, 1, 2])
    assert a.members[0].data == JPEG
    assert opened(b.members[0].data).size == (16, 8)
    assert "progressive" in opened(progressive).info and "progressive" not in opened(c.members[0].data).info
    assert [dict(row.scalars) for row in (a, b, c)] == [{"original_width": 40, "original_height": 20}] * 3
    facts = rows.facts()
    assert facts.extra_columns == ("original_width", "original_height") and "encoders" in facts.identity
    assert rows.spec() is None


def test_without_a_smaller_one_no_columns_are_added(tmp_path):
    rows = treated(tmp_path, {"a.jpg": JPEG, "b.jpg": JPEG}, {"b.jpg": BASELINE})
    assert rows.facts().extra_columns == ()
    assert [row.scalars for row in rows.rows([0, 1])] == [None, None]


def test_without_changes_no_encoder_decides(tmp_path):
    assert "encoders" not in treated(tmp_path, {"a.jpg": JPEG}, {}).facts().identity


def test_samples_without_an_image_have_no_sizes(tmp_path):
    files = {"a.jpg": JPEG, "b.txt": "words", "c.jpg": JPEG}
    rows = list(treated(tmp_path, files, {"a.jpg": SMALLER}).rows([0, 1, 2]))
    assert [len(row.scalars) for row in rows] == [2, 0, 2]


def test_the_first_split_alone_tells_what_is_done(tmp_path):
    rows = treated(tmp_path, {"a.jpg": JPEG}, {}, missing=["gone.jpg"])
    assert "audit: nothing is wrong with what is packed" in rows.facts().why
    assert rows.facts().notes == ("1 file of the audit report not there any more: gone.jpg",)
    silent = TreatedRows(rows.inner, rows.remedies, rows.images, told=False).facts()
    assert not silent.notes and not any("audit" in reason for reason in silent.why)


def test_an_image_that_fails_is_named_and_the_rest_goes_on(tmp_path):
    rows = treated(tmp_path, {"a.jpg": JPEG[:300], "b.jpg": JPEG}, {"a.jpg": BASELINE})
    failed, fine = rows.rows([0, 1])
    assert isinstance(failed, RowFailed) and (failed.number, failed.name, failed.kind) == (0, "a.jpg", "unreadable")
    assert "jpg cannot be re-encoded" in failed.why
    assert isinstance(fine, Row)
    (tmp_path / "s" / "b.jpg").write_bytes(b"changed")
    assert [row.kind for row in rows.rows([1])] == ["changed"]


def test_only_field_names_an_image(tmp_path):
    rows = treated(tmp_path, {"a.jpg": JPEG, "a.txt": "words"}, {}, ImageConfig(only_field=("txt",)))
    with pytest.raises(UsageError, match="only_field names txt, which is no image field here"):
        rows.facts()


# ------------------------------------------------------------------------------------------------ baseline
def test_a_jpeg_keeps_its_tables_its_sampling_and_what_it_says():
    exif = Image.Exif()
    exif[0x010E] = "words"
    raw = encoded(photo(1, (64, 48)), quality=71, subsampling=1, progressive=True, exif=exif, icc_profile=b"profile")
    found = baseline(RowMember("jpg", raw, "a.jpg"), None)
    before, after = opened(raw), opened(found.data)
    assert (found.field, found.source) == ("jpg", "a.jpg")
    assert after.quantization == before.quantization and after.layer == before.layer
    assert after.getexif()[0x010E] == "words" and after.info["icc_profile"] == b"profile"
    differences = zip(before.convert("RGB").tobytes(), after.convert("RGB").tobytes(), strict=True)
    assert max(abs(one - other) for one, other in differences) <= 4


def test_a_quality_that_is_asked_for_is_taken():
    best, least = (baseline(RowMember("jpg", JPEG), quality).data for quality in (95, 5))
    assert len(best) > len(least)


def test_a_scan_bomb_has_one_scan_and_the_same_pixels():
    raw = scan_bomb(200)
    found = baseline(RowMember("jpg", raw), None).data
    assert raw.count(b"\xff\xda") == 201 and found.count(b"\xff\xda") == 1
    assert opened(found).tobytes() == opened(raw).tobytes()


def test_another_format_gets_the_path_of_a_jpeg():
    found = baseline(RowMember("mask.png", encoded(photo(1, (40, 20)), "PNG"), "d/a.mask.png"), None)
    assert (found.field, found.source) == ("mask.png", "d/a.mask.jpg")
    assert opened(found.data).format == "JPEG"
    misnamed = baseline(RowMember("png", JPEG, "a.png"), None)
    assert (misnamed.field, misnamed.source) == ("png", "a.png")


def test_what_is_no_image_is_refused():
    with pytest.raises(NotReencoded, match="jpg cannot be re-encoded"):
        baseline(RowMember("jpg", b"text"), None)
