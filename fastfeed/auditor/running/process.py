"""A child process as its parent sees it: pipes, its stack when it hangs, how it ended."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from itertools import islice, takewhile
from typing import Any, Protocol

from fastfeed.auditor.running import child
from fastfeed.auditor.running.nursery import Nursery
from fastfeed.auditor.running.python import subject_of
from fastfeed.config import package_folder
from fastfeed.packer.crew import start_worker
from fastfeed.packer.rows import fork

_STACK_SECONDS = 2.0
_POLL_SECONDS = 0.01
_FRAME = re.compile(r'File "(.+)", line (\d+) in (\S+)')
_SHOWN_FRAMES = 4


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
        fork.kill(self.pid)
        code = self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        return code


class Forked:
    """A fork of this process, which has the dataset as it is: no dataset has to be pickled.

    Args:
        dataset: What it audits.
    """

    def __init__(self, dataset: Any) -> None:  # noqa: ANN401 - any dataset
        takes, self.orders = os.pipe()
        self.answers, gives = os.pipe()
        self.words, says = os.pipe()

        def life() -> None:
            child.serve(lambda _: subject_of(dataset), takes, gives)

        try:
            self.pid = fork.start(life, says, [self.orders, self.answers, self.words])
        finally:
            for descriptor in (takes, gives, says):
                os.close(descriptor)

    def end(self) -> int:
        """Kill it, and give its exit code."""
        fork.kill(self.pid)
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


def starter(spec: Mapping[str, object], dataset: Any) -> Start:  # noqa: ANN401 - any dataset
    """What starts children for a target: as cheaply as the code that runs in them allows."""
    if "live" in spec:
        return _Single(lambda: Forked(dataset))
    return _Single(Fresh) if "object" in spec else Nursery()


def stack_of(pid: int, descriptor: int) -> str:
    """Where a process stands in Python, in one line; it goes on meanwhile.

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
                return told
    except OSError as error:  # it has just ended, or may not be looked into
        return f"its stack cannot be seen ({error.strerror})"
    return "it does not answer the signal that asks for its stack"


def told_stack(text: str) -> str:
    """The innermost frames of faulthandler's words, down to where our own code called, in one line; empty without any."""
    current = text.rpartition("most recent call first")[2]
    own = os.path.join(package_folder(), "fastfeed", "auditor", "running")
    frames = takewhile(lambda frame: not frame[0].startswith(own), _FRAME.findall(current))
    return ", called from ".join(f"{name} ({path}:{line})" for path, line, name in islice(frames, _SHOWN_FRAMES))
