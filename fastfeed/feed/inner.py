"""torch's loader as the loader of ours uses it inside: the one that starts workers and moves batches."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader as TorchDataLoader

from fastfeed.environment import workers_begin
from fastfeed.feed.threads import WorkerThreads

HAS_IN_ORDER = "in_order" in inspect.signature(TorchDataLoader.__init__).parameters
"""From torch 2.7 on."""
_USUAL_AHEAD = 2


class InnerLoader(TorchDataLoader[Any]):
    """torch's loader; the outer one has warned about too many workers already."""

    def check_worker_number_rationality(self) -> None:
        """Once is enough."""

    def __iter__(self) -> Any:  # noqa: ANN401 - torch's iterator
        with workers_begin():
            return super().__iter__()


def has_arrived(batches: Any) -> bool:  # noqa: ANN401 - torch's iterator
    """Whether workers have sent something that was not received yet. Without workers nothing ever has.

    The queue that torch receives from (_data_queue, a private name of torch) is looked at, in 5 us.
    """
    queue = getattr(batches, "_data_queue", None)  # a contract that tests/feed/test_inner.py proves
    return queue is not None and not queue.empty()


def in_order_option(*, in_order: bool) -> dict[str, Any]:
    """The argument in_order, where this torch has it."""
    return {"in_order": in_order} if HAS_IN_ORDER else {}


def ask_before_sharing(allowed: Callable[[int], bool]) -> None:
    """Make torch's collate function ask before it takes shared memory in this process, a worker.

    default_collate writes straight into new shared memory there (UntypedStorage._new_shared, a private name of torch), and
    fails where that is full. From now on it gets memory of the process's own where the answer is no, or where it fails.

    Args:
        allowed: Whether so many bytes may be taken.
    """
    original: Any = torch.UntypedStorage._new_shared  # noqa: SLF001 - a contract that tests/feed/test_inner.py proves

    def new_shared(cls: type[torch.UntypedStorage], size: int, *, device: Any = "cpu") -> Any:  # noqa: ANN401
        if torch.device(device).type != "cpu":
            return original(size, device=device)
        if not allowed(size):
            return cls(size)
        try:
            return original(size, device=device)
        except (RuntimeError, OSError):  # others were quicker: the batch goes another way
            return cls(size)

    torch.UntypedStorage._new_shared = classmethod(new_shared)  # type: ignore[method-assign, assignment]  # noqa: SLF001


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
    """The inner loader waits for its turn with each batch; otherwise it takes them as they come."""
    sorts: bool = True
    """Batches are handed out in the sampler's order, however they come."""
    pin_memory_device: str = ""
    hang_seconds: float = 0.0
    """After how long without a batch a worker's stack is reported; 0 for never."""
    threads: WorkerThreads | None = None
    """Limits the threads of libraries in workers."""

    @property
    def ahead_each(self) -> int:
        """Batches that a worker makes ahead."""
        return self.prefetch_factor or _USUAL_AHEAD

    @property
    def in_flight(self) -> int:
        """Batches that workers have been given and that were not received."""
        return self.num_workers * self.ahead_each
