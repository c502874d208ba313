"""fastfeed/units.py: sizes, counts, and durations, read and written."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastfeed.units import format_brief_seconds, format_count, format_seconds, format_signal, format_size, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0), ("1048576", 1 << 20), ("512MiB", 512 << 20), ("1.5 GB", 1_500_000_000), ("1.5gib", 3 << 29), (" 7 b ", 7),
        ("2k", 2000), ("2kB", 2000), ("2 KiB", 2048), ("1T", 10**12), ("1TiB", 1 << 40), ("0.5 KB", 500),
    ],
)  # fmt: skip
def test_parse_size(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "MiB", "-1", "1e6", "1 XB", "1,5 GB", "1.", ".5", "0x10", "1 MiB MiB", "nan", "1_000"])
def test_what_is_no_size_is_refused_with_an_example(text):
    with pytest.raises(ValueError, match="is not a size: expected a number with a unit, such as 512MiB"):
        parse_size(text)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (512 << 20, "512.0 MiB"), (5 << 40, "5.0 TiB"),
        (1 << 53, "8192.0 TiB"),
    ],
)  # fmt: skip
def test_format_size(size, text):
    assert format_size(size) == text


@settings(max_examples=200)
@given(st.integers(0, 1 << 50))
def test_a_formatted_size_reads_back_within_its_digits(size):
    assert parse_size(format_size(size)) == pytest.approx(size, rel=0.06)


def test_format_signal():
    assert [format_signal(number) for number in (9, 11, 34, 40)] == ["SIGKILL", "SIGSEGV", "SIGRTMIN", "signal 40"]


def test_format_count():
    assert [format_count(n, "file") for n in (0, 1, 2, 1200)] == ["0 files", "1 file", "2 files", "1,200 files"]
    assert [format_count(n, "class", "classes") for n in (1, 3)] == ["1 class", "3 classes"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0123, "12.3 ms"), (1, "1.0 s"), (59.94, "59.9 s"), (75, "1 min 15 s"), (3599.9, "59 min 59 s"), (7500, "2 h 05 min")],
)
def test_format_seconds(seconds, text):
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 \u00b5s"),
        (1.2345e-5, "12.3 \u00b5s"),
        (0.001, "1 ms"),
        (0.1, "100 ms"),
        (0.99999, "1 s"),
        (12.34, "12.3 s"),
        (75, "1 min 15 s"),
    ],
)
def test_format_brief_seconds(seconds, text):
    assert format_brief_seconds(seconds) == text
