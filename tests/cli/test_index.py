"""``fastfeed index --for``: the files of other readers, told and coded."""

from pathlib import Path

import pytest
from commands import done, record, refused, run
from helpers import files_below, make_photos, pack_photos, packed

import fastfeed
from fastfeed.packer.result import PackResult
from fastfeed.packer.sidecars import SidecarsResult


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
        ([], "Missing option '--for'", 2),
    ],
    ids=["unknown", "empty", "missing"],
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
