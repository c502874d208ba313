"""Which samples of any dataset a skip list names: by their source, then by their key, by position only with the digest."""

import logging
import os
from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import ConcatDataset, Subset

from fastfeed.errors import UsageError
from fastfeed.feed.naming import sample_id
from fastfeed.feed.skipping import Skip, list_of, told
from fastfeed.sample import SkipList, escape, printable

LOG = logging.getLogger("fastfeed.loader")
_Mask = NDArray[np.bool_]


@runtime_checkable
class Named(Protocol):
    """A dataset of ours."""

    def named_by(self, entries: SkipList) -> _Mask:
        """Which samples a skip list names; bool, shape (samples,)."""


def left_out(skip: Skip, dataset: Any) -> NDArray[np.int64]:  # noqa: ANN401 - any dataset
    """Positions of the samples that a skip list names.

    A part of a dataset (Subset, a view) is no reason for a warning: an entry that names a sample of the whole, which is
    in another part, is right.

    Args:
        skip: The list, or the JSONL file that holds it.
        dataset: A dataset of ours; one with `samples` and `root`, as torchvision's folders; one with identity(index); or
            Subset and ConcatDataset of such.

    Returns:
        int64, ascending.

    Raises:
        UsageError: The dataset's samples have no names; or the list cannot be read, or names none of them.
    """
    entries = list_of(skip)
    mask = _named(dataset, entries)
    positions = np.flatnonzero(mask).astype(np.int64)
    path = getattr(dataset, "root", None)
    for line in told(entries, len(positions), path if isinstance(path, str) else None, _first_name(dataset)):
        LOG.info("%s", line)
    return positions


def _named(dataset: Any, entries: SkipList) -> _Mask:  # noqa: ANN401
    """Whether each sample is named; bool, shape (samples,)."""
    if isinstance(dataset, Subset):
        return _named(dataset.dataset, entries)[np.asarray(dataset.indices, dtype=np.int64)]
    if isinstance(dataset, ConcatDataset):
        return np.concatenate([_named(part, entries) for part in dataset.datasets])
    if isinstance(dataset, Named):
        return dataset.named_by(entries)
    if _is_folder(dataset):
        found = [entries.match(source, None) is not None for source in _sources(dataset)]
    elif callable(getattr(dataset, "identity", None)):
        found = [_is_named(dataset, position, entries) for position in range(len(dataset))]
    else:
        msg = f"skip= needs the names of samples, and those of {type(dataset).__qualname__} have none"
        hint = "Give the dataset `samples` and `root` as torchvision's ImageFolder has, or identity(index) -> SampleId."
        raise UsageError(msg, hint=hint)
    return np.array(found, dtype=np.bool_)


def _is_folder(dataset: Any) -> bool:  # noqa: ANN401
    samples, root = getattr(dataset, "samples", None), getattr(dataset, "root", None)
    first = samples[0] if isinstance(samples, list) and samples else None
    return isinstance(root, str | os.PathLike) and isinstance(first, tuple) and isinstance(first[0], str)


def _sources(dataset: Any) -> Iterator[str]:  # noqa: ANN401
    """Paths below the root; os.path.relpath would take ten times as long."""
    root = os.path.join(os.fsdecode(dataset.root), "")
    for sample in dataset.samples:
        path = sample[0]
        yield path[len(root) :] if path.startswith(root) else os.path.relpath(path, root)


def _is_named(dataset: Any, position: int, entries: SkipList) -> bool:  # noqa: ANN401
    name, digest = sample_id(dataset, position), getattr(dataset, "digest", None)
    if name is None:
        msg = f"skip= needs the names of samples, and identity({position}) of {type(dataset).__qualname__} gives none"
        raise UsageError(msg, expected="a fastfeed.sample.SampleId")
    at = (digest, name.position) if isinstance(digest, str) else None
    return entries.match(None if name.source is None else escape(name.source), name.key, at) is not None


def _first_name(dataset: Any) -> str:  # noqa: ANN401
    """What a name looks like here, for a message."""
    while isinstance(dataset, Subset | ConcatDataset):
        dataset = dataset.dataset if isinstance(dataset, Subset) else dataset.datasets[0]
    if not len(dataset):
        return "no sample"
    if _is_folder(dataset):
        return printable(next(_sources(dataset)))
    name = sample_id(dataset, 0)
    return "no sample" if name is None else printable(name.key if name.source is None else escape(name.source))
