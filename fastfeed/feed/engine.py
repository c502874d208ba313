"""The main process's side of the loader: an inner torch DataLoader whose samples are whole batches, and what comes back.

Only public parts of torch are used: an inner loader with batch_size=None draws the same random numbers, in the same order,
as the loader that it stands for, so order, base seed, worker seeds and batches are torch's (tests compare them).
"""

import logging
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from torch.utils.data import DataLoader as TorchDataLoader

from fastfeed.feed.faults import ErrorCaps, FaultCounter
from fastfeed.feed.fetch import MAIN, BatchTask, Failure, Fetcher, FetchRules, WorkerInit, identity, indices_text

LOG = logging.getLogger("fastfeed.loader")
_PIDS = re.compile(r"pid\(?s?\)? ?\(?([0-9, ]+)")
_DYING_SECONDS = 2.0
_AHEAD_FACTOR = 4
"""Where one slow batch holds up those that are done, so many times the usual number may wait for it."""
_FETCH_FILE = os.path.join("feed", "fetch.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class InnerOptions:
    """What the inner loader is made with; the names are torch's."""

    num_workers: int
    prefetch_factor: int | None
    pin_memory: bool
    timeout: float
    worker_init_fn: Any
    multiprocessing_context: Any
    persistent_workers: bool
    in_order: bool
    pin_memory_device: str = ""


class TaskOrder:
    """The inner loader's sampler: each batch of the outer one as a task, with its number.

    Args:
        batches: The outer loader's batch sampler, or its sampler without batching.
        epoch_of: Which epoch it is, asked once the first batch is drawn: a sampler settles it then.
    """

    def __init__(self, batches: Iterable[Any], epoch_of: Callable[[], int]) -> None:
        self.batches, self._epoch_of = batches, epoch_of
        self.epoch = 0
        self.base: int | None = None
        self.pending: dict[int, Any] = {}
        """Indices of each batch that is on its way."""
        self.most_ahead: int | None = None
        """So many batches may be on their way or waiting for their turn; None for as many as the workers take."""

    def __iter__(self) -> Iterator[BatchTask]:
        """The sampler is asked for its iterator now, as torch does; it may draw its random numbers at once or later."""
        self.pending.clear()
        return self._tasks(iter(self.batches))

    def _tasks(self, batches: Iterator[Any]) -> Iterator[BatchTask]:
        for number, indices in enumerate(batches):
            if number == 0:
                self.epoch = self._epoch_of()
            while self.most_ahead is not None and len(self.pending) >= self.most_ahead:
                yield BatchTask(-1, None, self.epoch, self.base)  # torch asks for a task for each batch that came
            self.pending[number] = indices
            yield BatchTask(number, indices, self.epoch, self.base)


class Engine:
    """Makes and keeps the inner loader of one outer loader.

    Args:
        dataset: The user's.
        rules: How samples are fetched.
        order: What is fetched.
        hang_seconds: After how long without a batch a worker's stack is reported; 0 for never.
        caps: How many faults on_error tolerates.
    """

    def __init__(
        self,
        dataset: Any,
        rules: FetchRules,
        order: TaskOrder,
        *,
        hang_seconds: float,
        caps: ErrorCaps,  # noqa: ANN401
    ) -> None:
        self.dataset, self.rules, self.hang_seconds, self.caps = dataset, rules, hang_seconds, caps
        self.order = order
        self._inner: TorchDataLoader[Any] | None = None
        self._options: InnerOptions | None = None
        self._doing: torch.Tensor | None = None
        self._stacks: str | None = None

    def epoch(self, options: InnerOptions, generator: torch.Generator | None) -> "EpochIterator":
        """Begin a pass; persistent workers of the last pass go on if nothing has changed."""
        ahead = options.num_workers * (options.prefetch_factor or 2)
        self.order.most_ahead = None if options.in_order or not ahead else _AHEAD_FACTOR * ahead
        if self._inner is None or self._options != options or not options.persistent_workers:
            self._make(options, generator)
        assert self._inner is not None
        self._inner.generator = generator
        return EpochIterator(self, iter(self._inner), options)

    def _make(self, options: InnerOptions, generator: torch.Generator | None) -> None:
        self.close()
        workers = options.num_workers
        self._options = options
        if workers:
            self._doing = torch.full((workers + 1, 3), -1, dtype=torch.int64).share_memory_()
            if self.hang_seconds > 0:
                self._stacks = tempfile.mkdtemp(prefix="fastfeed-loader-")
                weakref.finalize(self, shutil.rmtree, self._stacks, ignore_errors=True)
        init = WorkerInit(options.worker_init_fn, stacks=self._stacks, hang_seconds=self.hang_seconds)
        extra = {"in_order": options.in_order} if _has_in_order() else {}
        self._inner = TorchDataLoader(
            Fetcher(self.dataset, self.rules, self._doing), batch_size=None, sampler=self.order,  # type: ignore[arg-type]
            num_workers=workers, collate_fn=identity, pin_memory=options.pin_memory, timeout=options.timeout,
            worker_init_fn=init if workers else None, generator=generator,
            multiprocessing_context=options.multiprocessing_context, prefetch_factor=options.prefetch_factor,
            persistent_workers=options.persistent_workers, pin_memory_device=options.pin_memory_device, **extra,
        )  # fmt: skip

    def close(self) -> None:
        """Let go of workers that were kept."""
        self._inner = self._doing = None
        if self._stacks is not None:
            shutil.rmtree(self._stacks, ignore_errors=True)
            self._stacks = None

    def whereabouts(self, worker: int) -> tuple[int, int]:
        """(batch, position within it) that a worker is at; (-1, -1) where it has not begun."""
        if self._doing is None:
            return -1, -1
        row = self._doing[worker + 1]
        return int(row[0]), int(row[1])

    def worker_of(self, pid: int) -> int | None:
        """The worker with a process number."""
        if self._doing is None:
            return None
        hits = (self._doing[:, 2] == pid).nonzero()
        return int(hits[0]) - 1 if len(hits) else None

    def dead_workers(self, patience_seconds: float = 0.0) -> dict[int, str]:
        """Workers that have ended, and how. One that is dying is waited for a little."""
        deadline = time.monotonic() + patience_seconds
        while True:
            found = {}
            for worker, row in enumerate(self._doing[1:].tolist() if self._doing is not None else ()):
                ended = _ended(row[2]) if row[2] > 0 else None
                if ended is not None:
                    found[worker] = ended
            if found or time.monotonic() >= deadline:
                return found
            time.sleep(0.01)

    def stack_of(self, worker: int) -> str:
        """The Python stack that a hanging worker left; empty where it left none."""
        if self._stacks is None:
            return ""
        try:
            with open(f"{self._stacks}/{worker}", encoding="utf-8", errors="replace") as file:
                text = file.read()
        except OSError:
            return ""  # it has not begun: there is nothing to tell
        own = text.rpartition("\nThread ")[2].splitlines()[1:]  # the last thread is the one that fetches
        stop = next((at for at, line in enumerate(own) if _FETCH_FILE in line), len(own))
        return "\n".join(["Its stack, most recent call first:", *own[:stop]]) if own else ""

    def name(self, index: Any) -> str:  # noqa: ANN401 - any index
        """An index for a message, with key and source path where the dataset knows them."""
        identity_of = getattr(self.dataset, "identity", None)
        if identity_of is None or not isinstance(index, int):
            return f"sample {index!r}"
        try:
            found = identity_of(index)
        except Exception:  # noqa: BLE001 - a name that cannot be looked up is left out, the fault itself is being reported
            return f"sample {index!r}"
        source = f", source {found.source.decode(errors='backslashreplace')!r}" if getattr(found, "source", None) else ""
        return f"sample {index!r} (key {getattr(found, 'key', None)!r}{source})"

    def doing_text(self, worker: int) -> str:
        """Which sample a worker is at, for a message."""
        batch, position = self.whereabouts(worker)
        indices = self.order.pending.get(batch)
        if indices is None:
            return "before its first batch" if batch < 0 else f"after batch {batch}"
        index = indices[position] if self.rules.batched and 0 <= position < len(indices) else indices
        return f"at {self.name(index)}, number {position} of batch {batch} {indices_text(indices)}"


def _ended(pid: int) -> str | None:
    """How a child ended, None while it runs. It is left to be waited for by whoever started it."""
    try:
        facts = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return "has ended"  # waited for already
    if facts is None:
        return None
    if facts.si_code == os.CLD_EXITED:
        return f"ended with exit code {facts.si_status}"
    return f"was killed by {signal.Signals(facts.si_status).name}"


def _has_in_order() -> bool:
    return "in_order" in TorchDataLoader.__init__.__annotations__ or hasattr(TorchDataLoader, "in_order")


@dataclass(slots=True)
class Handed:
    """What one pass has handed out. It outlives the pass, whose end ends the workers."""

    batches: int = 0
    samples: int = 0
    """Indices in the batches, those of left-out samples counted."""
    indices: Any = ()
    """Of the last batch, as the sampler gave them."""


class _WorkerFailed(RuntimeError):
    """A worker's end, told with its samples."""


class EpochIterator:
    """One pass over the data: what ``iter(loader)`` gives."""

    def __init__(self, engine: Engine, inner: Iterator[Any], options: InnerOptions) -> None:
        self._engine, self._inner, self._options = engine, inner, options
        self._early: dict[int, tuple[Any, list[Failure]]] = {}
        """Batches that came before their turn."""
        self._next = 0
        self.handed = Handed()
        self.faults = FaultCounter(engine.caps) if engine.rules.on_error != "raise" else None
        self._watch = _Watchman(self) if options.num_workers and engine.hang_seconds > 0 else None

    def __iter__(self) -> "EpochIterator":
        return self

    def __len__(self) -> int:
        return len(self._engine.order.batches)  # type: ignore[arg-type]

    def __next__(self) -> Any:  # noqa: ANN401 - a batch
        """The next batch, in the sampler's order.

        Raises:
            Exception: What a sample raised, of its own type, with the sample's name in its message.
            RuntimeError: A worker died or took longer than timeout; the message names the samples.
        """
        try:
            data, failures = self._take()
        except _WorkerFailed as error:
            raise RuntimeError(*error.args) from error.__cause__
        except RuntimeError as error:
            if "DataLoader worker" not in str(error):
                raise
            raise RuntimeError(self._worker_failed(error).args[0]) from error  # torch's signal handler spoke between two lines
        for failure in failures:
            LOG.warning("%s", self._told(failure))
        if isinstance(data, Failure):
            raise self._raised(data)
        self.handed.batches += 1
        self.handed.samples += len(self.handed.indices) if self._engine.rules.batched else 1
        return data

    def _take(self) -> tuple[Any, list[Failure]]:
        while self._next not in self._early:
            number, data, failures = self._receive()
            if number < 0:
                continue
            self._early[number] = (data, failures)
        indices = self.handed.indices = self._engine.order.pending.pop(self._next)
        found = self._early.pop(self._next)
        if self.faults is not None:
            names = [f"{self._engine.name(failure.index)}: {failure.kind}: {failure.message}" for failure in found[1]]
            self.faults.batch(len(indices) if self._engine.rules.batched else 1, names)
        self._next += 1
        return found

    def _receive(self) -> tuple[int, Any, list[Failure]]:
        if self._watch is not None:
            self._watch.waiting()
        try:
            found: tuple[int, Any, list[Failure]] = next(self._inner)
        except StopIteration:
            self._prove_complete()
            raise
        except RuntimeError as error:
            raise self._worker_failed(error) from error
        except (EOFError, ConnectionError) as error:  # a worker died while it handed over a tensor
            if not self._engine.dead_workers(patience_seconds=_DYING_SECONDS):
                raise
            raise self._worker_failed(error) from error
        finally:
            if self._watch is not None:
                self._watch.arrived()
        return found

    def _prove_complete(self) -> None:
        """Everything that the sampler gave was delivered."""
        if self._watch is not None:
            self._watch.stop()
        pending = self._engine.order.pending
        if pending:
            first = next(iter(pending))
            msg = (
                f"the epoch ended with {len(pending)} batches missing, the first is batch {first} "
                f"{indices_text(pending[first])}: this is a fault of the loader, please report it"
            )
            raise RuntimeError(msg)

    def close(self) -> None:
        """End the pass: workers stop, what was fetched ahead is dropped."""
        if self._watch is not None:
            self._watch.stop()
        self._early.clear()
        self._inner = iter(())

    def __del__(self) -> None:
        if getattr(self, "_watch", None) is not None:
            self._watch.stop()  # type: ignore[union-attr]

    # ------------------------------------------------------------------------------------------------ faults
    def _told(self, failure: Failure) -> str:
        what = {"skip": "left out", "replace": "replaced"}.get(self._engine.rules.on_error, "failed")
        return f"{self._engine.name(failure.index)} was {what}: {failure.kind}: {failure.message}"

    def _raised(self, failure: Failure) -> BaseException:
        """A failure as an exception of its own type, its message beginning as torch's does."""
        where = "in the main process" if failure.worker == MAIN else f"in DataLoader worker process {failure.worker}"
        batch = self._next - 1
        if failure.index is not None:
            who = f"{self._engine.name(failure.index)} of batch {batch}"
        else:
            who = f"batch {batch} ({failure.stage} of {failure.count} samples)"
        msg = f"Caught {failure.kind} {where}, {who}: {failure.message}\nOriginal {failure.trace}"
        kind = _found(failure.importable)
        if kind is None or kind in {StopIteration, GeneratorExit, StopAsyncIteration} or not issubclass(kind, Exception):
            return RuntimeError(msg)  # a StopIteration of user code would end the epoch as if all were well
        return _built(kind, msg, failure)

    def _worker_failed(self, error: Exception) -> "_WorkerFailed":
        """torch's error about a worker, with the samples that were on their way."""
        engine, text = self._engine, str(error).removesuffix(" ").removesuffix(".")
        dead = engine.dead_workers()
        if not isinstance(error, RuntimeError):
            text = "; ".join(f"DataLoader worker {worker} {how}" for worker, how in dead.items())
        named = [int(pid) for found in _PIDS.finditer(text) for pid in re.findall(r"\d+", found.group(1))]
        workers = [worker for pid in named if (worker := engine.worker_of(pid)) is not None and worker >= 0]
        if not workers:
            workers = list(dead) or list(range(self._options.num_workers))
        lines = [f"worker {worker} was {engine.doing_text(worker)}" for worker in workers]
        stacks = [stack for worker in workers if (stack := engine.stack_of(worker))]
        hint = (
            "A worker that is killed mostly ran out of memory; a crash is mostly in a decoder: look at the samples named here."
        )
        return _WorkerFailed("\n".join([f"{text}: {'; '.join(lines)}. {hint}", *stacks]))


def _found(importable: tuple[str, str] | None) -> type[BaseException] | None:
    """An exception's type by its name."""
    if importable is None:
        return None
    module, name = importable
    try:
        found: Any = sys.modules.get(module) or import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError):
        return None
    return found if isinstance(found, type) and issubclass(found, BaseException) else None


class _KeyErrorText(str):
    """KeyError shows the repr of its argument, which would make a traceback one long line."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _built(kind: type[BaseException], msg: str, failure: Failure) -> BaseException:
    """An exception of the type that was raised; RuntimeError where its type cannot be made from a text alone."""
    try:
        if failure.facts:
            facts = {name: value for name, value in failure.facts.items() if name != "message" and value is not None}
            return kind(msg, **facts)
        return kind(_KeyErrorText(msg) if kind is KeyError else msg)
    except Exception:  # noqa: BLE001 - a type that wants other arguments: its name and words are in the message
        return RuntimeError(msg)


class _Watchman:
    """A thread that says which sample a worker hangs at, once for each wait."""

    def __init__(self, epoch: EpochIterator) -> None:
        self._epoch = weakref.ref(epoch)
        self._seconds = epoch._engine.hang_seconds  # noqa: SLF001 - two halves of one thing
        self._since: float | None = None
        self._told = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fastfeed-watch", daemon=True)
        self._thread.start()

    def waiting(self) -> None:
        """The main process begins to wait."""
        self._since, self._told = time.monotonic(), False

    def arrived(self) -> None:
        """A batch came."""
        self._since = None

    def stop(self) -> None:
        """No more."""
        self._stop.set()

    def _run(self) -> None:
        pause = min(1.0, self._seconds / 4)
        while not self._stop.wait(pause):
            epoch, since = self._epoch(), self._since
            if epoch is None:
                return
            if since is not None and not self._told and time.monotonic() - since > self._seconds + pause:
                self._told = True
                self._tell(epoch, time.monotonic() - since)

    @staticmethod
    def _tell(epoch: EpochIterator, seconds: float) -> None:
        engine = epoch._engine  # noqa: SLF001 - two halves of one thing
        for worker in range(epoch._options.num_workers):  # noqa: SLF001
            stack = engine.stack_of(worker)
            if stack:
                LOG.warning("no batch for %.0f s: worker %d is %s\n%s", seconds, worker, engine.doing_text(worker), stack)
