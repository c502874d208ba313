"""One of a crew's children as the crew sees it: what it was given, and what it has answered."""

import os
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter

from fastfeed.auditor.finding import Finding
from fastfeed.auditor.running.process import Process
from fastfeed.auditor.running.subject import HOW, How
from fastfeed.source import wire


@dataclass(slots=True)
class Task:
    """A sample to load."""

    index: int
    how: How = HOW
    how_it_died: str | None = None
    """Of the first try."""
    behind: int = 0
    """Samples that the process had loaded before it, at the first try."""
    found: Finding | None = None
    """What is known of it already: only its names are still wanted."""
    probe: bool = False
    """It was loaded before; if it kills its process now, it is not the samples that do so."""


@dataclass(slots=True, eq=False)
class Member:
    """A process, and the samples that it has: the first is in work."""

    process: Process
    tasks: "deque[Task]" = field(default_factory=deque)
    began: float = field(default_factory=time.monotonic)
    """When it was last heard, or given something to do when it had nothing."""
    loaded: int = 0
    ready: bool = False
    stack: int = -1
    stood: str | None = None
    """Where it stood when its sample was spoken of; from then on it gets no other."""
    words: bytes = b""
    _unread: bytes = b""
    """Of its answers: the beginning of a line."""

    def give(self, tasks: Sequence[Task]) -> None:
        """Let it load samples, behind those that it has."""
        if not self.tasks:
            self.began = time.monotonic()
        self.tasks.extend(tasks)
        for how, alike in groupby(tasks, key=attrgetter("how")):
            self.tell({"indices": [task.index for task in alike], "how": how})

    def tell(self, order: dict[str, object]) -> None:
        """Give it an order."""
        try:
            os.write(self.process.orders, wire.encode(order))
        except BrokenPipeError:
            return  # it is dead: its closed pipe says so

    def answers(self, data: bytes) -> list[bytes]:
        """The lines that these bytes from its pipe complete."""
        *lines, self._unread = (self._unread + data).split(b"\n")
        return lines

    def done(self) -> Task:
        """Its first sample is answered; gives what that was."""
        self.loaded += 1
        self.began = time.monotonic()
        return self.tasks.popleft()
