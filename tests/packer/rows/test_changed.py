"""``pack --from-audit`` from end to end; and what becomes of a folder's images without it."""

import io
import itertools

import pytest
from auditreports import write_report
from helpers import encoded, files_below, make_photos, photo
from oddities import scan_bomb
from packing import Interrupt, contents, interrupt_after, left_out_of, manifest_of, read_back, tree
from PIL import Image

import fastfeed
from fastfeed.config import ImageConfig, PackConfig
from fastfeed.errors import DestinationOccupied, UsageError
from fastfeed.packer.rows.changed import Changed
from fastfeed.packer.rows.folder import Folder
from fastfeed.packer.rows.images import ReencodedRows
from fastfeed.sample import SkipEntry, SkipList
from fastfeed.source.scan import scan

JPEG = encoded(photo(1, (40, 20)))


def audited(tmp_path):
    """Eight photos and the report of an audit that flags four of them."""
    source = make_photos(tmp_path / "s", each=4)
    (source / "cat" / "000.jpg").write_bytes(encoded(photo(9, (64, 48))))
    (source / "cat" / "001.jpg").write_bytes(scan_bomb(150))
    flagged = {"cat/000.jpg": ["oversize"], "cat/001.jpg": ["scan-bomb"], "dog/000.jpg": ["truncated"], "dog/001.jpg": ["slow"]}
    sizes = {"width": {"cat/000.jpg": 64}, "height": {"cat/000.jpg": 48}, "mode": {"cat/001.jpg": "L"}}
    return source, write_report(tmp_path / "r.jsonl", source, flagged, **sizes)


def test_errors_are_left_out_and_the_rest_is_done_by_kind(tmp_path):
    source, report = audited(tmp_path)
    plan = fastfeed.pack(source, tmp_path / "p", from_audit=report, max_side=32, dry_run=True)
    assert not (tmp_path / "p").exists()
    assert [reason for reason in plan.datasets[0].why if reason.startswith("audit")] == [
        "audit: 1 sample with an error left out (truncated 1)",
        "audit: 1 image made smaller, the longer side at most 32 (oversize 1)",
        "audit: 1 image re-encoded as baseline JPEG (scan-bomb 1)",
        "audit: 1 file (slow) left as it is: packing has no remedy (dog/001.jpg)",
    ]
    fastfeed.pack(source, tmp_path / "p", from_audit=report, max_side=32)
    assert fastfeed.verify(tmp_path / "p").ok
    before, after = files_below(source), contents(read_back(tmp_path / "p"))
    assert set(before) - set(after) == {"dog/000.jpg"} and left_out_of(tmp_path / "p") == {"dog/000.jpg": "excluded"}
    assert {name for name in after if after[name] != before[name]} == {"cat/000.jpg", "cat/001.jpg"}
    assert Image.open(io.BytesIO(after["cat/000.jpg"])).size == (32, 24)
    assert after["cat/001.jpg"].count(b"\xff\xda") == 1
    assert list(fastfeed.open(tmp_path / "p").column("original_width"))[:3] == [64, 64, 16]
    options = manifest_of(tmp_path / "p")["options"]
    assert options["from_audit"] | {"digest": ""} == {"digest": "", "excluded": 1, "smaller": 1, "baseline": 1}
    assert options["max_side"] == 32


def test_the_bytes_depend_neither_on_workers_nor_on_interruptions(tmp_path):
    source, report = audited(tmp_path)
    options = {"from_audit": report, "max_side": 32, "samples_per_shard": 2}
    for workers in (1, 2):
        fastfeed.pack(source, tmp_path / str(workers), workers=workers, **options)
    with pytest.raises(Interrupt, match="enough is written"):
        fastfeed.pack(source, tmp_path / "3", workers=1, progress=interrupt_after(3), **options)
    result = fastfeed.pack(source, tmp_path / "3", workers=1, **options)
    assert result.shards_kept > 0
    assert files_below(tmp_path / "1") == files_below(tmp_path / "2") == files_below(tmp_path / "3")
    assert fastfeed.pack(source, tmp_path / "3", **options).already_packed


def test_another_report_is_another_pack(tmp_path):
    source, report = audited(tmp_path)
    fastfeed.pack(source, tmp_path / "p", from_audit=report)
    write_report(report, source, {"cat/000.jpg": ["truncated"]})
    with pytest.raises(DestinationOccupied, match="from-audit was"):
        fastfeed.pack(source, tmp_path / "p", from_audit=report)
    with pytest.raises(DestinationOccupied, match=r"from-audit was .*, now not given"):
        fastfeed.pack(source, tmp_path / "p", max_side=900)


def test_a_skip_list_and_a_report_together(tmp_path):
    source, report = audited(tmp_path)
    skip = SkipList([SkipEntry(source="cat/003.jpg")])
    result = fastfeed.pack(source, tmp_path / "p", from_audit=report, exclude=skip)
    assert result.datasets[0].samples == 6
    assert set(left_out_of(tmp_path / "p")) == {"cat/003.jpg", "dog/000.jpg"}


def test_splits_are_told_once_and_each_has_its_own(tmp_path):
    files = {f"{split}/{name}/{at}.jpg": encoded(photo(at, (40, 20))) for split, name, at in
             itertools.product(("train", "val"), ("cat", "dog"), range(2))}  # fmt: skip
    source = tree(tmp_path / "s", files)
    flagged = {"train/cat/0.jpg": ["truncated"], "val/dog/1.jpg": ["oversize"]}
    report = write_report(tmp_path / "r.jsonl", source, flagged)
    result = fastfeed.pack(source, tmp_path / "p", from_audit=report, max_side=20)
    told = [[reason for reason in dataset.why if reason.startswith("audit")] for dataset in result.datasets]
    assert [len(reasons) for reasons in told] == [2, 0]
    assert [dataset.samples for dataset in result.datasets] == [3, 4]
    assert fastfeed.verify(tmp_path / "p").ok
    assert Image.open(io.BytesIO(contents(read_back(tmp_path / "p" / "val"))["val/dog/1.jpg"])).size == (20, 10)


def test_a_jpeg_2000_is_unpacked_under_the_name_of_a_jpeg(tmp_path):
    lossy = encoded(photo(1, (40, 20)), "JPEG2000", irreversible=True)
    source = tree(tmp_path / "s", {"a.jp2": lossy, "b.jpg": JPEG, "c.jpg": JPEG})
    report = write_report(tmp_path / "r.jsonl", source, {"a.jp2": ["heavy-format"]})
    fastfeed.pack(source, tmp_path / "p", from_audit=report)
    assert fastfeed.verify(tmp_path / "p").ok
    fastfeed.unpack(tmp_path / "p", tmp_path / "out")
    assert set(files_below(tmp_path / "out")) == {"a.jpg", "b.jpg", "c.jpg"}
    assert (tmp_path / "out" / "a.jpg").read_bytes().startswith(b"\xff\xd8")


def test_options_that_do_not_fit(tmp_path):
    source, report = audited(tmp_path)
    with pytest.raises(UsageError, match="resize_short and apply_exif are for all images"):
        fastfeed.pack(source, tmp_path / "p", from_audit=report, resize_short=8)
    with pytest.raises(UsageError, match=r"from_audit is for what is stored .*, and here code makes the samples .*--exclude"):
        fastfeed.pack([{"jpg": JPEG}], tmp_path / "p", from_audit=report)
    assert not (tmp_path / "p").exists()


def test_a_real_audit_is_understood(tmp_path):
    """The one place where the auditor itself writes the report: its codes and fields are those that packing knows."""
    source = make_photos(tmp_path / "s", each=2)
    (source / "cat" / "bomb.jpg").write_bytes(scan_bomb(150))
    (source / "cat" / "cut.jpg").write_bytes(JPEG[: len(JPEG) // 2])
    (source / "dog" / "page.jpg").write_bytes(b"<!DOCTYPE html><html></html>")
    (source / "dog" / "slow.jp2").write_bytes(encoded(photo(3, (40, 20)), "JPEG2000", irreversible=True))
    fastfeed.audit(source, jsonl=tmp_path / "r.jsonl", workers=1)
    (source / "dog" / "000.jpg").unlink()
    result = fastfeed.pack(source, tmp_path / "p", from_audit=tmp_path / "r.jsonl")
    assert set(left_out_of(tmp_path / "p")) == {"cat/cut.jpg", "dog/page.jpg"}
    told = " ".join(result.datasets[0].why)
    assert "2 images re-encoded as baseline JPEG (heavy-format 1, scan-bomb 1)" in told
    assert "1 file of the audit report not there any more: dog/000.jpg" in result.notes
    assert "dog/slow.jpg" in contents(read_back(tmp_path / "p"))


def test_without_a_report_all_images_change_alike(tmp_path):
    source = make_photos(tmp_path / "s")
    changed = Changed(Folder.read(str(source), scan(str(source)), PackConfig()), ImageConfig(max_side=8), None)
    given = SkipList()
    assert isinstance(changed.rows(""), ReencodedRows) and changed.options() == {} and changed.excluded(given) is given
