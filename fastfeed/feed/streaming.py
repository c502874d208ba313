"""The main process's side of IterableDatasets: torch's own loader, whose workers have names when they hang or die."""

import time
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader as TorchDataLoader

from fastfeed.errors import warn
from fastfeed.feed.crew import DYING_SECONDS, Crew, WorkerLost, about_workers, name_deaths
from fastfeed.feed.inner import InnerLoader, has_arrived, in_order_option
from fastfeed.feed.lastaxis import channels_last
from fastfeed.feed.passage import Passage
from fastfeed.feed.streams import FIRST_SAMPLES, Beginnings, Progress, Stream, StreamCollate, StreamInit, Transformed
from fastfeed.feed.tasks import TaskOrder
from fastfeed.feed.timing import Answer
from fastfeed.feed.watchman import Watchman
from fastfeed.feed.workers import NOT_BEGUN, Workers

if TYPE_CHECKING:
    from fastfeed.feed.collecting import Collector
    from fastfeed.feed.conveyor import Conveyor


class StreamCrew(Crew):
    """What is said about workers of a stream.

    Args:
        workers: The workers; None where there are none.
        dataset: The user's.
        context: As Crew's.
    """

    def __init__(self, workers: Workers | None, dataset: Any, context: Any = None) -> None:  # noqa: ANN401 - any dataset
        super().__init__(workers, TaskOrder((), batched=False), dataset, context)

    def doing(self, worker: int) -> str:
        """Which sample of its stream a worker is at."""
        assert self.workers is not None
        batch, position = self.workers.at(worker)
        if batch == NOT_BEGUN:
            return "before its first sample"
        return f"after its batch {batch}" if position < 0 else f"at sample {position} of its stream, its batch {batch}"


class Streaming:
    """Reads the IterableDataset of a loader as torch would.

    Args:
        loader: The loader, for its options.
        hang_seconds: After how long without a batch a worker's stack is logged; 0 never does.
        passage: How batches go from workers to the main process; None without workers.
    """

    def __init__(self, loader: TorchDataLoader[Any], hang_seconds: float = 0.0, passage: Passage | None = None) -> None:
        count = loader.num_workers
        self.workers = Workers(count, stacks=hang_seconds > 0 or loader.timeout > 0) if count else None
        self.beginnings = Beginnings(count) if count > 1 else None
        self.hang_seconds = hang_seconds
        self.crew = StreamCrew(self.workers, loader.dataset, loader.multiprocessing_context)
        progress = Progress(None if self.workers is None else self.workers.whereabouts, self.beginnings)
        init = None if self.workers is None else StreamInit(loader.worker_init_fn, self.workers.stack_paths, passage)
        transform = getattr(loader, "batch_transform", None)  # torch's own has none
        collate = loader.collate_fn
        if getattr(loader, "channels_last", False):
            collate = Transformed(collate, channels_last)
        if transform is not None:
            collate = Transformed(collate, transform)
        self.loader = InnerLoader(
            Stream(loader.dataset, progress),  # type: ignore[arg-type]  # only for these is it called
            batch_size=loader.batch_size, drop_last=loader.drop_last,
            collate_fn=StreamCollate(collate, progress, passage), num_workers=count,
            prefetch_factor=loader.prefetch_factor, pin_memory=loader.pin_memory,
            pin_memory_device=loader.pin_memory_device, timeout=loader.timeout, generator=loader.generator,
            worker_init_fn=init, multiprocessing_context=loader.multiprocessing_context if count else None,
            persistent_workers=loader.persistent_workers,
            **in_order_option(in_order=getattr(loader, "in_order", True)),
        )  # fmt: skip
        self._told = self.beginnings is None

    def __iter__(self) -> "StreamPass":
        turns = None if self.workers is None else Turns(self.workers)
        found = StreamPass(self, iter(self.loader), turns)
        if self.workers is not None:
            name_deaths()
        return found

    def __len__(self) -> int:
        return len(self.loader)

    def tell_of_repetition(self) -> None:
        """Warn once where workers read the same, which is what a stream does that knows of no workers."""
        if self._told or self.beginnings is None:
            return
        same = self.beginnings.same()
        self._told = bool(same) or self.beginnings.complete
        if same:
            warn(
                f"the streams of {len(same) + 1} workers begin with the same {FIRST_SAMPLES} samples: where __iter__ does not "
                "take its part by torch.utils.data.get_worker_info(), each worker reads everything, and each sample comes "
                f"once for each of the {self.loader.num_workers} workers. num_workers=0 reads it once."
            )


class Turns:
    """Whether the batch that comes next in a pass is made: torch takes one of each worker, until the stream of one ends.

    Args:
        workers: As they are before the pass begins.
    """

    def __init__(self, workers: Workers) -> None:
        self._workers, self._begun_ns, self._taken = workers, time.monotonic_ns(), 0
        self._first = [workers.at(worker)[0] + 1 for worker in range(workers.count)]  # they go on counting

    def took(self) -> None:
        """It was taken, and another one comes next."""
        self._taken += 1

    def has_made(self) -> bool:
        """Whether its worker is done with it, by the table in which workers say what they are at."""
        behind, worker = divmod(self._taken, self._workers.count)
        return self._workers.has_made(self._first[worker] + behind, worker, self._begun_ns)


class StreamPass:
    """One pass over a stream: what ``iter(loader)`` gives.

    Args:
        streaming: Whose.
        inner: torch's iterator.
        turns: Whose turn it is among workers; None without.
    """

    def __init__(self, streaming: Streaming, inner: Iterator[Any], turns: Turns | None) -> None:
        self._streaming, self._inner, self._turns = streaming, inner, turns
        self._broken: str | None = None
        self.collector: Collector | None = None
        """Hears of each batch."""
        self.conveyor: Conveyor | None = None
        """Moves batches onto a device; None where they stay."""
        self._given: float | None = None
        """When the batch before was handed out."""
        seconds = streaming.hang_seconds
        watched = streaming.workers is not None and seconds > 0
        self._watch = Watchman(partial(streaming.crew.hanging, seconds), seconds) if watched else None

    def __iter__(self) -> "StreamPass":
        return self

    def __len__(self) -> int:
        return len(self._streaming)

    def __next__(self) -> Any:  # noqa: ANN401 - a batch
        """The next batch.

        Raises:
            RuntimeError: A worker died or took longer than timeout; the message names the sample of its stream.
        """
        if self._broken is not None:
            raise RuntimeError(self._broken)
        asked = time.monotonic()
        if self._watch is not None:
            self._watch.waiting()
        try:
            batch = next(self._inner) if self.conveyor is None else self.conveyor.next(self._take, self._arrived).data
        except (RuntimeError, OSError, EOFError) as error:
            lost = self._lost(error)
            if lost is None:
                raise
            raise lost  # noqa: B904 - it has its cause; a name for it would make a circle with this frame
        finally:
            if self._watch is not None:
                self._watch.arrived()
        self._streaming.tell_of_repetition()
        if self.collector is not None:
            step_seconds = 0.0 if self._given is None else asked - self._given
            self.collector.streamed(time.monotonic() - asked, step_seconds, batch)
            self._given = time.monotonic()
        return batch

    def _take(self) -> Answer:
        answer = Answer(0, next(self._inner), [])
        if self._turns is not None:
            self._turns.took()
        return answer

    def _arrived(self, held: int) -> bool:  # noqa: ARG002 - what was taken is counted already
        """Whether the next batch could be taken without waiting, as far as can be told: it may be a moment before it does.

        Where the stream of a worker has ended, torch passes it over (_workers_status, a private name of torch's): then whose
        turn it is is known to torch alone.
        """
        if not getattr(self._streaming.loader, "in_order", True):
            return has_arrived(self._inner)
        going = getattr(self._inner, "_workers_status", ())  # a contract that tests/feed/test_streaming.py proves
        return self._turns is not None and len(going) > 0 and all(going) and self._turns.has_made()

    def _lost(self, error: Exception) -> WorkerLost | None:
        """What an error says about a worker; None where it is about something else."""
        crew = self._streaming.crew
        if crew.workers is None:
            return None
        if not about_workers(error):  # such as a tensor whose worker died while it handed it over
            found = None if str(error).startswith("Caught ") else crew.obituary(DYING_SECONDS)
            if found is None:
                return None
            error = RuntimeError(found)
        lost = crew.lost(error)
        self._broken = str(lost)
        return lost

    def __del__(self) -> None:
        if getattr(self, "_watch", None) is not None:
            self._watch.stop()  # type: ignore[union-attr]
