"""Random numbers of sample mode: a pure function of (base, epoch, index), whatever worker asks."""

import operator
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
import xxhash

from fastfeed.feed.permutation import mixed


def number_of(index: object) -> int:
    """A whole number that stands for an index: itself, or a hash of a text, the same in every process.

    Python's own hash differs from process to process for texts, and is a place in memory for tensors.
    """
    try:
        return operator.index(index)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError):  # the last two are torch's, of tensors that are no single number
        data = (
            index if isinstance(index, bytes) else (index if isinstance(index, str) else repr(index)).encode("utf-8", "replace")
        )
        return xxhash.xxh3_64_intdigest(data)


@dataclass(frozen=True, slots=True)
class Seeds:
    """What the random numbers of each sample of an epoch are drawn from."""

    base: int
    epoch: int

    def of(self, index: object) -> int:
        """A 63-bit seed for one sample."""
        number = number_of(index)
        return mixed(mixed(self.base + 0x9E3779B97F4A7C15 * (self.epoch + 1)) ^ mixed(number + 0xD1B54A32D192ED03)) >> 1

    def apply(self, index: object) -> None:
        """Seed torch (the CPU generator), numpy and random for one sample."""
        seed = self.of(index)
        torch.default_generator.manual_seed(seed)
        np.random.seed(seed & 0xFFFFFFFF)
        random.seed(seed)


@contextmanager
def states_kept() -> Iterator[None]:
    """The states of torch's, numpy's and random's global generators are afterwards what they were before."""
    states = torch.get_rng_state(), np.random.get_state(), random.getstate()
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        np.random.set_state(states[1])
        random.setstate(states[2])


def drawn_base(generator: torch.Generator | None) -> int:
    """A base seed, drawn as torch's loader draws one."""
    return int(torch.empty((), dtype=torch.int64).random_(generator=generator).item())
