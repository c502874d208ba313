"""Accelerate puts a plain loader in the place of any loader that it prepares: noticed where it is about to.

What survives: the dataset with all that it does itself, sampler or batch sampler (so an order of seed=, and its set_epoch),
and torch's arguments as they were decided: collate_fn, num_workers, prefetch_factor, pin_memory, persistent_workers, timeout,
worker_init_fn, multiprocessing_context, generator, in_order. What does not is what the loader does between the two.
"""

import inspect
import sys
import warnings
from types import FrameType

from torch.utils.data import DataLoader as TorchDataLoader

from fastfeed.errors import FastfeedWarning, UsageError
from fastfeed.feed.order import FeedSampler
from fastfeed.feed.ranks import unsharded_ranks

_PACKAGE = "accelerate"
_INSTEAD = "Use fastfeed.accelerate.prepare(accelerator, ...) in the place of accelerator.prepare(...)"


def asking() -> FrameType | None:
    """The frame that has called the function, or asked for the property, which calls this."""
    frame = inspect.currentframe()
    try:
        own = None if frame is None else frame.f_back
        return None if own is None else own.f_back
    finally:
        own = frame = None  # a frame that knows itself would stay, with all that its callers hold, until it is collected


def notice_swap(sampler: object, asks: FrameType | None) -> None:
    """Tell what becomes of a loader that Accelerate asks whether it is prepared already.

    Accelerate asks that in one place, and a loader that says no is replaced there. Whoever else asks (a debugger, copying
    code) is told nothing.

    Args:
        sampler: The loader's, if it is an order of ours.
        asks: The frame that asks.

    Raises:
        UsageError: Several ranks, and each has its part already: Accelerate would give it a part of its part.
    """
    if not _is_accelerate(asks):
        return
    ranks = sampler.num_replicas if isinstance(sampler, FeedSampler) and unsharded_ranks() > 1 else 1
    if ranks > 1:
        msg = (
            f"this loader gives each of {ranks} ranks its part (distributed=), and accelerator.prepare() would give each a "
            f"part of its part: most samples would never be read"
        )
        raise UsageError(msg, hint=f"{_INSTEAD}, or leave distributed out.")
    made = getattr(sys.modules.get(f"{_PACKAGE}.data_loader"), "DataLoader", TorchDataLoader)
    if made is TorchDataLoader:
        text = (
            "accelerator.prepare() puts a plain torch DataLoader in the place of this fastfeed.DataLoader. Dataset, sampler, "
            "collate_fn, num_workers and torch's other arguments stay, as they were decided; names of failing samples, "
            "on_error, with_index, state_dict and the random numbers of sample mode do not. "
            f"{_INSTEAD}."
        )
        warnings.warn(text, FastfeedWarning, stacklevel=2 + _depth(asks))


def _is_accelerate(frame: FrameType | None) -> bool:
    return frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == _PACKAGE


def _depth(frame: FrameType | None) -> int:
    """How many frames lie between the caller's and the user's: this one and Accelerate's."""
    count = 1
    while _is_accelerate(frame):
        count += 1
        assert frame is not None
        frame = frame.f_back
    return count
