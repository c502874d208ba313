"""Children that load samples: each sample is answered for, by its record or by what it did to the process that loaded it.

A child that dies takes no sample along but the one that it was at, and that one gets a second chance, first in a new process.
"""

import json
import logging
import os
import selectors
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, takewhile
from types import TracebackType
from typing import Any, NamedTuple, Self

from fastfeed.auditor.finding import Finding, Severity
from fastfeed.auditor.judging.noise import Beat
from fastfeed.auditor.record import SampleRecord, StageTime
from fastfeed.auditor.running.catalogue import CODES
from fastfeed.auditor.running.codes import CRASH, CRASH_ONCE, HANG, TAKES_LONG
from fastfeed.auditor.running.lastwords import CLOSED, crashed, drained, hopeless, how_ended, unable
from fastfeed.auditor.running.limits import Limits, Spread
from fastfeed.auditor.running.looks import Looks
from fastfeed.auditor.running.member import Member
from fastfeed.auditor.running.member import Task as Task  # noqa: PLC0414 - what a crew is given
from fastfeed.auditor.running.opening import Opening
from fastfeed.auditor.running.pace import ahead_of, gather_seconds
from fastfeed.auditor.running.process import Start, has_ended, stack_of
from fastfeed.auditor.running.subject import How
from fastfeed.source import wire
from fastfeed.units import format_count, format_seconds

LOG = logging.getLogger("fastfeed.audit")
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


class Answer(NamedTuple):
    """What came of one sample."""

    record: SampleRecord
    row: bytes | None = None
    """The record as its child has encoded it (as_row()); None where it was made, or added to, here."""


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
        self._opening = Opening(limits)
        self._children: list[Member] = []
        self._again: deque[Task] = deque()
        """Samples whose process died; and those that it had behind them."""
        self._false_starts = 0
        """Children in a row that were killed before they could load anything."""
        self._crashes = 0
        self._fine: Task | None = None
        """The last one that was loaded."""
        self.beats: list[Beat] = []
        """What the machine was like meanwhile."""
        self.looks = Looks()
        """What it took to look at samples beside loading them."""
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
            WorkerDied: The child died before it could say so, or was ended because that took too long.
        """
        first = self._hire()
        while not first.ready:
            for _ in chain(self._hear(_LOOK_SECONDS), self._watch()):
                pass  # it has no sample to answer yet
            if first not in self._children:
                first = self._hire()
        if self.count is None:
            self._stream, self._wanted = True, 1
        return self.count

    # ------------------------------------------------------------------------------------------------ the work
    def run(self, tasks: Iterable[Task]) -> Iterator[SampleRecord]:
        """The records of answers()."""
        return (answer.record for answer in self.answers(tasks))

    def answers(self, tasks: Iterable[Task]) -> Iterator[Answer]:
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
                looked = time.monotonic()

    def measured(
        self, indices: Sequence[int], *, cold: bool, deadline: float | None = None
    ) -> dict[int, list[dict[str, StageTime]]]:
        """Times of samples, in this order, without a look at them.

        Args:
            indices: Each once.
            cold: From the disk.
            deadline: Of time.monotonic(): none is begun later. None for none.

        Returns:
            By index; one that could not be loaded, or not from the disk, or not in time, is missing.

        Raises:
            WorkerDied: As run().
        """
        self._wanted = 1 if len(indices) <= _FEW else self._most
        how = How(look=False, full=False, cold=cold)
        in_time = takewhile(lambda _: deadline is None or time.monotonic() <= deadline, indices)
        records = self.run(Task(index, how) for index in in_time)
        return {record.index: [record.times] for record in records if record.times and record.severity is not Severity.ERROR}

    def _feed(self, coming: Iterator[Task]) -> None:
        """Give each child what it lacks. A sample whose process died goes first, alone, to a new one."""
        while self._again and (self._again[0].how_it_died is not None or self._again[0].probe):
            child = self._hire()
            child.give([self._again.popleft()])
        working = [child for child in self._children if child.stood is None]
        aside = len(self._children) - len(working)
        most = self._wanted if aside < _MOST_ASIDE else 0
        for enough in sorted({1, ahead_of(self._spread.percentile(0.5))}):  # nobody gets a second one while another has none
            for number in range(most):
                has = len(working[number].tasks) if number < len(working) else 0
                if has > enough // 2:
                    continue
                tasks = self._next(coming, enough - has)
                if not tasks:
                    return
                if number >= len(working):
                    working.append(self._hire())
                working[number].give(tasks)

    def _next(self, coming: Iterator[Task], count: int) -> list[Task]:
        """At most so many tasks: those that are to be done again first."""
        if self.ended_at is not None or self.cut_short is not None:
            return []
        again = [self._again.popleft() for _ in range(min(count, len(self._again)))]
        return [*again, *islice(coming, count - len(again))]

    def _hire(self) -> Member:
        child = Member(self._start())
        self._children.append(child)
        for name in ("answers", "words"):
            self._selector.register(getattr(child.process, name), selectors.EVENT_READ, (child, name))
        child.tell({"spec": self._spec, "memory_bytes": self._limits.memory_bytes})
        return child

    def _dismiss(self, child: Member) -> int:
        """End a child; its exit code."""
        self._children.remove(child)
        for descriptor in (child.process.answers, child.process.words):
            if descriptor in self._selector.get_map():
                self._selector.unregister(descriptor)
        return child.process.end()

    # ------------------------------------------------------------------------------------------------ what comes back
    def _hear(self, seconds: float) -> Iterator[Answer]:
        ready = self._selector.select(seconds)
        pause = gather_seconds(self._spread.percentile(0.5))
        if ready and pause:
            time.sleep(pause)
            ready = self._selector.select(0)
        for key, _ in ready:
            child, name = key.data
            if child not in self._children:
                continue  # ended since
            data = os.read(key.fd, 1 << 16)
            if name == "words":
                child.words = (child.words + data)[-_WORDS_BYTES:]
                if not data:
                    self._selector.unregister(key.fd)
            elif data:
                yield from self._answered(child, data)
            else:
                yield from self._died(child)

    def _answered(self, child: Member, data: bytes) -> Iterator[Answer]:
        lines = child.answers(data)
        took = (time.monotonic() - child.began) / max(1, len(lines))  # of several that came together the mean
        for line in lines:
            if child not in self._children:
                return  # it was ended, and others do what it had besides
            answer = json.loads(line.decode())
            if isinstance(answer, dict):
                self._told(child, answer)
                continue
            task = self._done(child)
            if not task.probe:
                yield self._answer(child, task, took, SampleRecord.from_row(answer, CODES), line)

    def _told(self, child: Member, answer: dict[str, Any]) -> None:
        """Anything but a record."""
        if "error" in answer:
            raise wire.error_of(answer)
        if "beat" in answer:
            self.beats.append(Beat(**answer["beat"]))
        if answer["event"] == "opening":
            child.stack, child.began = answer["stack"], time.monotonic()
        elif answer["event"] == "ready":
            child.ready, self.count, self._opening.done = True, answer["count"], True
            self._false_starts = 0
            child.began = time.monotonic()  # its start is not its first sample's
        elif answer["event"] == "end":
            task = self._done(child)
            if not task.probe:
                self.ended_at = task.index if self.ended_at is None else min(self.ended_at, task.index)

    def _done(self, child: Member) -> Task:
        """The task that a child has done."""
        task = child.done()
        if task.probe:
            self._crashes = 0
        return task

    def _answer(self, child: Member, task: Task, took: float, record: SampleRecord, row: bytes) -> Answer:  # noqa: PLR0917
        """A child's record, with what only its parent knows."""
        if task.found is not None:
            record.findings = [task.found]
            return Answer(record)
        self._crashes, self._fine = 0, task
        self._spread.add(took)
        self.looks.add(record, took)
        if task.how_it_died is not None:
            text = f"a process {task.how_it_died} at it, after {format_count(task.behind, 'other')}"
            record.findings.append(Finding(CRASH_ONCE, text))
        if child.stood is not None:
            text = f"it took {format_seconds(took)}; meanwhile {child.stood}"
            record.findings.append(Finding(TAKES_LONG, text))
            self._dismiss(child)  # another has its place, and what it had besides
        as_it_came = task.how_it_died is None and child.stood is None
        return Answer(record, row if as_it_came else None)

    def _died(self, child: Member) -> Iterator[Answer]:
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
            yield Answer(SampleRecord(task.index, findings=[task.found]))
        elif task.how_it_died is None:  # what came before it may have done it: alone in a new process it gets a second chance
            self._again.appendleft(Task(task.index, task.how, how, child.loaded))
        else:
            self._suspect_all(how, words)
            yield from self._given_up(task, Finding(CRASH, crashed(how, words)))

    def _not_begun(self, child: Member, how: str, words: str, *, by_signal: bool) -> None:
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

    def _given_up(self, task: Task, found: Finding) -> Iterator[Answer]:
        """A sample that cannot be loaded: another process tells its names. Behind one of a stream nothing can be read."""
        if not self._stream:
            self._again.append(Task(task.index, How(load=False), found=found))
        else:
            yield Answer(SampleRecord(task.index, findings=[found]))
            self._again.clear()
            self.cut_short = f"the stream cannot be read beyond sample {task.index}, which ends the process that reads it"

    # ------------------------------------------------------------------------------------------------ hanging
    def _watch(self) -> Iterator[Answer]:
        """Speak of samples that take long, and end those that take too long; of children that open what is audited as well."""
        now = time.monotonic()
        for child in list(self._children):
            took = now - child.began
            if self._left_its_pipe_open(child):
                yield from self._died(child)
            elif not child.ready:
                self._opening.watch(child, took)
            elif not child.tasks:
                continue
            elif took > self._limits.end_after(self._spread):
                yield from self._ended(child, took)
            elif child.stood is None and took > self._limits.speak_after(self._spread):
                self._speak(child, took)

    def _left_its_pipe_open(self, child: Member) -> bool:
        """Whether it has ended and all that it answered was heard: a process that its code has forked holds the pipe."""
        if not has_ended(child.process.pid):
            return False
        return not any(key.data == (child, "answers") for key, _ in self._selector.select(0))

    def _speak(self, child: Member, took: float) -> None:
        task = self._put_aside(child)
        end = format_seconds(self._limits.end_after(self._spread))
        LOG.warning(
            "sample %d takes long: %s so far; %s. It is ended after %s (--kill-after); others go on.",
            task.index, format_seconds(took), child.stood, end,
        )  # fmt: skip

    def _put_aside(self, child: Member) -> Task:
        """Note where a child stands; others get what it has besides."""
        child.stood = stack_of(child.process.pid, child.stack)
        task, *others = child.tasks
        self._again.extend(others)
        child.tasks = deque([task])
        return task

    def _ended(self, child: Member, took: float) -> Iterator[Answer]:
        task = child.tasks[0] if child.stood is not None else self._put_aside(child)
        self._dismiss(child)
        text = f"it was ended after {format_seconds(took)}; {child.stood}"
        yield from self._given_up(task, Finding(HANG, text))
