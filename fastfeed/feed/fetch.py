"""The worker's side of the loader: one batch of indices in, one collated batch out, and every fault with its sample's name.

A Fetcher stands where the user's dataset stands in an inner torch DataLoader whose "samples" are whole batches. So
whatever happens to a sample is seen where its index is known; what goes back to the main process is either the batch or a
Failure, never an exception that torch would carry without saying whose it is.
"""

import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch.utils.data import Dataset, default_collate, get_worker_info

from fastfeed.feed.decode.whole import Begin, MakesBatches, Memory, Unfinished, WholeBatch
from fastfeed.feed.lastaxis import channels_last, memory_with_channels_last
from fastfeed.feed.naming import plain_index, sample_name
from fastfeed.feed.passage import Passage
from fastfeed.feed.pickling import unpicklable
from fastfeed.feed.recording import Log, Recording
from fastfeed.feed.seeds import Seeds, states_kept
from fastfeed.feed.splitting import whole_of
from fastfeed.feed.tasks import BatchTask
from fastfeed.feed.threads import WorkerThreads
from fastfeed.feed.timing import Answer, BatchTimes, Clock, Recorded
from fastfeed.feed.unlike import tell_unlike
from fastfeed.feed.workers import DONE, WHOLE, Whereabouts, end_with, leave_stack, leave_to_parent
from fastfeed.trace import reading_epoch

_REST_SECONDS = 0.002
MAIN = -1
"""Worker number of the main process."""
_FACTS = ("message", "path", "shard", "sample", "key", "source", "member", "start", "stop", "expected", "got", "hint")
_NOT_THE_SAMPLE = (MemoryError, ImportError)
"""Faults of the machine or the program, which no policy about samples tolerates."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What one sample did instead of becoming data. Plain values: it passes any pipe."""

    index: Any
    """As the sampler gave it; None where it was the batch as a whole."""
    stage: str
    """"fetch", "collate", "batch_transform" or "pickle"."""
    kind: str
    """Name of the exception's type."""
    message: str
    trace: str
    """The original traceback as text."""
    worker: int
    importable: tuple[str, str] | None = None
    """Module and qualified name of the exception's type, where it can be found again."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Of a FastfeedError: where, expected, got, hint."""
    count: int = 1
    """How many samples were in what failed."""
    position: int = 0
    """Of the sample in its batch."""

    @classmethod
    def of(cls, error: BaseException, index: Any, stage: str, worker: int = MAIN) -> "Failure":  # noqa: ANN401
        """From an exception that is being handled."""
        kind = type(error)
        facts = {name: _plain_fact(getattr(error, name, None)) for name in _FACTS} if hasattr(error, "exit_code") else {}
        return cls(
            None if index is None else plain_index(index), stage, kind.__name__, _text(error),
            "".join(traceback.format_exception(error)), worker,
            importable(kind),
            {name: value for name, value in facts.items() if value is not None},
        )  # fmt: skip


def importable(kind: type) -> tuple[str, str] | None:
    """Module and qualified name of a type, where it can be found again by them."""
    found: Any = sys.modules.get(kind.__module__)
    for part in kind.__qualname__.split("."):
        found = getattr(found, part, None)
    return (kind.__module__, kind.__qualname__) if found is kind else None


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as other:  # noqa: BLE001 - user code, and the fault that it tells of must not be lost
        return f"<its text cannot be had: {type(other).__name__}>"


def _plain_fact(value: object) -> object:
    return value if isinstance(value, int | float | str | type(None)) else str(value)


@dataclass(frozen=True, slots=True)
class FetchRules:
    """How samples are fetched; the same in every worker."""

    batched: bool
    """Whether a task holds several indices."""
    collate: Callable[[Any], Any]
    on_error: str = "raise"
    """raise, skip or replace."""
    replace: Callable[[Any, int, int], Any] | None = None
    """(index, epoch, attempt) -> another index, for on_error replace."""
    attempts: int = 10
    """How many replacements are tried for one sample."""
    passage: Passage | None = None
    """How batches go from workers to the main process; None without workers."""
    tuned: bool = False
    """Somebody corrects the number of workers, and wants to know what they wait for."""
    record: bool = False
    """Take the times of samples."""
    channels_last: bool = False
    """Whether images lie in batches with channels last."""
    encoded_bytes: int = 0
    """Bytes of pixels of a batch that another decoder gets at most, where images can be left to it (feed/decode/encoded.py); 0
    where there is none."""
    batch_transform: Callable[[Any], Any] | None = None
    """What is done to each batch behind collate."""
    raw: bool = False
    """Whether images may stay bytes, for who gets the batch to finish: Answer.unfinished. Not with a batch_transform."""


def _contiguous(memory: Callable[..., torch.Tensor]) -> Memory:
    return lambda shape, dtype: memory(shape, dtype=dtype)


class Fetcher:
    """The user's dataset, asked for a batch at a time.

    Args:
        dataset: Any map-style dataset.
        rules: How.
        whereabouts: Where workers write down what they are at. None where nobody looks.
    """

    def __init__(self, dataset: Any, rules: FetchRules, whereabouts: Whereabouts | None = None) -> None:  # noqa: ANN401
        self.dataset, self.rules, self.whereabouts = dataset, rules, whereabouts
        self.worker = MAIN
        self._recording = Recording() if rules.record else None
        self._unfinished: Unfinished | None = None
        """Of the batch that is fetched."""
        self._log: Log | None = None
        """Of the batch that is fetched; None where it is not recorded."""
        self.original: Exception | None = None
        """In the main process the exception behind the Failure that was given last. It is no part of the Failure: its
        traceback has the frames that hold the Failure, and would keep all of the pass alive."""

    def __getitem__(self, task: BatchTask) -> Answer:
        """The batch, or what went wrong with it."""
        with reading_epoch(task.epoch):
            return self._answer(task)

    def _answer(self, task: BatchTask) -> Answer:
        if task.number < 0:
            self._at(DONE)  # from now on it is known that this worker has begun
            time.sleep(_REST_SECONDS)
            return Answer(task.number, None, [])
        clock = Clock(queued=self.rules.tuned)
        if self.whereabouts is not None and self.worker != MAIN:
            self.whereabouts.begin(self.worker, task.number)
        failures: list[Failure] = []
        recorded: Recorded = (None, None)
        self._unfinished = None
        if self._recording is None:
            data = self._kept(task, failures)
        else:
            self._log = self._recording.begin(self.dataset)
            try:
                data = self._kept(task, failures)
            finally:
                self._log, recorded = None, self._recording.end()
        self._at(DONE)
        if not isinstance(data, Failure):
            self.original = None
        times = clock.stop(self.worker, data, recorded)
        if self.rules.passage is not None and self.worker != MAIN and not isinstance(data, Failure):
            data = self._sent(self.rules.passage, data, task, times)
        return Answer(task.number, data, failures, times, self._unfinished)

    def _sent(self, passage: Passage, data: Any, task: BatchTask, times: BatchTimes) -> Any:  # noqa: ANN401 - as Passage.sent
        try:
            return passage.sent(data, times.size_bytes, times.tensors)
        except Exception as error:  # noqa: BLE001 - what tensors of other kinds raise when they are pickled
            return self._failure(error, None, "pickle", count=len(task.indices) if self.rules.batched else 1)

    def _kept(self, task: BatchTask, failures: list[Failure]) -> Any:  # noqa: ANN401 - a batch, or a Failure
        if task.base is None or self.worker != MAIN:
            return self._prepared(task, failures)
        with states_kept():  # the training loop's own random numbers are not ours to change
            return self._prepared(task, failures)

    def _prepared(self, task: BatchTask, failures: list[Failure]) -> Any:  # noqa: ANN401 - a batch, or a Failure
        seeds = None if task.base is None else Seeds(task.base, task.epoch)
        count = len(task.indices) if self.rules.batched else 1
        samples = self._many(task, seeds, failures) if self.rules.batched else self._one(task, 0, task.indices, seeds, failures)
        if isinstance(samples, Failure):
            return samples
        if samples is _SKIPPED or (failures and self.rules.batched and not len(samples)):
            return _nothing_left(failures[-1], count)
        self._at(WHOLE)
        stage = "collate"
        try:
            collate, log = self.rules.collate, self._log
            if isinstance(samples, WholeBatch):
                collate = WholeBatch.collated
            collated = collate(samples) if log is None else log.collated(collate, samples)
            self._unfinished = samples.unfinished if isinstance(samples, WholeBatch) else None
            if self.rules.channels_last:
                collated = channels_last(collated)
            if self.rules.batch_transform is not None:
                stage = "batch_transform"
                if seeds is not None:  # by its first sample: numbers of batches differ after a resume
                    seeds.apply(f"batch of {plain_index(next(iter(task.indices), 0))}")
                collated = self.rules.batch_transform(collated)
        except Exception as error:  # noqa: BLE001 - any fault of user code is reported with its batch
            tell_unlike(error, samples, lambda at: sample_name(self.dataset, self._fetched(task, failures)[at][1]))
            return self._failure(error, None, stage, count=count)
        wrong = None if self.worker == MAIN else unpicklable(collated)
        return collated if wrong is None else self._whose(task, samples, wrong, failures)

    # ------------------------------------------------------------------------------------------------ samples
    def _many(self, task: BatchTask, seeds: Seeds | None, failures: list[Failure]) -> Any:  # noqa: ANN401 - samples, or a Failure
        whole = self._whole(task, seeds, failures)
        if whole is not None:
            return whole
        together = getattr(self.dataset, "__getitems__", None)
        if not together or (seeds is not None and self._has_single_samples()):
            return self._singly(task, seeds, failures)
        self._at(WHOLE)
        if seeds is not None:
            seeds.apply(next(iter(task.indices), 0))
        try:
            samples = together(task.indices) if self._log is None else self._log.samples(task.indices)
            self._prove_count(samples, task)
        except Exception as error:  # noqa: BLE001 - which sample it was is found by asking for each
            whole = self._failure(error, None, "fetch", count=len(task.indices))
            if not self._has_single_samples():
                return whole
            found = self._singly(task, seeds, failures)
            return found if isinstance(found, Failure) or failures else whole
        return samples

    def _whole(self, task: BatchTask, seeds: Seeds | None, failures: list[Failure]) -> Any:  # noqa: ANN401 - a batch, or a Failure
        """The batch as a dataset of ours writes it where it lies; None where it does not."""
        base, indices = whole_of(self.dataset, task.indices)
        if self.rules.collate is not default_collate or not isinstance(base, MakesBatches):
            return None
        asked = task.indices

        def begin(position: int) -> None:
            self._at(position)
            if seeds is not None:
                seeds.apply(asked[position])

        memory = torch.empty if self.rules.passage is None or self.worker == MAIN else self.rules.passage.memory
        make = partial(self._made, base, indices, begin, memory)
        self._at(WHOLE)
        try:
            return make() if self._log is None else self._log.together(make, asked)
        except Exception as error:  # noqa: BLE001 - which sample it was is found by asking for each
            whole = self._failure(error, None, "fetch", count=len(asked))
            found = self._singly(task, seeds, failures)
            return found if isinstance(found, Failure) or failures else whole

    def _made(self, base: MakesBatches, indices: Any, begin: Begin, memory: Any) -> WholeBatch | None:  # noqa: ANN401
        """What a dataset of ours makes of indices of its own."""
        rules = self.rules
        most = rules.encoded_bytes
        found = base.make_encoded(indices, begin, _contiguous(memory), most) if most else None
        if found is None:
            own = partial(memory_with_channels_last, memory) if rules.channels_last else _contiguous(memory)
            found = base.make_batch(indices, begin, own, raw=rules.raw)
        return found

    def _has_single_samples(self) -> bool:
        own = getattr(type(self.dataset), "__getitem__", None)
        return own is not None and own is not Dataset.__getitem__

    def _prove_count(self, samples: Any, task: BatchTask) -> None:  # noqa: ANN401 - what __getitems__ gave
        """A sample for each index. With a collate function of the user's it may be anything, such as a batch already."""
        if self.rules.collate is default_collate and isinstance(samples, list | tuple) and len(samples) != len(task.indices):
            msg = f"__getitems__ gave {len(samples)} samples for {len(task.indices)} indices"
            raise RuntimeError(msg)

    def _singly(self, task: BatchTask, seeds: Seeds | None, failures: list[Failure]) -> "list[Any] | Failure":
        found = []
        for position, index in enumerate(task.indices):
            data = self._one(task, position, index, seeds, failures)
            if isinstance(data, Failure):
                return data
            if data is not _SKIPPED:
                found.append(data)
        return found

    def _one(self, task: BatchTask, position: int, index: Any, seeds: Seeds | None, failures: list[Failure]) -> Any:  # noqa: ANN401, PLR0917
        """One sample, or what on_error makes of it."""
        wanted, rules = index, self.rules
        for attempt in range(rules.attempts + 1):
            self._at(position)
            if seeds is not None:
                seeds.apply(wanted)
            try:
                return self.dataset[wanted] if self._log is None else self._log.sample(wanted)
            except Exception as error:  # noqa: BLE001 - any fault of a sample is its own, and is reported with its name
                failure = self._failure(error, wanted, "fetch", position=position)
                tolerated = rules.on_error != "raise" and not isinstance(error, _NOT_THE_SAMPLE)
            if not tolerated or attempt == rules.attempts:
                return failure
            failures.append(failure)
            if rules.replace is None:
                return _SKIPPED
            wanted = rules.replace(index, task.epoch, attempt)
        return _SKIPPED

    def _failure(self, error: Exception, index: Any, stage: str, *, count: int = 1, position: int = 0) -> Failure:  # noqa: ANN401
        if self.worker == MAIN:
            self.original = error
        return replace(Failure.of(error, index, stage, self.worker), count=count, position=position)

    def _fetched(self, task: BatchTask, failures: list[Failure]) -> list[tuple[int, Any]]:
        """Position and index of each sample of a batch: without those left out, and where one stands in, the other's index."""
        tries, other = Counter(failure.position for failure in failures), self.rules.replace
        if other is None:
            return [(at, index) for at, index in enumerate(task.indices) if at not in tries]
        return [(at, other(i, task.epoch, tries[at] - 1) if at in tries else i) for at, i in enumerate(task.indices)]

    def _at(self, position: int) -> None:
        if self.whereabouts is not None and self.worker != MAIN:
            self.whereabouts.at(self.worker, position)

    def _whose(self, task: BatchTask, samples: Any, wrong: str, failures: list[Failure]) -> Failure:  # noqa: ANN401 - what samples are
        """An object that cannot be sent: which sample it came from."""
        index, position = task.indices, 0
        if self.rules.batched:
            index = None
            fetched = self._fetched(task, failures)
            if isinstance(samples, list | tuple) and len(samples) == len(fetched):
                found = (pair for pair, sample in zip(fetched, samples, strict=True) if unpicklable(sample) is not None)
                position, index = next(found, (0, None))
        try:
            msg = f"{wrong}; a worker process cannot send it to the main process"
            raise TypeError(msg)
        except TypeError as error:
            count = len(task.indices) if self.rules.batched else 1
            return self._failure(error, index, "pickle", count=count, position=position)


_SKIPPED = object()


def _nothing_left(last: Failure, count: int) -> Failure:
    """A batch of which no sample is left."""
    message = f"no sample of the batch is left; the last one: {last.message}"
    return replace(last, message=message, facts={}, count=count)


class WorkerInit:
    """What a worker does before its first batch.

    Args:
        user: The user's worker_init_fn.
        threads: Limits the threads of libraries; None leaves them, and torch's choice for its own, which is 1.
        stack_paths: A file for each worker, where it leaves its stack when it is asked; none for no such thing.
    """

    def __init__(
        self, user: Callable[[int], Any] | None, *, threads: WorkerThreads | None = None, stack_paths: list[str] | None = None
    ) -> None:
        self.user, self.threads, self.stack_paths = user, threads, stack_paths or []
        self.owner = os.getpid()

    def __call__(self, worker: int) -> None:
        """Show the user's code the dataset that it knows, then call it."""
        end_with(self.owner)
        leave_to_parent()
        info = get_worker_info()
        fetcher = getattr(info, "dataset", None)
        if isinstance(fetcher, Fetcher):
            fetcher.worker = worker
            listens = bool(self.stack_paths) and leave_stack(self.stack_paths[worker], worker)
            if fetcher.whereabouts is not None:
                fetcher.whereabouts.begun(worker, listens=listens)
            if fetcher.rules.passage is not None:
                fetcher.rules.passage.begun()
            object.__setattr__(info, "dataset", fetcher.dataset)  # frozen for users; the wrapper is ours
        if self.threads is not None:
            self.threads()
        if self.user is not None:
            self.user(worker)


def identity(data: Any) -> Any:  # noqa: ANN401
    """What it is given: the collate function of the inner loader."""
    return data
