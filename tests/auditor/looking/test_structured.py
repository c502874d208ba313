import csv
import json

import pytest

from fastfeed.auditor.looking import structured, textcodes
from fastfeed.auditor.looking.look import look


def of(text, name):
    return {finding.code: finding.text for finding in look(text.encode(), name).findings}


def only(text, name, code):
    found = of(text, name)
    assert list(found) == [code]
    return found[code]


@pytest.mark.parametrize(("name", "text"), [
    ("a.json", '{"a": [1, 2.5, "x", null]}'), ("a.jsonl", '{"a": 1}\n\n{"a": 2}\n'), ("a.csv", 'a,b\n1,"x, ""y""\nz"\n'),
    ("a.tsv", "a\tb\n1\tx, y\n"), ("a.csv", "a;b\n1,5;x\n"),
    ("a.txt", "{not json"), ("a.json", json.dumps({"a": "🙂\\ud800 in words"})),
])  # fmt: skip
def test_what_parses(name, text):
    assert of(text, name) == {}


def test_json_that_does_not_parse():
    assert "line 2, column 1" in only('{"a": 1,\n', "a.json", textcodes.JSON_BAD)
    assert "Extra data" in only('{"a": 1}\n{"a": 2}\n', "a.json", textcodes.JSON_BAD)


def test_json_of_extreme_depth():
    assert "RecursionError" in of("[" * 200_000, "a.json")[textcodes.JSON_BAD]


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_constants_that_json_does_not_know(constant):
    assert only(f'{{"loss": {constant}}}', "a.json", textcodes.JSON_LOOSE) == f"it holds {constant}"
    assert only(f'1\n{{"loss": {constant}}}', "a.jsonl", textcodes.JSON_LOOSE) == f"line 2 holds {constant}"


@pytest.mark.parametrize("half", [r"\ud800", r"\udc00", r"\ud83d\ud83d\ude42", r"\ud83d \ude42"])
def test_half_a_character(half):
    text = f'{{"a":\n "{half}"}}'
    with pytest.raises(UnicodeEncodeError, match="surrogates"):  # that is the harm
        json.loads(text)["a"].encode()
    assert "line 2" in only(text, "a.json", textcodes.SURROGATE)
    assert "of line 2" in only('1\n{"a": "' + half + '"}', "a.jsonl", textcodes.SURROGATE)


@pytest.mark.parametrize("whole", [r"\ud83d\ude42", r"\\ud800", r"\\\\ud800", r"A"])
def test_whole_characters(whole):
    json.loads(f'"{whole}"').encode()
    assert of(f'"{whole}"', "a.json") == {}


def test_lines_that_are_no_json():
    text = only('{"a": 1}\n{"a": \n{"a": 3}\nwords\n', "a.jsonl", textcodes.JSONL_BAD)
    assert text.startswith("2 lines, the first: line 2, from character 9 on")


def test_a_cell_may_be_of_any_length():
    before = csv.field_size_limit()
    assert of('a,b\n1,"' + "x y\n" * 100_000 + '"\n', "a.csv").keys() <= {textcodes.REPETITIVE}
    assert csv.field_size_limit() == before


def test_tables():
    assert "line 3 has 3" in only("a,b\n1,2\n1,2,3\n1\n", "a.csv", textcodes.CSV_RAGGED)
    assert only("a,b\n1,2\n1,2,3\n1\n", "a.csv", textcodes.CSV_RAGGED).startswith("2 rows")
    assert "line 2" in only('a,b\n1,"never closed\n', "a.csv", textcodes.CSV_BAD)


def test_what_is_too_large_is_not_parsed(monkeypatch):
    monkeypatch.setattr(structured, "MAX_PARSED_CHARACTERS", 10)
    assert list(of('{"a": "long enough"', "a.json")) == [textcodes.NOT_PARSED]
