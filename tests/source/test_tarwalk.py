"""The walk: every member as tarfile sees it, and every byte that belongs to none."""

import io
import os
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import xxhash
from helpers import SHARED_DATA
from hypothesis import given, settings
from hypothesis import strategies as st
from tarring import BLOCK, header, offsets, pairs, replaced, tar_of, with_checksum

from fastfeed.archive.tars import LOST
from fastfeed.source.tarwalk import Finding, Member, Walk
from fastfeed.store.blocks import PlainBlocks, StreamedBlocks


@contextmanager
def blocks_of(raw: bytes) -> Iterator[PlainBlocks]:
    with tempfile.TemporaryFile() as file:
        file.write(raw)
        file.flush()
        yield PlainBlocks(file.fileno())


def walk(raw: bytes, *, checksums: bool = False, chunk_bytes: int | None = None) -> list[Member | Finding]:
    """All that a walk finds; as a stream of chunks where their size is given."""
    if chunk_bytes is not None:
        chunks = (raw[at : at + chunk_bytes] for at in range(0, len(raw), chunk_bytes))
        return list(Walk(StreamedBlocks(chunks), checksums=checksums).run())
    with blocks_of(raw) as blocks:
        return list(Walk(blocks, checksums=checksums).run())


def members(found: list[Member | Finding]) -> list[Member]:
    return [item for item in found if isinstance(item, Member)]


def findings(found: list[Member | Finding]) -> list[Finding]:
    return [item for item in found if isinstance(item, Finding)]


def kinds(found: list[Member | Finding]) -> list[str]:
    return [item.kind for item in findings(found)]


def by_tarfile(raw: bytes) -> list[tuple[bytes, int, int]]:
    with tarfile.open(fileobj=io.BytesIO(raw), mode="r:") as tar:
        return [(os.fsencode(info.name), info.offset_data, info.size) for info in tar if info.isreg() and not info.issparse()]


# ------------------------------------------------------------------------------------------------ as tarfile
NAMES = st.text(
    st.characters(min_codepoint=1, max_codepoint=0x2FFF, exclude_characters="\0", exclude_categories=["Cs"]),
    min_size=1,
    max_size=150,
).filter(lambda name: not name.endswith("/") and name.strip("/"))
KINDS = st.sampled_from([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(NAMES, st.binary(max_size=1500)), max_size=8), KINDS, st.sampled_from([None, 100, 512, 5000]))
def test_tars_of_any_format_are_read_as_tarfile_reads_them(listed: list[tuple[str, bytes]], kind: int, chunk_bytes: int | None):
    try:
        raw = tar_of(listed, kind)
    except ValueError:  # USTAR has no room for the name
        return
    found = walk(raw, chunk_bytes=chunk_bytes, checksums=True)
    assert kinds(found) == []
    assert [(name, start, size) for name, start, size, *_ in members(found)] == by_tarfile(raw)
    for member, (_, data) in zip(members(found), listed, strict=True):
        assert member.xxh3 == xxhash.xxh3_64_intdigest(data)
        assert member.head == (data if len(data) <= 20 else b"")


def test_a_member_beyond_8_gib_has_its_size_by_gnu_and_by_pax():
    huge = 1 << 33
    for kind in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        info = tarfile.TarInfo("big.bin")
        info.size = huge
        with tempfile.TemporaryFile() as file:
            head = info.tobuf(kind)
            file.write(head)
            file.truncate(len(head) + huge)  # a hole
            file.seek(0, os.SEEK_END)
            file.write(tar_of([("a.txt", b"x")]))
            file.flush()
            found = list(Walk(PlainBlocks(file.fileno())).run())
        assert [(member.name, member.size) for member in members(found)] == [(b"big.bin", huge), (b"a.txt", b"x".__len__())]
        assert kinds(found) == []


def test_real_and_odd_archives_as_tarfile_reads_them():
    folder = SHARED_DATA / "wds-real"
    if not folder.exists():
        pytest.skip("needs ../shared/data")
    seen = 0
    for path in sorted(folder.rglob("*.tar")):
        raw = path.read_bytes()
        if "incremental" in path.name and "mockup" not in path.name and "long" not in path.name:
            continue  # GNU's times in the place of the prefix: tarfile takes them for folders
        try:
            wanted = by_tarfile(raw)
        except tarfile.ReadError:
            assert set(kinds(walk(raw))) & LOST, path
        else:
            assert [tuple(member[:3]) for member in members(walk(raw))] == wanted, path
        seen += 1
    assert seen > 25


def test_the_prefix_of_gnus_incremental_backups_is_no_folder():
    path = SHARED_DATA / "wds-real/archives-edge/ratarmount/single-file-incremental.tar"
    if not path.exists():
        pytest.skip("needs ../shared/data")
    assert [member.name for member in members(walk(path.read_bytes()))] == [b"foo"]


# ------------------------------------------------------------------------------------------------ what is no member
def test_what_is_no_file_is_told():
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, kind in (("d", tarfile.DIRTYPE), ("s", tarfile.SYMTYPE), ("h", tarfile.LNKTYPE), ("p", tarfile.FIFOTYPE),
                           ("c", tarfile.CHRTYPE)):  # fmt: skip
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "a.txt"
            tar.addfile(info)
        tar.addfile(tarfile.TarInfo("a.txt"))
    found = walk(out.getvalue())
    assert [(item.kind, item.start, item.stop, item.text) for item in findings(found)] == [
        ("link", 512, 1024, "s is no file: symbolic link"),
        ("link", 1024, 1536, "h is no file: hard link"),
        ("special", 1536, 2048, "p is no file: FIFO"),
        ("special", 2048, 2560, "c is no file: character device"),
    ]
    assert [member.name for member in members(found)] == [b"a.txt"]


def test_a_member_of_an_unknown_type_is_passed_over_with_its_content():
    odd = with_checksum(replaced(header("odd", 700), 156, b"Z")) + b"z" * 1024
    found = walk(odd + tar_of([("a.txt", b"1")]))
    assert [(item.kind, item.start, item.stop) for item in findings(found)] == [("special", 0, 1536)]
    assert "member of the unknown type b'Z'" in findings(found)[0].text
    assert [member.name for member in members(found)] == [b"a.txt"]


@pytest.mark.parametrize("chunk_bytes", [None, 300])
def test_sparse_members_are_unusable_and_what_follows_is_read(chunk_bytes: int | None):
    old = bytearray(header("hole.bin", 512))
    old[156:157], old[482] = b"S", 1
    extension = bytearray(BLOCK)
    extension[504] = 1
    raw = with_checksum(old) + bytes(extension) + bytes(BLOCK) + b"d" * BLOCK
    records = b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n28 GNU.sparse.name=real.bin\n"
    raw += (
        header("x", len(records), type=b"x")
        + records.ljust(BLOCK, b"\0")
        + header("GNUSparseFile.0/real.bin", 600)
        + b"d" * 1024
    )
    found = walk(raw + tar_of([("a.txt", b"1")]), chunk_bytes=chunk_bytes)
    assert [(item.kind, item.start, item.stop, item.member) for item in findings(found)] == [
        ("sparse", 0, 4 * BLOCK, b"hole.bin"),
        ("sparse", 4 * BLOCK, 9 * BLOCK, b"real.bin"),
    ]
    assert [member.name for member in members(found)] == [b"a.txt"]


# ------------------------------------------------------------------------------------------------ damage
@pytest.mark.parametrize("chunk_bytes", [None, 700])
@pytest.mark.parametrize("at", [0, 1, 7, 13])
def test_a_header_that_does_not_hold_costs_its_member_alone(at: int, chunk_bytes: int | None):
    """[P11]: tarfile and webdataset stop there without a word."""
    raw = tar_of(pairs(7))
    start = offsets(raw)[at]
    stop = [*offsets(raw), len(tar_of(pairs(7)))][at + 1] if at < 13 else None
    found = walk(replaced(raw, start + 148, b"\0" * 8), chunk_bytes=chunk_bytes)
    names = [name.encode() for name, _ in pairs(7)]
    assert [member.name for member in members(found)] == names[:at] + names[at + 1 :]
    (finding,) = findings(found)
    assert (finding.kind, finding.start) == ("damaged", start)
    if stop is not None:
        assert finding.stop == stop
        assert finding.text.endswith(f"the next header that holds is at byte {stop}")
    else:
        assert finding.stop == len(raw)
        assert finding.text.endswith("no header holds behind it")


def test_every_byte_of_a_damaged_tar_is_told_of():
    raw = bytearray(tar_of(pairs(9)))
    for start in (700, 3000, 3300, 6100):
        raw[start : start + 900] = b"\xa5" * 900
    with blocks_of(bytes(raw)) as blocks:
        found = list(Walk(blocks).run())
    at = 0
    for item in sorted(found, key=lambda item: item.start):
        start = item.start - BLOCK if isinstance(item, Member) else item.start
        assert start == at
        at = item.start + item.size + -item.size % BLOCK if isinstance(item, Member) else item.stop
    assert not any(raw[at:])


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_whatever_is_done_to_a_tar_it_is_read_to_its_end_in_order(data: st.DataObject):
    raw = bytearray(tar_of(pairs(data.draw(st.integers(1, 6))), data.draw(KINDS)))
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(raw) - 1))
        raw[start : start + 40] = data.draw(st.binary(min_size=1, max_size=40))
    cut = bytes(raw[: data.draw(st.integers(0, len(raw)))])
    found = walk(cut)
    at = 0
    for item in found:
        assert at <= item.start <= len(cut)
        if isinstance(item, Member):
            assert item.start + item.size <= len(cut)
            at = item.start + item.size
        else:
            assert item.kind in LOST | {"link", "special", "end-mark", "open-end"}
            assert item.text
    streamed = walk(cut, chunk_bytes=777)
    first_loss = next((number for number, item in enumerate(found) if isinstance(item, Finding)), len(found))
    assert streamed[:first_loss] == found[:first_loss]


@pytest.mark.parametrize("chunk_bytes", [None, 1000])
@pytest.mark.parametrize("size", [1 << 20, 1 << 62, (1 << 87) + 5])
def test_a_member_that_states_more_than_there_is(size: int, chunk_bytes: int | None):
    """[P11]"""
    raw = tar_of(pairs(3))
    third = offsets(raw)[2]
    block = bytearray(raw[third : third + BLOCK])
    block[124:136] = b"\x80" + size.to_bytes(11, "big")
    found = walk(replaced(raw, third, with_checksum(block)), chunk_bytes=chunk_bytes)
    (finding,) = findings(found)
    assert (finding.kind, finding.start, finding.member) == ("cut", third, b"000001.txt")
    assert f"000001.txt states {size:,} bytes, and the tar ends before that" in finding.text
    if chunk_bytes is None:  # of a stream, what has passed is gone
        assert [member.name for member in members(found)][2:] == [b"000001.cls", b"000002.txt", b"000002.cls"]
    else:
        assert len(members(found)) == 2


@pytest.mark.parametrize("chunk_bytes", [None, 300])
def test_cuts(chunk_bytes: int | None):
    """[P16]: at a member's edge, in a header, in a payload, in the zeros."""
    raw = tar_of(pairs(3))
    starts = offsets(raw)
    for cut, kind, count in ((starts[4], "open-end", 4), (starts[4] + 100, "cut", 4), (starts[4] + BLOCK + 3, "cut", 4)):
        found = walk(raw[:cut], chunk_bytes=chunk_bytes)
        assert (kinds(found), len(members(found))) == ([kind], count), cut
    assert kinds(walk(raw[: starts[5] + 2 * BLOCK + 1], chunk_bytes=chunk_bytes)) == ["open-end"]
    for cut in (starts[5] + 3 * BLOCK, starts[5] + 3 * BLOCK + 1, len(raw) - 1):
        assert kinds(walk(raw[:cut], chunk_bytes=chunk_bytes)) == []


def test_an_end_mark_in_the_midst():
    """[P12]"""
    two = tar_of(pairs(2)) + tar_of(pairs(2, first=2))
    found = walk(two)
    assert [member.name for member in members(found)] == [name.encode() for name, _ in pairs(4)]
    (finding,) = findings(found)
    first_end = offsets(tar_of(pairs(2)))[-1] + 2 * BLOCK
    assert (finding.kind, finding.start, finding.stop) == ("end-mark", first_end, len(tar_of(pairs(2))))
    assert "tar and webdataset do not read them" in finding.text
    assert findings(walk(two, chunk_bytes=900)) == [finding]


def test_zeros_over_a_header_are_damage_and_no_end():
    raw = tar_of([(f"{number}.bin", bytes([number + 1]) * 3000) for number in range(4)])
    start = offsets(raw)[1]
    found = walk(replaced(raw, start - 40, bytes(1000)))
    assert [member.name for member in members(found)] == [b"0.bin", b"2.bin", b"3.bin"]
    (finding,) = findings(found)
    assert (finding.kind, finding.start, finding.stop) == ("damaged", start, offsets(raw)[2])
    assert "where a header should be there are" in finding.text


def test_what_is_behind_the_end_and_no_member():
    raw = tar_of(pairs(1))
    assert kinds(walk(raw + bytes(50_000))) == []
    found = walk(raw + b"appended notes\n" * 100)
    assert (kinds(found), len(members(found))) == (["damaged"], 2)
    assert findings(found)[0].stop == len(raw) + 1500


@pytest.mark.parametrize(
    "raw", [b"<html>not found</html>" * 100, b"x", b"\x1f\x8b" + b"z" * 5000, b""], ids=["page", "one", "odd", "empty"]
)
def test_what_is_no_tar(raw: bytes):
    found = walk(raw)
    assert len(found) == 1
    assert isinstance(found[0], Finding) and found[0].kind in {"damaged", "cut"}
    assert walk(bytes(10_240)) == []


# ------------------------------------------------------------------------------------------------ extended headers
def test_headers_about_others_that_lie():
    good = tar_of([("a.txt", b"1")])
    for odd, words in (
        (header("x", 1 << 30, type=b"x"), "a header about the next member states 1,073,741,824 bytes"),
        (header("x", 600, type=b"L"), ""),
        (header("x", 5, type=b"x") + b"0 a=b".ljust(BLOCK, b"\0"), "the PAX record at byte 0"),
        (header("x", 12, type=b"x") + b"12 size=-10\n".ljust(BLOCK, b"\0"), "the PAX size is b'-10'"),
    ):
        found = walk(odd + good)
        assert words in " ".join(item.text for item in findings(found))
        if words:
            assert kinds(found) == ["damaged"]
            assert [member.name for member in members(found)] == ([] if "size" in words else [b"a.txt"])
    cut = walk(good[:1024] + header("x", 600, type=b"L") + b"n" * 100)
    assert kinds(cut) == ["damaged"]
    assert "the tar ends within a header about the next member, behind 100 of 600 bytes" in findings(cut)[0].text


def test_a_header_about_the_next_member_and_then_the_end():
    raw = header("x", 6, type=b"L") + b"n.txt\0".ljust(BLOCK, b"\0")
    (finding,) = findings(walk(raw))
    assert (finding.kind, finding.start, finding.stop) == ("cut", 0, 1024)
    (finding,) = findings(walk(raw + bytes(1024)))
    assert (finding.kind, finding.start, finding.stop) == ("cut", 0, 1024)


def test_global_pax_headers_hold_for_all_that_follow():
    records = b"19 path=global.txt\n"
    assert len(records) == 19
    raw = header("g", len(records), type=b"g") + records.ljust(BLOCK, b"\0") + tar_of([("a.txt", b"1"), ("b.txt", b"2")])
    assert [member.name for member in members(walk(raw))] == [b"global.txt"] * 2
    assert [name for name, *_ in by_tarfile(raw)] == [b"global.txt"] * 2


def test_a_disk_that_gives_an_error():
    class Failing(PlainBlocks):
        def read(self, start: int, count: int) -> bytes:
            if start >= 2000:
                raise OSError(5, "Input/output error")
            return super().read(start, count)

    with tempfile.TemporaryFile() as file:
        file.write(tar_of(pairs(4)))
        file.flush()
        found = list(Walk(Failing(file.fileno())).run())
    assert (kinds(found), len(members(found))) == (["unreadable"], 2)
    assert findings(found)[0].text == "the file cannot be read from here on: Input/output error"
