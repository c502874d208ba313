import pytest
from auditreports import write_report
from helpers import encoded, photo
from packing import tree

from fastfeed.config import ImageConfig, PackConfig
from fastfeed.errors import UsageError
from fastfeed.packer.rows.folder import Folder
from fastfeed.packer.rows.remedies import BASELINE, SMALLER, find_remedies, jpeg_name
from fastfeed.source.scan import scan

JPEG = encoded(photo(1, (40, 20)))


def remedies(tmp_path, files, flagged, images=None, *, config=None, **facts):
    source = tree(tmp_path / "s", files)
    report = write_report(tmp_path / "r.jsonl", source, flagged, **facts)
    folder = Folder.read(str(source), scan(str(source)), config or PackConfig())
    return find_remedies(folder, str(report), images or ImageConfig(max_side=16))


def left_alone(found):
    return {path: alone.why for alone in found.left.values() for path in alone.paths}


def done_by(found):
    return {path: change.what for path, change in found.changes.items()}


def test_errors_go_oversize_shrinks_and_scan_bombs_become_baseline(tmp_path):
    files = dict.fromkeys(("a.jpg", "big.jpg", "both.jpg", "cut.jpg", "scans.jpg"), JPEG)
    flagged = {"big.jpg": ["oversize"], "both.jpg": ["scan-bomb", "oversize"], "cut.jpg": ["oversize", "truncated"],
               "scans.jpg": ["progressive", "scan-bomb"]}  # fmt: skip
    found = remedies(tmp_path, files, flagged)
    assert found.excluded == {"cut.jpg": "truncated"}
    assert done_by(found) == {"big.jpg": SMALLER, "both.jpg": SMALLER, "scans.jpg": BASELINE}
    assert not (found.left or found.missing or found.differing)
    assert [(entry.source, entry.kind) for entry in found.entries()] == [("cut.jpg", "audit: truncated")]
    assert list(found.why(ImageConfig(max_side=16))) == [
        "audit: 1 sample with an error left out (truncated 1)",
        "audit: 2 images made smaller, the longer side at most 16 (oversize 2)",
        "audit: 1 image re-encoded as baseline JPEG (scan-bomb 1)",
    ]
    assert {name: found.record()[name] for name in ("excluded", SMALLER, BASELINE)} == {
        "excluded": 1, SMALLER: 2, BASELINE: 1,
    }  # fmt: skip


def test_nothing_to_do_is_said(tmp_path):
    found = remedies(tmp_path, {"a.jpg": JPEG}, {"a.jpg": ["progressive"]})
    assert list(found.why(ImageConfig())) == ["audit: nothing is wrong with what is packed"]
    assert not list(found.notes())


@pytest.mark.parametrize(
    ("codes", "facts", "images", "why"),
    [
        (["oversize"], {}, ImageConfig(), "--max-side N would make it smaller"),
        (["oversize"], {}, ImageConfig(max_side=40), "its longer side is at most 40 already"),
        (["oversize"], {"mode": "P"}, None, "pixels of mode P may be labels, depths or a mask"),
        (["oversize"], {"mode": "I;16"}, None, "pixels of mode I;16 may be labels, depths or a mask"),
        (["oversize", "many-frames"], {}, None, "it has several frames"),
        (["oversize"], {}, ImageConfig(max_side=9, only_field=("mask.jpg",)), "--only-field names other fields"),
        (["scan-bomb"], {"mode": "YCbCr"}, None, "JPEG has no mode YCbCr"),
        (["exif-orientation"], {}, None, "packing has no remedy"),
        (["slow"], {}, None, "packing has no remedy"),
        (["duplicate"], {}, None, "a skip list of those not wanted leaves copies out (--exclude)"),
    ],
)
def test_what_may_not_change_is_left_alone_with_the_reason(tmp_path, codes, facts, images, why):
    named = {fact: {"a.jpg": value} for fact, value in facts.items()}
    found = remedies(tmp_path, {"a.jpg": JPEG, "b.jpg": JPEG}, {"a.jpg": codes}, images, **named)
    assert left_alone(found)["a.jpg"].startswith(why)
    assert not found.changes and not found.excluded
    told = list(found.why(images or ImageConfig(max_side=16)))[-1]
    assert told.startswith(f"audit: 1 file ({codes[0]}) left as it is: {why}") and told.endswith("(a.jpg)")


@pytest.mark.parametrize("codes", [[], ["progressive"], ["slow"], ["scan-bomb"], ["truncated"]])
def test_a_side_is_said_to_make_nothing_smaller_where_nothing_is_oversize(tmp_path, codes):
    found = remedies(tmp_path, {"a.jpg": JPEG, "b.jpg": JPEG}, {"a.jpg": codes})
    said = "audit: --max-side: the report names no oversize image that is packed, so nothing is made smaller"
    assert said in found.why(ImageConfig(max_side=16))
    assert said not in found.why(ImageConfig())


def test_only_field_lets_labels_change(tmp_path):
    images = ImageConfig(max_side=16, only_field=("png",))
    found = remedies(
        tmp_path, {"a.png": encoded(photo(1, (40, 20)), "PNG")}, {"a.png": ["oversize"]}, images, mode={"a.png": "P"}
    )
    assert done_by(found) == {"a.png": SMALLER}


def test_masks_and_boxes_beside_an_image_protect_it(tmp_path):
    files = {"a.jpg": JPEG, "a.json": "{}", "a.mask.png": encoded(photo(2, (40, 20)), "PNG"), "b.jpg": JPEG, "b.txt": "words"}
    files = {**files, "c.jpg": JPEG, "c.json": "{}"}
    found = remedies(
        tmp_path, files, {"a.jpg": ["scan-bomb"], "b.jpg": ["oversize"], "c.json": ["truncated"], "b.txt": ["oversize"]}
    )
    assert done_by(found) == {"b.jpg": SMALLER}
    assert left_alone(found)["a.jpg"].startswith("json, mask.png beside it may speak of its pixels; --only-field jpg")
    assert left_alone(found)["b.txt"] == "it is no image"
    assert found.excluded == {"c.jpg": "truncated"}  # the sample is named by its first file


def test_a_sample_that_is_left_out_is_not_changed(tmp_path):
    found = remedies(
        tmp_path, {"a.jpg": JPEG, "a.txt": "words", "b.jpg": JPEG}, {"a.jpg": ["oversize"], "a.txt": ["truncated"]}
    )
    assert found.excluded == {"a.jpg": "truncated"} and not found.changes


def test_what_is_too_large_and_stays_so_need_not_stay_slow(tmp_path):
    found = remedies(tmp_path, {"a.jpg": JPEG}, {"a.jpg": ["oversize", "scan-bomb"]}, ImageConfig())
    assert done_by(found) == {"a.jpg": BASELINE}
    assert left_alone(found) == {"a.jpg": "--max-side N would make it smaller"}


def test_jpeg_2000_changes_only_where_it_is_lossy(tmp_path):
    pytest.importorskip("PIL.Jpeg2KImagePlugin")
    lossy, lossless = (encoded(photo(1, (40, 20)), "JPEG2000", irreversible=irreversible) for irreversible in (True, False))
    files = {"a.jp2": lossy, "b.jp2": lossless, "c.jp2": lossy, "d.jp2": JPEG, "x/c.jp2": lossy, "x/c.jpg": JPEG}
    flagged = {name: ["heavy-format"] for name in files if name.endswith(".jp2")}
    found = remedies(tmp_path, files, flagged, config=PackConfig(layout="files", group="none"))
    assert done_by(found) == {"a.jp2": BASELINE, "c.jp2": BASELINE}
    exactly = "it keeps its pixels exactly, and a JPEG would not"
    assert left_alone(found) == {
        "b.jp2": exactly, "d.jp2": "only JPEG and JPEG 2000 become baseline JPEGs",
        "x/c.jp2": "a JPEG of that name is there already",
    }  # fmt: skip


def test_a_format_that_was_measured_to_be_slow_changes_only_if_it_is_jpeg(tmp_path):
    files = {"a.jpg": JPEG, "b.png": encoded(photo(1, (40, 20)), "PNG")}
    flagged = {name: ["slow-format"] for name in files}
    found = remedies(tmp_path, files, flagged, config=PackConfig(layout="files", group="none"))
    assert done_by(found) == {"a.jpg": BASELINE}
    assert left_alone(found) == {"b.png": "only JPEG and JPEG 2000 become baseline JPEGs"}


def test_what_has_changed_or_gone_since_is_named_and_not_touched(tmp_path):
    files = {"a.jpg": JPEG, "mended.jpg": JPEG}
    flagged = {"mended.jpg": ["truncated"], "gone.jpg": ["oversize"]}
    found = remedies(tmp_path, files, flagged, size_bytes={"mended.jpg": 3})
    assert not found.excluded and not found.changes
    changed, gone = found.notes()
    assert changed == (
        f"1 file changed since the audit, and packed without regard to it: mended.jpg (3 bytes then, {len(JPEG):,} now)"
    )
    assert gone == "1 file of the audit report not there any more: gone.jpg"


def test_what_packing_leaves_out_is_no_matter(tmp_path):
    found = remedies(tmp_path, {"a.jpg": JPEG, "._a.jpg": b"notes"}, {"._a.jpg": ["truncated"]})
    assert not (found.excluded or found.missing or found.left)


def test_a_report_without_paths_is_refused_and_told_from_one_of_another_folder(tmp_path):
    report = tmp_path / "r.jsonl"
    report.write_text('{"index": 0, "findings": [], "times": {}, "status": "ok"}\n')
    here = tree(tmp_path / "s", {"a.jpg": JPEG})
    with pytest.raises(UsageError, match=r"None of its samples is known by a path, as where a Python dataset was audited"):
        find_remedies(Folder.read(str(here), scan(str(here)), PackConfig()), str(report), ImageConfig())


def test_a_report_of_something_else_is_refused(tmp_path):
    source = tree(tmp_path / "other", {"x.jpg": JPEG})
    report = write_report(tmp_path / "r.jsonl", source, {})
    here = tree(tmp_path / "s", {"a.jpg": JPEG})
    with pytest.raises(UsageError, match=r"the audit report has no sample of this folder .*such as a.jpg"):
        find_remedies(Folder.read(str(here), scan(str(here)), PackConfig()), str(report), ImageConfig())


def test_the_record_tells_decisions_apart(tmp_path):
    first = remedies(tmp_path / "1", {"a.jpg": JPEG, "b.jpg": JPEG}, {"a.jpg": ["truncated"]})
    other = remedies(tmp_path / "2", {"a.jpg": JPEG, "b.jpg": JPEG}, {"b.jpg": ["truncated"]})
    again = remedies(tmp_path / "3", {"a.jpg": JPEG, "b.jpg": JPEG}, {"a.jpg": ["truncated"], "b.jpg": ["progressive"]})
    assert first.record() == again.record() != other.record()


def test_names_of_jpegs():
    assert list(map(jpeg_name, ["a/b.jp2", "x.y.J2K"])) == ["a/b.jpg", "x.y.jpg"]
