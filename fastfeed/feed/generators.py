"""Random generators that a dataset keeps for itself: each worker gets a copy, and all copies give the same numbers."""

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

_DEPTH = 4
_MANY = 64
"""Of a list or dict, so many entries are looked at."""
_KINDS = (np.random.Generator, np.random.RandomState, random.Random, torch.Generator)


def stored_generators(dataset: Any) -> list[str]:  # noqa: ANN401 - any dataset
    """Where a dataset (its transforms, collate functions, inner datasets included) keeps generators of its own.

    Returns:
        Paths such as "transform.transforms[0].rng", with the kind of each.
    """
    return sorted(set(_found(dataset, "", _DEPTH, set())))


def _found(value: Any, path: str, depth: int, seen: set[int]) -> Iterator[str]:  # noqa: ANN401
    if id(value) in seen or isinstance(value, torch.Tensor | np.ndarray | str | bytes | int | float):
        return
    seen.add(id(value))
    if isinstance(value, _KINDS):
        yield f"{path or 'the dataset itself'} ({type(value).__module__}.{type(value).__qualname__})"
        return
    if depth == 0:
        return
    if isinstance(value, dict):
        for key, part in list(value.items())[:_MANY]:
            yield from _found(part, f"{path}[{key!r}]", depth - 1, seen)
    elif isinstance(value, list | tuple):
        for at, part in enumerate(value[:_MANY]):
            yield from _found(part, f"{path}[{at}]", depth - 1, seen)
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        for name, part in list(vars(value).items())[:_MANY]:
            yield from _found(part, f"{path}.{name}" if path else name, depth - 1, seen)
