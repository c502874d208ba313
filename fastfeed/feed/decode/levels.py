"""What the steps behind a picture make of its bytes, done for a whole batch where it lies: on a GPU, or here.

ToTensor, Normalize and their kind give each value by itself, so a table of 3 x 256 says all. Looking up is slow on a GPU
beside a few operations on the whole batch. So it is tried whether a usual formula gives the table bit for bit; if one does, it
is calculated. Its operations are single ones of IEEE 754, which every device rounds alike: numbers are tensors on the device,
because torch multiplies by a rounded inverse where it would divide by a number of Python's. So results are those of the CPU,
bit for bit.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

_MOST_KEPT = 8
"""Levels of which something is kept: those of the loaders that are read at once."""
_TO_UNIT = (("div", (255.0,)), ("mul", (1.0 / 255.0,)), None)
"""How bytes become floats: of torchvision's first version and of its second; and unscaled."""


class Step(NamedTuple):
    """An operation with a number for each channel, or one for all."""

    name: str
    """div, mul or sub."""
    values: tuple[float, ...]


class Levels:
    """Values for all levels of three channels.

    Args:
        table: Shape (3, 256), of the dtype that results have.
        steps: Operations that give the table; None where none are known, then it is looked up.
        names: Of the transforms that it stands for.
    """

    def __init__(self, table: NDArray[Any], steps: tuple[Step, ...] | None, names: tuple[str, ...]) -> None:
        self.table, self.steps, self.names = table, steps, names
        self._facts = table.tobytes(), table.dtype.str, steps, names

    def __reduce__(self) -> tuple[Any, ...]:
        return _known, self._facts

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Levels) and self._facts == other._facts

    def __hash__(self) -> int:
        return hash(self._facts)

    def __str__(self) -> str:
        way = "looked up in a table" if self.steps is None else "calculated"
        return f"{' + '.join(self.names)}, {way},"

    @classmethod
    def found(cls, table: NDArray[Any], own: Iterable[Any], names: tuple[str, ...]) -> "Levels":
        """Of a table that transforms gave.

        Args:
            table: Shape (3, 256).
            own: The transforms; those with mean and std are taken for Normalize, which is tried and not believed.
            names: Of them.
        """
        if table.dtype == np.float32:
            ramp = torch.arange(256, dtype=torch.uint8, device="cpu").expand(3, 256)[None, :, :, None]
            for steps in _candidates(list(own)):
                tried = cls(table, steps, names)
                if tried.applied(ramp)[0, :, :, 0].numpy().tobytes() == np.ascontiguousarray(table).tobytes():
                    return tried
        return cls(table, None, names)

    def applied(self, images: torch.Tensor) -> torch.Tensor:
        """The values of images.

        Args:
            images: uint8, shape (images, 3, height, width), on any device; the layout in memory is kept.
        """
        constants = _constants(self, images.device)
        if self.steps is None:
            return _looked_up(images, constants[0])
        made = None if self.steps else images.float()
        for (name, _), value in zip(self.steps, constants, strict=True):
            made = getattr(torch, name)(images, value) if made is None else getattr(made, f"{name}_")(value)
        assert made is not None
        return made


@lru_cache(maxsize=_MOST_KEPT)
def _constants(levels: Levels, device: torch.device) -> tuple[torch.Tensor, ...]:
    """What is calculated with. Levels do not hold it: a dataset has them, which with tensors of a GPU could go to no worker."""
    if levels.steps is None:
        return (torch.tensor(levels.table, device=device),)
    return tuple(torch.tensor(step.values, dtype=torch.float32, device=device).view(1, -1, 1, 1) for step in levels.steps)


def _looked_up(images: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    made = torch.empty_like(images, dtype=table.dtype)
    for channel in range(len(table)):  # one by one: the indices of a channel take eight times its bytes
        made[:, channel] = torch.take(table[channel], images[:, channel].long())
    return made


def _candidates(own: list[Any]) -> Iterator[tuple[Step, ...]]:
    """Operations that the transforms may stand for, by what is usual."""
    steps: list[Step] = []
    for one in own:
        mean, deviation = getattr(one, "mean", None), getattr(one, "std", None)
        if mean is not None and deviation is not None:
            steps += [Step("sub", _floats(mean)), Step("div", _floats(deviation))]
    for unit in _TO_UNIT:
        first = () if unit is None else (Step(*unit),)
        if all(len(step.values) in {1, 3} for step in steps):
            yield (*first, *steps)


def _floats(values: Any) -> tuple[float, ...]:  # noqa: ANN401 - a number, a list or a tensor
    return tuple(torch.as_tensor(values, dtype=torch.float64, device="cpu").flatten().tolist())


@lru_cache(maxsize=_MOST_KEPT)
def _known(table: bytes, dtype: str, steps: tuple[Step, ...] | None, names: tuple[str, ...]) -> Levels:
    """Of what Levels.__reduce__ gave: they come with each batch, and are the same ones each time."""
    return Levels(np.frombuffer(table, dtype=dtype).reshape(3, -1), steps, names)
