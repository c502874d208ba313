"""The worker's side of the loader: one batch of indices in, one collated batch out, and every fault with its sample's name.

A Fetcher stands where the user's dataset stands in an inner torch DataLoader whose "samples" are whole batches. So
whatever happens to a sample is seen where its index is known; what goes back to the main process is either the batch or a
Failure, never an exception that torch would carry without saying whose it is.
"""

import faulthandler
import os
import sys
import time
import traceback
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.reduction import ForkingPickler
from numbers import Number
from typing import Any

import numpy as np
import torch
from torch.utils.data import get_worker_info

from fastfeed.feed.seeds import Seeds, states_kept
from fastfeed.sample import printable

_PLAIN = (str, bytes, bytearray, type(None), np.ndarray, np.generic, Number)
_REST_SECONDS = 0.002
MAIN = -1
"""Worker number of the main process."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What one sample did instead of becoming data. Plain values: it passes any pipe."""

    index: Any
    """As the sampler gave it; None where it was the batch as a whole (collate)."""
    stage: str
    """"fetch", "collate" or "pickle"."""
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

    @classmethod
    def of(cls, error: BaseException, index: Any, stage: str, count: int = 1) -> "Failure":  # noqa: ANN401 - any index
        """From an exception that is being handled."""
        kind = type(error)
        found: Any = sys.modules.get(kind.__module__)
        for part in kind.__qualname__.split("."):
            found = getattr(found, part, None)
        info = get_worker_info()
        names = ("message", "path", "shard", "sample", "key", "source", "member", "start", "stop", "hint")
        facts = {name: getattr(error, name) for name in names if hasattr(error, "exit_code") and hasattr(error, name)}
        return cls(
            _plain_index(index), stage, kind.__name__, str(error), "".join(traceback.format_exception(error)),
            MAIN if info is None else info.id, (kind.__module__, kind.__qualname__) if found is kind else None, facts, count,
        )  # fmt: skip


def _plain_index(index: Any) -> Any:  # noqa: ANN401 - any index
    return index if isinstance(index, int | str | bytes | tuple | type(None)) else repr(index)


class BatchTask:
    """What goes to a worker for one batch.

    Args:
        number: Of the batch within the epoch; negative: there is nothing to do, since enough is fetched ahead.
        indices: As the batch sampler gave them; a single index without batching.
        epoch: Which epoch it is; it travels with each task, so persistent workers know.
        base: What sample mode draws from; None in torch mode.
    """

    __slots__ = ("base", "epoch", "indices", "number")

    def __init__(self, number: int, indices: Any, epoch: int, base: int | None) -> None:  # noqa: ANN401 - any index
        self.number, self.indices, self.epoch, self.base = number, indices, epoch, base

    def __reduce__(self) -> tuple[Any, ...]:
        return BatchTask, (self.number, self.indices, self.epoch, self.base)


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


class Fetcher:
    """The user's dataset, asked for a batch at a time.

    Args:
        dataset: Any map-style dataset.
        rules: How.
        doing: Shared int64 array of shape (workers + 1, 3): batch and position within it that each worker is at, and its
            process; row 0 is the main process. None where nobody looks.
    """

    def __init__(self, dataset: Any, rules: FetchRules, doing: torch.Tensor | None = None) -> None:  # noqa: ANN401
        self.dataset, self.rules, self.doing = dataset, rules, doing
        self.watch: Watch | None = None

    def __getitem__(self, task: BatchTask) -> tuple[Any, ...]:
        """(batch number, data or Failure, failures that were skipped or replaced)."""
        if self.watch is None:
            return self._fetch(task)
        self.watch.begin()
        try:
            return self._fetch(task)
        finally:
            self.watch.end()

    def _fetch(self, task: BatchTask) -> tuple[Any, ...]:
        if task.number < 0:
            time.sleep(_REST_SECONDS)
            return task.number, None, []
        if task.base is not None and get_worker_info() is None:
            with states_kept():  # the training loop's own random numbers are not ours to change
                return self._prepare(task)
        return self._prepare(task)

    def _prepare(self, task: BatchTask) -> tuple[Any, ...]:
        seeds = None if task.base is None else Seeds(task.base, task.epoch)
        failures: list[Failure] = []
        if not self.rules.batched:
            data = self._one(task, 0, task.indices, seeds, failures)
        else:
            data = self._many(task, seeds, failures)
        if data is _SKIPPED:
            return task.number, _nothing_left(failures[-1], 1), failures
        if isinstance(data, Failure):
            return task.number, data, failures
        if self.rules.batched and failures and not data:
            return task.number, _nothing_left(failures[-1], len(failures)), failures
        try:
            collated = self.rules.collate(data)
        except Exception as error:  # noqa: BLE001 - any fault of user code is reported with its batch
            return task.number, Failure.of(error, None, "collate", len(data) if self.rules.batched else 1), failures
        wrong = None if get_worker_info() is None else unpicklable(collated)
        if wrong is not None:
            return task.number, self._whose(task, data, wrong), failures
        return task.number, collated, failures

    def _many(self, task: BatchTask, seeds: Seeds | None, failures: list[Failure]) -> "list[Any] | Failure":
        together = getattr(self.dataset, "__getitems__", None)
        if together and seeds is None:
            self._at(task.number, 0)
            try:
                return together(task.indices)  # type: ignore[no-any-return]
            except Exception as error:  # noqa: BLE001 - which sample it was is found by asking for each
                culprit = self._singly(task, seeds, failures)
                return Failure.of(error, None, "fetch", len(task.indices)) if isinstance(culprit, list) else culprit
        return self._singly(task, seeds, failures)

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
        wanted = index
        for attempt in range(self.rules.attempts + 1):
            self._at(task.number, position)
            if seeds is not None:
                seeds.apply(hash(wanted) if not isinstance(wanted, int) else wanted)
            try:
                return self.dataset[wanted]
            except Exception as error:  # noqa: BLE001 - any fault of a sample is its own, and is reported with its name
                failure = Failure.of(error, wanted, "fetch")
            if self.rules.on_error == "raise":
                return failure
            failures.append(failure)
            if self.rules.on_error == "skip" or self.rules.replace is None:
                return _SKIPPED
            wanted = self.rules.replace(index, task.epoch, attempt)
        return failure

    def _at(self, batch: int, position: int) -> None:
        if self.doing is not None:
            info = get_worker_info()
            row = self.doing[0 if info is None else info.id + 1]
            row[0], row[1] = batch, position

    def _whose(self, task: BatchTask, data: Any, wrong: str) -> Failure:  # noqa: ANN401 - what samples are
        """An object that cannot be sent: which sample it came from."""
        index = task.indices
        if self.rules.batched:
            at = next((at for at, sample in enumerate(data) if unpicklable(sample) is not None), None)
            index = None if at is None else task.indices[at]
        try:
            msg = f"{wrong}; a worker process cannot send it to the main process"
            raise TypeError(msg)
        except TypeError as error:
            return Failure.of(error, index, "pickle")


_SKIPPED = object()


def _nothing_left(last: Failure, count: int) -> Failure:
    """A batch of which no sample is left."""
    message = f"no sample of the batch is left; the last one: {last.message}"
    return Failure(last.index, "fetch", last.kind, message, last.trace, last.worker, last.importable, {}, count)


def unpicklable(data: Any) -> str | None:  # noqa: ANN401 - any batch
    """Why data cannot be sent to another process, None where it can. Tensors and arrays are not copied for it."""
    if _is_plain(data):
        return None
    try:
        _Trial(_Nowhere()).dump(data)
    except Exception as error:  # noqa: BLE001 - pickling runs code of any class
        return f"a {type(data).__qualname__} cannot be pickled ({type(error).__name__}: {printable(str(error))[:300]})"
    return None


def _is_plain(data: Any) -> bool:  # noqa: ANN401
    """Whether it consists of nothing but what surely can be pickled."""
    if isinstance(data, torch.Tensor):
        return type(data) in {torch.Tensor, torch.nn.Parameter}
    if isinstance(data, np.ndarray):
        return not data.dtype.hasobject
    if isinstance(data, _PLAIN):
        return True
    if type(data) in {list, tuple}:
        return all(map(_is_plain, data))
    return type(data) is dict and all(map(_is_plain, data.values())) and all(map(_is_plain, data))


class _Nowhere:
    """A file that forgets."""

    def write(self, data: bytes) -> int:
        """Nothing is kept."""
        return len(data)


class _Trial(ForkingPickler):
    """Pickles as a queue would, but leaves tensors' memory alone: it only finds out whether it can be done."""

    def reducer_override(self, obj: Any) -> Any:  # noqa: ANN401
        """Tensors stand for themselves."""
        return (int, ()) if isinstance(obj, torch.Tensor) else NotImplemented


class WorkerInit:
    """What a worker does before its first batch.

    Args:
        user: The user's worker_init_fn.
        threads: For torch's own operators in this worker; None leaves torch's choice, which is 1.
        stacks: A folder where a worker that is at one batch for too long leaves its stack, None for no such thing.
        hang_seconds: How long that is.
    """

    def __init__(
        self, user: Callable[[int], Any] | None, *, threads: int | None = None, stacks: str | None = None,
        hang_seconds: float = 0.0,
    ) -> None:  # fmt: skip
        self.user, self.threads, self.stacks, self.hang_seconds = user, threads, stacks, hang_seconds

    def __call__(self, worker: int) -> None:
        """Show the user's code the dataset that it knows, then call it."""
        info = get_worker_info()
        fetcher = getattr(info, "dataset", None)
        if isinstance(fetcher, Fetcher):
            if fetcher.doing is not None:
                fetcher.doing[worker + 1][2] = os.getpid()
            if self.stacks is not None:
                fetcher.watch = Watch(os.path.join(self.stacks, str(worker)), self.hang_seconds)
            object.__setattr__(info, "dataset", fetcher.dataset)  # frozen for users; the wrapper is ours
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        if self.user is not None:
            self.user(worker)


class Watch:
    """Leaves this process's Python stacks in a file if one batch takes too long. A C thread writes them: it needs no GIL.

    Args:
        path: The file.
        seconds: What too long is.
    """

    def __init__(self, path: str, seconds: float) -> None:
        self._file, self._seconds = open(path, "wb", buffering=0), seconds  # noqa: SIM115 - as long as the process

    def begin(self) -> None:
        """A batch begins."""
        faulthandler.dump_traceback_later(self._seconds, file=self._file)

    def end(self) -> None:
        """It is done."""
        faulthandler.cancel_dump_traceback_later()


def identity(data: Any) -> Any:  # noqa: ANN401
    """What it is given: the collate function of the inner loader."""
    return data


def indices_text(indices: Any) -> str:  # noqa: ANN401 - any index or list of them
    """Indices for a message: few of them, whatever they are."""
    if isinstance(indices, Sequence) and not isinstance(indices, str | bytes):
        shown = ", ".join(str(index) for index in indices[:8])
        return f"[{shown}{', ...' if len(indices) > 8 else ''}]"  # noqa: PLR2004 - those shown
    return str(array("q", [indices])[0]) if isinstance(indices, int) else repr(indices)
