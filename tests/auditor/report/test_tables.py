import re

from reporting import Reader, flagged, result_of, sample

from fastfeed.auditor.judging.codes import SLOW, STALL_ONCE
from fastfeed.auditor.report import tables
from fastfeed.auditor.result import Costliest
from fastfeed.auditor.running.codes import CRASH, CRASH_ONCE


def rows(table):
    return [attributes for tag, attributes in Reader(table).tags if tag == "tr"][1:]


def test_kinds_with_advice_and_examples():
    records = [flagged(at, CRASH, path=f"<{at}>.jpg", text="<i>") for at in range(7)]
    result, _ = result_of([*records, flagged(7, STALL_ONCE)])
    table = tables.kinds(result.found, {"crash"})
    words = " ".join(Reader(table).words.split())
    assert CRASH.title in words and CRASH.advice in words and "Examples (5 of 7)" in words and "<0>.jpg <i>" in words
    assert '<a href="#samples" data-show="crash">7</a>' in table
    assert table.count("<a ") == 1, "only what is listed has a link"
    assert "<i>" not in table


def test_a_row_a_sample_with_what_the_script_sorts_by():
    record = flagged(12, CRASH_ONCE, CRASH, SLOW, path='"<b>\u202e.jpg', split="train", label="cat", seconds=2.0)
    table = tables.samples([record, flagged(13, SLOW)], {12: "QUJD"})
    first, second = rows(table)
    assert first == {"data-codes": "crash crash-once slow", "data-severity": "error"}
    assert second == {"data-codes": "slow", "data-severity": "warning"}
    assert re.findall(r'data-v="([^"]*)"', table)[:6] == ["&quot;&lt;b&gt;\\u202e.jpg", "3", "train / cat", "1000", "1200", "2"]
    assert '<img src="data:image/jpeg;base64,QUJD" alt="">' in table and table.count("<img") == 1
    assert 'title="read: 500 ms computing, 0 \u00b5s waiting; decode: 1.5 s computing' in table


def test_without_thumbnails_there_is_no_column_for_them():
    assert "thumbnail" not in tables.samples([flagged(0, CRASH)], {})


def test_what_is_unknown_is_empty():
    record = flagged(0, CRASH, kind=None, size_bytes=None, width=None, height=None)
    record.times = {}
    assert re.findall(r'data-label="(\w+)" data-v=""></td>', tables.samples([record], {})) == [
        "class",
        "size",
        "pixels",
        "time",
    ]


def test_where_it_lies():
    words = Reader(tables.samples([flagged(5, CRASH, key="k5", shard="00001.tar", offset=1536)], {})).words
    assert "sample 5, key k5, 00001.tar at byte 1,536" in words


def test_long_texts_are_cut():
    assert tables.short("x" * 400) == "x" * 400
    assert tables.short("x" * 401) == "x" * 400 + " ..."
    assert len(tables.samples([flagged(0, CRASH, text="x" * 10**6)], {})) < 4000


def test_stages_and_costliest():
    result, _ = result_of([sample(0, path="<a>"), sample(1, seconds=1.5)], costliest=(Costliest("<a>", 0.25, 0.17, 0.5),))
    words = Reader(tables.stages(result.stages)).words
    assert "read2500 ms250 ms375 ms" in words.replace("\n", "")
    words = Reader(tables.costliest(result.costliest)).words
    assert words.endswith("<a>250 ms17 %50 %")
