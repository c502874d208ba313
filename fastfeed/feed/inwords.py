"""A loader, and a dataset, in one line: for repr. What is known already is looked at; no data is read for it."""

import os
from typing import Any

from torch.utils.data import BatchSampler, IterableDataset, RandomSampler, SequentialSampler, Subset

from fastfeed.feed.decode.whole import Tells
from fastfeed.feed.drawing import EveryRank
from fastfeed.feed.kept import KeptSampler
from fastfeed.feed.order import OrderSampler
from fastfeed.units import format_count


def dataset_text(dataset: Any) -> str:  # noqa: ANN401 - any dataset
    """A dataset of ours as its own repr has it; another one by its type, its folder and how many samples it has.

    Args:
        dataset: Any; of one that is not ours, no property is asked for.
    """
    if isinstance(dataset, Tells):
        return repr(dataset)
    if type(dataset) is Subset:
        return f"{len(dataset.indices):,} of {dataset_text(dataset.dataset)}"
    own = getattr(dataset, "__dict__", {})
    paths = (own.get(name) for name in ("root", "path"))
    # In an address of the web there may be a password.
    path = next((os.fspath(path) for path in paths if isinstance(path, str | os.PathLike) and "://" not in str(path)), None)
    about = [*([] if path is None else [repr(path)]), *_size(dataset)]
    return f"{type(dataset).__name__}({': '.join(about)})"


def _size(dataset: Any) -> list[str]:  # noqa: ANN401
    if isinstance(dataset, IterableDataset):
        return ["a stream"]
    try:
        return [format_count(len(dataset), "sample")]
    except Exception:  # noqa: BLE001 - of any dataset; a repr raises nothing
        return []


def loader_text(loader: Any) -> str:  # noqa: ANN401 - a DataLoader of ours, which is above this
    """A loader: what it reads, in which batches and order, with how many workers, and where batches come."""
    if "batch_sampler" not in vars(loader):  # its constructor has not ended: an error's traceback may show it
        return object.__repr__(loader)
    parts = [dataset_text(loader.dataset), *_batches(loader)]
    parts.append(f"num_workers={loader.num_workers}" + (" (decided)" if loader.autotune and not loader.disabled else ""))
    if loader.device is not None:
        parts.append(f"device={str(loader.device)!r}")
    if loader.disabled:
        parts.append("plain torch (FASTFEED_DISABLE)")
    return f"{type(loader).__name__}({', '.join(parts)})"


def _batches(loader: Any) -> list[str]:  # noqa: ANN401
    """Size and order of batches, as arguments of the loader."""
    batches = loader.batch_sampler
    if batches is not None and type(batches) is not BatchSampler:
        return [f"batch_sampler={type(batches).__name__}"]
    size = f"batch_size={loader.batch_size}"
    return [size] if isinstance(loader.dataset, IterableDataset) else [size, _order(loader.sampler)]


def _order(sampler: Any) -> str:  # noqa: ANN401 - any sampler
    if isinstance(sampler, EveryRank):
        return _order(sampler.sampler)
    if isinstance(sampler, OrderSampler | KeptSampler):
        return f"shuffle={sampler.shuffle}"
    if type(sampler) in {RandomSampler, SequentialSampler}:
        return f"shuffle={type(sampler) is RandomSampler}"
    return f"sampler={type(sampler).__name__}"
