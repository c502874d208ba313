"""A subject that is a Python dataset: its own code and its transforms run, stage by stage where they can be told apart."""

import os
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fastfeed.archive.regular import open_regular
from fastfeed.archive.shard import CLASS_FIELD
from fastfeed.auditor.clock import Clock
from fastfeed.auditor.finding import Finding, Severity
from fastfeed.auditor.looking.textlook import Tokenizer
from fastfeed.auditor.record import SampleRecord
from fastfeed.auditor.running.codes import FAILS, MEMORY, SPECIAL, STOPS_EARLY, UNREADABLE, UNSENDABLE
from fastfeed.auditor.running.examine import examine, rank, take_text, told
from fastfeed.auditor.running.sending import why_unsendable
from fastfeed.auditor.running.spoken import look_at_text
from fastfeed.auditor.running.subject import How, Stages, Subject
from fastfeed.errors import FastfeedError, SourceUnreadable, UsageError
from fastfeed.packer.rows.byname import told_error, type_name
from fastfeed.sample import escape
from fastfeed.trace import done_metering, metering

_MOST_FAILURES = 100
"""Errors in a row after which a stream is taken to give nothing any more."""
_CODES = ((MemoryError, MEMORY), (IndexError, STOPS_EARLY), (StopIteration, STOPS_EARLY))


def subject_of(dataset: Any, tokenizer: Tokenizer | None = None) -> Subject:  # noqa: ANN401 - any dataset
    """What loads the samples of a live object; of a loader those of its dataset, one by one.

    Args:
        dataset: Anything with __getitem__ or __iter__.
        tokenizer: Counts the tokens of texts.

    Raises:
        UsageError: It is no dataset.
        SourceUnreadable: It does not say how many samples it has.
    """
    torch_data = sys.modules.get("torch.utils.data")
    if torch_data is not None and isinstance(dataset, torch_data.DataLoader):
        return subject_of(dataset.dataset, tokenizer)
    if _is_stream(dataset):
        return Streamed(dataset, tokenizer)
    if not hasattr(dataset, "__getitem__"):
        msg = "this is no dataset: it has neither __getitem__ nor __iter__"
        raise UsageError(msg, got=type_name(dataset))
    if "torch" not in sys.modules:  # then it is neither torchvision's nor ours, and torch need not be loaded
        return Indexed(dataset, tokenizer)
    ours = sys.modules.get("fastfeed.feed.dataset")
    kind = Ours if ours is not None and isinstance(dataset, ours.PackedDataset) else Torch
    return kind(dataset, tokenizer)


def _is_stream(dataset: Any) -> bool:  # noqa: ANN401
    """Whether it can only be iterated. Torch's IterableDataset has a __getitem__ that raises."""
    torch_data = sys.modules.get("torch.utils.data")
    if torch_data is not None and isinstance(dataset, torch_data.IterableDataset):
        return True
    return hasattr(dataset, "__iter__") and not hasattr(dataset, "__getitem__")


def clocked(record: SampleRecord, load: Callable[[Stages], object]) -> bool:
    """Load a sample under clocks: the stages that it tells of, else one stage, load.

    Returns:
        Whether it came; else what it raised is among the findings.
    """
    stages, clock = Stages(record), Clock()
    token = metering(stages)
    try:
        with clock:
            load(stages)
    except BaseException as error:  # noqa: BLE001 - whatever a dataset raises is a finding; Ctrl-C does not come here
        code = next((code for kind, code in _CODES if isinstance(error, kind)), FAILS)
        record.findings.append(Finding(code, told(error) if isinstance(error, FastfeedError) else told_error(error)))
        return False
    finally:
        done_metering(token)
        if not record.times:
            record.times["load"] = clock.time
    return True


def look_at_sample(record: SampleRecord, samples: Sequence[object], how: How, tokenizer: Tokenizer | None) -> None:
    """Look at what a dataset handed out.

    Args:
        record: Of the sample.
        samples: What came: the sample, or nothing.
        how: Whether more than its times is wanted.
        tokenizer: Counts the tokens of texts.
    """
    look_at_text(record, samples, how, tokenizer)
    why = why_unsendable(samples[0]) if samples and how.look else None
    if why is not None:
        record.findings.append(Finding(UNSENDABLE, why))


class Indexed:
    """A dataset with positions, of which nothing else is known.

    Args:
        dataset: With __len__ and __getitem__.
        tokenizer: Counts the tokens of texts.

    Raises:
        SourceUnreadable: It does not say how many samples it has.
    """

    def __init__(self, dataset: Any, tokenizer: Tokenizer | None = None) -> None:  # noqa: ANN401 - any dataset
        self.dataset, self._tokenizer = dataset, tokenizer
        try:
            self._count = len(dataset)
        except (Exception, SystemExit) as error:
            msg = f"the dataset does not say how many samples it has ({told_error(error)})"
            hint = "Let __len__ give a whole number from 0 on, or give an iterable of samples."
            raise SourceUnreadable(msg, expected="a whole number", got=type_name(dataset), hint=hint) from error

    @property
    def count(self) -> int:
        """What __len__ says: every position below it must give a sample."""
        return self._count

    def load(self, index: int, how: How) -> SampleRecord:
        """Ask for a sample, and look at its bytes where they can be had."""
        record = self.named(index)
        if how.load and self.ready(record, how):
            sample: list[object] = []
            loaded = how.thumbnail or clocked(record, lambda stages: sample.append(self.fetch(index, stages)))
            if how.look:
                self._look(record, how, loaded=loaded)
            look_at_sample(record, sample, how, self._tokenizer)
        return record

    def named(self, index: int) -> SampleRecord:
        """A record with the names of a sample, which is not loaded."""
        return SampleRecord(index)

    def ready(self, record: SampleRecord, how: How) -> bool:  # noqa: ARG002 - for those that know more
        """Whether a sample may be loaded; from the disk it cannot be where nobody knows what it reads."""
        return not how.cold

    def fetch(self, index: int, stages: Stages) -> object:  # noqa: ARG002 - for those that know its stages
        """The sample."""
        return self.dataset[index]

    def payloads(self, record: SampleRecord) -> Iterator[tuple[str, bytes]]:  # noqa: ARG002 - for those that know more
        """Names and bytes of what it is made of, the image first.

        Raises:
            OSError: They cannot be read.
            FastfeedError: As PackedDataset.
        """
        yield from ()

    def _look(self, record: SampleRecord, how: How, *, loaded: bool) -> None:
        """Look at the bytes; where loading failed, what they show says more than what was raised."""
        seen: list[Finding] = []
        try:
            for number, (name, data) in enumerate(self.payloads(record)):
                beside = SampleRecord(record.index)
                examine(beside, name, data, how, clocked=False, tokenizer=self._tokenizer)
                take_text(record, beside)
                seen += beside.findings
                record.size_bytes = (record.size_bytes or 0) + len(data)
                if not number:
                    record.thumbnail = beside.thumbnail
                    record.format, record.width, record.height = beside.format, beside.width, beside.height
                    record.mode, record.digest = beside.mode, beside.digest
        except OSError as error:
            seen.append(Finding(UNREADABLE, error.strerror or str(error)))
        except FastfeedError as error:
            seen.append(Finding(UNREADABLE, told(error)))
        if not loaded and any(found.code.severity is Severity.ERROR for found in seen):
            record.findings = [found for found in record.findings if found.code is not FAILS]
        record.findings += seen


class Torch(Indexed):
    """A dataset of a program that uses torch: samples of torchvision's folders, also behind Subsets, have files and stages."""

    def named(self, index: int) -> SampleRecord:
        """By identity(index), as fastfeed's datasets have it, else by the file."""
        from fastfeed.feed.naming import sample_id  # noqa: PLC0415 - torch is loaded already
        from fastfeed.feed.splitting import behind_views  # noqa: PLC0415

        identity = sample_id(self.dataset, index)
        if identity is not None:
            source = None if identity.source is None else escape(identity.source)
            return SampleRecord(index, key=identity.key, path=source)
        path = self._file(index)
        if path is None:
            return SampleRecord(index)
        base, at = behind_views(self.dataset, index)
        target, names = base.samples[at][1], getattr(base, "classes", ())
        label = str(names[target]) if isinstance(target, int) and 0 <= target < len(names) else None
        return SampleRecord(index, path=path.removeprefix(os.path.join(os.fsdecode(base.root), "")), label=label)

    def _file(self, index: int) -> str | None:
        from fastfeed.feed.splitting import path_of  # noqa: PLC0415

        try:
            return path_of(self.dataset, index)
        except (IndexError, TypeError):  # a view of indices that there are not: its __getitem__ will say so
            return None

    def ready(self, record: SampleRecord, how: How) -> bool:
        """No FIFO and no device is opened; a file can be dropped from the kernel's memory."""
        path = self._file(record.index)
        if path is None:
            return not how.cold
        try:
            if not stat.S_ISREG(os.stat(path).st_mode):
                record.findings.append(Finding(SPECIAL, "it is no regular file"))
                return False
            if how.cold:
                forget(path)
        except OSError as error:
            record.findings.append(Finding(UNREADABLE, error.strerror or str(error)))
            return False
        return True

    def fetch(self, index: int, stages: Stages) -> object:
        """The sample, stage by stage where its dataset is torchvision's."""
        from fastfeed.feed.splitting import fetch_of  # noqa: PLC0415

        return fetch_of(self.dataset, stages)(index)

    def payloads(self, record: SampleRecord) -> Iterator[tuple[str, bytes]]:
        """Its file."""
        path = self._file(record.index)
        if path is not None:
            with open(path, "rb", opener=open_regular) as file:
                yield path, file.read()


class Ours(Torch):
    """A fastfeed dataset: it tells its stages itself, and its bytes can be had."""

    def fetch(self, index: int, stages: Stages) -> object:  # noqa: ARG002 - it reports to the meter
        """The sample."""
        return self.dataset[index]

    def payloads(self, record: SampleRecord) -> Iterator[tuple[str, bytes]]:
        """Its members, but for the class."""
        fields = [field for field in self.dataset.fields or () if field != CLASS_FIELD]
        for field in sorted(fields, key=rank):
            with self.dataset.open(record.index, field) as file:
                yield f"{record.key}.{field}", file.read()


def forget(path: str) -> None:
    """Ask the kernel to drop what it has cached of a file."""
    descriptor = open_regular(path)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


class Streamed:
    """A dataset that can only be iterated: sample i is the i-th that comes.

    Args:
        dataset: With __iter__.
        tokenizer: Counts the tokens of texts.
    """

    count = None

    def __init__(self, dataset: Any, tokenizer: Tokenizer | None = None) -> None:  # noqa: ANN401 - any iterable
        self._dataset, self._tokenizer = dataset, tokenizer
        self._samples: Iterator[Any] | None = None
        self._next = self._failures = 0

    def load(self, index: int, how: How) -> SampleRecord | None:
        """The next sample; in a new process those before it are made again first."""
        record = SampleRecord(index)
        if not how.load:
            return record
        while self._next < index:
            if self._advance(SampleRecord(self._next)):
                return None
        sample: list[object] = []
        if self._advance(record, sample):
            return None
        look_at_sample(record, sample, how, self._tokenizer)
        return record

    def _advance(self, record: SampleRecord, into: list[object] | None = None) -> bool:
        """Take the next sample; whether the stream has ended."""
        ended = False
        taken = [] if into is None else into

        def load(_: Stages) -> None:
            nonlocal ended
            if self._samples is None:
                self._samples = iter(self._dataset)
            try:
                taken.append(next(self._samples))
            except StopIteration:
                ended = True

        self._next += 1
        came = clocked(record, load)
        self._failures = 0 if came else self._failures + 1
        return ended or self._failures > _MOST_FAILURES
