"""``fastfeed index``: tars in place, and with --for the files of other readers; told and coded."""

from pathlib import Path

import pytest
from commands import done, record, refused, run
from helpers import files_below, make_photos, pack_photos, packed
from tarring import offsets, pairs, replaced, tar_of, write_tar

import fastfeed
from fastfeed.packer.result import PackResult
from fastfeed.packer.sidecars import SidecarsResult
from fastfeed.source.tarindex import IndexResult


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    folder: Path = pack_photos(tmp_path, shards=2)
    return folder


def test_like_the_function_and_told(dataset: Path, tmp_path: Path):
    text = " ".join(done("index", dataset, "--for", "dali, wids").split())
    assert f"Wrote 4 files for dali, hf, wids beside the shards of {dataset}, in " in text
    assert "Note: README.md comes along: without it Hugging Face datasets would take the index files for wids for data" in text
    packed(tmp_path / "photos", tmp_path / "two", shards=2)
    fastfeed.write_sidecars(tmp_path / "two", ["dali", "wids"])
    assert files_below(dataset) == files_below(tmp_path / "two")
    again = " ".join(done("index", dataset, "--for", "dali,wids").split())
    assert "Wrote 0 files" in again and "4 files there already" in again


def test_the_record(dataset: Path):
    found = record("index", dataset, "--for", "dali", kind=SidecarsResult)
    assert (found["path"], found["readers"], found["kept"]) == (str(dataset), ["dali"], [])
    assert found["written"] == [f"{dataset}/photos-000000.idx", f"{dataset}/photos-000001.idx"]


def test_quiet(dataset: Path):
    assert done("index", dataset, "--for", "energon", "--quiet") == ""
    assert (dataset / ".nv-meta" / "index.sqlite").exists()


@pytest.mark.parametrize(
    ("arguments", "words", "code"),
    [
        (["--for", "dali,tfrecord"], "'tfrecord' is none of dali, energon, hf, wids", 2),
        (["--for", ""], "'' is none of", 2),
        ([], "this is a packed dataset: its index is there. For those of other readers: --for", 2),
        (["--overwrite"], "--overwrite goes with --for.", 2),
        (["--for", "dali", "--checksums"], "--index-dir and --checksums are for tars; --for is for a packed dataset.", 2),
        (["--for", "dali", "--index-dir", "x"], "--index-dir and --checksums are for tars", 2),
        (["other", "--for", "dali"], "--for takes one packed dataset.", 2),
    ],
    ids=["unknown", "empty", "missing", "overwrite", "checksums", "index-dir", "two"],
)
def test_wrong_usage(dataset: Path, arguments: list[str], words: str, code: int):
    found = run("index", dataset, *arguments)
    assert (found.returncode, found.stdout) == (code, "")
    assert words in found.stderr


def test_a_file_of_somebody_else(dataset: Path):
    (dataset / "photos-000000.idx").write_text("theirs")
    assert "is there already" in refused("index", dataset, "--for", "dali", code=4)
    done("index", dataset, "--for", "dali", "--overwrite")
    assert fastfeed.verify(dataset).ok


def test_nothing_is_there(tmp_path: Path):
    assert "no packed dataset is in this folder" in refused("index", tmp_path, "--for", "dali", code=9)


def test_pack_writes_them_as_well(tmp_path: Path):
    make_photos(tmp_path / "photos")
    text = " ".join(done("pack", tmp_path / "photos", tmp_path / "out", "--for", "dali,energon").split())
    assert "Wrote 8 files for dali, energon, hf beside the shards" in text
    found = record("pack", tmp_path / "photos", tmp_path / "out", "--for", "dali,energon,wids", kind=PackResult)
    assert found["already_packed"] and found["sidecars"]["written"] == [f"{tmp_path}/out/photos.index.json"]
    assert "is whole" in done("verify", tmp_path / "out")


def test_a_damaged_one_is_told_with_what_to_do(dataset: Path):
    done("index", dataset, "--for", "dali")
    (dataset / "photos-000000.idx").unlink()
    text = " ".join(done("verify", dataset, code=5).split())
    assert f"Run fastfeed index {dataset} --for dali: it mends that" in text
    done("index", dataset, "--for", "dali")
    assert "is whole" in done("verify", dataset)


# ------------------------------------------------------------------------------------------------ tars in place
def test_tars_in_place(tmp_path: Path):
    write_tar(tmp_path / "a.tar", pairs(3))
    write_tar(tmp_path / "b.tar", [*pairs(3, 3), ("README", b"")])
    text = " ".join(done("index", tmp_path / "*.tar").split())
    assert text.startswith("6 samples of cls+txt in 2 tars, 20.0 KiB: 13 members in ") or "12 members in " in text
    assert f"The index is {tmp_path}/.fastfeed-index/tars-" in text
    assert "no-field: 1 finding - b.tar, bytes [" in text
    assert "README is part of no sample: its name has no extension" in text
    again = " ".join(done("index", tmp_path / "a.tar", tmp_path / "b.tar").split())
    assert "(known already: nothing was read)" in again
    assert fastfeed.open(tmp_path / "*.tar")[4]["cls"] == 4
    assert done("index", tmp_path / "*.tar", "--quiet") == ""


def test_the_record_of_tars(tmp_path: Path):
    write_tar(tmp_path / "a.tar", pairs(3))
    found = record("index", tmp_path / "*.tar", "--checksums", "--index-dir", tmp_path / "mine", kind=IndexResult)
    assert (found["samples"], found["members"], found["fields"], found["checksums"], found["lost"]) == (
        3,
        6,
        ["cls", "txt"],
        True,
        0,
    )
    assert found["path"].startswith(f"{tmp_path}/mine/tars-")


def test_damage_is_told_and_the_rest_can_be_read(tmp_path: Path):
    raw = tar_of(pairs(6))
    (tmp_path / "a.tar").write_bytes(replaced(raw, offsets(raw)[5] + 148, b"\0" * 8))
    for more in ([], ["--quiet"]):
        text = " ".join(done("index", tmp_path / "a.tar", *more, code=5).split())
        assert "1 sample left out, since members of them are lost." in text
        assert "damaged: 1 finding, data is lost - a.tar, bytes [" in text
        assert "dropped: 1 finding, data is lost - a.tar, bytes [" in text
    found = record("index", tmp_path / "a.tar", kind=IndexResult, code=5)
    assert (found["samples"], found["dropped"], found["lost"]) == (5, 1, 2)


def test_many_findings_are_cut(tmp_path: Path):
    write_tar(tmp_path / "a.tar", [*pairs(1), *((f"{number}", b"") for number in range(30))])
    text = done("index", tmp_path / "a.tar")
    assert text.count("is part of no sample") == 5
    assert "- and 25 more" in text


def test_other_commands_say_that_tars_are_no_packed_dataset(tmp_path: Path):
    write_tar(tmp_path / "a.tar", pairs(1))
    for command in (["info"], ["verify"], ["unpack", tmp_path / "out"]):
        text = refused(command[0], tmp_path / "*.tar", *command[1:], code=9)
        assert f"{tmp_path}/*.tar names tars, not a packed dataset" in text
        assert f"fastfeed index '{tmp_path}/*.tar' says what is in them" in text


def test_tars_that_are_not_there(tmp_path: Path):
    assert "no file matches" in refused("index", tmp_path / "*.tar", code=9)
    assert "this is a folder, not a tar" in refused("index", tmp_path, code=3)
    (tmp_path / "a.tar").write_bytes(b"BZh91AY&SY")
    assert "a.tar is compressed with bzip2" in refused("index", tmp_path / "a.tar", code=3)
