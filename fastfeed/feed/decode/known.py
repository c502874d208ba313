"""Each step of a transform that is known: what is done in its place while decoding.

A step is known by its exact class: a subclass, a step with hooks, or one whose methods were replaced is the user's own.

torchvision and timm are not imported here: who has a step of theirs has loaded them.
"""

import random
import sys
from collections.abc import Callable
from functools import partial
from types import FunctionType
from typing import Any

import torch
from PIL import Image
from PIL.Image import Resampling, Transpose
from torch import nn

from fastfeed.feed.decode import steps
from fastfeed.feed.decode.box import Box
from fastfeed.feed.decode.draws import Draw, asked, below, drawn_box, stand_in
from fastfeed.feed.decode.steps import Step

V1, V2 = "torchvision.transforms.transforms", "torchvision.transforms.v2"
TIMM = "timm.data.transforms"
_FOREIGN = ("torchvision.", "timm.", "torch.")
_DRAWING = ("Random", "Rand", "ColorJitter", "AutoAugment", "TrivialAugment", "AugMix", "GaussianBlur", "GaussianNoise",
            "ElasticTransform", "ScaleJitter", "MixUp", "CutMix", "JPEG", "SimpleCopyPaste")  # fmt: skip
"""How the names of torchvision's and timm's steps begin that draw random numbers."""


# ------------------------------------------------------------------------------------------------ what a step is
def path_of(step: object) -> str:
    """Module and name of its class, or of the function that it is."""
    kind = step if isinstance(step, FunctionType) else type(step)
    return f"{kind.__module__}.{kind.__qualname__}"


def name_of(step: object) -> str:
    """What the plan calls it."""
    return step.__qualname__ if isinstance(step, FunctionType) else type(step).__name__


def as_it_is(step: object) -> str:
    """Why nothing is done in the place of a step that is not known."""
    return f"{name_of(step)} ({path_of(step)}) is called as it is"


def is_untouched(step: Any) -> bool:  # noqa: ANN401 - any step
    """Whether calling it does what its class was written to do: no hooks, no method put in the place of another."""
    own = getattr(step, "__dict__", {})
    if any(callable(value) and hasattr(type(step), name) for name, value in own.items()):
        return False
    hooks = ("_forward_hooks", "_forward_pre_hooks")
    if isinstance(step, nn.Module) and any(own.get(name) for name in hooks):
        return False
    return all(_is_original(kind) for kind in type(step).__mro__ if kind.__module__.startswith(_FOREIGN))


def _is_original(kind: type) -> bool:
    """Whether all methods of a class of torchvision, timm or torch come from there."""
    functions = (value for value in vars(kind).values() if isinstance(value, FunctionType))
    return all(value.__module__.startswith(_FOREIGN) for value in functions)


def may_draw(step: object) -> bool:
    """Whether a step that is not fused is known to draw random numbers."""
    module = type(step).__module__
    return module.startswith(("torchvision.", "timm.")) and type(step).__name__.lstrip("_").startswith(_DRAWING)


def step_of(own: Any, *, tensors: bool) -> Step | str:  # noqa: ANN401 - any step
    """What is done in place of a step, or why nothing is.

    Args:
        own: The user's step.
        tensors: It gets a tensor of bytes, not Pillow's image.
    """
    reader = _READERS.get(path_of(own))
    if reader is None:
        return steps.Nothing() if not tensors and _converts_to_rgb(own) else as_it_is(own)
    if not is_untouched(own):
        return f"{name_of(own)} has hooks or methods of its own, and is called as it is"
    try:
        return reader(own, tensors)
    except (
        AttributeError,
        KeyError,
        TypeError,
        ValueError,
        RuntimeError,
    ) as error:  # another version, or wrong: its own business
        return f"{name_of(own)} is called as it is ({type(error).__name__}: {error})"


# ------------------------------------------------------------------------------------------------ their arguments
def _kernel(own: Any, tensors: bool) -> steps.Kernel:  # noqa: ANN401, FBT001 - any step
    """What resizes as the step does."""
    functional = sys.modules[f"{V2}.functional" if path_of(own).startswith(V2) else "torchvision.transforms.functional"]
    if isinstance(own.interpolation, str):  # not every version of torchvision takes names: it is asked
        functional.resize(Image.new("L", (1, 1)), [2, 2], interpolation=own.interpolation)
    if not tensors:
        return _resampling(own.interpolation)
    mode = str(getattr(own.interpolation, "value", own.interpolation))
    if mode not in _TENSOR_FILTERS:
        msg = f"{mode} of tensors"
        raise ValueError(msg)
    return partial(functional.resize, interpolation=own.interpolation, antialias=own.antialias)


def _resampling(mode: Any) -> Resampling:  # noqa: ANN401 - InterpolationMode, a text, or Pillow's number
    """Pillow's filter.

    Raises:
        KeyError: There is none.
    """
    if isinstance(mode, int):
        return Resampling(mode)
    return _FILTERS[str(getattr(mode, "value", mode))]


_FILTERS = {
    "nearest": Resampling.NEAREST, "nearest-exact": Resampling.NEAREST, "bilinear": Resampling.BILINEAR,
    "bicubic": Resampling.BICUBIC, "box": Resampling.BOX, "hamming": Resampling.HAMMING, "lanczos": Resampling.LANCZOS,
}  # fmt: skip
_TENSOR_FILTERS = frozenset({"nearest", "nearest-exact", "bilinear", "bicubic"})


def _pair(size: Any) -> tuple[int, int]:  # noqa: ANN401 - a pair of numbers, or one
    """(height, width) as torchvision's _setup_size has it.

    Raises:
        ValueError: It is none.
    """
    edges = [size, size] if isinstance(size, int) else list(size)
    height, width = edges * 2 if len(edges) == 1 else edges
    if not (isinstance(height, int) and isinstance(width, int) and height > 0 and width > 0):
        msg = f"size {size}"
        raise ValueError(msg)
    return height, width


# ------------------------------------------------------------------------------------------------ each
def _resized_crop(own: Any, tensors: bool) -> Step:  # noqa: ANN401, FBT001
    kernel = _kernel(own, tensors)
    if path_of(own).startswith(V2):
        make = getattr(own, "make_params", None) or own._get_params  # noqa: SLF001 - its name before torchvision 0.21
        theirs: Draw = lambda height, width: Box(**make([stand_in(height, width)]))  # noqa: E731
    else:
        theirs = asked(own.get_params, own.scale, own.ratio)
    return steps.ResizedCrop(drawn_box(theirs, own.scale, own.ratio), _pair(own.size), lambda: kernel)


def _timm_crop(own: Any, tensors: bool) -> Step:  # noqa: ANN401, FBT001
    if tensors:
        msg = "of a tensor"
        raise ValueError(msg)
    modes = own.interpolation
    filters = tuple(map(_resampling, modes if isinstance(modes, tuple | list) else [modes]))
    kernel = partial(random.choice, filters) if isinstance(modes, tuple | list) else lambda: filters[0]
    return steps.ResizedCrop(asked(own.get_params, own.scale, own.ratio), _pair(own.size), kernel)


def _resize(own: Any, tensors: bool) -> Step:  # noqa: ANN401, FBT001
    if own.max_size is not None:
        msg = "max_size"
        raise ValueError(msg)
    size = own.size
    if not isinstance(size, int):
        size = size[0] if len(size) == 1 else _pair(size)
    return steps.Resize(size, _kernel(own, tensors))


def _center_crop(own: Any, _: bool) -> Step:  # noqa: ANN401, FBT001
    size = _pair(own.size)
    return steps.Crop(_centre(size), size)


def _centre(size: tuple[int, int]) -> Draw:
    """Halves are rounded to even, as torchvision does."""
    tall, wide = size
    return lambda height, width: Box(round((height - tall) / 2.0), round((width - wide) / 2.0), tall, wide)


def _random_crop(own: Any, _: bool) -> Step:  # noqa: ANN401, FBT001
    if own.padding:
        msg = "padding"
        raise ValueError(msg)
    size = _pair(own.size)
    return steps.Crop(_drawn_place_v2(size) if path_of(own).startswith(V2) else _drawn_place(size), size, random=True)


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


def _flip(way: Transpose, own: Any, _: bool) -> Step:  # noqa: ANN401, FBT001
    # What torchvision compares with is rounded as its tensors are.
    return steps.Flip(torch.tensor(float(own.p), device="cpu").item(), way)


def _nothing(own: Any, _: bool) -> Step:  # noqa: ANN401, ARG001, FBT001
    return steps.Nothing()


_HORIZONTAL, _VERTICAL = partial(_flip, Transpose.FLIP_LEFT_RIGHT), partial(_flip, Transpose.FLIP_TOP_BOTTOM)
_READERS: dict[str, Callable[[Any, bool], Step]] = {
    f"{V1}.RandomResizedCrop": _resized_crop, f"{V2}._geometry.RandomResizedCrop": _resized_crop,
    f"{TIMM}.RandomResizedCropAndInterpolation": _timm_crop,
    f"{V1}.Resize": _resize, f"{V2}._geometry.Resize": _resize,
    f"{V1}.CenterCrop": _center_crop, f"{V2}._geometry.CenterCrop": _center_crop,
    f"{V1}.RandomCrop": _random_crop, f"{V2}._geometry.RandomCrop": _random_crop,
    f"{V1}.RandomHorizontalFlip": _HORIZONTAL, f"{V2}._geometry.RandomHorizontalFlip": _HORIZONTAL,
    f"{V1}.RandomVerticalFlip": _VERTICAL, f"{V2}._geometry.RandomVerticalFlip": _VERTICAL,
    f"{V2}._color.RGB": _nothing,
}  # fmt: skip


# ------------------------------------------------------------------------------------------------ by their compiled code
def passed_on(own: Any) -> Any:  # noqa: ANN401 - any step
    """The transform that an object only hands its image to, as torchvision's training presets do; None where it does more.

    Its class has no base and finds attributes as usual, and is called by
    `def __call__(self, image): return self.transforms(image)`, whatever the names.
    """
    kind = type(own)
    call = vars(kind).get("__call__")
    plain = kind.__mro__ == (kind, object) and not {"__getattr__", "__getattribute__"} & set(vars(kind))
    if not plain or not isinstance(call, FunctionType) or call.__closure__ or not _is_same_code(call, _HANDS_ON):
        return None
    inner = getattr(own, "__dict__", {}).get(call.__code__.co_names[0])
    return inner if callable(inner) and is_untouched(own) else None


def _is_same_code(function: FunctionType, other: FunctionType) -> bool:
    facts = ("co_code", "co_argcount", "co_kwonlyargcount", "co_flags")
    return all(getattr(function.__code__, fact) == getattr(other.__code__, fact) for fact in facts)


def _converts_to_rgb(own: Any) -> bool:  # noqa: ANN401 - any step
    """Whether a function is `lambda image: image.convert("RGB")`, by its compiled code, whatever it is called."""
    if not isinstance(own, FunctionType) or own.__closure__ or not _is_same_code(own, _CONVERTS):
        return False
    constants = [constant for constant in own.__code__.co_consts if constant is not None]
    return constants == ["RGB"] and own.__code__.co_names == ("convert",)


_CONVERTS: FunctionType = lambda image: image.convert("RGB")  # type: ignore[assignment]  # noqa: E731
_HANDS_ON: FunctionType = lambda self, image: self.transforms(image)  # type: ignore[assignment]  # noqa: E731
