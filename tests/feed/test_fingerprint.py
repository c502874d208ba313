"""Fingerprints: equal in every process for equal things, different for anything that may change samples."""

import collections
import datetime as dt
import decimal
import functools
import logging
import operator
import os
import random
import re
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from helpers import ROOT

from fastfeed.feed.fingerprint import Fingerprint


def of(*values: object) -> str:
    found = Fingerprint()
    for value in values:
        found.add(value)
    assert not found.unknown
    return found.digest()


class Data:
    def __init__(self, **attributes: object) -> None:
        self.__dict__.update(attributes)

    def read(self) -> int:
        return 1


class Counted(collections.Counter[str]):
    pass


class Slotted:
    __slots__ = ("size",)

    def __init__(self, size: int) -> None:
        self.size = size


def closing(value: int):
    return lambda sample: sample + value


def with_default(sample, by=1):
    return sample * by


FACTOR = 3
LOG = logging.getLogger("test_fingerprint")


def using_a_global(sample):
    return sample * FACTOR


DIFFERENT = [
    1, 2, True, 1.0, "1", b"1", None, [], (), {}, [1, 2], [2, 1], (1, 2), {"a": 1}, {"a": 2}, {"b": 1}, {1, 2},
    frozenset({1, 2}), [("a.jpg", 0), ("b.jpg", 1)], [("a.jpg", 0), ("b.jpg", 2)], [np.int64(1)], np.arange(3),
    np.arange(3).astype("f4"), np.arange(4), np.zeros((2, 3)), np.zeros((3, 2)), torch.arange(3), torch.arange(3).float(),
    torch.zeros(0), bytearray(b"1"),  closing(1), closing(2), lambda sample: sample + 1, lambda sample: sample - 1,
    with_default, functools.partial(with_default, by=2), using_a_global, Data(size=1), Data(size=2), Data(height=1),
    Slotted(1), Slotted(2), Data(size=1).read, torch.float32, torch.float16, np, torch, int, len,
    [np.zeros((2, 3))], [np.zeros((3, 2))], [np.zeros((3, 2), "i8")], re.compile("a"), re.compile("b"), range(3), range(4),
    dt.date(2026, 1, 1), dt.date(2026, 1, 2), decimal.Decimal("1.5"), Path("a"), Path("b"), Counted("ab"),
    Counted("abc"), collections.deque([1]), collections.deque([2]), operator.itemgetter(1), operator.itemgetter(2), [1].count,
    [2].count, torch.zeros(2).to_sparse(), torch.ones(2).to_sparse(), torch.tensor(1 + 1j).conj(), torch.tensor(1 + 1j),
]  # fmt: skip


def test_different_things_have_different_fingerprints():
    found = [of(value) for value in DIFFERENT]
    equal = [(one, other) for one in range(len(found)) for other in range(one) if found[one] == found[other]]
    assert not equal, [(DIFFERENT[one], DIFFERENT[other]) for one, other in equal]


def test_equal_things_have_equal_ones():
    assert of(Data(a=1, b=[2, np.arange(3)])) == of(Data(b=[2, np.arange(3)], a=1))
    assert of(closing(5)) == of(closing(5))
    shared = ["x", "y"]
    assert of([shared, ["x", "y"]]) == of([["x", "y"], shared])


def test_a_global_that_a_function_uses_counts(monkeypatch):
    before = of(using_a_global)
    monkeypatch.setitem(globals(), "FACTOR", 4)
    assert of(using_a_global) != before


def edited(monkeypatch, source: str, helper: str) -> str:
    """The fingerprint of what a module calls ``it``; another module, helper, can be imported by it."""
    module = ModuleType("module_that_is_edited")
    for name, text in {"helper_that_is_edited": helper, module.__name__: source}.items():
        module = ModuleType(name)
        monkeypatch.setitem(sys.modules, name, module)
        exec(text, module.__dict__)
    return of(module.it)


CLASS = "import functools\nclass C:\n    def __getitem__(self, i): return {}\n"
EDITS = {
    "a function that a method calls": "def f(): return {0}\n" + CLASS.format("f()") + "it = C()",
    "a global that a method reads": "N = {0}\n" + CLASS.format("N") + "it = C()",
    "a global of a function's function": "N = {0}\ndef f(): return lambda: N\n" + CLASS.format("f()()") + "it = C()",
    "a default of a method": "class C:\n    def __getitem__(self, i, n={0}): return n\nit = C()",
    "a value of a class": CLASS.format("self.n") + "    n = {0}\nit = C()",
    "a base class": "class B:\n    def f(self): return {0}\nclass C(B): pass\nit = C()",
    "a property": CLASS.format("self.f") + "    @property\n    def f(self): return {0}\nit = C()",
    "a cached property": f"{CLASS}    @functools.cached_property\n    def f(self): return {{0}}\nit = C()",
    "a static method": CLASS.format("self.f()") + "    @staticmethod\n    def f(): return {0}\nit = C()",
    "a class method": CLASS.format("self.f()") + "    @classmethod\n    def f(cls): return {0}\nit = C()",
    "a method that remembers": f"{CLASS}    @functools.lru_cache\n    def f(self): return {{0}}\nit = C()",
    "a class that a function makes one of": CLASS.format("{0}") + "it = lambda sample: C()[sample]",
    "a class behind a partial": "import functools\n" + CLASS.format("{0}") + "it = functools.partial(C)",
    "an attribute of a bound method's object": CLASS.format("self.n") + "x = C()\nx.n = {0}\nit = x.__getitem__",
    "an attribute of a function": "def it(sample): return it.n\nit.n = {0}",
    "a function within a function": "def it(sample):\n    def f(): return {0}\n    return f()",
    "a module's function": "import helper_that_is_edited as h\nit = lambda sample: h.f()",
    "a module's value": "import helper_that_is_edited as h\nit = lambda sample: h.N",
    "an import within a function": "def it(sample):\n    from helper_that_is_edited import f\n    return f()",
    "a function from a module": "from helper_that_is_edited import f\n" + CLASS.format("f()") + "it = C()",
    "what exceptions are caught": "def it(s):\n    try:\n        return s[0]\n    except ({0}, Exception): return 2",
}  # fmt: skip


@pytest.mark.parametrize("name", EDITS)
def test_code_that_is_edited_counts_wherever_it_is(monkeypatch, name):
    source, helper = EDITS[name], "N = {0}\ndef f(): return N"
    found = [edited(monkeypatch, source.replace("{0}", value), helper.replace("{0}", value)) for value in ("1", "2", "1")]
    assert found[0] == found[2] != found[1]


def test_code_that_is_installed_counts_by_its_version(monkeypatch):
    def used(sample):
        return torch.nn.functional.relu(sample)

    before = of(used)
    monkeypatch.setattr(torch, "__version__", "1.0")
    assert of(used) != before


def test_files_that_are_named_count(tmp_path: Path):
    file, folder = tmp_path / "file.txt", tmp_path / "folder"
    folder.mkdir()
    file.write_text("one")
    (folder / "1.jpg").write_text("one")
    named = [str(file)], Data(path=str(file)), Data(path=file)
    listed = Data(files=[(str(folder / "1.jpg"), 0)])
    before = [of(value) for value in (*named, listed)]
    facts = os.stat(file)
    (tmp_path / "other").write_text("two")  # of the same size and time
    os.utime(tmp_path / "other", ns=(facts.st_atime_ns, facts.st_mtime_ns))
    os.replace(tmp_path / "other", file)
    assert before[-1] == of(listed)
    (folder / "new").write_text("two")
    os.replace(folder / "new", folder / "1.jpg")
    after = [of(value) for value in (*named, listed)]
    assert all(one != other for one, other in zip(before[1:], after[1:], strict=True))


def test_arrays_that_show_a_file_count_by_the_file_and_are_not_read(tmp_path: Path):
    path = tmp_path / "tokens"
    with open(path, "wb") as file:
        file.truncate(1 << 40)  # nobody could read that
    tokens = np.memmap(path, "u2", "r")
    parts = [tokens, tokens[5:], tokens[:-5], np.asarray(tokens)[5:-5], tokens[::2], np.memmap(path, "u2", "r", offset=10)]
    found = [of(part) for part in parts]
    assert len(set(found)) == len(parts) and of(np.memmap(path, "u2", "r")) == found[0]
    os.utime(path, ns=(1, 1))
    assert of(tokens) != found[0]


def test_tables_count_by_their_values():
    pandas = pytest.importorskip("pandas")

    def table(last: str):
        return Data(table=pandas.DataFrame({"path": ["a", last], "label": [1, 2]}))

    assert of(table("b")) == of(table("b")) != of(table("c"))


class Reopened(Data):
    """Pickles to its path, as our datasets do, and classes that people derive from them."""

    def __getstate__(self) -> dict[str, Any]:
        return {"path": "packed"}


def test_the_content_of_a_dataset_that_pickles_to_its_path_counts():
    assert of(Reopened(digest="a", file=sys.stderr)) == of(Reopened(digest="a")) != of(Reopened(digest="b"))


def test_what_samples_do_not_depend_on_does_not_count():
    def said(sample):
        logging.getLogger("x").info("sample")
        return LOG, sample

    LOG.setLevel(5)

    def held(seed: int) -> Data:
        own = random.Random(seed), np.random.default_rng(seed), np.random.RandomState(seed), torch.Generator()
        return Data(lock=threading.Lock(), other=threading.RLock(), own=own)

    before = of(said, held(1))
    LOG.setLevel(6)
    assert of(said, held(2)) == before


def test_what_holds_one_another_deeply_is_no_obstacle():
    chain: list[object] = []
    for _ in range(20_000):
        chain = [Data(next=chain)]
    assert of(chain) == of(chain)


def test_a_circle_is_no_obstacle():
    one = Data(name="one")
    one.__dict__["itself"] = one
    assert of(one) == of(one)


def test_what_cannot_be_looked_into_makes_it_one_of_a_kind(tmp_path: Path):
    with open(tmp_path / "file", "wb") as file:
        found = []
        for _ in range(2):
            fingerprint = Fingerprint()
            fingerprint.add(Data(numbers=(number for number in range(3)), other=file))
            assert fingerprint.unknown == ["builtins.generator", "_io.BufferedWriter"]
            found.append(fingerprint.digest())
    assert found[0] != found[1]


def test_it_is_the_same_in_another_process(tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        from pathlib import Path
        import numpy as np
        from fastfeed.feed.fingerprint import Fingerprint
        class Data:
            def __init__(self):
                self.paths = [(f"{n}.jpg", n) for n in range(100)]
                self.names = {"cat", "dog", "horse", "zebra"}
                self.function = lambda sample: sample in {"a", "b", "c"}
                self.array = np.arange(5)
                self.folder = Path('/a') / 'b'
                self.hashed = hash(self.folder)
                del self.hashed
        found = Fingerprint()
        found.add(Data())
        print(found.digest(), found.unknown)
        """)
    )
    runs = {
        subprocess.run(
            [sys.executable, script], capture_output=True, text=True, check=True,
            env={"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed, "PATH": ""},
        ).stdout
        for seed in ("1", "2", "3")
    }  # fmt: skip
    assert len(runs) == 1 and runs.pop().endswith(" []\n")


@pytest.mark.parametrize("count", [200_000])
def test_a_long_list_is_taken_as_a_whole(count):
    fingerprint = Fingerprint()
    fingerprint.add([(f"class/{number:07d}.jpg", number) for number in range(count)])
    assert len(fingerprint._alive) == 1
