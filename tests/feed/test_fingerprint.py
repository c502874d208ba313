"""Fingerprints: equal in every process for equal things, different for anything that may change samples."""

import functools
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import ROOT

from fastfeed.feed.fingerprint import Fingerprint, file_facts, versions


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


class Slotted:
    __slots__ = ("size",)

    def __init__(self, size: int) -> None:
        self.size = size


def closing(value: int):
    return lambda sample: sample + value


def with_default(sample, by=1):
    return sample * by


FACTOR = 3


def using_a_global(sample):
    return sample * FACTOR


DIFFERENT = [
    1, 2, True, 1.0, "1", b"1", None, [], (), {}, [1, 2], [2, 1], (1, 2), {"a": 1}, {"a": 2}, {"b": 1}, {1, 2},
    frozenset({1, 2}), [("a.jpg", 0), ("b.jpg", 1)], [("a.jpg", 0), ("b.jpg", 2)], [np.int64(1)], np.arange(3),
    np.arange(3).astype("f4"), np.arange(4), np.zeros((2, 3)), np.zeros((3, 2)), torch.arange(3), torch.arange(3).float(),
    torch.zeros(0), bytearray(b"1"), closing(1), closing(2), lambda sample: sample + 1, lambda sample: sample - 1,
    with_default, functools.partial(with_default, by=2), using_a_global, Data(size=1), Data(size=2), Data(height=1),
    Slotted(1), Slotted(2), Data(size=1).read, torch.float32, torch.float16, np, torch, int, len,
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


def test_a_circle_is_no_obstacle():
    one = Data(name="one")
    one.__dict__["itself"] = one
    assert of(one) == of(one)


def test_what_cannot_be_looked_into_makes_it_one_of_a_kind(tmp_path: Path):
    with open(tmp_path / "file", "wb") as file:
        found = []
        for _ in range(2):
            fingerprint = Fingerprint()
            fingerprint.add(Data(file=iter([1]), other=file))
            assert "list_iterator" in " ".join(fingerprint.unknown)
            found.append(fingerprint.digest())
    assert found[0] != found[1]


def test_it_is_the_same_in_another_process(tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        import numpy as np
        from fastfeed.feed.fingerprint import Fingerprint
        class Data:
            def __init__(self):
                self.paths = [(f"{n}.jpg", n) for n in range(100)]
                self.names = {"cat", "dog", "horse", "zebra"}
                self.function = lambda sample: sample in {"a", "b", "c"}
                self.array = np.arange(5)
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


def test_versions_and_files(tmp_path: Path):
    assert f"torch {torch.__version__}" in versions() and versions()[0].startswith("Python 3.")
    path = tmp_path / "file"
    assert file_facts(str(path)) == file_facts(5) == file_facts(None) == ""
    path.write_text("one")
    before = file_facts(path)
    path.write_text("three")
    assert before and file_facts(str(path)) != before


@pytest.mark.parametrize("count", [200_000])
def test_a_long_list_is_taken_as_a_whole(count):
    fingerprint = Fingerprint()
    fingerprint.add([(f"class/{number:07d}.jpg", number) for number in range(count)])
    assert len(fingerprint._alive) == 1
