"""The workers' side of IterableDatasets: torch's own fetching, but what it would hang at, or take for the end, is told.

Samples of a stream have no index, so a fault is named by the worker and the number of the sample in that worker's stream.
"""

import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import xxhash
from torch.utils.data import IterableDataset, get_worker_info

from fastfeed.feed.fetch import importable
from fastfeed.feed.passage import Passage
from fastfeed.feed.pickling import unpicklable
from fastfeed.feed.threads import WorkerThreads
from fastfeed.feed.timing import size_of
from fastfeed.feed.unlike import tell_unlike
from fastfeed.feed.workers import DONE, Whereabouts, end_with, leave_stack, leave_to_parent

FIRST_SAMPLES = 3
"""So many first samples tell whether two workers read the same."""
_UNKNOWN = 0


class Beginnings:
    """A table in shared memory: a digest of each worker's first samples.

    Args:
        workers: How many.
    """

    def __init__(self, workers: int) -> None:
        self._table = torch.full((workers,), _UNKNOWN, dtype=torch.int64)
        self._table.share_memory_()  # type: ignore[no-untyped-call]

    def tell(self, worker: int, digest: int) -> None:
        """What a worker's stream begins with."""
        self._table[worker] = digest

    def same(self) -> list[int]:
        """Workers whose streams begin with the same samples as another's before them."""
        found = self._table.tolist()
        return [worker for worker, digest in enumerate(found) if digest != _UNKNOWN and digest in found[:worker]]

    @property
    def complete(self) -> bool:
        """Whether every worker has told."""
        return bool((self._table != _UNKNOWN).all())


class Progress:
    """How far a worker is in its stream, for the main process, which names it when it hangs or dies.

    Args:
        whereabouts: Where to write it down; None where nobody looks.
        beginnings: Where to tell what the stream begins with.
    """

    def __init__(self, whereabouts: Whereabouts | None, beginnings: Beginnings | None) -> None:
        self.whereabouts, self.beginnings = whereabouts, beginnings
        self.worker = -1
        """Set in the worker."""
        self._batch, self._between = 0, True

    def sample(self, number: int) -> None:
        """The worker turns to a sample."""
        if self.whereabouts is None or self.worker < 0:
            return
        if self._between:
            self.whereabouts.begin(self.worker, self._batch)
            self._batch, self._between = self._batch + 1, False
        self.whereabouts.at(self.worker, number)

    def batch(self) -> None:
        """A batch is done."""
        self._between = True
        if self.whereabouts is not None and self.worker >= 0:
            self.whereabouts.at(self.worker, DONE)


class Stream(IterableDataset[Any]):
    """A user's IterableDataset.

    Args:
        dataset: It.
        progress: Hears how far it is.
    """

    def __init__(self, dataset: IterableDataset[Any], progress: Progress | None = None) -> None:
        self.dataset, self.progress = dataset, progress or Progress(None, None)

    def __iter__(self) -> Iterator[Any]:
        return _Samples(iter(self.dataset), self.progress)

    def __len__(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]

    def __str__(self) -> str:
        return str(self.dataset)  # torch's warning about a wrong length names it


class _Samples:
    """One worker's samples, counted."""

    def __init__(self, samples: Iterator[Any], progress: Progress) -> None:
        self._samples, self._progress, self._number = samples, progress, 0
        self._digest: xxhash.xxh3_64 | None = None
        if progress.beginnings is not None and progress.worker >= 0:
            self._digest = xxhash.xxh3_64()

    def __iter__(self) -> "_Samples":
        return self

    def __next__(self) -> Any:  # noqa: ANN401 - what samples are
        self._progress.sample(self._number)
        try:
            sample = next(self._samples)
        except StopIteration:
            self._progress.batch()
            raise
        except Exception as error:  # whatever user code raises: it goes on, and says where it was
            _tell(error, f"sample {self._number} of the stream")
            raise
        self._number += 1
        if self._digest is not None:
            self._digest = self._begun(sample, self._digest)
        return sample

    def _begun(self, sample: Any, digest: xxhash.xxh3_64) -> xxhash.xxh3_64 | None:  # noqa: ANN401
        """The digest with one of the first samples; None where that was the last one, or none can be had."""
        try:
            plain = feed(digest, sample)
        except RecursionError:
            plain = False  # a list in itself, or one too deep
        if not plain:
            return None
        if self._number < FIRST_SAMPLES:
            return digest
        assert self._progress.beginnings is not None
        self._progress.beginnings.tell(self._progress.worker, digest.intdigest() >> 1 or 1)
        return None


def feed(digest: xxhash.xxh3_64, data: Any) -> bool:  # noqa: ANN401 - any sample
    """Digest plain data, tensors and arrays; False where there is anything else, of which nobody knows whether it is equal."""
    if isinstance(data, dict):
        return feed(digest, list(data.items()))
    if isinstance(data, list | tuple):
        digest.update(b"%d[" % len(data))
        return all(feed(digest, part) for part in data)
    if isinstance(data, torch.Tensor):
        data = _array(data)
    if isinstance(data, np.ndarray | np.generic):
        if data.dtype.hasobject:
            return False
        digest.update(f"{data.dtype}{data.shape}".encode())
        digest.update(np.ascontiguousarray(data).tobytes())
        return True
    if not isinstance(data, str | bytes | int | float):
        return False
    digest.update(data if isinstance(data, bytes) else f"{type(data).__name__}{data!r}".encode("utf-8", "backslashreplace"))
    return True


def _array(tensor: torch.Tensor) -> np.ndarray[Any, Any] | None:
    try:
        return tensor.detach().cpu().numpy()
    except (TypeError, RuntimeError):
        return None  # sparse, bfloat16, quantized: numpy has no such thing


class Transformed:
    """A collate function with what is done to its batches.

    Args:
        collate: It.
        transform: That.
    """

    def __init__(self, collate: Callable[[Any], Any], transform: Callable[[Any], Any]) -> None:
        self.collate, self.transform = collate, transform

    def __call__(self, samples: Any) -> Any:  # noqa: ANN401 - what samples are
        """The transformed batch."""
        return self.transform(self.collate(samples))


class StreamCollate:
    """The user's collate function, whose faults reach the main process.

    Args:
        collate: It.
        progress: Hears that a batch is done.
        passage: How batches go from workers to the main process; None without workers.
    """

    def __init__(self, collate: Callable[[Any], Any], progress: Progress | None = None, passage: Passage | None = None) -> None:
        self.collate, self.progress, self.passage = collate, progress or Progress(None, None), passage

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
        except Exception as error:  # the same
            tell_unlike(error, samples, "sample {} of the batch".format)
            _tell(error, "collate of a batch of the stream")
            raise
        wrong = None if get_worker_info() is None else unpicklable(batch)
        if wrong is not None:
            msg = f"{wrong}; a worker process cannot send it to the main process"
            raise TypeError(msg)
        self.progress.batch()
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
        stack_paths: A file for each worker, where it leaves its stack when it is asked; none for no such thing.
        passage: How batches go to the main process.
    """

    def __init__(self, user: Callable[[int], Any] | None, stack_paths: list[str], passage: Passage | None = None) -> None:
        self.user, self.stack_paths, self.passage = user, stack_paths, passage
        self.owner = os.getpid()

    def __call__(self, worker: int) -> None:
        """Then call it."""
        end_with(self.owner)
        leave_to_parent()
        if self.passage is not None:
            self.passage.begun()
        WorkerThreads(1, exact=True)()
        info = get_worker_info()
        if info is not None and isinstance(info.dataset, Stream):
            progress = info.dataset.progress
            progress.worker = worker
            listens = bool(self.stack_paths) and leave_stack(self.stack_paths[worker], worker)
            if progress.whereabouts is not None:
                progress.whereabouts.begun(worker, listens=listens)
            object.__setattr__(info, "dataset", info.dataset.dataset)  # frozen for users; the wrapper is ours
        if self.user is not None:
            self.user(worker)
