"""The index of tars: made once, found again, made anew where a tar has changed, by one process of many."""

import fcntl
import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers import ROOT, ColumnFile, files_below
from packing import Hook, python_without_privileges, wait_for
from tarring import gzipped, offsets, pairs, read_all, replaced, tar_of, webdataset_reads, write_tar, zstandarded

from fastfeed.archive.tars import LOST, NOTED, TarSet
from fastfeed.errors import DestinationError, NotADataset, SourceUnreadable, UsageError
from fastfeed.source.tarfiles import find_tars
from fastfeed.source.tarindex import index_tars, look_up, result_of


def three(folder: Path) -> Path:
    for number in range(3):
        write_tar(folder / f"{number}.tar", pairs(4, 4 * number))
    return folder


def index_files(folder: Path) -> list[str]:
    return sorted(os.listdir(folder / ".fastfeed-index"))


# ------------------------------------------------------------------------------------------------ made and found
def test_made_once_and_then_known(tmp_path: Path):
    """[P1] [P3]: nothing but one folder comes beside the tars, and no tar is touched."""
    before = files_below(three(tmp_path))
    facts = [(tmp_path / name).stat() for name in before]
    first = index_tars(str(tmp_path / "*.tar"))
    assert (first.tars, first.samples, first.members, first.walked) == (3, 12, 24, 3)
    assert (first.fields, first.labels, first.checksums, first.dropped, first.found) == (("cls", "txt"), True, False, 0, ())
    assert first.size_bytes == sum(len(raw) for raw in before.values())
    assert first.index_bytes == os.path.getsize(first.path)
    after = files_below(tmp_path)
    assert {name: raw for name, raw in after.items() if not name.startswith(".fastfeed-index/")} == before
    assert [(tmp_path / name).stat() for name in before] == facts
    assert index_files(tmp_path) == ["lock", os.path.basename(first.path)]
    assert not [name for name in index_files(tmp_path) if ".tar" in name]
    again = index_tars([str(path) for path in tmp_path.glob("*.tar")])
    assert (again.walked, again.path, again.samples) == (0, first.path, 12)
    assert files_below(tmp_path) == after


def test_the_same_tars_give_the_same_bytes(tmp_path: Path):
    three(tmp_path)
    raws = []
    for walkers in (1, 16):
        raws.append(Path(index_tars(str(tmp_path / "*.tar"), walkers=walkers).path).read_bytes())
        shutil.rmtree(tmp_path / ".fastfeed-index")
    assert raws[0] == raws[1]


def test_the_index_is_a_column_file(tmp_path: Path):
    """[P6]: read by the words of §4 and §11.2 alone."""
    three(tmp_path)
    write_tar(tmp_path / "1.tar", [*pairs(4, 4), ("x.TXT", b"1"), ("a", b"")])
    file = ColumnFile.parse(Path(index_tars(str(tmp_path / "*.tar"), checksums=True).path).read_bytes())
    assert file.table["tables"] == {
        "set": 1,
        "tar": 3,
        "field": 2,
        "extension": 3,
        "sample": 13,
        "member": 25,
        "frame": 0,
        "finding": 1,
    }
    assert json.loads(file.strings("set", "facts")[0]) == {"findings": {"no-field": 1}, "kind": "tars", "version": 1}
    assert file.strings("tar", "file") == [b"0.tar", b"1.tar", b"2.tar"]
    assert file.numbers("tar", "samples") == [0, 4, 9, 13]
    assert file.numbers("tar", "form") == [0, 0, 0]
    assert file.strings("field", "name") == [b"cls", b"txt"]
    assert file.strings("sample", "key")[4:6] == [b"000004", b"000005"]
    assert file.numbers("sample", "some_label")[8] == -(1 << 63)
    assert file.strings("extension", "name") == [b"TXT", b"cls", b"txt"]
    assert [row for row, number in enumerate(file.numbers("member", "written")) if number == 0] == [16]
    assert file.strings("finding", "text") == [b"a is part of no sample: its name has no extension"]
    raw = (tmp_path / "0.tar").read_bytes()
    start, size = file.numbers("member", "offset")[2], file.numbers("member", "size")[2]
    assert raw[start : start + size] == pairs(4)[2][1]


def test_all_forms_give_what_webdataset_gives(tmp_path: Path):
    raw = tar_of(pairs(40))
    for folder, name, data in (("p", "a.tar", raw), ("g", "a.tgz", gzipped(raw, 2)), ("z", "a.tar.zst", zstandarded(raw, 2000)),
                               ("o", "a.tar.zst", zstandarded(raw))):  # fmt: skip
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_bytes(data)
        wanted = webdataset_reads([tmp_path / "p" / "a.tar"])
        assert read_all(index_tars(str(tmp_path / folder / name))) == wanted
        assert len(index_files(tmp_path / folder)) == 2 + (folder == "g")


def test_checksums_are_added_when_they_are_asked_for(tmp_path: Path):
    three(tmp_path)
    assert not index_tars(str(tmp_path / "*.tar")).checksums
    with_them = index_tars(str(tmp_path / "*.tar"), checksums=True)
    assert (with_them.checksums, with_them.walked) == (True, 3)
    kept = index_tars(str(tmp_path / "*.tar"))
    assert (kept.checksums, kept.walked) == (True, 0)


def test_progress(tmp_path: Path):
    three(tmp_path)
    hook = Hook()
    index_tars(str(tmp_path / "*.tar"), progress=hook)
    total = sum(path.stat().st_size for path in tmp_path.glob("*.tar"))
    assert hook.stages == [("index", 3, total)]
    assert (hook.items["index"], hook.size_bytes["index"]) == (3, total)


# ------------------------------------------------------------------------------------------------ made anew
def test_a_tar_that_is_added_costs_one_walk(tmp_path: Path):
    """[P4]: and the index is the same, byte for byte, as one that is made from nothing."""
    three(tmp_path)
    write_tar(tmp_path / "1.tar", [*pairs(4, 4), ("LICENSE", b""), *pairs(1, 4)])
    old = index_tars(str(tmp_path / "*.tar"))
    write_tar(tmp_path / "10.tar", [("x.JPG", b"1"), *pairs(2, 100), *pairs(1)])
    new = index_tars(str(tmp_path / "*.tar"))
    assert (new.walked, new.tars, new.samples) == (1, 4, old.samples + 4)
    assert new.path != old.path
    assert {kind.kind: kind.count for kind in new.found} == {"no-field": 1, "repeated-key": 1, "shared-key": 1}
    shutil.copytree(tmp_path, tmp_path / "copy", ignore=shutil.ignore_patterns(".fastfeed-index"))
    fresh = index_tars(str(tmp_path / "copy" / "*.tar"))
    assert Path(fresh.path).read_bytes() == Path(new.path).read_bytes()
    assert index_tars([str(tmp_path / f"{number}.tar") for number in range(3)]).walked == 0, "the smaller set keeps its own"


@pytest.mark.parametrize("form", [gzipped, zstandarded])
def test_compressed_tars_are_taken_over_with_their_seek_points(tmp_path: Path, form):
    for number in range(2):
        (tmp_path / f"{number}.tar").write_bytes(form(tar_of(pairs(9, 9 * number))))
    index_tars(str(tmp_path / "0.tar"))
    result = index_tars(str(tmp_path / "*.tar"))
    assert (result.walked, result.samples) == (1, 18)
    assert [sample["__key__"] for sample in read_all(result)] == [f"{number:06d}" for number in range(18)]
    for name in index_files(tmp_path):
        if name.startswith("seek-"):
            os.unlink(tmp_path / ".fastfeed-index" / name)
    os.unlink(result.path)
    assert index_tars(str(tmp_path / "*.tar")).walked == (2 if form is gzipped else 1)


def test_a_tar_that_has_changed_is_walked_again(tmp_path: Path):
    """[P4]"""
    three(tmp_path)
    paths = find_tars(str(tmp_path / "*.tar"))
    assert look_up(paths, None) == (None, "they have no index yet")
    first = index_tars(str(tmp_path / "*.tar"))
    write_tar(tmp_path / "1.tar", pairs(6, 50))
    assert look_up(paths, None) == (None, "1 tar of them changed since they were indexed (1.tar)")
    again = index_tars(str(tmp_path / "*.tar"))
    assert (again.path, again.walked, again.samples) == (first.path, 1, 14)
    os.utime(tmp_path / "2.tar", ns=(5, 5))
    assert index_tars(str(tmp_path / "*.tar")).walked == 1
    assert look_up(paths, None)[1] == ""
    (tmp_path / "2.tar").unlink()
    with pytest.raises(NotADataset, match="a tar cannot be found: No such file or directory"):
        look_up(paths, None)


def test_an_index_that_is_damaged_is_made_anew(tmp_path: Path):
    three(tmp_path)
    path = Path(index_tars(str(tmp_path / "*.tar")).path)
    whole = path.read_bytes()
    for damaged in (whole[:100], b"", whole[:40] + b"x" + whole[41:], b"x" * len(whole)):
        path.write_bytes(damaged)
        assert look_up(find_tars(str(tmp_path / "*.tar")), None)[1].startswith("their index cannot be used (")
        assert index_tars(str(tmp_path / "*.tar")).walked == 3
        assert path.read_bytes() == whole


def test_damage_in_a_large_index_is_found_by_indexing_again_and_is_not_taken_over(tmp_path: Path, monkeypatch):
    """[P17]: opening a large index does not prove it."""
    monkeypatch.setattr("fastfeed.archive.tars.PROVEN_BYTES", 0)
    three(tmp_path)
    tars = str(tmp_path / "*.tar")
    path = Path(index_tars(tars).path)
    whole, found = path.read_bytes(), look_up(find_tars(tars), None)[0]
    assert found is not None
    at = found.index.table.columns["member", "offset"].extents[0][0] + 1
    damaged = whole[:at] + bytes([whole[at] ^ 2]) + whole[at + 1 :]
    path.write_bytes(damaged)
    assert look_up(find_tars(tars), None)[0] is not None
    assert "column offset of member is damaged" in look_up(find_tars(tars), None, whole=True)[1]
    assert index_tars(tars).walked == 3 and path.read_bytes() == whole
    path.write_bytes(damaged)
    write_tar(tmp_path / "new.tar", pairs(1))
    assert index_tars(tars).walked == 4


# ------------------------------------------------------------------------------------------------ where it cannot be written
def test_a_folder_of_ones_own(tmp_path: Path):
    three(tmp_path / "a")
    three(tmp_path / "b")
    one, two = (index_tars(str(tmp_path / folder / "*.tar"), index_dir=tmp_path / "made" / "here") for folder in "ab")
    assert os.path.dirname(one.path) == os.path.dirname(two.path) == str(tmp_path / "made" / "here")
    assert one.path != two.path
    assert not (tmp_path / "a" / ".fastfeed-index").exists()
    assert read_all(one) == read_all(two)


def test_a_folder_that_cannot_be_written(tmp_path: Path):
    three(tmp_path / "a")
    os.chmod(tmp_path / "a", 0o555)
    os.chmod(tmp_path, 0o777)
    code = (
        "import sys\n"
        "from fastfeed.source.tarindex import index_tars\n"
        "from fastfeed.errors import DestinationError\n"
        "try:\n"
        "    index_tars(sys.argv[1])\n"
        "except DestinationError as error:\n"
        "    print(error)\n"
        "print(index_tars(sys.argv[1], index_dir=sys.argv[2]).samples)\n"
    )
    done = python_without_privileges(code, str(tmp_path / "a" / "*.tar"), str(tmp_path / "mine"))
    assert (done.returncode, done.stderr) == (0, "")
    first, second = done.stdout.splitlines()
    assert first.startswith("the index cannot be written beside the tars: Permission denied")
    assert "index_dir=... (fastfeed index --index-dir DIR)" in first
    assert second == "12"


def test_a_file_where_the_folder_should_be(tmp_path: Path):
    three(tmp_path)
    (tmp_path / ".fastfeed-index").write_text("in the way")
    with pytest.raises(DestinationError, match="File exists"):
        index_tars(str(tmp_path / "*.tar"))


# ------------------------------------------------------------------------------------------------ many at once
RANK = (
    "import sys, time\n"
    "from fastfeed.source.tarindex import index_tars\n"
    "while time.time() < float(sys.argv[2]): pass\n"
    "result = index_tars(sys.argv[1])\n"
    "print(result.walked, result.samples)\n"
)


@pytest.mark.long
def test_of_many_processes_one_walks_and_all_have_the_index(tmp_path: Path):
    for number in range(20):
        write_tar(tmp_path / f"{number}.tar", pairs(200, 200 * number))
    at = str(time.time() + 2)
    ranks = [
        subprocess.Popen([sys.executable, "-c", RANK, str(tmp_path / "*.tar"), at], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for _ in range(5)
    ]
    told = sorted(rank.communicate()[0] for rank in ranks)
    assert told == ["0 4000\n"] * 4 + ["20 4000\n"]
    assert len(index_files(tmp_path)) == 2


@pytest.mark.parametrize("number", [37, 95])  # ENOLCK, ENOTSUP
def test_where_the_file_system_knows_no_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int):
    def refuse(descriptor: int, how: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    three(tmp_path)
    (tmp_path / ".fastfeed-index").mkdir()
    (tmp_path / ".fastfeed-index" / "tars-0.part").write_bytes(b"another's")
    assert index_tars(str(tmp_path / "*.tar")).walked == 3
    assert "tars-0.part" in index_files(tmp_path), "it may belong to a process that is alive"


def test_a_lock_that_fails_otherwise_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(descriptor: int, how: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(fcntl, "flock", fail)
    with pytest.raises(DestinationError, match="Input/output error"):
        index_tars(str(three(tmp_path) / "*.tar"))


@pytest.mark.long
def test_a_process_that_is_killed_leaves_nothing_that_counts(tmp_path: Path):
    """[P3]"""
    for number in range(4):
        write_tar(tmp_path / f"{number}.tar", pairs(5000, 5000 * number))
    code = "import sys\nfrom fastfeed.source.tarindex import index_tars\nindex_tars(sys.argv[1])\n"
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "*.tar")], cwd=ROOT) as process:
        wait_for((tmp_path / ".fastfeed-index" / "lock").exists, "the lock")
        process.kill()
    assert [name for name in index_files(tmp_path) if name.startswith("tars-") and not name.endswith(".part")] == []
    (tmp_path / ".fastfeed-index" / "tars-0123.00.part").write_bytes(b"half")
    assert index_tars(str(tmp_path / "*.tar")).samples == 20_000
    assert not [name for name in index_files(tmp_path) if name.endswith(".part")]


def test_what_fails_in_one_tar_ends_the_call_with_its_name(tmp_path: Path):
    three(tmp_path)
    (tmp_path / "1.tar").write_bytes(b"BZh91AY&SY" + bytes(100))
    with pytest.raises(SourceUnreadable, match=r"1\.tar is compressed with bzip2"):
        index_tars(str(tmp_path / "*.tar"))
    assert index_files(tmp_path) == ["lock"]


# ------------------------------------------------------------------------------------------------ what is told
def test_findings_are_told_by_tar_and_byte(tmp_path: Path):
    """[P16]"""
    three(tmp_path)
    raw = (tmp_path / "1.tar").read_bytes()
    at = offsets(raw)[3]
    (tmp_path / "1.tar").write_bytes(replaced(raw, at + 148, b"\0" * 8))
    (tmp_path / "2.tar").write_bytes((tmp_path / "0.tar").read_bytes())
    result = index_tars(str(tmp_path / "*.tar"))
    assert result == result_of(TarSet(result.path, result.base), 3, result.seconds)
    assert (result.dropped, result.lost) == (1, 2)
    assert [(kind.kind, kind.count, kind.lost) for kind in result.found] == [
        ("damaged", 1, True), ("dropped", 1, True), ("shared-key", 4, False),
    ]  # fmt: skip
    assert result.found[0].examples[0].startswith(f"1.tar, bytes [{at}, {offsets(raw)[4]}): where a header's checksum stands")
    assert result.found[2].examples[0] == "2.tar, bytes [0, 512): key 000000 is also in 0.tar, at byte 0"


def test_kinds_are_lost_or_noted():
    assert not LOST & NOTED


def test_wrong_calls(tmp_path: Path):
    with pytest.raises(UsageError, match="an empty list was given"):
        index_tars([])
    with pytest.raises(NotADataset, match="no file matches"):
        index_tars(str(tmp_path / "*.tar"))


@pytest.mark.parametrize("form", [gzipped, zstandarded])
def test_a_compression_that_breaks_costs_what_is_behind(tmp_path: Path, form):
    """Not what is before, and not the call."""
    chance = random.Random(7)
    listed = [(f"{number:04d}.txt", bytes(chance.choices(b"abcdefgh \n", k=4000))) for number in range(300)]
    raw = form(tar_of(listed))
    at = len(raw) // 2
    (tmp_path / "a.tar.x").write_bytes(raw[:at] + b"\xff" * 5000 + raw[at + 5000 :])
    (tmp_path / "b.tar").write_bytes(tar_of(pairs(2)))
    result = index_tars([tmp_path / "a.tar.x", tmp_path / "b.tar"])
    tars = TarSet(result.path, result.base)
    count = tars.tars[0].samples
    assert 100 < count < 160
    assert [kind.kind for kind in result.found if kind.lost] == ["stream"]
    assert result.samples == count + 2
    assert read_all(result)[:count] == [{"__key__": name[:4], "txt": data} for name, data in listed[:count]]
