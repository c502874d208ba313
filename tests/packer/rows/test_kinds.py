import datetime as dt
import decimal
import enum
import json
import math
import os
import uuid
from collections import OrderedDict
from typing import NamedTuple

import numpy as np
import pytest
import torch
from helpers import photo
from hypothesis import given
from hypothesis import strategies as st

from fastfeed.errors import UsageError
from fastfeed.packer.rows.kinds import as_text, is_index, is_media, json_bytes, json_text, kind_of, media_bytes, plain, utf8


class Colour(enum.IntEnum):
    RED = 3


class Point(NamedTuple):
    x: int
    y: int


class Word(enum.StrEnum):
    YES = "yes"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.str_("ä"), "ä"), (np.bytes_(b"x"), b"x"), (bytearray(b"x"), b"x"), (memoryview(b"xyz")[::2], b"xz"),
        (Colour.RED, 3),        (Word.YES, "yes"), (dt.date(2024, 2, 29), dt.date(2024, 2, 29)),
        ({"bytes": None, "path": None}, None), ({"bytes": None, "path": ""}, None), (None, None), (True, True),
    ],
)  # fmt: skip
def test_values_lose_their_subclass(value, expected):
    assert plain(value) == expected and type(plain(value)) is type(expected)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (dt.date(2024, 2, 29), "2024-02-29"), (dt.time(1, 2, 3, 4), "01:02:03.000004"),
        (dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC), "2024-02-29T12:00:00+00:00"), (decimal.Decimal("1.10"), "1.10"),
        (uuid.UUID(int=7), "00000000-0000-0000-0000-000000000007"), (dt.timedelta(days=1), "1 day, 0:00:00"), (5, None),
    ],
)  # fmt: skip
def test_dates_and_the_like_as_text(value, expected):
    assert as_text(value) == expected
    assert kind_of("x", value) == "json"  # never the sample's text


def test_numbers_of_numpy_stay_arrays():
    assert plain(np.float64(0.5)) is not None and kind_of("x", plain(np.float64(0.5))) == "array"
    assert kind_of("x", plain(np.int8(5))) == "array"


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("text", "text"), (b"x", "bytes"), ({"bytes": b"x", "path": None}, "bytes"), ({"bytes": None, "path": "x"}, "bytes"),
        (np.zeros(3), "array"), (torch.zeros(3), "array"), (photo(), "image"), (5, "json"), (True, "json"), (math.nan, "json"),
        ([1, [2, {"a": None}]], "json"), ({"bytes": 5, "path": "x"}, "json"), ((1, 2), "json"), (OrderedDict(a=1), "json"),
        ({"bytes": "5", "path": 1, "size": 2}, "json"), ([dt.date(2024, 1, 1)], "json"), (Point(1, 2), "json"),
    ],
)  # fmt: skip
def test_kinds(value, kind):
    assert kind_of("x", value) == kind


class Thing:
    pass


@pytest.mark.parametrize(
    ("value", "match"),
    [
        (Thing(), r"column 'x' holds a .*Thing, which cannot be stored without loss"),
        ({1, 2}, r"column 'x' holds a set,"),
        (1 + 2j, "column 'x' holds a complex"),
        ([1, b"x"], r"column 'x' holds a value x\[1\] of type bytes, which JSON would lose.*by a name of their own"),
        ({"boxes": np.zeros(4)}, r"a value x\['boxes'\] of type numpy.ndarray, which JSON would lose"),
        ({"a": [{"b": Thing()}]}, r"a value x\['a'\]\[0\]\['b'\] of type .*Thing"),
        ({1: "x"}, r"the key x\[1\] of type int, which JSON would lose.*Keys of a dict are str"),
        ([np.float64(1)], r"a value x\[0\] of type numpy.float64"),
        ([photo()], r"a value x\[0\] of type PIL.Image.Image"),
        (os.environ, "column 'x' holds a os._Environ"),
    ],
)
def test_what_would_be_lost_is_named(value, match):
    with pytest.raises(UsageError, match=match):
        kind_of("x", value)


def test_what_holds_itself_is_refused():
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(UsageError, match="column 'x' is nested too deep, or holds itself"):
        kind_of("x", endless)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (5, True), (np.int64(5), True), (np.array(5), True), (torch.tensor(5), True), (np.uint8(5), True), (Colour.RED, True),
        (True, False), (np.bool_(True), False), (torch.tensor(True), False), (5.0, False), (np.float32(5), False),
        (torch.tensor(5.0), False), (torch.tensor([5]), False), (np.array([5]), False), ("5", False), (b"5", False),
        (None, False),
        (np.zeros((3, 3)), False),
    ],
    ids=map(str, range(18)),
)  # fmt: skip
def test_one_whole_number(value, expected):
    assert is_index(value) is expected


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@given(JSON)
def test_json_comes_back_exactly(value):
    """Also numbers beyond 64 bits, NaN and infinities, and lone surrogates, which UTF-8 has not."""
    raw = json_bytes("x", value)
    raw.decode()
    assert repr(json.loads(raw)) == repr(value)


def test_json_stays_readable():
    assert json_bytes("x", {"a": "ä\n日本"}) == '{"a": "ä\\n日本"}'.encode()
    assert json_bytes("x", [dt.date(2024, 1, 1), decimal.Decimal("0.10")]) == b'["2024-01-01", "0.10"]'
    with pytest.raises(UsageError, match="the row cannot be written as JSON"):
        json_bytes("the row", [10**5000])


@given(st.text(st.characters(codec="utf-8")))
def test_text_is_utf8(text):
    assert utf8("x", text).decode() == text


def test_text_that_is_no_unicode_is_refused():
    with pytest.raises(UsageError, match=r"column 'caption' holds text that is no Unicode: character 2 .*got '\\udcff'.*bytes"):
        utf8("caption", "ab\udcffc")


def test_json_given_as_text():
    assert json_text("json", '{"a": 1}') == b'{"a": 1}'
    with pytest.raises(UsageError, match="column 'json' is a json field and holds text that is no JSON"):
        json_text("json", "plain words")


def test_media(tmp_path):
    (tmp_path / "x.jpg").write_bytes(b"jpeg")
    assert media_bytes("i", b"x") == (b"x", "")
    assert media_bytes("i", {"bytes": bytearray(b"x"), "path": "a/b.jpg"}) == (b"x", "a/b.jpg")
    assert media_bytes("i", {"bytes": None, "path": str(tmp_path / "x.jpg")}) == (b"jpeg", str(tmp_path / "x.jpg"))
    with pytest.raises(UsageError, match=r"column 'i' names the file '.*none.jpg', which cannot be read: No such file"):
        media_bytes("i", {"bytes": None, "path": str(tmp_path / "none.jpg")})
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="which cannot be read: not a regular file"):
        media_bytes("i", {"bytes": None, "path": str(tmp_path / "pipe")})
    with pytest.raises(UsageError, match="which cannot be read: embedded null byte"):
        media_bytes("i", {"bytes": None, "path": "a\0b"})
    assert is_media({"path": "x", "bytes": None}) and not is_media({"bytes": b""})
