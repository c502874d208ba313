"""fastfeed/archive/tar.py: headers by the table of README.md §2, and archives that Python's tarfile reads."""

import io
import tarfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastfeed.archive import tar

NAMES = st.text(st.sampled_from("abcXYZ019_-+@=,/."), min_size=1, max_size=100).filter(
    lambda name: not name.startswith("/") and not name.endswith("/")
)


def archive(members: list[tuple[str, bytes]]) -> bytes:
    """A shard of these members."""
    body = b"".join(tar.header(name.encode(), len(data)) + data + tar.padding(len(data)) for name, data in members)
    return body + tar.trailer(len(body))


def header_by_the_table(name: bytes, size: int) -> bytes:
    """README.md §2's table, written down a second time."""
    block = bytearray(512)
    block[0 : len(name)] = name
    block[100:108], block[108:116], block[116:124] = b"0000444\0", b"0000000\0", b"0000000\0"
    block[124:136], block[136:148] = b"%011o\0" % size, b"00000000000\0"
    block[148:156], block[156:157] = b" " * 8, b"0"
    block[257:263], block[263:265], block[329:345] = b"ustar\0", b"00", b"0000000\0" * 2
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


@settings(max_examples=100)
@given(st.binary(min_size=1, max_size=100).filter(lambda name: b"\0" not in name), st.integers(0, tar.MAX_MEMBER_BYTES))
def test_t1_a_header_is_the_tables(name, size):
    assert tar.header(name, size) == header_by_the_table(name, size)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(NAMES, st.binary(max_size=1500)), max_size=5))
def test_tarfile_reads_what_is_written(members):
    raw = archive(members)
    with tarfile.open(fileobj=io.BytesIO(raw), mode="r:") as file:
        found = list(file)
        assert [(info.name, file.extractfile(info).read()) for info in found] == members  # type: ignore[union-attr]
    for info in found:
        assert info.isreg()
        assert not info.pax_headers
        assert (info.mode, info.uid, info.gid, info.mtime, info.uname, info.gname) == (0o444, 0, 0, 0, "", "")


@settings(max_examples=60)
@given(NAMES, st.integers(0, tar.MAX_MEMBER_BYTES))
def test_tarfile_reads_each_header(name, size):
    info = tarfile.TarInfo.frombuf(tar.header(name.encode(), size), "ascii", "strict")
    assert (info.name, info.size, info.type) == (name, size, tarfile.REGTYPE)


def test_t2_the_longest_name_and_the_largest_member():
    block = tar.header(b"n" * 100, tar.MAX_MEMBER_BYTES)
    info = tarfile.TarInfo.frombuf(block, "ascii", "strict")
    assert (info.name, info.size) == ("n" * 100, 8_589_934_591)
    assert len(block) == 512


@pytest.mark.parametrize(("name", "size"), [(b"n" * 101, 0), (b"", 0), (b"n", 8**11), (b"n", -1)])
def test_t2_what_fits_no_field_is_refused(name, size):
    with pytest.raises(ValueError, match=f"no USTAR header for a name of {len(name)} bytes and a size of {size}"):
        tar.header(name, size)


@pytest.mark.parametrize(("size", "zeros"), [(0, 0), (1, 511), (511, 1), (512, 0), (513, 511)])
def test_t3_padding_fills_the_block_with_zeros(size, zeros):
    assert tar.padding(size) == bytes(zeros)
    assert tar.padding_bytes(size) == zeros
    assert tar.span_bytes(size) == 512 + size + zeros


@given(st.integers(0, 1 << 40).map(lambda blocks: blocks * 512))
def test_t5_the_trailer_is_the_shortest_that_fills_a_record(members):
    zeros = tar.trailer_bytes(members)
    assert 1024 <= zeros < 1024 + 10240
    assert (members + zeros) % 10240 == 0
    assert tar.trailer(members) == bytes(zeros)


def test_t5_an_archive_that_just_fits_gets_a_whole_record_more():
    assert tar.trailer_bytes(10240 - 1024) == 1024
    assert tar.trailer_bytes(10240 - 512) == 1024 + 9728
    assert tar.trailer_bytes(0) == 10240
