"""IterableDatasets: torch's own loader reads them; what it would hang at, or take for the end, is told instead.

Samples of a stream have no index, so a fault is named by the worker and the number of the sample in that worker's stream.
"""

from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import IterableDataset, get_worker_info

from fastfeed.feed.fetch import importable
from fastfeed.feed.inner import InnerLoader, in_order_option
from fastfeed.feed.passage import Passage
from fastfeed.feed.pickling import unpicklable
from fastfeed.feed.threads import WorkerThreads
from fastfeed.feed.timing import size_of


class Stream(IterableDataset[Any]):
    """A user's IterableDataset.

    Args:
        dataset: It.
    """

    def __init__(self, dataset: IterableDataset[Any]) -> None:
        self.dataset = dataset

    def __iter__(self) -> Iterator[Any]:
        return _Samples(iter(self.dataset))

    def __len__(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]

    def __str__(self) -> str:
        return str(self.dataset)  # torch's warning about a wrong length names it


class _Samples:
    """One worker's samples, counted."""

    def __init__(self, samples: Iterator[Any]) -> None:
        self._samples, self._number = samples, 0

    def __iter__(self) -> "_Samples":
        return self

    def __next__(self) -> Any:  # noqa: ANN401 - what samples are
        try:
            sample = next(self._samples)
        except StopIteration:
            raise
        except Exception as error:
            _tell(error, f"sample {self._number} of the stream")
            raise
        self._number += 1
        return sample


class StreamCollate:
    """The user's collate function, whose faults reach the main process.

    Args:
        collate: It.
        passage: How batches go from workers to the main process; None without workers.
    """

    def __init__(self, collate: Callable[[Any], Any], passage: Passage | None = None) -> None:
        self.collate, self.passage = collate, passage

    def __call__(self, samples: Any) -> Any:  # noqa: ANN401 - what samples are
        """A batch that can be sent.

        Raises:
            TypeError: It cannot be pickled.
            RuntimeError: A StopIteration of the user's code, which would end the stream as if all were well.
        """
        try:
            batch = self.collate(samples)
        except StopIteration as error:
            msg = "the collate function raised StopIteration"
            raise RuntimeError(msg) from error
        except Exception as error:
            _tell(error, "collate of a batch of the stream")
            raise
        wrong = None if get_worker_info() is None else unpicklable(batch)
        if wrong is not None:
            msg = f"{wrong}; a worker process cannot send it to the main process"
            raise TypeError(msg)
        if self.passage is not None and get_worker_info() is not None:
            return self.passage.sent(batch, *size_of(batch))
        return batch


def _tell(error: Exception, what: str) -> None:
    """Name what failed; in a worker, torch sends the type by its name, and hangs where that cannot be found.

    Raises:
        RuntimeError: Instead of an exception whose type cannot be found.
    """
    info = get_worker_info()
    error.add_note(what if info is None else f"{what}, worker {info.id}")
    if info is not None and importable(type(error)) is None:
        msg = f"{type(error).__qualname__}: {error}"
        raise RuntimeError(msg) from error


class StreamInit:
    """Shows a worker's user code the dataset that it knows.

    Args:
        user: The user's worker_init_fn.
        passage: How batches go to the main process.
    """

    def __init__(self, user: Callable[[int], Any] | None, passage: Passage | None = None) -> None:
        self.user, self.passage = user, passage

    def __call__(self, worker: int) -> None:
        """Then call it."""
        if self.passage is not None:
            self.passage.begun()
        WorkerThreads(1, exact=True)()
        info = get_worker_info()
        if info is not None and isinstance(info.dataset, Stream):
            object.__setattr__(info, "dataset", info.dataset.dataset)  # frozen for users; the wrapper is ours
        if self.user is not None:
            self.user(worker)


def stream_loader(loader: TorchDataLoader[Any], passage: Passage | None = None) -> TorchDataLoader[Any]:
    """The loader that reads the IterableDataset of another one as that would, but for what is told.

    Args:
        loader: The other one.
        passage: How batches go from workers to the main process; None without workers.
    """
    workers = loader.num_workers
    return InnerLoader(
        Stream(loader.dataset),  # type: ignore[arg-type]  # only for these is it called
        batch_size=loader.batch_size, drop_last=loader.drop_last, collate_fn=StreamCollate(loader.collate_fn, passage),
        num_workers=workers, prefetch_factor=loader.prefetch_factor, pin_memory=loader.pin_memory,
        pin_memory_device=loader.pin_memory_device, timeout=loader.timeout, generator=loader.generator,
        worker_init_fn=StreamInit(loader.worker_init_fn, passage) if workers else None,
        multiprocessing_context=loader.multiprocessing_context if workers else None,
        persistent_workers=loader.persistent_workers,
        **in_order_option(in_order=getattr(loader, "in_order", True)),
    )  # fmt: skip
