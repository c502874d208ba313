"""A subject that is a Python dataset: its own code and its transforms run, stage by stage where they can be told apart."""

import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from fastfeed.archive.regular import open_regular
from fastfeed.auditor.clock import Clock
from fastfeed.auditor.finding import Finding
from fastfeed.auditor.record import SampleRecord
from fastfeed.auditor.running.codes import FAILS, MEMORY, SPECIAL, STOPS_EARLY, UNREADABLE
from fastfeed.auditor.running.examine import examine
from fastfeed.auditor.running.subject import How, Stages, Subject
from fastfeed.errors import SourceUnreadable, UsageError
from fastfeed.packer.rows.byname import told_error, type_name
from fastfeed.sample import escape
from fastfeed.trace import done_metering, metering

_MOST_FAILURES = 100
"""Errors in a row after which a stream is taken to give nothing any more."""


def subject_of(dataset: Any) -> Subject:  # noqa: ANN401 - any dataset
    """What loads the samples of a live object.

    Raises:
        UsageError: It is no dataset.
        SourceUnreadable: It does not say how many samples it has.
    """
    if _is_stream(dataset):
        return Streamed(dataset)
    if not hasattr(dataset, "__getitem__"):
        msg = "this is no dataset: it has neither __getitem__ nor __iter__"
        raise UsageError(msg, got=type_name(dataset))
    if _is_image_folder(dataset):
        return Foldered(dataset)
    if _is_ours(dataset):
        return Ours(dataset)
    return Indexed(dataset)


def _is_stream(dataset: Any) -> bool:  # noqa: ANN401
    """Whether it can only be iterated. Torch's IterableDataset has a __getitem__ that raises."""
    torch_data = sys.modules.get("torch.utils.data")
    if torch_data is not None and isinstance(dataset, torch_data.IterableDataset):
        return True
    return hasattr(dataset, "__iter__") and not hasattr(dataset, "__getitem__")


def _is_image_folder(dataset: Any) -> bool:  # noqa: ANN401
    """Whether it is torchvision's, and its samples are made as torchvision makes them."""
    folders = sys.modules.get("torchvision.datasets.folder")
    return folders is not None and type(dataset).__getitem__ is folders.DatasetFolder.__getitem__


def _is_ours(dataset: Any) -> bool:  # noqa: ANN401
    """Whether it is a fastfeed dataset, whose samples have names and bytes."""
    ours = sys.modules.get("fastfeed.feed.dataset")
    return ours is not None and isinstance(dataset, ours.PackedDataset)


def _failure(record: SampleRecord, error: BaseException) -> None:
    """Note what a dataset raised."""
    by_kind = {MemoryError: MEMORY, IndexError: STOPS_EARLY, StopIteration: STOPS_EARLY}
    code = next((code for kind, code in by_kind.items() if isinstance(error, kind)), FAILS)
    record.findings.append(Finding(code, told_error(error)))


def clocked(record: SampleRecord, load: Callable[[], object]) -> bool:
    """Load a sample under clocks: the stages that it tells of, else one stage, load.

    Returns:
        Whether it came; else what it raised is among the findings.
    """
    stages, clock = Stages(record), Clock()
    token = metering(stages)
    try:
        with clock:
            load()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a dataset raises is a finding
        _failure(record, error)
        return False
    finally:
        done_metering(token)
        if not record.times:
            record.times["load"] = clock.time
    return True


class Indexed:
    """A dataset with positions, of which nothing else is known.

    Args:
        dataset: With __len__ and __getitem__.

    Raises:
        SourceUnreadable: It does not say how many samples it has.
    """

    def __init__(self, dataset: Any) -> None:  # noqa: ANN401 - any dataset
        self.dataset = dataset
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
        """Ask for a sample."""
        record = SampleRecord(index)
        if not how.cold:  # what it reads is not known, so nothing can be dropped from the kernel's memory
            clocked(record, lambda: self.dataset[index])
        return record


class Foldered(Indexed):
    """Torchvision's DatasetFolder or ImageFolder: read, decoded by its loader, transformed, each for itself.

    A loader opens the file and decodes it in one: the file is read once before it, so that what the loader takes is decoding.
    """

    def load(self, index: int, how: How) -> SampleRecord:
        """Read, decode and transform a sample."""
        path, target = self.dataset.samples[index]
        record = SampleRecord(index, path=self._below_root(path), label=self._label(target))
        stages = Stages(record)
        try:
            data = self._read(record, path, stages, how)
        except OSError as error:
            code = SPECIAL if os.path.exists(path) and not os.path.isfile(path) else UNREADABLE
            record.findings.append(Finding(code, error.strerror or str(error)))
            return record
        record.size_bytes = len(data)
        loaded = clocked(record, lambda: self._made(index, path, target, stages))
        if how.look:
            self._look(record, path, data, how, loaded=loaded)
        return record

    @staticmethod
    def _look(record: SampleRecord, path: str, data: bytes, how: How, *, loaded: bool) -> None:
        beside = SampleRecord(record.index)
        examine(beside, path, data, how, clocked=False)
        record.format, record.width, record.height, record.mode = beside.format, beside.width, beside.height, beside.mode
        record.digest = beside.digest
        if not loaded and beside.findings:  # the look says in better words what the loader stumbled over
            record.findings = [found for found in record.findings if found.code is not FAILS]
        record.findings += beside.findings

    @staticmethod
    def _read(record: SampleRecord, path: str, stages: Stages, how: How) -> bytes:
        descriptor = open_regular(path)
        with open(descriptor, "rb") as file:
            if how.cold:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            with stages.span("read", record.index):
                return file.read()

    def _made(self, index: int, path: str, target: Any, stages: Stages) -> None:  # noqa: ANN401 - any target
        dataset = self.dataset
        with stages.span("decode", index):
            sample = dataset.loader(path)
        with stages.span("transform", index):
            if dataset.transform is not None:
                dataset.transform(sample)
            if dataset.target_transform is not None:
                dataset.target_transform(target)

    def _below_root(self, path: str) -> str:
        """As skip lists name it."""
        root = os.path.join(os.fsdecode(self.dataset.root), "")
        return path.removeprefix(root)

    def _label(self, target: object) -> str | None:
        names = getattr(self.dataset, "classes", ())
        return str(names[target]) if isinstance(target, int) and 0 <= target < len(names) else None


class Ours(Indexed):
    """A fastfeed dataset: it tells its stages itself, and has names."""

    def load(self, index: int, how: How) -> SampleRecord:
        """Ask for a sample, and look at the bytes of its members."""
        identity = self.dataset.identity(index)
        source = None if identity.source is None else escape(identity.source)
        record = SampleRecord(index, key=identity.key, path=source)
        if not how.cold and clocked(record, lambda: self.dataset[index]) and how.look:
            self._look(record, how)
        return record

    def _look(self, record: SampleRecord, how: How) -> None:
        sizes = 0
        for field in self.dataset.fields or ():
            beside = SampleRecord(record.index)
            with self.dataset.open(record.index, field) as file:
                data = file.read()
            sizes += len(data)
            examine(beside, f"{record.key}.{field}", data, how, clocked=False)
            record.findings += beside.findings
            if record.format is None:
                record.format, record.width, record.height = beside.format, beside.width, beside.height
                record.mode, record.digest = beside.mode, beside.digest
        record.size_bytes = sizes


class Streamed:
    """A dataset that can only be iterated: sample i is the i-th that comes.

    Args:
        dataset: With __iter__.
    """

    count = None

    def __init__(self, dataset: Any) -> None:  # noqa: ANN401 - any iterable
        self._dataset = dataset
        self._samples: Iterator[Any] | None = None
        self._next = self._failures = 0

    def load(self, index: int, how: How) -> SampleRecord | None:  # noqa: ARG002 - nothing is known of its bytes
        """The next sample; in a new process those before it are made again first."""
        record = SampleRecord(index)
        while self._next < index:
            if self._advance(SampleRecord(self._next)):
                return None
        return None if self._advance(record) else record

    def _advance(self, record: SampleRecord) -> bool:
        """Take the next sample; whether the stream has ended."""
        ended = False

        def load() -> None:
            nonlocal ended
            if self._samples is None:
                self._samples = iter(self._dataset)
            try:
                next(self._samples)
            except StopIteration:
                ended = True

        self._next += 1
        came = clocked(record, load)
        self._failures = 0 if came else self._failures + 1
        return ended or self._failures > _MOST_FAILURES
