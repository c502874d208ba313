import os

import pytest
from helpers import encoded, files_below, packed, photo
from packing import Hook, contents, left_out_of, python_without_privileges, read_back, tree

import fastfeed
from fastfeed.errors import SourceChanged, SourceError, SourceUnreadable
from fastfeed.packer.worker import CHUNK_BYTES


@pytest.mark.parametrize("size", [CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES, 3 * CHUNK_BYTES + 513])
def test_large_members_are_carried_in_pieces(tmp_path, size):
    block = os.urandom(1 << 16)
    large = (block * (size // len(block) + 1))[:size]
    source = tree(tmp_path / "s", {"1.bin": "before", "2.bin": large, "3.bin": "behind"})
    hook = Hook()
    packed(source, tmp_path / "out", shards=1, progress=hook)
    assert contents(read_back(tmp_path / "out")) == {"1.bin": b"before", "2.bin": large, "3.bin": b"behind"}
    assert (hook.items["pack"], hook.size_bytes["pack"]) == (3, size + 12)
    assert fastfeed.verify(tmp_path / "out").ok


def test_a_large_image_is_probed_by_its_head(tmp_path):
    image = encoded(photo(1, (64, 48))) + bytes(CHUNK_BYTES)
    packed(tree(tmp_path / "s", {"1.jpg": image}), tmp_path / "out")
    info = fastfeed.open(tmp_path / "out")
    assert (list(info.column("width")), list(info.column("height"))) == ([64], [48])


def as_fifo(path):
    path.unlink()
    os.mkfifo(path)


def as_folder(path):
    path.unlink()
    path.mkdir()


def as_other_file(path):
    path.with_suffix(".new").write_text("six by")
    path.with_suffix(".new").rename(path)


LATE_CHANGES = {
    "grew": lambda path: path.write_text("longer than it was"),
    "shrank": lambda path: path.write_text("s"),
    "touched": lambda path: os.utime(path, ns=(1, 2)),
    "replaced": as_other_file,
    "fifo": as_fifo,  # opening one without a writer would hang
    "folder": as_folder,
}


@pytest.mark.parametrize("on_error", ["stop", "skip"])
@pytest.mark.parametrize("change", LATE_CHANGES)
def test_pain_5_a_file_that_changes_while_packing_stops_the_run_by_name(tmp_path, change, on_error):
    source = tree(tmp_path / "s", {f"{at}.txt": "content" for at in range(4)})
    hook = Hook(on_start={"pack": lambda: LATE_CHANGES[change](source / "2.txt")})
    with pytest.raises(SourceChanged, match=r"source files changed while they were packed \(2.txt: .*--overwrite"):
        packed(source, tmp_path / "out", progress=hook, on_error=on_error)
    assert not list((tmp_path / "out").rglob("*.part"))
    assert not (tmp_path / "out" / ".fastfeed" / "manifest.json").exists()


def test_a_large_file_that_changes_while_packing(tmp_path):
    source = tree(tmp_path / "s", {"1.bin": bytes(CHUNK_BYTES + 5), "2.bin": "x"})
    hook = Hook(on_start={"pack": lambda: os.truncate(source / "1.bin", CHUNK_BYTES)})
    with pytest.raises(SourceChanged, match=r"1.bin: planned with 4194309 bytes and mtime \d+, now 4194304 and"):
        packed(source, tmp_path / "out", progress=hook)


def test_vanished_files_stop_the_run_and_all_are_named(tmp_path):
    source = tree(tmp_path / "s", {f"{at}.txt": "content" for at in range(9)})
    gone = [source / f"{at}.txt" for at in (1, 4, 6)]
    hook = Hook(on_start={"pack": lambda: [path.unlink() for path in gone]})
    names = "; ".join(f"{path.name}: No such file or directory" for path in gone)
    with pytest.raises(SourceUnreadable, match=rf"3 source files cannot be read \({names}\).*run the same command again"):
        packed(source, tmp_path / "out", progress=hook)
    before = {name: raw for name, raw in files_below(tmp_path / "out").items() if name.endswith(".tar")}
    assert not before  # one shard, and it is whole or not there
    for path in gone:
        path.write_text("content")
    with pytest.raises(SourceError, match=r"1\.txt was touched"):  # brought back, but not as it was
        packed(source, tmp_path / "out")


def test_vanished_files_are_skipped_with_their_samples_and_recorded(tmp_path):
    source = tree(tmp_path / "s", {f"{at}.{field}": f"{at}" for at in range(6) for field in ("txt", "json")})
    hook = Hook(on_start={"pack": lambda: (source / "3.txt").unlink(missing_ok=True)})
    result = packed(source, tmp_path / "out", progress=hook, on_error="skip", samples_per_shard=2)
    assert result.skipped == 1 and result.datasets[0].samples == 5
    assert left_out_of(tmp_path / "out") == {"3.txt": "unreadable", "3.json": "incomplete"}
    assert [sample.key for sample in read_back(tmp_path / "out")] == ["0", "1", "2", "4", "5"]
    assert fastfeed.verify(tmp_path / "out").ok


def test_a_read_error_in_the_midst(tmp_path):
    """A file that opens and does not read: here one that the kernel refuses to read."""
    refusing = "/sys/class/net/lo/speed"
    try:
        with open(refusing, "rb") as file:
            file.read()
    except FileNotFoundError:
        pytest.skip(f"there is no {refusing} here")
    except OSError as error:
        why = error.strerror
    else:
        pytest.skip(f"{refusing} can be read here")
    source = tree(tmp_path / "s", {f"{at}.txt": "x" for at in range(3)})
    os.symlink(refusing, source / "bad.txt")
    with pytest.raises(SourceUnreadable, match=rf"1 source file cannot be read \(bad.txt: {why}\)"):
        packed(source, tmp_path / "out")
    result = packed(source, tmp_path / "skipped", on_error="skip", samples_per_shard=1)
    assert (result.skipped, result.datasets[0].samples, result.datasets[0].shards) == (1, 3, 3)
    assert fastfeed.verify(tmp_path / "skipped").ok  # no shard of the first plan is left
    again = packed(source, tmp_path / "skipped", on_error="skip", samples_per_shard=1)
    assert again.already_packed and again.datasets == result.datasets and again.skipped == 1


def test_a_destination_that_refuses_is_named(tmp_path):
    source = tree(tmp_path / "s", {"1.txt": "x"})
    (tmp_path / "closed").mkdir(mode=0o500)
    code = "import fastfeed, sys\nfastfeed.pack(sys.argv[1], sys.argv[2])"
    done = python_without_privileges(code, str(source), str(tmp_path / "closed" / "out"))
    assert done.returncode == 1
    assert "DestinationError: the destination cannot be made: Permission denied" in done.stderr


def test_a_shard_that_cannot_be_put_in_its_place_is_named(tmp_path):
    source = tree(tmp_path / "s", {"1.txt": "x"})
    hook = Hook(on_start={"pack": (tmp_path / "out" / "s-000000.tar").mkdir})
    with pytest.raises(fastfeed.DestinationError, match=r"the destination cannot be written .*s-000000.*Is a directory"):
        packed(source, tmp_path / "out", progress=hook)
    (tmp_path / "out" / "s-000000.tar").rmdir()
    assert packed(source, tmp_path / "out").shards_written == 1
