"""torch's loader as the loader of ours uses it inside: the one that starts workers and moves batches."""

import inspect
from typing import Any

from torch.utils.data import DataLoader as TorchDataLoader

HAS_IN_ORDER = "in_order" in inspect.signature(TorchDataLoader.__init__).parameters
"""From torch 2.7 on."""


class InnerLoader(TorchDataLoader[Any]):
    """torch's loader; the outer one has warned about too many workers already."""

    def check_worker_number_rationality(self) -> None:
        """Once is enough."""


def in_order_option(*, in_order: bool) -> dict[str, Any]:
    """The argument in_order, where this torch has it."""
    return {"in_order": in_order} if HAS_IN_ORDER else {}
