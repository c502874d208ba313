"""What the loader's tests share. Datasets and functions are here, where spawned workers can import them."""

import gc
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, Sampler, get_worker_info

from fastfeed.feed.loader import DataLoader


class Numbers(Dataset[Any]):
    """Sample i is i, and random numbers of each kind as its process draws them."""

    def __init__(self, size: int = 23) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: Any) -> Any:
        info = get_worker_info()
        return int(index), torch.rand(2), np.random.rand(), random.random(), -1 if info is None else info.seed


class Calls(Dataset[Any]):
    """Sample i is get(i)."""

    def __init__(self, get: Callable[[int], Any], size: int = 64) -> None:
        self.get, self.size = get, size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        return self.get(index)


class Large(Dataset[Any]):
    """Sample i is some MiB of i, an array, a number and a text."""

    def __init__(self, size: int = 12, mib: float = 4) -> None:
        self.size, self.mib = size, mib

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        large = torch.full((int(self.mib * 262144),), float(index))
        return {"large": large, "small": torch.full((3, 2), index), "array": np.full(700, index), "number": index, "text": "x"}


class Flow(IterableDataset[Any]):
    """The samples of Large, each worker its part."""

    def __init__(self, size: int = 12, mib: float = 4) -> None:
        self.samples = Large(size, mib)

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        return (self.samples[index] for index in range(first, self.samples.size, step))


@dataclass
class Held:
    """A batch of a class of its own, with memory that two tensors share."""

    large: torch.Tensor
    part: torch.Tensor
    rest: Any


def hold(samples: list[Any]) -> Held:
    """A collate function without default_collate."""
    large = torch.stack([sample["large"] for sample in samples])
    return Held(large, large[:, ::7], [sample["array"] for sample in samples])


def in_own_space(script: str, shared_mib: int, *arguments: str) -> Any:
    """Run a script in a process that has a /dev/shm of its own; it prints JSON as its last line.

    Args:
        script: Python.
        shared_mib: Size of /dev/shm.
        *arguments: For sys.argv.

    Returns:
        What it printed last.
    """
    mount = f"mount -t tmpfs -o size={shared_mib}m tmpfs /dev/shm"
    if subprocess.run(["unshare", "-m", "sh", "-c", mount], capture_output=True, check=False).returncode:
        pytest.skip("this process may not mount a /dev/shm of its own (unshare -m)")
    command = ["unshare", "-m", "sh", "-c", f'{mount} && exec "$@"', "sh", sys.executable, "-W", "ignore", "-c", script]
    return printed([*command, *arguments])


def printed(command: list[str]) -> Any:
    """The JSON that a command prints as its last line. It finds tests' modules."""
    path = os.pathsep.join([os.path.dirname(__file__), os.path.dirname(os.path.dirname(__file__))])
    ended = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=240, env={**os.environ, "PYTHONPATH": path}
    )
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"
    assert not re.search("Bus error|ancdata|Too many open|Traceback", ended.stderr), ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


class At:
    """Gives i, but calls a function at some of them."""

    def __init__(self, bad: int | set[int], call: Callable[[], Any]) -> None:
        self.bad, self.call = {bad} if isinstance(bad, int) else bad, call

    def __call__(self, index: int) -> Any:
        return self.call() if index in self.bad else index


class Raise:
    """Raises an exception."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __call__(self) -> Any:
        raise self.error


class TwoArguments(Exception):
    """Cannot be made from a text alone."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code} {text}")
        self.code = code


class Together(Numbers):
    """Has __getitems__."""

    def __getitems__(self, indices: Any) -> list[Any]:
        return [self[index] for index in indices]


class Eager(Sampler[int]):
    """Draws its random numbers when it is asked for an iterator."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[int]:
        return iter(torch.randperm(self.size).tolist())


class Bunches(Sampler[Any]):
    """Batches of growing size, as tensors."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __iter__(self) -> Iterator[torch.Tensor]:
        order, at, count = torch.randperm(self.size), 0, 1
        while at < self.size:
            yield order[at : at + count]
            at, count = at + count, count + 1


def mixed_up(samples: list[Any]) -> Any:
    """A collate function that draws random numbers."""
    return [sample[0] for sample in samples], torch.rand(1), np.random.rand(), random.random()


class Offset(Numbers):
    """Sample i is i and what worker_init_fn has left."""

    offset = 0

    def __getitem__(self, index: int) -> Any:
        return index + self.offset


def set_start(worker: int) -> None:
    """A worker_init_fn that changes the dataset that it finds."""
    info: Any = get_worker_info()
    assert isinstance(info.dataset, Offset)
    info.dataset.offset = 100 * (worker + 1)


def equal(one: Any, other: Any) -> bool:
    """Whether two structures of tensors, arrays and values are the same, types included."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and bool((one == other).all())
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(equal(one[key], other[key]) for key in one)
    return bool(one == other)


def states() -> Any:
    """Of this process's global random generators."""
    return torch.get_rng_state(), list(np.random.get_state()), random.getstate()


def seed_all(seed: int) -> None:
    """Seed this process's global random generators."""
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


def three_epochs(make: Callable[[], Any]) -> Any:
    """All batches of three epochs, and the state that the main process's random numbers are left in."""
    seed_all(5)
    loader = make()
    return [list(loader) for _ in range(3)], states()


def indices(batches: Any) -> list[list[int]]:
    """Of batches of Numbers."""
    return [batch[0].tolist() for batch in batches]


TORCHS_NOISE = [
    # torch tells of a dead worker by raising from a signal handler: in its own __del__ as well, and between two lines that
    # open and close a socket.
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings(
        "ignore:Exception ignored in. <function _MultiProcessingDataLoaderIter.__del__:pytest.PytestUnraisableExceptionWarning"
    ),
]
"""Marks of tests whose workers are killed."""

_SEEN: set[int] = {os.getpid()}


def children() -> set[int]:
    """Processes that this one has started, and that are there."""
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
        found = {int(pid) for pid in file.read().split()}
    _SEEN.update(found)
    return found


def remains() -> dict[str, Any]:
    """What a loader could leave behind; of /dev/shm the names with a process number of ours, since others use it as well."""
    links = [f"/proc/self/fd/{descriptor}" for descriptor in os.listdir("/proc/self/fd")]
    opened = [os.readlink(link) for link in links if os.path.lexists(link)]
    return {
        "children": children(),
        "shm": [name for name in os.listdir("/dev/shm") if any(f"_{pid}_" in name for pid in _SEEN)],
        "stacks": [name for name in opened if "fastfeed-stack" in name],
        "threads": [thread.name for thread in threading.enumerate()],
        # Of multiprocessing's own folders (pymp-...) a worker leaves one now and then, with torch's loader as well.
        "files": [name for name in os.listdir(tempfile.gettempdir()) if not name.startswith("pymp-")],
    }


@contextmanager
def own_temporary_folder() -> Iterator[None]:
    """Other tests' files are not in the temporary folder. Its path is short: sockets in it may have few bytes of name."""
    before = tempfile.tempdir
    with tempfile.TemporaryDirectory(prefix="ff", ignore_cleanup_errors=True) as folder:
        tempfile.tempdir = folder
        try:
            yield
        finally:
            tempfile.tempdir = before


def settled(before: dict[str, Any], seconds: float = 10.0) -> dict[str, Any]:
    """What is there that was not; it is waited for, since threads and processes take a moment to end."""
    deadline = time.monotonic() + seconds
    while True:
        now = remains()
        left = {name: list((Counter(now[name]) - Counter(before[name])).elements()) for name in now}
        left = {name: values for name, values in left.items() if values}
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.02)


class Raises:
    """pytest.raises for passes with workers: frames and tracebacks are let go, and the pass with them.

    With pytest's, the exception is in a circle with the test's frame, and workers end whenever that is collected: perhaps
    in a process that another test has forked.
    """

    value: BaseException
    printed: str

    def __init__(self, kind: type[BaseException] | tuple[type[BaseException], ...], match: str = "") -> None:
        self.kind, self.match = kind, match

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        assert error is not None, "nothing was raised"
        if not isinstance(error, self.kind):
            return False
        self.value, self.printed = error, "".join(traceback.format_exception(error))
        assert not self.match or re.search(self.match, str(error)), f"{self.match!r} is not in {str(error)!r}"
        one: BaseException | None = error
        while one is not None:
            traceback.clear_frames(one.__traceback__)
            one.__traceback__ = None
            one = one.__cause__ or one.__context__
        return True


class NoCollector:
    """Nothing is collected in here: what is gone was gone by its last reference."""

    def __enter__(self) -> None:
        gc.collect()
        gc.disable()

    def __exit__(self, *facts: object) -> None:
        gc.enable()


def fault(call: Any, *, bad: int = 37, **options: Any) -> Raises:
    """What comes of reading 64 samples of which one does something."""
    with Raises(Exception) as caught:
        list(DataLoader(Calls(At(bad, call)), **{"batch_size": 8, "num_workers": 1, **options}))
    return caught


def settles(is_true: Callable[[], bool]) -> bool:
    """Whether something becomes true."""
    ends = time.monotonic() + 30
    while not is_true() and time.monotonic() < ends:
        time.sleep(0.005)
    return is_true()
