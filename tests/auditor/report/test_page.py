import base64
import hashlib
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reporting import Reader, flagged, result_of, sample

from fastfeed.auditor.judging.codes import SLOW, STALL_ONCE
from fastfeed.auditor.report import gather
from fastfeed.auditor.report.page import page
from fastfeed.auditor.running.codes import CRASH, FAILS

ANY = st.text(st.characters(exclude_categories=()), min_size=1, max_size=30)


def page_of(records, thumbnails=None, *, notes=(), made="", **facts):
    result, gathered = result_of(records, **facts)
    return page(result, gathered, thumbnails or {}, notes=notes, made=made).decode()


def policy_of(html):
    [(_, found)] = [one for one in Reader(html).tags if one[1].get("http-equiv") == "Content-Security-Policy"]
    return dict(part.strip().split(" ", 1) for part in found["content"].split(";"))


def test_headline_first_then_kinds_times_samples_notes():
    html = page_of(
        [sample(0), flagged(1, SLOW), flagged(2, CRASH)], costs=("slow: much",), notes=("thumbnails are few",), made="today"
    )
    words = Reader(html.split("<body>")[1]).words
    places = [
        words.index(told)
        for told in ("fastfeed audit today", "/data/photos", "2 of 3 samples (67 %)", "1 sample has an error", "Slow: much.",
                     "What was found", "Where time goes", "Flagged samples", "as asked", "thumbnails are few")
    ]  # fmt: skip
    assert places == sorted(places)


def test_the_policy_lets_nothing_in_but_what_is_there():
    html = page_of([flagged(0, CRASH)], {0: "QUJD"})
    policy = policy_of(html)
    assert policy["default-src"] == "'none'" and policy["img-src"] == "data:"
    for name in ("style", "script"):
        [content] = re.findall(f"<{name}>(.*?)</{name}>", html, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert policy[f"{name}-src"] == f"'sha256-{digest}'"
    assert html.index("Content-Security-Policy") < html.index("<style>")


def test_it_refers_to_nothing_outside():
    html = page_of([sample(0), flagged(1, CRASH, SLOW), flagged(2, FAILS)], {1: "QUJD"})
    for tag, attributes in Reader(html).tags:
        assert tag not in {"link", "iframe", "object", "base"}
        assert not any(name.startswith("on") or name == "style" for name in attributes), attributes
        assert all(attributes.get(name, "#").startswith(("#", "data:image/jpeg;base64,")) for name in ("src", "href"))
    assert not re.search(r"https?:|url\(|@import", html)


@settings(max_examples=30, deadline=None)
@given(ANY, ANY, ANY)
def test_no_name_of_a_file_changes_the_page(name, label, told):
    def tags(path, group, text):
        record = flagged(0, CRASH, path=path, label=group, key=path, shard=path, split=group, text=text)
        facts = {"target": path, "what": text, "notes": (text,), "report": path}
        html = page_of([record, sample(1, kind=group)], {0: "QUJD"}, **facts)
        html.encode()
        return [tag for tag, _ in Reader(html).tags if tag != "wbr"], html

    (plain, _), (hostile, html) = tags("a.jpg", "b", "c"), tags(name, label, told)
    assert hostile == plain
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200e\u200f\ufeff\ud800-\udfff]", html)


def test_rows_are_capped_and_it_says_so(monkeypatch):
    monkeypatch.setattr(gather, "MOST_OF_A_CODE", 10)
    html = page_of((flagged(at, CRASH) for at in range(25)), report="/x/report.jsonl")
    assert html.count('data-severity="error"') == 10
    assert "15 more samples flagged, not listed here" in html and "all of them are in /x/report.jsonl" in html
    assert "not listed here" not in page_of([flagged(0, CRASH)])


def test_the_page_of_a_large_audit_is_not_large():
    records = [
        flagged(at, CRASH, SLOW, STALL_ONCE, FAILS) if at % 2 else sample(at, size_bytes=1000 + at) for at in range(20_000)
    ]
    assert len(page_of(records)) < 2 << 20


@pytest.mark.parametrize("records", [[], [sample(0)]])
def test_nothing_is_wrong(records):
    html = page_of(records)
    assert "and nothing is wrong." in html and "Flagged samples" not in html and "What was found" not in html
