"""Shards of an iterable; test_stream.py has whole packs."""

import pytest

from fastfeed.config import ImageConfig, row_config
from fastfeed.errors import SourceUnreadable
from fastfeed.packer.rows.greedy import Encoder
from fastfeed.packer.rows.values import Names


def encoder(*first, classes=None, **options):
    names = Names.of(row_config(options), None)
    names.settle(first or [{"txt": "x"}])
    return Encoder(names, classes, ImageConfig())


def test_keys():
    found = encoder({"jpg": b"x"})
    assert found.key(7, None) == "000000007" and found.key(7, "cat/1") == "cat/1" and found.key(7, 5) == "5"
    for odd in ("a b", "__x", "a.b", "x" * 120, "", "日本"):
        key = found.key(7, odd)
        assert key != odd and found.key(9, odd) == key and len(key) <= 91
    for odd in ("../x", "/a", "a//b", "\ud800", "a\0b", "x" * 250):
        with pytest.raises(SourceUnreadable, match="its __key__ is no key and no relative path"):
            found.key(7, odd)


def test_rows():
    row = encoder({"jpg": b"x", "cls": "cat"}, classes=("dog", "cat")).row("k", {"jpg": b"x", "cls": "cat", "n": 5})
    assert (row.label, row.key, [member.field for member in row.members]) == (1, "k", ["jpg", "json"])
