"""A child process as its parent sees it: pipes, its stack when it hangs, how it ended."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from glob import glob
from itertools import islice, takewhile
from typing import Any, Protocol

from fastfeed.auditor.running import child
from fastfeed.auditor.running.nursery import Nursery
from fastfeed.config import package_folder
from fastfeed.packer.crew import start_worker
from fastfeed.packer.rows import fork

_STACK_SECONDS = 2.0
_POLL_SECONDS = 0.01
_FRAME = re.compile(r'File "(.+)", line (\d+) in (\S+)')
_SHOWN_FRAMES = 4
_CALLERS = (("auditor", "running"), ("packer", "rows", "byname.py"))
"""Code of ours that calls a user's."""
_IMPORTS = "<frozen importlib"
"""Python's own code between an import and what it runs."""
_ENDED = (b"Z", b"X")
"""States of a process in /proc/PID/stat."""


class Process(Protocol):
    """A process with three pipes."""

    pid: int
    orders: int
    """Descriptor to write to."""
    answers: int
    words: int
    """What it, and the code of the samples, prints; and a dying interpreter's stack."""

    def end(self) -> int:
        """Kill it if it lives, close the pipes, and give its exit code, negative for a signal."""


class Fresh:
    """A new interpreter: nothing is inherited, no lock, no thread, no CUDA."""

    def __init__(self) -> None:
        process = start_worker("fastfeed.auditor.running.child")
        assert isinstance(process, subprocess.Popen)
        self._process = process
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self.pid, self.orders = process.pid, process.stdin.fileno()
        self.answers, self.words = process.stdout.fileno(), process.stderr.fileno()

    def end(self) -> int:
        """Kill it and what it has started, and give its exit code."""
        kill_all(self.pid)
        code = self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        return code


class Forked:
    """A fork of this process, which has the dataset as it is: no dataset has to be pickled.

    Args:
        dataset: What it audits; None for what the first order describes.
        tokenizer: Counts the tokens of texts; None for what the first order names.
    """

    def __init__(self, dataset: Any, tokenizer: Any = None) -> None:  # noqa: ANN401 - any dataset
        takes, self.orders = os.pipe()
        self.answers, gives = os.pipe()
        self.words, says = os.pipe()

        def life() -> None:
            child.serve(lambda spec: child.open_subject(spec, dataset, tokenizer), takes, gives)

        try:
            self.pid = fork.start(life, says, [self.orders, self.answers, self.words])
        finally:
            for descriptor in (takes, gives, says):
                os.close(descriptor)

    def end(self) -> int:
        """Kill it, and give its exit code."""
        kill_all(self.pid)
        _, status = os.waitpid(self.pid, 0)
        for descriptor in (self.orders, self.answers, self.words):
            os.close(descriptor)
        return os.waitstatus_to_exitcode(status)


class Start(Protocol):
    """Starts children of one target."""

    def __call__(self) -> Process:
        """A child.

        Raises:
            WorkerDied: None can be started.
        """

    def close(self) -> None:
        """End what it keeps for starting them."""


class _Single:
    """Starts each by itself.

    Args:
        start: Starts one.
    """

    def __init__(self, start: Callable[[], Process]) -> None:
        self._start = start

    def __call__(self) -> Process:
        """A child."""
        return self._start()

    def close(self) -> None:
        """Nothing is kept."""


def starter(spec: Mapping[str, object], dataset: Any, tokenizer: Any = None) -> Start:  # noqa: ANN401 - any of them
    """What starts children for a target: forks of this process where they must inherit something that is alive."""
    if "live" in spec or tokenizer is not None:
        return _Single(lambda: Forked(dataset, tokenizer))
    foreign = "object" in spec or spec.get("tokenizer") is not None
    return _Single(Fresh) if foreign else Nursery()


def kill_all(pid: int) -> None:
    """SIGKILL to a process, and to all that it started, be they in sessions of their own: those its group's end would spare.

    What a process that has ended already had started is no longer known to be its.

    Args:
        pid: Of a child of ours that leads its group.
    """
    apart = [other for other in _started_by(pid) if _group_of(other) != pid]
    fork.kill(pid)
    for other in apart:
        with suppress(ProcessLookupError):  # it ended by itself
            os.kill(other, signal.SIGKILL)


def _started_by(pid: int) -> Iterator[int]:
    """The processes that descend from one, as far as the kernel tells (CONFIG_PROC_CHILDREN)."""
    for path in glob(f"/proc/{pid}/task/*/children"):
        with suppress(OSError), open(path, "rb") as file:  # the thread has ended
            for child_pid in map(int, file.read().split()):
                yield child_pid
                yield from _started_by(child_pid)


def _group_of(pid: int) -> int | None:
    with suppress(ProcessLookupError):
        return os.getpgid(pid)
    return None


def stack_of(pid: int, descriptor: int) -> str:
    """Where a process stands in Python, in one line ("it stood in ..."), or why that is unknown; it goes on meanwhile.

    Args:
        pid: Of a child of ours.
        descriptor: Its number, there, of the file that it writes its stack to.
    """
    path = f"/proc/{pid}/fd/{descriptor}"
    try:
        before = os.stat(path).st_size
        os.kill(pid, signal.SIGUSR1)
        deadline = time.monotonic() + _STACK_SECONDS
        while time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
            with open(path, "rb") as file:
                file.seek(before)
                text = file.read().decode(errors="replace")
            if told := told_stack(text):
                return f"it stood in {told}"
    except OSError as error:  # it has just ended, or may not be looked into
        return f"its stack could not be seen ({error.strerror})"
    return "it did not answer the signal that asks for its stack"


def has_ended(pid: int, *, within_seconds: float = 0.0) -> bool:
    """Whether a process has ended, be it waited for or not.

    Its pipes do not tell: it may have closed them itself, and one that it has forked may hold them open.

    Args:
        pid: Of a child of ours.
        within_seconds: For so long it is waited for.
    """
    deadline = time.monotonic() + within_seconds
    while True:
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                state = file.read().rpartition(b")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state in _ENDED or time.monotonic() > deadline:
            return state in _ENDED
        time.sleep(_POLL_SECONDS)


def told_stack(text: str) -> str:
    """The innermost frames of faulthandler's words, down to where our own code called, in one line; empty without any."""
    current = text.rpartition("most recent call first")[2]
    own = tuple(os.path.join(package_folder(), "fastfeed", *path) for path in _CALLERS)
    theirs = takewhile(lambda frame: not frame[0].startswith(own), _FRAME.findall(current))
    frames = (frame for frame in theirs if not frame[0].startswith(_IMPORTS))
    return ", called from ".join(f"{name} ({path}:{line})" for path, line, name in islice(frames, _SHOWN_FRAMES))
