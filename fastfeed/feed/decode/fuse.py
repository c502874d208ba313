"""Reads an image transform: which of its first steps are done while decoding, and why the others are not.

Everything from the first step on that is not known (known.py) is called as it is, on what it would have got.

Steps that make a tensor, and change it value by value, give the same behind crops and flips as before them. So these are done
first. Resizing of bytes is too, by torchvision's own kernel for tensors; that of floats is called on what was cropped.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from fastfeed.feed.decode import steps
from fastfeed.feed.decode.arrays import Arrays, as_function, is_of_arrays
from fastfeed.feed.decode.known import TIMM, V1, V2, as_it_is, is_untouched, may_draw, name_of, passed_on, path_of, step_of
from fastfeed.feed.decode.many import Views
from fastfeed.feed.decode.steps import Fused

Own = Callable[[Any], Any]
"""A step of the user's transform."""

_CONTAINERS = frozenset({f"{V1}.Compose", f"{V2}._container.Compose", "torch.nn.modules.container.Sequential"})
_PRESET = "torchvision.transforms._presets.ImageClassification"
_TO_IMAGE = f"{V2}._type_conversion.ToImage"
_TO_BYTES = frozenset({
    f"{V1}.PILToTensor", f"{V2}._type_conversion.PILToTensor", _TO_IMAGE, f"{TIMM}.MaybePILToTensor",
})  # fmt: skip
"""Steps that make a tensor of bytes."""
_TO_TENSOR = _TO_BYTES | {f"{V1}.ToTensor", f"{V2}._deprecated.ToTensor", f"{TIMM}.MaybeToTensor"}
_TO_DTYPE = f"{V2}._misc.ToDtype"
_TO_PURE = f"{V2}._type_conversion.ToPureTensor"
_BY_VALUE = frozenset({
    f"{V1}.ConvertImageDtype", f"{V1}.Normalize", _TO_DTYPE, f"{V2}._misc.ConvertImageDtype",
    f"{V2}._misc.Normalize", _TO_PURE,
})  # fmt: skip
"""Steps whose every output value follows from one input value and its channel."""


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
    seen: tuple[tuple[Any, dict[str, Any]], ...]
    """The steps and containers with their attributes as they were, to tell whether they have been changed."""
    shows_image: bool = False
    """Whether code that is not torchvision's or timm's may see Pillow's image."""
    views: tuple["Recipe", ...] = ()
    """Of Views, what each of its transforms becomes; then nothing is fused or called here."""
    arrays: Arrays | None = None
    """Of a Compose of albumentations, what becomes of it; then nothing is fused or called here."""

    @property
    def moved(self) -> tuple[Own, ...]:
        """Steps that are done behind the fused ones, though they stand among them."""
        return tuple(one.own for one in self.fused if one.moved)

    def behind(self, done: int) -> tuple[Own, ...]:
        """What is called for one sample behind so many of the fused steps."""
        moved = tuple(one.own for one in self.fused[:done] if one.moved)
        return (*moved, *(one.own for one in self.fused[done:]), *self.to_tensor, *self.tail)

    def is_current(self) -> bool:
        """Whether no step has been given another attribute since it was read."""
        try:
            same = all(vars(owner) == before for owner, before in self.seen) and all(view.is_current() for view in self.views)
            return same and (self.arrays is None or self.arrays.is_current())
        except (RuntimeError, ValueError):  # tensors or arrays, which do not say in one word whether they are equal
            return False


def read(transform: Own | None) -> Recipe:
    """Read a transform of images."""
    if type(transform) is Views:
        return _read_views(transform)
    if is_of_arrays(transform):
        return _read_arrays(Arrays(transform), transform)
    seen: list[Any] = []
    flat = [] if transform is None else list(_flat(transform, seen))
    fused, why_not = _fused(flat)
    to_tensor: list[Own] = []
    tensors = any(one.moved for one in fused)
    while flat and path_of(flat[0]) in (_BY_VALUE if to_tensor or tensors else _TO_TENSOR) and is_untouched(flat[0]):
        to_tensor.append(flat.pop(0))
    if to_tensor:
        why_not = as_it_is(flat[0]) if flat else None
    shape: tuple[int, int] | None = None
    for one in fused:
        shape = one.step.shape(shape)
    seen += [*(one.own for one in fused), *to_tensor]
    return Recipe(
        whole=transform, fused=tuple(fused), to_tensor=tuple(to_tensor), tail=tuple(flat), shape=shape,
        random=any(one.step.random for one in fused) or any(map(may_draw, flat)),
        names=(*(one.name for one in fused), *map(name_of, to_tensor)), why_not=why_not,
        seen=tuple((owner, _attributes(owner)) for owner in seen if hasattr(owner, "__dict__")),
        shows_image=not to_tensor and not any(one.moved for one in fused) and _is_shown(flat),
    )  # fmt: skip


def _is_shown(tail: list[Own]) -> bool:
    """Whether an image that these steps get is seen by code that is not torchvision's or timm's, or is what they give."""
    for own in tail:
        if path_of(own) in _TO_TENSOR:
            return False
        if not type(own).__module__.startswith(("torchvision.", "timm.")):
            return True
    return True


def _fused(flat: list[Own]) -> tuple[list[Fused], str | None]:
    """The first steps, taken off the list, and why the next is not among them."""
    fused: list[Fused] = []
    why_not, holds = None, _IMAGE
    while flat and why_not is None:
        own = flat[0]
        moved = path_of(own) in (_TO_TENSOR if holds is _IMAGE else _BY_VALUE) and is_untouched(own)
        step = steps.Nothing() if moved else step_of(own, tensors=holds is not _IMAGE)
        if not moved and path_of(own).startswith(V1) and any(path_of(one.own) == _TO_IMAGE for one in fused):
            step = f"{name_of(own)} of v1 makes a plain tensor of v2's Image, and is called as it is"
        if holds is _FLOATS and isinstance(step, steps.Resize | steps.ResizedCrop):
            why_not = f"{name_of(own)} resizes floats, and is called as it is"
            if isinstance(step, steps.ResizedCrop):
                why_not = f"{name_of(own)} is done but for its resizing, of floats, which is called as it is"
                fused.append(Fused(flat[0], name_of(own), steps.Part(step.draw)))
                flat[0] = steps.Resized(step.kernel, step.size)
        elif isinstance(step, str):
            why_not = step
        else:
            fused.append(Fused(flat.pop(0), name_of(own), step, moved=moved))
            holds = _held(holds, own) if moved else holds
    while fused and fused[-1].moved:  # nothing to move it behind
        flat.insert(0, fused.pop().own)
    return fused, why_not


_IMAGE, _BYTES, _FLOATS = "image", "bytes", "floats"


def _held(before: str, own: Any) -> str:  # noqa: ANN401 - a step that makes or changes a tensor
    """What is held behind such a step."""
    if before is _IMAGE:
        return _BYTES if path_of(own) in _TO_BYTES else _FLOATS
    same = path_of(own) == _TO_DTYPE and own.dtype is torch.uint8
    return before if same or path_of(own) == _TO_PURE else _FLOATS


def _attributes(owner: object) -> dict[str, Any]:
    """As they are; of lists and dicts copies, since those change in place."""
    return {name: value.copy() if isinstance(value, list | dict) else value for name, value in vars(owner).items()}


def _flat(transform: Own, seen: list[Any]) -> Iterator[Own]:
    """The steps in order, containers opened."""
    path = path_of(transform)
    inner = passed_on(transform)
    if inner is not None:
        seen.append(transform)
        yield from _flat(inner, seen)
    elif path in _CONTAINERS and is_untouched(transform):
        seen.append(transform)
        held: Any = transform
        for step in held if path.startswith("torch.") else held.transforms:
            yield from _flat(step, seen)
    elif path == _PRESET and is_untouched(transform):
        seen.append(transform)
        yield from _preset(transform)
    else:
        yield transform


def _preset(preset: Any) -> list[Own]:  # noqa: ANN401 - torchvision's ImageClassification
    """Its steps, which it calls as functions."""
    v1 = sys.modules["torchvision.transforms"]
    return [
        v1.Resize(preset.resize_size, interpolation=preset.interpolation, antialias=preset.antialias),
        v1.CenterCrop(preset.crop_size), v1.PILToTensor(), v1.ConvertImageDtype(torch.float),
        v1.Normalize(preset.mean, preset.std),
    ]  # fmt: skip


def _read_views(views: Views) -> Recipe:
    recipes = tuple(map(_read_view, views.transforms))
    why_not = next((recipe.why_not for recipe in recipes if recipe.why_not is not None), None)
    names = tuple(f"[{' + '.join(recipe.names)}]" for recipe in recipes) if any(recipe.names for recipe in recipes) else ()
    return Recipe(
        whole=views, fused=(), to_tensor=(), tail=(), shape=None, random=any(recipe.random for recipe in recipes),
        names=names, why_not=why_not, seen=((views, _attributes(views)),), views=recipes,
    )  # fmt: skip


def _read_view(transform: Own) -> Recipe:
    """One view; albumentations and views of views are called as they are."""
    return read(partial(as_function(transform)) if type(transform) is Views or is_of_arrays(transform) else transform)


def _read_arrays(arrays: Arrays, compose: Own | None) -> Recipe:
    return Recipe(
        whole=compose, fused=(), to_tensor=(), tail=(), shape=None, random=True,
        names=("albumentations",) if arrays.why_not else (f"albumentations, {arrays.name}",), why_not=arrays.why_not, seen=(),
        arrays=arrays,
    )  # fmt: skip
