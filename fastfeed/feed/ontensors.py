"""A batch walked through, as torch's pin_memory does it: its tensors are exchanged, everything else stays."""

import copy
import dataclasses
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from operator import is_
from typing import Any

import torch

from fastfeed.feed.pickling import PLAIN

Exchange = Callable[[Any], Any]
"""From a tensor, or an object that moves itself, to what stands in its place."""
_SEVERAL = 8
"""In a longer list, it is looked first whether there is nothing but numbers and texts."""


def moves_itself(data: Any) -> bool:  # noqa: ANN401 - any part of a batch
    """Whether it is an object with a method to(), such as a PackedSequence or a graph, which knows best what of it moves."""
    return callable(getattr(type(data), "to", None)) and not isinstance(data, Mapping)


def exchanged(data: Any, exchange: Exchange) -> Any:  # noqa: ANN401 - any batch
    """A batch whose tensors, and objects that move themselves, are exchanged.

    Dicts, other mappings, lists, tuples, named tuples, other sequences and dataclasses are made anew, of the same class as far
    as that can be made; anything else (arrays, texts, numbers) is the same object.

    Args:
        data: The batch.
        exchange: Called with each of them.
    """
    kind = type(data)
    if kind in PLAIN:
        return data
    if isinstance(data, torch.Tensor) or moves_itself(data):
        return exchange(data)
    if isinstance(data, Mapping):
        return _mapping(data, exchange)
    if isinstance(data, Sequence):
        return _sequence(data, exchange)
    if dataclasses.is_dataclass(data) and not isinstance(data, type):
        return _fields(data, exchange)
    return data


def _mapping(data: Mapping[Any, Any], exchange: Exchange) -> Any:  # noqa: ANN401
    kind: Any = type(data)
    parts = {name: exchanged(part, exchange) for name, part in data.items()}
    if kind is dict:
        return parts
    try:
        if not isinstance(data, MutableMapping):
            return kind(parts)
        found = copy.copy(data)  # it may have more than its items
        found.update(parts)
    except TypeError:  # it cannot be made so
        return parts
    return found


def _sequence(data: Sequence[Any], exchange: Exchange) -> Any:  # noqa: ANN401
    kind: Any = type(data)
    if len(data) > _SEVERAL and set(map(type, data)) <= PLAIN:
        return data
    own = list(data)
    parts = [exchanged(part, exchange) for part in own]
    if kind is list:
        return parts
    if all(map(is_, own, parts)):
        return data  # nothing to exchange: texts of numpy's and of enums, and views of bytes, are sequences too
    return _made_of(data, kind, parts)


def _made_of(data: Sequence[Any], kind: Any, parts: list[Any]) -> Any:  # noqa: ANN401
    """A sequence like another one."""
    try:
        if isinstance(data, tuple) and hasattr(data, "_fields"):
            return kind(*parts)
        if not isinstance(data, MutableSequence):
            return kind(parts)
        found = copy.copy(data)
        for position, part in enumerate(parts):
            found[position] = part
    except TypeError:
        return tuple(parts) if isinstance(data, tuple) else parts
    return found


def _fields(data: Any, exchange: Exchange) -> Any:  # noqa: ANN401 - an instance of a dataclass
    found = copy.copy(data)
    for field in dataclasses.fields(data):
        if hasattr(data, field.name):
            object.__setattr__(found, field.name, exchanged(getattr(data, field.name), exchange))  # it may be frozen
    return found
