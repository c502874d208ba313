"""One tar as rows, and the rows of all tars put together."""

import os
from pathlib import Path

import pytest
from tarring import gzipped, offsets, pairs, tar_of, write_tar, zstandarded

from fastfeed.archive.bytestrings import ByteStrings
from fastfeed.archive.tars import GZIP, MAX_FINDINGS, NO_LABEL, PLAIN, ZSTD, TarFile, TarsData, TarSet
from fastfeed.errors import SourceAmbiguous, SourceChanged, SourceUnreadable
from fastfeed.source.tarrows import Indexed, Older, TarWalk, form_of, open_tar, put_together
from fastfeed.source.tarwalk import Finding
from fastfeed.source.wds import TarRows


def walked(path: Path, *, checksums: bool = False) -> Indexed:
    return TarWalk(str(path.parent), path.name, checksums=checksums).run()


def saved(folder: Path, data: TarsData) -> TarSet:
    with (folder / "index").open("wb") as file:
        data.write(file)
    return TarSet(str(folder / "index"), str(folder))


@pytest.mark.parametrize(("form", "raw"), [
    (PLAIN, tar_of(pairs(9))), (GZIP, gzipped(tar_of(pairs(9)), 2)), (ZSTD, zstandarded(tar_of(pairs(9)), 3000)),
])  # fmt: skip
def test_a_tar_of_any_form_has_the_same_rows(tmp_path: Path, form: int, raw: bytes):
    path = tmp_path / "a.whatever"
    path.write_bytes(raw)
    item, plain = walked(path, checksums=True), walked(write_tar(tmp_path / "b.tar", pairs(9)), checksums=True)
    assert item.rows == plain.rows
    facts = path.stat()
    assert item.entry == TarFile("a.whatever", facts.st_size, facts.st_mtime_ns, form, len(tar_of(pairs(9))), 9, 0)
    assert len(item.frames) == (-(-len(tar_of(pairs(9))) // 3000) if form == ZSTD else 0)
    with open_tar(str(path)) as blocks:
        assert blocks.read(0, 1 << 20) == tar_of(pairs(9))


OTHERS = [
    (b"BZh91AY&SY", "bzip2"),
    (b"\xfd7zXZ\0\0\4", "xz"),
    (b"\x04\x22\x4d\x18dC@\xa7", "lz4"),
    (b"PK\3\4\0\0\0\0", "zip"),
    (b"7z\xbc\xaf\x27\x1c", "7z"),
]


@pytest.mark.parametrize(("raw", "name"), OTHERS)
def test_other_compressions_are_refused_with_words(tmp_path: Path, raw: bytes, name: str):
    (tmp_path / "a.tar").write_bytes(raw + bytes(1000))
    with pytest.raises(SourceUnreadable, match=rf"a\.tar is compressed with {name}, which cannot be read in place"):
        walked(tmp_path / "a.tar")


def test_forms():
    assert form_of(b"", "") == form_of(b"0001.jpg", "") == PLAIN
    assert form_of(b"\x1f\x8b", "") == GZIP
    assert form_of(b"\x28\xb5\x2f\xfd", "") == form_of(b"\x50\x2a\x4d\x18\0\0\0\0", "") == ZSTD


def test_a_tar_that_cannot_be_opened(tmp_path: Path):
    with pytest.raises(SourceUnreadable, match="a tar cannot be opened: No such file or directory"):
        walked(tmp_path / "none.tar")
    os.mkfifo(tmp_path / "pipe.tar")
    with pytest.raises(SourceUnreadable, match="a tar cannot be opened: not a regular file"):
        walked(tmp_path / "pipe.tar")


def test_a_tar_that_is_being_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = write_tar(tmp_path / "a.tar", pairs(3))
    pread = os.pread

    def grow(*args: int) -> bytes:
        with path.open("ab") as file:
            file.write(b"more")
        return pread(*args)

    monkeypatch.setattr(os, "pread", grow)
    with pytest.raises(SourceChanged, match="a tar changed while it was indexed: somebody is writing it"):
        walked(path)


def test_how_far_it_is(tmp_path: Path):
    walk = TarWalk(str(write_tar(tmp_path / "a.tar", pairs(3)).parent), "a.tar", checksums=False)
    assert walk.at == 0
    walk.run()
    assert walk.at == (tmp_path / "a.tar").stat().st_size


def test_a_large_frame_is_a_note(tmp_path: Path):
    raw = tar_of([(f"{number}.bin", bytes(1 << 20)) for number in range(20)])
    for frame_bytes, kinds in ((None, ["large-frame"]), (1 << 20, [])):
        (tmp_path / "a.tar.zst").write_bytes(zstandarded(raw, frame_bytes))
        findings = walked(tmp_path / "a.tar.zst").rows.findings
        assert [finding.kind for finding in findings] == kinds
    (tmp_path / "a.tar.zst").write_bytes(zstandarded(raw))
    assert walked(tmp_path / "a.tar.zst").rows.findings[0].text.startswith("its largest Zstandard frame holds 20.0 MiB")


# ------------------------------------------------------------------------------------------------ together
def test_fields_are_numbered_anew(tmp_path: Path):
    one = walked(write_tar(tmp_path / "1.tar", [("a.txt", b"1"), ("a.json", b"{}"), ("b.TXT", b"2")]))
    two = walked(write_tar(tmp_path / "2.tar", [("c.jpg", b"3"), ("c.txt", b"4"), ("c.cls", b"5")]))
    data = put_together([one, two])
    assert data.fields == ["cls", "jpg", "json", "txt"]
    assert list(data.member_fields) == [3, 2, 3, 1, 3, 0]
    assert [data.extensions[number] for number in data.written] == [b"txt", b"json", b"TXT", b"jpg", b"txt", b"cls"]
    assert put_together([two]).extensions == []
    assert list(data.labels) == [NO_LABEL, NO_LABEL, 5]
    assert list(data.counts) == [2, 1, 3]
    assert data.digests is None


def test_a_field_of_a_sample_that_is_left_out_is_none(tmp_path: Path):
    raw = tar_of([*pairs(2), ("x.odd", b"1"), ("x.bin", b"0" * 600)])
    (tmp_path / "a.tar").write_bytes(raw[: offsets(raw)[-1] + 700])
    data = put_together([walked(tmp_path / "a.tar")])
    assert data.fields == ["cls", "txt"]
    assert data.tars[0].dropped == 1


def test_keys_that_two_tars_share(tmp_path: Path):
    for name in ("1.tar", "2.tar", "3.tar"):
        write_tar(tmp_path / name, [("a.txt", b"1"), (f"{name[0]}.txt", b"2"), ("b.txt", b"3")][: 2 if name == "3.tar" else 3])
    data = put_together([walked(tmp_path / name) for name in ("1.tar", "2.tar", "3.tar")])
    assert data.found == {"shared-key": 3}
    assert [(finding.tar, finding.start, finding.text) for finding in data.findings] == [
        (1, 0, "key a is also in 1.tar, at byte 0"),
        (1, 2048, "key b is also in 1.tar, at byte 2048"),
        (2, 0, "key a is also in 1.tar, at byte 0"),
    ]
    assert len(data.keys) == 8, "both samples are kept"


def test_many_findings_are_counted_and_the_first_told(tmp_path: Path):
    item = walked(write_tar(tmp_path / "a.tar", pairs(1)))
    item.rows.findings.extend(Finding("link", at, at + 1, "x") for at in range(MAX_FINDINGS + 5))
    data = put_together([item])
    assert data.found == {"link": MAX_FINDINGS + 5}
    assert len(data.findings) == MAX_FINDINGS
    assert not Older(saved(tmp_path, data)).complete


def test_no_sample_at_all(tmp_path: Path):
    (tmp_path / "a.tar").write_bytes(b"<html>" * 1000)
    with pytest.raises(SourceUnreadable, match=r"there is no sample in 1 tar, the first of which is a\.tar: where a header"):
        put_together([walked(tmp_path / "a.tar")])
    with pytest.raises(SourceUnreadable, match=r"they are empty"):
        put_together([walked(write_tar(tmp_path / "b.tar", []))])


def test_more_fields_than_have_numbers():
    rows = TarRows(ByteStrings([b"video"]), extensions=[b"%d.jpg" % number for number in range(65_537)])
    rows.written.extend(range(65_537))
    item = Indexed(TarFile("a.tar", 1, 1, PLAIN, 1, 1, 0), rows)
    with pytest.raises(SourceAmbiguous, match=r"the members' names have 65,537 different extensions, such as 0\.jpg"):
        put_together([item])


# ------------------------------------------------------------------------------------------------ taken over
@pytest.mark.parametrize("checksums", [True, False])
def test_rows_are_taken_over_as_they_were(tmp_path: Path, checksums: bool):
    write_tar(tmp_path / "1.tar", [*pairs(3), ("d", b""), ("b.JPG", b"1")])
    (tmp_path / "2.tar").write_bytes(zstandarded(tar_of([*pairs(4, 10), *pairs(1)]), 2000))
    items = [walked(tmp_path / name, checksums=checksums) for name in ("1.tar", "2.tar")]
    data = put_together(items)
    older = Older(saved(tmp_path, data))
    assert older.complete
    assert older.checksums == checksums
    taken = [older.take(number) for number in range(2)]
    for item, wanted in zip(taken, items, strict=True):
        assert (item.entry, item.rows.keys) == (wanted.entry, wanted.rows.keys)
        assert item.frames.ats == wanted.frames.ats
    again = put_together(taken)
    assert saved(tmp_path, again).digest == older.tars.digest
    assert again.found == {"no-field": 1, "shared-key": 1}
