import re
from pathlib import Path

import pytest

from fastfeed.auditor.finding import Code
from fastfeed.auditor.looking.codes import CODES, ROOMS

TESTS = "\n".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))


@pytest.mark.parametrize("code", CODES.values(), ids=lambda code: code.name)
def test_a_code_is_stable_and_says_what_to_do(code):
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", code.name)
    assert code.title[0].isupper() and not code.title.endswith(".")
    assert code.advice.endswith(".") and len(code.advice) <= 160


def test_each_code_is_found_by_a_test():
    """By its constant: imagecodes.TRUNCATED and so on."""
    names = {
        f"{room.__name__.rpartition('.')[2]}.{name}"
        for room in ROOMS
        for name, value in vars(room).items()
        if isinstance(value, Code)
    }
    assert len(names) == len(CODES)
    assert sorted(names - set(re.findall(r"\b\w+codes\.[A-Z0-9_]+\b", TESTS))) == []
