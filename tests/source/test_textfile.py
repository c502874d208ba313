"""Text files of rows: compression, byte order marks, and bytes that are not UTF-8, named by line and byte."""

import gzip
from pathlib import Path

import pytest
import zstandard

from fastfeed.errors import SourceError, SourceUnreadable
from fastfeed.source.textfile import open_bytes, open_text

TEXT = "a\r\nb\rcé\n"


def text_of(path: Path, newline: str = "") -> list[str]:
    with open_text(str(path), newline) as file:
        return list(file)


def squeezed(raw: bytes, end: str) -> bytes:
    return gzip.compress(raw, 1) if end == ".gz" else bytes(pytest.importorskip("zstandard").compress(raw))


def test_lines_end_as_they_are_told_to(tmp_path: Path):
    path = tmp_path / "t.csv"
    path.write_bytes(TEXT.encode())
    assert text_of(path) == ["a\r\n", "b\r", "cé\n"]
    assert text_of(path, "\n") == ["a\r\n", "b\rcé\n"]


def test_a_byte_order_mark_is_left_out(tmp_path: Path):
    path = tmp_path / "t.csv"
    path.write_bytes(b"\xef\xbb\xbfa\xef\xbb\xbf")
    assert text_of(path) == ["a\ufeff"]


def test_gzip(tmp_path: Path):
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(TEXT.encode()) + gzip.compress(b"more"))
    assert "".join(text_of(path)) == TEXT + "more"


def test_zstandard(tmp_path: Path):
    path = tmp_path / "t.csv.zst"
    path.write_bytes(zstandard.compress(TEXT.encode()) + zstandard.compress(b"more"))
    assert "".join(text_of(path)) == TEXT + "more"


@pytest.mark.parametrize("at", [1, 5, 30, -20, -1])
def test_a_zstandard_file_that_is_cut_at_any_byte(tmp_path: Path, at: int):
    """Also within its second frame: what zstandard's own reader passes over in silence."""
    frame = zstandard.compress(bytes(range(256)) * 9)
    path = tmp_path / "t.csv.zst"
    for whole in (b"", frame):
        path.write_bytes(whole + frame[:at])
        with (
            pytest.raises(SourceError, match=r"the table cannot be decompressed \(it ends within a frame\)"),
            open_bytes(str(path)) as file,
        ):
            file.read()
    path.write_bytes(frame)
    with open_bytes(str(path)) as file:
        assert file.read() == bytes(range(256)) * 9


@pytest.mark.parametrize("cut", [3, 12, -9, -1])
def test_a_gzip_file_that_is_cut(tmp_path: Path, cut: int):
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(bytes(range(256)) * 9)[:cut])
    with pytest.raises(SourceError, match=r"the table cannot be decompressed \(.*copy it again"), open_bytes(str(path)) as file:
        file.read()


@pytest.mark.parametrize("raw", [b"no gzip", b"\x1f\x8b\x08\0\0\0\0\0\0\0\xff\xff\xff"])
def test_a_gzip_file_that_is_none(tmp_path: Path, raw: bytes):
    path = tmp_path / "t.csv.gz"
    path.write_bytes(raw)
    with pytest.raises(SourceError, match="the table cannot be decompressed") as caught:
        text_of(path)
    assert not isinstance(caught.value, SourceUnreadable)


@pytest.mark.parametrize("cut", [2, 20, -1])
def test_a_zstandard_file_that_is_damaged(tmp_path: Path, cut: int):
    path = tmp_path / "t.csv.zst"
    raw = bytearray(zstandard.ZstdCompressor(write_checksum=True).compress(bytes(range(256)) * 9))
    raw[cut] ^= 255
    path.write_bytes(raw)
    with pytest.raises(SourceError, match="the table cannot be decompressed"):
        text_of(path)


def test_what_cannot_be_opened(tmp_path: Path):
    with pytest.raises(SourceUnreadable, match="the table cannot be read: No such file or directory"):
        text_of(tmp_path / "none.csv")
    with pytest.raises(SourceUnreadable, match="the table cannot be read: not a regular file"):
        text_of(tmp_path)


def test_a_wrong_byte_is_named_by_line_and_place(tmp_path: Path):
    path = tmp_path / "t.csv"
    path.write_bytes(b"a,b\n" + b"x,y\n" * 5000 + b"caf\xe9,z\n")
    with pytest.raises(SourceError, match=r"line 5002 of t\.csv is not UTF-8: byte 4 of it is 0xe9.*iconv") as caught:
        text_of(path)
    assert (caught.value.start, caught.value.stop) == (20007, 20008)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_utf_16_is_called_so(tmp_path: Path, encoding: str):
    path = tmp_path / "t.csv"
    path.write_bytes("\ufeffa,b\n".encode(encoding) if encoding == "utf-16-be" else "a,b\n".encode(encoding))
    with pytest.raises(
        SourceError, match=r"the table is UTF-16, not UTF-8: it begins with the mark f[ef] f[ef].*iconv -f UTF-16"
    ):
        text_of(path)


def test_a_file_that_is_mended_while_it_is_read(tmp_path: Path):
    path = tmp_path / "t.csv"
    path.write_bytes(b"a\n\xff\n")

    def read() -> None:
        with open_text(str(path), "\n") as file:
            try:
                list(file)
            finally:
                path.write_bytes(b"a\nb\n")

    with pytest.raises(SourceError, match="the table changed while it was read"):
        read()


@pytest.mark.parametrize("end", [".gz", ".zst"])
def test_a_compressed_line_without_end_is_refused_before_it_is_held(tmp_path: Path, end: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("fastfeed.source.textfile.MAX_LINE_BYTES", 1 << 20)
    path = tmp_path / f"t.csv{end}"
    whole = b"a,b\n" * 100_000 + b"x" * (1 << 20) + b"\n" + b"y" * (1 << 19)
    path.write_bytes(squeezed(whole, end))
    assert "".join(text_of(path)).encode() == whole
    path.write_bytes(squeezed(b"a,b\n" * 100_000 + b"x" * (40 << 20) + b"\n", end))
    with (
        open_text(str(path), "") as file,
        pytest.raises(SourceError, match=rf"line 100001 of t\.csv{end} is too long") as caught,
    ):
        list(file)
    assert "when it is decompressed" in str(caught.value) and "expected at most 1.0 MiB, got more" in str(caught.value)
