import gc
import os
import tarfile
import tempfile
from io import BytesIO

import pytest
from helpers import SHARED_DATA, encoded, files_below, photo
from packing import contents, read_back

import fastfeed
from fastfeed.config import RowConfig
from fastfeed.errors import SourceUnreadable, UsageError
from fastfeed.packer.rows.tars import TarRows


def tar(path, members):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as file:
        for name, data in members:
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = len(data), 1.5  # a PAX header each, as webdataset writes
            file.addfile(entry, BytesIO(data))
    return path


def wds(folder, tars=2, each=5, label=True):
    for number in range(tars):
        members = []
        for at in range(each):
            key = f"a dir/{number}x{at:03d}" if at == 0 else f"dir/{number}{at:03d}"
            members += [(f"{key}.jpg", encoded(photo(number * 10 + at))), (f"{key}.json", b'{"at": %d}' % at)]
            members += [(f"{key}.cls", b"%d" % (at % 3))] if label else []
        tar(folder / f"set-{number:03d}.tar", members)
    return folder


def test_samples_of_tars_are_packed_byte_for_byte_whatever_the_workers(tmp_path):
    source = wds(tmp_path / "s")
    result = fastfeed.pack(f"{source}/*.tar", tmp_path / "1", workers=1, shards=3)
    fastfeed.pack(f"{source}/*.tar", tmp_path / "2", workers=2, shards=3)
    assert files_below(tmp_path / "1") == files_below(tmp_path / "2")
    assert fastfeed.verify(tmp_path / "1").ok
    dataset = result.datasets[0]
    assert (dataset.samples, dataset.fields, dataset.classes) == (10, ("cls", "jpg", "json"), 3)
    fastfeed.index_tars(f"{source}/*.tar")
    before, after = fastfeed.open(f"{source}/*.tar"), fastfeed.open(tmp_path / "1")
    assert [sample["json"] for sample in after] == [sample["json"] for sample in before]
    assert [sample["cls"] for sample in after] == [sample["cls"] for sample in before] == list(after.targets)
    found = contents(read_back(tmp_path / "1"))
    assert found["dir/0001.jpg"] == encoded(photo(1))
    again = fastfeed.pack(f"{source}/*.tar", tmp_path / "1", shards=3)
    assert again.already_packed


def test_without_labels_and_with_keys_that_tars_share(tmp_path):
    for number in range(2):
        tar(tmp_path / "s" / f"{number}.tar", [("1.txt", b"%d" % number), ("2.txt", b"x")])
    fastfeed.pack(f"{tmp_path}/s/*.tar", tmp_path / "out")
    ds = fastfeed.open(tmp_path / "out")
    assert [sample["txt"] for sample in ds] == ["0", "x", "1", "x"] and len({ds.identity(at).key for at in range(4)}) == 4
    assert fastfeed.verify(tmp_path / "out").ok


def test_damage_stops_and_skip_leaves_it_out_and_records_it(tmp_path):
    source = wds(tmp_path / "s", tars=1)
    raw = bytearray((source / "set-000.tar").read_bytes())
    at = raw.index(b"dir/0002.jpg")
    raw[at + 148] ^= 0xFF
    (source / "set-000.tar").write_bytes(raw)
    with pytest.raises(SourceUnreadable, match="cannot be read"):
        fastfeed.pack(source / "set-000.tar", tmp_path / "out")
    result = fastfeed.pack(source / "set-000.tar", tmp_path / "out", on_error="skip")
    assert result.skipped and result.datasets[0].samples == 4 and fastfeed.verify(tmp_path / "out").ok


def test_the_index_is_for_this_pack_alone_and_nothing_is_written_beside_the_tars(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "t"))
    (tmp_path / "t").mkdir()
    source = wds(tmp_path / "s")
    before = sorted(os.listdir(source))
    rows = TarRows.of_paths([f"{source}/*.tar"], RowConfig())
    assert "for this pack alone" in " ".join(rows.facts().why) and len(os.listdir(tmp_path / "t")) == 1
    del rows
    fastfeed.pack(f"{source}/*.tar", tmp_path / "out", workers=2)
    assert sorted(os.listdir(source)) == before
    gc.collect()
    assert os.listdir(tmp_path / "t") == []


def test_options_of_lists_do_not_apply(tmp_path):
    with pytest.raises(UsageError, match="fields and keys of tars are as they are"):
        fastfeed.pack(f"{wds(tmp_path / 's')}/*.tar", tmp_path / "out", label="cls")


@pytest.mark.skipif(not (SHARED_DATA / "wds-real").is_dir(), reason="../shared/data/wds-real is not here")
def test_real_tars_packed_anew_hold_the_same_samples(tmp_path):
    real = SHARED_DATA / "wds-real" / "dali-mnist"
    tars = sorted(real.rglob("*.tar"))
    if not tars:
        pytest.skip("no tar in ../shared/data/wds-real/dali-mnist")
    copies = tmp_path / "copies"
    copies.mkdir()
    for path in tars[:2]:
        (copies / path.name).write_bytes(path.read_bytes())
    fastfeed.pack(f"{copies}/*.tar", tmp_path / "out", on_error="skip")
    fastfeed.index_tars(f"{copies}/*.tar")
    before = fastfeed.open(f"{copies}/*.tar")
    after = fastfeed.open(tmp_path / "out")
    assert len(before) == len(after) and fastfeed.verify(tmp_path / "out").ok


@pytest.mark.parametrize("options", [{}, {"write_cls": False}])
def test_members_that_hold_the_class_are_carried_byte_for_byte_and_unpacked(tmp_path, options):
    classes = [b"0\n", b"000", b" +0 ", b"2"]
    files = {f"d/s{at}.cls": data for at, data in enumerate(classes)} | {f"d/s{at}.txt": b"x" for at in range(4)}
    tar(tmp_path / "a.tar", sorted(files.items()))
    result = fastfeed.pack(tmp_path / "a.tar", tmp_path / "out", **options)
    ds = fastfeed.open(tmp_path / "out")
    assert result.datasets[0].fields == ("cls", "txt") and list(ds.targets) == [0, 0, 0, 2]
    assert [sample["cls"] for sample in ds] == [0, 0, 0, 2] and fastfeed.verify(tmp_path / "out").ok
    fastfeed.unpack(tmp_path / "out", tmp_path / "back")
    assert files_below(tmp_path / "back") == files
    planned = fastfeed.pack(tmp_path / "a.tar", tmp_path / "plan", dry_run=True, **options)
    assert planned.datasets[0].fields == ("cls", "txt")


@pytest.mark.parametrize("second", [-1, 10**12, 1 << 20])
def test_numbers_that_are_no_classes_are_carried_and_told(tmp_path, second):
    files = {"a.cls": b"0", "a.txt": b"x", "b.cls": b"%d" % second, "b.txt": b"y"}
    tar(tmp_path / "a.tar", sorted(files.items()))
    result = fastfeed.pack(tmp_path / "a.tar", tmp_path / "out")
    assert f"sample 1 (a.tar/b.cls) has the number {second}, and classes are 0 to 1048575" in " ".join(result.notes)
    assert result.datasets[0].classes is None and fastfeed.verify(tmp_path / "out").ok
    assert [sample["cls"] for sample in fastfeed.open(tmp_path / "out")] == [0, second]
    fastfeed.unpack(tmp_path / "out", tmp_path / "back")
    assert files_below(tmp_path / "back") == files


@pytest.mark.long
def test_the_largest_number_that_is_a_class_is_one(tmp_path):
    tar(tmp_path / "a.tar", [("a.cls", b"%d" % ((1 << 20) - 1)), ("a.txt", b"x")])
    fastfeed.pack(tmp_path / "a.tar", tmp_path / "out")
    assert list(fastfeed.open(tmp_path / "out").targets) == [(1 << 20) - 1]


@pytest.mark.parametrize("proven", [64 << 20, 0], ids=["small", "large"])
@pytest.mark.parametrize("name", ["offset", "size", "field"])
def test_a_damaged_index_is_not_believed(tmp_path, monkeypatch, name, proven):
    source = wds(tmp_path / "s", tars=1)
    monkeypatch.setattr("fastfeed.archive.tars.PROVEN_BYTES", proven)
    fastfeed.index_tars(f"{source}/*.tar")
    rows = TarRows.of_paths([f"{source}/*.tar"], RowConfig())
    column = rows.tars.index.table.columns["member", name]
    (path,) = (source / ".fastfeed-index").glob("tars-*")
    raw = bytearray(path.read_bytes())
    raw[column.extents[0][0]] ^= 1
    path.write_bytes(raw)
    result = fastfeed.pack(f"{source}/*.tar", tmp_path / "out", workers=1)
    assert f"their index cannot be used (column {name} of member is damaged): one was made" in " ".join(result.datasets[0].why)
    found = contents(read_back(tmp_path / "out"))
    assert [found[f"dir/0{at:03d}.jpg"] for at in range(1, 5)] == [encoded(photo(at)) for at in range(1, 5)]
