"""The part of making a sample that draws no random numbers, and the rest: taken apart, and proven on samples.

What a dataset gives for a sample is taken to be its prefix, and then the rest, a transform. Both are tried on samples from
everywhere in the dataset: the prefix must leave the random numbers of torch, numpy and Python alone, give the same when it is
asked twice, and prefix and rest together must give what the dataset gives from the same random numbers.
"""

import copy
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fastfeed.errors import UsageError
from fastfeed.feed.samplecode import Unkeepable, decoded, encoded

TRIALS = 64
"""Samples on which a prefix is tried."""
_SAMPLE = 'upto="sample" keeps samples as they are.'


@dataclass(frozen=True, slots=True)
class Parts:
    """How samples of a dataset are made."""

    prefix: Any
    """A dataset: its samples can be kept."""
    rest: Callable[[Any], Any] | None
    """What is called with the image of a pair, else with the sample; None where nothing is left to do."""

    def finished(self, sample: Any) -> Any:  # noqa: ANN401 - any sample
        """The dataset's sample, from one of the prefix."""
        if self.rest is None:
            return sample
        if isinstance(sample, tuple | list) and sample:
            return type(sample)([self.rest(sample[0]), *sample[1:]])
        return self.rest(sample)


def parts_of(dataset: Any, upto: str | int) -> Parts:  # noqa: ANN401 - any map-style dataset
    """Take a dataset apart.

    Args:
        dataset: With an attribute transform, unless all of its samples are kept.
        upto: "transform": all before the transform is the prefix; a number: so many steps of the transform (a Compose) as
            well; "sample": everything.

    Raises:
        UsageError: It has no such part.
    """
    if upto == "sample":
        return Parts(dataset, None)
    steps = None if isinstance(upto, bool) or not isinstance(upto, int) else upto
    if upto != "transform" and steps is None:
        msg = "upto is 'transform', 'sample', or a number of steps of the transform"
        raise UsageError(msg, got=repr(upto))
    transform = getattr(dataset, "transform", None)
    if not callable(transform):
        msg = f"the dataset (a {type(dataset).__name__}) has no transform before which its samples could be kept"
        raise UsageError(msg, hint='Give upto="sample" to keep what it gives as it is; cache the dataset behind a Subset.')
    first, rest = (None, transform) if steps is None else _cut(transform, steps)
    prefix = copy.copy(dataset)
    prefix.transform = first
    return Parts(prefix, rest)


def _cut(transform: Any, steps: int) -> tuple[Any, Any]:  # noqa: ANN401 - any transform
    """The first steps of a Compose, and the others."""
    listed = getattr(transform, "transforms", None)
    if not isinstance(listed, list) or not 0 <= steps <= len(listed):
        msg = "upto is a number of steps, and the transform has no such"
        raise UsageError(msg, expected="0 to the number of its steps, of a Compose", got=repr(steps))
    return type(transform)(listed[:steps]) if steps else None, type(transform)(listed[steps:]) if listed[steps:] else None


def made(prefix: Any, index: int) -> tuple[Any, str]:  # noqa: ANN401 - any dataset and sample
    """A sample, and whose random numbers were drawn for it: "" if it can be kept."""
    before = _states()
    sample = prefix[index]
    return sample, _drawn(before)


def prove(dataset: Any, parts: Parts) -> list[int]:  # noqa: ANN401 - any map-style dataset
    """Try the parts on samples; the state of random numbers is as before.

    Args:
        dataset: That was taken apart.
        parts: Of it.

    Returns:
        Sizes in bytes, as they would be kept, of the samples that were tried.

    Raises:
        UsageError: The prefix draws random numbers, or its samples cannot be kept, or the parts are not the whole.
    """
    count = len(dataset)
    before = _states()
    tried = sorted({number * count // TRIALS for number in range(TRIALS)}) if count else []
    try:
        return [_prove_sample(dataset, parts, index) for index in tried]
    finally:
        _restore(before)


def _prove_sample(dataset: Any, parts: Parts, index: int) -> int:  # noqa: ANN401
    before = _states()
    whole_sample = dataset[index]  # whatever it raises is its own
    _restore(before)
    try:
        whole = encoded(whole_sample)
        with _apart(index):
            first = encoded(parts.prefix[index])
            _prove_prefix(parts, index, first, _drawn(before))
            _restore(before)
            joined = encoded(parts.finished(decoded(first)))
    except Unkeepable as error:
        msg = f"samples cannot be kept: {error}"
        raise UsageError(msg, sample=index) from error
    if joined != whole:
        msg = "the kept part and the transform together do not give what the dataset gives"
        hint = f"Its transform is not all that it does with what it reads; {_SAMPLE}"
        hint += ' Of a dataset of fastfeed\'s, open it with decode="exact".'
        raise UsageError(msg, sample=index, hint=hint)
    return len(first)


def _prove_prefix(parts: Parts, index: int, first: bytes, drawn: str) -> None:
    if drawn:
        msg = f"the part of the samples that is to be kept draws random numbers ({drawn}), so it is another one each time"
        raise UsageError(msg, sample=index, hint="Keep less: random steps belong into what is done with each read.")
    if encoded(parts.prefix[index]) != first:
        msg = "the part of the samples that is to be kept is another one each time, though it draws none of the known numbers"
        raise UsageError(msg, sample=index, hint="Keep less: what changes belongs into what is done with each read.")


@contextmanager
def _apart(index: int) -> Iterator[None]:
    """What is raised here is because of the parts: the whole sample could be made."""
    try:
        yield
    except (UsageError, Unkeepable):
        raise
    except Exception as error:
        msg = f"the dataset cannot be taken apart at its transform: there is {type(error).__name__} ({error})"
        hint = f"The transform must be called with the image of a pair, or the sample, and may be None; {_SAMPLE}"
        raise UsageError(msg, sample=index, hint=hint) from error


def _states() -> tuple[torch.Tensor, Any, Any]:
    return torch.get_rng_state(), np.random.get_state(), random.getstate()


def _restore(states: tuple[torch.Tensor, Any, Any]) -> None:
    torch.set_rng_state(states[0])
    np.random.set_state(states[1])
    random.setstate(states[2])


def _drawn(before: tuple[torch.Tensor, Any, Any]) -> str:
    """Whose random numbers were drawn since."""
    of_torch, of_numpy, of_python = _states()
    numpy_moved = any(not np.array_equal(one, other) for one, other in zip(before[1], of_numpy, strict=True))
    moved = {"torch": not torch.equal(before[0], of_torch), "numpy": numpy_moved, "random": before[2] != of_python}
    return ", ".join(name for name, has_moved in moved.items() if has_moved)
