"""albumentations: a Compose as the transform of an image. It is called with an array, and its result's image is the sample's.

Where its first step is a crop, only that part is decoded: the step is asked for its numbers, from its own generator,
and does its work on the part. All kernels are albumentations' own. It is not imported here: who has a Compose has loaded it.
"""

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfeed.feed.decode.box import Box
from fastfeed.feed.decode.known import as_it_is, name_of, path_of
from fastfeed.feed.decode.picture import Picture, Pixels

_COMPOSE = "albumentations.core.composition.Compose"
_HOME = "albumentations.augmentations.crops.transforms"
_CROPS = frozenset({f"{_HOME}.RandomResizedCrop", f"{_HOME}.RandomCrop", f"{_HOME}.CenterCrop"})
_MORE = (43, 60)
_SIZE = "height", "width"


def is_of_arrays(transform: object) -> bool:
    """Whether a transform is a Compose of albumentations, which takes image=array and gives a dict."""
    return path_of(transform) == _COMPOSE


def as_function(transform: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A transform as a function of Pillow's image."""
    return partial(_called, transform) if is_of_arrays(transform) else transform


def _called(compose: Any, image: Any) -> Any:  # noqa: ANN401 - albumentations'
    return compose(image=np.array(image))["image"]


class Arrays:
    """A Compose of albumentations, read.

    Args:
        compose: It.

    Attributes:
        why_not: Why the whole image is decoded; None where its first step's part is.
    """

    def __init__(self, compose: Any) -> None:  # noqa: ANN401
        self._compose = compose
        self._first: Any = compose.transforms[0] if len(compose.transforms) else None
        self.why_not = self._found()

    def _found(self) -> str | None:
        compose, first = self._compose, self._first
        if path_of(first) not in _CROPS:
            return as_it_is(first)
        try:
            if compose.processors or compose._additional_targets or compose.save_applied_params:  # noqa: SLF001 - as it is called
                return "the Compose has boxes, key points or other targets"
            if first.replay_mode or first.deterministic:
                return f"{name_of(first)} is replayed"
            return None if self._agrees() else f"{name_of(first)} of this version of albumentations crops otherwise"
        except Exception as error:  # noqa: BLE001 - another version: whatever is wrong with it, it is called as it is
            return f"{name_of(first)} is called as it is ({type(error).__name__}: {error})"

    def _agrees(self) -> bool:
        """Whether a few crops of the part are those of the whole. The user's own random numbers stay as they are."""
        tall, wide = (getattr(self._first, name, 0) for name in _SIZE)
        shape = (_MORE[0] + tall, _MORE[1] + wide, 3)
        picture = np.arange(np.prod(shape), dtype=np.uint32).astype(np.uint8).reshape(shape)
        python, generator = self._first.py_random, self._first.random_generator
        before = python.getstate(), generator.bit_generator.state
        try:
            for seed in range(4):
                ends = []
                for crop in (self._of_part, lambda whole: self._first(image=whole)["image"]):
                    python.setstate(random.Random(seed).getstate())
                    generator.bit_generator.state = before[1]
                    ends.append((crop(picture), python.getstate(), str(generator.bit_generator.state)))
                if not np.array_equal(ends[0][0], ends[1][0]) or ends[0][1:] != ends[1][1:]:
                    return False
        finally:
            python.setstate(before[0])
            generator.bit_generator.state = before[1]
        return True

    def _of_part(self, whole: NDArray[np.uint8]) -> Any:  # noqa: ANN401
        if not self._first.should_apply():
            return whole
        box, params = self._drawn(*whole.shape[:2])
        if box is not None:
            whole = whole[box.top : box.top + box.height, box.left : box.left + box.width].copy()
        return self._first.apply(whole, **params)

    def _drawn(self, height: int, width: int) -> tuple[Box | None, dict[str, Any]]:
        """The part that the first step takes, and its numbers for that part alone; no part where it pads."""
        first = self._first
        whole = np.broadcast_to(np.uint8(0), (height, width, 3))
        params = first.update_transform_params(params=first.get_params(), data={"image": whole})
        params.update(first.get_params_dependent_on_data(params=params, data={"image": whole}))
        if params.get("pad_params") is not None:
            return None, params
        left, top, right, bottom = map(int, params["crop_coords"])
        params["crop_coords"] = (0, 0, right - left, bottom - top)
        return Box(top, left, bottom - top, right - left), params

    @property
    def name(self) -> str:
        """Of the first step."""
        return name_of(self._first)

    def is_current(self) -> bool:
        """Whether the first step is still the same; what it is asked for are its attributes of the moment."""
        steps = self._compose.transforms
        return (steps[0] if len(steps) else None) is self._first

    def begun(self, picture: Picture) -> tuple[Pixels, Callable[[Any], Any]]:
        """The pixels that are needed, and what makes the result of them.

        Where it raises, numbers of albumentations' generators were drawn, unlike torch's elsewhere: keeping their states would
        take 40 us an image.

        Raises:
            Exception: What Pillow raises, or the step.
        """
        compose, first = self._compose, self._first
        if self.why_not is not None:
            return picture.array(), lambda pixels: compose(image=pixels)["image"]
        if compose.py_random.random() >= compose.p:
            return picture.array(), lambda pixels: pixels
        others = list(compose.transforms)[1:]
        if not first.should_apply():
            return picture.array(), partial(_behind, others)
        try:
            box, params = self._drawn(picture.height, picture.width)
        except Exception:  # noqa: BLE001 - an image too small: the step raises it again where it is called
            return picture.array(), partial(_behind, [partial(first, force_apply=True), *others])  # that was drawn already
        if box is not None:
            picture.crop(box)
        return picture.array(), lambda pixels: _behind(others, np.ascontiguousarray(first.apply(pixels, **params)))


def _behind(others: list[Any], pixels: Pixels) -> Any:  # noqa: ANN401
    data: dict[str, Any] = {"image": pixels}
    for step in others:
        data = step(**data)
    return data["image"]
