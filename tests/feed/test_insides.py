"""Insides: what objects, classes and code hold, and what does not show it."""

import logging
import random
import re
import threading
from collections import deque
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

from fastfeed.feed.insides import (
    Unknown,
    attributes,
    global_names,
    is_plain,
    is_plainly,
    mapped,
    matters,
    members,
    names,
    pickled,
)


class Base:
    __slots__ = ("one",)


class Thing(Base):
    """A thing."""

    number = 5

    def __init__(self) -> None:
        self.one, self.two = 1, 2

    @property
    def three(self) -> int:
        return 3

    @staticmethod
    def four() -> int:
        return 4

    @cached_property
    def five(self) -> int:
        return 5

    @lru_cache  # noqa: B019 - nothing calls it
    def six(self) -> int:
        return 6


def test_plain_values():
    assert all(map(is_plain, (1, 1.5, True, "a", b"a", None, ...)))
    assert not any(map(is_plain, ([], np.float64(1), Path("a"))))
    assert is_plainly([("a", 1), ["b", [None, [2.5]]]]) and is_plainly([]) and is_plainly((1, ()))
    assert (
        not is_plainly([np.zeros(2)]) and not is_plainly([(1, [{}])]) and not is_plainly([Path("a")]) and not is_plainly(({1},))
    )


def test_attributes_come_from_slots_and_dict():
    assert attributes(Thing()) == {"one": 1, "two": 2}
    assert attributes(Base()) == {} and attributes(1) == {}


def test_what_pickling_shows_is_all_that_a_worker_gets():
    class Drops(Thing):
        def __getstate__(self):
            return {"one": self.one}

    assert pickled(Drops()) == {"one": 1}
    assert pickled(Thing()) is None
    assert pickled(deque([1, 2])) != pickled(deque([1, 3]))
    assert pickled(re.compile("a")) != pickled(re.compile("b"))


@pytest.mark.parametrize("value", [(each for each in "ab"), threading.Lock()], ids=["generator", "lock"])
def test_what_does_not_show_it_is_unknown(value):
    with pytest.raises(Unknown, match=type(value).__name__):
        pickled(value)


def test_a_table_that_is_too_much_to_copy_is_unknown(monkeypatch):
    table = pa.table({"a": [1, 2]})
    assert pickled(table) is not None
    monkeypatch.setattr("fastfeed.feed.insides.MOST_BYTES", 8)
    with pytest.raises(Unknown, match="Table"):
        pickled(table)


def test_arrays_that_show_a_file(tmp_path: Path):
    file = np.memmap(tmp_path / "file", "u1", "w+", shape=100)
    assert mapped(file) is file and mapped(np.asarray(file)[3:].reshape(-1)) is file
    assert mapped(np.zeros(3)) is mapped(np.float32(1)) is None
    file.flush()
    assert mapped(np.memmap(tmp_path / "file", "u1", "c")) is None


def test_what_raises_when_asked_is_unknown():
    class Raises:
        def __reduce__(self):
            raise ZeroDivisionError

    with pytest.raises(Unknown, match="Raises"):
        pickled(Raises())


def test_loggers_locks_and_generators_do_not_matter():
    assert not any(map(matters, (logging.getLogger(), threading.Lock(), threading.RLock())))
    assert not any(map(matters, (random.Random(1), np.random.default_rng(1), torch.Generator())))
    assert matters(Thing()) and matters(None)


def test_members_are_functions_and_values():
    found = members(Thing)
    assert list(found) == ["__init__", "five", "four", "number", "six", "three"]
    assert found["number"] == 5 and found["four"] == [Thing.four] and found["__init__"] == [Thing.__init__]
    assert [part(None) for name in ("five", "six", "three") for part in found[name]] == [5, 6, 3]


def test_names_in_code():
    def function():
        import json.decoder

        return [logging.INFO for _ in json.decoder.JSONDecoder().decode(str(re))]

    assert {"json.decoder", "JSONDecoder", "INFO", "logging", "re"} <= names(function.__code__)
    found = global_names(function.__code__)
    assert {"logging", "re"} <= found and not {"JSONDecoder", "INFO", "json"} & found
