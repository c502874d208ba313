"""fastfeed/sample.py: identity of a sample, and the skip list that names samples by it."""

import errno
import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastfeed.errors import UsageError
from fastfeed.sample import SampleId, SkipEntry, SkipList, escape, printable

TEXTS = st.none() | st.text(st.characters(exclude_categories=["Cs"])) | st.binary(max_size=9).map(escape)
ENTRIES = st.builds(
    SkipEntry,
    source=st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    key=TEXTS,
    index=st.none() | st.integers(0, 1 << 62),
    dataset_digest=TEXTS,
    kind=TEXTS,
)


def test_a_source_wins_over_a_key_and_a_key_over_an_index():
    by_index = SkipEntry(index=3, dataset_digest="d")
    by_key, by_source = SkipEntry(key="k"), SkipEntry(source="s")
    skip = SkipList([by_index, by_key, by_source])
    assert skip.match("s", "k", ("d", 3)) is by_source
    assert skip.match("other", "k", ("d", 3)) is by_key
    assert skip.match(None, None, ("d", 3)) is by_index
    assert skip.match("other", "other", ("d", 4)) is None


def test_an_index_means_nothing_for_another_dataset():
    skip = SkipList([SkipEntry(index=3, dataset_digest="d")])
    assert skip.match(None, None, ("e", 3)) is None
    assert skip.match(None, None) is None
    assert [entry.index for entry in skip.unmatched()] == [3]


def test_an_entry_with_a_source_is_never_matched_by_its_key():
    skip = SkipList([SkipEntry(source="a/1.jpg", key="a/1")])
    assert skip.match("b/1.jpg", "a/1") is None
    assert skip.match("a/1.jpg", None) is not None


def test_unmatched_entries_are_told():
    skip = SkipList([SkipEntry(source="a"), SkipEntry(source="b"), SkipEntry(key="c")])
    skip.match("b", None)
    assert [entry.source or entry.key for entry in skip.unmatched()] == ["a", "c"]


@settings(max_examples=60)
@given(st.lists(ENTRIES, max_size=5))
def test_what_is_written_reads_back(tmp_path_factory, entries):
    path = str(tmp_path_factory.mktemp("skip") / "skip.jsonl")
    SkipList.write(path, entries)
    assert SkipList.read(path).entries == entries


def test_a_list_that_cannot_be_written_whole_leaves_the_earlier_one(tmp_path):
    def torn():
        yield SkipEntry(key="b")
        raise OSError(errno.ENOSPC, "full")

    path = str(tmp_path / "skip.jsonl")
    SkipList.write(path, [SkipEntry(key="a")])
    with pytest.raises(OSError, match="full"):
        SkipList.write(path, torn())
    assert SkipList.read(path).entries == [SkipEntry(key="a")]


def test_a_path_that_is_not_utf8_survives(tmp_path):
    path = str(tmp_path / "skip.jsonl")
    SkipList.write(path, [SkipEntry(source=escape(b"caf\xe9.jpg"))])
    (entry,) = SkipList.read(path).entries
    assert os.fsencode(entry.source or "") == b"caf\xe9.jpg"


def test_blank_lines_and_other_fields_are_no_matter(tmp_path):
    path = tmp_path / "skip.jsonl"
    path.write_text('\n{"source": "a", "seconds": 3.5}\n   \n{"key": "b"}\n')
    assert SkipList.read(str(path)).entries == [SkipEntry(source="a"), SkipEntry(key="b")]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (
            "nonsense",
            r"line 2 of the skip list is not a JSON object \(Expecting value.*\) .*got nonsense\. A line is an object such as",
        ),
        ("[1]", "line 2 of the skip list is not a JSON object"),
        ("[" * 100_000, "line 2 of the skip list is not a JSON object"),
        ("{}", "line 2 of the skip list names no sample"),
        ('{"index": 3}', "line 2 of the skip list names no sample"),
        ('{"dataset_digest": "d"}', "line 2 of the skip list names no sample"),
        ('{"source": 3}', "line 2 of the skip list has a field of the wrong type"),
        ('{"source": "a", "index": "3"}', "line 2 of the skip list has a field of the wrong type"),
    ],
)
def test_a_wrong_line_is_named(tmp_path, line, text):
    path = tmp_path / "skip.jsonl"
    path.write_text(f'{{"source": "a"}}\n{line}\n')
    with pytest.raises(UsageError, match=text) as caught:
        SkipList.read(str(path))
    assert caught.value.path == str(path)


def test_a_file_that_is_not_there_or_not_text_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"^the skip list cannot be read: No such file or directory \(.*none\.jsonl\)$"):
        SkipList.read(str(tmp_path / "none.jsonl"))
    (tmp_path / "skip.jsonl").write_bytes(b"\xff\xfe{}")
    with pytest.raises(UsageError, match=r"the skip list cannot be read: .*decode"):
        SkipList.read(str(tmp_path / "skip.jsonl"))


def test_json_leaves_out_what_is_not_known():
    assert json.loads(SkipEntry(key="k", kind="undecodable").to_json()) == {"key": "k", "kind": "undecodable"}


@settings(max_examples=60)
@given(st.binary(max_size=30).filter(lambda raw: b"\0" not in raw))
def test_any_path_can_be_told_and_printed(raw):
    text = escape(raw)
    assert os.fsencode(text) == raw
    shown = printable(text)
    assert shown.isprintable()
    shown.encode("utf-8")


def test_printable_leaves_readable_text_alone():
    assert printable("Grüße 猫.jpg") == "Grüße 猫.jpg"
    assert printable("a\nb\x1b[31m\udcff") == "a\\nb\\x1b[31m\\udcff"


def test_a_sample_is_named_by_position_key_and_source():
    assert SampleId(0, "a", b"a.jpg") == SampleId(0, "a", b"a.jpg") != SampleId(0, "a", None)
