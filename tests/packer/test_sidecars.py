"""Sidecars written, kept, refused, and gone with the pack that they belong to; what verify says of them is in another file."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from besides import beside, kinds, listed, texts
from helpers import ROOT, files_below, flip_bit, make_captioned, make_photos, pack_photos, packed
from packing import Hook, Interrupt, packing_process, python_without_privileges

import fastfeed
from fastfeed.archive.sidecars import READERS
from fastfeed.disk import remove
from fastfeed.errors import DestinationBusy, DestinationFull, DestinationOccupied, IndexDamaged, NotADataset, UsageError
from fastfeed.packer import sidecars as module
from fastfeed.packer.sidecars import owned, vouched


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Two shards, and the files of all readers."""
    folder: Path = pack_photos(tmp_path, shards=2, readers=READERS)
    return folder


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """Two shards alone."""
    folder: Path = pack_photos(tmp_path, shards=2)
    return folder


# ------------------------------------------------------------------------------------------------ writing
def test_pack_for_readers_is_pack_and_then_index(dataset: Path, tmp_path: Path):
    packed(tmp_path / "photos", tmp_path / "two", shards=2)
    fastfeed.write_sidecars(tmp_path / "two", READERS)
    assert files_below(tmp_path / "two") == files_below(dataset)
    assert fastfeed.verify(dataset).ok


def test_the_dataset_itself_is_the_same_with_and_without(dataset: Path, tmp_path: Path):
    packed(tmp_path / "photos", tmp_path / "two", shards=2)
    names = set(files_below(tmp_path / "two"))
    assert {name: raw for name, raw in files_below(dataset).items() if name in names} == files_below(tmp_path / "two")
    assert set(beside(dataset)) == {".fastfeed/sidecars.json", *listed(dataset)}


def test_the_result_tells_files_and_why(plain: Path):
    result = fastfeed.write_sidecars(plain, ["wids"])
    assert (result.path, result.readers) == (str(plain), ("hf", "wids"))
    assert sorted(result.written) == [str(plain / "README.md"), str(plain / "photos.index.json")]
    assert result.kept == () and "README.md comes along" in result.notes[0]
    again = fastfeed.write_sidecars(str(plain), ["wids", "dali"])
    assert sorted(again.kept) == sorted(result.written) and again.notes == ()
    assert [os.path.basename(path) for path in again.written] == ["photos-000000.idx", "photos-000001.idx"]
    assert set(listed(plain)) == {"README.md", "photos.index.json", "photos-000000.idx", "photos-000001.idx"}


def test_the_same_call_again_changes_nothing(dataset: Path):
    before = {path: path.stat().st_mtime_ns for path in dataset.rglob("*")}
    result = fastfeed.write_sidecars(dataset, READERS)
    assert (result.written, result.notes) == ((), ())
    assert {path: path.stat().st_mtime_ns for path in dataset.rglob("*")} == before


def test_a_group_and_its_splits(tmp_path: Path):
    for split in ("train", "val"):
        make_photos(tmp_path / "src" / split)
    packed(tmp_path / "src", tmp_path / "group", shards=2)
    result = fastfeed.write_sidecars(tmp_path / "group", READERS)
    assert len(result.written) == 6 + 2 * 6
    assert not (tmp_path / "group" / "train" / ".nv-meta").exists()
    assert fastfeed.verify(tmp_path / "group").findings == []
    fastfeed.write_sidecars(tmp_path / "group" / "train", ["energon"])  # by itself it is a dataset as well
    assert (tmp_path / "group" / "train" / ".nv-meta" / "index.sqlite").exists()
    assert fastfeed.verify(tmp_path / "group").findings == []
    (tmp_path / "group" / ".nv-meta" / "index.uuid").write_text("x")
    (tmp_path / "group" / "val" / "val-000001.idx").unlink()
    assert kinds(tmp_path / "group") == ["SidecarDamaged"] * 2
    assert f"Run fastfeed index {tmp_path}/group --for dali" in texts(tmp_path / "group")


def test_s7_files_appear_whole(plain: Path):
    def look(stage: str) -> None:
        assert stage == "sidecars"
        for name, sha256 in listed(plain).items():
            if sha256 is None and (plain / name).exists():
                sizes.append((plain / name).stat().st_size)

    sizes: list[int] = []
    hook = Hook(on_advance=look)
    fastfeed.write_sidecars(plain, READERS, progress=hook)
    assert sizes and all(sizes)
    assert hook.stages == [("sidecars", len(listed(plain)), None)] and hook.items == {"sidecars": len(listed(plain))}


def test_progress_and_refusals_before_anything(plain: Path, tmp_path: Path):
    for readers in (["dali", "tfrecord"], "dali"):
        with pytest.raises(UsageError, match="sidecars are known for dali, energon, hf, wids"):
            fastfeed.write_sidecars(plain, readers)
        with pytest.raises(UsageError, match="sidecars are known for dali, energon, hf, wids"):
            packed(tmp_path / "photos", tmp_path / "new", readers=readers)
    assert not (tmp_path / "new").exists()
    with pytest.raises(NotADataset):
        fastfeed.write_sidecars(tmp_path / "photos", ["dali"])
    assert beside(plain) == {}


def test_a_damaged_index_makes_none(plain: Path):
    flip_bit(plain / ".fastfeed" / "index", 40)
    with pytest.raises(IndexDamaged):
        fastfeed.write_sidecars(plain, ["dali"])
    assert beside(plain) == {}


# ------------------------------------------------------------------------------------------------ somebody else's files
@pytest.mark.parametrize("name", ["photos-000001.idx", "photos-000000.tar.idx", "photos.index.json", ".nv-meta/index.sqlite"])
def test_s5_a_file_of_somebody_else_is_not_replaced(plain: Path, name: str):
    (plain / ".nv-meta").mkdir()
    (plain / name).write_bytes(b"theirs")
    with pytest.raises(DestinationOccupied, match=r"is there already, and it is not what the index gives .*--overwrite"):
        fastfeed.write_sidecars(plain, READERS)
    assert set(beside(plain)) == {name}  # nothing was begun
    fastfeed.write_sidecars(plain, READERS, overwrite=True)
    assert fastfeed.verify(plain).ok


def test_what_is_equal_already_is_taken_over(dataset: Path):
    """As after wds2idx and energon prepare: the same bytes, and a uuid of their own."""
    (dataset / ".fastfeed" / "sidecars.json").unlink()
    (dataset / ".nv-meta" / "index.uuid").write_text("d520bef5-4034-400d-a2b0-323ad2840cbb")
    before = beside(dataset)
    result = fastfeed.write_sidecars(dataset, READERS)
    assert (result.written, len(result.kept)) == ((), len(before))
    assert {name: raw for name, raw in beside(dataset).items() if name in before} == before
    assert fastfeed.verify(dataset).ok
    flip_bit(dataset / ".nv-meta" / "index.uuid", 3)
    assert kinds(dataset) == ["SidecarDamaged"]


def test_s5_what_its_owner_edited_is_left(dataset: Path):
    for name in ("README.md", ".nv-meta/split.yaml", ".nv-meta/dataset.yaml"):
        (dataset / name).write_text("mine")
    result = fastfeed.write_sidecars(dataset, READERS)
    assert result.written == () and (dataset / "README.md").read_text() == "mine"
    assert any("README.md is there and left as it is (datasets needs the lines `configs:`" in note for note in result.notes)
    assert len(result.notes) == 3
    assert fastfeed.verify(dataset).ok  # its content is not ours to judge
    assert len(fastfeed.write_sidecars(dataset, READERS, overwrite=True).written) == 3
    assert (dataset / "README.md").read_text().startswith("---\nconfigs:")


def test_s6_a_readme_of_somebody_else_is_left_with_a_note(plain: Path):
    (plain / "README.md").write_text("my data")
    result = fastfeed.write_sidecars(plain, ["energon"])
    assert (plain / "README.md").read_text() == "my data"
    assert [note.partition(" (")[0] for note in result.notes] == ["README.md is there and left as it is"]
    packed(plain.parent / "photos", plain, shards=2, overwrite=True)
    assert (plain / "README.md").read_text() == "my data"


def test_a_folder_in_the_place_of_a_file(plain: Path):
    (plain / "photos-000000.idx").mkdir()
    with pytest.raises(DestinationOccupied, match="it cannot be read: not a regular file"):
        fastfeed.write_sidecars(plain, ["dali"])


# ------------------------------------------------------------------------------------------------ kills, locks, disks
def test_s5_a_killed_run_is_told_and_ended_by_the_next(plain: Path):
    def stop(stage: str) -> None:
        if hook.items["sidecars"] == 4:
            raise Interrupt

    hook = Hook(on_advance=stop)
    with pytest.raises(Interrupt):
        fastfeed.write_sidecars(plain, READERS, progress=hook)
    assert set(kinds(plain)) == {"SidecarDamaged"} and "begun and not finished" in texts(plain)
    packed(plain.parent / "photos", plain.parent / "two", shards=2, readers=READERS)
    fastfeed.write_sidecars(plain, READERS)
    assert files_below(plain) == files_below(plain.parent / "two")


WRITE = "import fastfeed, sys\nfastfeed.write_sidecars(sys.argv[1], ['dali', 'energon', 'hf', 'wids'])"


@pytest.mark.parametrize("at", range(3))
def test_s5_killed_at_any_moment_the_next_run_ends_it(tmp_path: Path, at: int):
    packed(make_captioned(tmp_path / "src", 60), tmp_path / "set", samples_per_shard=2)
    with subprocess.Popen([sys.executable, "-c", WRITE, str(tmp_path / "set")], cwd=ROOT) as process:
        while len(list((tmp_path / "set").glob("*.idx"))) < 3 + at * 17:
            assert process.poll() is None
        process.send_signal(signal.SIGKILL)
    assert set(kinds(tmp_path / "set")) <= {"SidecarDamaged", "ManifestDamaged"}  # the latter: a temporary file is left
    fastfeed.write_sidecars(tmp_path / "set", READERS)
    assert kinds(tmp_path / "set") == []
    assert not list((tmp_path / "set" / ".fastfeed").glob("*.part"))


def test_a_pack_that_was_killed_before_its_sidecars_is_ended_by_a_rerun(tmp_path: Path):
    source = make_photos(tmp_path / "src")

    def stop() -> None:
        raise Interrupt

    with pytest.raises(Interrupt):
        packed(source, tmp_path / "out", readers=READERS, progress=Hook(on_start={"sidecars": stop}))
    assert fastfeed.verify(tmp_path / "out").ok
    result = packed(source, tmp_path / "out", readers=READERS)
    assert result.already_packed and result.sidecars is not None and len(result.sidecars.written) == 9
    packed(source, tmp_path / "two", readers=READERS)
    assert files_below(tmp_path / "out") == files_below(tmp_path / "two")


def test_without_readers_a_pack_has_none_and_leaves_those_that_are_there(dataset: Path):
    before = files_below(dataset)
    result = packed(dataset.parent / "photos", dataset, shards=2)
    assert result.already_packed and result.sidecars is None
    assert files_below(dataset) == before


def test_one_process_at_a_time(plain: Path):
    descriptor = os.open(plain / ".fastfeed", os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(DestinationBusy, match="another process is writing sidecars there"):
        fastfeed.write_sidecars(plain, ["dali"])
    os.close(descriptor)
    assert fastfeed.write_sidecars(plain, ["dali"]).written


def test_a_file_system_without_locks(plain: Path, monkeypatch: pytest.MonkeyPatch):
    def none(descriptor: int, how: int) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", none)
    assert fastfeed.write_sidecars(plain, ["dali"]).written


def test_a_full_disk(plain: Path, monkeypatch: pytest.MonkeyPatch):
    def full(part: str, target: str) -> None:
        raise OSError(28, "No space left on device", part)

    monkeypatch.setattr(module, "settle", full)
    with pytest.raises(DestinationFull, match="the disk is full"):
        fastfeed.write_sidecars(plain, ["dali"])
    assert set(beside(plain)) == {".fastfeed/sidecars.json"}


def test_a_disk_that_cannot_be_written_and_needs_nothing(dataset: Path):
    for path in (dataset, dataset / ".fastfeed", dataset / ".nv-meta"):
        path.chmod(0o555)
    code = "import fastfeed, sys\nprint(len(fastfeed.write_sidecars(sys.argv[1], sys.argv[2].split()).kept))"
    done = python_without_privileges(code, str(dataset), "dali energon hf wids")
    assert (done.returncode, done.stdout.strip()) == (0, "11"), done.stderr
    (dataset / "photos-000000.idx").chmod(0o644)
    (dataset / "photos-000000.idx").write_text("damaged")
    done = python_without_privileges(code, str(dataset), "dali")
    assert "DestinationError" in done.stderr and "cannot be written" in done.stderr


# ------------------------------------------------------------------------------------------------ --overwrite
def test_s5_a_new_pack_takes_the_sidecars_of_the_old_one_away(dataset: Path):
    packed(dataset.parent / "photos", dataset, shards=1, overwrite=True)
    assert beside(dataset) == {}
    packed(dataset.parent / "photos", dataset, shards=3, overwrite=True, readers=["energon"])
    assert fastfeed.verify(dataset).ok and len(list(dataset.glob("*.tar.idx"))) == 3


def test_s5_what_was_edited_stays_and_is_told(dataset: Path):
    (dataset / "README.md").write_text("mine")
    (dataset / "photos-000000.idx").write_text("damaged, and ours")
    result = packed(dataset.parent / "photos", dataset, shards=1, overwrite=True)
    assert set(beside(dataset)) == {"README.md"}
    assert "README.md was edited, so it is left as it is" in result.notes


def test_a_new_pack_of_splits_takes_all_of_them(tmp_path: Path):
    for split in ("train", "val"):
        make_photos(tmp_path / "src" / split)
    packed(tmp_path / "src", tmp_path / "group", shards=2, readers=READERS)
    shutil.rmtree(tmp_path / "src" / "val")
    packed(tmp_path / "src", tmp_path / "group", layout="files", overwrite=True)
    assert beside(tmp_path / "group") == {}
    assert sorted(os.listdir(tmp_path / "group")) == [".fastfeed", "src-000000.tar"]


def test_a_damaged_record_stops_a_new_pack_with_what_to_do(dataset: Path):
    flip_bit(dataset / ".fastfeed" / "sidecars.json", 50)
    before = files_below(dataset)
    with pytest.raises(DestinationOccupied, match=r"not known which files are fastfeed's: .*Run fastfeed index"):
        packed(dataset.parent / "photos", dataset, shards=1, overwrite=True)
    assert files_below(dataset) == before
    fastfeed.write_sidecars(dataset, READERS)
    packed(dataset.parent / "photos", dataset, shards=1, overwrite=True)
    assert beside(dataset) == {}


def test_a_new_pack_that_is_killed_while_it_clears_still_knows_them(dataset: Path, monkeypatch: pytest.MonkeyPatch):
    from fastfeed.packer import journal

    def kill(path: str) -> None:
        if path.endswith(".tar"):
            raise Interrupt
        remove(path)

    with monkeypatch.context() as patch:
        patch.setattr(journal, "remove", kill)
        with pytest.raises(Interrupt):
            packed(dataset.parent / "photos", dataset, shards=1, overwrite=True)
    assert not (dataset / ".fastfeed" / "sidecars.json").exists()
    packed(dataset.parent / "photos", dataset, shards=1, overwrite=True)
    assert beside(dataset) == {}


def test_unpack_reads_no_sidecar(dataset: Path, tmp_path: Path):
    fastfeed.unpack(dataset, tmp_path / "out")
    assert files_below(tmp_path / "out") == files_below(tmp_path / "photos")


def test_what_is_ours_by_the_record(dataset: Path, tmp_path: Path):
    names = set(listed(dataset))
    assert vouched(str(dataset)) == names and vouched(str(tmp_path)) == set()
    (dataset / ".nv-meta" / "split.yaml").write_text("mine")
    (dataset / "photos.index.json").unlink()
    ours, edited = owned(str(dataset))
    assert edited == [str(dataset / ".nv-meta" / "split.yaml")]
    assert {os.path.relpath(path, dataset) for path in ours} == names - {".nv-meta/split.yaml", "photos.index.json"}


def test_packing_processes_write_the_same(tmp_path: Path):
    source = make_photos(tmp_path / "src", each=8)
    with packing_process(source, tmp_path / "a", shards=4, workers=2, readers=READERS) as process:
        assert process.wait() == 0
    packed(source, tmp_path / "b", shards=4, readers=READERS)
    assert files_below(tmp_path / "a") == files_below(tmp_path / "b")
