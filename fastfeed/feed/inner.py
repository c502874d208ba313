"""torch's loader as the loader of ours uses it inside: the one that starts workers and moves batches."""

import inspect
from dataclasses import dataclass
from typing import Any

from torch.utils.data import DataLoader as TorchDataLoader

HAS_IN_ORDER = "in_order" in inspect.signature(TorchDataLoader.__init__).parameters
"""From torch 2.7 on."""
_USUAL_AHEAD = 2


class InnerLoader(TorchDataLoader[Any]):
    """torch's loader; the outer one has warned about too many workers already."""

    def check_worker_number_rationality(self) -> None:
        """Once is enough."""


def in_order_option(*, in_order: bool) -> dict[str, Any]:
    """The argument in_order, where this torch has it."""
    return {"in_order": in_order} if HAS_IN_ORDER else {}


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

    @property
    def in_flight(self) -> int:
        """Batches that workers have been given and that were not received."""
        return self.num_workers * (self.prefetch_factor or _USUAL_AHEAD)
