"""The records of an audit in a file that grows, so that memory holds none of them and a killed audit can be continued.

The first line says what is audited; each other one is a record's row, in the order in which they were made. In the end they are
written to the report, as it holds them, in the order of the samples. Where no report is asked for, the file has no name.
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
from fastfeed.auditor.running.offsets import Offsets
from fastfeed.disk import disk_error, publish, remove
from fastfeed.errors import DestinationBusy, DestinationError, DestinationOccupied

SUFFIX = ".partial"
_FORMAT = 2
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
        self._writing, self._end, self._flushed = False, 0, 0.0
        """Whether the file stands at its end, where that is, and when what was written has last reached the kernel."""
        self.notes: list[str] = []
        """Why what an earlier audit left here could not be continued; that there is no lock."""
        try:
            self._file = self._open(json.loads(json.dumps({**identity, "format": _FORMAT})))
        except OSError as error:
            raise disk_error(f"{error.filename or report}: {error.strerror}", error.errno, self._folder()) from error
        self.kept = len(self._starts)
        """Records of an earlier audit that was interrupted."""

    def _folder(self) -> str:
        return os.path.dirname(self.report) if self.report is not None else tempfile.gettempdir()

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
        at = len(head)
        for line in file:
            index = _index(line)
            if index is None:
                break
            self._starts[index] = at
            at += len(line)
        file.seek(at)
        file.truncate()

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
            raise disk_error(f"the report: {error.strerror}", error.errno, self._folder()) from error

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
        line = (json.dumps(record.as_row()).encode() if row is None else row) + b"\n"
        with self._refusals():
            if not self._writing:
                self._end = self._file.seek(0, os.SEEK_END)
                self._writing = True
            self._file.write(line)
            if time.monotonic() > self._flushed + _FLUSH_SECONDS:
                self._file.flush()
                self._flushed = time.monotonic()
        self._starts[record.index] = self._end
        self._end += len(line)

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
            raise disk_error(f"{self.report}: {error.strerror}", error.errno, self._folder()) from error

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


def _index(line: bytes) -> int | None:
    """The position in a record's line; None of one that is torn, or that a power cut has left as zeros."""
    try:
        return int(json.loads(line)[0]) if line.endswith(b"\n") else None
    except ValueError:
        return None


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
