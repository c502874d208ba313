"""What a loader's user is warned of once, when its first pass begins."""

from typing import Any

from torch.utils.data import BatchSampler

from fastfeed.errors import warn
from fastfeed.feed.drawing import drawn_from
from fastfeed.feed.generators import stored_generators
from fastfeed.feed.kept import KeptSampler
from fastfeed.feed.order import OrderSampler
from fastfeed.feed.ranks import Distributed, unsharded_ranks


def tell_of_ranks(distributed: Distributed, sampler: Any, batch_sampler: Any) -> None:  # noqa: ANN401 - the user's
    """That several ranks read the same, where nobody said that they shall.

    Args:
        distributed: What was asked for.
        sampler: Of the loader.
        batch_sampler: Of the loader, or None.
    """
    ranks = unsharded_ranks()
    known = batch_sampler is None or type(batch_sampler) is BatchSampler  # others may give ranks their parts
    drawn = drawn_from(sampler, batch_sampler)
    whole = type(drawn) in {OrderSampler, KeptSampler} or type(drawn).__module__ == "torch.utils.data.sampler"
    if ranks > 1 and distributed is None and known and whole:
        warn(
            f"torch.distributed has {ranks} ranks, and each of them will read every sample: distributed=True gives "
            "each its part, distributed=False says that it is meant."
        )


def tell_of_generators(dataset: Any, *, each_sample: bool) -> None:  # noqa: ANN401 - any dataset
    """That workers would repeat each other's random numbers.

    Args:
        dataset: What workers read; None without workers.
        each_sample: Whether numbers are seeded for each sample.
    """
    found = [] if dataset is None else stored_generators(dataset)
    if found:
        warn(
            f"the dataset keeps random generators of its own ({', '.join(found[:3])}): each worker has a copy that gives "
            "the same numbers, and each epoch begins with the same state. Draw from numpy.random, torch or random "
            "instead: they are seeded for each worker" + (" and each sample." if each_sample else ".")
        )
