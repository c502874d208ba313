"""Shards of an iterable; test_stream.py has whole packs."""

from fastfeed.config import ImageConfig, row_config
from fastfeed.packer.rows.greedy import Encoder
from fastfeed.packer.rows.values import Names


def encoder(*first, classes=None, **options):
    names = Names.of(row_config(options), None)
    names.settle(first or [{"txt": "x"}])
    return Encoder(names, classes, ImageConfig())


def test_keys():
    found = encoder({"jpg": b"x"})
    assert found.key(7, None) == "000000007" and found.key(7, "cat/1") == "cat/1" and found.key(7, 5) == "5"
    for odd in ("a b", "__x", "a.b", "x" * 120, "", "/a", "日本"):
        key = found.key(7, odd)
        assert key != odd and found.key(9, odd) == key and len(key) <= 91


def test_rows():
    row = encoder({"jpg": b"x", "cls": "cat"}, classes=("dog", "cat")).row("k", {"jpg": b"x", "cls": "cat", "n": 5})
    assert (row.label, row.key, [member.field for member in row.members]) == (1, "k", ["jpg", "json"])
