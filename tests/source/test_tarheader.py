"""Header blocks of other writers: what they say, and everything that is none."""

import tarfile
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tarring import header, with_checksum

from fastfeed.source.tarheader import BadHeader, Header, apply_pax, holds, is_sparse, number, parse, pax_records


def test_what_a_header_says():
    assert parse(header("a/b.txt", 1234)) == Header(b"a/b.txt", 1234, b"0")
    assert parse(header("caf\u00e9.txt")) == Header("caf\u00e9.txt".encode(), 0, b"0")
    assert parse(header("folder", type=tarfile.DIRTYPE)).kind == b"5"


def test_a_folder_of_v7_is_a_file_with_a_slash():
    block = bytearray(header("x", type=tarfile.AREGTYPE))
    block[:7] = b"folder/"
    assert parse(with_checksum(block)) == Header(b"folder/", 0, b"5")


def test_the_prefix_counts_behind_the_magic_of_posix_alone():
    long = "d" * 90 + "/" + "n" * 90 + ".txt"
    block = header(long)
    assert parse(block).name == long.encode()
    gnu = bytearray(block)
    gnu[257:265] = b"ustar  \0"  # GNU tar: times of the incremental backup stand where the prefix was
    assert parse(with_checksum(gnu)).name == ("n" * 90 + ".txt").encode()


def test_a_name_that_fills_its_field():
    assert parse(header("n" * 100)).name == b"n" * 100


@given(st.binary(min_size=100, max_size=100).filter(lambda raw: raw[0] != 0), st.integers(0, 8**11 - 1))
def test_any_name_and_size(name: bytes, size: int):
    block = bytearray(header("x", size))
    block[:100] = name
    found = parse(with_checksum(block))
    assert found == Header(name.partition(b"\0")[0], size, b"0")


@given(st.integers(0, 512 * 8 - 1))
def test_each_flipped_bit_is_found(bit: int):
    """[P11]: but in bytes that say nothing, such as the second blank of the checksum."""
    block = bytearray(header("some/name.jpg", 4321))
    block[bit // 8] ^= 1 << bit % 8
    if 154 <= bit // 8 < 156:  # behind the six digits: whatever ends a number will do
        with suppress(BadHeader):
            assert parse(bytes(block)) == Header(b"some/name.jpg", 4321, b"0")
    else:
        with pytest.raises(BadHeader, match="checksum"):
            parse(bytes(block))


def test_checksums_as_signed_bytes_hold():
    """Sun's tar and others summed signed chars."""
    block = bytearray(header("caf\u00e9.txt"))
    total = sum(byte - 256 if byte > 127 else byte for at, byte in enumerate(block) if not 148 <= at < 156) + 8 * 32
    block[148:156] = b"%06o\0 " % total
    assert holds(bytes(block))
    assert parse(bytes(block)).name == "caf\u00e9.txt".encode()


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b"00000001234\0", 0o1234),
        (b"    1234 \0\0\0", 0o1234),
        (b"1234\0garbage", 0o1234),
        (b"777777777777", 8**12 - 1),
        (b"\0" * 12, 0),
        (b" " * 12, 0),
        (b"\x80" + (1 << 33).to_bytes(11, "big"), 1 << 33),
        (b"\x80" + b"\xff" * 11, (1 << 88) - 1),
    ],
)
def test_numbers(raw: bytes, value: int):
    assert number(raw, "size") == value


@pytest.mark.parametrize(
    "raw",
    [
        b"-0000001234\0",
        b"0o000001234\0",
        b"00000_01234\0",
        b"00000000089\0",
        b"\xff" * 12,
        b"0x12345\0\0\0\0\0",
        b"\x90" + b"\0" * 11,
    ],
)
def test_what_is_no_number_from_0(raw: bytes):
    """[P11]: int() would take some of these, and one is negative in base 256."""
    with pytest.raises(BadHeader, match="the header's size is no number from 0"):
        number(raw, "size")
    block = bytearray(header("x"))
    block[124:136] = raw
    with pytest.raises(BadHeader, match="the header's size is no number from 0"):
        parse(with_checksum(block))


def test_why_a_block_is_no_header():
    with pytest.raises(BadHeader, match=r"where a header's checksum stands there is b'xxxxxxxx'"):
        parse(b"x" * 512)
    block = bytearray(header("x"))
    block[0] = ord("y")
    with pytest.raises(BadHeader, match=r"the header states the checksum \d+, its bytes have \d+ \(octal\)"):
        parse(bytes(block))


# ------------------------------------------------------------------------------------------------ PAX
def record(keyword: bytes, value: bytes) -> bytes:
    rest = b" " + keyword + b"=" + value + b"\n"
    size = len(rest) + 1
    while len(str(size)) + len(rest) != size:
        size = len(str(size)) + len(rest)
    return str(size).encode() + rest


@given(st.dictionaries(st.from_regex(rb"[A-Za-z.]{1,20}", fullmatch=True), st.binary(max_size=200), max_size=5))
def test_pax_records(values: dict[bytes, bytes]):
    raw = b"".join(record(keyword, value) for keyword, value in values.items())
    assert pax_records(raw) == values
    assert pax_records(raw + b"\0" * 100) == values


@pytest.mark.parametrize(
    "raw", [b"0", b"x", b"6 a=\n", b"99 path=a\n", b"8 path=a\n", b"10 path=a.", b"0 path=a\n", b"-1 a=b\n", b"7 =ab\n"]
)
def test_what_is_no_pax_record(raw: bytes):
    """Among them those with which CPython's tarfile once ran for ever: a length of 0, and a negative one."""
    with pytest.raises(BadHeader, match="the PAX record at byte 0 of its header is"):
        pax_records(raw)


def test_what_pax_replaces():
    plain = Header(b"short", 0, b"0")
    assert apply_pax(plain, {}) == plain
    assert apply_pax(plain, {b"path": b"a/b/", b"size": b"8589934592", b"mtime": b"1.5"}) == Header(b"a/b", 1 << 33, b"0")
    assert apply_pax(plain, {b"path": b"", b"size": b""}) == plain
    for size in (b"-1", b"1e9", b"9" * 40, b" 1", b"0x1"):
        with pytest.raises(BadHeader, match="the PAX size is"):
            apply_pax(plain, {b"size": size})


def test_sparse_by_pax():
    assert is_sparse({b"GNU.sparse.major": b"1"})
    assert not is_sparse({b"path": b"GNU.sparse"})


@pytest.mark.parametrize("at", range(148, 156))
def test_a_checksum_field_that_is_no_number_is_never_taken_for_right(at):
    """Also in a block with bytes beyond ASCII, for which the quick sum is not computed."""
    block = bytearray(tarfile.TarInfo("a.jpg").tobuf(tarfile.USTAR_FORMAT))
    block[148:156] = b"        "
    block[at] = 0xCF
    assert not holds(bytes(block))
    with pytest.raises(BadHeader, match="checksum"):
        parse(bytes(block))
