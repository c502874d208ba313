"""How samples and batches are called in messages."""

import operator
from collections.abc import Iterable
from itertools import islice
from typing import Any

from torch.utils.data import Subset

from fastfeed.feed.splitting import path_of
from fastfeed.sample import SampleId

_SHOWN = 8


def plain_index(index: Any) -> Any:  # noqa: ANN401 - any index
    """An index as a value that passes any pipe: whole numbers as int, texts and bytes as they are, others as a text."""
    try:
        return operator.index(index)  # numpy's integers, and tensors of one
    except (TypeError, ValueError, RuntimeError):
        return index if isinstance(index, str | bytes) else repr(index)


def sample_id(dataset: Any, index: Any) -> SampleId | None:  # noqa: ANN401 - any dataset and index
    """What a dataset of ours calls a sample, through Subsets of it; None where nobody knows."""
    try:
        while isinstance(dataset, Subset):
            dataset, index = dataset.dataset, dataset.indices[index]
        found = dataset.identity(operator.index(index))
    except Exception:  # noqa: BLE001 - a foreign dataset's attribute of that name may be anything
        return None
    return found if isinstance(found, SampleId) else None


def sample_name(dataset: Any, index: Any) -> str:  # noqa: ANN401 - any dataset and index
    """A sample for a message, with key and source path where its dataset knows them; the file, in torchvision's folders."""
    found = sample_id(dataset, index)
    if found is None:
        path = _path(dataset, index)
        return f"sample {index!r}" if path is None else f"sample {index!r} (path {path!r})"
    source = "" if found.source is None else f", source {found.source.decode(errors='backslashreplace')!r}"
    return f"sample {index!r} (key {found.key!r}{source})"


def _path(dataset: Any, index: Any) -> str | None:  # noqa: ANN401
    try:
        return path_of(dataset, index)
    except Exception:  # noqa: BLE001 - an index that the folder does not know may be what failed
        return None


def indices_text(indices: Any) -> str:  # noqa: ANN401 - any index, or a batch of them
    """Indices for a message: few of them, whatever they are."""
    if isinstance(indices, str | bytes) or not isinstance(indices, Iterable) or getattr(indices, "ndim", 1) == 0:
        return str(plain_index(indices))
    shown = [str(plain_index(index)) for index in islice(indices, _SHOWN + 1)]
    return f"[{', '.join(shown[:_SHOWN])}{', ...' if len(shown) > _SHOWN else ''}]"
