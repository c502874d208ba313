import random

import pytest

from fastfeed.auditor.finding import Finding
from fastfeed.auditor.looking import textcodes
from fastfeed.auditor.looking.look import look
from fastfeed.auditor.looking.textlook import LONG_BLANK, LONG_LINE, LONG_RUN, count_tokens, findings_of

WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
PROSE = " ".join(random.Random(0).choices(WORDS, k=2000))


def of(text, name="a.txt"):
    return {finding.code: finding.text for finding in look(text.encode(), name).findings}


def test_prose_is_nothing_to_talk_about():
    assert of(PROSE) == {}


@pytest.mark.parametrize(("text", "code", "told"), [
    ("a\n\0b\0", textcodes.NUL, "2 of them, the first in line 2"),
    ("a\nb\n caf\ufffd", textcodes.REPLACEMENT, "1 of them, the first in line 3"),
    ("a\n\x1b$B", textcodes.CONTROL, "U+001B in line 2"),
    ("  \n\t\n", textcodes.BLANK, "5 characters"),
    ("a\rb\nc", textcodes.LINE_ENDS, "1 line feed, 3 lines by splitlines()"),
    ("a\u2028b", textcodes.LINE_ENDS, "U+2028"),
    ("a\x85b", textcodes.LINE_ENDS, "U+0085"),
    ("a\x0bb", textcodes.LINE_ENDS, "U+000B"),
])  # fmt: skip
def test_characters(text, code, told):
    found = of(text)
    assert list(found) == [code] and told in found[code]


def test_ends_of_lines_that_all_tools_count():
    assert of("a\r\nb\r\nc\n") == {}


def noise(count):
    return "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz0123456789+/", k=count))


@pytest.mark.parametrize(("text", "code"), [
    ("words\n" + noise(LONG_RUN), textcodes.LONG_RUN), ("words\nx" + " " * LONG_BLANK + PROSE, textcodes.LONG_BLANK),
    ("words\n" + (noise(900) + " ") * (LONG_LINE // 901 + 1), textcodes.LONG_LINE),
])  # fmt: skip
def test_extremes_of_length(text, code):
    assert "from line 2 on" in of(text)[code]


def test_just_below_the_extremes():
    assert of("words\n" + noise(LONG_RUN - 1)) == {}


@pytest.mark.parametrize("unit", ["e", "ha ", "the same line again\n"])
def test_the_same_again_and_again(unit):
    assert "its middle compresses" in of(unit * 5000)[textcodes.REPETITIVE]


def test_a_text_without_end_costs_no_square_of_its_length():
    """885 kB of one letter stopped a tokenizer for hours; here it is a matter of milliseconds."""
    assert {textcodes.LONG_RUN, textcodes.REPETITIVE} <= of("e" * 884_779).keys()
    assert of(("e" * (LONG_RUN - 1) + " ") * 40).keys() == {textcodes.REPETITIVE}


def test_half_a_character_of_a_text_that_python_holds():
    assert [(found.code, found.text) for found in findings_of("left \ud83d alone\0")] == [
        (textcodes.HALF, "character 5 is U+D83D")
    ]


def test_tokens_are_counted_by_the_users_tokenizer():
    assert count_tokens("a b c", str.split) == 3
    assert count_tokens("a b c", lambda text: {"input_ids": [1, 2], "attention_mask": [1, 1]}) == 2


def test_a_tokenizer_that_raises():
    def fails(text):
        raise RuntimeError("too long")

    found = count_tokens("a", fails)
    assert found == Finding(textcodes.TOKENIZER_FAILS, "RuntimeError: too long")
