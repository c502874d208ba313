"""Reads an image transform: which of its first steps are done while decoding, and why the others are not.

A step is known by its exact class: a subclass, a step with hooks, or one whose methods were replaced is the user's own, and is
called as it is on what it would have got. So is everything after the first step that is not known.

torchvision, timm and albumentations are not imported here: who has a step of theirs has loaded them.
"""

import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from types import FunctionType
from typing import Any

import numpy as np
import torch
from PIL.Image import Resampling, Transpose
from torch import nn

from fastfeed.feed.decode import steps
from fastfeed.feed.decode.draws import Box, Draw, asked, below, drawn_box
from fastfeed.feed.decode.steps import Fused, Step

Own = Callable[[Any], Any]
"""A step of the user's transform."""

_V1, _V2 = "torchvision.transforms.transforms", "torchvision.transforms.v2"
_TIMM = "timm.data.transforms"
_CONTAINERS = frozenset({f"{_V1}.Compose", f"{_V2}._container.Compose", "torch.nn.modules.container.Sequential"})
_PRESET = "torchvision.transforms._presets.ImageClassification"
_TO_TENSOR = frozenset({
    f"{_V1}.ToTensor", f"{_V1}.PILToTensor", f"{_V2}._type_conversion.PILToTensor", f"{_V2}._type_conversion.ToImage",
    f"{_V2}._deprecated.ToTensor", f"{_TIMM}.MaybeToTensor", f"{_TIMM}.MaybePILToTensor",
})  # fmt: skip
_BY_VALUE = frozenset({
    f"{_V1}.ConvertImageDtype", f"{_V1}.Normalize", f"{_V2}._misc.ToDtype", f"{_V2}._misc.ConvertImageDtype",
    f"{_V2}._misc.Normalize", f"{_V2}._type_conversion.ToPureTensor",
})  # fmt: skip
"""Steps whose every output value follows from one input value and its channel."""
_DRAWING = ("Random", "Rand", "ColorJitter", "AutoAugment", "TrivialAugment", "AugMix", "GaussianBlur", "GaussianNoise",
            "ElasticTransform", "ScaleJitter", "MixUp", "CutMix", "JPEG", "SimpleCopyPaste")  # fmt: skip
"""How the names of torchvision's and timm's steps begin that draw random numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What a transform becomes."""

    whole: Own | None
    """The user's transform; None for none."""
    fused: tuple[Fused, ...]
    """Done while decoding, in this order."""
    to_tensor: tuple[Own, ...]
    """Steps behind them that make a tensor and change it value by value; empty where the picture is given on."""
    tail: tuple[Own, ...]
    """All other steps."""
    shape: tuple[int, int] | None
    """Height and width behind the fused steps, where they are the same for every picture."""
    random: bool
    """Whether a step is known to draw random numbers: training, not evaluation."""
    names: tuple[str, ...]
    """Of what is fused."""
    why_not: str | None
    """Why the step behind those is not fused; None where all are."""
    seen: tuple[tuple[Any, tuple[tuple[str, Any], ...]], ...]
    """The steps and containers as they were, to tell whether they have been changed."""

    @property
    def rest(self) -> tuple[Own, ...]:
        """What is called behind the fused steps, for one sample."""
        return self.to_tensor + self.tail

    def is_current(self) -> bool:
        """Whether no step has been given another attribute since it was read."""
        for owner, before in self.seen:
            now = vars(owner)
            if len(now) != len(before) or any(now.get(name, _NOTHING) is not value for name, value in before):
                return False
        return True


_NOTHING = object()


def read(transform: Own | None) -> Recipe:
    """Read a transform of images."""
    seen: list[Any] = []
    flat = [] if transform is None else list(_flat(transform, seen))
    fused: list[Fused] = []
    why_not = None
    while flat and why_not is None:
        step = _known(flat[0])
        if isinstance(step, str):
            why_not = step
        else:
            fused.append(Fused(flat[0], _name(flat[0]), step))
            seen.append(flat[0])
            del flat[0]
    to_tensor: list[Own] = []
    while flat and _path(flat[0]) in (_BY_VALUE if to_tensor else _TO_TENSOR) and _untouched(flat[0]):
        seen.append(flat[0])
        to_tensor.append(flat.pop(0))
    if to_tensor:
        why_not = _unknown(flat[0]) if flat else None
    shape: tuple[int, int] | None = None
    for one in fused:
        shape = one.step.shape(shape)
    draws = any(one.step.random for one in fused) or any(_draws(own) for own in flat)
    names = (*(one.name for one in fused), *map(_name, to_tensor))
    states = tuple((owner, tuple(vars(owner).items())) for owner in seen if hasattr(owner, "__dict__"))
    return Recipe(
        whole=transform, fused=tuple(fused), to_tensor=tuple(to_tensor), tail=tuple(flat), shape=shape, random=draws,
        names=names, why_not=why_not, seen=states,
    )  # fmt: skip


def _flat(transform: Own, seen: list[Any]) -> Iterator[Own]:
    """The steps in order, containers opened."""
    path = _path(transform)
    if path in _CONTAINERS and _untouched(transform):
        seen.append(transform)
        inner: Any = transform.transforms if hasattr(transform, "transforms") else list(transform)  # type: ignore[call-overload]
        if isinstance(inner, list | tuple):
            seen.append(_Listed(inner))
        for step in inner:
            yield from _flat(step, seen)
    elif path == _PRESET and _untouched(transform):
        seen.append(transform)
        yield from _preset(transform)
    else:
        yield transform


class _Listed:
    """The steps of a container, as attributes: one that is put into the list later is seen."""

    def __init__(self, steps: Sequence[Own]) -> None:
        self._steps = steps

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        return {str(number): step for number, step in enumerate(self._steps)}


def _preset(preset: Any) -> list[Own]:  # noqa: ANN401 - torchvision's ImageClassification
    """Its steps, which it calls as functions."""
    v1 = sys.modules["torchvision.transforms"]
    return [
        v1.Resize(preset.resize_size, interpolation=preset.interpolation, antialias=preset.antialias),
        v1.CenterCrop(preset.crop_size), v1.PILToTensor(), v1.ConvertImageDtype(torch.float),
        v1.Normalize(preset.mean, preset.std),
    ]  # fmt: skip


def _path(step: object) -> str:
    """Module and name of its class, or of the function that it is."""
    kind = step if isinstance(step, FunctionType) else type(step)
    return f"{kind.__module__}.{kind.__qualname__}"


def _name(step: object) -> str:
    """What the plan calls it."""
    return step.__qualname__ if isinstance(step, FunctionType) else type(step).__name__


def _unknown(step: object) -> str:
    return f"{_name(step)} ({_path(step)}) is called as it is"


def _untouched(step: Any) -> bool:  # noqa: ANN401 - any step
    """Whether calling it does what its class does: no hooks, no method of its own."""
    own = getattr(step, "__dict__", {})
    if any(callable(value) and hasattr(type(step), name) for name, value in own.items()):
        return False
    hooks = ("_forward_hooks", "_forward_pre_hooks")
    return not isinstance(step, nn.Module) or not any(own.get(name) for name in hooks)


def _draws(step: object) -> bool:
    module = type(step).__module__
    return module.startswith(("torchvision.", "timm.")) and type(step).__name__.lstrip("_").startswith(_DRAWING)


# ------------------------------------------------------------------------------------------------ each known step
def _known(own: Any) -> Step | str:  # noqa: ANN401 - any step
    """What is done in place of a step, or why nothing is."""
    reader = _READERS.get(_path(own))
    if reader is None:
        return _rgb(own) if _converts_to_rgb(own) else _unknown(own)
    if not _untouched(own):
        return f"{_name(own)} has hooks or methods of its own, and is called as it is"
    try:
        return reader(own)
    except (AttributeError, TypeError, ValueError) as error:  # another version's attributes, or wrong ones: its own business
        return f"{_name(own)} is called as it is ({error})"


def _resampling(mode: Any) -> Resampling:  # noqa: ANN401 - InterpolationMode, a text, or Pillow's number
    """Pillow's filter.

    Raises:
        ValueError: There is none.
    """
    if isinstance(mode, int):
        return Resampling(mode)
    return _FILTERS[str(getattr(mode, "value", mode))]


_FILTERS = {
    "nearest": Resampling.NEAREST, "nearest-exact": Resampling.NEAREST, "bilinear": Resampling.BILINEAR,
    "bicubic": Resampling.BICUBIC, "box": Resampling.BOX, "hamming": Resampling.HAMMING, "lanczos": Resampling.LANCZOS,
}  # fmt: skip
_RESAMPLINGS = {Resampling(number): partial(Resampling, number) for number in range(6)}


def _pair(size: Any) -> tuple[int, int]:  # noqa: ANN401 - a pair of numbers, or one
    """(height, width) as torchvision's _setup_size has it."""
    edges = [size, size] if isinstance(size, int) else list(size)
    height, width = edges * 2 if len(edges) == 1 else edges
    if not (isinstance(height, int) and isinstance(width, int) and height > 0 and width > 0):
        msg = f"size {size}"
        raise ValueError(msg)
    return height, width


def _resized_crop(own: Any) -> Step:  # noqa: ANN401
    resampling = _RESAMPLINGS[_resampling(own.interpolation)]
    v1 = sys.modules["torchvision.transforms"].RandomResizedCrop.get_params
    return steps.ResizedCrop(drawn_box(v1, own.scale, own.ratio), _pair(own.size), resampling)


def _timm_crop(own: Any) -> Step:  # noqa: ANN401
    modes = own.interpolation
    if isinstance(modes, tuple | list):
        filters = tuple(map(_resampling, modes))
        return steps.ResizedCrop(asked(own.get_params, own.scale, own.ratio), _pair(own.size), partial(_choice, filters))
    return steps.ResizedCrop(
        asked(own.get_params, own.scale, own.ratio), _pair(own.size), _RESAMPLINGS[_resampling(modes)]
    )  # fmt: skip


def _choice(filters: tuple[Resampling, ...]) -> Resampling:
    """As timm draws it: from the state of the module random."""
    return random.choice(filters)


def _resize(own: Any) -> Step:  # noqa: ANN401
    if own.max_size is not None:
        msg = "max_size"
        raise ValueError(msg)
    size = own.size
    if not isinstance(size, int):
        size = size[0] if len(size) == 1 else _pair(size)
    return steps.Resize(size, _resampling(own.interpolation))


def _center_crop(own: Any) -> Step:  # noqa: ANN401
    size = _pair(own.size)
    return steps.Crop(_centre(size), size)


def _centre(size: tuple[int, int]) -> Draw:
    """Halves are rounded to even, as torchvision does."""
    tall, wide = size
    return lambda height, width: Box(round((height - tall) / 2.0), round((width - wide) / 2.0), tall, wide)


def _random_crop(own: Any) -> Step:  # noqa: ANN401
    if own.padding:
        msg = "padding"
        raise ValueError(msg)
    size = _pair(own.size)
    return steps.Crop(_drawn_place_v2(size) if _path(own).startswith(_V2) else _drawn_place(size), size, random=True)


def _drawn_place(size: tuple[int, int]) -> Draw:
    tall, wide = size

    def place(height: int, width: int) -> Box:
        if (height, width) == size:
            return Box(0, 0, tall, wide)
        top = below(height - tall + 1)
        return Box(top, below(width - wide + 1), tall, wide)

    return place


def _drawn_place_v2(size: tuple[int, int]) -> Draw:
    """An edge that fits exactly draws nothing."""
    tall, wide = size

    def place(height: int, width: int) -> Box:
        top = below(height - tall + 1) if height > tall else 0
        return Box(top, below(width - wide + 1) if width > wide else 0, tall, wide)

    return place


def _flip(way: Transpose, own: Any) -> Step:  # noqa: ANN401
    return steps.Flip(float(np.float32(own.p)), way)  # a tensor of float32 is what torchvision compares with


def _rgb(own: Any) -> Step:  # noqa: ANN401, ARG001 - any step
    return steps.Rgb()


_HORIZONTAL, _VERTICAL = partial(_flip, Transpose.FLIP_LEFT_RIGHT), partial(_flip, Transpose.FLIP_TOP_BOTTOM)
_READERS: dict[str, Callable[[Any], Step]] = {
    f"{_V1}.RandomResizedCrop": _resized_crop, f"{_V2}._geometry.RandomResizedCrop": _resized_crop,
    f"{_TIMM}.RandomResizedCropAndInterpolation": _timm_crop,
    f"{_V1}.Resize": _resize, f"{_V2}._geometry.Resize": _resize,
    f"{_V1}.CenterCrop": _center_crop, f"{_V2}._geometry.CenterCrop": _center_crop,
    f"{_V1}.RandomCrop": _random_crop, f"{_V2}._geometry.RandomCrop": _random_crop,
    f"{_V1}.RandomHorizontalFlip": _HORIZONTAL, f"{_V2}._geometry.RandomHorizontalFlip": _HORIZONTAL,
    f"{_V1}.RandomVerticalFlip": _VERTICAL, f"{_V2}._geometry.RandomVerticalFlip": _VERTICAL,
    f"{_V2}._color.RGB": _rgb,
}  # fmt: skip


def _converts_to_rgb(own: Any) -> bool:  # noqa: ANN401 - any step
    """Whether a function is `lambda image: image.convert("RGB")`, by its compiled code, whatever it is called."""
    if not isinstance(own, FunctionType) and _path(own) == f"{_V1}.Lambda" and _untouched(own):
        own = own.lambd
    if not isinstance(own, FunctionType):
        return False
    code, known = own.__code__, _CONVERTS.__code__
    same = (code.co_code, code.co_names, code.co_argcount, code.co_flags) == (
        known.co_code, known.co_names, known.co_argcount, known.co_flags
    )  # fmt: skip
    return same and [constant for constant in code.co_consts if constant is not None] == ["RGB"] and not own.__closure__


_CONVERTS: FunctionType = lambda image: image.convert("RGB")  # type: ignore[assignment]  # noqa: E731
