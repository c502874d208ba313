"""The records of an audit in a file that grows, so that memory holds none of them and a killed audit can be continued.

The first line says what is audited; each other one is a record's row, in the order in which they were made, or says what
samples may take from there on. In the end records are written to the report, as it holds them, in the order of the samples.
Where no report is asked for, the file has no name.
"""

import fcntl
import json
import os
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import chain
from types import TracebackType
from typing import Any, BinaryIO, Self

from fastfeed.auditor.record import SampleRecord
from fastfeed.auditor.running.catalogue import CODES
from fastfeed.auditor.running.codes import HANG, MEMORY
from fastfeed.auditor.running.limits import Limits
from fastfeed.auditor.running.offsets import Offsets
from fastfeed.disk import disk_error, publish, remove
from fastfeed.errors import DestinationBusy, DestinationError, DestinationOccupied
from fastfeed.units import format_count

SUFFIX = ".partial"
_BY_LIMITS = {HANG.name, MEMORY.name}
"""Findings that other limits may not give."""
_FORMAT = 3
"""Of its lines: another number wherever older ones could not be continued."""
_FLUSH_SECONDS = 0.25
"""Records of less time than this are lost when the audit is killed: their samples are loaded again."""


class Journal:
    """Where the records are.

    Args:
        report: The file that they are written to in the end; None for none.
        identity: What is audited and how: another identity is another audit.
        target: What each line of the report names as its target, if anything.

    Raises:
        DestinationBusy: Another audit is writing there.
        DestinationOccupied: What lies there is none of an audit.
        DestinationError: It cannot be written.
    """

    def __init__(self, report: str | None, identity: Mapping[str, object], *, target: str | None = None) -> None:
        self.report = None if report is None else os.path.abspath(report)
        self._same = {} if target is None else {"target": target}
        """In each line of the report."""
        self._starts = Offsets()
        """Where the record of a sample begins."""
        self._ended: dict[int, Limits] = {}
        """What was allowed to samples that, in an earlier audit, hung or took too much memory."""
        self._writing, self._end, self._flushed = False, 0, 0.0
        """Whether the file stands at its end, where that is, and when what was written has last reached the kernel."""
        self.notes: list[str] = []
        """Why what an earlier audit left here could not be continued; that there is no lock."""
        try:
            self._file = self._open(json.loads(json.dumps({**identity, "format": _FORMAT})))
        except OSError as error:
            raise self._refused(error, error.filename or report or "temporary files") from error
        self.kept = len(self._starts)
        """Records of an earlier audit that was interrupted."""

    def _folder(self) -> str:
        return os.path.dirname(self.report) if self.report is not None else tempfile.gettempdir()

    def _refused(self, error: OSError, what: str) -> DestinationError:
        """The system's refusal to write. Without a report nothing is kept that another audit could go on with."""
        return disk_error(f"{what}: {error.strerror}", error.errno, self._folder(), continues=self.report is not None)

    def _open(self, identity: object) -> BinaryIO:
        head = json.dumps({"audit": identity}).encode() + b"\n"
        if self.report is None:
            file: BinaryIO = tempfile.TemporaryFile(prefix="fastfeed-audit-")  # noqa: SIM115 - close() closes it
            file.write(head)
            return file
        descriptor = os.open(self.report + SUFFIX, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        file = os.fdopen(descriptor, "r+b")
        with ExitStack() as unless_done:
            unless_done.enter_context(file)
            self.notes += _lock(descriptor, self.report)
            self._continue(file, identity, head)
            unless_done.pop_all()
        return file

    def _continue(self, file: BinaryIO, identity: object, head: bytes) -> None:
        """Take over what an audit of the same has left; a line that is torn is cut off, with all behind it."""
        first = file.readline()
        if first and first != head:
            before = _head(first, str(self.report))
            self.notes.append(_difference(before, identity))
        if first != head:
            file.seek(0)
            file.truncate()
            file.write(head)
            file.flush()
            return
        at, limits = len(head), Limits()
        for line in file:
            row = _row(line)
            if row is None:
                break
            if isinstance(row, dict):
                limits = Limits.from_json(row["limits"])
            else:
                self._starts[row[0]] = at
                self._note_end(row, limits)
            at += len(line)
        file.seek(at)
        file.truncate()

    def _note_end(self, row: list[Any], limits: Limits) -> None:
        if _codes(row) & _BY_LIMITS:
            self._ended[row[0]] = limits
        else:
            self._ended.pop(row[0], None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            with self._refusals():
                self._file.close()
        except DestinationError:
            if error is None:  # else it is on its way already
                raise

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """The system's refusals to write, as our errors."""
        try:
            yield
        except OSError as error:
            raise self._refused(error, "the report" if self.report is not None else "temporary files") from error

    # ------------------------------------------------------------------------------------------------ records
    def __len__(self) -> int:
        return len(self._starts)

    def __contains__(self, index: int) -> bool:
        return index in self._starts

    def add(self, record: SampleRecord, row: bytes | None = None) -> None:
        """Note a record; it replaces an earlier one of the same sample.

        Args:
            record: What is noted.
            row: The record's as_row() as JSON, where that is at hand.

        Raises:
            DestinationError: The disk is full.
        """
        self._starts[record.index] = self._append((json.dumps(record.as_row()).encode() if row is None else row) + b"\n")

    def _append(self, line: bytes) -> int:
        """Write a line behind all others; gives where it begins."""
        with self._refusals():
            if not self._writing:
                self._end = self._file.seek(0, os.SEEK_END)
                self._writing = True
            self._file.write(line)
            if time.monotonic() > self._flushed + _FLUSH_SECONDS:
                self._file.flush()
                self._flushed = time.monotonic()
        self._end += len(line)
        return self._end - len(line)

    def begin(self, limits: Limits) -> None:
        """Note what samples may take from here on, and forget kept ones that an earlier audit ended and that may take more now.

        Raises:
            DestinationError: The disk is full.
        """
        again = [
            index
            for index, before in self._ended.items()
            if index in self._starts and self._may_take_more(index, limits, before)
        ]
        for index in again:
            self._starts.drop(index)
        self.kept -= len(again)
        if again:
            self.notes.append(
                f"{format_count(len(again), 'sample')} loaded again: an audit that was interrupted gave them less"
            )
        self._append(json.dumps({"limits": limits.as_json()}).encode() + b"\n")

    def _may_take_more(self, index: int, now: Limits, before: Limits) -> bool:
        found = {one.code for one in self.get(index).findings}
        return (HANG in found and now.gives_more_time(before)) or (MEMORY in found and now.gives_more_memory(before))

    def keep_below(self, count: int) -> None:
        """Forget kept records of samples that there are no more, and of what is no sample, which is noted anew."""
        self.kept -= self._starts.drop_from(count)

    def get(self, index: int) -> SampleRecord:
        """The record of a sample that has one.

        Raises:
            DestinationError: The disk is full.
        """
        return SampleRecord.from_row(json.loads(self._line(self._starts[index])), CODES)

    def _line(self, at: int) -> bytes:
        with self._refusals():  # what waits in the buffer is written first
            self._writing = False
            self._file.seek(at)
            return self._file.readline()

    def __iter__(self) -> Iterator[SampleRecord]:
        """All records, by position."""
        for index in self._starts:
            yield self.get(index)

    def publish(self, more: Iterable[SampleRecord] = ()) -> None:
        """Write the report, whole or not at all, and forget the rest.

        Args:
            more: Records of no sample, which come last.

        Raises:
            DestinationError: It cannot be written.
        """
        if self.report is None:
            return
        try:
            publish(f"{self.report}.part", self.report, lambda file: self._write(file, more))
            remove(self.report + SUFFIX)
        except OSError as error:
            raise self._refused(error, self.report) from error

    def _write(self, target: BinaryIO, more: Iterable[SampleRecord]) -> None:
        target.writelines(json.dumps({**record.as_json(), **self._same}).encode() + b"\n" for record in chain(self, more))


def _lock(descriptor: int, report: str) -> list[str]:
    """Let no other audit write the same; gives what to say where the file system knows no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        msg = "another audit is writing this report"
        raise DestinationBusy(msg, path=report, hint="Wait until it is done, or name another file.") from None
    except OSError as error:
        return [f"the report's file system gives no lock ({error.strerror}): make sure that no other audit writes it"]
    return []


def _row(line: bytes) -> Any:  # noqa: ANN401 - JSON
    """What a line holds; None of one that is torn, or that a power cut has left as zeros."""
    try:
        return json.loads(line) if line.endswith(b"\n") else None
    except ValueError:
        return None


def _codes(row: list[Any]) -> set[str]:
    """The names of what was found, of SampleRecord.as_row()."""
    return {code for code, _ in row[-1]}


def _head(line: bytes, report: str) -> Any:  # noqa: ANN401 - JSON
    try:
        return json.loads(line)["audit"]
    except (ValueError, KeyError, TypeError):
        msg = "a file that no audit wrote lies where this one would keep its records"
        raise DestinationOccupied(msg, path=report + SUFFIX, hint="Move it away, or name another report.") from None


def _difference(before: Any, now: Any) -> str:  # noqa: ANN401 - JSON
    """Why an audit is not the continuation of another."""
    differing = [name for name in now if before.get(name) != now[name]] if isinstance(before, dict) else ["format"]
    what = "what is audited has changed since" if differing == ["digest"] else f"it had another {', '.join(differing)}"
    return f"an interrupted audit that lay here was not continued: {what}"
