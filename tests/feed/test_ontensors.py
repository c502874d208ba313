"""fastfeed/feed/ontensors.py."""

from collections import OrderedDict, UserDict, UserList
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

from fastfeed.feed.ontensors import exchanged, moves_itself


class Pair(NamedTuple):
    one: Any
    other: Any


@dataclass(frozen=True)
class Held:
    images: Any
    name: str = "x"


class Titled(dict[str, Any]):
    """A dict with more than its items."""

    def __init__(self, title: str, **items: Any) -> None:
        super().__init__(items)
        self.title = title


def negated(part: Any) -> Any:
    return -part


ONE = torch.arange(3)


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        (ONE, -ONE),
        ([ONE, 1, "x", None], [-ONE, 1, "x", None]),
        ((ONE, [ONE]), (-ONE, [-ONE])),
        ({"a": {"b": ONE}, 3: b"x"}, {"a": {"b": -ONE}, 3: b"x"}),
        (Pair(ONE, "x"), Pair(-ONE, "x")),
        (OrderedDict(a=ONE), OrderedDict(a=-ONE)),
        (UserDict(a=ONE), UserDict(a=-ONE)),
        (UserList([ONE, 2]), UserList([-ONE, 2])),
        (MappingProxyType({"a": ONE}), {"a": -ONE}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_tensors_are_exchanged_in(batch, expected):
    found = exchanged(batch, negated)
    assert type(found) is type(expected) or isinstance(batch, MappingProxyType)
    assert str(dict(found) if isinstance(batch, MappingProxyType) else found) == str(expected)
    assert torch.equal(ONE, torch.arange(3))


def test_a_dataclass_is_made_anew_and_a_frozen_one_too():
    held = Held(ONE)
    found = exchanged([held], negated)[0]
    assert torch.equal(found.images, -ONE) and found.name == "x" and held.images is ONE


def test_a_mapping_keeps_what_is_not_an_item():
    found = exchanged(Titled("mine", a=ONE), negated)
    assert type(found) is Titled and found.title == "mine" and torch.equal(found["a"], -ONE)


def test_what_has_no_tensors_is_the_same_object():
    parts = [np.ones(3), object(), list(range(100)), range(4), "text"]
    found = exchanged(parts, negated)
    assert all(one is other for one, other in zip(found, parts, strict=True))


def test_objects_that_move_themselves_are_asked_and_not_opened():
    packed = pack_sequence([torch.ones(2), torch.ones(1)])
    assert moves_itself(packed) and not moves_itself([ONE]) and not moves_itself(UserDict())
    seen: list[Any] = []
    exchanged({"a": packed}, seen.append)
    assert len(seen) == 1 and seen[0] is packed


class Two(tuple[Any, ...]):
    """A tuple that cannot be made of a list."""

    __slots__ = ()

    def __new__(cls, one: Any, other: Any) -> Self:
        return super().__new__(cls, (one, other))


class Colour(StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    "part", [np.str_("abc"), Colour.RED, memoryview(b"abc"), Two(1, "x")], ids=lambda part: type(part).__name__
)
def test_texts_and_others_that_are_sequences_stay_what_they_are(part):
    assert exchanged([part, ONE], negated)[0] is part


def test_a_tuple_that_cannot_be_made_anew_becomes_a_plain_one():
    found = exchanged(Two(ONE, "x"), negated)
    assert type(found) is tuple and torch.equal(found[0], -ONE) and found[1] == "x"
