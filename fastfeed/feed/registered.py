"""Memory that workers write batches into, page-locked once, so that the device reads it where it is: no copy, no thread.

A slot (slots.py) is mapped once and used again for many batches. It is registered with the device when the first of them is
moved, and unregistered when the mapping is about to go: the array over it dies before its memory does.
"""

import logging
import os
import weakref

import torch

from fastfeed.feed.card import Card
from fastfeed.feed.slots import memory_under

LOG = logging.getLogger("fastfeed.loader")


class Registered:
    """What a card may read of the slots.

    Args:
        card: It.
    """

    def __init__(self, card: Card) -> None:
        self._card = card
        self.refused: str | None = None
        """Why no more is registered."""

    def has(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor lies in a slot that the device may read; one that is new is registered now."""
        if self.refused is not None:
            return False
        memory = memory_under(tensor)
        if memory is None:
            return False
        address = int(memory.ctypes.data)
        if address in _HELD:
            return True
        self.refused = self._card.register(address, memory.nbytes)
        if self.refused is not None:
            LOG.warning("batches are copied into pinned memory before they go to the device: %s", self.refused)
            return False
        _HELD[address] = memory.nbytes
        # At exit the process takes its mappings down by itself, and CUDA may be gone before.
        weakref.finalize(memory, _release, self._card, address, os.getpid()).atexit = False
        return True


def registered_bytes() -> int:
    """How much memory of this process is registered."""
    return sum(_HELD.values())


def _release(card: Card, address: int, process: int) -> None:
    if process == os.getpid():  # a forked process has the mapping, and neither the device nor the registration
        del _HELD[address]
        card.unregister(address)


_HELD: dict[int, int] = {}
"""Address and bytes of what is registered."""
