"""torch's loader as the loader of ours uses it inside: the one that starts workers and moves batches."""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import DataLoader as TorchDataLoader

from fastfeed.environment import workers_begin

HAS_IN_ORDER = "in_order" in inspect.signature(TorchDataLoader.__init__).parameters
"""From torch 2.7 on."""


class InnerLoader(TorchDataLoader[Any]):
    """torch's loader; the outer one has warned about too many workers already."""

    def check_worker_number_rationality(self) -> None:
        """Once is enough."""

    def __iter__(self) -> Any:  # noqa: ANN401 - torch's iterator
        with workers_begin():
            return super().__iter__()


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
