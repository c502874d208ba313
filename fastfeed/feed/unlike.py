"""Samples of which torch makes no batch: which part of them it is, what it is in which sample, and what can be done."""

import traceback
from collections.abc import Callable, Mapping, Sequence
from numbers import Number
from typing import Any

import numpy as np
import torch
from torch.utils.data import default_collate

from fastfeed.units import format_count

Name = Callable[[int], str]
"""What the sample at a position of the batch is called."""
_SHOWN = 3
_TO_TENSORS = (
    "Have the transform make tensors of one size: torchvision's Compose([Resize((224, 224)), ToTensor()]), or "
    "RandomResizedCrop(224) in place of Resize"
)
_ONE_SIZE = (
    "Have the transform make images of one size: Resize((224, 224)) or RandomResizedCrop(224) before ToTensor() "
    "(Resize(224) sets the shorter side alone); or pass a collate_fn that pads them"
)
_PAD = "Cut or pad them to one size in the dataset or its transform, or pass a collate_fn that pads"
_OTHERWISE = "Have the dataset give tensors, arrays, numbers or texts that are alike in each sample, or pass a collate_fn"
_IMAGE_AXES = (2, 3)


def tell_unlike(error: Exception, samples: Any, name: Name) -> None:  # noqa: ANN401 - what samples are
    """Note on an exception why no batch could be made, if torch's default_collate was given these samples and refused them.

    Args:
        error: What a collate function raised.
        samples: That it was given.
        name: Of each.
    """
    if not isinstance(samples, list) or not _came_from_torch(error, samples):
        return
    try:
        error.add_note(_told(*_refused(samples), name))
    except Exception as other:  # noqa: BLE001 - of a sample's own type; the fault that it tells of must not be lost
        error.add_note(f"which of these samples are not alike cannot be told: {type(other).__name__}: {other}")


def _came_from_torch(error: Exception, samples: list[Any]) -> bool:
    """Whether default_collate was called with these very samples: a function of the user's may have made others of them."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__) if frame.f_code is default_collate.__code__)
    return any(value is samples for frame in frames for value in frame.f_locals.values())


def _refused(parts: Sequence[Any], path: str = "") -> tuple[Sequence[Any], str]:
    """The innermost part of samples that cannot be collated, and where it is in them."""
    for key, inner in _children(parts):
        if _is_refused(inner):
            return _refused(inner, f"{path}[{key!r}]")
    return parts, path


def _children(parts: Sequence[Any]) -> list[tuple[Any, list[Any]]]:
    """What samples hold at each key or position; nothing where they do not hold the same."""
    first = parts[0]
    if isinstance(first, Mapping):
        alike = all(isinstance(part, Mapping) and part.keys() == first.keys() for part in parts)
        keys: Any = list(first)
    else:
        alike = isinstance(first, list | tuple) and all(type(part) is type(first) and len(part) == len(first) for part in parts)
        keys = range(len(first)) if alike else ()
    return [(key, [part[key] for part in parts]) for key in keys] if alike else []


def _is_refused(parts: list[Any]) -> bool:
    try:
        default_collate(parts)
    except Exception:  # noqa: BLE001 - torch's, or of a type with a way of its own
        return True
    return False


def _told(parts: Sequence[Any], path: str, name: Name) -> str:
    kinds: dict[str, list[int]] = {}
    for position, part in enumerate(parts):
        kinds.setdefault(_kind(part), []).append(position)
    shown = [f"{kind} in {_whose(positions, name)}" for kind, positions in list(kinds.items())[:_SHOWN]]
    more = len(kinds) - len(shown)
    others = f"; and {format_count(more, 'further one')}" if more else ""
    what = f"their part {path} is" if path else "each is"
    return f"torch makes no batch of these samples: {what} {'; '.join(shown)}{others}. {_advice(parts, len(kinds))}."


def _whose(positions: list[int], name: Name) -> str:
    others = len(positions) - 1
    return name(positions[0]) + (f" and {format_count(others, 'other')}" if others else "")


def _kind(part: Any) -> str:  # noqa: ANN401 - any part of a sample
    """What default_collate sees of it."""
    if _is_image(part):
        return "a PIL image"
    if isinstance(part, torch.Tensor):
        return "a nested tensor" if part.is_nested else f"a tensor of shape {tuple(part.shape)}"
    if isinstance(part, np.ndarray):
        objects = f" and dtype {part.dtype}" if part.dtype.kind in "OSU" else ""
        return f"an array of shape {part.shape}{objects}"
    if isinstance(part, Mapping):
        return f"a {type(part).__name__} with the keys {', '.join(map(repr, part))}"
    if isinstance(part, list | tuple):
        return f"a {type(part).__name__} of {len(part)}"
    return "None" if part is None else "a number" if isinstance(part, Number) else f"a {type(part).__name__}"


def _is_image(part: Any) -> bool:  # noqa: ANN401
    """Whether it is Pillow's; which is not imported for this."""
    return any(kind.__module__ == "PIL.Image" for kind in type(part).__mro__)


def _advice(parts: Sequence[Any], kinds: int) -> str:
    if any(map(_is_image, parts)):
        return _TO_TENSORS
    if kinds == 1 or not all(isinstance(part, torch.Tensor | np.ndarray) for part in parts):
        return _OTHERWISE
    return _ONE_SIZE if all(part.ndim in _IMAGE_AXES for part in parts) else _PAD
