"""``fastfeed pack``: each option reaches the packer, and the outcome is told and coded."""

import json
import os
from pathlib import Path

import pytest
from auditreports import write_report
from commands import done, record, refused
from helpers import encoded, files_below, make_captioned, make_photos, packed, photo
from packing import Interrupt, interrupt_after, needs_jpegtran, tree

import fastfeed
from fastfeed.packer.result import DatasetResult, PackResult


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder: Path = make_photos(tmp_path / "photos")
    return folder


def test_packed_like_the_function_and_told(photos: Path, tmp_path: Path):
    text = done("pack", photos, tmp_path / "out")
    packed(photos, tmp_path / "function")
    assert files_below(tmp_path / "out") == files_below(tmp_path / "function")
    for words in (
        "- one class per folder: 2 classes",
        "- position i and each class number are ImageFolder's",
        "Packed 6 files",
        f"Next:  fastfeed verify {tmp_path}/out",
        f"ds = fastfeed.open('{tmp_path}/out', transform=...)",
    ):
        assert words in text
    assert "nothing to do" in done("pack", photos, tmp_path / "out")


def test_the_next_commands_work(photos: Path, tmp_path: Path):
    text = done("pack", photos, tmp_path / "out")
    (line,) = [line for line in text.splitlines() if line.startswith("Next:")]
    assert "is whole" in done(*line.removeprefix("Next:").split()[1:])


def test_the_record(photos: Path, tmp_path: Path):
    (photos / ".DS_Store").write_bytes(b"")
    found = record("pack", photos, tmp_path / "out", "--shards", 2, kind=PackResult)
    (dataset,) = found["datasets"]
    assert set(dataset) == set(DatasetResult.__slots__)
    assert (dataset["samples"], dataset["shards"], dataset["classes"], dataset["fields"]) == (6, 2, 2, ["cls", "jpg"])
    assert dataset["digest"] == fastfeed.open(tmp_path / "out").digest
    assert found["left_out"] == [{"source": ".DS_Store", "kind": "system", "why": "macOS folder settings"}]
    assert (found["shards_written"], found["already_packed"], found["dry_run"]) == (2, False, False)
    again = record("pack", photos, tmp_path / "out", "--shards", 2, kind=PackResult)
    assert (again["shards_written"], again["already_packed"]) == (0, True)


def test_a_dry_run_writes_nothing(photos: Path, tmp_path: Path):
    assert "This is the plan; nothing was written. It needs" in done("pack", photos, tmp_path / "out", "--dry-run")
    found = record("pack", photos, tmp_path / "out", "--dry-run", kind=PackResult)
    assert (found["dry_run"], found["datasets"][0]["samples"], found["datasets"][0]["digest"]) == (True, 6, None)
    assert not (tmp_path / "out").exists()


def noted(*arguments: object) -> list[str]:
    """Notes of a dry run, which changes nothing."""
    before = files_below(Path(str(arguments[1])))
    text = done("pack", *arguments, "--dry-run", env={"COLUMNS": "200"})
    assert files_below(Path(str(arguments[1]))) == before
    lines = text.replace("\n  ", " ").splitlines()
    assert lines[-1].startswith("This is the plan; nothing was written. It needs ")
    return [line.removeprefix("Note: ") for line in lines if line.startswith("Note: ")]


@pytest.mark.long
def test_a_dry_run_says_what_is_there_already(photos: Path, tmp_path: Path):
    out = tmp_path / "out"
    assert noted(photos, out) == []
    done("pack", photos, out)
    assert noted(photos, out) == ["the destination holds this very pack: there would be nothing to do"]
    assert noted(photos, out, "--shards", 2) == [
        "without --overwrite this would be refused: a finished pack with other options is there (--shards was not given, now 2)"
    ]
    os.utime(photos / "cat" / "000.jpg", (1, 1))
    (note,) = noted(photos, out)
    assert note == (
        "without --overwrite this would be refused: the source has changed since it was packed "
        "(files came, went, grew or were touched)"
    )


def test_a_dry_run_says_that_an_unfinished_pack_is_there(photos: Path, tmp_path: Path):
    hook, out = interrupt_after(3), tmp_path / "out"
    with pytest.raises(Interrupt):
        packed(photos, out, shards=3, progress=hook)
    assert noted(photos, out, "--shards", 3) == [
        "the destination holds an unfinished pack with these options: it would be continued"
    ]
    (note,) = noted(photos, out)
    assert note == (
        "without --overwrite this would be refused: an unfinished pack with other options is there "
        "(--shards was 3, now not given)"
    )
    done("pack", photos, out, "--shards", 3)


def test_a_dry_run_of_an_unfinished_pack_says_that_the_source_has_changed(photos: Path, tmp_path: Path):
    """As the pack itself would refuse."""
    out = tmp_path / "out"
    with pytest.raises(Interrupt):
        packed(photos, out, shards=3, progress=interrupt_after(3))
    os.utime(photos / "cat" / "000.jpg", (1, 1))
    refused("pack", photos, out, "--shards", 3, code=3)
    (note,) = noted(photos, out, "--shards", 3)
    assert note.startswith("without --overwrite this would be refused: the source has changed since this pack began: ")


def test_a_dry_run_with_overwrite_does_not_say_that_nothing_is_to_do(photos: Path, tmp_path: Path):
    done("pack", photos, tmp_path / "out")
    assert "nothing to do" not in " ".join(noted(photos, tmp_path / "out", "--overwrite"))


def test_a_dry_run_says_that_others_files_are_there(photos: Path, tmp_path: Path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "letter.txt").write_text("mine")
    (note,) = noted(photos, tmp_path / "out")
    assert "this would be refused: the destination holds other files, and fastfeed shares a folder with nobody" in note
    refused("pack", photos, tmp_path / "out", "--overwrite", code=4)
    assert "--overwrite" not in note, "which would not help"


@pytest.mark.long
@pytest.mark.parametrize(
    ("options", "shards"),
    [
        (["--shards", "3"], 3),
        (["--samples-per-shard", "2"], 3),
        (["--shard-size", "2KiB"], 3),
        (["--shard-size", "1GB"], 1),
        ([], 1),
    ],
)
def test_sizes_of_shards(photos: Path, tmp_path: Path, options: list[str], shards: int):
    done("pack", photos, tmp_path / "out", *options)
    assert len(list((tmp_path / "out").glob("*.tar"))) == shards


def test_options_reach_the_packer(photos: Path, tmp_path: Path):
    (photos / ".hidden.jpg").write_bytes((photos / "cat" / "000.jpg").read_bytes())
    options = [
        "--shuffle",
        "5",
        "--layout",
        "files",
        "--group",
        "none",
        "--no-cls",
        "--name",
        "mine",
        "--hidden",
        "--limit",
        "4",
    ]
    done("pack", photos, tmp_path / "out", *options)
    (found,) = fastfeed.info(tmp_path / "out").datasets
    assert (found.name, found.order, found.layout, found.samples, found.classes) == ("mine", "shuffled", "files", 4, None)
    wanted = {"shuffle": 5, "layout": "files", "group": "none", "write_cls": False, "hidden": True, "limit": 4}
    assert wanted.items() <= found.options.items()


@pytest.mark.long
def test_workers_change_no_byte(photos: Path, tmp_path: Path):
    for workers in (1, 2, 5):
        done("pack", photos, tmp_path / f"out{workers}", "--shards", 5, "--workers", workers)
    assert files_below(tmp_path / "out1") == files_below(tmp_path / "out2") == files_below(tmp_path / "out5")


def test_splits_and_class_maps(tmp_path: Path):
    make_photos(tmp_path / "src" / "train", ("cat", "dog"))
    make_photos(tmp_path / "src" / "val", ("cat", "eel"))
    paragraph = refused("pack", tmp_path / "src", tmp_path / "out", code=3)
    assert "dog" in paragraph
    assert "eel" in paragraph
    done("pack", tmp_path / "src", tmp_path / "out", "--class-map", "union")
    assert fastfeed.open(tmp_path / "out" / "val").classes == ["cat", "dog", "eel"]


def test_from_audit(photos: Path, tmp_path: Path):
    report = write_report(tmp_path / "r.jsonl", photos, {"cat/001.jpg": ["truncated"], "dog/000.jpg": ["oversize"]})
    words = ["pack", photos, tmp_path / "out", "--from-audit", report, "--max-side", "8"]
    for text in (done(*words, "--dry-run"), done(*words)):
        assert "- audit: 1 sample with an error left out (truncated 1)" in text
        assert "- audit: 1 image made smaller, the longer side at most 8 (oversize 1)" in text
        assert "excluded    cat/001.jpg" in text
    done("verify", tmp_path / "out")


def test_exclude(photos: Path, tmp_path: Path):
    skip = tmp_path / "skip.jsonl"
    skip.write_text(json.dumps({"source": "cat/001.jpg", "kind": "undecodable"}) + "\n")
    text = done("pack", photos, tmp_path / "out", "--exclude", skip)
    assert "excluded    cat/001.jpg" in text
    assert len(fastfeed.open(tmp_path / "out")) == 5


@pytest.mark.long
def test_unreadable_files_stop_or_are_skipped(photos: Path, tmp_path: Path):
    (photos / "cat" / "gone.jpg").symlink_to("nowhere")
    paragraph = refused("pack", photos, tmp_path / "out", code=3)
    assert "cat/gone.jpg" in paragraph
    assert "--on-error skip" in paragraph
    text = done("pack", photos, tmp_path / "out", "--on-error", "skip", code=6)
    assert "1 input could not be read" in text
    assert "exit code 6" in text
    assert "unreadable  cat/gone.jpg  (a link that leads nowhere)" in text
    assert len(fastfeed.open(tmp_path / "out")) == 6
    assert record("pack", photos, tmp_path / "out2", "--on-error", "skip", kind=PackResult, code=6)["skipped"] == 1


def test_what_is_skipped_is_named_even_if_nothing_else_is_said(photos: Path, tmp_path: Path):
    for number in range(7):
        (photos / "cat" / f"gone{number}.jpg").symlink_to("nowhere")
    named = "; ".join(f"cat/gone{number}.jpg: a link that leads nowhere" for number in range(5)) + "; and 2 more"
    options = ("--on-error", "skip", "--quiet")
    plan, first, again = (
        " ".join(done("pack", photos, tmp_path / "out", *options, *more, code=6).split()) for more in (["--dry-run"], [], [])
    )
    assert plan == f"7 inputs cannot be read and would be skipped ({named}): exit code 6."
    assert first == f"7 inputs could not be read and were skipped ({named}), listed in .fastfeed/left-out.jsonl: exit code 6."
    assert again == first


@pytest.mark.long
def test_a_changed_source_and_other_options_are_refused(photos: Path, tmp_path: Path):
    done("pack", photos, tmp_path / "out")
    paragraph = refused("pack", photos, tmp_path / "out", "--shards", 2, "--no-cls", "--shard-size", "1MiB", code=4)
    assert (
        "a finished pack with other options is there (--shard-size was 512.0 MiB, now 1.0 MiB; "
        "--shards was not given, now 2; --cls was True, now False)"
    ) in paragraph
    os.utime(photos / "cat" / "000.jpg", (1, 1))
    assert "the source has changed since it was packed" in refused("pack", photos, tmp_path / "out", code=3)
    done("pack", photos, tmp_path / "out", "--overwrite", "--shards", 2)
    assert len(list((tmp_path / "out").glob("*.tar"))) == 2


def test_trusting_the_kept_scan_of_a_finished_pack(photos: Path, tmp_path: Path):
    done("pack", photos, tmp_path / "out")
    assert "nothing to do" in done("pack", photos, tmp_path / "out", "--trust-scan")


def test_the_bytes_are_those_of_any_current_folder(tmp_path: Path):
    make_captioned(tmp_path / "src")
    done("pack", "src", "out", cwd=tmp_path)
    done("pack", tmp_path / "src", tmp_path / "absolute")
    assert files_below(tmp_path / "out") == files_below(tmp_path / "absolute")


@pytest.mark.long
def test_compression(tmp_path: Path):
    source = make_captioned(tmp_path / "s", 30)
    arguments = ("--compress", "zstd", "--level", 5, "--frame-size", "8KiB")
    text = " ".join(done("pack", source, tmp_path / "out", *arguments).split())
    for words in (
        "- compressed with zstd level 5, as many samples a frame as fit into 8.0 KiB: 0.",
        "tar size",
        "of the tar in them.",
        "Note: compressed shards are read by fastfeed, tar --zstd -x and zstd -d, and not by webdataset, Hugging Face datasets",
        "fastfeed unpack --shards",
    ):
        assert words in text
    packed(source, tmp_path / "function", compress="zstd", level=5, frame_bytes=8192)
    assert files_below(tmp_path / "out") == files_below(tmp_path / "function")
    found = record("pack", source, tmp_path / "out", *arguments, kind=PackResult)
    assert found["already_packed"] and found["datasets"][0]["tar_bytes"] > found["datasets"][0]["size_bytes"]
    assert "level and frame_bytes are for compressed shards" in refused("pack", source, tmp_path / "x", "--level", 5, code=2)
    assert "zstd level 5" in done("info", tmp_path / "out")


@pytest.mark.long
@needs_jpegtran
def test_rows_of_jpegs_are_planned_told_and_recorded(tmp_path):
    files = {f"cat/{at}.jpg": encoded(photo(at, (40, 40))) for at in range(3)}
    tree(tmp_path / "photos", {**files, "cat/small.jpg": encoded(photo(4, (40, 8)))})
    plan = " ".join(done("pack", tmp_path / "photos", tmp_path / "out", "--jpeg-rows", "--dry-run").split())
    assert (
        "JPEGs get restart markers between their blocks, up to 32 in a row, without loss, by jpegtran (libjpeg-turbo version"
        in plan
    )
    assert "of those looked at 3 indexed, 1 stays as it is (1 a single row of blocks)" in plan
    text = done("pack", tmp_path / "photos", tmp_path / "out", "--jpeg-rows")
    assert "\nRows of JPEGs: 3 indexed, 1 stays as it is (1 a single row of blocks).\n" in text
    (dataset,) = record("pack", tmp_path / "photos", tmp_path / "again", "--jpeg-rows", kind=PackResult)["datasets"]
    assert dataset["jpeg_rows"] == {"indexed": 3, "a single row of blocks": 1}
    packed(tmp_path / "photos", tmp_path / "function", jpeg_rows=True)
    assert files_below(tmp_path / "out") == files_below(tmp_path / "function")


def test_without_jpegtran_there_is_an_install_line(photos: Path, tmp_path: Path):
    (tmp_path / "bin").mkdir()
    paragraph = refused("pack", photos, tmp_path / "out", "--jpeg-rows", code=2, env={"PATH": str(tmp_path / "bin")})
    assert "jpeg_rows (--jpeg-rows) needs the program jpegtran, which is not installed" in paragraph
    assert "apt-get install libjpeg-turbo-progs" in paragraph
    assert not (tmp_path / "out").exists()
