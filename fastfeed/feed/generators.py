"""What a dataset holds; above all random generators: each worker has a copy, and all copies give the same numbers."""

import random
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import torch

_DEPTH = 4
_MANY = 64
"""Of a list or dict, so many entries are looked at."""
_MOST = 4096
"""So many values are looked at."""
_DATA = (torch.Tensor, np.ndarray, str, bytes, int, float, type(None))
"""Consists of nothing that is looked at."""
_KINDS = (np.random.Generator, np.random.RandomState, random.Random, torch.Generator)


def stored_generators(dataset: Any) -> list[str]:  # noqa: ANN401 - any dataset
    """Where a dataset (its transforms, collate functions, inner datasets included) keeps generators of its own.

    Returns:
        Paths such as "transform.transforms[0].rng", with the kind of each.
    """
    found = ((value, path or "the dataset itself") for value, path in within(dataset) if isinstance(value, _KINDS))
    return sorted({f"{path} ({type(value).__module__}.{type(value).__qualname__})" for value, path in found})


def within(dataset: Any) -> Iterator[tuple[Any, str]]:  # noqa: ANN401 - any dataset
    """A dataset and what it holds, each once, with its path: "" for the dataset itself.

    Of what has parts a few thousand are looked at: annotations may be nested, and a first batch must not wait for them.
    """
    seen: set[int] = set()
    waiting = deque([(dataset, "", _DEPTH)])
    while waiting and len(seen) < _MOST:
        value, path, depth = waiting.popleft()
        if id(value) in seen:
            continue
        yield value, path
        if isinstance(value, _DATA):
            continue
        seen.add(id(value))
        if depth and not isinstance(value, _KINDS):
            waiting.extend((part, inner, depth - 1) for part, inner in _parts(value, path))


def _parts(value: Any, path: str) -> Iterator[tuple[Any, str]]:  # noqa: ANN401
    """What a value consists of, each with its path."""
    if isinstance(value, dict):
        for key, part in islice(value.items(), _MANY):
            yield part, f"{path}[{key!r}]"
    elif isinstance(value, list | tuple):
        for at, part in enumerate(value[:_MANY]):
            yield part, f"{path}[{at}]"
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        for name, part in islice(vars(value).items(), _MANY):
            yield part, f"{path}.{name}" if path else name
