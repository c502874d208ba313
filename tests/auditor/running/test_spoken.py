import pytest

from fastfeed.auditor.looking import textcodes
from fastfeed.auditor.record import SampleRecord
from fastfeed.auditor.running.spoken import look_at_text, parts_of
from fastfeed.auditor.running.subject import HOW, How


def seen(sample, how=HOW, tokenizer=None):
    record = SampleRecord(0)
    look_at_text(record, [sample], how, tokenizer)
    return record


@pytest.mark.parametrize(
    ("sample", "parts"),
    [("a review", ["a review"]), ({"text": "a review", "label": 1}, ["a review", 1]), (("a", 1), ["a", 1]), (7, [7]), ({}, [])],
)
def test_where_a_text_may_be(sample, parts):
    assert parts_of(sample) == parts


@pytest.mark.parametrize("sample", ["na\u00efve", {"id": "7", "text": "na\u00efve", "label": None}, ("na\u00efve", 1.5)])
def test_a_text_is_a_sample_with_a_size_and_tokens(sample):
    record = seen(sample, tokenizer=list)
    assert (record.format, record.size_bytes, record.characters, record.tokens) == ("text", 6, 5, 5)
    assert set(record.times) == {"tokenize"} and record.findings == []


def test_a_text_beside_other_things_says_nothing_of_their_size():
    record = seen((b"pixels", "a caption"), tokenizer=str.split)
    assert (record.format, record.size_bytes, record.characters, record.tokens) == (None, None, 9, 2)
    assert record.times == {}


@pytest.mark.parametrize("sample", [7, (b"bytes", 1), {}])
def test_where_there_is_no_text(sample):
    assert seen(sample, tokenizer=list) == SampleRecord(0)


def test_what_is_odd_about_it():
    assert [found.code for found in seen("a\0b").findings] == [textcodes.NUL]
    assert [found.code for found in seen("left \ud83d alone").findings] == [textcodes.HALF]
    assert seen("a\0b", How(look=False)).findings == []
    assert seen("").findings == []


def test_files_that_were_looked_at_say_more():
    record = SampleRecord(0, characters=70)
    look_at_text(record, ["another"], HOW, list)
    look_at_text(SampleRecord(0), [], HOW, list)
    assert (record.characters, record.tokens) == (70, None)
