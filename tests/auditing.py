"""What the audit's tests share: datasets that misbehave at known samples, written as programs would write them."""

import json
import os
from pathlib import Path
from typing import Any

from fastfeed.auditor.running.crew import Crew
from fastfeed.auditor.running.limits import Limits
from fastfeed.auditor.running.process import starter

_CODE = """
import ctypes, os, signal, time

class Bad:
    def __init__(self, count=40):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        {body}
        return index

def make():
    return Bad()
"""


def program(folder: Path, body: str, name: str = "bad") -> str:
    """A dataset of 40 samples in a file.

    Args:
        folder: Where.
        body: What __getitem__ does before it gives the index; one statement a line.
        name: Of the file.

    Returns:
        The dataset's name, as audit takes it.
    """
    path = folder / f"{name}.py"
    path.write_text(_CODE.format(body=body.replace("\n", "\n        ")))
    return f"{path}:make"


def crew_of(name: str, *, count: int = 1, **limits: Any) -> Crew:
    """Children for a dataset by its name."""
    spec: dict[str, object] = {"object": name}
    return Crew(starter(spec, None), spec, count=count, limits=Limits(**limits))


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The records of a report."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def children() -> set[int]:
    """Processes that this one has started and that are still there."""
    found = set()
    for task in os.listdir("/proc/self/task"):
        found |= {int(pid) for pid in Path(f"/proc/self/task/{task}/children").read_text().split()}
    return found
