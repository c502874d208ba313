"""Children that load samples: each sample is answered for, by its record or by what it did to the process that loaded it.

A child that dies takes no sample along but the one that it was at, and that one gets a second chance, first in a new process.
"""

import logging
import os
import selectors
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from fastfeed.auditor.finding import Finding
from fastfeed.auditor.judging.noise import Beat
from fastfeed.auditor.record import SampleRecord, StageTime
from fastfeed.auditor.running.catalogue import CODES
from fastfeed.auditor.running.codes import CRASH, CRASH_ONCE, HANG, TAKES_LONG
from fastfeed.auditor.running.lastwords import CLOSED, crashed, drained, hopeless, how_ended, unable
from fastfeed.auditor.running.limits import Limits, Spread
from fastfeed.auditor.running.process import Process, Start, has_ended, stack_of
from fastfeed.auditor.running.subject import HOW, How
from fastfeed.source import wire
from fastfeed.units import format_count, format_seconds

LOG = logging.getLogger("fastfeed.audit")
_AHEAD = ((0.01, 8), (0.25, 2))
"""(seconds that a sample takes, samples that a child has): it goes on with the next while this process takes in the last. Of
samples that take longer it has one, so that nobody waits long for the last ones, or when time is up."""
_WORDS_BYTES = 8000
_LOOK_SECONDS = 1.0
"""How often it is looked whether one hangs."""
_MOST_FALSE_STARTS = 3
"""Children in a row that are killed before they can load anything: then it is no chance."""
_END_SECONDS = 1.0
"""A process that ends closes its pipes first; after this time it is not about to end."""
_FEW = 64
"""So many samples are measured again by one child: it is not disturbed by others, and they need not be started."""
_MOST_ASIDE = 8
"""Children that may hang at once, beside those that work."""
_MOST_CRASHES = 8
"""Samples in a row that kill their process, and none in between that does not: then one that was loaded before is tried."""


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
class _Child:
    """A process, and the samples that it has: the first is in work."""

    process: Process
    tasks: "deque[Task]" = field(default_factory=deque)
    began: float = field(default_factory=time.monotonic)
    loaded: int = 0
    ready: bool = False
    stack: int = -1
    stood: str | None = None
    """Where it stood when its sample was spoken of; from then on it gets no other."""
    unread: wire.Unread = field(default_factory=wire.Unread)
    words: bytes = b""

    def give(self, message: bytes) -> None:
        try:
            os.write(self.process.orders, message)
        except BrokenPipeError:
            return  # it is dead: its closed pipe says so


class Crew:
    """Children of one target.

    Args:
        start: Starts one.
        spec: What it is told to open.
        count: How many work side by side. One that hangs is not counted.
        limits: What a sample may take.
    """

    def __init__(self, start: Start, spec: dict[str, object], *, count: int, limits: Limits) -> None:
        self._start, self._spec, self._most, self._limits = start, spec, count, limits
        self._wanted = count
        self._stream = False
        """Whether sample i comes only behind sample i - 1, so that nothing comes behind one that kills its process."""
        self._spread = Spread()
        self._ahead = 2
        self._children: list[_Child] = []
        self._again: deque[Task] = deque()
        """Samples whose process died; and those that it had behind them."""
        self._false_starts = 0
        """Children in a row that were killed before they could load anything."""
        self._crashes = 0
        self._fine: Task | None = None
        """The last one that was loaded."""
        self.beats: list[Beat] = []
        """What the machine was like meanwhile."""
        self.count: int | None = None
        """Samples that there are; None for a stream, and before prepare()."""
        self.ended_at: int | None = None
        """Of a stream: how many samples it gave, once that is known."""
        self.cut_short: str | None = None
        """Why a stream could not be read to its end."""

    def __enter__(self) -> Self:
        self._selector = selectors.DefaultSelector()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for child in list(self._children):
            self._dismiss(child)
        self._selector.close()

    def prepare(self) -> int | None:
        """Start a first child, and let it tell how many samples there are.

        Raises:
            FastfeedError: What is audited cannot be opened.
            WorkerDied: The child died before it could say so.
        """
        first = self._hire()
        while not first.ready:
            for _ in self._hear(None):
                pass
            if first not in self._children:
                first = self._hire()
        if self.count is None:
            self._stream, self._wanted = True, 1
        return self.count

    # ------------------------------------------------------------------------------------------------ the work
    def run(self, tasks: Iterable[Task]) -> Iterator[SampleRecord]:
        """Load samples.

        Args:
            tasks: Taken one by one as children come free.

        Yields:
            A record for each, in the order in which they are done.

        Raises:
            WorkerDied: Children die whatever they load.
        """
        coming, looked = iter(tasks), time.monotonic()
        while True:
            self._feed(coming)
            if not any(child.tasks for child in self._children) and not self._again:
                return
            yield from self._hear(_LOOK_SECONDS)
            if time.monotonic() > looked + _LOOK_SECONDS:
                yield from self._watch()
                self._ahead, looked = self._usual_ahead(), time.monotonic()

    def measured(self, indices: Sequence[int], *, cold: bool) -> dict[int, list[dict[str, StageTime]]]:
        """Times of samples, in this order, without a look at them.

        Args:
            indices: Each once.
            cold: From the disk.

        Returns:
            By index; one that could not be loaded, or not from the disk, is missing.

        Raises:
            WorkerDied: As run().
        """
        self._wanted = 1 if len(indices) <= _FEW else self._most
        how = How(look=False, full=False, cold=cold)
        records = self.run(Task(index, how) for index in indices)
        return {record.index: [record.times] for record in records if record.times and not record.findings}

    def _usual_ahead(self) -> int:
        """How many samples a child should have."""
        usual = self._spread.percentile(0.5)
        return 2 if usual is None else next((count for seconds, count in _AHEAD if usual < seconds), 1)

    def _feed(self, coming: Iterator[Task]) -> None:
        """Give each child what it lacks. A sample whose process died goes first, alone, to a new one."""
        while self._again and (self._again[0].how_it_died is not None or self._again[0].probe):
            child = self._hire()
            self._give(child, self._again.popleft())
        for place in range(self._ahead):
            working = [child for child in self._children if child.stood is None]
            aside = len(self._children) - len(working)
            for number in range(self._wanted if aside < _MOST_ASIDE else 0):
                if number < len(working) and len(working[number].tasks) > place:
                    continue
                task = self._again.popleft() if self._again else next(coming, None)
                if task is None or self.ended_at is not None or self.cut_short is not None:
                    return
                if number >= len(working):
                    working.append(self._hire())
                self._give(working[number], task)

    def _give(self, child: _Child, task: Task) -> None:
        if not child.tasks:
            child.began = time.monotonic()
        child.tasks.append(task)
        child.give(wire.encode({"index": task.index, "how": task.how}))

    def _hire(self) -> _Child:
        child = _Child(self._start())
        self._children.append(child)
        for name in ("answers", "words"):
            self._selector.register(getattr(child.process, name), selectors.EVENT_READ, (child, name))
        child.give(wire.encode({"spec": self._spec, "memory_bytes": self._limits.memory_bytes}))
        return child

    def _dismiss(self, child: _Child) -> int:
        """End a child; its exit code."""
        self._children.remove(child)
        for descriptor in (child.process.answers, child.process.words):
            if descriptor in self._selector.get_map():
                self._selector.unregister(descriptor)
        return child.process.end()

    # ------------------------------------------------------------------------------------------------ what comes back
    def _hear(self, seconds: float | None) -> Iterator[SampleRecord]:
        for key, _ in self._selector.select(seconds):
            child, name = key.data
            if child not in self._children:
                continue  # ended since
            data = os.read(key.fd, 1 << 16)
            if name == "words":
                child.words = (child.words + data)[-_WORDS_BYTES:]
                if not data:
                    self._selector.unregister(key.fd)
            elif data:
                for message in child.unread.feed(data):
                    if child in self._children:  # else it was ended, and others do what it had besides
                        yield from self._answered(child, message.head)
            else:
                yield from self._died(child)

    def _answered(self, child: _Child, head: dict[str, Any]) -> Iterator[SampleRecord]:
        if "error" in head:
            raise wire.error_of(head)
        if "beat" in head:
            self.beats.append(Beat(**head["beat"]))
        match head["event"]:
            case "ready":
                child.ready, child.stack, self.count = True, head["stack"], head["count"]
                self._false_starts = 0
                child.began = time.monotonic()  # its start is not its first sample's
            case "loaded" | "end":
                task = child.tasks.popleft()
                took, child.began = time.monotonic() - child.began, time.monotonic()
                child.loaded += 1
                if task.probe:
                    self._crashes = 0
                elif head["event"] == "loaded":
                    yield self._record(child, task, took, SampleRecord.from_json(head["record"], CODES))
                else:
                    self.ended_at = task.index if self.ended_at is None else min(self.ended_at, task.index)

    def _record(self, child: _Child, task: Task, took: float, record: SampleRecord) -> SampleRecord:
        """A child's record, with what only its parent knows."""
        if task.found is not None:
            record.findings = [task.found]
            return record
        self._crashes, self._fine = 0, task
        self._spread.add(took)
        if task.how_it_died is not None:
            text = f"a process {task.how_it_died} at it, after {format_count(task.behind, 'other')}"
            record.findings.append(Finding(CRASH_ONCE, text))
        if child.stood is not None:
            text = f"it took {format_seconds(took)}; meanwhile {child.stood}"
            record.findings.append(Finding(TAKES_LONG, text))
            self._dismiss(child)  # another has its place, and what it had besides
        return record

    def _died(self, child: _Child) -> Iterator[SampleRecord]:
        ended = has_ended(child.process.pid, within_seconds=_END_SECONDS)
        rest = drained(child.process.words)
        code = self._dismiss(child)
        how = how_ended(code) if ended else CLOSED
        words = (child.words + rest).decode(errors="replace")
        if not child.ready:
            self._not_begun(child, how, words, by_signal=ended and code < 0)
            return
        if not child.tasks:
            return  # killed while it had nothing to do: nothing is lost
        task = child.tasks.popleft()
        if child.stood is None:
            self._again.extend(child.tasks)
        if task.probe:
            raise hopeless(how, words, _MOST_CRASHES)
        if task.found is not None:
            yield SampleRecord(task.index, findings=[task.found])
        elif task.how_it_died is None:  # what came before it may have done it: alone in a new process it gets a second chance
            self._again.appendleft(Task(task.index, task.how, how, child.loaded))
        else:
            self._suspect_all(how, words)
            yield from self._given_up(task, Finding(CRASH, crashed(how, words)))

    def _not_begun(self, child: _Child, how: str, words: str, *, by_signal: bool) -> None:
        """One died before it could load a sample. Others get what it had if it was killed: by the kernel, for memory, say."""
        self._false_starts += 1
        if not by_signal or self._false_starts >= _MOST_FALSE_STARTS:
            raise unable(how, words)
        self._again.extendleft(reversed(child.tasks))

    def _suspect_all(self, how: str, words: str) -> None:
        """After many crashes in a row it may be the machine: a sample that was loaded before tells."""
        self._crashes += 1
        if self._crashes >= _MOST_CRASHES and self._fine is None:
            raise hopeless(how, words, _MOST_CRASHES)
        if self._crashes == _MOST_CRASHES and self._fine is not None and not self._stream:
            self._again.appendleft(Task(self._fine.index, self._fine.how, probe=True))

    def _given_up(self, task: Task, found: Finding) -> Iterator[SampleRecord]:
        """A sample that cannot be loaded: another process tells its names. Behind one of a stream nothing can be read."""
        if not self._stream:
            self._again.append(Task(task.index, How(load=False), found=found))
        else:
            yield SampleRecord(task.index, findings=[found])
            self._again.clear()
            self.cut_short = f"the stream cannot be read beyond sample {task.index}, which ends the process that reads it"

    # ------------------------------------------------------------------------------------------------ hanging
    def _watch(self) -> Iterator[SampleRecord]:
        """Speak of samples that take long, and end those that take too long."""
        now = time.monotonic()
        for child in list(self._children):
            if self._left_its_pipe_open(child):
                yield from self._died(child)
            elif not child.tasks or not child.ready:
                continue
            took = now - child.began
            if took > self._limits.end_after(self._spread):
                yield from self._ended(child, took)
            elif child.stood is None and took > self._limits.speak_after(self._spread):
                self._speak(child, took)

    def _left_its_pipe_open(self, child: _Child) -> bool:
        """Whether it has ended and all that it answered was heard: a process that its code has forked holds the pipe."""
        if not has_ended(child.process.pid):
            return False
        return not any(key.data == (child, "answers") for key, _ in self._selector.select(0))

    def _speak(self, child: _Child, took: float) -> None:
        task = self._put_aside(child)
        end = format_seconds(self._limits.end_after(self._spread))
        LOG.warning(
            "sample %d takes long: %s so far; %s. It is ended after %s (--kill-after); others go on.",
            task.index, format_seconds(took), child.stood, end,
        )  # fmt: skip

    def _put_aside(self, child: _Child) -> Task:
        """Note where a child stands; others get what it has besides."""
        child.stood = stack_of(child.process.pid, child.stack)
        task, *others = child.tasks
        self._again.extend(others)
        child.tasks = deque([task])
        return task

    def _ended(self, child: _Child, took: float) -> Iterator[SampleRecord]:
        task = child.tasks[0] if child.stood is not None else self._put_aside(child)
        self._dismiss(child)
        text = f"it was ended after {format_seconds(took)}; {child.stood}"
        yield from self._given_up(task, Finding(HANG, text))
